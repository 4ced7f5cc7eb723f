//! A small classifier and its training in Burn's Learner.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Optimizer, Sgd, SgdConfig};
use burn::tensor::activation::relu;
use burn::tensor::backend::distributed::{DistributedBackend, DistributedConfig, ReduceOperation};
use burn::tensor::backend::{AutodiffBackend, Backend, DeviceOps};
use burn::tensor::{Int, Tensor, TensorData};
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{LossMetric, MetricDefinition, MetricId};
use burn::train::renderer::{
    EvaluationName, EvaluationProgress, MetricState, MetricsRenderer, MetricsRendererEvaluation,
    MetricsRendererTraining, ProgressType, TrainingProgress,
};
use burn::train::{
    ClassificationOutput, ExecutionStrategy, InferenceStep, Learner, MultiDeviceOptim, SupervisedTraining, TrainOutput,
    TrainStep,
};
use std::sync::{Arc, Mutex};

const WIDTH: usize = 12;
const CLASSES: usize = 3;

#[derive(Module, Debug)]
pub struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Model<B> {
    pub fn new(device: &B::Device) -> Self {
        Self::of_width(16, device)
    }

    pub fn of_width(width: usize, device: &B::Device) -> Self {
        let hidden = LinearConfig::new(WIDTH, width).init(device);
        let model = Self { hidden, output: LinearConfig::new(width, CLASSES).init(device) };
        // Burn draws weights when they are first used; clones of a model that was not used would differ.
        model.weights();
        model
    }

    fn classify(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        assert!(!batch.panics, "a step that panics");
        let logits = self.output.forward(relu(self.hidden.forward(batch.points)));
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        ClassificationOutput::new(loss.forward(logits.clone(), batch.classes.clone()), logits, batch.classes)
    }

    /// Returns the weights, layer by layer.
    pub fn weights(&self) -> Vec<f32> {
        let layers = [&self.hidden, &self.output];
        let of_layer = |layer: &&Linear<B>| {
            let weight: Vec<f32> = layer.weight.val().into_data().iter().collect();
            let bias: Vec<f32> =
                layer.bias.as_ref().map(|bias| bias.val().into_data().iter().collect()).unwrap_or_default();
            [weight, bias].concat()
        };
        layers.iter().flat_map(of_layer).collect()
    }
}

#[derive(Clone, Debug)]
pub struct Batch<B: Backend> {
    points: Tensor<B, 2>,
    classes: Tensor<B, 1, Int>,
    panics: bool,
}

impl<B: AutodiffBackend> TrainStep for Model<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Model<B> {
    type Input = Batch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: Batch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

/// What a training reads, and how.
#[derive(Clone, Copy)]
pub struct Data {
    pub items: usize,
    /// The rows of a device's batch.
    pub rows: usize,
    /// The number of parts that the items are dealt to, row by row of a step; 1 keeps their order.
    pub dealt: usize,
    /// The device, and its step, that panics.
    pub panics_at: Option<(u16, usize)>,
    pub way: Way,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Single,
    Multi(MultiDeviceOptimKind),
    Ddp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MultiDeviceOptimKind {
    Main,
    Sharded,
}

impl Default for Data {
    fn default() -> Self {
        Self { items: 64, rows: 4, dealt: 1, panics_at: None, way: Way::Ddp }
    }
}

impl Data {
    /// Returns the items in the order in which they are read. A loader on several devices gives each a contiguous part; with
    /// `dealt`, one device reads what they read together, step by step.
    fn order(&self) -> Vec<usize> {
        let (part, rows) = (self.items / self.dealt, self.rows / self.dealt);
        let steps = part / rows;
        let of_step =
            |step: usize| (0..self.dealt).flat_map(move |i| (0..rows).map(move |row| i * part + step * rows + row));
        (0..steps).flat_map(of_step).collect()
    }
}

#[derive(Clone)]
struct Points(Data);

impl<B: Backend> Batcher<B, usize, Batch<B>> for Points {
    fn batch(&self, items: Vec<usize>, device: &B::Device) -> Batch<B> {
        let numbers: Vec<f32> = items
            .iter()
            .flat_map(|i| (0..WIDTH).map(move |k| ((i * 31 + k * i + k * 7) % 10) as f32 / 5.0 - 1.0))
            .collect();
        let classes: Vec<i32> = items.iter().map(|i| (i % CLASSES) as i32).collect();
        let panics = self.0.panics_at.is_some_and(|(index, step)| {
            let part = self.0.items / 2;
            device.id().index_id == index && items[0] % part == step * self.0.rows
        });
        let points = Tensor::from_data(TensorData::new(numbers, [items.len(), WIDTH]), device);
        Batch { points, classes: Tensor::from_data(TensorData::new(classes, [items.len()]), device), panics }
    }
}

/// The optimizer of all trainings. It ends no step.
pub fn optimizer<B: AutodiffBackend>() -> OptimizerAdaptor<Sgd<B::InnerBackend>, Model<B>, B> {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init()
}

/// Trains for one epoch. Returns the losses in the order of their arrival, and the weights.
pub fn fit<B>(model: Model<B>, data: Data, devices: &[B::Device]) -> (Vec<f64>, Vec<f32>)
where
    B: AutodiffBackend + DistributedBackend,
{
    fit_by(optimizer(), model, data, devices)
}

/// Same as [`fit`], with this optimizer.
pub fn fit_by<B, O>(optimizer: O, model: Model<B>, data: Data, devices: &[B::Device]) -> (Vec<f64>, Vec<f32>)
where
    B: AutodiffBackend + DistributedBackend,
    O: Optimizer<Model<B>, B> + 'static,
{
    let loader = DataLoaderBuilder::new(Points(data)).batch_size(data.rows).set_device(devices[0].clone());
    let valid = DataLoaderBuilder::new(Points(Data { panics_at: None, ..data })).batch_size(data.rows);
    let strategy = match data.way {
        Way::Single => ExecutionStrategy::<B>::single(devices[0].clone()),
        Way::Multi(kind) => {
            let optim = match kind {
                MultiDeviceOptimKind::Main => MultiDeviceOptim::OptimMainDevice,
                MultiDeviceOptimKind::Sharded => MultiDeviceOptim::OptimSharded,
            };
            ExecutionStrategy::multi(devices.to_vec(), optim)
        }
        Way::Ddp => {
            ExecutionStrategy::ddp(devices.to_vec(), DistributedConfig { all_reduce_op: ReduceOperation::Mean })
        }
    };
    let log = LossLog::default();
    let valid = valid.set_device(devices[0].clone()).build(InMemDataset::new((0..data.rows).collect()));
    let result = SupervisedTraining::new("", loader.build(InMemDataset::new(data.order())), valid)
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .renderer(log.clone())
        .metrics((LossMetric::new(),))
        .num_epochs(1)
        .with_training_strategy(strategy.into())
        .launch(Learner::new(model, optimizer, 0.05));
    (log.losses(), result.model.weights())
}

/// A display that shows nothing and keeps the training losses.
#[derive(Clone, Default)]
struct LossLog {
    losses: Arc<Mutex<Vec<f64>>>,
    metric: Option<MetricId>,
}

impl LossLog {
    fn losses(&self) -> Vec<f64> {
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
