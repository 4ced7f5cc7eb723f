//! Numbers that change from step to step: schedules, dropout, clipping, positions. They must not cost a compile each.

use crate::common;

use burn::backend::Autodiff;
use burn::grad_clipping::GradientClippingConfig;
use burn::lr_scheduler::{LrScheduler, cosine::CosineAnnealingLrSchedulerConfig};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData, s};
use burn_ndarray::NdArray;
use burn_tpu::{Tpu, TpuDevice, mark_step};
use common::{alone, counted};

type B = Tpu<f32>;

fn close(ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{ours:?} and {theirs:?}");
    }
}

fn read<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32 data")
}

/// Returns numbers from -0.5 to 0.5 that are the same on every backend.
fn table<B: Backend>(seed: usize, dims: [usize; 2], device: &B::Device) -> Tensor<B, 2> {
    let number = |i: usize| (((i + 1) * (seed * 7919 + 104_729)) % 1009) as f32 / 1009.0 - 0.5;
    let numbers: Vec<f32> = (0..dims[0] * dims[1]).map(number).collect();
    Tensor::from_data(TensorData::new(numbers, dims), device)
}

fn row(device: &TpuDevice, numbers: [f32; 2]) -> Tensor<B, 1> {
    Tensor::from_data(TensorData::from(numbers), device)
}

const TOKENS: usize = 64;
const WIDTH: usize = 8;

/// One attention head that decodes token by token, with its keys and values in a cache of fixed size. The position at which
/// the cache is written changes, and with it the mask, the position's encoding and the token's row in the embedding.
fn decode<B: Backend>(device: &B::Device, begin: impl FnOnce()) -> Vec<f32> {
    let [embedding, query, key, value] = [1, 2, 3, 4].map(|seed| table::<B>(seed, [WIDTH, WIDTH], device));
    let mut keys = Tensor::<B, 2>::zeros([TOKENS, WIDTH], device);
    let mut values = Tensor::<B, 2>::zeros([TOKENS, WIDTH], device);
    let mut numbers = Vec::new();
    begin();
    for position in 0..TOKENS {
        let (token, place) = ((position * 3) % WIDTH, position as i64);
        let angle = Tensor::<B, 1, Int>::arange(place..place + 1, device).float() * 0.1;
        let x = embedding.clone().slice([token..token + 1, 0..WIDTH]) + angle.sin().reshape([1, 1]);
        let row = [position..position + 1, 0..WIDTH];
        keys = keys.slice_assign(row.clone(), x.clone().matmul(key.clone()));
        values = values.slice_assign(row, x.clone().matmul(value.clone()));
        let scores = x.matmul(query.clone()).matmul(keys.clone().transpose()) / (WIDTH as f64).sqrt();
        let later = Tensor::<B, 1, Int>::arange(0..TOKENS as i64, device).greater_elem(place).reshape([1, TOKENS]);
        let weights = softmax(scores.mask_fill(later, f32::NEG_INFINITY), 1);
        numbers.extend(read(weights.matmul(values.clone())));
    }
    numbers
}

#[test]
fn a_decode_loop_with_a_moving_position_compiles_twice() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let before = std::cell::Cell::new(0);
    let compiles = || burn_tpu::metrics(&device).compiles;
    let ours = decode::<B>(&device, || {
        mark_step(&device);
        before.set(compiles());
    });
    assert_eq!(compiles() - before.get(), 2, "one with the position as a constant, one with it as an argument");
    close(&ours, &decode::<NdArray<f32>>(&Default::default(), || {}));
    let (again, count) = counted(&device, || decode::<B>(&device, || mark_step(&device)));
    assert_eq!((again, count.compiles), (ours, 0), "an argument stays an argument");
}

/// The steps and directions of slices are part of the program, their positions are not: a new position costs one more
/// compile and selects the right elements.
#[test]
fn slices_with_steps_move_too() {
    fn walk<B: Backend>(device: &B::Device, mut after: impl FnMut(usize)) -> Vec<f32> {
        let x = table::<B>(5, [16, 4], device);
        let spots = table::<B>(6, [3, 4], device);
        let mut numbers = Vec::new();
        for at in 0..8 {
            let steps = x.clone().slice(s![at..at + 6;2, 1..3]);
            let down = x.clone().slice(s![at..at + 7;-3]);
            let put = x.clone().slice_assign(s![at..at + 6;2, ..], spots.clone());
            let put_down = x.clone().slice_assign(s![at..at + 5;-2, ..], spots.clone());
            for tensor in [steps, down, put, put_down] {
                numbers.extend(read(tensor));
            }
            after(at);
        }
        numbers
    }
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let mut compiles = vec![burn_tpu::metrics(&device).compiles];
    let ours = walk::<B>(&device, |_| compiles.push(burn_tpu::metrics(&device).compiles));
    let steps: Vec<u64> = compiles.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, [1, 1, 0, 0, 0, 0, 0, 0], "the four slices are one program");
    assert_eq!(ours, walk::<NdArray<f32>>(&Default::default(), |_| {}));
}

#[derive(Module, Debug)]
struct Perceptron<B: Backend> {
    hidden: Linear<B>,
    dropout: Dropout,
    output: Linear<B>,
}

impl<B: Backend> Perceptron<B> {
    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let target = x.clone().sum_dim(1);
        let hidden = self.dropout.forward(relu(self.hidden.forward(x)));
        (self.output.forward(hidden) - target).powi_scalar(2).mean()
    }
}

#[test]
fn schedules_dropout_and_clipping_never_recompile() {
    type A = Autodiff<B>;
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let mut model = Perceptron::<A> {
        hidden: LinearConfig::new(4, 16).init(&device),
        dropout: DropoutConfig::new(0.1).init(),
        output: LinearConfig::new(16, 1).init(&device),
    };
    let clipping = GradientClippingConfig::Norm(1.0);
    let mut optimizer = AdamConfig::new().with_grad_clipping(Some(clipping)).init();
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(1e-2, 300).init().expect("a schedule");
    let (mut compiles, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let x = Tensor::<A, 2>::random([8, 4], Distribution::Default, &device);
        let loss = model.loss(x);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(schedule.step(), model, gradients);
        mark_step(&device);
        compiles.push(burn_tpu::metrics(&device).compiles);
        losses.push(loss);
    }
    assert_eq!(compiles[3], compiles[299], "no compile after the fourth step");
    let losses: Vec<f32> = losses.into_iter().map(|loss| read(loss.inner())[0]).collect();
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len() as f32;
    assert!(mean(&losses[280..]) < 0.5 * mean(&losses[..20]), "it learns: {losses:?}");
}

/// Slots that are equal in one step and differ in the next: if they were merged, the second step would read both from one
/// slot.
#[test]
fn equal_scalars_are_not_merged() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let x = row(&device, [1.0, 2.0]);
    let step = |a: f32, b: f32, c: f32| read((x.clone() * a + b) / c);
    step(2.0, 2.0, 2.0);
    let (found, count) = counted(&device, || [step(3.0, 5.0, 2.0), step(5.0, 3.0, 2.0), step(2.0, 2.0, 4.0)]);
    assert_eq!(found, [[4.0, 5.5], [4.0, 6.5], [1.0, 1.5]]);
    assert_eq!(count.compiles, 0);
}

/// Two buffers with equal values in one step, and one buffer used twice: two programs, each with its own arguments.
#[test]
fn equal_buffers_are_not_merged_and_one_buffer_is() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let difference = |x: &Tensor<B, 1>, y: &Tensor<B, 1>| read(x.clone() * 2.0 - y.clone());
    let [x, y, z] = [[1.0, 2.0], [1.0, 2.0], [5.0, 7.0]].map(|numbers| row(&device, numbers));
    assert_eq!(difference(&x, &y), [1.0, 2.0]);
    let (found, count) = counted(&device, || [difference(&x, &z), difference(&z, &y)]);
    assert_eq!((found, count.compiles), ([vec![-3.0, -3.0], vec![9.0, 12.0]], 0));
    assert_eq!(difference(&z, &z), [5.0, 7.0]);
}

#[test]
fn random_numbers_are_no_part_of_the_program() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    let draw = || read(Tensor::<B, 1>::random([64], Distribution::Default, &device));
    B::seed(&device, 7);
    let first = draw();
    let (others, count) = counted(&device, || [draw(), draw()]);
    assert_eq!(count.compiles, 0, "one program for all draws");
    assert!(others[0] != first && others[1] != first && others[0] != others[1]);
    B::seed(&device, 7);
    assert_eq!(draw(), first);
}
