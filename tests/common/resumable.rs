//! A run that can be saved and resumed: a small GPT with dropout in bf16, AdamW with f32 masters, a cosine schedule, two
//! batches for each step.

#![allow(dead_code, reason = "each test binary uses only some of it")]

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::lr_scheduler::LrScheduler;
use burn::optim::lr_scheduler::cosine::{CosineAnnealingLrScheduler, CosineAnnealingLrSchedulerConfig};
use burn::optim::{AdamW, AdamWConfig, GradientsAccumulator, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::DType;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
use burn_tpu_train::{Checkpoint, Restored};
use half::bf16;

pub type B = Autodiff<Tpu<bf16>>;

/// The number of distinct tokens, of a sequence's tokens, of a batch's sequences, and of a step's batches.
const VOCABULARY: usize = 32;
const LENGTH: usize = 16;
const BATCH: usize = 4;
const BATCHES: usize = 2;
const WIDTH: usize = 32;

/// A GPT: a causal transformer with dropout. The batch norm has running statistics, which are no parameters.
#[derive(Module, Debug)]
pub struct Gpt<B: Backend> {
    tokens: Embedding<B>,
    encoder: TransformerEncoder<B>,
    norm: BatchNorm<B>,
    head: Linear<B>,
}

impl<B: Backend> Gpt<B> {
    pub fn new(width: usize, device: &B::Device) -> Self {
        let encoder = TransformerEncoderConfig::new(width, 2 * width, 4, 1).with_dropout(0.1).with_norm_first(true);
        Self {
            tokens: EmbeddingConfig::new(VOCABULARY, width).init(device),
            encoder: encoder.init(device),
            norm: BatchNormConfig::new(width).init(device),
            head: LinearConfig::new(width, VOCABULARY).init(device),
        }
    }

    /// Returns the loss, `[1]`, of inputs and targets `[batch, length]`.
    fn loss(&self, inputs: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>) -> Tensor<B, 1> {
        let device = inputs.device();
        let mask = generate_autoregressive_mask::<B>(BATCH, LENGTH, &device);
        let x = self.encoder.forward(TransformerEncoderInput::new(self.tokens.forward(inputs)).mask_attn(mask));
        let x = self.norm.forward(x.swap_dims(1, 2)).swap_dims(1, 2);
        let logits = self.head.forward(x).cast(DType::F32).reshape([BATCH * LENGTH, VOCABULARY]);
        CrossEntropyLossConfig::new().init(&device).forward(logits, targets.reshape([BATCH * LENGTH]))
    }
}

/// A run and what it has so far.
pub struct Run {
    pub device: TpuDevice,
    pub model: Gpt<B>,
    pub optimizer: TpuOptimizer<AdamW, Gpt<B>, B>,
    pub schedule: CosineAnnealingLrScheduler,
    pub step: u64,
    /// The bits of the loss of each step.
    pub losses: Vec<u32>,
}

impl Run {
    pub fn new(device: TpuDevice, seed: u64) -> Self {
        Self::sized(device, seed, WIDTH)
    }

    /// Builds a run with another width.
    pub fn sized(device: TpuDevice, seed: u64, width: usize) -> Self {
        B::seed(&device, seed);
        Self {
            device,
            model: Gpt::new(width, &device),
            optimizer: TpuOptimizer::new(AdamWConfig::new().init()),
            schedule: CosineAnnealingLrSchedulerConfig::new(1e-2, 50).init().unwrap(),
            step: 0,
            losses: Vec::new(),
        }
    }

    /// Takes a step.
    pub fn step(&mut self) {
        let mut gradients = GradientsAccumulator::new();
        let mut total: Option<Tensor<B, 1>> = None;
        for batch in 0..BATCHES {
            let (inputs, targets) = self.batch(self.step as usize * BATCHES + batch);
            let loss = self.model.loss(inputs, targets) / BATCHES as f64;
            gradients.accumulate(&self.model, GradientsParams::from_grads(loss.backward(), &self.model));
            total = Some(total.map_or(loss.clone(), |total| total + loss));
        }
        let model = self.model.clone();
        self.model = self.optimizer.step(self.schedule.step(), model, gradients.grads());
        self.step += 1;
        let loss = total.unwrap().into_data();
        self.losses.push(loss.iter::<f32>().next().unwrap().to_bits());
    }

    fn batch(&self, number: usize) -> (Tensor<B, 2, Int>, Tensor<B, 2, Int>) {
        let token = |at: usize| ((number * 7 + at * at * 5 + at / 3) % VOCABULARY) as i32;
        let tokens = |shift: usize| {
            let tokens: Vec<i32> = (0..BATCH * LENGTH).map(|at| token(at + shift)).collect();
            Tensor::from_data(TensorData::new(tokens, [BATCH, LENGTH]), &self.device)
        };
        (tokens(0), tokens(1))
    }

    /// Returns the checkpoint of all of it.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::new(self.step)
            .model("model", &self.model)
            .optimizer("optimizer", &self.optimizer, &self.model)
            .scheduler("schedule", &self.schedule)
            .value("losses", &self.losses)
            .random(&self.device)
    }

    /// Goes on from a checkpoint.
    pub fn restore(mut self, saved: &Restored) -> Self {
        self.model = saved.model("model", self.model).unwrap();
        self.optimizer = saved.optimizer("optimizer", self.optimizer, &self.model).unwrap();
        self.schedule = saved.scheduler("schedule", self.schedule).unwrap();
        self.losses = saved.value("losses").unwrap();
        self.step = saved.step();
        saved.random(&self.device).unwrap();
        self
    }

    /// Takes steps up to this one.
    pub fn until(mut self, step: u64) -> Self {
        while self.step < step {
            self.step();
        }
        self
    }

    /// Returns the bytes of everything that a checkpoint of the run holds.
    pub fn bytes(&self) -> Vec<(String, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let mut checkpoints = burn_tpu_train::Checkpointer::open(folder.path()).unwrap();
        checkpoints.save(self.checkpoint()).unwrap();
        checkpoints.wait().unwrap();
        let saved = folder.path().join(format!("step-{:08}", self.step));
        let file = |name: &str| (name.to_owned(), std::fs::read(saved.join(name)).unwrap());
        ["model.safetensors", "optimizer.safetensors", "state.cbor", "manifest.json"].map(file).to_vec()
    }
}
