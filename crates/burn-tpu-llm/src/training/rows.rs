//! Examples in rows of one length. Short ones share a row, and do not see each other.

use super::batch::Batch;
use super::example::Example;
use crate::error::Result;
use crate::random::uniform;
use crate::tokenizer::Tokenizer;
use burn::prelude::*;
use burn::tensor::DType;

/// A row of examples, one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// `length + 1` tokens; after the examples, zeros.
    pub tokens: Vec<i32>,
    /// Of each token but the first, 1 if it is learned, else 0.
    pub weights: Vec<f32>,
    /// Of each token but the last, where in the row its example begins.
    pub starts: Vec<i32>,
}

/// Rows of one length.
#[derive(Clone, Debug)]
pub struct Rows {
    length: usize,
    rows: Vec<Row>,
    /// Tokens of the row that is being filled.
    filled: usize,
    cut: usize,
    /// Whether some example begins within a row, after another one.
    shared: bool,
}

impl Rows {
    /// Puts examples into rows that predict `length` tokens each, in their order: an example that does not fit in the
    /// rest of a row begins the next one. What is longer than a row loses its end.
    pub fn new(examples: &[Example], length: usize) -> Self {
        let mut rows = Self { length, rows: Vec::new(), filled: 0, cut: 0, shared: false };
        for example in examples.iter().filter(|example| example.tokens.len() > 1) {
            rows.add(example);
        }
        // An example may have lost all that is learned.
        rows.rows.retain(|row| row.weights.contains(&1.0));
        rows
    }

    fn add(&mut self, example: &Example) {
        let places = self.length + 1;
        let tokens = example.tokens.len().min(places);
        self.cut += usize::from(tokens < example.tokens.len());
        if self.rows.is_empty() || self.filled + tokens > places {
            let starts = (0..self.length as i32).collect();
            self.rows.push(Row { tokens: vec![0; places], weights: vec![0.0; self.length], starts });
            self.filled = 0;
        }
        let (begin, end) = (self.filled, self.filled + tokens);
        self.filled = end;
        self.shared |= begin > 0;
        let Some(row) = self.rows.last_mut() else { return };
        for place in begin..end {
            row.tokens[place] = example.tokens[place - begin] as i32;
            if place > begin && example.learned[place - begin] {
                row.weights[place - 1] = 1.0;
            }
        }
        row.starts[begin..end.min(self.length)].fill(begin as i32);
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns how many examples lost their end.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// Takes the last rows away, at most `count` and all but one, and returns them.
    pub fn split_off(&mut self, count: usize) -> Self {
        let at = self.rows.len().saturating_sub(count).max(1).min(self.rows.len());
        Self { rows: self.rows.split_off(at), cut: 0, ..*self }
    }

    /// Returns the numbers of the rows of a batch: all rows in a random order that follows from the seed, then all in
    /// another one, and so on.
    pub fn shuffled(&self, batch: usize, size: usize, seed: u64) -> Vec<usize> {
        let (mut chosen, mut order) = (Vec::with_capacity(size), (usize::MAX, Vec::new()));
        for at in batch * size..(batch + 1) * size {
            let (round, place) = (at / self.rows.len(), at % self.rows.len());
            if order.0 != round {
                order = (round, self.order(seed.wrapping_add(round as u64)));
            }
            chosen.push(order.1[place]);
        }
        chosen
    }

    /// Returns all rows in a random order (Fisher and Yates's).
    fn order(&self, seed: u64) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.rows.len()).collect();
        for last in (1..order.len()).rev() {
            let other = (uniform(seed, last as u64) * (last + 1) as f64) as usize;
            order.swap(last, other);
        }
        order
    }

    /// Returns some of the rows as a batch. It has no `starts` if no examples share a row anywhere, so that all batches
    /// are one program.
    ///
    /// # Panics
    /// If a number is none of a row.
    pub fn batch<B: Backend>(&self, numbers: &[usize], device: &B::Device) -> Batch<B> {
        let rows = || numbers.iter().map(|number| &self.rows[*number]);
        let tokens: Vec<i32> = rows().flat_map(|row| row.tokens.iter().copied()).collect();
        let weights: Vec<f32> = rows().flat_map(|row| row.weights.iter().copied()).collect();
        let (count, length) = (numbers.len(), self.length);
        let starts = self.shared.then(|| {
            let starts: Vec<i32> = rows().flat_map(|row| row.starts.iter().copied()).collect();
            Tensor::from_data(TensorData::new(starts, [count, length]), device)
        });
        Batch {
            tokens: Tensor::from_data(TensorData::new(tokens, [count, length + 1]), device),
            weights: Tensor::from_data(TensorData::new(weights, [count, length]), (device, DType::F32)),
            starts,
        }
    }

    /// Returns the bytes of the text that the learned tokens of all rows are.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`](crate::LlmError::Tokenizer).
    pub fn learned_bytes(&self, tokenizer: &Tokenizer) -> Result<usize> {
        let mut bytes = 0;
        for row in &self.rows {
            let learned = row.tokens[1..].iter().zip(&row.weights).filter(|(_, weight)| **weight > 0.0);
            let learned: Vec<u32> = learned.map(|(token, _)| *token as u32).collect();
            bytes += tokenizer.decode(&learned)?.len();
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(tokens: &[u32], learned: &[bool]) -> Example {
        Example { tokens: tokens.to_vec(), learned: learned.to_vec() }
    }

    #[test]
    fn examples_share_rows_and_keep_to_themselves() {
        let examples = [
            example(&[1, 2, 3], &[false, true, true]),
            example(&[4, 5], &[true, true]),
            example(&[6, 7, 8, 9, 10, 11, 12], &[false, false, true, true, true, true, true]),
            example(&[13], &[true]),
        ];
        let rows = Rows::new(&examples, 5);
        let row = |tokens: [i32; 6], weights: [f32; 5], starts: [i32; 5]| Row {
            tokens: tokens.to_vec(),
            weights: weights.to_vec(),
            starts: starts.to_vec(),
        };
        // The 4 is not learned, though it is marked: what is before it is another example.
        assert_eq!(rows.rows()[0], row([1, 2, 3, 4, 5, 0], [1.0, 1.0, 0.0, 1.0, 0.0], [0, 0, 0, 3, 3]));
        assert_eq!(rows.rows()[1], row([6, 7, 8, 9, 10, 11], [0.0, 1.0, 1.0, 1.0, 1.0], [0; 5]));
        assert_eq!((rows.rows().len(), rows.cut(), rows.shared), (2, 1, true));
        let rows = Rows::new(&examples[..1], 5);
        assert_eq!(rows.rows()[0].starts, [0, 0, 0, 3, 4]);
        assert!(!rows.shared);
    }

    #[test]
    fn a_round_of_batches_has_every_row_once_in_an_order_of_the_seed() {
        let examples: Vec<_> = (0..7).map(|id| example(&[id, id], &[true; 2])).collect();
        let mut rows = Rows::new(&examples, 1);
        let round = |seed| (0..7).flat_map(|batch| rows.shuffled(batch, 2, seed)).collect::<Vec<_>>();
        let (first, again, other) = (round(1), round(1), round(2));
        assert_eq!(first, again);
        assert_ne!(first, other);
        for half in first.chunks(7) {
            let mut half = half.to_vec();
            half.sort_unstable();
            assert_eq!(half, (0..7).collect::<Vec<_>>());
        }
        assert_ne!(first[..7], first[7..]);
        assert_eq!((rows.split_off(2).rows().len(), rows.rows().len()), (2, 5));
        assert_eq!((rows.split_off(9).rows().len(), rows.rows().len()), (4, 1));
    }
}
