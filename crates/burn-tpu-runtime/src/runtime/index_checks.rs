//! Computed indices that wait for the check of their range.
//!
//! With [`IndexChecks::All`](crate::IndexChecks::All), an op that takes indices also records their extremes. Those are
//! results of the program that computes the op. They are compared with the range at the next read or sync of the device, by
//! whichever thread, or at the next mark step, whose error the next read or sync returns.

use super::DeviceRuntime;
use crate::engine::{Input, SharedBuffer};
use crate::error::{Result, TpuError};
use crate::lines::Stack;
use parking_lot::Mutex;

/// The range of an op's indices: from 0 to below the size of the dim that each component of a coordinate addresses.
#[derive(Clone)]
pub(crate) struct IndexRange {
    pub(crate) op: &'static str,
    /// The dim that the first component addresses.
    pub(crate) first_dim: usize,
    pub(crate) sizes: Vec<usize>,
    /// The stack of the op.
    pub(crate) stack: Stack,
}

impl IndexRange {
    /// Returns the error for the first component that is out of range. `extremes` are the smallest index of each component,
    /// then the largest of each.
    pub(crate) fn violation(&self, extremes: &[i64]) -> Option<TpuError> {
        let component = outside(&self.sizes, extremes)?;
        let (size, least, most) = (self.sizes[component], extremes[component], extremes[self.sizes.len() + component]);
        let (op, dim, caller) = (self.op, self.first_dim + component, self.stack.line());
        Some(TpuError::Index { op, dim, size, least, most, caller })
    }
}

/// Returns the first component whose extremes are out of range.
pub(crate) fn outside(sizes: &[usize], extremes: &[i64]) -> Option<usize> {
    let (least, most) = extremes.split_at_checked(sizes.len())?;
    let mut ranges = sizes.iter().zip(least).zip(most);
    ranges.position(|((&size, &least), &most)| least < 0 || usize::try_from(most).is_ok_and(|most| most >= size))
}

/// Returns the extremes of an op's indices as `i64[2 * components]`; `None` while they wait for a cut.
pub(crate) type Extremes = Box<dyn Fn() -> Option<Input> + Send + Sync>;

/// The checks of one device.
#[derive(Default)]
pub(crate) struct IndexCheckQueue {
    /// The extremes with their ranges, oldest first.
    waiting: Mutex<Vec<(Extremes, IndexRange)>>,
    /// What a mark step found.
    failed: Mutex<Option<TpuError>>,
}

impl DeviceRuntime {
    /// Adds a check, to be done when its program has run.
    pub(crate) fn check_later(&self, extremes: Extremes, range: IndexRange) {
        self.index_checks.waiting.lock().push((extremes, range));
    }

    /// Compares the indices of all programs that were dispatched with their ranges, and waits for these programs.
    ///
    /// # Errors
    /// [`TpuError::Index`] for the oldest violation, once.
    pub(crate) fn check_indices(&self) -> Result<()> {
        let computed: Vec<_> = {
            let mut waiting = self.index_checks.waiting.lock();
            waiting.extract_if(.., |(extremes, _)| extremes().is_some()).collect()
        };
        let found = computed.iter().find_map(|(extremes, range)| match extremes() {
            Some(Ok(buffer)) => range.violation(&self.integers(&buffer)?),
            // The read of the op's own result reports why nothing was computed.
            _ => None,
        });
        self.index_checks.failed.lock().take().or(found).map_or(Ok(()), Err)
    }

    /// [`DeviceRuntime::check_indices`] where no error can be returned: it is logged, and the next read or sync returns it.
    pub(crate) fn note_index_errors(&self) {
        if let Err(error) = self.check_indices() {
            tracing::error!(device = %self.open().device, %error, "an earlier step used an index that is out of range");
            *self.index_checks.failed.lock() = Some(error);
        }
    }

    fn integers(&self, buffer: &SharedBuffer) -> Option<Vec<i64>> {
        let bytes = self.open().download(buffer).ok()?;
        Some(bytes.as_ref().as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect())
    }
}
