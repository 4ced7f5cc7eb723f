//! Where host data of each type came from first: a program that is compiled for a new type of input names this line too.

use super::location::Caller;
use burn_tpu_graph::TensorType;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The number of types whose line is remembered. Later ones have none: a program with more has no input of a fixed type, and
/// each capture takes longer after each compile (see `divergence.rs`).
const MOST_TYPES: usize = 256;

/// The first upload of each element type and dims, of the first [`MOST_TYPES`].
#[derive(Default)]
pub(crate) struct UploadSites(Mutex<FxHashMap<TensorType, Caller>>);

impl UploadSites {
    /// The calling thread uploads host data. The stack is captured for a new type alone.
    pub(crate) fn note(&self, ty: &TensorType) {
        let mut sites = self.0.lock();
        if sites.len() < MOST_TYPES && !sites.contains_key(ty) {
            sites.insert(ty.clone(), Caller::capture());
        }
    }

    /// Returns the line of the first upload of a type, if there was one.
    pub(crate) fn line(&self, ty: &TensorType) -> Option<String> {
        let caller = self.0.lock().get(ty).cloned();
        caller.map(|caller| caller.line())
    }
}
