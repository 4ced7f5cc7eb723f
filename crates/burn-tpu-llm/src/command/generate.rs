//! `generate`: texts, and what the model writes after them.

use super::{Loaded, ModelArgs, Outcome, WriteArgs};
use burn_tpu::{Tpu, TpuFloat};
use burn_tpu_llm::{Prompt, Session, TextStream};
use std::io::Write;
use std::time::{Duration, Instant};

/// What `generate` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// The text to continue; of several, the answers are written at once, and printed in their order when all have
    /// ended
    #[arg(long, value_name = "TEXT", required = true)]
    prompt: Vec<String>,
    #[command(flatten)]
    write: WriteArgs,
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args, loaded: &Loaded<F>) -> Outcome {
    let mut prompts = Vec::with_capacity(args.prompt.len());
    for prompt in &args.prompt {
        prompts.push(loaded.tokenizer.encode(prompt)?);
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    // No larger than needed, so that attention reads no more; in steps, so that few programs are compiled.
    let needed = (longest + args.write.tokens).next_multiple_of(256);
    let context = args.write.context.unwrap_or_else(|| needed.min(loaded.model.config().context));
    let mut session = loaded.session(context, prompts.len())?;
    match prompts.as_slice() {
        [prompt] => write(&mut session, prompt, &args.write, loaded).map(drop),
        prompts => write_all(&mut session, prompts, &args.write, loaded),
    }
}

/// Writes the answers to several prompts to standard output, each on lines of its own.
fn write_all<F: TpuFloat>(
    session: &mut Session<'_, Tpu<F>>,
    prompts: &[Vec<u32>],
    args: &WriteArgs,
    loaded: &Loaded<F>,
) -> Outcome {
    let rows: Vec<_> = prompts.iter().map(|prompt| Prompt { tokens: prompt, seed: args.seed }).collect();
    let mut answers = vec![(String::new(), Vec::new()); prompts.len()];
    let mut texts: Vec<_> = prompts.iter().map(|_| TextStream::new(&loaded.tokenizer, args.stop.clone())).collect();
    let (compiles, mut timing) = (loaded.device.metrics().compiles, Timing::new(prompts.iter().map(Vec::len).sum()));
    let mut generation = session.generate_batch(&rows, &loaded.options(args)?)?;
    while let Some(step) = generation.next() {
        timing.step();
        for (row, token) in step?.into_iter().enumerate() {
            let Some(token) = token else { continue };
            timing.tokens += 1;
            answers[row].1.push(token.id);
            answers[row].0.push_str(&texts[row].push(token.id)?);
            if texts[row].stopped() {
                generation.stop(row);
            }
        }
    }
    for ((mut answer, ids), text) in answers.into_iter().zip(texts) {
        answer.push_str(&text.finish()?);
        println!("{}", if args.ids { listed(&ids) } else { answer });
    }
    report(loaded, &timing, compiles);
    Ok(())
}

fn listed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn report<F: TpuFloat>(loaded: &Loaded<F>, timing: &Timing, compiles: u64) {
    if loaded.report {
        let (compiled, memory) = (loaded.device.metrics().compiles - compiles, super::peak_memory() >> 20);
        eprintln!("{timing}; {compiled} programs compiled; at most {memory} MiB of host memory");
    }
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
        timing.step();
        timing.tokens += 1;
        ids.push(token.id);
        show(&text.push(token.id)?)?;
        if text.stopped() {
            break;
        }
    }
    show(&text.finish()?)?;
    if args.ids {
        println!("{}", listed(&ids));
    } else {
        println!();
    }
    report(loaded, &timing, compiles);
    Ok(whole)
}

/// When tokens came.
struct Timing {
    prompt: usize,
    begun: Instant,
    first: Option<Duration>,
    last: Duration,
    steps: u32,
    tokens: u32,
}

impl Timing {
    fn new(prompt: usize) -> Self {
        Self { prompt, begun: Instant::now(), first: None, last: Duration::ZERO, steps: 0, tokens: 0 }
    }

    /// Notes that a step has ended.
    fn step(&mut self) {
        self.last = self.begun.elapsed();
        self.first.get_or_insert(self.last);
        self.steps += 1;
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
        match self.steps {
            0 | 1 => Ok(()),
            steps => {
                // The first tokens are not counted, since their time is that of the prompts.
                let each = (self.last - first).as_secs_f64() / f64::from(steps - 1);
                write!(f, ", {:.1} tokens a second", f64::from(self.tokens) / f64::from(steps) / each)
            }
        }
    }
}
