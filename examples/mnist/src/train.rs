//! One run: data, Learner, and the count of correct classifications at the end. Generic over the backend.

use crate::batch;
use crate::curve::Curve;
use crate::data::{self, Split};
use crate::model::{Architecture, Classifier};
use crate::progress::LineRenderer;
use crate::resume::{self, Recorder};
use crate::step_timer::StepTimer;
use anyhow::{Context, Result, ensure};
use burn::data::dataloader::DataLoader;
use burn::optim::Optimizer;
use burn::optim::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{AccuracyMetric, ItemLazy, LossMetric};
use burn::train::{InferenceStep, Interrupter, Learner, SupervisedTraining};
use burn_tpu_workspace::models::Images;
use std::path::PathBuf;
use std::sync::Arc;

/// The learning rate falls along a cosine, to this value.
const LAST_LEARNING_RATE: f64 = 1e-5;

/// The options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The classifier to train
    #[arg(long, value_enum, default_value_t = Architecture::Mlp)]
    pub model: Architecture,
    /// Passes over the training set
    #[arg(long, default_value_t = 3)]
    pub epochs: usize,
    /// Images per training step
    #[arg(long, default_value_t = 128)]
    pub batch_size: usize,
    /// Stop after this many training steps
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Folder with the four MNIST files [default: where `cargo xtask data` puts them]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Save each epoch to this folder; started again, the run goes on from the last one
    #[arg(long, value_name = "DIR")]
    pub checkpoints: Option<PathBuf>,
    /// After training, also test the MLP with weights and activations of 8 bits
    #[arg(long)]
    pub eight_bits: bool,
    /// Seed of the weights and of the order of the images
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// The results of a run.
pub struct Outcome {
    /// Correctly classified test images, of `tested`.
    pub correct: usize,
    /// The same with weights and activations of 8 bits, if that was asked for.
    pub correct_in_8_bits: Option<usize>,
    /// The number of test images classified.
    pub tested: usize,
    /// Mean loss over the training steps of the last epoch.
    pub train_loss: f64,
    /// Training steps taken.
    pub steps: usize,
    /// Training images per second, excluding the first steps and testing.
    pub images_per_second: f64,
    /// The losses of the run.
    pub curve: Curve,
}

impl Options {
    /// Returns the classifier's name as shown to people.
    pub fn model_name(&self) -> &'static str {
        match self.model {
            Architecture::Mlp => "MLP",
            Architecture::Cnn => "CNN",
            Architecture::Resnet => "ResNet-20",
        }
    }

    /// Returns the first learning rate: batch norm allows a larger one.
    fn learning_rate(&self) -> f64 {
        match self.model {
            Architecture::Mlp | Architecture::Cnn => 1e-3,
            Architecture::Resnet => 3e-3,
        }
    }

    fn data_folder(&self) -> Result<PathBuf> {
        let cached = || burn_tpu_pjrt::discovery::cache_dir().map(|cache| cache.join("mnist"));
        let folder = self.data.clone().or_else(cached);
        folder.context("no folder for the MNIST files: pass one with `--data DIR`, or set BURN_TPU_CACHE_DIR")
    }

    fn total_steps(&self) -> usize {
        let planned = self.epochs * (Split::Train.len() / self.batch_size);
        self.steps.map_or(planned, |steps| steps.min(planned))
    }

    fn check(&self) -> Result<()> {
        let images = Split::Train.len();
        ensure!((1..=images).contains(&self.batch_size), "--batch-size must be between 1 and {images}");
        let is_quantizable = self.model == Architecture::Mlp;
        ensure!(is_quantizable || !self.eight_bits, "--eight-bits is for --model mlp");
        ensure!(self.epochs > 0, "--epochs must be at least 1");
        ensure!(self.steps != Some(0), "--steps must be at least 1");
        Ok(())
    }
}

/// Trains with Burn's Learner, then classifies the whole test set.
pub fn run<B, O>(options: &Options, device: &B::Device, optimizer: O) -> Result<Outcome>
where
    B: AutodiffBackend,
    O: Optimizer<Classifier<B>, B> + 'static,
{
    options.check()?;
    let folder = options.data_folder()?;
    let (train, test) = (data::load(&folder, Split::Train)?, data::load(&folder, Split::Test)?);
    B::seed(device, options.seed);
    let train = batch::training::<B>(train, options.batch_size, options.seed, device);
    let test = batch::testing::<B::InnerBackend>(test, device);

    let last_epoch = options.checkpoints.as_deref().and_then(resume::last_epoch);
    if let Some(epoch) = last_epoch {
        ensure!(
            epoch < options.epochs,
            "all {} epochs are in the folder: raise --epochs, or name another",
            options.epochs
        );
        println!("resumed after epoch {epoch}");
    }
    let interrupter = Interrupter::new();
    let timer = StepTimer::new(options.steps, interrupter.clone());
    let renderer = LineRenderer::new();
    let followed = renderer.followed();
    let schedule = CosineAnnealingLrSchedulerConfig::new(options.learning_rate(), options.total_steps());
    let schedule = schedule.with_min_lr(LAST_LEARNING_RATE).init();
    let schedule = schedule.map_err(anyhow::Error::msg).context("the learning rate's schedule")?;

    // With the logger in memory and no application logger, this example leaves no files on disk but checkpoints.
    let saved = options.checkpoints.clone().unwrap_or_default();
    let mut training = SupervisedTraining::new(saved, timer.time_steps(train), test.clone())
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .with_interrupter(interrupter)
        .renderer(renderer)
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .metric_train_numeric(AccuracyMetric::new())
        .metric_valid_numeric(AccuracyMetric::new())
        .num_epochs(options.epochs);
    if options.checkpoints.is_some() {
        training = training.with_file_checkpointer(Recorder::new());
    }
    if let Some(epoch) = last_epoch {
        training = training.checkpoint(epoch);
    }
    let result = training.launch(Learner::new(options.model.init::<B>(device), optimizer, schedule));

    let correct = count_correct(&result.model, &test);
    let quantized = if options.eight_bits { result.model.quantized() } else { None };
    Ok(Outcome {
        correct,
        correct_in_8_bits: quantized.map(|model| count_correct(&model, &test)),
        tested: test.num_items(),
        train_loss: followed.training_mean("Loss").context("no training step ran")?,
        curve: followed.curve(),
        steps: timer.steps(),
        images_per_second: timer.steps_per_second() * options.batch_size as f64,
    })
}

/// Returns the number of test images that the model classifies correctly. It reads after each batch, so that batches
/// do not queue up on the device, and runs the same program as the Learner's validation.
fn count_correct<B: Backend>(model: &Classifier<B>, test: &Arc<dyn DataLoader<B, Images<B>>>) -> usize {
    let correct = |batch| {
        let output = model.step(batch).sync();
        let [images] = output.targets.dims();
        let guesses = output.output.argmax(1).reshape([images]);
        guesses.equal(output.targets).int().sum().into_scalar() as usize
    };
    test.iter().map(correct).sum()
}
