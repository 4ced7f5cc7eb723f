//! Burn 0.22's `Learner` reads on one thread and records on another: a training step is one program where the model's
//! `optimize` ends it. Without the CPU plugin it runs in the interpreter.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn::train::metric::LossMetric;
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
use burn_tpu::{TpuDevice, TpuOptimizer, TpuOptions, end_step};
use burn_tpu_runtime::CutReason;

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn forward(&self, x: Tensor<2>) -> RegressionOutput {
        let targets = x.clone().sum_dim(1).cast(FloatDType::F32);
        let output = self.output.forward(self.hidden.forward(x).tanh()).cast(FloatDType::F32);
        RegressionOutput::new((output.clone() - targets.clone()).powi_scalar(2).mean(), output, targets)
    }
}

impl TrainStep for Model {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, x: Tensor<2>) -> TrainOutput<RegressionOutput> {
        let output = self.forward(x);
        TrainOutput::new(self, output.loss.backward(), output)
    }

    fn optimize(self, optimizer: &mut ModuleOptimizer, rate: ModuleLearningRate, gradients: GradientsParams) -> Self {
        let model = optimizer.step(rate, self, gradients);
        end_step();
        model
    }
}

impl InferenceStep for Model {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, x: Tensor<2>) -> RegressionOutput {
        self.forward(x)
    }
}

#[derive(Clone)]
struct Rows;

impl Batcher<usize, Tensor<2>> for Rows {
    fn batch(&self, rows: Vec<usize>, device: &Device) -> Tensor<2> {
        let numbers: Vec<f32> =
            rows.iter().flat_map(|row| (0..8).map(move |k| (0.7 * (8 * row + k) as f32).sin())).collect();
        Tensor::from_data(TensorData::new(numbers, [rows.len(), 8]), device)
    }
}

/// Trains for some steps of 16 rows.
fn train(steps: usize, folder: &std::path::Path) -> Model {
    let loader =
        |rows| DataLoaderBuilder::new(Rows).batch_size(16).num_workers(2).build(InMemDataset::new((0..rows).collect()));
    let device = Device::default().autodiff();
    let model =
        Model { hidden: LinearConfig::new(8, 32).init(&device), output: LinearConfig::new(32, 1).init(&device) };
    let training = SupervisedTraining::new(folder, loader(16 * steps), loader(16));
    let training = training.metric_train_numeric(LossMetric::new()).with_application_logger(None).num_epochs(1);
    let optimizer = TpuOptimizer::new(AdamConfig::new().build());
    training.launch(Learner::new(model, optimizer.into(), 1e-3)).model
}

#[test]
fn a_step_of_burns_learner_is_one_program() {
    let tpu = TpuDevice::default();
    let options = TpuOptions::training().strict(true).disk_cache(false);
    options.install(&tpu).expect("the first use of the device");
    Device::from(tpu).configure(FloatDType::BF16).expect("the first use of the device");
    let folder = tempfile::tempdir().expect("a folder");
    let counts = [4, 24, 44].map(|steps| {
        let before = tpu.metrics().executions;
        let model = train(steps, folder.path());
        assert_eq!(model.hidden.weight.val().dtype(), burn::tensor::DType::BF16);
        tpu.metrics().executions - before
    });
    // The step, and on the metrics' thread the mean of its loss.
    assert_eq!(counts[2] - counts[1], 2 * 20, "{counts:?}");
    assert_eq!(tpu.metrics().cuts.get(&CutReason::OtherThread), None, "{}", tpu.metrics());
}
