//! The search for the layout of a transformer's step on a slice: which mesh, which parameters are split over it, and
//! what is kept for the backward pass.
//!
//! Owns: which layouts there are, which of them are compiled and with how many layers, the extrapolation to all layers, and
//! the order of the results. May not know: how a program builds its model and its step. It compiles a layout when it is
//! asked, best in a process of its own ([`fit_in_process`]).

mod candidates;
mod estimate;
mod figures;
mod process;
mod table;

pub use candidates::{Candidate, Kept, Sizes, Step};
pub use estimate::Estimate;
pub use figures::{Figures, LayoutResult, Row};
pub use process::{ProcessFit, end_with_parent, fit_in_process};
pub use table::Search;

use super::{Spec, Specs};
use crate::device::Topology;
use crate::error::{Result, TpuError};
use figures::rank;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The depths that are compiled for a deeper model: the cheapest ones, since each layer adds the same.
const DEPTHS: [usize; 2] = [1, 2];

/// What is searched, and how much of it is compiled.
#[derive(Clone, Debug)]
pub struct LayoutSearch {
    /// The sizes of the model and of its step.
    pub sizes: Sizes,
    /// Hardware figures and prices.
    pub specs: Specs,
    /// What blocks may keep for the backward pass.
    pub kept: Vec<Kept>,
    /// The number of layouts of each slice that are compiled: those with the best estimates.
    pub candidates: usize,
    /// The number of layouts of each slice that are compiled with all layers: the best ones, until so many fit.
    pub confirm: usize,
    /// The number of compiles at the same time.
    pub jobs: usize,
}

/// One compile of a search.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The slice to compile for.
    pub slice: Topology,
    /// The layout to compile.
    pub layout: Candidate,
    /// The number of the model's layers to compile.
    pub layers: usize,
}

/// The chosen layouts of every slice, before any compile.
#[derive(Debug)]
pub struct Plan<'a> {
    search: &'a LayoutSearch,
    slices: Vec<SlicePlan>,
    depths: Vec<usize>,
    start: Instant,
}

/// A slice with its layouts, the most promising ones first.
#[derive(Debug)]
struct SlicePlan {
    slice: Topology,
    layouts: usize,
    chosen: Vec<(Candidate, Estimate)>,
}

/// The result of one compile.
struct LayoutCompile {
    figures: std::result::Result<Figures, String>,
    seconds: f64,
}

impl LayoutSearch {
    /// Chooses the layouts that are compiled.
    ///
    /// # Errors
    /// [`TpuError::Option`] for a slice over which the model does not divide.
    pub fn plan(&self, slices: impl IntoIterator<Item = Topology>) -> Result<Plan<'_>> {
        let slices = slices.into_iter().map(|slice| self.slice_plan(slice)).collect::<Result<_>>()?;
        Ok(Plan { search: self, slices, depths: self.depths(), start: Instant::now() })
    }

    /// Returns the depths to compile all chosen layouts with: those of [`DEPTHS`], or the model's own if it is as shallow,
    /// its layers are a loop, or all layouts would be compiled with all layers in the end.
    fn depths(&self) -> Vec<usize> {
        let Sizes { layers, is_loop, .. } = self.sizes;
        let is_deep = layers > DEPTHS[1] && !is_loop && self.candidates > self.confirm;
        if is_deep { DEPTHS.to_vec() } else { vec![self.sizes.layers] }
    }

    fn spec(&self, slice: Topology) -> &Spec {
        self.specs.of(slice.generation())
    }

    fn slice_plan(&self, slice: Topology) -> Result<SlicePlan> {
        let spec = self.spec(slice);
        let all = candidates::all(&self.sizes, slice, slice.chips() * spec.devices_per_chip as usize, &self.kept);
        if all.is_empty() {
            return Err(TpuError::Option {
                name: "slice of a search".into(),
                value: slice.to_string(),
                rule: "has no mesh that divides the heads, hidden layers, vocabulary and batch of the model".into(),
            });
        }
        let mut chosen: Vec<_> = all.iter().map(|&layout| (layout, Estimate::of(&self.sizes, layout, spec))).collect();
        let usable = spec.usable_bytes() as f64;
        chosen.sort_by(|(_, a), (_, b)| a.order(b, usable));
        chosen.truncate(self.candidates);
        Ok(SlicePlan { slice, layouts: all.len(), chosen })
    }
}

impl Plan<'_> {
    /// Returns the number of compiles if the layouts that are compiled with all layers fit.
    pub fn compiles(&self) -> usize {
        let shallow = self.slices.iter().map(|slice| slice.chosen.len() * self.depths.len()).sum::<usize>();
        let deep = if self.depths.len() > 1 { self.search.confirm * self.slices.len() } else { 0 };
        shallow + deep
    }

    /// Searches every slice. `compile` compiles one layout, or returns the reason why it cannot; several threads call it.
    pub fn run(self, compile: impl Fn(Job) -> std::result::Result<ProcessFit, String> + Sync) -> Vec<Search> {
        let compile = |job: Job| {
            let fit = compile(job);
            let seconds = fit.as_ref().map_or(0.0, |fit| fit.compile_seconds);
            LayoutCompile { figures: fit.and_then(|fit| Figures::read(&fit, self.search.spec(job.slice))), seconds }
        };
        let mut found = self.shallow(&compile);
        let mut searched = Vec::new();
        for slice in &self.slices {
            let mut rows: Vec<Row> = found.drain(..slice.chosen.len()).collect();
            if self.depths.len() > 1 {
                self.confirm(slice, &mut rows, &compile);
            }
            rank(&mut rows);
            searched.push(self.result(slice, rows));
        }
        searched
    }

    /// Compiles all chosen layouts at every depth, and extrapolates.
    fn shallow(&self, compile: &(impl Fn(Job) -> LayoutCompile + Sync)) -> Vec<Row> {
        let mut jobs = Vec::new();
        for plan in &self.slices {
            for &(layout, _) in &plan.chosen {
                jobs.extend(self.depths.iter().map(|&layers| Job { slice: plan.slice, layout, layers }));
            }
        }
        let compiled = parallel(&jobs, self.search.jobs, |job| compile(*job));
        let chosen = self.slices.iter().flat_map(|plan| &plan.chosen);
        let rows = chosen.zip(compiled.chunks(self.depths.len()));
        rows.map(|(&(layout, estimate), compiled)| self.row(layout, estimate, compiled)).collect()
    }

    fn row(&self, candidate: Candidate, estimate: Estimate, compiled: &[LayoutCompile]) -> Row {
        let seconds = compiled.iter().map(|compiled| compiled.seconds).sum();
        let figures: std::result::Result<Vec<_>, &String> =
            compiled.iter().map(|compiled| compiled.figures.as_ref()).collect();
        let found = match figures.as_deref() {
            Err(reason) => LayoutResult::Refused { reason: (*reason).clone() },
            Ok(&[few, more]) => {
                let known = [(self.depths[0], few), (self.depths[1], more)];
                LayoutResult::Extrapolated { figures: Figures::extrapolate(known, self.search.sizes.layers) }
            }
            Ok(figures) => LayoutResult::Compiled { figures: *figures[0] },
        };
        Row { candidate, mesh: candidate.mesh(), estimate, found, compile_seconds: seconds }
    }

    /// Compiles the best layouts with all layers, until as many as asked for fit.
    fn confirm(&self, plan: &SlicePlan, rows: &mut [Row], compile: &impl Fn(Job) -> LayoutCompile) {
        loop {
            rank(rows);
            let confirmed = rows.iter().filter(|row| matches!(row.found, LayoutResult::Compiled { .. }) && row.fits());
            if confirmed.count() >= self.search.confirm {
                return;
            }
            let next = rows.iter_mut().find(|row| matches!(row.found, LayoutResult::Extrapolated { .. }) && row.fits());
            let Some(row) = next else { return };
            let job = Job { slice: plan.slice, layout: row.candidate, layers: self.search.sizes.layers };
            let compiled = compile(job);
            row.compile_seconds += compiled.seconds;
            row.found = match compiled.figures {
                Ok(figures) => LayoutResult::Compiled { figures },
                Err(reason) => LayoutResult::Refused { reason: format!("with all layers: {reason}") },
            };
        }
    }

    fn result(&self, plan: &SlicePlan, rows: Vec<Row>) -> Search {
        let sizes = &self.search.sizes;
        Search {
            slice: plan.slice.to_string(),
            layouts: plan.layouts,
            depths: self.depths.clone(),
            layers: sizes.layers,
            tokens: sizes.batch * sizes.sequence,
            rows,
            seconds: self.start.elapsed().as_secs_f64(),
        }
    }
}

/// Returns the results of `work` on all items, in their order, with at most `jobs` at a time.
fn parallel<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
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

#[cfg(test)]
mod tests {
    use super::candidates::tests::LARGE;
    use super::process::{Memory, Speed};
    use super::*;

    fn search(sizes: Sizes, candidates: usize) -> LayoutSearch {
        let specs = Specs::builtin().unwrap();
        LayoutSearch { sizes, specs, kept: vec![Kept::Everything, Kept::Input], candidates, confirm: 1, jobs: 2 }
    }

    fn slices(names: &[&str]) -> Vec<Topology> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_layout_whose_compile_fails_keeps_its_reason() {
        let search = search(LARGE, 3);
        let plan = search.plan(slices(&["v5e:2x2", "2xv5e:2x2"])).unwrap();
        let searched = plan.run(|_| Err("cannot start a process".into()));
        assert_eq!(searched.len(), 2);
        for search in searched {
            assert_eq!(search.rows.len(), 3);
            let failed =
                |row: &Row| matches!(&row.found, LayoutResult::Refused { reason } if reason.contains("cannot start"));
            assert!(search.rows.iter().all(failed), "{search}");
            assert!(search.best().is_none() && search.to_string().contains("no layout fits"), "{search}");
        }
    }

    /// Each layer takes a tenth of the memory that there is.
    #[test]
    fn the_best_layouts_are_compiled_with_all_layers_until_one_fits() {
        let sizes = Sizes { layers: 8, ..LARGE };
        let search = search(sizes, 3);
        let (plan, jobs) = (search.plan(slices(&["v5e:2x2"])).unwrap(), Mutex::new(Vec::new()));
        let compiles = plan.compiles();
        let searched = plan.run(|job| {
            jobs.lock().unwrap().push(job.layers);
            Ok(ProcessFit {
                verdict: "fits".into(),
                message: None,
                memory: Memory { limit_bytes: 100, peak_bytes: 10 * job.layers as u64 },
                speed: Some(Speed { hbm_bytes: 1, roofline_seconds: 1.0, communication_seconds: 0.0, mfu: 0.5 }),
                price: None,
                compile_seconds: 1.0,
            })
        });
        let jobs = jobs.into_inner().unwrap();
        assert_eq!((jobs.len(), jobs.iter().filter(|layers| **layers == 8).count()), (compiles, 1));
        let best = searched[0].best().unwrap();
        assert!(
            matches!(best.found, LayoutResult::Compiled { figures } if figures.peak_bytes == 80.0),
            "{}",
            searched[0]
        );
        assert_eq!(best.compile_seconds, 3.0);
        assert!(searched[0].rows[1..].iter().all(|row| matches!(row.found, LayoutResult::Extrapolated { .. })));
    }

    #[test]
    fn layers_in_a_loop_are_all_compiled() {
        let search = search(Sizes { layers: 8, is_loop: true, ..LARGE }, 3);
        let plan = search.plan(slices(&["v5e:2x2"])).unwrap();
        assert_eq!((plan.compiles(), plan.depths), (3, vec![8]));
    }

    #[test]
    fn a_model_that_no_mesh_divides_is_an_error() {
        let search = search(Sizes { heads: 1, kv_heads: 1, width: 64, batch: 3, ..LARGE }, 3);
        let error = search.plan(slices(&["v5e:2x2"])).unwrap_err().to_string();
        assert!(error.contains("v5e:2x2") && error.contains("no mesh"), "{error}");
    }

    #[test]
    fn results_keep_the_order_of_their_items() {
        let items: Vec<usize> = (0..50).collect();
        assert_eq!(parallel(&items, 4, |item| 2 * item), items.iter().map(|item| 2 * item).collect::<Vec<_>>());
    }
}
