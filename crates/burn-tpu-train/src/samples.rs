//! Where a run is in its data, in samples of all processes, so that another number of processes can go on.

use burn_tpu::{Result, TpuError, distributed};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The position of a run in its data, counted over all processes. Save it with
/// [`Checkpoint::value`](crate::Checkpoint::value): whatever number of processes goes on from the checkpoint, each
/// sample is seen once.
///
/// A batch of all processes has the next samples in their order, of which each process takes an equal part. Samples are
/// counted on over the epochs: of `n` items, sample `i` is item `i % n`, in epoch `i / n`.
///
/// ```
/// use burn_tpu_train::Samples;
/// let mut samples = Samples::default();
/// let mine = samples.next(32)?; // all of them for a process that is alone
/// assert_eq!((mine, samples.seen()), (0..32, 32));
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    seen: u64,
}

impl Samples {
    /// Returns how many samples all processes have taken.
    pub fn seen(self) -> u64 {
        self.seen
    }

    /// Takes the next batch of `batch` samples, and returns those of this process.
    ///
    /// # Errors
    /// [`TpuError::Sharding`] if the batch does not split over the processes; [`TpuError::Option`] for a variable with
    /// an invalid value.
    pub fn next(&mut self, batch: usize) -> Result<Range<u64>> {
        self.next_of(batch, distributed::process_index()?, distributed::process_count()?)
    }

    fn next_of(&mut self, batch: usize, process: usize, processes: usize) -> Result<Range<u64>> {
        if !batch.is_multiple_of(processes) {
            let rule = format!(
                "does not split over {processes} processes; the next number that does is {}",
                batch.next_multiple_of(processes)
            );
            return Err(TpuError::Sharding { what: format!("a batch of {batch} samples"), rule });
        }
        let part = (batch / processes) as u64;
        let begin = self.seen + process as u64 * part;
        self.seen += batch as u64;
        Ok(begin..begin + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_is_taken_once_by_any_numbers_of_processes() {
        let (mut samples, mut taken) = (Samples::default(), Vec::new());
        for processes in [4, 4, 2, 6, 1, 3] {
            let before = samples;
            for process in 0..processes {
                samples = before;
                taken.extend(samples.next_of(12, process, processes).unwrap());
            }
        }
        assert_eq!(taken, (0..72).collect::<Vec<u64>>());
        let error = samples.next_of(12, 0, 5).unwrap_err().to_string();
        assert!(
            error.contains("12 samples") && error.contains("5 processes; the next number that does is 15"),
            "{error}"
        );
        assert_eq!(samples.seen(), 72, "none was taken");
    }
}
