//! The programs that a device without chips records.

use burn_tpu_graph::Program;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The recorded programs, in the order in which they would have run.
#[derive(Clone, Default)]
pub(crate) struct RecordedPrograms {
    programs: Arc<Mutex<Vec<Arc<Program>>>>,
    /// What layers can keep by a name.
    named: Arc<Mutex<Vec<NamedValues>>>,
    /// What each pass found in a program, by the program's hash.
    rewrites: Arc<Mutex<FxHashMap<[u8; 32], Applied>>>,
    names_lines: bool,
}

/// The values of one name in all layers of a loop, which [`Keep`](crate::layers::Keep) keeps by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedValues {
    /// The name.
    pub name: &'static str,
    /// Their bytes in all layers, on all devices of a mesh together.
    pub bytes: u64,
    /// The floating-point operations of the backward pass that compute them again, in all layers: what keeping them spares,
    /// if the rest of what is kept stays as it is. 0 for what is kept in any case.
    pub flops: u64,
    /// Whether they are kept.
    pub is_kept: bool,
}

/// The number of places that each pass rewrote.
type Applied = Vec<(&'static str, usize)>;

impl RecordedPrograms {
    /// Creates an empty list. `names_lines` says that labels of ops name the lines that recorded them, each for a capture of
    /// the stack.
    pub(crate) fn new(names_lines: bool) -> Self {
        Self { names_lines, ..Self::default() }
    }

    /// Returns whether labels of ops name the lines that recorded them.
    pub(crate) fn names_lines(&self) -> bool {
        self.names_lines
    }

    /// Adds a program that would have run.
    pub(crate) fn push(&self, program: Arc<Program>) {
        self.programs.lock().push(program);
    }

    /// Notes what each pass found in a program.
    pub(crate) fn rewrote(&self, program: &Program, applied: &[(&'static str, usize)]) {
        self.rewrites.lock().insert(program.stable_hash(), applied.to_vec());
    }

    /// Notes what layers can keep.
    pub(crate) fn name(&self, values: Vec<NamedValues>) {
        self.named.lock().extend(values);
    }

    /// Takes the programs that were recorded since the last call, and what their layers can keep.
    pub(crate) fn take(&self) -> (Vec<Arc<Program>>, Vec<NamedValues>) {
        (std::mem::take(&mut *self.programs.lock()), std::mem::take(&mut *self.named.lock()))
    }

    /// Returns the number of places that these programs were rewritten at, by pass. A program that runs twice counts once.
    pub(crate) fn rewrites_of(&self, programs: &[Arc<Program>]) -> BTreeMap<&'static str, usize> {
        let known = self.rewrites.lock();
        let hashes: BTreeSet<_> = programs.iter().map(|program| program.stable_hash()).collect();
        let mut sums = BTreeMap::new();
        for &(pass, count) in hashes.iter().filter_map(|hash| known.get(hash)).flatten().filter(|(_, count)| *count > 0)
        {
            *sums.entry(pass).or_default() += count;
        }
        sums
    }
}
