//! The form of a recording that its family is told from: the recording, or, if it is long and repeats, its form with loops.
//!
//! A layer that loops over time steps is recorded unrolled, so recordings of different lengths have different ops. With
//! loops, they differ in sizes alone: the trip count is one of them.
//!
//! Owns: when a recording gets loops, and what its inputs are in that form. May not know: families.

use crate::engine::picked;
use crate::error::{Result, TpuError};
use crate::program::SlotAssumptions;
use burn_tpu_fusion::{Pass, Pipeline, Roll};
use burn_tpu_graph::{Bindings, Program};
use lru::LruCache;
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The number of long recordings whose forms are remembered. The forms are short.
const MOST_FORMS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Recordings of fewer nodes have no loops.
const LEAST_NODES: usize = 256;

/// A recording with loops.
#[derive(Debug)]
struct Looped {
    program: Arc<Program>,
    /// What its inputs are in the recording.
    bindings: Bindings,
    /// What it takes for granted of the recording's slots.
    assumptions: SlotAssumptions,
}

/// The form of a recording that its family is told from.
#[derive(Clone, Debug)]
pub(super) struct Form {
    recorded: Arc<Program>,
    looped: Option<Arc<Looped>>,
}

impl Form {
    /// Returns a program as its own form.
    pub(super) fn of(program: Arc<Program>) -> Self {
        Self { recorded: program, looped: None }
    }

    /// Returns the recording.
    pub(super) fn recorded(&self) -> &Arc<Program> {
        &self.recorded
    }

    /// Returns the program.
    pub(super) fn program(&self) -> &Arc<Program> {
        self.looped.as_ref().map_or(&self.recorded, |looped| &looped.program)
    }

    /// Returns the values of the program's slots, from those of the recording.
    pub(super) fn slots<'s>(&self, recorded: &'s [u64]) -> Cow<'s, [u64]> {
        match &self.looped {
            None => Cow::Borrowed(recorded),
            Some(looped) => Cow::Owned(picked(&looped.bindings.slots, recorded)),
        }
    }

    /// Returns what a parameter of the program is in the recording.
    pub(super) fn parameter(&self, index: u32) -> u32 {
        self.looped.as_ref().map_or(index, |looped| looped.bindings.parameters[index as usize])
    }
}

/// The forms of long recordings; `None` for one that does not repeat.
pub(super) struct Forms(Mutex<LruCache<Arc<Program>, Option<Arc<Looped>>, FxBuildHasher>>);

impl Default for Forms {
    fn default() -> Self {
        Self(Mutex::new(LruCache::with_hasher(MOST_FORMS, FxBuildHasher)))
    }
}

impl Forms {
    /// Returns the form of a recording with these slots. It has loops only if `roundings` are given: the rewrites that
    /// decide where the recording rounds, since a trip of a loop has to round where the ops that it stands for do. They are
    /// made for a form that is not known.
    pub(super) fn of(
        &self,
        recorded: &Arc<Program>,
        slots: &[u64],
        roundings: Option<impl FnOnce() -> Pipeline>,
    ) -> Form {
        let roundings = roundings.filter(|_| recorded.graph().len() >= LEAST_NODES);
        let looped = roundings.and_then(|roundings| self.looped(recorded, slots, roundings));
        Form { recorded: Arc::clone(recorded), looped }
    }

    fn looped(
        &self,
        recorded: &Arc<Program>,
        slots: &[u64],
        roundings: impl FnOnce() -> Pipeline,
    ) -> Option<Arc<Looped>> {
        let known = self.0.lock().get(recorded).cloned();
        let assumptions = match &known {
            None => SlotAssumptions::all(recorded, slots),
            Some(Some(looped)) if !looped.assumptions.hold(slots) => looped.assumptions.still_true(slots),
            Some(known) => return known.clone(),
        };
        let looped = Looped::of(recorded, assumptions, &roundings()).unwrap_or_else(|error| {
            tracing::error!("a bug of burn-tpu: a recording gets no loops: {error}");
            None
        });
        let looped = looped.map(Arc::new);
        self.0.lock().put(Arc::clone(recorded), looped.clone());
        looped
    }
}

impl Looped {
    /// Returns a recording with loops, if it repeats. It repeats only where the places of slices are constants, and where
    /// scalars that each trip has are one.
    fn of(recorded: &Program, assumptions: SlotAssumptions, roundings: &Pipeline) -> Result<Option<Self>> {
        let bug = |error: &dyn std::fmt::Display| TpuError::Bug(error.to_string());
        let assumed = assumptions.applied_to(recorded).map_err(|error| bug(&error))?;
        let rounded = roundings.run(assumed).map_err(|error| bug(&error))?;
        let rolled = Roll.run(&rounded.program).map_err(|error| bug(&error))?;
        if rolled.count == 0 {
            return Ok(None);
        }
        let canonical = Program::canonical(rolled.program.graph(), rolled.program.outputs());
        let (program, bindings) = canonical.map_err(|error| bug(&error))?;
        Ok(Some(Self { program: Arc::new(program), bindings, assumptions }))
    }
}
