//! Sizes that vary: programs that differ in sizes alone run as one program for each bucket, with the same results.

use crate::common::{alone, cpu_with};
use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::nn::attention::{generate_autoregressive_mask, generate_padding_mask};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{ShapeBuckets, Tpu, TpuDevice, TpuOptions, metrics};

type F32 = Tpu<f32>;

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 31) % 1009) as f32 / 1009.0 - 0.5).collect()
}

fn tensor<B: Backend, const D: usize>(dims: [usize; D], seed: usize, device: &B::Device) -> Tensor<B, D> {
    Tensor::from_data(TensorData::new(numbers(dims.iter().product(), seed), dims), device)
}

/// Layers of one product and one attention over the filled part of a cache of fixed size.
struct Decoder<B: Backend> {
    weights: Vec<Tensor<B, 2>>,
    embeddings: Tensor<B, 2>,
}

const WIDTH: usize = 64;
const LONGEST: usize = 96;

impl<B: Backend> Decoder<B> {
    fn new(device: &B::Device) -> Self {
        let weights = (0..3).map(|layer| tensor([WIDTH, WIDTH], layer, device) * 0.3).collect();
        Self { weights, embeddings: tensor([50, WIDTH], 17, device) }
    }

    /// Returns the tokens after a prompt. The cache is read as its filled part, so every step has sizes of its own.
    fn generate(&self, prompt: &[i32], count: usize, device: &B::Device) -> Vec<i32> {
        let mut caches = vec![Tensor::<B, 3>::zeros([2, LONGEST, WIDTH / 2], device); self.weights.len()];
        let (mut tokens, mut from) = (prompt.to_vec(), 0);
        for _ in 0..count {
            let new = &tokens[from..];
            let (length, added) = (tokens.len(), new.len());
            let ids = Tensor::<B, 1, Int>::from_data(new, device);
            let mut x = self.embeddings.clone().select(0, ids);
            for (weight, cache) in self.weights.iter().zip(&mut caches) {
                let h = x.clone().matmul(weight.clone()).reshape([added, 2, WIDTH / 2]).swap_dims(0, 1);
                *cache = cache.clone().slice_assign([0..2, from..length, 0..WIDTH / 2], h.clone());
                let keys = cache.clone().slice([0..2, 0..length, 0..WIDTH / 2]);
                let scores = h.matmul(keys.clone().swap_dims(1, 2)) / 5.0;
                let mask = generate_autoregressive_mask::<B>(1, length, device);
                let mask = mask.slice([0..1, from..length, 0..length]).expand([2, added, length]);
                let attention = softmax(scores.mask_fill(mask, f32::NEG_INFINITY), 2);
                x = attention.matmul(keys).swap_dims(0, 1).reshape([added, WIDTH]) + x;
            }
            let last = x.slice([added - 1..added, 0..WIDTH]);
            let logits = log_softmax(last.matmul(self.embeddings.clone().transpose()), 1);
            from = tokens.len();
            tokens.push(logits.argmax(1).into_data().iter::<i32>().next().expect("a token"));
        }
        tokens
    }
}

/// The device whose programs are all compiled, so that a family is not interpreted first.
fn compiling_device() -> Option<TpuDevice> {
    cpu_with("shapes", TpuOptions::training().interpret_from(0).disk_cache(false))
}

#[test]
fn a_cache_that_is_read_as_its_filled_part_compiles_once_for_each_bucket() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let (theirs, ours) = (Decoder::<Flex>::new(&Default::default()), Decoder::<F32>::new(&device));
    let prompts = [vec![3, 9, 27, 31, 5], vec![8; 11], vec![1, 2, 3], vec![4, 30, 2, 7], vec![6; 7]];
    let families = metrics(&device).families;
    let compiles = prompts.each_ref().map(|prompt| {
        let before = metrics(&device).compiles;
        assert_eq!(ours.generate(prompt, 40, &device), theirs.generate(prompt, 40, &Default::default()));
        metrics(&device).compiles - before
    });
    let metrics = metrics(&device);
    // The first prompt, whose program also makes the weights, two tokens, and buckets of 8, 16, 32 and 64. Then two prompts
    // of their own sizes, and a bucket of prompts.
    assert_eq!(compiles, [7, 1, 1, 1, 0], "{metrics}");
    assert_eq!(metrics.families - families, 2, "tokens and prompts: {metrics}");
    assert!(metrics.alias_bytes * 10 > metrics.output_bytes * 9, "the caches are updated in place: {metrics}");
}

/// A sequence that grows by one row at every step, and attends to itself.
fn grown<B: Backend>(steps: usize, device: &B::Device) -> Vec<f32> {
    let weight = tensor::<B, 2>([8, 8], 3, device);
    let mut sequence = tensor::<B, 2>([1, 8], 1, device);
    let mut sums = Vec::new();
    for _ in 0..steps {
        let attention = softmax(sequence.clone().matmul(weight.clone()).matmul(sequence.clone().transpose()), 1);
        let [length, width] = sequence.dims();
        let next = attention.matmul(sequence.clone()).slice([length - 1..length, 0..width]);
        sums.push(next.clone().sum().into_data().iter::<f32>().next().expect("a sum"));
        sequence = Tensor::cat(vec![sequence, next * 1.1 - 0.05], 0);
    }
    sums.extend(sequence.into_data().iter::<f32>());
    sums
}

fn close(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{a} and {b}");
    }
}

#[test]
fn a_sequence_that_grows_by_cat_stays_in_its_bucket() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let before = metrics(&device);
    close(&grown::<F32>(60, &device), &grown::<Flex>(60, &Default::default()));
    let after = metrics(&device);
    let compiles = after.compiles - before.compiles;
    assert!(compiles <= 11, "{after}");
    // One sum at each step, and the sequence where it enters a bucket and at the end.
    assert!(after.downloads - before.downloads <= 60 + 8, "{after}");
}

#[derive(Module, Debug)]
struct Classifier<B: Backend> {
    embeddings: Param<Tensor<B, 2>>,
    query: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        let linear = |rows, columns, seed| {
            let layer = LinearConfig::new(rows, columns).init::<B>(device);
            Linear {
                weight: Param::from_tensor(tensor([rows, columns], seed, device)),
                bias: layer.bias.map(|_| Param::from_tensor(tensor([columns], seed + 1, device))),
            }
        };
        Self {
            embeddings: Param::from_tensor(tensor([40, 16], 5, device)),
            query: linear(16, 16, 7),
            output: linear(16, 3, 9),
        }
    }

    /// The mean over the true tokens of a batch that is padded to its longest sentence.
    fn forward(&self, tokens: Tensor<B, 2, Int>, padding: Tensor<B, 2, burn::tensor::Bool>) -> Tensor<B, 2> {
        let [batch, length] = tokens.dims();
        let x = self.embeddings.val().select(0, tokens.reshape([batch * length])).reshape([batch, length, 16]);
        let q = self.query.forward(x.clone());
        let hidden = padding.clone().unsqueeze_dim::<3>(1).expand([batch, length, length]);
        let scores = q.matmul(x.clone().swap_dims(1, 2)).mask_fill(hidden, -1e9);
        let x = softmax(scores, 2).matmul(x);
        let x = x.mask_fill(padding.unsqueeze_dim::<3>(2).expand([batch, length, 16]), 0.0);
        self.output.forward(x.sum_dim(1).squeeze_dim::<2>(1) / length as f32)
    }
}

/// Trains on batches that are padded to their longest sentence; the last batch of an epoch is smaller. They come from the host
/// as a whole, or `row_by_row`.
fn trained<B: burn::tensor::backend::AutodiffBackend>(
    device: &B::Device,
    epochs: usize,
    row_by_row: bool,
    end_step: impl Fn(),
    mut after_epoch: impl FnMut(usize),
) -> Vec<f32> {
    let (mut model, mut optimizer) = (Classifier::<B>::new(device), AdamConfig::new().init());
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        for (number, longest) in [9, 14, 11, 23, 13, 30, 17, 12, 19, 26].into_iter().enumerate() {
            let batch = if number == 9 { 5 } else { 8 };
            let length = |row: usize| 1 + (row * 5 + number) % longest;
            let token = |i: usize| 1 + (i * 13 + number) % 39;
            // The first sentence is the longest.
            let length = |row: usize| if row == 0 { longest } else { length(row) };
            let sentence = |row: usize| (0..length(row)).map(|place| token(row * longest + place)).collect();
            let (tokens, hidden) = if row_by_row {
                let padded = generate_padding_mask::<B>(0, (0..batch).map(sentence).collect(), None, device);
                (padded.tensor, padded.mask)
            } else {
                let is_hidden = |i: usize| i % longest >= length(i / longest);
                let hidden: Vec<bool> = (0..batch * longest).map(is_hidden).collect();
                let tokens: Vec<i32> =
                    (0..batch * longest).map(|i| if hidden[i] { 0 } else { token(i) as i32 }).collect();
                let hidden = Tensor::from_data(TensorData::new(hidden, [batch, longest]), device);
                (Tensor::from_data(TensorData::new(tokens, [batch, longest]), device), hidden)
            };
            let targets = Tensor::<B, 1, Int>::from_data(
                TensorData::new((0..batch).map(|row| ((row + number) % 3) as i32).collect::<Vec<_>>(), [batch]),
                device,
            );
            let output = model.forward(tokens, hidden);
            let loss = CrossEntropyLossConfig::new().init(device).forward(output, targets);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-2, model, gradients);
            end_step();
            losses.push(loss.into_data().iter::<f32>().next().expect("a loss"));
        }
        after_epoch(epoch);
    }
    losses
}

#[test]
fn batches_padded_to_their_longest_sentence_train_in_a_few_programs() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let mut compiles = Vec::new();
    let losses = trained::<Autodiff<F32>>(&device, 3, false, || (), |_| compiles.push(metrics(&device).compiles));
    close(&losses, &trained::<Autodiff<Flex>>(&Default::default(), 3, false, || (), |_| ()));
    let metrics = metrics(&device);
    assert!(compiles[1] == compiles[2], "compiles after each epoch: {compiles:?}\n{metrics}");
}

/// Each sentence has a length of its own, but the host pads them: only the longest one counts.
#[test]
fn batches_that_are_assembled_row_by_row_train_in_the_same_programs() {
    let Some(device) = cpu_with("assembled", TpuOptions::training().disk_cache(false)) else { return };
    let _alone = alone();
    let before = metrics(&device);
    let mut compiles = Vec::new();
    let end_step = || device.mark_step();
    let losses = trained::<Autodiff<F32>>(&device, 3, true, end_step, |_| compiles.push(metrics(&device).compiles));
    close(&losses, &trained::<Autodiff<Flex>>(&Default::default(), 3, true, || (), |_| ()));
    let after = metrics(&device);
    assert!(compiles[1] == compiles[2], "compiles after each epoch: {compiles:?}\n{after}");
    assert!(after.bucket_runs - before.bucket_runs >= 20, "{after}");
    assert!(after.compiles - before.compiles <= 8, "{after}");
}

#[test]
fn random_numbers_are_those_of_the_true_sizes() {
    let Some(device) = compiling_device() else { return };
    let Some(exact) = cpu_with("exact shapes", TpuOptions::training().shape_buckets(ShapeBuckets::Off)) else { return };
    let _alone = alone();
    let drawn = |device: &TpuDevice| -> Vec<Vec<f32>> {
        F32::seed(device, 11);
        let draw = |n: usize| {
            let x = Tensor::<F32, 2>::random([n, 5], Distribution::Default, device);
            (x * 2.0).into_data().iter::<f32>().collect()
        };
        [3, 4, 7, 9, 12, 16, 5].map(draw).to_vec()
    };
    let before = metrics(&device).bucket_runs;
    assert_eq!(drawn(&device), drawn(&exact));
    assert!(metrics(&device).bucket_runs >= before + 4);
}

#[test]
fn a_frozen_device_runs_every_size_of_a_bucket_that_is_in_memory() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let sum = |n: usize| {
        let x = Tensor::<F32, 2>::from_data(TensorData::new(numbers(n * 3, n), [n, 3]), &device);
        (x.clone() * x.sum_dim(0)).exp().sum().into_data_async()
    };
    let read = |n: usize| burn::tensor::try_read_sync(sum(n)).expect("it is there");
    for n in [9, 12, 14] {
        assert!(read(n).is_ok(), "it compiles");
    }
    device.freeze();
    let results = [10, 16, 17].map(|n| read(n).is_ok());
    device.unfreeze();
    assert_eq!(results, [true, true, false], "17 is of another bucket");
}

#[test]
fn a_size_that_comes_often_gets_a_program_of_its_own() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let step = |n: usize| {
        let x = Tensor::<F32, 2>::from_data(TensorData::new(numbers(n * n, n), [n, n]), &device);
        drop(x.clone().matmul(x).tanh().sum().into_data());
    };
    [80, 100, 65].into_iter().for_each(step);
    let before = metrics(&device);
    (0..100).for_each(|_| step(65));
    let after = metrics(&device);
    assert_eq!(after.compiles - before.compiles, 1, "65 in a bucket of 128 is much more work");
    assert!(after.bucket_runs - before.bucket_runs < 40, "{after}");
    // Of many sizes, none comes often.
    (0..200).for_each(|i| step(66 + i % 20));
    assert_eq!(metrics(&device).compiles, after.compiles);
}
