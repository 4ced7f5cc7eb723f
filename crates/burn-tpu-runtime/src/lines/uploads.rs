//! The lines that first uploaded host data of each type: a program that is compiled for a new type of input names it too.

use super::Stack;
use burn_tpu_graph::TensorType;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// The number of types whose line is remembered. A program with more types has no input of a fixed type, and a capture takes
/// longer after each compile.
const MOST_TYPES: usize = 256;

/// The first upload of each element type and dims, of the first [`MOST_TYPES`].
#[derive(Default)]
pub(crate) struct UploadLines(Mutex<FxHashMap<TensorType, Stack>>);

impl UploadLines {
    /// Notes that the calling thread uploads host data. The stack is captured for a new type alone.
    pub(crate) fn note(&self, ty: &TensorType) {
        let mut lines = self.0.lock();
        if lines.len() < MOST_TYPES && !lines.contains_key(ty) {
            lines.insert(ty.clone(), Stack::capture());
        }
    }

    /// Notes that a value of a type is on the device in a buffer of a larger one, which has the same line.
    pub(crate) fn note_larger(&self, ty: &TensorType, larger: &TensorType) {
        let mut lines = self.0.lock();
        if lines.len() >= MOST_TYPES || lines.contains_key(larger) {
            return;
        }
        if let Some(stack) = lines.get(ty).cloned() {
            lines.insert(larger.clone(), stack);
        }
    }

    /// Returns the line of the first upload of a type, if there was one.
    pub(crate) fn line(&self, ty: &TensorType) -> Option<String> {
        let stack = self.0.lock().get(ty).cloned();
        stack.map(|stack| stack.line())
    }
}
