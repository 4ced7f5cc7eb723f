//! A classifier of sequences with Burn's LSTM or GRU, in a plain loop.

use crate::numbers::Numbers;
use crate::programs::Options;
use crate::{SEED, weights};
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 32;
const FEATURES: usize = 28;
const HIDDEN: usize = 64;
const CLASSES: usize = 10;
const RATE: f64 = 1e-3;

/// The recurrent layer.
#[derive(Clone, Copy)]
pub enum Cell {
    /// `burn::nn::Lstm`
    Lstm,
    /// `burn::nn::gru::Gru`
    Gru,
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one model in the process")]
enum Recurrent<B: Backend> {
    Lstm(Lstm<B>),
    Gru(Gru<B>),
}

/// A recurrent layer, and a linear layer on its last hidden state.
#[derive(Module, Debug)]
struct SequenceClassifier<B: Backend> {
    recurrent: Recurrent<B>,
    output: Linear<B>,
}

impl<B: Backend> SequenceClassifier<B> {
    fn new(cell: Cell, device: &B::Device) -> Self {
        let recurrent = match cell {
            Cell::Lstm => Recurrent::Lstm(LstmConfig::new(FEATURES, HIDDEN, true).init(device)),
            Cell::Gru => Recurrent::Gru(GruConfig::new(FEATURES, HIDDEN, true).init(device)),
        };
        Self { recurrent, output: LinearConfig::new(HIDDEN, CLASSES).init(device) }
    }

    /// Maps `[batch, time, features]` to logits `[batch, classes]`.
    fn forward(&self, sequences: Tensor<B, 3>) -> Tensor<B, 2> {
        let [rows, time, _] = sequences.dims();
        let last = match &self.recurrent {
            Recurrent::Lstm(lstm) => lstm.forward(sequences, None).1.hidden,
            Recurrent::Gru(gru) => {
                gru.forward(sequences, None).slice([0..rows, time - 1..time]).reshape([rows, HIDDEN])
            }
        };
        self.output.forward(last)
    }
}

/// Makes sequences: the pattern of their class, and noise.
struct Source {
    numbers: Numbers,
    /// A pattern of `time * features` numbers per class.
    patterns: Vec<Vec<f32>>,
    time: usize,
}

impl Source {
    fn new(time: usize) -> Self {
        let mut numbers = Numbers::new(SEED);
        let patterns = (0..CLASSES).map(|_| (0..time * FEATURES).map(|_| numbers.signed()).collect()).collect();
        Self { numbers, patterns, time }
    }

    fn batch<B: Backend>(&mut self, device: &B::Device) -> (Tensor<B, 3>, Tensor<B, 1, Int>) {
        let classes: Vec<usize> = (0..BATCH).map(|_| self.numbers.within(0..CLASSES)).collect();
        let mut values = Vec::with_capacity(BATCH * self.time * FEATURES);
        for class in &classes {
            values.extend(self.patterns[*class].iter().map(|value| 0.5 * value + self.numbers.signed()));
        }
        let sequences = Tensor::from_data(TensorData::new(values, [BATCH, self.time, FEATURES]), device);
        let classes: Vec<i32> = classes.into_iter().map(|class| class as i32).collect();
        (sequences, Tensor::from_ints(classes.as_slice(), device))
    }
}

/// Trains with Adam.
pub fn train<B: AutodiffBackend>(cell: Cell, steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let drawn = SequenceClassifier::<Flex>::new(cell, &FlexDevice);
    let mut model = weights::same(drawn, SequenceClassifier::<B>::new(cell, device), device);
    let mut optimizer = AdamConfig::new().init();
    let mut source = Source::new(options.time_steps);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    for step in 0..steps {
        let (sequences, classes) = source.batch::<B>(device);
        let loss = loss.forward(model.forward(sequences), classes);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(RATE, model, gradients);
        if options.reads(step) {
            losses.push(loss.into_scalar().elem());
        }
    }
    losses
}
