//! A regression on short sequences with a recurrent cell of one's own: two layers in both directions, norms in each step.
//!
//! The loss is read before the backward pass, so forward and backward are two programs.

use crate::numbers::Numbers;
use crate::programs::Options;
use crate::{SEED, weights};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 32;
const HIDDEN: usize = 32;
const LAYERS: usize = 2;
const TIME: usize = 10;
const RATE: f64 = 1e-3;

/// A gated cell: its input, its cell state and its result are normalised.
#[derive(Module, Debug)]
struct Cell<B: Backend> {
    of_input: Linear<B>,
    of_hidden: Linear<B>,
    input_norm: LayerNorm<B>,
    cell_norm: LayerNorm<B>,
    hidden_norm: LayerNorm<B>,
}

impl<B: Backend> Cell<B> {
    fn new(inputs: usize, device: &B::Device) -> Self {
        Self {
            of_input: LinearConfig::new(inputs, 4 * HIDDEN).init(device),
            of_hidden: LinearConfig::new(HIDDEN, 4 * HIDDEN).init(device),
            input_norm: LayerNormConfig::new(4 * HIDDEN).init(device),
            cell_norm: LayerNormConfig::new(HIDDEN).init(device),
            hidden_norm: LayerNormConfig::new(HIDDEN).init(device),
        }
    }

    /// Maps `[batch, inputs]`, and the cell state and the hidden state `[batch, HIDDEN]`, to the new states.
    fn step(&self, input: Tensor<B, 2>, (cell, hidden): State<B>) -> State<B> {
        let gates = self.input_norm.forward(self.of_input.forward(input)) + self.of_hidden.forward(hidden);
        let [write, keep, value, show] = gates.chunk(4, 1).try_into().expect("four gates");
        let kept = activation::sigmoid(keep) * cell;
        let cell = self.cell_norm.forward(kept + activation::sigmoid(write) * value.tanh());
        let hidden = self.hidden_norm.forward(activation::sigmoid(show) * cell.clone().tanh());
        (cell, hidden)
    }
}

type State<B> = (Tensor<B, 2>, Tensor<B, 2>);

/// Cells on top of each other.
#[derive(Module, Debug)]
struct Stack<B: Backend> {
    cells: Vec<Cell<B>>,
}

impl<B: Backend> Stack<B> {
    fn new(device: &B::Device) -> Self {
        let inputs = |layer| if layer == 0 { 1 } else { HIDDEN };
        Self { cells: (0..LAYERS).map(|layer| Cell::new(inputs(layer), device)).collect() }
    }

    /// Maps `[batch, time, 1]` to the hidden states of the last layer `[batch, time, HIDDEN]`.
    fn forward(&self, sequences: Tensor<B, 3>) -> Tensor<B, 3> {
        let [rows, time, _] = sequences.dims();
        let zeros = || Tensor::zeros([rows, HIDDEN], &sequences.device());
        let mut states: Vec<State<B>> = (0..LAYERS).map(|_| (zeros(), zeros())).collect();
        let mut hidden = Vec::with_capacity(time);
        for step in 0..time {
            let mut input = sequences.clone().slice(s![.., step..step + 1, ..]).squeeze_dim::<2>(1);
            for (cell, state) in self.cells.iter().zip(&mut states) {
                *state = cell.step(input, state.clone());
                input = state.1.clone();
            }
            hidden.push(input);
        }
        Tensor::stack(hidden, 1)
    }
}

/// A stack that reads sequences from the left, one that reads them from the right, and a linear layer on the last states.
#[derive(Module, Debug)]
struct Network<B: Backend> {
    rightward: Stack<B>,
    leftward: Stack<B>,
    output: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(device: &B::Device) -> Self {
        let output = LinearConfig::new(2 * HIDDEN, 1).init(device);
        Self { rightward: Stack::new(device), leftward: Stack::new(device), output }
    }

    /// Maps `[batch, time, 1]` to `[batch, 1]`.
    fn forward(&self, sequences: Tensor<B, 3>) -> Tensor<B, 2> {
        let rightward = self.rightward.forward(sequences.clone());
        let leftward = self.leftward.forward(sequences.flip([1])).flip([1]);
        let both = Tensor::cat(vec![rightward, leftward], 2);
        let last = both.slice(s![.., TIME - 1..TIME, ..]).squeeze_dim::<2>(1);
        self.output.forward(last)
    }
}

/// Draws sequences in which each number is the sum of the two before it, scaled, and the number that follows each.
fn batch<B: Backend>(numbers: &mut Numbers, device: &B::Device) -> (Tensor<B, 3>, Tensor<B, 2>) {
    let (mut sequences, mut targets) = (Vec::with_capacity(BATCH * TIME), Vec::with_capacity(BATCH));
    for _ in 0..BATCH {
        let (mut previous, mut current) = (numbers.signed(), numbers.signed());
        for _ in 0..TIME {
            sequences.push(current);
            (previous, current) = (current, 0.6 * (previous + current));
        }
        targets.push(current);
    }
    let sequences = Tensor::from_data(TensorData::new(sequences, [BATCH, TIME, 1]), device);
    (sequences, Tensor::from_data(TensorData::new(targets, [BATCH, 1]), device))
}

/// Trains with Adam.
pub fn train<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let drawn = Network::<Flex>::new(&FlexDevice);
    let mut model = weights::same(drawn, Network::<B>::new(device), device);
    let mut optimizer = AdamConfig::new().init();
    let mut numbers = Numbers::new(SEED);
    let mut losses = Vec::new();
    for step in 0..steps {
        let (sequences, targets) = batch::<B>(&mut numbers, device);
        let loss = MseLoss::new().forward(model.forward(sequences), targets, Reduction::Mean);
        if options.reads(step) {
            losses.push(loss.clone().into_scalar().elem());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(RATE, model, gradients);
    }
    losses
}
