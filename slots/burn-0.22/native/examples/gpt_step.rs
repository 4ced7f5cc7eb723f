//! Trains a GPT by a compiled step, and prints what a step costs: `cargo run --release --example gpt_step -- 200`.
//!
//! 4 layers of width 256, batch 16 of 128 tokens, AdamW: the model of `examples/step_time`. Weights and batches are
//! formulas, so that two versions of Burn begin with the same numbers. With `recorded`, each step is recorded; with
//! `bf16`, weights have that type.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_tpu::{DeviceAdamW, TpuDevice, TpuOptimizer, compile_step};
use std::time::Instant;

const WIDTH: usize = 256;
const SEQUENCE: usize = 128;
const BATCH: usize = 16;
const VOCABULARY: usize = 96;
/// Steps before the timed ones; the first of them compile.
const WARM_UP: usize = 5;
const RATE: f64 = 1e-3;

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Module, Debug)]
struct Block {
    attention_norm: LayerNorm,
    attention: MultiHeadAttention,
    feed_forward_norm: LayerNorm,
    feed_forward: PositionWiseFeedForward,
}

impl Gpt {
    fn new(device: &Device) -> Self {
        let norm = || LayerNormConfig::new(WIDTH).init(device);
        let block = |_| Block {
            attention_norm: norm(),
            attention: MultiHeadAttentionConfig::new(WIDTH, 4).with_dropout(0.0).init(device),
            feed_forward_norm: norm(),
            feed_forward: PositionWiseFeedForwardConfig::new(WIDTH, 1024).with_dropout(0.0).init(device),
        };
        let model = Self {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: EmbeddingConfig::new(SEQUENCE, WIDTH).init(device),
            blocks: (0..4).map(block).collect(),
            norm: norm(),
            head: LinearConfig::new(WIDTH, VOCABULARY).init(device),
        };
        model.map(&mut Formula::default())
    }

    /// Returns the mean cross entropy of a batch, `[1]`, of tokens `[batch, sequence]` and those that follow.
    fn loss(&self, tokens: Tensor<2, Int>, targets: Tensor<2, Int>) -> Tensor<1> {
        let device = tokens.device();
        let mask = generate_autoregressive_mask(BATCH, SEQUENCE, &device);
        let at = Tensor::<1, Int>::arange(0..SEQUENCE as i64, &device).unsqueeze();
        let mut x = self.tokens.forward(tokens) + self.positions.forward(at);
        for block in &self.blocks {
            let seen = MhaInput::self_attn(block.attention_norm.forward(x.clone())).mask_attn(mask.clone());
            x = x + block.attention.forward(seen).context;
            x = x.clone() + block.feed_forward.forward(block.feed_forward_norm.forward(x));
        }
        let logits: Tensor<2> = self.head.forward(self.norm.forward(x)).flatten(0, 1);
        let loss = CrossEntropyLossConfig::new().init(&device);
        loss.forward(logits.cast(FloatDType::F32), targets.flatten(0, 1))
    }
}

/// Sets each parameter to a formula of its place.
#[derive(Default)]
struct Formula {
    path: Vec<String>,
    parameters: usize,
}

impl ModuleMapper for Formula {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, value, mapper) = parameter.consume();
        self.parameters += 1;
        let base = if self.path.last().is_some_and(|name| name == "gamma") { 1.0 } else { 0.0 };
        let values = formula(self.parameters, base, value.shape().num_elements());
        let data = TensorData::new(values, value.shape());
        let formula = Tensor::from_data(data, (&value.device(), value.dtype()));
        Param::from_mapped_value(id, formula.require_grad(), mapper)
    }
}

fn formula(parameter: usize, base: f32, elements: usize) -> Vec<f32> {
    (0..elements).map(|i| base + 0.04 * ((i as f32).mul_add(1.3, parameter as f32 * 0.7)).sin()).collect()
}

/// Returns the tokens of a step's batch and those that follow, row-major.
fn tokens(step: usize) -> [Vec<i32>; 2] {
    let token = |i: usize| ((i * 7 + step * 13 + i * i % 5 + i / SEQUENCE) % VOCABULARY) as i32;
    [0, 1].map(|by| (0..BATCH * SEQUENCE).map(|i| token(i + by)).collect())
}

/// Tokens `[batch, sequence]`, and those that follow.
type Batch = (Tensor<2, Int>, Tensor<2, Int>);

fn batch(step: usize, device: &Device) -> Batch {
    let [tokens, targets] =
        tokens(step).map(|tokens| Tensor::from_data(TensorData::new(tokens, [BATCH, SEQUENCE]), device));
    (tokens, targets)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let steps: usize = arguments.first().and_then(|steps| steps.parse().ok()).unwrap_or(50);
    let tpu = TpuDevice::default();
    let mut plain = Device::from(tpu);
    plain.configure(if has("bf16") { FloatDType::BF16 } else { FloatDType::F32 }).expect("before the first tensor");
    let device = plain.clone().autodiff();
    let mut model = Some(Gpt::new(&device));
    let mut step: Box<dyn FnMut(Batch) -> Tensor<1>> = if has("recorded") {
        let mut optimizer = TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.01).build());
        Box::new(move |(tokens, targets)| {
            let current = model.take().expect("there is always a model");
            let loss = current.loss(tokens, targets);
            let gradients = GradientsParams::from_grads(loss.backward(), &current);
            model = Some(optimizer.step(RATE, current, gradients));
            loss.without_autodiff()
        })
    } else {
        let optimizer = DeviceAdamW::new().with_weight_decay(0.01);
        let mut training =
            compile_step(model.take().expect("the new one"), optimizer, |model: &Gpt, (tokens, targets)| {
                let loss = model.loss(tokens, targets);
                (loss.clone(), loss)
            });
        Box::new(move |batch| training.run(RATE, batch).expect("a step that is pure"))
    };
    let batches: Vec<_> = (0..4).map(|step| batch(step, &plain)).collect();
    let (mut host, mut losses) = (Vec::new(), Vec::new());
    let mut before = tpu.metrics();
    for i in 0..WARM_UP + steps {
        if i == WARM_UP {
            before = tpu.metrics();
        }
        let batch = batches[i % 4].clone();
        let begun = Instant::now();
        let loss = step(batch);
        host.push(begun.elapsed().as_secs_f64() * 1e3);
        tpu.sync().expect("the step ran");
        losses.push(loss.into_scalar::<f32>());
    }
    let after = tpu.metrics();
    for (step, loss) in losses.iter().enumerate().take(20) {
        println!("step {step}: loss {loss:.6}, bits {:08x}", loss.to_bits());
    }
    let mut timed = host.split_off(WARM_UP);
    timed.sort_by(f64::total_cmp);
    let launches = (after.executions - before.executions) as f64 / steps as f64;
    println!("last loss bits {:08x}", losses.last().map_or(0, |loss| loss.to_bits()));
    println!("host ms per step: median {:.4}, least {:.4}", timed[timed.len() / 2], timed[0]);
    println!(
        "launches per step {launches}, compiles {}, nodes per step {}",
        after.compiles,
        (after.recorded_nodes - before.recorded_nodes) as f64 / steps as f64
    );
}
