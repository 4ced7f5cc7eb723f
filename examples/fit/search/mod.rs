//! `fit --search`: the best layout of a GPT's training step on each slice.
//!
//! Owns: which layouts are compiled, with how many layers, and where. Every compile is this program again, in a process of
//! its own: an abort of libtpu loses one layout, and the processes end with this one.

mod candidates;
mod child;
mod estimate;
mod figures;
mod table;

use crate::{Args, Dtype, Model, Remat};
use anyhow::{Context, Result, ensure};
use burn_tpu::Topology;
use burn_tpu::fit::{Spec, Specs};
use candidates::{Candidate, Sizes};
use clap::ValueEnum;
use estimate::Estimate;
use figures::{Found, rank};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use figures::{Figures, Row};
pub use table::Search;

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

/// Depths that stand for a deeper model: they are the cheapest, and each layer adds the same.
const DEPTHS: [usize; 2] = [1, 2];

/// Ends this process when its parent closes the pipe to it, in whichever way the parent ends.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        std::process::exit(1);
    });
}

/// Searches every slice, prints the tables, and writes what was asked for.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.model == Model::Gpt, "--search knows the layers of a gpt: use --mesh for other models");
    let searched = Searcher::new(args)?.run()?;
    for search in &searched {
        println!("{search}");
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&searched)?;
        std::fs::write(path, text).with_context(|| format!("cannot write the results {}", path.display()))?;
    }
    args.plot.as_deref().map_or(Ok(()), |path| crate::plot::draw_search(&searched, path))
}

/// What all compiles of a search share.
struct Searcher<'a> {
    args: &'a Args,
    sizes: Sizes,
    specs: Specs,
    program: PathBuf,
    jobs: usize,
}

/// A slice with its layouts, the most promising ones first.
struct Task {
    slice: Topology,
    layouts: usize,
    rows: Vec<(Candidate, Estimate)>,
    start: Instant,
}

impl<'a> Searcher<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        let specs = args.specs.as_deref().map_or_else(|| Ok(Specs::builtin()?), crate::specs)?;
        let jobs = args.search.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        ensure!(jobs > 0 && args.search.candidates > 0, "--jobs and --candidates must be at least 1");
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        Ok(Self { args, sizes: sizes(args)?, specs, program, jobs })
    }

    fn run(&self) -> Result<Vec<Search>> {
        let slices = self.args.generations.iter().flat_map(|slices| slices.0.iter().copied());
        let tasks = slices.map(|slice| self.task(slice)).collect::<Result<Vec<_>>>()?;
        let depths = self.depths();
        let compiles = tasks.iter().map(|task| task.rows.len() * depths.len()).sum::<usize>();
        let deep = if depths.len() > 1 { self.args.search.confirm * tasks.len() } else { 0 };
        let bar = progress(compiles + deep);
        let mut found = self.shallow(&tasks, &depths, &bar);
        let searched = tasks.iter().map(|task| {
            let rows = found.drain(..task.rows.len()).collect();
            let rows = if depths.len() > 1 { self.confirm(task, rows, &bar) } else { rows };
            self.search(task, &depths, rows)
        });
        let searched = searched.collect();
        bar.finish_and_clear();
        Ok(searched)
    }

    /// The depths to compile all chosen layouts with: those of [`DEPTHS`], or the model's own if it is as shallow or all of
    /// them would be compiled with all layers in the end.
    fn depths(&self) -> Vec<usize> {
        let SearchArgs { candidates, confirm, .. } = self.args.search;
        if self.sizes.layers > DEPTHS[1] && candidates > confirm { DEPTHS.to_vec() } else { vec![self.sizes.layers] }
    }

    fn spec(&self, slice: Topology) -> &Spec {
        self.specs.of(slice.generation())
    }

    /// Chooses the layouts of a slice that are compiled.
    fn task(&self, slice: Topology) -> Result<Task> {
        let spec = self.spec(slice);
        let remat: &[bool] = match self.args.gpt.remat {
            Remat::On => &[true],
            Remat::Off => &[false],
            Remat::Auto => &[false, true],
        };
        let all = candidates::all(&self.sizes, slice, slice.chips() * spec.devices_per_chip as usize, remat);
        ensure!(
            !all.is_empty(),
            "no mesh of {slice} divides the heads, hidden layers, vocabulary and batch of this gpt"
        );
        let mut rows: Vec<_> =
            all.iter().map(|&candidate| (candidate, Estimate::of(&self.sizes, candidate, spec))).collect();
        let usable = spec.usable_bytes() as f64;
        rows.sort_by(|(_, a), (_, b)| a.order(b, usable));
        rows.truncate(self.args.search.candidates);
        Ok(Task { slice, layouts: all.len(), rows, start: Instant::now() })
    }

    /// Compiles all chosen layouts at every depth, and extrapolates.
    fn shallow(&self, tasks: &[Task], depths: &[usize], bar: &ProgressBar) -> Vec<Row> {
        let layouts: Vec<_> = tasks.iter().flat_map(|task| task.rows.iter().map(move |row| (task, row))).collect();
        let jobs: Vec<_> = layouts.iter().flat_map(|layout| depths.iter().map(move |&depth| (layout, depth))).collect();
        let compiled = parallel(&jobs, self.jobs, |((task, (candidate, _)), depth)| {
            self.compile(task.slice, *candidate, *depth, bar)
        });
        let results = layouts.iter().zip(compiled.chunks(depths.len()));
        results
            .map(|((_, (candidate, estimate)), compiled)| self.row(*candidate, *estimate, depths, compiled))
            .collect()
    }

    fn row(&self, candidate: Candidate, estimate: Estimate, depths: &[usize], compiled: &[Compiled]) -> Row {
        let seconds = compiled.iter().map(|compiled| compiled.seconds).sum();
        let figures: Result<Vec<_>, &String> = compiled.iter().map(|compiled| compiled.figures.as_ref()).collect();
        let found = match figures.as_deref() {
            Err(reason) => Found::Refused { reason: (*reason).clone() },
            Ok(&[few, more]) => {
                let known = [(depths[0], few), (depths[1], more)];
                Found::Extrapolated { figures: Figures::extrapolate(known, self.sizes.layers) }
            }
            Ok(figures) => Found::Compiled { figures: *figures[0] },
        };
        Row { candidate, mesh: candidate.mesh(), estimate, found, compile_seconds: seconds }
    }

    /// Compiles the best layouts with all layers, until as many as asked for fit.
    fn confirm(&self, task: &Task, mut rows: Vec<Row>, bar: &ProgressBar) -> Vec<Row> {
        loop {
            rank(&mut rows);
            let compiled = |row: &&Row| matches!(row.found, Found::Compiled { .. }) && row.fits();
            if rows.iter().filter(compiled).count() >= self.args.search.confirm {
                return rows;
            }
            let next = rows.iter_mut().find(|row| matches!(row.found, Found::Extrapolated { .. }) && row.fits());
            let Some(row) = next else { return rows };
            let compiled = self.compile(task.slice, row.candidate, self.sizes.layers, bar);
            row.compile_seconds += compiled.seconds;
            row.found = match compiled.figures {
                Ok(figures) => Found::Compiled { figures },
                Err(reason) => Found::Refused { reason: format!("with all layers: {reason}") },
            };
        }
    }

    fn search(&self, task: &Task, depths: &[usize], mut rows: Vec<Row>) -> Search {
        rank(&mut rows);
        Search {
            slice: task.slice.to_string(),
            layouts: task.layouts,
            depths: depths.to_vec(),
            layers: self.sizes.layers,
            tokens: self.sizes.batch * self.sizes.sequence,
            rows,
            seconds: task.start.elapsed().as_secs_f64(),
        }
    }

    /// Compiles a layout in a process of its own.
    fn compile(&self, slice: Topology, candidate: Candidate, layers: usize, bar: &ProgressBar) -> Compiled {
        let (options, start) = (self.options(slice, candidate, layers), Instant::now());
        let what = format!("{slice} {}, remat {}, {layers} layers", candidate.mesh(), candidate.remat);
        bar.set_message(what.clone());
        let entry = child::fit(&self.program, &options, Duration::from_secs(self.args.search.limit));
        bar.inc(1);
        if bar.is_hidden() {
            eprintln!(
                "{}/{} {what}: {:.0} s",
                bar.position(),
                bar.length().unwrap_or(0),
                start.elapsed().as_secs_f64()
            );
        }
        let seconds = entry.as_ref().map_or(0.0, |entry| entry.compile_seconds);
        Compiled { figures: entry.and_then(|entry| Figures::read(&entry, self.spec(slice))), seconds }
    }

    /// Returns the options of `fit` for one compile.
    fn options(&self, slice: Topology, candidate: Candidate, layers: usize) -> Vec<String> {
        let Sizes { width, heads, ff, sequence, vocab, batch, .. } = self.sizes;
        let numbers = [
            ("layers", layers),
            ("width", width),
            ("heads", heads),
            ("ff", ff),
            ("sequence", sequence),
            ("vocab", vocab),
            ("batch", batch),
        ];
        let mut options: Vec<String> =
            numbers.iter().flat_map(|(name, size)| [format!("--{name}"), size.to_string()]).collect();
        options.extend(["--generations".to_owned(), slice.to_string()]);
        let dtype = self.args.dtype.to_possible_value().map_or(String::new(), |value| value.get_name().into());
        options.extend(["--dtype".to_owned(), dtype]);
        options.extend(self.args.master_weights.then(|| "--master-weights".to_owned()));
        let path = |path: &Path| path.to_string_lossy().into_owned();
        options.extend(self.args.specs.iter().flat_map(|specs| ["--specs".to_owned(), path(specs)]));
        options.extend(candidate.options());
        options
    }
}

/// The result of one compile.
struct Compiled {
    figures: Result<Figures, String>,
    seconds: f64,
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
        layers: config.layers,
        width: config.width,
        heads: config.heads,
        ff: config.feed_forward,
        sequence: config.sequence,
        vocab: config.vocabulary,
        batch,
        element_bytes,
        state_bytes,
    })
}

/// Returns the results of `work` on all items, in their order, with at most `jobs` at a time.
fn parallel<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    let result = work(item);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
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
    use clap::Parser;

    fn searched(words: &str) -> Result<Vec<Search>> {
        let args = Args::parse_from(format!("fit --search {words}").split_whitespace());
        // No such program: every compile is a failure.
        Searcher { program: "/no/such/program".into(), ..Searcher::new(&args)? }.run()
    }

    #[test]
    fn a_layout_whose_process_fails_keeps_its_reason() {
        let searched = searched("--generations v5e:2x2,2xv5e:2x2 --candidates 3").unwrap();
        assert_eq!(searched.len(), 2);
        for search in searched {
            assert_eq!(search.rows.len(), 3);
            let failed = |row: &Row| matches!(&row.found, Found::Refused { reason } if reason.contains("cannot start"));
            assert!(search.rows.iter().all(failed), "{search}");
            assert!(search.to_string().contains("no layout fits"), "{search}");
        }
    }

    #[test]
    fn a_model_that_no_mesh_divides_is_an_error() {
        let error = searched("--generations v5e:2x2 --heads 1 --width 64 --batch 3").err().unwrap();
        assert!(error.to_string().contains("no mesh of v5e:2x2"), "{error}");
    }

    #[test]
    fn results_keep_the_order_of_their_items() {
        let items: Vec<usize> = (0..50).collect();
        assert_eq!(parallel(&items, 4, |item| 2 * item), items.iter().map(|item| 2 * item).collect::<Vec<_>>());
    }
}
