//! Burn's own checkpoints of a `Learner` go on working: a training that was stopped and continued from Burn's files ends
//! with the weights of one that was not.

use crate::common;

use burn::backend::Autodiff;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::record::{BinFileRecorder, FullPrecisionSettings};
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::renderer::{EvaluationName, EvaluationProgress, MetricState, ProgressType, TrainingProgress};
use burn::train::renderer::{MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining};
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
use common::alone;
use std::path::Path;

type B = Autodiff<Tpu>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    linear: Linear<B>,
}

#[derive(Clone, Debug)]
struct Batch<B: Backend> {
    inputs: Tensor<B, 2>,
    targets: Tensor<B, 2>,
}

/// Makes batches of numbers in the order of the items.
#[derive(Clone)]
struct Numbers;

impl<B: Backend> Batcher<B, usize, Batch<B>> for Numbers {
    fn batch(&self, items: Vec<usize>, device: &B::Device) -> Batch<B> {
        let numbers: Vec<f32> =
            items.iter().flat_map(|i| (0..8).map(move |k| ((i * 31 + k * 7) % 10) as f32 / 10.0)).collect();
        let inputs = Tensor::<B, 2>::from_data(TensorData::new(numbers, [items.len(), 8]), device);
        Batch { targets: inputs.clone().sum_dim(1), inputs }
    }
}

impl<B: Backend> Model<B> {
    fn regress(&self, Batch { inputs, targets }: Batch<B>) -> RegressionOutput<B> {
        let output = self.linear.forward(inputs);
        RegressionOutput::new(MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean), output, targets)
    }
}

impl<B: AutodiffBackend> TrainStep for Model<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<RegressionOutput<B>> {
        let output = self.regress(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Model<B> {
    type Input = Batch<B>;
    type Output = RegressionOutput<B>;

    fn step(&self, batch: Batch<B>) -> RegressionOutput<B> {
        self.regress(batch)
    }
}

/// A renderer that shows nothing.
struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}
}

impl MetricsRendererEvaluation for Silent {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for Silent {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: burn::train::metric::MetricDefinition) {}
}

/// Trains up to an epoch, from the checkpoint of another one if it is named, and returns the weights.
fn fit(folder: &Path, from: Option<usize>, epochs: usize, device: &TpuDevice) -> Vec<f32> {
    B::seed(device, 3);
    let model = Model { linear: LinearConfig::new(8, 1).init::<B>(device) };
    let data = || InMemDataset::new((0..32).collect());
    let loader = || DataLoaderBuilder::new(Numbers).batch_size(4).set_device(*device);
    let training = SupervisedTraining::new(folder, loader().build(data()), {
        DataLoaderBuilder::new(Numbers).batch_size(4).set_device(*device).build(data())
    })
    .with_metric_logger(InMemoryMetricLogger::new())
    .with_application_logger(None)
    .with_file_checkpointer(BinFileRecorder::<FullPrecisionSettings>::new())
    .renderer(Silent)
    .metric_train_numeric(LossMetric::new())
    .num_epochs(epochs);
    let training = match from {
        Some(epoch) => training.checkpoint(epoch),
        None => training,
    };
    let learner = Learner::new(model, TpuOptimizer::new(AdamConfig::new().init()), 1e-2);
    training.launch(learner).model.linear.weight.val().into_data().iter::<f32>().collect()
}

#[test]
fn a_learner_goes_on_from_its_own_checkpoint() {
    let Some(device) = common::bf16_cpu() else { return };
    let _alone = alone();
    let [straight, stopped] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let expected = fit(straight.path(), None, 4, &device);
    let half = fit(stopped.path(), None, 2, &device);
    let found = fit(stopped.path(), Some(2), 4, &device);
    assert_ne!(half, expected);
    assert_eq!(found, expected);
}
