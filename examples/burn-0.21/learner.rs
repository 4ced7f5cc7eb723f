//! What the programs with Burn's Learner share: loaders, and a display that keeps the loss of each step.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::optim::lr_scheduler::LrScheduler;
use burn::prelude::Backend;
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{AccuracyMetric, LossMetric, MetricDefinition, MetricId};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn::train::{
    ClassificationOutput, ExecutionStrategy, InferenceStep, Learner, LearnerSummary, SupervisedTraining, TrainStep,
};
use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex};

/// The batches of the validation that ends an epoch.
pub const VALIDATION_BATCHES: usize = 2;

/// Returns a shuffled loader of these items.
pub fn loader<B, I, O, Bt>(
    batcher: Bt,
    items: Vec<I>,
    batch_size: usize,
    workers: usize,
    device: &B::Device,
) -> Arc<dyn DataLoader<B, O>>
where
    B: Backend,
    I: Send + Sync + Clone + Debug + 'static,
    O: Send + Clone + Debug + 'static,
    Bt: Batcher<B, I, O> + 'static,
{
    let loader = DataLoaderBuilder::new(batcher).batch_size(batch_size).shuffle(7).num_workers(workers);
    loader.set_device(device.clone()).build(InMemDataset::new(items))
}

/// Trains a classifier for one epoch with accuracy and loss as metrics. Returns the loss of each step.
pub fn classify<B, M, O, S>(
    model: M,
    optimizer: O,
    schedule: S,
    train: Arc<dyn DataLoader<B, M::Input>>,
    valid: Arc<dyn DataLoader<B::InnerBackend, <M::InnerModule as InferenceStep>::Input>>,
) -> Vec<f64>
where
    B: AutodiffBackend,
    M: TrainStep<Output = ClassificationOutput<B>> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output = ClassificationOutput<B::InnerBackend>>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
{
    let device = model.devices().into_iter().next().unwrap_or_default();
    classify_by(ExecutionStrategy::single(device), model, optimizer, schedule, train, valid)
}

/// Same as [`classify`], on the devices of `strategy`.
pub fn classify_by<B, M, O, S>(
    strategy: ExecutionStrategy<B>,
    model: M,
    optimizer: O,
    schedule: S,
    train: Arc<dyn DataLoader<B, M::Input>>,
    valid: Arc<dyn DataLoader<B::InnerBackend, <M::InnerModule as InferenceStep>::Input>>,
) -> Vec<f64>
where
    B: AutodiffBackend,
    M: TrainStep<Output = ClassificationOutput<B>> + AutodiffModule<B> + Display + 'static,
    M::InnerModule: InferenceStep<Output = ClassificationOutput<B::InnerBackend>>,
    O: Optimizer<M, B> + 'static,
    S: LrScheduler + 'static,
{
    let log = LossLog::default();
    // With the logger in memory and no application logger, a run leaves no files on disk.
    SupervisedTraining::new("", train, valid)
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .renderer(log.clone())
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .num_epochs(1)
        .with_training_strategy(strategy.into())
        .launch(Learner::new(model, optimizer, schedule));
    log.losses()
}

/// A display that shows nothing and keeps the training loss of each step.
#[derive(Clone, Default)]
pub struct LossLog {
    losses: Arc<Mutex<Vec<f64>>>,
    metric: Option<MetricId>,
}

impl LossLog {
    /// Returns the losses so far, in the order of the steps.
    pub fn losses(&self) -> Vec<f64> {
        self.losses.lock().expect("no code panics while it holds this lock").clone()
    }
}

impl MetricsRendererTraining for LossLog {
    fn update_train(&mut self, state: MetricState) {
        let MetricState::Numeric(entry, value) = state else { return };
        if self.metric.as_ref() == Some(&entry.metric_id) {
            self.losses.lock().expect("no code panics while it holds this lock").push(value.current());
        }
    }

    fn update_valid(&mut self, _: MetricState) {}

    fn render_train(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}

    fn render_valid(&mut self, _: TrainingProgress, _: Vec<ProgressType>) {}

    fn on_train_end(&mut self, _: Option<LearnerSummary>) -> Result<(), Box<dyn std::error::Error>> {
        Ok(())
    }
}

impl MetricsRendererEvaluation for LossLog {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}

    fn render_test(&mut self, _: EvaluationProgress, _: Vec<ProgressType>) {}
}

impl MetricsRenderer for LossLog {
    fn manual_close(&mut self) {}

    fn register_metric(&mut self, definition: MetricDefinition) {
        if definition.name == "Loss" {
            self.metric = Some(definition.metric_id);
        }
    }
}
