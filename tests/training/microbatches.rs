//! Microbatches of a compiled step: the gradients and results of the whole batch, from a loop over its parts.

use crate::common;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::backend::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{DeviceAdamW, LossScaling, Tpu, TpuDevice, TpuError, compile_step};
use common::{alone, counted};

type I = Tpu<f32>;
type B = Autodiff<I>;

const ROWS: usize = 24;
const STEPS: usize = 5;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
    unused: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        B::seed(device, 7);
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        let model = Self { hidden: linear(6, 700), output: linear(700, 2), unused: linear(2, 2) };
        model.num_params();
        model
    }

    fn errors(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let y = self.output.forward(self.hidden.forward(x.clone()).tanh());
        (y - x.slice_dim(1, 0..2)).powi_scalar(2).mean()
    }
}

fn batch(step: usize, device: &TpuDevice) -> (Tensor<I, 2>, Tensor<I, 1, Int>) {
    let values: Vec<f32> = (0..ROWS * 6).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.2 - 1.0).collect();
    let rows = Tensor::from_data(TensorData::new(values, [ROWS, 6]), device);
    (rows, Tensor::arange(0..ROWS as i64, device))
}

/// What a training does: the losses, the rows of the last part, and the trained weights.
struct Found {
    losses: Vec<f32>,
    last_rows: Vec<i64>,
    weights: Vec<f32>,
}

fn train(optimizer: DeviceAdamW, device: &TpuDevice) -> Result<Found, TpuError> {
    let mut training = compile_step(Model::<B>::new(device), optimizer, |model: &Model<B>, (x, rows)| {
        let loss = model.errors(Tensor::from_inner(x));
        let rows: Tensor<I, 1, Int> = rows;
        (loss.clone(), (loss.inner(), rows.max()))
    });
    let mut found = Found { losses: Vec::new(), last_rows: Vec::new(), weights: Vec::new() };
    for step in 0..STEPS {
        let (loss, row) = training.run(0.02, batch(step, device))?;
        found.losses.push(loss.into_scalar());
        found.last_rows.extend(row.into_data().iter::<i64>());
    }
    found.weights = training.into_model().hidden.weight.val().into_data().to_vec().expect("f32");
    Ok(found)
}

fn optimizer(count: usize) -> DeviceAdamW {
    DeviceAdamW::new().with_weight_decay(0.1).with_microbatches(count)
}

fn assert_near(found: &[f32], expected: &[f32], tolerance: f32) {
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * b.abs().max(1e-2);
    assert!(found.len() == expected.len() && found.iter().zip(expected).all(near), "{found:?}\n{expected:?}");
}

#[test]
fn parts_of_a_batch_train_as_the_whole() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    for device in [device, TpuDevice::ndarray()] {
        let whole = train(optimizer(1), &device).expect("a step");
        for count in [2, 4, ROWS] {
            let parts = train(optimizer(count), &device).expect("a step");
            assert_near(&parts.losses, &whole.losses, 1e-5);
            assert_near(&parts.weights, &whole.weights, 1e-4);
            // Part `i` has the rows `i`, `i + count` and so on.
            assert_eq!(parts.last_rows, [ROWS as i64 - 1; STEPS]);
        }
        // What is done with gradients is done with their mean.
        let limited = |count| {
            let scaled = optimizer(count).with_gradient_norm(0.01).with_loss_scaling(LossScaling::new());
            train(scaled, &device).expect("a step")
        };
        assert_near(&limited(3).losses, &limited(1).losses, 1e-5);
    }
}

#[test]
fn a_step_in_parts_is_one_program_whose_size_does_not_depend_on_their_number() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let nodes = |count| {
        let step = |model: &Model<B>, x| {
            let loss = model.errors(Tensor::from_inner(x));
            (loss.clone(), loss.inner())
        };
        let mut training = compile_step(Model::<B>::new(&device), optimizer(count), step);
        let mut run = |step| drop(training.run(0.02, batch(step, &device).0).expect("a step"));
        let ((), first) = counted(&device, || (0..2).for_each(&mut run));
        let ((), later) = counted(&device, || (2..4).for_each(&mut run));
        assert_eq!((later.compiles, later.executions), (0, 2), "{later:?}");
        first.nodes
    };
    assert_eq!(nodes(3), nodes(12));
}

/// Running statistics are those of the parts one by one.
#[test]
fn running_statistics_go_from_part_to_part() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let norm = || BatchNormConfig::new(6).init::<B>(&device);
    let step = |norm: &BatchNorm<B>, x: Tensor<I, 2>| {
        let loss = norm.forward(Tensor::<B, 2>::from_inner(x)).powi_scalar(2).mean();
        (loss.clone(), loss.inner())
    };
    let mut training = compile_step(norm(), optimizer(2), step);
    let x = batch(0, &device).0;
    training.run(0.0, x.clone()).expect("a step");
    let one_by_one = norm();
    for part in 0..2 {
        let rows = Tensor::<I, 1, Int>::arange_step(part..ROWS as i64, 2, &device);
        one_by_one.forward(Tensor::<B, 2>::from_inner(x.clone().select(0, rows)));
    }
    let mean = |norm: BatchNorm<B>| norm.valid().running_mean.value().into_data().to_vec::<f32>().expect("f32");
    assert_near(&mean(training.into_model()), &mean(one_by_one), 1e-5);
}

#[test]
fn a_batch_that_cannot_be_divided_is_refused_and_leaves_the_model() {
    let device = TpuDevice::ndarray();
    let _alone = alone();
    for (count, rule) in [(5, "does not divide the first dim of the batch's f32[24,6]"), (0, "is at least 1")] {
        let error = train(optimizer(count), &device).map(|_| ()).expect_err("24 rows").to_string();
        assert!(error.contains("microbatches") && error.contains(rule), "{error}");
    }
}
