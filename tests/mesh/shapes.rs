//! Sizes that vary on a mesh of four CPU devices: programs that differ in sizes alone run as one program for each bucket,
//! whose varying axes are split, with the results of one device.

use crate::common::{alone, has_cpu_plugin, warnings};
use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive};
use burn_flex::Flex;
use burn_tpu::{Mesh, Platform, ShapeBuckets, Tpu, TpuDevice, TpuOptions, TpuTensor, shard};
use burn_tpu_runtime::collective::{Reduction, all_reduce};
use burn_tpu_runtime::testing;

type F32 = Tpu<f32>;

const PARTS: usize = 4;

/// Returns a mesh of four devices whose axis has this name, and whose programs are all compiled.
fn mesh(axis: &str, buckets: ShapeBuckets) -> Option<TpuDevice> {
    has_cpu_plugin().then(|| {
        let device = TpuDevice::mesh(Mesh::new().axis(axis, PARTS).on(Platform::Cpu));
        let options = TpuOptions::training().cpu_devices(8).interpret_from(0).disk_cache(false);
        options.shape_buckets(buckets).install(&device).ok();
        device
    })
}

/// Returns whole numbers from -3 to 3.
fn whole<B: Backend, const D: usize>(dims: [usize; D], seed: usize, device: &B::Device) -> Tensor<B, D> {
    let values = (0..dims.iter().product()).map(|i: usize| ((i * 5 + seed * 3) % 7) as f32 - 3.0);
    Tensor::from_data(TensorData::new(values.collect::<Vec<f32>>(), dims), device)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[derive(Module, Debug)]
struct Classifier<B: Backend> {
    embeddings: Param<Tensor<B, 2>>,
    query: Param<Tensor<B, 2>>,
    output: Param<Tensor<B, 2>>,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        let weight = |dims: [usize; 2], seed| Param::from_tensor(whole::<B, 2>(dims, seed, device) / 7.0);
        Self { embeddings: weight([40, 16], 5), query: weight([16, 16], 7), output: weight([16, 3], 9) }
    }

    /// The mean over the true tokens of a batch that is padded to its longest sentence.
    fn forward(&self, tokens: Tensor<B, 2, Int>, padding: Tensor<B, 2, Bool>) -> Tensor<B, 2> {
        let [batch, length] = tokens.dims();
        let x = self.embeddings.val().select(0, tokens.reshape([batch * length])).reshape([batch, length, 16]);
        let q = x.clone().matmul(self.query.val().unsqueeze());
        let hidden = padding.clone().unsqueeze_dim::<3>(1).expand([batch, length, length]);
        let scores = q.matmul(x.clone().swap_dims(1, 2)).mask_fill(hidden, -1e9);
        let x = softmax(scores, 2).matmul(x);
        let x = x.mask_fill(padding.unsqueeze_dim::<3>(2).expand([batch, length, 16]), 0.0);
        (x.sum_dim(1).squeeze_dim::<2>(1) / length as f32).matmul(self.output.val())
    }
}

/// Trains on batches of these rows and longest sentences.
fn trained<B: AutodiffBackend>(
    device: &B::Device,
    batches: impl Iterator<Item = (usize, usize)>,
    mut after_step: impl FnMut(),
) -> Vec<f32> {
    let (mut model, mut optimizer) = (Classifier::<B>::new(device), AdamConfig::new().init());
    let mut losses = Vec::new();
    for (number, (batch, longest)) in batches.enumerate() {
        // The first sentence is the longest.
        let length = |row: usize| if row == 0 { longest } else { 1 + (row * 5 + number) % longest };
        let tokens: Vec<i32> = (0..batch * longest).map(|i| ((i * 13 + number) % 40) as i32).collect();
        let hidden: Vec<bool> = (0..batch * longest).map(|i| i % longest >= length(i / longest)).collect();
        let targets: Vec<i32> = (0..batch).map(|row| ((row + number) % 3) as i32).collect();
        let tokens = Tensor::from_data(TensorData::new(tokens, [batch, longest]), device);
        let hidden = Tensor::from_data(TensorData::new(hidden, [batch, longest]), device);
        let targets = Tensor::<B, 1, Int>::from_data(TensorData::new(targets, [batch]), device);
        let loss = CrossEntropyLossConfig::new().init(device).forward(model.forward(tokens, hidden), targets);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        losses.extend(values(loss));
        after_step();
    }
    losses
}

/// Batches of which some do not split over the devices: lengths vary, then rows too.
const BATCHES: [(usize, usize); 10] =
    [(8, 9), (8, 14), (8, 11), (8, 23), (8, 13), (8, 30), (6, 17), (8, 12), (5, 19), (7, 26)];

#[test]
fn steps_over_batches_of_varying_size_and_length_are_those_of_one_device() {
    let Some(device) = mesh("data", ShapeBuckets::Doubling) else { return };
    let _alone = alone();
    let before = device.metrics();
    let mut compiles = Vec::new();
    let batches = || BATCHES.into_iter().cycle().take(20);
    let losses = trained::<Autodiff<F32>>(&device, batches(), || {
        compiles.push(device.metrics().compiles - before.compiles);
    });
    let expected = trained::<Autodiff<Flex>>(&Default::default(), batches(), || ());
    for (step, (found, expected)) in losses.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "step {step}: {found} for {expected}");
    }
    let metrics = device.metrics();
    // The first step, which makes the weights, and two of other sizes. A family for lengths, with buckets of 16 and 32
    // tokens, and one for rows and lengths, which needs the larger one only.
    assert_eq!(compiles[..7], [1, 2, 3, 4, 5, 5, 6], "{metrics}");
    assert_eq!(compiles[7..], [6; 13], "{metrics}");
    assert_eq!(metrics.families - before.families, 2, "{metrics}");
    // All steps but the first three, and two of the second round, whose lengths have programs of their own.
    assert_eq!(metrics.bucket_runs - before.bucket_runs, 15, "{metrics}");
}

/// Attention without a softmax, sums along the sequence and a sorted order of a sequence, all of whole numbers.
fn of_sequence<B: Backend>(x: Tensor<B, 3>) -> Tensor<B, 3> {
    let [_, length, _] = x.dims();
    let scores = x.clone().matmul(x.clone().swap_dims(1, 2)).clamp(-9.0, 9.0);
    let sums = scores.matmul(x.clone()).cumsum(1);
    let shifted = Tensor::cat(vec![x.clone().slice([0..2, 1..length, 0..8]), x.clone().slice([0..2, 0..1, 0..8])], 1);
    let rest = x.clone().sort(1) + shifted.flip([1]);
    Tensor::cat(vec![sums, rest, x], 1)
}

/// On the axis `model`, nothing is split by itself.
#[test]
fn a_sequence_that_is_split_along_its_length_has_the_same_values() {
    let Some(device) = mesh("model", ShapeBuckets::Steps(10)) else { return };
    let _alone = alone();
    let before = device.metrics();
    for (seed, length) in [5, 9, 13, 14, 16, 11, 30, 27, 21].into_iter().enumerate() {
        let x = shard(whole::<F32, 3>([2, length, 8], seed, &device), [None, Some("model"), None]);
        let expected = of_sequence(whole::<Flex, 3>([2, length, 8], seed, &Default::default()));
        let found = shard(of_sequence(x), [None, Some("model"), None]);
        device.mark_step();
        // The two first lengths have no equal parts.
        let parts = if seed < 2 { "[{}, {}, {}]" } else { "[{}, {0}, {}]" };
        assert_eq!(sharding(&found).as_deref(), Some(parts), "{length}");
        assert_eq!(values(found), values(expected), "{length}");
    }
    let metrics = device.metrics();
    // Two lengths, and buckets of 20 and 32: four devices have equal parts.
    assert_eq!(metrics.compiles - before.compiles, 4, "{metrics}");
    assert_eq!(metrics.bucket_runs - before.bucket_runs, 7, "{metrics}");
}

/// A sequence that grows by one row at every step, in whole numbers.
fn grown<B: Backend>(steps: usize, device: &B::Device) -> Vec<f32> {
    let mut sequence = whole::<B, 2>([1, 8], 1, device);
    let mut sums = Vec::new();
    for step in 0..steps {
        let scores = sequence.clone().matmul(sequence.clone().transpose()).clamp(-2.0, 2.0);
        let [length, width] = sequence.dims();
        let next = scores.matmul(sequence.clone()).slice([length - 1..length, 0..width]).clamp(-4.0, 3.0);
        sums.extend(values(next.clone().sum()));
        sequence = Tensor::cat(vec![sequence, next + (step % 3) as f32 - 1.0], 0);
    }
    sums.extend(values(sequence));
    sums
}

#[test]
fn a_sequence_that_grows_stays_on_the_devices() {
    let Some(device) = mesh("data", ShapeBuckets::Doubling) else { return };
    let _alone = alone();
    let before = device.metrics();
    assert_eq!(grown::<F32>(40, &device), grown::<Flex>(40, &Default::default()));
    let after = device.metrics();
    assert!(after.bucket_runs - before.bucket_runs >= 36, "{after}");
    assert!(after.compiles - before.compiles <= 8, "{after}");
    // One sum at each step, and the sequence where it enters a bucket and at the end.
    assert!(after.downloads - before.downloads <= 40 + 8, "{after}");
}

/// Returns how a value is split over its mesh, perhaps in a larger buffer.
pub(crate) fn sharding<const D: usize>(tensor: &Tensor<F32, D>) -> Option<String> {
    let tensor: burn_tpu_runtime::Tensor = tensor.clone().into_primitive().tensor().into();
    testing::sharding(&tensor)
}

/// A product of rows, in whole numbers.
fn rows<B: Backend>(rows: usize, device: &B::Device) -> Tensor<B, 2> {
    whole::<B, 2>([rows, 5], rows, device).matmul(whole([5, 3], 1, device))
}

#[test]
fn rows_that_do_not_split_are_padded_without_a_warning_and_a_frozen_mesh_runs_them() {
    let Some(device) = mesh("data", ShapeBuckets::Doubling) else { return };
    let _alone = alone();
    let check = |number: usize, parts: &str| {
        let found = rows::<F32>(number, &device);
        device.mark_step();
        assert_eq!(sharding(&found).as_deref(), Some(parts), "{number} rows");
        assert_eq!(values(found), values(rows::<Flex>(number, &Default::default())), "{number} rows");
    };
    let compiled = warnings(|| [9, 10].into_iter().for_each(|number| check(number, "[{}, {}]")));
    assert!(compiled.contains("has 9 rows, which do not split over 4 devices"), "{compiled}");
    let padded = warnings(|| [11, 13, 14].into_iter().for_each(|number| check(number, "[{0}, {}]")));
    assert!(!padded.contains("do not split"), "{padded}");
    device.freeze();
    check(15, "[{0}, {}]");
    device.unfreeze();
}

#[test]
fn rows_that_come_often_get_a_program_of_their_own_if_they_split() {
    let Some(device) = mesh("data", ShapeBuckets::Doubling) else { return };
    let _alone = alone();
    let run = |number: usize| drop(values(rows::<F32>(number, &device).exp()));
    let compiles = |number: usize| {
        let before = device.metrics().compiles;
        (0..80).for_each(|_| run(number));
        device.metrics().compiles - before
    };
    [17, 18, 19].into_iter().for_each(run);
    // Both are much less than their bucket of 32.
    assert_eq!([compiles(21), compiles(20)], [0, 1], "{}", device.metrics());
}

/// A reduction over devices is a program of a mesh of them, which a user may have too.
#[test]
fn reductions_of_several_sizes_are_whole_on_every_device() {
    if !has_cpu_plugin() {
        return;
    }
    let _alone = alone();
    let options = || TpuOptions::training().cpu_devices(8).interpret_from(0).disk_cache(false);
    let (chips, devices) = ([6, 7], [6, 7].map(TpuDevice::cpu));
    devices.iter().for_each(|device| drop(options().install(device)));
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices(chips));
    options().install(&mesh).unwrap();
    mesh.sync().unwrap();
    for length in [3, 5, 9, 12, 6] {
        let part = |device: &TpuDevice| -> burn_tpu_runtime::Tensor {
            whole::<F32, 1>([length], length, device).into_primitive().tensor().into()
        };
        let parts = devices.each_ref().map(part);
        let group = parts.each_ref().map(burn_tpu_runtime::Tensor::device);
        let sums = parts.map(|part| all_reduce(part, Reduction::Sum, &group));
        let expected = values(whole::<Flex, 1>([length], length, &Default::default()) * 2.0);
        for sum in sums {
            let sum = Tensor::<F32, 1>::from_primitive(TensorPrimitive::Float(TpuTensor::from(sum)));
            assert_eq!(values(sum), expected, "{length}");
        }
    }
    assert_eq!(mesh.metrics().bucket_runs, 3, "{}", mesh.metrics());
}
