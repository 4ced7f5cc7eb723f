//! The program of a family for one bucket of each varying size.
//!
//! Owns: what is known of a bucket. May not know: which bucket is chosen.

use crate::activity::describe;
use burn_tpu_graph::family::{Family, Padded};
use burn_tpu_graph::{Program, TensorType};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A family's program for one bucket of each varying size.
pub(in crate::runtime) struct Bucket {
    /// The program, without a placement.
    pub(in crate::runtime) program: Arc<Program>,
    pub(super) padded: Padded,
    /// The bucket of each varying size.
    pub(super) sizes: Vec<i64>,
    /// A program of the family.
    pub(super) like: Arc<Program>,
    /// The element operations of a run.
    pub(super) work: u64,
    /// The elements of all values of a program of the family in buffers of the bucket.
    pub(super) elements: u64,
    /// The bytes of the arguments.
    pub(super) bytes: u64,
    /// The number of slots before the varying sizes.
    pub(super) slots: usize,
    /// Whether it had no room in the device's memory.
    pub(super) is_too_large: AtomicBool,
}

impl Bucket {
    /// Returns the program for a bucket of each varying size of a family whose programs have so many slots.
    ///
    /// # Errors
    /// The op that has no exact form for a size that varies.
    pub(super) fn of(family: &Family, sizes: &[i64], slots: usize) -> burn_tpu_graph::Result<Self> {
        let padded = family.padded(sizes, slots as u32)?;
        let program = Arc::clone(&padded.program);
        Ok(Self {
            work: program.summary().work,
            elements: family.elements(sizes),
            bytes: program.parameters().map(|(_, ty)| ty.bytes() as u64).sum(),
            program,
            padded,
            sizes: sizes.to_vec(),
            like: Arc::clone(family.program()),
            slots,
            is_too_large: AtomicBool::new(false),
        })
    }

    /// Returns the program's parameters: the index in the family's program, and the type of the buffer.
    pub(in crate::runtime) fn parameters(&self) -> impl Iterator<Item = (u32, &TensorType)> {
        let recorded = &self.padded.bindings.parameters;
        self.program.parameters().map(|(index, ty)| (recorded[index as usize], ty))
    }

    /// Returns whether it does not fit into the device's memory.
    pub(in crate::runtime) fn is_left_out(&self) -> bool {
        self.is_too_large.load(Relaxed)
    }
}

impl std::fmt::Display for Bucket {
    /// `family of programs like 3fa2b1c4d5e6f708 (5 nodes, float_mul, float_add), bucket [64]`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let like = describe(&self.like);
        write!(f, "family of programs like {}, bucket {:?}", like.trim_start_matches("program "), self.sizes)
    }
}
