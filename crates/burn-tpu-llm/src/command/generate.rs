//! `generate`: a text, and what the model writes after it.

use super::{Loaded, ModelArgs, Outcome, WriteArgs};
use burn_tpu::{Tpu, TpuFloat};
use burn_tpu_llm::{Session, TextStream};
use std::io::Write;
use std::time::{Duration, Instant};

/// What `generate` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The text to continue
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    #[command(flatten)]
    write: WriteArgs,
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args, loaded: &Loaded<F>) -> Outcome {
    let prompt = loaded.tokenizer.encode(&args.prompt)?;
    // No larger than needed, so that attention reads no more; in steps, so that few programs are compiled.
    let needed = (prompt.len() + args.write.tokens).next_multiple_of(256);
    let context = args.write.context.unwrap_or_else(|| needed.min(loaded.model.config().context));
    let mut session = Session::new(&loaded.model, context)?;
    write(&mut session, &prompt, &args.write, loaded).map(drop)
}

/// Writes an answer to standard output, and returns its text.
pub(super) fn write<F: TpuFloat>(
    session: &mut Session<'_, Tpu<F>>,
    prompt: &[u32],
    args: &WriteArgs,
    loaded: &Loaded<F>,
) -> Outcome<String> {
    let (mut text, mut whole) = (TextStream::new(&loaded.tokenizer, args.stop.clone()), String::new());
    let (mut ids, mut output) = (Vec::new(), std::io::stdout());
    let mut show = |piece: &str| -> std::io::Result<()> {
        whole.push_str(piece);
        if !args.ids {
            write!(output, "{piece}")?;
        }
        output.flush()
    };
    let (compiles, mut timing) = (loaded.device.metrics().compiles, Timing::new(prompt.len()));
    for token in session.generate(prompt, &loaded.options(args)?)? {
        let token = token?;
        timing.token();
        ids.push(token.id);
        show(&text.push(token.id)?)?;
        if text.stopped() {
            break;
        }
    }
    show(&text.finish()?)?;
    if args.ids {
        println!("{}", ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    } else {
        println!();
    }
    if loaded.report {
        let (compiled, memory) = (loaded.device.metrics().compiles - compiles, super::peak_memory() >> 20);
        eprintln!("{timing}; {compiled} programs compiled; at most {memory} MiB of host memory");
    }
    Ok(whole)
}

/// When tokens came.
struct Timing {
    prompt: usize,
    begun: Instant,
    first: Option<Duration>,
    last: Duration,
    tokens: u32,
}

impl Timing {
    fn new(prompt: usize) -> Self {
        Self { prompt, begun: Instant::now(), first: None, last: Duration::ZERO, tokens: 0 }
    }

    fn token(&mut self) {
        self.last = self.begun.elapsed();
        self.first.get_or_insert(self.last);
        self.tokens += 1;
    }
}

impl std::fmt::Display for Timing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = self.first.unwrap_or_default();
        write!(
            f,
            "{} tokens read, the first new one after {:.2} s; {} written",
            self.prompt,
            first.as_secs_f64(),
            self.tokens
        )?;
        match self.tokens {
            0 | 1 => Ok(()),
            tokens => {
                let each = (self.last - first) / (tokens - 1);
                write!(f, ", {:.1} tokens a second", 1.0 / each.as_secs_f64())
            }
        }
    }
}
