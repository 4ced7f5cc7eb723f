//! `fit --search`: the best mesh for a step on each slice, and what its layers keep for the backward pass.
//!
//! Owns: the options of a search, the sizes of a model as a search takes them, and the options with which one layout is
//! compiled by this program again.

use super::Args;
use crate::command::{Dtype, FewBits, Kept, Outcome};
use burn_tpu::fit::Specs;
use burn_tpu::fit::search::{self, Candidate, Job, LayoutSearch, ProcessFit, Search, Sizes, Step, fit_in_process};
use burn_tpu_llm::{Config, Dispatch};
use clap::ValueEnum;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(next_help_heading = "Search for a layout")]
pub struct SearchArgs {
    /// Find the best mesh on each slice, and what the layers should keep
    #[arg(long, conflicts_with_all = ["mesh", "against"])]
    pub search: bool,
    /// Layouts of each slice that are compiled: those with the best estimates
    #[arg(long, default_value_t = 6, value_name = "N", requires = "search")]
    candidates: usize,
    /// Compiles at the same time [default: one for each processor]
    #[arg(long, value_name = "N", requires = "search")]
    jobs: Option<usize>,
    /// The longest time of one compile, in seconds
    #[arg(long, default_value_t = 3600, value_name = "SECONDS", requires = "search")]
    limit: u64,
    /// End this process when its standard input ends
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// Searches every slice, prints the tables, and writes what was asked for.
pub fn run(args: &Args) -> Outcome {
    let config = args.checked()?;
    let SearchArgs { candidates, jobs, limit, .. } = args.search;
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if jobs == 0 || candidates == 0 {
        return Err("--jobs and --candidates must be at least 1".into());
    }
    // All layers are compiled: those of a training step are a loop, whose compile does not depend on their number.
    let (sizes, kept, specs) = (sizes(args, &config), args.kept(), Specs::builtin()?);
    let search = LayoutSearch { sizes, specs, kept, candidates, confirm: candidates, jobs };
    let program = std::env::current_exe()?;
    let plan = search.plan(args.slices.iter().copied())?;
    let (done, all) = (AtomicUsize::new(0), plan.compiles());
    let searched = plan.run(|job| {
        let start = Instant::now();
        let fit = compile(args, &program, job, Duration::from_secs(limit));
        let seconds = start.elapsed().as_secs_f64();
        let number = 1 + done.fetch_add(1, Ordering::Relaxed);
        eprintln!("{number}/{all} {}: {}: {seconds:.0} s", job.slice, of_layout(args, job.layout).join(" "));
        fit
    });
    for search in &searched {
        print!("{search}");
        print_best(args, search);
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&searched)?;
        std::fs::write(path, text).map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    Ok(())
}

fn print_best(args: &Args, search: &Search) {
    if let Some(best) = search.best() {
        println!("\nthe best of them: {}\n", of_layout(args, best.candidate).join(" "));
    }
}

/// Compiles a layout in a process of its own.
fn compile(args: &Args, program: &Path, job: Job, limit: Duration) -> Result<ProcessFit, String> {
    let mut options = vec!["fit".to_owned(), "--slices".to_owned(), job.slice.to_string()];
    options.extend(args.of_step());
    options.extend(of_layout(args, job.layout));
    fit_in_process(program, &options, limit)
}

impl Args {
    /// Returns what layers may keep.
    fn kept(&self) -> Vec<search::Kept> {
        use search::Kept as S;
        match self.keep {
            _ if self.decode || self.unrolled => vec![S::Everything],
            None => vec![S::Input, S::Products, S::Everything],
            Some(Kept::Nothing | Kept::Ring | Kept::Names(_) | Kept::Offload(_)) => vec![S::Input],
            Some(Kept::Products) => vec![S::Products],
            Some(Kept::Everything) => vec![S::Everything],
        }
    }

    /// Returns the options of a step without those of its layout.
    fn of_step(&self) -> Vec<String> {
        let mut options = vec!["--model".to_owned(), self.model.clone()];
        let mut add = |name: &str, value: String| options.extend([format!("--{name}"), value]);
        add("batch", self.batch.to_string());
        add("sequence", self.sequence.to_string());
        add("dtype", name_of(self.dtype));
        if let Some(rank) = self.lora {
            add("lora", rank.to_string());
        }
        if let Some(bits) = self.weights {
            add("weights", name_of(bits));
        }
        match self.experts {
            Dispatch::Auto => (),
            Dispatch::Every => add("experts", "every".to_owned()),
            Dispatch::Sorted { block } => add("experts", format!("sorted={block}")),
            Dispatch::Capacity { factor, .. } => add("experts", format!("capacity={factor}")),
        }
        add("context-form", name_of(self.context.context_form));
        options.extend(self.decode.then(|| "--decode".to_owned()));
        options.extend(self.unrolled.then(|| "--unrolled".to_owned()));
        options.extend(self.state_on_host.then(|| "--state-on-host".to_owned()));
        options
    }
}

/// Returns the options of `fit` that compile a layout.
fn of_layout(args: &Args, layout: Candidate) -> Vec<String> {
    let mut options = Vec::new();
    if !layout.axes().is_empty() {
        options.extend(["--mesh".to_owned(), layout.mesh()]);
    }
    if !args.decode && !args.unrolled {
        let keep = match layout.kept {
            search::Kept::Input => args.keep.clone().unwrap_or(Kept::Ring),
            search::Kept::Products => Kept::Products,
            search::Kept::Everything => Kept::Everything,
        };
        options.extend(["--keep".to_owned(), keep.to_string()]);
    }
    options
}

fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn sizes(args: &Args, config: &Config) -> Sizes {
    let element_bytes = match args.dtype {
        Dtype::F32 => 4,
        Dtype::Bf16 => 2,
    };
    // In few bits, a weight is at most a byte.
    let weight_bytes = args.weights.map_or(element_bytes, |_: FewBits| 1);
    let state_bytes = match (args.decode || args.lora.is_some(), args.dtype) {
        (true, _) => weight_bytes,
        (false, _) if args.state_on_host => element_bytes,
        // The weight, and two moments; in bf16 a master weight too, all three in f32.
        (false, Dtype::F32) => 12,
        (false, Dtype::Bf16) => 14,
    };
    let experts = config.experts.as_ref();
    Sizes {
        step: if args.decode { Step::Decoding } else { Step::Training },
        layers: config.layers,
        is_loop: !args.decode && !args.unrolled,
        width: config.width,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head: config.head,
        ff: experts.map_or(config.feed_forward, |experts| experts.feed_forward),
        ff_matrices: 3,
        experts: experts.map_or(1, |experts| experts.count),
        experts_per_token: experts.map_or(1, |experts| experts.per_token),
        sequence: args.sequence as usize,
        vocab: config.vocabulary,
        table_rows: if config.tied { config.vocabulary } else { 2 * config.vocabulary },
        splits_tables: true,
        batch: args.batch as usize,
        element_bytes,
        state_bytes,
        splits_sequence: !args.decode,
    }
}
