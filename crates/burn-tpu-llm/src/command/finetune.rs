//! `finetune`: trains a model, or an adapter of it, on a text or on conversations.

use super::mesh::ContextArgs;
use super::{Kept, ModelArgs, Outcome};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::prelude::*;
use burn::tensor::TensorMetadata;
use burn_tpu::{CompiledStep, DeviceOptimizer, Tpu, TpuDevice, TpuFloat, TpuOptions, TpuTensor, compile_step};
use burn_tpu_llm::model::LanguageModel;
use burn_tpu_llm::training::{Batch, Example, RouterLoss, Rows};
use burn_tpu_llm::{Decoder, LlmError, LoraConfig, Source, Tokenizer};
use clap::ValueEnum;
use std::path::PathBuf;
use std::time::Instant;

/// What `finetune` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// A text, or conversations: a file `.jsonl` whose lines have `messages` with `role` and `content`. Of those, only
    /// what the assistant says is learned
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The folder to write: an adapter in PEFT's form, or the whole model
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Rank of a new adapter; 0 trains all weights of the model. With --adapter there is no new one
    #[arg(long, default_value_t = 16)]
    lora_rank: usize,
    /// The adapter's product is multiplied by this over its rank [default: twice the rank]
    #[arg(long)]
    lora_alpha: Option<f64>,
    /// The products with an adapter, by name [default: all of the layers]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    lora_targets: Vec<String>,
    /// The share of the adapter's inputs that training drops
    #[arg(long, default_value_t = 0.0)]
    lora_dropout: f64,
    /// Training steps
    #[arg(long, default_value_t = 100, value_parser = at_least_one())]
    steps: u64,
    /// Rows of a step
    #[arg(long, default_value_t = 4, value_parser = at_least_one())]
    batch: u64,
    /// Tokens of a row
    #[arg(long, default_value_t = 256, value_parser = at_least_one())]
    sequence: u64,
    /// What updates the weights. Muon is for the matrices of the layers, and AdamW for the others
    #[arg(long, value_enum, default_value_t = Rule::Adamw)]
    optimizer: Rule,
    /// The rate of the optimizer
    #[arg(long, default_value_t = 1e-4)]
    lr: f64,
    /// The share of the weights that a rate of 1 would take away in a step
    #[arg(long, default_value_t = 0.0)]
    weight_decay: f32,
    #[command(flatten)]
    context: ContextArgs,
    /// Train with the layers as one loop, which compiles as fast for many layers as for one, and keep this of each for the
    /// backward pass, beside its input [default: no loop]
    #[arg(long, value_name = "KEPT")]
    keep: Option<Kept>,
    /// How much an uneven choice of experts adds to the loss, such as 0.01; for models with experts
    #[arg(long, default_value_t = 0.0)]
    router_balance: f64,
    /// How much large logits of routers add to the loss, such as 0.001
    #[arg(long, default_value_t = 0.0)]
    router_z: f64,
    /// Rows at the end of the data that are not trained on, and measured before and after
    #[arg(long, default_value_t = 16)]
    held_out: usize,
    /// What the order of the rows and a new adapter follow from
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The optimizers.
#[derive(Clone, Copy, ValueEnum)]
enum Rule {
    Adamw,
    /// AdamW with moments of 8 bits
    Adamw8bit,
    Lion,
    Adafactor,
    Muon,
}

impl Rule {
    fn optimizer(self) -> DeviceOptimizer {
        match self {
            Self::Adamw => DeviceOptimizer::new(),
            Self::Adamw8bit => DeviceOptimizer::eight_bits(),
            Self::Lion => DeviceOptimizer::lion(),
            Self::Adafactor => DeviceOptimizer::adafactor(),
            Self::Muon => DeviceOptimizer::muon(|path, _| path.contains("layers.")),
        }
    }
}

/// The most lines of progress.
const LINES: u64 = 20;

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1 << 30)
}

type Trained<F> = Autodiff<Tpu<F>>;
type Step<F, M> = CompiledStep<Trained<F>, M, Batch<Tpu<F>>, Tensor<Tpu<F>, 1>>;

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args) -> Outcome {
    let source = Source::open(&args.model.model)?;
    let tokenizer = source.tokenizer()?;
    let (rows, held_out) = args.rows(&source, &tokenizer)?;
    // A folder that cannot be written is an error before the training, not after it.
    std::fs::create_dir_all(&args.output).map_err(|error| format!("`{}`: {error}", args.output.display()))?;
    let device = args.model.device();
    TpuOptions::training().install(&device)?;
    Tpu::<F>::seed(&device, args.seed);
    if !args.routers().is_zero() && source.config().experts.is_none() {
        return Err("--router-balance and --router-z: the model has no experts".into());
    }
    let model = args.decoder(args.model.load::<Trained<F>>(&source, &device)?)?;
    let model = args.model.mesh.place(source.config(), model)?;
    eprintln!(
        "{} rows of {} tokens; {} of {} weights are trained",
        rows.rows().len(),
        args.sequence,
        trained(&model),
        model.num_params()
    );
    let bits = Bits { bytes: held_out.learned_bytes(&tokenizer)?, rows: held_out, batch: args.batch as usize };
    bits.print("before", &model.valid(), &device)?;
    let model = match args.keep.clone() {
        Some(keep) => args.train(model.into_loop(keep.into())?, &rows, &device)?.into_decoder(),
        None => args.train(model, &rows, &device)?,
    };
    let model = model.valid();
    bits.print("after", &model, &device)?;
    if model.lora().is_some() {
        model.save_lora(&args.output)?;
    } else {
        source.save(&model, &args.output)?;
    }
    eprintln!("written to `{}`", args.output.display());
    Ok(())
}

impl Args {
    /// Returns the rows to train on and those that are held out.
    fn rows(&self, source: &Source, tokenizer: &Tokenizer) -> Outcome<(Rows, Rows)> {
        let length = self.sequence as usize;
        let context = source.config().context;
        if length > context {
            return Err(format!("--sequence {length}: the model takes at most {context} tokens").into());
        }
        let examples = if self.data.extension().is_some_and(|end| end == "jsonl") {
            Example::read_conversations(tokenizer, &source.template()?, &self.data)?
        } else {
            let text =
                std::fs::read_to_string(&self.data).map_err(|error| format!("`{}`: {error}", self.data.display()))?;
            Example::of_text(tokenizer, &text, length)?
        };
        let mut rows = Rows::new(&examples, length);
        if rows.cut() > 0 {
            eprintln!(
                "{} of {} conversations are longer than {length} tokens and lose their end",
                rows.cut(),
                examples.len()
            );
        }
        if rows.rows().is_empty() {
            return Err(format!("`{}` has nothing to learn in rows of {length} tokens", self.data.display()).into());
        }
        let held_out = rows.split_off(self.held_out);
        Ok((rows, held_out))
    }

    /// Returns the model with what is trained of it.
    fn decoder<B: Backend>(&self, model: Decoder<B>) -> Outcome<Decoder<B>> {
        if let Some(folder) = &self.model.adapter {
            return Ok(model.load_lora(folder)?);
        }
        if self.lora_rank == 0 && model.has_few_bits() {
            return Err(LlmError::FewBits("are not trained: --weights needs an adapter, --lora-rank above 0").into());
        }
        if self.lora_rank == 0 {
            return Ok(model);
        }
        let mut lora = LoraConfig { rank: self.lora_rank, dropout: self.lora_dropout, ..LoraConfig::default() };
        lora.alpha = self.lora_alpha.unwrap_or(2.0 * self.lora_rank as f64);
        if !self.lora_targets.is_empty() {
            lora.targets = self.lora_targets.clone();
        }
        Ok(model.with_lora(&lora)?)
    }

    /// Returns the compiled step that trains a model.
    fn step<F, M>(&self, model: M, device: &TpuDevice) -> Outcome<Step<F, M>>
    where
        F: TpuFloat,
        M: LanguageModel<Trained<F>> + AutodiffModule<Trained<F>> + 'static,
    {
        let routers = self.routers();
        let context = self.context.context::<Trained<F>>(&self.model.mesh, device)?;
        if let Some(context) = &context {
            context.check(self.sequence as usize)?;
            if !routers.is_zero() {
                return Err("--router-balance and --router-z: not with an axis `context`".into());
            }
        }
        let rule = self.optimizer.optimizer();
        let optimizer = rule.with_epsilon(1e-8).with_weight_decay(self.weight_decay).with_gradient_norm(1.0);
        Ok(compile_step(model, optimizer, move |model, batch| {
            let batch = Batch::from_inner(batch);
            let loss = match &context {
                Some(context) => batch.loss_over(model, context),
                None if routers.is_zero() => batch.loss(model),
                None => batch.loss_with_routers(model, &routers),
            };
            // The length divides and the layers are alike, as was checked.
            let loss = loss.unwrap_or_else(|error| panic!("{error}"));
            (loss.clone(), loss.inner())
        }))
    }

    fn routers(&self) -> RouterLoss {
        RouterLoss { balance: self.router_balance, z: self.router_z }
    }

    /// Returns the model after all steps.
    fn train<F, M>(&self, model: M, rows: &Rows, device: &TpuDevice) -> Outcome<M>
    where
        F: TpuFloat,
        M: LanguageModel<Trained<F>> + AutodiffModule<Trained<F>> + 'static,
    {
        let weights = super::weight_bytes(&model);
        let mut step = self.step(model, device)?;
        if self.model.report {
            let bytes: usize = step.optimizer_state().iter().map(|(_, state)| bytes_of(state)).sum();
            eprintln!("{} KiB of state of the optimizer, {} MiB of weights", bytes >> 10, weights >> 20);
        }
        let every = self.steps.div_ceil(LINES);
        let (mut begun, mut losses) = (Instant::now(), Vec::new());
        for number in 1..=self.steps {
            let batch = rows.shuffled(number as usize - 1, self.batch as usize, self.seed);
            losses.push(step.run(self.lr, rows.batch(&batch, device))?);
            if number % every != 0 && number != self.steps {
                continue;
            }
            // Losses are read here alone, so that steps do not wait for the device.
            let steps = losses.len();
            let loss = Tensor::cat(std::mem::take(&mut losses), 0).mean().try_into_data().map_err(LlmError::Device)?;
            let tokens = steps as u64 * self.batch * self.sequence;
            let rate = tokens as f64 / begun.elapsed().as_secs_f64();
            let loss: f64 = loss.iter::<f64>().sum();
            eprintln!("step {number} of {}: loss {loss:.6}, {rate:.0} tokens a second", self.steps);
            begun = Instant::now();
        }
        Ok(step.into_model())
    }
}

fn bytes_of(tensor: &TpuTensor) -> usize {
    tensor.shape().num_elements() * tensor.dtype().size()
}

/// Returns the number of weights that are trained.
fn trained<B: Backend>(model: &Decoder<B>) -> usize {
    struct Count(usize);
    impl<B: Backend> burn::module::ModuleVisitor<B> for Count {
        fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<B, D>>) {
            if param.is_require_grad() {
                self.0 += param.shape().num_elements();
            }
        }
    }
    let mut count = Count(0);
    model.visit(&mut count);
    count.0
}

/// Measures held-out rows.
struct Bits {
    rows: Rows,
    bytes: usize,
    batch: usize,
}

impl Bits {
    fn print<F: TpuFloat>(&self, when: &str, model: &Decoder<Tpu<F>>, device: &TpuDevice) -> Outcome {
        if self.bytes == 0 {
            return Ok(());
        }
        let numbers: Vec<_> = (0..self.rows.rows().len()).collect();
        let mut nats = 0.0;
        for numbers in numbers.chunks(self.batch) {
            let sum = self.rows.batch(numbers, device).nats(model)?.try_into_data().map_err(LlmError::Device)?;
            nats += sum.iter::<f64>().sum::<f64>();
        }
        let bits = nats / std::f64::consts::LN_2 / self.bytes as f64;
        eprintln!("{when}: {bits:.4} bits a byte in {} held-out rows", self.rows.rows().len());
        Ok(())
    }
}
