//! The programs by name, and the options that they share.

use crate::{dqn, generate, llama, recurrent, regression, stack, stacked, text, text_generation, varying};
use burn::tensor::backend::AutodiffBackend;
use burn::train::MultiDeviceOptim;
use clap::ValueEnum;

/// A program: what it trains, and where its batches are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// Text classifier in the Learner; padding masks row by row, in the loader's threads
    Text,
    /// The same classifier in a loop of its own, with the masks recorded in the training thread
    TextThreads,
    /// The same classifier in the Learner on several devices, which one of them updates
    TextMulti,
    /// The same, with the update of each parameter on one of the devices
    TextMultiSharded,
    /// LSTM over time steps, in a loop of its own
    Lstm,
    /// GRU over time steps, in a loop of its own
    Gru,
    /// Recurrent cells written by hand, in two layers and both directions; the loss is read before the backward pass
    StackedLstm,
    /// Regression in the Learner; two tensors per sample
    Regression,
    /// Image classifier in the Learner; two tensors per image
    Stack,
    /// The same image classifier in a loop of its own, with the batches built in the training thread
    CustomLoop,
    /// Deep Q-learning on small tensors; each action is read
    Dqn,
    /// Greedy generation with a sequence that grows by a token per step; each token is read
    Generate,
    /// The same with Burn's cache of keys and values
    GenerateCached,
    /// Language model in the Learner, on batches of different lengths
    TextGeneration,
    /// Greedy generation by a Llama whose cache is read as its filled part; each run of a process has another prompt
    Llama,
    /// The same with a cache that grows by `cat`
    LlamaCat,
    /// The same model and cache with a search over four beams
    LlamaBeams,
    /// Suppression of overlapping boxes, and the best of them, for images with any number of boxes; steps are images
    Detection,
    /// Training on samples of a replay buffer that fills
    Replay,
    /// A classifier in the Learner whose last batch is smaller
    LastBatch,
}

/// The options of a program.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Training steps, or tokens to generate [default: depends on the program]
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Threads of Burn's data loader; 0 builds the batches in the training thread
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// Length of the sequences of `lstm` and `gru`
    #[arg(long, value_name = "N", default_value_t = 28)]
    pub time_steps: usize,
    /// Devices of `text-multi` and `text-multi-sharded`
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub devices: usize,
    /// Read the loss every so many steps, in programs with a loop of their own [default: 1; `dqn`: once an episode]
    #[arg(long, value_name = "N")]
    pub read_every: Option<usize>,
    /// The number of this run of the program in its process
    #[arg(skip)]
    pub run: usize,
    #[command(flatten)]
    pub text: text::TextSizes,
}

impl Options {
    /// Returns the number of steps of a run.
    pub fn steps(&self, program: Program) -> usize {
        self.steps.unwrap_or_else(|| program.default_steps())
    }

    /// Returns the number of devices of a run.
    pub fn devices(&self, program: Program) -> usize {
        if matches!(program, Program::TextMulti | Program::TextMultiSharded) { self.devices } else { 1 }
    }

    /// Returns whether the loss is read after this step, counted from 0.
    pub fn reads(&self, step: usize) -> bool {
        (step + 1).is_multiple_of(self.read_every.unwrap_or(1).max(1))
    }
}

impl Program {
    /// Returns the name that `--program` takes.
    pub fn name(self) -> String {
        self.to_possible_value().expect("no program is hidden").get_name().to_owned()
    }

    fn default_steps(self) -> usize {
        match self {
            Program::Dqn => 2000,
            Program::Text | Program::TextThreads | Program::TextGeneration | Program::Regression => 500,
            Program::Generate | Program::GenerateCached | Program::LlamaCat | Program::Replay => 200,
            Program::Llama => 256,
            Program::LlamaBeams | Program::Detection => 60,
            Program::LastBatch => 469,
            Program::TextMulti
            | Program::TextMultiSharded
            | Program::Lstm
            | Program::Gru
            | Program::StackedLstm
            | Program::Stack
            | Program::CustomLoop => 100,
        }
    }

    /// Runs the program and returns the losses of its steps, or the generated tokens.
    pub fn run<B: AutodiffBackend>(self, options: &Options, device: &B::Device) -> Vec<f64> {
        let steps = options.steps(self);
        match self {
            Program::Text => text::learn::<B>(steps, options, device),
            Program::TextThreads => text::learn_in_thread::<B>(steps, options, device),
            Program::TextMulti => {
                text::learn_on_devices::<B>(steps, options, MultiDeviceOptim::OptimMainDevice, device)
            }
            Program::TextMultiSharded => {
                text::learn_on_devices::<B>(steps, options, MultiDeviceOptim::OptimSharded, device)
            }
            Program::Lstm => recurrent::train::<B>(recurrent::Cell::Lstm, steps, options, device),
            Program::Gru => recurrent::train::<B>(recurrent::Cell::Gru, steps, options, device),
            Program::StackedLstm => stacked::train::<B>(steps, options, device),
            Program::Regression => regression::learn::<B>(steps, options.workers, device),
            Program::Stack => stack::learn::<B>(steps, options.workers, device),
            Program::CustomLoop => stack::train::<B>(steps, device),
            Program::Dqn => dqn::train::<B>(steps, options, device),
            Program::Generate => generate::run::<B::InnerBackend>(steps, false, device),
            Program::GenerateCached => generate::run::<B::InnerBackend>(steps, true, device),
            Program::TextGeneration => text_generation::learn::<B>(steps, options.workers, device),
            Program::Llama => llama::generate::<B::InnerBackend>(steps, llama::Cache::Filled, options.run, device),
            Program::LlamaCat => llama::generate::<B::InnerBackend>(steps, llama::Cache::Grown, options.run, device),
            Program::LlamaBeams => llama::search::<B::InnerBackend>(steps, options.run, device),
            Program::Detection => varying::detect::<B::InnerBackend>(steps, device),
            Program::Replay => varying::replay::<B>(steps, device),
            Program::LastBatch => varying::learn_with_last_batch::<B>(steps, options, device),
        }
    }
}
