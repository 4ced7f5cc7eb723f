//! The command line: `generate` continues a text, `chat` answers, `finetune` trains, `perplexity` measures, `save`
//! writes a model, and `fit` compiles a step of one for TPUs that need not be there.

mod chat;
mod finetune;
mod fit;
mod generate;
mod mesh;
mod perplexity;
mod save;

use burn::module::{Module, ModuleVisitor, Param};
use burn::prelude::*;
use burn_tpu::{Keep, Platform, Tpu, TpuDevice, TpuFloat, TpuOptions};
use burn_tpu_llm::model::{ATTENTION, FEED_FORWARD, INPUT, QKV, RING};
use burn_tpu_llm::{Bits, Decoder, GenerateOptions, Sampling, Session, Source, Tokenizer};
use clap::{Parser, Subcommand, ValueEnum};
use half::bf16;
use mesh::MeshArgs;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

/// The results of the commands.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Language models on TPUs: Llama, Mistral, Qwen and Gemma, from GGUF files and Hugging Face's folders.
#[derive(Parser)]
#[command(name = "burn-tpu-llm", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Continue a text
    Generate(generate::Args),
    /// Talk with a model: one answer with --prompt, else a conversation; /reset begins a new one, /quit ends
    Chat(chat::Args),
    /// Train a model, or an adapter of it, on a text or on conversations
    Finetune(finetune::Args),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::Args),
    /// Compile a step of a model for TPUs that this machine need not have: memory, bounds on its time, and its price
    Fit(fit::Args),
    /// Write a model as a folder with safetensors under Hugging Face's names
    Save(save::Args),
}

/// What the commands have in common.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// A GGUF file, or a folder with config.json, tokenizer.json and safetensors
    #[arg(long, value_name = "FILE|DIR")]
    model: PathBuf,
    /// An adapter of the model, as PEFT's folders have it. `finetune` trains it further; else it is merged into the
    /// weights
    #[arg(long, value_name = "DIR")]
    adapter: Option<PathBuf>,
    /// Type of the weights and activations
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Keep the weights of products and tables in few bits on the device
    #[arg(long, value_enum, value_name = "q8|q4")]
    weights: Option<FewBits>,
    /// Where to run [default: BURN_TPU_PLATFORM, or the best platform present]
    #[arg(long, value_name = "tpu|cuda|cpu|ndarray")]
    platform: Option<Platform>,
    #[command(flatten)]
    mesh: MeshArgs,
    /// Print to standard error how long loading, reading and writing took, the memory, and what the device did
    #[arg(long)]
    report: bool,
}

impl ModelArgs {
    /// Loads the weights, as they are to be kept.
    fn load<B: Backend>(&self, source: &Source, device: &B::Device) -> burn_tpu_llm::Result<Decoder<B>> {
        match self.weights {
            Some(bits) => source.load_few_bits(bits.into(), device),
            None => source.load(device),
        }
    }

    fn device(&self) -> TpuDevice {
        self.mesh.device(self.platform)
    }
}

/// How text is written.
#[derive(clap::Args)]
pub struct WriteArgs {
    /// The most tokens of an answer
    #[arg(long, default_value_t = 256)]
    tokens: usize,
    /// The most tokens of prompt and answers [default: 2048, or the model's if that is less]
    #[arg(long)]
    context: Option<usize>,
    /// Below 1 the likely tokens are chosen more often; 0 always chooses the likeliest
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Choose among this many likeliest tokens only; 0 for all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Choose among the likeliest tokens only that together have this probability
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Choose among tokens only that have this share of the likeliest one's probability
    #[arg(long, default_value_t = 0.0)]
    min_p: f64,
    /// Makes tokens of the prompt and the answer less likely, above 1
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Subtracted from the logits of tokens in the answer
    #[arg(long, default_value_t = 0.0)]
    presence_penalty: f64,
    /// Subtracted from the logits of tokens in the answer, as often as they are in it
    #[arg(long, default_value_t = 0.0)]
    frequency_penalty: f64,
    /// Added to the logit of a token, by its number: -100 excludes it; may be given several times
    #[arg(long, value_name = "ID=BIAS", value_parser = bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// What the choice of tokens follows from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Ends the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Print the numbers of the new tokens instead of their text, on one line
    #[arg(long)]
    ids: bool,
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    parsed.ok_or_else(|| "a token's number and its bias, as 42=-100".to_owned())
}

/// What a loop over the layers keeps of each for the backward pass, beside its input.
#[derive(Clone, PartialEq)]
enum Kept {
    Nothing,
    /// The results of attention over an axis `context` that goes round it, with what their gradients read.
    Ring,
    Products,
    Everything,
    Names(Vec<&'static str>),
    /// The values with these names in the host's memory; of a ring, what `Ring` keeps in the device's.
    Offload(Vec<&'static str>),
}

/// What can be kept by its name.
const NAMES: [&str; 5] = [INPUT, QKV, ATTENTION, FEED_FORWARD, RING];

impl std::str::FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = |list: &str| list.split(',').map(known).collect::<Result<Vec<_>, _>>();
        match text.split_once('=').unwrap_or((text, "")) {
            ("nothing", "") => Ok(Self::Nothing),
            ("ring", "") => Ok(Self::Ring),
            ("products", "") => Ok(Self::Products),
            ("everything", "") => Ok(Self::Everything),
            ("names", list) => names(list).map(Self::Names),
            ("offload", list) => names(list).map(Self::Offload),
            _ => Err("nothing, ring, products, everything, names=attention,qkv or offload=input".to_owned()),
        }
    }
}

/// Returns a name of what can be kept.
fn known(name: &str) -> Result<&'static str, String> {
    let found = NAMES.into_iter().find(|known| *known == name);
    found.ok_or_else(|| format!("`{name}` is no name of a value: {}", NAMES.join(", ")))
}

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Ring => f.write_str("ring"),
            Self::Products => f.write_str("products"),
            Self::Everything => f.write_str("everything"),
            Self::Names(names) => write!(f, "names={}", names.join(",")),
            Self::Offload(names) => write!(f, "offload={}", names.join(",")),
        }
    }
}

impl From<Kept> for Keep {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Nothing => Self::Nothing,
            Kept::Ring => Self::Names(vec![RING]),
            Kept::Products => Self::Products,
            Kept::Everything => Self::Everything,
            Kept::Names(names) => Self::Names(names),
            Kept::Offload(host) => Self::Offload { host, device: vec![RING] },
        }
    }
}

/// Weights in few bits.
#[derive(Clone, Copy, ValueEnum)]
enum FewBits {
    Q8,
    Q4,
}

impl From<FewBits> for Bits {
    fn from(bits: FewBits) -> Self {
        match bits {
            FewBits::Q8 => Self::Eight,
            FewBits::Q4 => Self::Four,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Bf16,
    F32,
}

/// A model that is ready to write, with what belongs to it.
pub struct Loaded<F: TpuFloat> {
    source: Source,
    tokenizer: Tokenizer,
    model: Decoder<Tpu<F>>,
    device: TpuDevice,
    mesh: MeshArgs,
    report: bool,
}

/// Runs a command.
pub fn run(cli: &Cli) -> Outcome {
    let dtype = match &cli.command {
        Command::Fit(args) => args.dtype,
        Command::Generate(args) => args.model.dtype,
        Command::Chat(args) => args.model.dtype,
        Command::Finetune(args) => args.model.dtype,
        Command::Perplexity(args) => args.model.dtype,
        Command::Save(args) => args.model.dtype,
    };
    match dtype {
        Dtype::F32 => run_with::<f32>(&cli.command),
        Dtype::Bf16 => run_with::<bf16>(&cli.command),
    }
}

fn run_with<F: TpuFloat>(command: &Command) -> Outcome {
    match command {
        Command::Generate(args) => generate::run(args, &Loaded::<F>::new(&args.model)?),
        Command::Chat(args) => chat::run(args, &Loaded::<F>::new(&args.model)?),
        Command::Finetune(args) => finetune::run::<F>(args),
        Command::Fit(args) => fit::run::<F>(args),
        Command::Perplexity(args) => perplexity::run(args, &Loaded::<F>::new(&args.model)?),
        Command::Save(args) => save::run(args, &Loaded::<F>::new(&args.model)?),
    }
}

impl<F: TpuFloat> Loaded<F> {
    fn new(args: &ModelArgs) -> Outcome<Self> {
        let begun = Instant::now();
        let source = Source::open(&args.model)?;
        let tokenizer = source.tokenizer()?;
        let device = args.device();
        TpuOptions::inference().install(&device)?;
        let mut model = args.load::<Tpu<F>>(&source, &device)?;
        if let Some(folder) = &args.adapter {
            model = model.load_lora(folder)?.merge_lora();
            if !model.has_unmerged_lora() {
                model = model.without_lora();
            }
        }
        let model = args.mesh.place(source.config(), model)?;
        device.sync()?;
        if args.report {
            let (seconds, memory) = (begun.elapsed().as_secs_f64(), peak_memory());
            let weights = weight_bytes(&model) >> 20;
            eprintln!(
                "loaded in {seconds:.2} s: {weights} MiB of weights; at most {} MiB of host memory",
                memory >> 20
            );
        }
        Ok(Self { source, tokenizer, model, device, mesh: args.mesh.clone(), report: args.report })
    }

    /// Begins a session of so many texts, with its cache where the mesh has heads and texts.
    fn session(&self, context: usize, rows: usize) -> Outcome<Session<'_, Tpu<F>>> {
        let session = Session::with_rows(&self.model, context, rows)?;
        let texts = self.mesh.joined(["slice", "data", "fsdp"]);
        Ok(session.split(texts.as_deref(), self.mesh.axis("tensor"))?)
    }

    fn context(&self, args: &WriteArgs) -> usize {
        args.context.unwrap_or_else(|| self.model.config().context.min(2048))
    }

    fn options(&self, args: &WriteArgs) -> Outcome<GenerateOptions> {
        let sampling = Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            presence_penalty: args.presence_penalty,
            frequency_penalty: args.frequency_penalty,
            logit_bias: args.logit_bias.clone(),
            seed: args.seed,
        };
        let end_tokens = self.source.end_tokens(&self.tokenizer)?;
        Ok(GenerateOptions { tokens: args.tokens, sampling, end_tokens, log_probabilities: false })
    }
}

/// Returns the bytes of a model's weights.
fn weight_bytes<B: Backend>(model: &impl Module<B>) -> usize {
    struct Bytes(usize);
    impl<B: Backend> ModuleVisitor<B> for Bytes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0 += param.lazy_shape().num_elements() * param.val().dtype().size();
        }

        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
            self.0 += param.lazy_shape().num_elements() * param.val().dtype().size();
        }
    }
    let mut bytes = Bytes(0);
    model.visit(&mut bytes);
    bytes.0
}

/// Returns the most bytes of host memory that this process has had, as Linux counts them; 0 elsewhere.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
