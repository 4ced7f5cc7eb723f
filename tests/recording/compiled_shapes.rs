//! Sizes that vary in compiled functions and compiled steps: each size is recorded, each bucket is compiled.

use crate::common::{alone, counted, cpu_with};
use burn::backend::Autodiff;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{DeviceAdamW, ShapeBuckets, Tpu, TpuDevice, TpuOptions, compile, compile_step, metrics};

type F32 = Tpu<f32>;
type Matrix = Tensor<F32, 2>;

fn device() -> Option<TpuDevice> {
    cpu_with("by buckets", TpuOptions::training().interpret_from(0).disk_cache(false))
}

/// Small whole numbers, which sums and products keep exact.
fn matrix<B: Backend>(rows: usize, columns: usize, device: &B::Device) -> Tensor<B, 2> {
    let number = |i: usize| ((i * 7919 + rows * 31) % 9) as f32 - 4.0;
    let numbers: Vec<f32> = (0..rows * columns).map(number).collect();
    Tensor::from_data(TensorData::new(numbers, [rows, columns]), device)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32")
}

/// Numbers from 1 to `count`, each once, in an order that is not theirs.
fn shuffled(count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| (i * 37 + 11) % count + 1)
}

/// A product, a sum over what varies, the largest, and the rows in another order.
fn mixed<B: Backend>(x: Tensor<B, 2>, weight: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 2>, Tensor<B, 1, Int>) {
    let y = x.clone().matmul(weight);
    let gram = y.clone().matmul(y.clone().transpose());
    let last = y.clone().slice([y.dims()[0] - 1..y.dims()[0], 0..5]);
    let rows = Tensor::cat(vec![y.clone().flip([0]), last], 0);
    (rows, y.sum_dim(0) + x.sum_dim(0).repeat_dim(1, 5) / 4.0, gram.argmax(1).squeeze_dim(1))
}

#[test]
fn a_function_compiles_once_for_each_bucket() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let weight = matrix::<F32>(1, 5, &device);
    let function = compile(move |x: Matrix| mixed(x, weight.clone()));
    let check = |n: usize| {
        let (rows, sums, largest) = function.call(matrix(n, 1, &device)).expect("pure");
        let expected = mixed::<Flex>(matrix(n, 1, &Default::default()), matrix(1, 5, &Default::default()));
        assert_eq!((values(rows), values(sums)), (values(expected.0), values(expected.1)), "{n}");
        let [ours, theirs] = [largest.into_data(), expected.2.into_data()].map(|data| data.iter::<i64>().collect());
        let (ours, theirs): (Vec<i64>, Vec<i64>) = (ours, theirs);
        assert_eq!(ours, theirs, "{n}");
    };
    let (_, first) = counted(&device, || shuffled(64).for_each(check));
    // Two sizes, buckets of 8, 16, 32 and 64, that of 128 for 65 rows of a result, and one row, which needs no broadcast.
    assert!(first.compiles <= 8, "{first:?}");
    assert!(metrics(&device).bucket_runs >= 60, "{}", metrics(&device));
    let (_, second) = counted(&device, || shuffled(64).for_each(check));
    assert_eq!(second.compiles, 0, "{second:?}");
}

#[test]
fn values_pass_between_calls_and_recorded_programs_in_their_buffers() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let grow = compile(|(x, row): (Matrix, Matrix)| Tensor::cat(vec![x * 2.0, row], 0));
    let row = |n: usize| Matrix::full([1, 3], n as f32, &device);
    let (mut ours, mut theirs) = (matrix::<F32>(2, 3, &device), values(matrix::<Flex>(2, 3, &Default::default())));
    let before = metrics(&device);
    for n in 2..40 {
        ours = grow.call((ours, row(n))).expect("pure");
        theirs = theirs.iter().map(|x| x * 2.0).chain([n as f32; 3]).collect();
        if n % 2 == 0 {
            ours = (ours - 1.0).abs() / 4.0;
            theirs = theirs.iter().map(|x| (x - 1.0).abs() / 4.0).collect();
        }
    }
    let after = metrics(&device);
    assert_eq!(values(ours), theirs);
    // Two sizes and four buckets each, and the rows.
    assert!(after.compiles - before.compiles <= 13, "{after}");
    // Where a value enters the first bucket, and where it goes to a larger one.
    assert!(after.downloads - before.downloads <= 12, "{after}");
}

#[test]
fn state_in_a_larger_buffer_is_donated() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let step = compile(|(state, change): (Matrix, Matrix)| (state + change.clone(), change));
    let of = |n: usize| (matrix::<F32>(n, 64, &device), matrix::<F32>(n, 64, &device));
    [9, 10].into_iter().for_each(|n| drop(step.call(of(n)).expect("pure")));
    let (state, change) = of(13);
    let mut state = step.call((state, change.clone())).expect("pure").0;
    let before = metrics(&device);
    for _ in 0..5 {
        state = step.call((state, change.clone())).expect("pure").0;
    }
    let after = metrics(&device);
    assert_eq!(after.bucket_runs - before.bucket_runs, 5, "{after}");
    assert_eq!(after.donated_buffers - before.donated_buffers, 5, "the state, and never the change: {after}");
    assert_eq!((after.compiles, after.uploads), (before.compiles, before.uploads));
    let expected: Vec<f32> = values(change).into_iter().map(|value| value * 7.0).collect();
    assert_eq!(values(state), expected);
}

#[test]
fn a_constant_of_a_function_that_varies_is_padded_once() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let scaled = compile(|x: Matrix| {
        let numbers: Vec<f32> = (0..x.dims()[0]).map(|i| i as f32).collect();
        let scale = Matrix::from_data(TensorData::new(numbers, [x.dims()[0], 1]), &x.device());
        (x * scale).sum_dim(0)
    });
    let call = |n: usize| values(scaled.call(matrix(n, 3, &device)).expect("pure"));
    for n in [9, 10, 13, 12, 16] {
        let x = values(matrix::<Flex>(n, 3, &Default::default()));
        let sum = |column: usize| (0..n).map(|i| i as f32 * x[i * 3 + column]).sum::<f32>();
        assert_eq!(call(n), [0, 1, 2].map(sum), "{n}");
    }
    let before = metrics(&device);
    call(13);
    let after = metrics(&device);
    assert_eq!((after.uploads - before.uploads, after.downloads - before.downloads), (1, 1), "argument and result");
}

#[test]
fn a_size_that_is_called_often_gets_a_program_of_its_own() {
    let Some(device) = device() else { return };
    let _alone = alone();
    let square = compile(|x: Matrix| x.clone().matmul(x).sum());
    let call = |n: usize| values(square.call(matrix(n, n, &device)).expect("pure"));
    [80, 100].into_iter().for_each(|n| drop(call(n)));
    let first = call(65);
    let (again, count) = counted(&device, || (0..100).map(|_| call(65)).collect::<Vec<_>>());
    assert_eq!(count.compiles, 1, "65 in a bucket of 128 is much more work: {count:?}");
    assert!(again.iter().all(|sum| *sum == first));
}

type A = Autodiff<F32>;

/// Returns the losses of a compiled step on batches of different sizes, the weights after it, and the compiles.
fn trained(device: &TpuDevice) -> (Vec<f32>, Vec<f32>, u64) {
    let weight = Tensor::<A, 2>::from_inner(matrix(6, 2, device) * 0.1);
    let mut model: Linear<A> = LinearConfig::new(6, 2).with_bias(false).init(device);
    model.weight = burn::module::Param::from_tensor(weight);
    let mut training = compile_step(model, DeviceAdamW::new(), |model: &Linear<A>, x: Matrix| {
        let x = Tensor::<A, 2>::from_inner(x);
        let loss = (model.forward(x.clone()) - x.sum_dim(1)).powi_scalar(2).mean();
        (loss.clone(), loss.inner())
    });
    let before = metrics(device).compiles;
    let batches = [16, 9, 12, 16, 11, 5, 16, 3, 14, 10, 7, 16];
    let losses = batches.map(|n| training.run(1e-2, matrix(n, 6, device)).expect("a step"));
    let losses = losses.into_iter().flat_map(values).collect();
    (losses, values(training.into_model().weight.val().inner()), metrics(device).compiles - before)
}

#[test]
fn a_compiled_step_takes_batches_of_any_size() {
    let Some(device) = device() else { return };
    let options = TpuOptions::training().disk_cache(false).shape_buckets(ShapeBuckets::Off);
    let Some(exact) = cpu_with("exactly", options) else { return };
    let _alone = alone();
    let (ours, theirs) = (trained(&device), trained(&exact));
    let is_near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
    assert!(ours.0.iter().zip(&theirs.0).all(is_near), "{:?} and {:?}", ours.0, theirs.0);
    assert!(ours.1.iter().zip(&theirs.1).all(is_near), "{:?} and {:?}", ours.1, theirs.1);
    // Two sizes, two buckets, and what makes the weight and the state; nine sizes.
    assert!(ours.2 <= 6 && theirs.2 >= 9, "{} and {} compiles", ours.2, theirs.2);
}
