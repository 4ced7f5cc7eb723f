//! A regression on tabular data: the batcher makes two tensors per sample, and scales them by minimum and maximum.

use crate::learner::{self, LossLog, VALIDATION_BATCHES};
use crate::numbers::Numbers;
use crate::{SEED, weights};
use burn::data::dataloader::batcher::Batcher;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};

const BATCH: usize = 256;
const FEATURES: usize = 8;
const HIDDEN: usize = 64;
const RATE: f64 = 1e-3;

/// The smallest and the largest value of each feature.
const MINIMA: [f32; FEATURES] = [0.5, 1.0, 0.8, 0.3, 3.0, 0.7, 32.5, -124.3];
const MAXIMA: [f32; FEATURES] = [15.0, 52.0, 141.9, 34.1, 35682.0, 1243.3, 42.0, -114.3];

/// A row of the table, and its value.
#[derive(Clone, Debug)]
struct Row {
    features: [f32; FEATURES],
    value: f32,
}

/// Returns rows whose value depends on their features in a simple way.
fn rows(count: usize, seed: u64) -> Vec<Row> {
    let mut numbers = Numbers::new(seed);
    let row = |numbers: &mut Numbers| {
        let scaled: [f32; FEATURES] = std::array::from_fn(|_| numbers.unit());
        let features = std::array::from_fn(|at| MINIMA[at] + scaled[at] * (MAXIMA[at] - MINIMA[at]));
        Row { features, value: 2.0 * scaled[0] - scaled[1] * scaled[2] + 0.5 * scaled[6] }
    };
    (0..count).map(|_| row(&mut numbers)).collect()
}

/// Scales features to 0..1 on the device.
#[derive(Clone, Debug)]
struct Normaliser<B: Backend> {
    /// `[1, features]`
    minima: Tensor<B, 2>,
    /// `[1, features]`
    maxima: Tensor<B, 2>,
}

impl<B: Backend> Normaliser<B> {
    fn new(device: &B::Device) -> Self {
        let row = |values: [f32; FEATURES]| Tensor::<B, 1>::from_floats(values, device).unsqueeze();
        Self { minima: row(MINIMA), maxima: row(MAXIMA) }
    }

    fn normalise(&self, features: Tensor<B, 2>) -> Tensor<B, 2> {
        (features - self.minima.clone()) / (self.maxima.clone() - self.minima.clone())
    }
}

#[derive(Clone, Debug)]
struct RowBatcher<B: Backend>(Normaliser<B>);

#[derive(Clone, Debug)]
struct RowBatch<B: Backend> {
    /// `[batch, features]`
    features: Tensor<B, 2>,
    /// `[batch]`
    values: Tensor<B, 1>,
}

impl<B: Backend> Batcher<B, Row, RowBatch<B>> for RowBatcher<B> {
    fn batch(&self, rows: Vec<Row>, device: &B::Device) -> RowBatch<B> {
        let features = |row: &Row| Tensor::<B, 1>::from_floats(row.features, device).unsqueeze::<2>();
        let value = |row: &Row| Tensor::<B, 1>::from_floats([row.value], device);
        let (values, features) = (rows.iter().map(value).collect(), rows.iter().map(features).collect());
        RowBatch { features: self.0.normalise(Tensor::cat(features, 0)), values: Tensor::cat(values, 0) }
    }
}

/// Two linear layers.
#[derive(Module, Debug)]
struct Regression<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
    activation: Relu,
}

impl<B: Backend> Regression<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            hidden: LinearConfig::new(FEATURES, HIDDEN).init(device),
            output: LinearConfig::new(HIDDEN, 1).init(device),
            activation: Relu::new(),
        }
    }

    fn forward(&self, batch: RowBatch<B>) -> RegressionOutput<B> {
        let targets = batch.values.unsqueeze_dim(1);
        let output = self.output.forward(self.activation.forward(self.hidden.forward(batch.features)));
        let loss = MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean);
        RegressionOutput { loss, output, targets }
    }
}

impl<B: AutodiffBackend> TrainStep for Regression<B> {
    type Input = RowBatch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: RowBatch<B>) -> TrainOutput<RegressionOutput<B>> {
        let output = self.forward(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Regression<B> {
    type Input = RowBatch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: RowBatch<B>) -> RegressionOutput<B> {
        self.forward(batch)
    }
}

/// Trains in Burn's Learner.
pub fn learn<B: AutodiffBackend>(steps: usize, workers: usize, device: &B::Device) -> Vec<f64> {
    let batcher = RowBatcher::<B>(Normaliser::new(device));
    let train = learner::loader(batcher, rows(steps * BATCH, SEED), BATCH, workers, device);
    let batcher = RowBatcher::<B::InnerBackend>(Normaliser::new(device));
    let valid = learner::loader(batcher, rows(VALIDATION_BATCHES * BATCH, SEED + 1), BATCH, workers, device);
    let model = weights::same(Regression::<Flex>::new(&FlexDevice), Regression::<B>::new(device), device);
    let log = LossLog::default();
    SupervisedTraining::new("", train, valid)
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .renderer(log.clone())
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .num_epochs(1)
        .launch(Learner::new(model, AdamConfig::new().init(), RATE));
    log.losses()
}
