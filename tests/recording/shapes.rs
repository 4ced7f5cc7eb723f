//! Sizes that vary: programs that differ in sizes alone run as one program for each bucket, with the same results.

use crate::common::{alone, counted, cpu_with, warnings};
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
use burn_tpu::{ShapeBuckets, Tpu, TpuDevice, TpuError, TpuOptions, memory, metrics};

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
    // What makes the weights, the first prompt, two tokens, and buckets of 8, 16, 32 and 64. Then two prompts of their own
    // sizes, and a bucket of prompts.
    assert_eq!(compiles, [8, 1, 1, 1, 0], "{metrics}");
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

/// Trains on batches that are padded to their longest sentence; the last batch of an epoch is smaller. They come from the
/// host as a whole, or `row_by_row`.
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

/// The rows of `x` times their sum, in whole numbers.
fn service(n: usize, device: &TpuDevice) -> Result<Tensor<F32, 2>, TpuError> {
    let numbers: Vec<f32> = (0..n * 3).map(|i| (i % 7) as f32).collect();
    let x = Tensor::<F32, 2>::from_data(TensorData::new(numbers, [n, 3]), device);
    let y = x.clone() * x.sum_dim(0) - 1.0;
    device.sync()?;
    Ok(y)
}

fn assert_served(n: usize, result: Result<Tensor<F32, 2>, TpuError>) {
    let number = |i: usize| (i % 7) as f32;
    let sum = |column: usize| (0..n).map(|row| number(row * 3 + column)).sum::<f32>();
    let expected: Vec<f32> = (0..n * 3).map(|i| number(i) * sum(i % 3) - 1.0).collect();
    assert_eq!(result.expect("no error").into_data().to_vec::<f32>().expect("f32"), expected, "{n}");
}

#[test]
fn a_service_is_warm_after_three_sizes_and_refuses_larger_ones() {
    let options = TpuOptions::inference().disk_cache(false);
    let Some(device) = cpu_with("service", options) else { return };
    let _alone = alone();
    [9, 12, 60].into_iter().for_each(|n| assert_served(n, service(n, &device)));
    // The compiles of all sizes on a frozen device, and the elements of padding.
    let run_all = || {
        let before = metrics(&device);
        device.freeze();
        let results: Vec<_> = (2..=64).map(|n| service(n, &device)).collect();
        let larger = service(65, &device);
        device.unfreeze();
        (2..).zip(results).for_each(|(n, result)| assert_served(n, result));
        assert!(matches!(larger, Err(TpuError::Frozen { .. })), "{larger:?}");
        let after = metrics(&device);
        assert_eq!(after.compiles, before.compiles);
        after.bucket_padding - before.bucket_padding
    };
    let in_the_largest = run_all();
    let compiled = device.compile_buckets().expect("it compiles");
    assert_eq!((compiled, device.compile_buckets().expect("nothing is left")), (3, 0), "8, 16 and 32");
    let in_their_own = run_all();
    assert!(in_their_own * 2 < in_the_largest, "{in_their_own} and {in_the_largest}");
}

#[test]
fn metrics_and_reports_say_what_runs_in_buckets() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let step = |n: usize| {
        let x = Tensor::<F32, 2>::from_data(TensorData::new(numbers(n * 4, n), [n, 4]), &device);
        let y = x.sin().cos().sin();
        let sum = y.clone().sum();
        device.mark_step();
        (y, sum)
    };
    let before = metrics(&device);
    [19, 21].into_iter().for_each(|n| drop(step(n)));
    let mut kept = [24, 32].map(step).to_vec();
    let after = metrics(&device);
    let elements = after.bucket_elements - before.bucket_elements;
    // Four values of two runs, and the sum.
    let rows = 2 * 4 * 32 * 4;
    assert!((rows..rows + 16).contains(&elements), "{elements} elements, {after}");
    assert_eq!(after.bucket_padding - before.bucket_padding, 4 * (32 - 24) * 4, "{after}");
    assert_eq!((after.bucket_runs - before.bucket_runs, after.bucket_compiles - before.bucket_compiles), (2, 1));
    assert!(after.padding_percent() > 0.0 && after.to_string().contains("padding  "), "{after}");
    let joined = after.recompiles.last().expect("a recompile");
    let family = joined.family.as_deref().expect("a family");
    assert!(family.starts_with("family of programs like ") && family.ends_with("bucket [32]"), "{joined}");
    assert!(joined.to_string().contains("f32[24,4]; joined the family of programs like "), "{joined}");
    // The second time that it is recorded, its line is looked for.
    kept.push(step(24));
    let report = memory(&device);
    let of = |op: &str| report.largest.iter().find(|found| found.op == op && found.ty == "f32[32,4]");
    let line = of("float_sin").and_then(|found| found.line.clone()).unwrap_or_default();
    assert!(line.contains("tests/recording/shapes.rs:"), "{report}");
    let uploaded = of("from_data").map(|found| found.line.clone().unwrap_or_default());
    assert!(uploaded.is_none_or(|line| line.contains("tests/recording/shapes.rs:")), "{report}");
    drop(kept);
}

#[test]
fn buckets_are_no_loop_that_compiles_at_every_step() {
    let Some(device) = compiling_device() else { return };
    let _alone = alone();
    let step = |n: usize| {
        let x = Tensor::<F32, 2>::from_data(TensorData::new(numbers(n * 2, n), [n, 2]), &device);
        drop((0..6).fold(x, |x, _| x.cosh().sinh()).sum().into_data());
    };
    let text = warnings(|| (5..140).step_by(3).for_each(step));
    assert!(!text.contains("compiles at every step") && !text.contains("grows"), "{text}");
    assert!(text.contains("joined the family of programs like "), "{text}");
}

#[test]
fn a_bucket_that_does_not_fit_is_left_out() {
    const KIB: u64 = 1 << 10;
    let options = TpuOptions::training().interpret_from(0).disk_cache(false).memory_limit(200 * KIB);
    let Some(device) = cpu_with("limited shapes", options) else { return };
    let _alone = alone();
    // Rows of 4 KiB.
    let matrix = |n: usize| Tensor::<F32, 2>::from_data(TensorData::new(vec![n as f32; n * 1024], [n, 1024]), &device);
    let counted = |work: &dyn Fn() -> f32, expected: f32| {
        device.sync().expect("a sync");
        device.sync().expect("a sync");
        let (result, count) = counted(&device, work);
        assert_eq!(result, expected);
        count.compiles
    };
    let first = |x: Tensor<F32, 2>| x.into_data().iter::<f32>().next().expect("a number");
    // The argument is kept, so that no result takes its memory.
    let doubled = |n: usize| {
        let x = matrix(n);
        let result = first(x.clone() * 2.0);
        drop(x);
        result
    };
    let text = warnings(|| {
        // An argument and a result. The bucket of 32 is compiled, and has no room.
        let compiles = [9, 10, 20, 21, 12].map(|n| counted(&|| doubled(n), 2.0 * n as f32));
        assert_eq!(compiles, [1, 1, 2, 1, 1]);
        // An argument alone. That of the bucket of 64 is larger than the limit.
        let compiles = [9, 10, 33, 24].map(|n| counted(&|| first(matrix(n).sum_dim(0)), (n * n) as f32));
        assert_eq!(compiles, [1, 1, 1, 1]);
    });
    assert_eq!(text.matches("does not fit into the device's memory").count(), 1, "{text}");
    let metrics = metrics(&device);
    assert_eq!((metrics.bucket_compiles, metrics.bucket_runs), (3, 2), "12 in 16 and 24 in 32: {metrics}");
}
