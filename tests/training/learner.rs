//! Burn's Learner reads on one thread, records on another and builds batches on a third. The programs are the same every
//! time, and a training step is one of them.
//!
//! A validation's results are read late: the training step after the last one then often ends before they are read.

use crate::common;

use burn::backend::Autodiff;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Int, Tensor, TensorData, activation::relu};
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{AccuracyMetric, ItemLazy, LossMetric};
use burn::train::renderer::{EvaluationName, EvaluationProgress, MetricState, ProgressType, TrainingProgress};
use burn::train::renderer::{MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use burn_tpu::{CutReason, Tpu, TpuDevice, TpuOptimizer, program_keys};
use common::{alone, counted};
use std::time::Duration;

type B = Autodiff<Tpu>;

const STEPS: usize = 8;
/// Longer than a training step that needs no compile.
const LATE: Duration = Duration::from_millis(15);

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    dropout: Dropout,
    output: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            hidden: LinearConfig::new(12, 16).init(device),
            dropout: DropoutConfig::new(0.2).init(),
            output: LinearConfig::new(16, 3).init(device),
        }
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        let hidden = self.dropout.forward(relu(self.hidden.forward(batch.points)));
        let logits = self.output.forward(hidden);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        ClassificationOutput::new(loss.forward(logits.clone(), batch.classes.clone()), logits, batch.classes)
    }
}

#[derive(Clone, Debug)]
struct Batch<B: Backend> {
    points: Tensor<B, 2>,
    classes: Tensor<B, 1, Int>,
    /// Until a validation's output is read.
    delay: Duration,
}

/// Records on the loader's thread, with a different delay for each batch.
#[derive(Clone)]
struct Points {
    seed: u64,
}

impl<B: Backend> Batcher<B, usize, Batch<B>> for Points {
    fn batch(&self, items: Vec<usize>, device: &B::Device) -> Batch<B> {
        std::thread::sleep(Duration::from_micros(self.seed * 7919 * (items[0] as u64 + 1) % 3_000));
        let numbers: Vec<f32> =
            items.iter().flat_map(|i| (0..12).map(move |k| ((i * 31 + k * 7) % 10) as f32)).collect();
        let classes: Vec<i32> = items.iter().map(|i| (i % 3) as i32).collect();
        let points = Tensor::<B, 2>::from_data(TensorData::new(numbers, [items.len(), 12]), device);
        let classes = Tensor::from_data(TensorData::new(classes, [items.len()]), device);
        Batch { points: (points - 4.5) / 3.0, classes, delay: LATE * (self.seed % 3) as u32 }
    }
}

impl<B: AutodiffBackend> TrainStep for Model<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

/// The output of a validation step, which the thread of the metrics reads after a delay.
struct ReadLate<B: Backend> {
    output: ClassificationOutput<B>,
    delay: Duration,
}

impl<B: Backend> ItemLazy for ReadLate<B> {
    type ItemSync = <ClassificationOutput<B> as ItemLazy>::ItemSync;

    fn sync(self) -> Self::ItemSync {
        std::thread::sleep(self.delay);
        self.output.sync()
    }
}

impl<B: Backend> InferenceStep for Model<B> {
    type Input = Batch<B>;
    type Output = ReadLate<B>;

    fn step(&self, batch: Batch<B>) -> ReadLate<B> {
        let delay = batch.delay;
        ReadLate { output: self.classify(batch), delay }
    }
}

/// A renderer that shows nothing and is slow: metrics then arrive long after the step that they describe.
struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {
        std::thread::sleep(Duration::from_micros(500));
    }
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

fn fit(seed: u64, device: &TpuDevice) {
    B::seed(device, seed);
    let data = || InMemDataset::new((0..STEPS * 4).collect());
    let train = DataLoaderBuilder::new(Points { seed }).batch_size(4).num_workers(1).set_device(*device);
    let test = DataLoaderBuilder::new(Points { seed }).batch_size(4).set_device(*device);
    let optimizer = TpuOptimizer::new(AdamConfig::new().init());
    SupervisedTraining::new("", train.build(data()), test.build(data()))
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .renderer(Silent)
        .metric_train_numeric(LossMetric::new())
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .num_epochs(2)
        .launch(Learner::new(Model::<B>::new(device), optimizer, 1e-3));
}

/// Returns the number of ended steps.
fn marked(device: &TpuDevice) -> u64 {
    device.metrics().cuts.get(&CutReason::MarkStep).copied().unwrap_or(0)
}

#[test]
fn the_learners_programs_do_not_depend_on_timing() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let runs: Vec<Vec<u64>> = (0..if common::is_long() { 20 } else { 5 })
        .map(|seed| {
            Tpu::<half::bf16>::memory_cleanup(&device);
            let before = marked(&device);
            let ((), count) = counted(&device, || fit(seed, &device));
            assert_eq!(count.fallbacks, 0);
            // In each epoch: the training steps, their batches (the loader's thread records them), the validation
            // steps. Before the first step: the draws of four weights, each with its master copy, and the optimizer's
            // state of zeros.
            let executions = 6 * STEPS as u64 + 5;
            assert_eq!((marked(&device), count.executions), (before + 2 * STEPS as u64, executions), "{count:?}");
            program_keys(&device)
        })
        .collect();
    assert!(!runs[0].is_empty());
    for (seed, keys) in runs.iter().enumerate() {
        assert_eq!(*keys, runs[0], "run {seed}");
    }
}
