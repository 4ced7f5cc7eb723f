//! Packed sequences: the tokens of all documents in a row, cut into windows of equal length.
//!
//! Windows overlap by one token, so that every token but the first is a target once.

use anyhow::{Result, ensure};
use burn::prelude::*;

/// The tokens of a split and its windows.
pub struct Packed {
    tokens: Vec<u32>,
    sequence: usize,
}

/// Sequences and the tokens after each of theirs.
#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    /// `[batch, sequence]`
    pub inputs: Tensor<B, 2, Int>,
    /// `[batch, sequence]`
    pub targets: Tensor<B, 2, Int>,
}

impl Packed {
    /// Packs tokens into sequences, of which there must be at least one.
    pub fn new(tokens: Vec<u32>, sequence: usize, name: &str) -> Result<Self> {
        ensure!(
            tokens.len() > sequence,
            "the {name} text has {} tokens, and a sequence needs {} (`--sequence` makes it shorter)",
            tokens.len(),
            sequence + 1
        );
        Ok(Self { tokens, sequence })
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> usize {
        (self.tokens.len() - 1) / self.sequence
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns a sequence and the token after it.
    pub fn window(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.sequence..][..=self.sequence]
    }

    /// Returns the indices of the windows of training batch `number`: each epoch has its own order.
    pub fn shuffled(&self, number: usize, batch: usize, seed: u64) -> Vec<usize> {
        let windows = self.len();
        let mut rows = Vec::with_capacity(batch);
        let (mut epoch, mut order) = (usize::MAX, Vec::new());
        for row in number * batch..(number + 1) * batch {
            if row / windows != epoch {
                epoch = row / windows;
                order = permutation(windows, seed.wrapping_add(epoch as u64));
            }
            rows.push(order[row % windows]);
        }
        rows
    }

    /// Returns the indices of at most `count` windows, spread over the text, in batches of `batch`; a last one that is not
    /// full is left out, unless it is the only one.
    pub fn spread(&self, count: usize, batch: usize) -> Vec<Vec<usize>> {
        let windows = self.len();
        let count = count.min(windows);
        let indices: Vec<usize> = (0..count).map(|index| index * windows / count).collect();
        let full = if count < batch { count } else { count / batch * batch };
        indices[..full].chunks(batch).map(<[usize]>::to_vec).collect()
    }

    /// Returns windows as a batch on the device.
    pub fn batch<B: Backend>(&self, rows: &[usize], device: &B::Device) -> Batch<B> {
        let shifted = |by: usize| {
            let tokens = rows.iter().flat_map(|row| &self.window(*row)[by..by + self.sequence]);
            let tokens: Vec<i32> = tokens.map(|token| *token as i32).collect();
            Tensor::from_data(TensorData::new(tokens, [rows.len(), self.sequence]), device)
        };
        Batch { inputs: shifted(0), targets: shifted(1) }
    }
}

/// Returns the numbers below `count` in an order that depends on the seed alone.
fn permutation(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed;
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, (split_mix(&mut state) % (last as u64 + 1)) as usize);
    }
    order
}

/// SplitMix64: enough for an order of windows.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    #[test]
    fn every_token_but_the_first_is_a_target_once() {
        let packed = Packed::new((0..13).collect(), 4, "training").unwrap();
        assert_eq!(packed.len(), 3);
        let rows: Vec<usize> = (0..3).collect();
        let batch = packed.batch::<NdArray>(&rows, &Default::default());
        assert_eq!(batch.inputs.into_data().iter::<u32>().collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
        assert_eq!(batch.targets.into_data().iter::<u32>().collect::<Vec<_>>(), (1..13).collect::<Vec<_>>());
    }

    #[test]
    fn an_epoch_has_every_window_once_and_the_next_has_another_order() {
        let packed = Packed::new((0..101).collect(), 5, "training").unwrap();
        let epoch = |first: usize| (first..first + 4).flat_map(|n| packed.shuffled(n, 5, 1)).collect::<Vec<_>>();
        let (first, second) = (epoch(0), epoch(4));
        assert_ne!(first, second);
        assert_eq!(first, epoch(0));
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(packed.shuffled(3, 8, 1).len(), 8, "a batch may begin the next epoch");
    }

    #[test]
    fn held_out_windows_are_spread_over_the_text() {
        let packed = Packed::new((0..101).collect(), 5, "held-out").unwrap();
        assert_eq!(packed.spread(10, 4), [[0, 2, 4, 6], [8, 10, 12, 14]]);
        assert_eq!(packed.spread(100, 20).len(), 1);
        assert_eq!(packed.spread(2, 4), [[0, 10]]);
    }

    #[test]
    fn a_text_shorter_than_a_sequence_is_an_error() {
        let error = Packed::new(vec![1, 2], 4, "held-out").err().unwrap().to_string();
        assert!(error.contains("held-out text has 2 tokens") && error.contains("needs 5"), "{error}");
    }
}
