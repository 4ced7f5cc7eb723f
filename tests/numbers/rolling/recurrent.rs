//! Models with a recurrent layer, and one step of their training.

use burn::module::{AutodiffModule, Module};
use burn::nn::{BiLstm, BiLstmConfig, Gru, GruConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};

pub const BATCH: usize = 4;
pub const INPUTS: usize = 6;
pub const WIDTH: usize = 8;
const CLASSES: usize = 3;

/// The recurrent layer of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Lstm,
    Gru,
    BiLstm,
}

/// A recurrent layer and a linear layer on each of its states.
#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    lstm: Option<Lstm<B>>,
    gru: Option<Gru<B>>,
    both_ways: Option<BiLstm<B>>,
    head: Linear<B>,
}

impl<B: Backend> Model<B> {
    pub fn new(layer: Layer, inputs: usize, width: usize, device: &B::Device) -> Self {
        let outputs = if layer == Layer::BiLstm { 2 * width } else { width };
        Self {
            lstm: (layer == Layer::Lstm).then(|| LstmConfig::new(inputs, width, true).init(device)),
            gru: (layer == Layer::Gru).then(|| GruConfig::new(inputs, width, true).init(device)),
            both_ways: (layer == Layer::BiLstm).then(|| BiLstmConfig::new(inputs, width, true).init(device)),
            head: LinearConfig::new(outputs, CLASSES).init(device),
        }
    }

    /// Returns a loss that reads all states, `[1]`.
    pub fn loss(&self, x: Tensor<B, 3>) -> Tensor<B, 1> {
        let states = match (&self.lstm, &self.gru, &self.both_ways) {
            (Some(lstm), ..) => lstm.forward(x, None).0,
            (_, Some(gru), _) => gru.forward(x, None),
            (.., Some(both_ways)) => both_ways.forward(x, None).0,
            _ => unreachable!("a model has a layer"),
        };
        self.head.forward(states).tanh().mean()
    }
}

/// Returns a batch of sequences, `[batch, steps, inputs]`: the same numbers on every backend.
pub fn sequences<B: Backend>([batch, steps, inputs]: [usize; 3], device: &B::Device) -> Tensor<B, 3> {
    let values: Vec<f32> = (0..batch * steps * inputs).map(|i| (0.37 * (i % 10_007) as f32).sin()).collect();
    Tensor::from_data(TensorData::new(values, [batch, steps, inputs]), device)
}

/// Trains for one step. Returns the next model and the loss.
pub fn step<B: AutodiffBackend, O: Optimizer<Model<B>, B>>(
    model: Model<B>,
    optimizer: &mut O,
    x: Tensor<B, 3>,
) -> (Model<B>, Tensor<B, 1>)
where
    Model<B>: AutodiffModule<B>,
{
    let loss = model.loss(x);
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (optimizer.step(1e-2, model, gradients), loss)
}
