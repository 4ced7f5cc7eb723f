//! Sentences in batches of few shapes: every batch is padded to a bucket of rows and a bucket of tokens, so that a program
//! is compiled for each pair that occurs and for nothing else.

use crate::text::Tokens;
use anyhow::{Context, Result, anyhow, ensure};
use burn::prelude::*;
use burn::tensor::backend::ExecutionError;
use burn_tpu::{Buckets, Compiled, Tpu, TpuDevice, TpuFloat};
use burn_tpu_workspace::models::Bert;

/// The lengths that sentences are padded to, in tokens: in steps of 8, 16 and 32, so that above 32 tokens less than a fifth
/// of the longest sentence's row is padding.
const LENGTHS: [usize; 16] = [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256];
/// The rows that batches are padded to, beside the largest: a query alone, and a last batch that is not full.
const ROWS: [usize; 2] = [1, 8];

/// Token ids or a mask, `[rows, length]`.
type Numbers<F> = Tensor<Tpu<F>, 2, Int>;
/// A function of ids and mask that returns vectors `[rows, width]`.
type Encode<F> = Compiled<(Numbers<F>, Numbers<F>), Tensor<Tpu<F>, 2>>;

/// Maps tokens to unit vectors.
pub struct Encoder<F: TpuFloat> {
    /// The model's forward, recorded once for each shape.
    encode: Encode<F>,
    device: TpuDevice,
    lengths: Buckets,
    rows: Buckets,
}

/// The sentences of a batch, by their places in the list of all, and its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    places: Vec<usize>,
    /// `[rows, length]`
    shape: [usize; 2],
}

impl<F: TpuFloat> Encoder<F> {
    /// Creates an encoder of sentences of at most `context` tokens, in batches of at most `batch`.
    pub fn new(model: Bert<Tpu<F>>, context: usize, batch: usize, device: TpuDevice) -> Result<Self> {
        let up_to = |most: usize, sizes: &[usize]| {
            Buckets::new(sizes.iter().copied().filter(|&size| size < most).chain([most]))
        };
        let (lengths, rows) = (up_to(context, &LENGTHS)?, up_to(batch, &ROWS)?);
        let encode = burn_tpu::compile(move |(ids, mask): (Numbers<F>, Numbers<F>)| model.forward(ids, mask));
        Ok(Self { encode, device, lengths, rows })
    }

    /// Divides sentences into batches of similar lengths, the shortest first. A batch is as long as its longest sentence.
    pub fn plan(&self, tokens: &[Tokens]) -> Result<Vec<Batch>> {
        let most = self.rows.sizes().last().copied().context("the encoder has a size of batches")?;
        let mut sorted: Vec<_> = (0..tokens.len()).collect();
        sorted.sort_by_key(|&place| tokens[place].ids.len());
        let batch = |places: &[usize]| {
            let longest = places.iter().map(|&place| tokens[place].ids.len()).max().unwrap_or(0);
            let shape = [self.rows.size(places.len())?, self.lengths.size(longest)?];
            Ok(Batch { places: places.to_vec(), shape })
        };
        sorted.chunks(most).map(batch).collect()
    }

    /// Runs each shape of these batches, so that none of them compiles afterwards. Returns the number of shapes. The largest
    /// is the first: if the device has too little memory for it, the run ends at once.
    pub fn warm_up(&self, batches: &[Batch]) -> Result<usize> {
        let mut shapes: Vec<_> = batches.iter().map(|batch| batch.shape).collect();
        shapes.sort_unstable_by_key(|&[rows, length]| std::cmp::Reverse((length, rows)));
        shapes.dedup();
        for &shape in &shapes {
            let blank = || vec![0; shape[0] * shape[1]];
            read(self.run(blank(), blank(), shape)?)?;
        }
        Ok(shapes.len())
    }

    /// Returns the unit vector of each sentence. The next batch is padded while the device runs the one before.
    pub fn embed(&self, tokens: &[Tokens], batches: &[Batch]) -> Result<Vec<Vec<f32>>> {
        let mut vectors = vec![Vec::new(); tokens.len()];
        let mut running = None;
        for batch in batches {
            let (ids, mask) = batch.fill(tokens);
            let result = self.run(ids, mask, batch.shape)?;
            if let Some((batch, result)) = running.replace((batch, result)) {
                keep(batch, read(result)?, &mut vectors);
            }
        }
        if let Some((batch, result)) = running {
            keep(batch, read(result)?, &mut vectors);
        }
        ensure!(vectors.iter().all(|vector| !vector.is_empty()), "a sentence is in none of the batches");
        Ok(vectors)
    }

    /// Dispatches a batch, and returns its vectors `[rows, width]` without waiting for them.
    fn run(&self, ids: Vec<i32>, mask: Vec<i32>, shape: [usize; 2]) -> Result<Tensor<Tpu<F>, 2>> {
        let tensor = |numbers| Numbers::<F>::from_data(TensorData::new(numbers, shape), &self.device);
        Ok(self.encode.call((tensor(ids), tensor(mask)))?)
    }
}

impl Batch {
    /// Returns the ids and the mask of the batch, `[rows, length]`. Padding has id 0 and mask 0.
    fn fill(&self, tokens: &[Tokens]) -> (Vec<i32>, Vec<i32>) {
        let [rows, length] = self.shape;
        let (mut ids, mut mask) = (vec![0; rows * length], vec![0; rows * length]);
        for (row, &place) in self.places.iter().enumerate() {
            let sentence = &tokens[place].ids;
            let here = row * length..row * length + sentence.len();
            ids[here.clone()].copy_from_slice(sentence);
            mask[here].fill(1);
        }
        (ids, mask)
    }
}

/// Waits for the vectors of a batch.
fn read<B: Backend>(vectors: Tensor<B, 2>) -> Result<Vec<Vec<f32>>> {
    let [_, width] = vectors.dims();
    let data = vectors.try_into_data().map_err(|error: ExecutionError| anyhow!("{error}"))?;
    let numbers = data.into_vec::<f32>().map_err(|error| anyhow!("the vectors are not in f32: {error:?}"))?;
    Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect())
}

/// Puts the vectors of a batch into the list of all.
fn keep(batch: &Batch, found: Vec<Vec<f32>>, vectors: &mut [Vec<f32>]) {
    for (&place, vector) in batch.places.iter().zip(found) {
        vectors[place] = vector;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_workspace::models::BertConfig;

    fn encoder(batch: usize) -> Encoder<f32> {
        let device = TpuDevice::new(burn_tpu::Platform::NdArray, 0);
        let model: Bert<Tpu<f32>> = BertConfig::new(20, 16, 1, 2, 16, 40).init(&device);
        // Random weights are drawn when they are first used, which a compiled function would record.
        let blank = || Numbers::<f32>::zeros([1, 8], &device);
        model.forward(blank(), blank());
        Encoder::new(model, 40, batch, device).unwrap()
    }

    fn sentences(lengths: &[usize]) -> Vec<Tokens> {
        let ids = |length: usize| (0..length).map(|place| 1 + (place * length) as i32 % 19).collect();
        lengths.iter().map(|&length| Tokens { ids: ids(length), truncated: false }).collect()
    }

    #[test]
    fn batches_have_sentences_of_similar_lengths() {
        let shapes = |encoder: Encoder<f32>, lengths: &[usize]| {
            let batches = encoder.plan(&sentences(lengths)).unwrap();
            batches.into_iter().map(|batch| (batch.places, batch.shape)).collect::<Vec<_>>()
        };
        let lengths = [40, 3, 17, 8, 33];
        assert_eq!(shapes(encoder(64), &lengths), [(vec![1, 3, 2, 4, 0], [8, 40])]);
        assert_eq!(shapes(encoder(2), &lengths), [(vec![1, 3], [2, 8]), (vec![2, 4], [2, 40]), (vec![0], [1, 40])]);
        assert_eq!(shapes(encoder(10), &[5; 9]), [((0..9).collect(), [10, 8])]);
    }

    #[test]
    fn vectors_come_back_in_the_order_of_the_sentences() {
        let tokens = sentences(&[20, 3, 17, 8, 33]);
        let encoder = encoder(2);
        let batches = encoder.plan(&tokens).unwrap();
        assert_eq!(encoder.warm_up(&batches).unwrap(), 3, "of [3, 8], [17, 20] and [33] tokens");
        let together = encoder.embed(&tokens, &batches).unwrap();
        for (one, vector) in tokens.iter().zip(&together) {
            let one = std::slice::from_ref(one);
            let alone = encoder.embed(one, &encoder.plan(one).unwrap()).unwrap();
            let difference = alone[0].iter().zip(vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(difference < 1e-5, "{difference}");
        }
    }
}
