//! `fit --search`: the best layout of a GPT's training step on each slice.
//!
//! Owns: the options of a search, and of the compile of one layout, which is this program again.

use crate::{Args, Dtype, Model, Remat, layout};
use anyhow::{Context, Result, ensure};
use burn_tpu::fit::Specs;
use burn_tpu::fit::search::{Candidate, Job, Kept, LayoutSearch, ProcessFit, Search, Sizes, Step, fit_in_process};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(next_help_heading = "Search for a layout")]
pub struct SearchArgs {
    /// Find the best mesh for a gpt on each slice, and the placement of its parameters
    #[arg(long, conflicts_with_all = ["mesh", "against"])]
    pub search: bool,
    /// Layouts of each slice that are compiled: those with the best estimates
    #[arg(long, default_value_t = 6, value_name = "N")]
    candidates: usize,
    /// Layouts of each slice that are compiled with all layers: the best ones, until so many fit
    #[arg(long, default_value_t = 1, value_name = "N")]
    confirm: usize,
    /// Compiles at the same time [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// The longest time of one compile, in seconds
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    limit: u64,
    /// End this process when its standard input ends
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// Searches every slice, prints the tables, and writes what was asked for.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.model == Model::Gpt, "--search knows the layers of a gpt: use --mesh for other models");
    let searched = searched(args)?;
    for search in &searched {
        print!("{search}");
        if let Some(best) = search.best() {
            print!("\n{}", layout::code(best.candidate));
        }
        println!();
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&searched)?;
        std::fs::write(path, text).with_context(|| format!("cannot write the results {}", path.display()))?;
    }
    args.plot.as_deref().map_or(Ok(()), |path| crate::plot::draw_search(&searched, path))
}

fn searched(args: &Args) -> Result<Vec<Search>> {
    let search = layout_search(args)?;
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let plan = search.plan(args.generations.iter().flat_map(|slices| slices.0.iter().copied()))?;
    let bar = progress(plan.compiles());
    let searched = plan.run(|job| compile(args, &search.sizes, &program, job, &bar));
    bar.finish_and_clear();
    Ok(searched)
}

fn layout_search(args: &Args) -> Result<LayoutSearch> {
    let SearchArgs { candidates, confirm, jobs, .. } = args.search;
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    ensure!(jobs > 0 && candidates > 0, "--jobs and --candidates must be at least 1");
    let kept = match args.gpt.remat {
        Remat::On => vec![Kept::Input],
        Remat::Off => vec![Kept::Everything],
        Remat::Auto => vec![Kept::Everything, Kept::Input],
    };
    let specs = args.specs.as_deref().map_or_else(|| Ok(Specs::builtin()?), crate::specs)?;
    Ok(LayoutSearch { sizes: sizes(args)?, specs, kept, candidates, confirm, jobs })
}

/// Compiles a layout in a process of its own.
fn compile(args: &Args, sizes: &Sizes, program: &Path, job: Job, bar: &ProgressBar) -> Result<ProcessFit, String> {
    let start = Instant::now();
    let Job { slice, layout, layers } = job;
    let what = format!("{slice} {}, keeps {}, {layers} layers", layout.mesh(), layout.kept.name());
    bar.set_message(what.clone());
    let fit = fit_in_process(program, &options(args, sizes, job), Duration::from_secs(args.search.limit));
    bar.inc(1);
    if bar.is_hidden() {
        let (done, all) = (bar.position(), bar.length().unwrap_or(0));
        eprintln!("{done}/{all} {what}: {:.0} s", start.elapsed().as_secs_f64());
    }
    fit
}

/// Returns the options of `fit` for one compile.
fn options(args: &Args, sizes: &Sizes, job: Job) -> Vec<String> {
    let Sizes { width, heads, ff, sequence, vocab, batch, .. } = *sizes;
    let numbers = [
        ("layers", job.layers),
        ("width", width),
        ("heads", heads),
        ("ff", ff),
        ("sequence", sequence),
        ("vocab", vocab),
        ("batch", batch),
    ];
    let mut options: Vec<String> =
        numbers.iter().flat_map(|(name, size)| [format!("--{name}"), size.to_string()]).collect();
    options.extend(["--generations".to_owned(), job.slice.to_string()]);
    let dtype = args.dtype.to_possible_value().map_or(String::new(), |value| value.get_name().into());
    options.extend(["--dtype".to_owned(), dtype]);
    options.extend(args.master_weights.then(|| "--master-weights".to_owned()));
    let path = |path: &Path| path.to_string_lossy().into_owned();
    options.extend(args.specs.iter().flat_map(|specs| ["--specs".to_owned(), path(specs)]));
    options.extend(of_layout(job.layout));
    options
}

/// Returns the options of `fit` that compile a layout.
fn of_layout(layout: Candidate) -> Vec<String> {
    let mut options = vec!["--remat".into(), if layout.kept == Kept::Input { "on" } else { "off" }.into()];
    if !layout.axes().is_empty() {
        options.extend(["--mesh".into(), layout.mesh()]);
    }
    for (name, size) in [("fsdp", layout.fsdp), ("tensor", layout.tensor)] {
        if size > 1 {
            options.extend([format!("--{name}"), name.to_owned()]);
        }
    }
    options
}

fn sizes(args: &Args) -> Result<Sizes> {
    let batch = args.batch.unwrap_or(crate::GPT_BATCH) as usize;
    let config = args.gpt.config(batch)?;
    let element_bytes = match args.dtype {
        Dtype::Bf16 | Dtype::Autocast => 2,
        Dtype::F32 => 4,
    };
    // The weight and two moments, in f32 if activations alone are bf16; or a weight, and a master weight and two moments in
    // f32.
    let state_bytes = match args.dtype {
        Dtype::Autocast => 12,
        Dtype::Bf16 | Dtype::F32 if args.master_weights => element_bytes + 12,
        Dtype::Bf16 | Dtype::F32 => 3 * element_bytes,
    };
    Ok(Sizes {
        step: Step::Training,
        layers: config.layers,
        is_loop: false,
        width: config.width,
        heads: config.heads,
        kv_heads: config.heads,
        head: config.width / config.heads.max(1),
        ff: config.feed_forward,
        ff_matrices: 2,
        experts: 1,
        experts_per_token: 1,
        sequence: config.sequence,
        vocab: config.vocabulary,
        table_rows: 2 * config.vocabulary + config.sequence,
        splits_tables: false,
        batch,
        element_bytes,
        state_bytes,
        splits_sequence: false,
    })
}

/// Returns a bar on a terminal. Elsewhere it is hidden, and each compile is a line.
fn progress(compiles: usize) -> ProgressBar {
    let bar = ProgressBar::new(compiles as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} compiles, {elapsed}: {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_name_the_axes_that_there_are() {
        let candidate = Candidate { data: 2, tensor: 4, kept: Kept::Input, ..Candidate::ONE };
        assert_eq!(of_layout(candidate), ["--remat", "on", "--mesh", "data=2,tensor=4", "--tensor", "tensor"]);
    }
}
