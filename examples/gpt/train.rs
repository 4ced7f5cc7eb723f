//! A training run: text, tokenizer, steps, measurements on held-out text, and the files that it leaves.

use crate::Dtype;
use crate::batches::{Batch, Packed};
use crate::checkpoints::{self, Progress};
use crate::model::{Gpt, GptConfig};
use crate::optimizer::{Gradients, Groups, Settings};
use crate::parity;
use crate::report::{HeldOut, Report, Text, peak_process_bytes};
use crate::saved::Files;
use crate::text::{self, Documents};
use crate::tokenizer::Bpe;
use anyhow::{Context, Result, ensure};
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn_tpu::{Metrics, Tpu, TpuDevice, TpuFloat};
use burn_tpu_train::{
    Checkpoint, Checkpointer, Goodput, GoodputReport, MemoryMonitor, Notice, Phase, Preemption, Watchdog,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// The options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// A file, or a folder with text [default: what `cargo xtask demo gpt` fetched]
    #[arg(long, value_name = "FILE|DIR")]
    pub data: Option<PathBuf>,
    /// Folder for the model, its tokenizer, the report and the curve of the loss
    #[arg(long, value_name = "DIR", default_value = "gpt-model")]
    pub out: PathBuf,
    /// Blocks of attention and feed-forward
    #[arg(long, default_value_t = 4)]
    pub layers: usize,
    /// Size of a token's vector
    #[arg(long, default_value_t = 192)]
    pub width: usize,
    /// Attention heads, which divide the width
    #[arg(long, default_value_t = 4)]
    pub heads: usize,
    /// Tokens of a sequence, which is also the longest that the model can write
    #[arg(long, default_value_t = 128)]
    pub sequence: usize,
    /// The number of distinct tokens
    #[arg(long, default_value_t = 8192)]
    pub vocab: usize,
    /// The share of activations that training drops; with less than one pass over the text it only costs
    #[arg(long, default_value_t = 0.0)]
    pub dropout: f64,
    /// Give the logits a matrix of their own instead of the tokens' embedding
    #[arg(long)]
    pub untied: bool,
    /// Training steps
    #[arg(long, default_value_t = 1000)]
    pub steps: usize,
    /// Sequences of a batch
    #[arg(long, default_value_t = 6)]
    pub batch: usize,
    /// Batches of a step: their gradients are added
    #[arg(long, default_value_t = 1)]
    pub accumulate: usize,
    /// The optimizer
    #[command(flatten)]
    pub optimizer: Settings,
    /// Steps from one measurement on held-out text to the next
    #[arg(long, default_value_t = 100)]
    pub eval_every: usize,
    /// Held-out sequences of a measurement
    #[arg(long, default_value_t = 160)]
    pub eval_sequences: usize,
    /// Seed of the weights and of the order of the text
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Steps from one checkpoint to the next, in the folder `checkpoints` of `--out`; started again, the run goes on from the
    /// newest one. SIGTERM, SIGINT and a cloud's notices make it save and end with code 75. 0 for none
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    pub checkpoint_every: usize,
    /// Print what the device's memory holds at the end, and draw its history as `memory.svg` in `--out`
    #[arg(long)]
    pub memory: bool,
    /// Write what `benches/jax/gpt_train.py` needs to this folder: the first weights, the batches, the losses
    #[arg(long, value_name = "DIR")]
    pub export_jax: Option<PathBuf>,
}

/// Steps whose programs may differ from those of later steps.
const WARM_UP: usize = 5;
/// Losses that are read later than their steps, so that reading does not wait for the device.
const UNREAD: usize = 4;
/// Bytes of text that the tokenizer is trained on.
const TOKENIZER_BYTES: usize = 4 << 20;

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(self.heads > 0 && self.width.is_multiple_of(self.heads), "--heads must divide --width");
        ensure!(self.layers > 0 && self.width > 0, "--layers and --width must be at least 1");
        ensure!(self.sequence > 1, "--sequence must be at least 2");
        ensure!((0.0..1.0).contains(&self.dropout), "--dropout must be at least 0 and below 1");
        ensure!(self.steps > 0 && self.batch > 0, "--steps and --batch must be at least 1");
        ensure!(self.accumulate > 0 && self.eval_every > 0, "--accumulate and --eval-every must be at least 1");
        ensure!(
            self.export_jax.is_none() || self.checkpoint_every == 0,
            "--export-jax needs a run from its first step: leave out --checkpoint-every"
        );
        ensure!(
            self.export_jax.is_none() || self.dropout == 0.0,
            "--export-jax needs --dropout 0: JAX draws other numbers"
        );
        Ok(())
    }

    fn config(&self, vocab: usize) -> GptConfig {
        GptConfig {
            vocab,
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            sequence: self.sequence,
            dropout: self.dropout,
            tied: !self.untied,
        }
    }
}

/// The text as tokens.
struct Data {
    tokenizer: Bpe,
    train: Packed,
    /// Batches of windows of the held-out text.
    held_out: (Packed, Vec<Vec<usize>>),
    text: Text,
}

impl Data {
    fn load(options: &Options) -> Result<Self> {
        let path = options.data.clone().map_or_else(text::default_folder, Ok)?;
        let Documents { train, held_out } = text::read(&path)?;
        let train_bytes = train.iter().map(String::len).sum();
        println!("text       {:.1} MB in `{}`", train_bytes as f64 / 1e6, path.display());
        let begun = Instant::now();
        let tokenizer = Bpe::train(&some(&train, TOKENIZER_BYTES), options.vocab)?;
        let train = Packed::new(tokenizer.pack(&train)?, options.sequence, "training")?;
        let held_out = Packed::new(tokenizer.pack(&held_out)?, options.sequence, "held-out")?;
        let text = Text { train_bytes, train_tokens: train.tokens(), held_out_tokens: held_out.tokens() };
        println!(
            "tokenizer  {} tokens, {:.2} bytes for each, in {:.1} s",
            tokenizer.vocab(),
            train_bytes as f64 / text.train_tokens as f64,
            begun.elapsed().as_secs_f64()
        );
        let rows = held_out.spread(options.eval_sequences.max(1), options.batch);
        Ok(Self { tokenizer, train, held_out: (held_out, rows), text })
    }
}

/// Returns documents of about this many bytes, spread over all of them.
fn some(documents: &[String], bytes: usize) -> Vec<&String> {
    let all: usize = documents.iter().map(String::len).sum();
    documents.iter().step_by(all.div_ceil(bytes).max(1)).collect()
}

/// Trains a model and writes it. Returns the exit code: a run that is told to end saves and has one of its own.
pub fn run<F: TpuFloat>(options: &Options, dtype: Dtype, device: &TpuDevice) -> Result<ExitCode> {
    options.check()?;
    let files = Files::in_folder(&options.out);
    // A folder that cannot be written is an error before the training, not after it.
    files.create()?;
    let goodput = match options.checkpoint_every {
        0 => Goodput::start(device),
        _ => Goodput::open(files.path("goodput.jsonl"), device)?,
    };
    let data = Data::load(options)?;
    let config = options.config(data.tokenizer.vocab());
    Tpu::<F>::seed(device, options.seed);
    let model = config.init::<Autodiff<Tpu<F>>>(device);
    println!("model      {} parameters in {} on {device}", model.num_params(), dtype.name());
    if let Some(folder) = &options.export_jax {
        parity::export_start(folder, options, &config, &data.train, &model)?;
    }
    let mut run = Run::new(options, dtype, &data, &model, (device, goodput))?;
    let model = run.resume(model)?;
    let (model, notice) = run.train(model)?;
    if let Some(notice) = notice {
        println!("saved      after step {}, since {notice}: started again, the run goes on", run.progress.losses.len());
        return Ok(Preemption::exit_code());
    }
    if let Some(folder) = &options.export_jax {
        parity::export_losses(folder, &run.progress.losses)?;
    }
    files.save(&config, &data.tokenizer, &model.valid())?;
    let report = run.report(&model);
    report.write(&files.path("report.json"))?;
    report.draw(&files.path("loss.svg"))?;
    println!(
        "trained    {} steps: loss {:.3}, held-out {:.3} bits per byte, {:.0} tokens/s, {} programs compiled, {} loaded",
        report.steps,
        report.train_loss,
        report.bits_per_byte,
        report.tokens_per_second,
        report.compiles,
        report.disk_hits
    );
    println!("{}", run.goodput.report());
    println!("written    to `{}`", options.out.display());
    Ok(ExitCode::SUCCESS)
}

type B<F> = Autodiff<Tpu<F>>;

/// What a run has while it trains.
struct Run<'a, F: TpuFloat> {
    options: &'a Options,
    dtype: Dtype,
    device: &'a TpuDevice,
    data: &'a Data,
    /// Bytes of each token.
    bytes: Vec<usize>,
    optimizer: Groups<B<F>>,
    /// Losses that were not read yet.
    unread: VecDeque<Tensor<Tpu<F>, 1>>,
    progress: Progress,
    checkpoints: Option<Checkpointer>,
    /// Listens if the run can save.
    preemption: Option<Preemption>,
    watchdog: Watchdog,
    memory: Option<MemoryMonitor>,
    goodput: Goodput,
    step_memory_bytes: u64,
}

impl<'a, F: TpuFloat> Run<'a, F> {
    fn new(
        options: &'a Options,
        dtype: Dtype,
        data: &'a Data,
        model: &Gpt<B<F>>,
        (device, goodput): (&'a TpuDevice, Goodput),
    ) -> Result<Self> {
        Ok(Self {
            options,
            dtype,
            device,
            data,
            bytes: data.tokenizer.token_bytes(),
            optimizer: Groups::new(&options.optimizer, model, options.steps)?,
            unread: VecDeque::new(),
            progress: Progress::default(),
            checkpoints: checkpoints::open(options)?,
            preemption: (options.checkpoint_every > 0).then(Preemption::watch).transpose()?,
            watchdog: Watchdog::start(device)?,
            memory: options.memory.then(|| MemoryMonitor::start(device)).transpose()?,
            goodput,
            step_memory_bytes: 0,
        })
    }

    /// Goes on from the newest checkpoint, if there is one.
    fn resume(&mut self, model: Gpt<B<F>>) -> Result<Gpt<B<F>>> {
        self.goodput.enter(Phase::Restore)?;
        let Some(saved) = self.checkpoints.as_ref().map(Checkpointer::restore).transpose()?.flatten() else {
            return Ok(model);
        };
        let model = saved.model("model", model)?;
        self.optimizer.load(&saved, &model)?;
        self.progress = saved.value("progress")?;
        saved.random(self.device)?;
        println!("resumed    after step {} from `{}`", saved.step(), saved.path().display());
        Ok(model)
    }

    /// Saves the run as it is after this many steps.
    fn save(&mut self, model: &Gpt<B<F>>, step: usize) -> Result<()> {
        // The losses of all steps so far belong to it.
        self.read_losses(0)?;
        self.goodput.enter(Phase::Save)?;
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        let checkpoint = self.optimizer.save(Checkpoint::new(step as u64).model("model", model), model);
        Ok(checkpoints.save(checkpoint.value("progress", &self.progress).random(self.device))?)
    }

    /// Takes the steps that are left. With the model, returns the notice if the run was told to end: it is saved then.
    fn train(&mut self, mut model: Gpt<B<F>>) -> Result<(Gpt<B<F>>, Option<Notice>)> {
        let bar = progress(self.options.steps)?;
        let mut told = None;
        let first = self.progress.losses.len() + 1;
        bar.set_position(first as u64 - 1);
        if first == 1 {
            self.measure(&model, 0)?;
        }
        for step in first..=self.options.steps {
            let before = self.device.metrics();
            self.watchdog.step(step as u64);
            self.goodput.step(step as u64)?;
            model = self.step(model, step - 1);
            if step + 1 == first + WARM_UP {
                self.step_memory_bytes = planned_bytes(&before, &self.device.metrics());
            }
            self.read_losses(UNREAD)?;
            bar.inc(1);
            bar.set_message(self.message());
            self.watchdog.pause();
            if step % self.options.eval_every == 0 || step == self.options.steps {
                self.read_losses(0)?;
                self.measure(&model, step)?;
                bar.suspend(|| println!("{}", self.line()));
            }
            self.goodput.enter(Phase::Other)?;
            told = self.told_to_end(step)?;
            let is_due = self.options.checkpoint_every > 0 && step % self.options.checkpoint_every == 0;
            if is_due || told.is_some() {
                self.save(&model, step)?;
            }
            if told.is_some() {
                break;
            }
        }
        bar.finish_and_clear();
        if let Some(checkpoints) = &mut self.checkpoints {
            self.goodput.enter(Phase::Save)?;
            checkpoints.wait()?;
            self.goodput.enter(Phase::Other)?;
        }
        if let Some(memory) = &self.memory {
            memory.write_svg(self.options.out.join("memory.svg"))?;
            print!("{}", self.device.memory());
        }
        Ok((model, told))
    }

    /// Returns the notice if the run has to end after this step.
    fn told_to_end(&self, step: usize) -> Result<Option<Notice>> {
        let Some(preemption) = &self.preemption else { return Ok(None) };
        Ok(preemption.stop_after(step as u64)?.cloned())
    }

    /// Takes one step: the batches' gradients, then the update. Each is a program of its own, unless there is one batch.
    fn step(&mut self, model: Gpt<B<F>>, number: usize) -> Gpt<B<F>> {
        let batches = self.options.accumulate;
        let (mut gradients, mut total) = (Gradients::default(), None);
        for index in 0..batches {
            let Batch { inputs, targets } = self.training_batch(number * batches + index);
            let loss = self.dtype.computed(&model).loss(inputs, targets) / batches as f64;
            gradients.add(&model, GradientsParams::from_grads(loss.backward(), &model));
            total = Some(total.map_or(loss.clone().inner(), |total: Tensor<Tpu<F>, 1>| total + loss.inner()));
            if index + 1 < batches {
                self.device.mark_step();
            }
        }
        let model = self.optimizer.step(model, gradients);
        self.unread.extend(total);
        model
    }

    fn training_batch(&self, number: usize) -> Batch<B<F>> {
        let rows = self.data.train.shuffled(number, self.options.batch, self.options.seed);
        self.data.train.batch(&rows, self.device)
    }

    /// Reads losses until only `keep` are unread.
    fn read_losses(&mut self, keep: usize) -> Result<()> {
        while self.unread.len() > keep {
            let loss = self.unread.pop_front().context("there is a loss")?;
            let loss: f64 = loss.try_into_scalar()?.elem();
            let step = self.progress.losses.len() + 1;
            ensure!(loss.is_finite(), "the loss of step {step} is {loss}: try a smaller --rate");
            self.progress.losses.push(loss);
        }
        Ok(())
    }

    /// Measures the loss of the held-out text.
    fn measure(&mut self, model: &Gpt<B<F>>, step: usize) -> Result<()> {
        self.goodput.enter(Phase::Evaluation)?;
        let model = self.dtype.computed(&model.valid());
        let (packed, batches) = &self.data.held_out;
        let (mut nats, mut tokens, mut bytes) = (0.0, 0, 0);
        for rows in batches {
            let Batch { inputs, targets } = packed.batch::<Tpu<F>>(rows, self.device);
            let loss = model.loss(inputs, targets);
            self.device.mark_step();
            let count = rows.len() * self.options.sequence;
            nats += count as f64 * loss.try_into_scalar()?.elem::<f64>();
            tokens += count;
            let targets = rows.iter().flat_map(|row| &packed.window(*row)[1..]);
            bytes += targets.map(|token| self.bytes[*token as usize]).sum::<usize>();
        }
        let bits_per_byte = nats / std::f64::consts::LN_2 / bytes as f64;
        self.progress.held_out.push(HeldOut { step, loss: nats / tokens as f64, bits_per_byte });
        Ok(())
    }

    fn message(&self) -> String {
        self.progress.losses.last().map(|loss| format!("loss {loss:.3}")).unwrap_or_default()
    }

    /// Describes the last measurement.
    fn line(&self) -> String {
        let HeldOut { step, loss, bits_per_byte } = self.progress.held_out[self.progress.held_out.len() - 1];
        format!("step {step:>6}  loss {:.3}  held-out {loss:.3}, {bits_per_byte:.3} bits per byte", self.train_loss())
    }

    /// Returns the mean loss of the last steps.
    fn train_loss(&self) -> f64 {
        let last = &self.progress.losses[self.progress.losses.len().saturating_sub(50)..];
        last.iter().sum::<f64>() / last.len() as f64
    }

    fn report(&self, model: &Gpt<B<F>>) -> Report {
        let metrics = self.device.metrics();
        let tokens_per_step = self.options.batch * self.options.accumulate * self.options.sequence;
        let GoodputReport { steps, step, .. } = self.goodput.report();
        Report {
            parameters: model.num_params(),
            steps: self.progress.losses.len(),
            tokens_per_step,
            train_loss: self.train_loss(),
            bits_per_byte: self.progress.held_out[self.progress.held_out.len() - 1].bits_per_byte,
            held_out: self.progress.held_out.clone(),
            tokens_per_second: steps as f64 * tokens_per_step as f64 / step.as_secs_f64(),
            compiles: metrics.compiles,
            disk_hits: metrics.disk_hits,
            host_fallbacks: metrics.host_fallbacks,
            step_memory_bytes: self.step_memory_bytes,
            peak_process_bytes: peak_process_bytes(),
            platform: self.device.platform().name().to_owned(),
            dtype: self.dtype.name().to_owned(),
            text: self.data.text.clone(),
            optimizer: self.options.optimizer.clone(),
            losses: self.progress.losses.clone(),
        }
    }
}

/// Returns the memory of the programs that ran between two snapshots, as the compiler planned it.
fn planned_bytes(before: &Metrics, after: &Metrics) -> u64 {
    let bytes = |m: &Metrics| m.argument_bytes + m.output_bytes + m.temporary_bytes - m.alias_bytes;
    bytes(after) - bytes(before)
}

fn progress(steps: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {per_sec}, {eta} left")?;
    Ok(ProgressBar::new(steps as u64).with_style(style))
}
