//! Saves checkpoints while the run goes on, and finds the newest intact one.
//!
//! Owns the lock of the place, the thread that writes, and what the processes of a run agree on. At most one checkpoint
//! is being written, so at most one is in the host's memory.

use crate::checkpoint::Checkpoint;
use crate::error::{CheckpointError, Damage, Result};
use crate::restored::Restored;
use crate::retention::Retention;
use crate::storage::{self, Draft, Retrying};
use crate::writing::Saving;
use burn_tpu::distributed::{self, Exchange};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

/// The checkpoints that stay unless [`Checkpointer::keep_last`] sets another number.
const KEPT: usize = 3;

/// What begins the answer of process 0 if it failed.
const FAILED: &str = "failed ";

/// Saves checkpoints of a run, and restores the newest one. See the [crate](crate).
///
/// One run saves to a folder at a time. Of several processes that run the same program ([`burn_tpu::distributed`]),
/// each writes a share and reads what it needs; all of them call the same methods in the same order, on one folder.
#[derive(Debug)]
pub struct Checkpointer {
    storage: Arc<Retrying>,
    /// Held open: it is the lock. `None` in other processes than the first, and where there are no locks.
    _lock: Option<File>,
    retention: Retention,
    process: usize,
    processes: usize,
    /// Of the threads that write, and of [`Checkpointer::restore`]; `None` in a process that is alone.
    saves: Option<Arc<Exchange>>,
    restores: Option<Exchange>,
    /// Differs from run to run.
    run: String,
    /// The saves that were begun.
    begun: u64,
    /// The checkpoint that is being written.
    running: Option<JoinHandle<Result<()>>>,
}

impl Checkpointer {
    /// Opens a folder of checkpoints, which is created if it is not there, or, with the features `s3` and `gs`, a place
    /// in a bucket: `s3://bucket/runs/7`, `gs://bucket/runs/7`. What a run that was killed has not finished writing is
    /// removed.
    ///
    /// A bucket has no lock: give each run a place of its own.
    ///
    /// # Errors
    /// [`CheckpointError::InUse`] if another run saves to it, [`CheckpointError::File`] if it cannot be written,
    /// [`CheckpointError::Process`] if process 0 cannot open it, [`CheckpointError::Device`] if a process is missing.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::of(storage::open(folder.as_ref(), true)?)
    }

    pub(crate) fn of(storage: Retrying) -> Result<Self> {
        let (process, processes) = (distributed::process_index()?, distributed::process_count()?);
        let (saves, restores) = (Exchange::join()?.map(Arc::new), Exchange::join()?);
        let mut lock = None;
        let first = || {
            lock = storage.lock()?;
            storage.remove_left_overs()?;
            Ok(run_name())
        };
        let run = first_process(saves.as_deref(), process, "the folder of checkpoints", first)?;
        let retention = Retention { last: KEPT, every: None };
        let storage = Arc::new(storage);
        Ok(Self { storage, _lock: lock, retention, process, processes, saves, restores, run, begun: 0, running: None })
    }

    /// Sets how many of the newest checkpoints stay: 3 by default, at least 1.
    pub fn keep_last(mut self, checkpoints: usize) -> Self {
        self.retention.last = checkpoints.max(1);
        self
    }

    /// Also keeps the checkpoints whose steps are multiples of this number.
    pub fn keep_every(mut self, steps: u64) -> Self {
        self.retention.every = Some(steps).filter(|&steps| steps > 0);
        self
    }

    /// Returns the folder, or the URL.
    pub fn folder(&self) -> &Path {
        self.storage.root()
    }

    /// Returns the steps of the checkpoints that are there, ascending; the newest may still be damaged.
    ///
    /// # Errors
    /// [`CheckpointError::File`] if they cannot be listed.
    pub fn steps(&self) -> Result<Vec<u64>> {
        self.storage.steps()
    }

    /// Saves a checkpoint while the run goes on: returns as soon as a thread has begun to copy the tensors to the host
    /// and to write them. If the checkpoint before this one is still being written, waits for it first.
    ///
    /// Call it between two steps, in every process. It ends the step ([`burn_tpu::mark_step`]) on the devices of the
    /// tensors. Until a tensor is copied, the next step cannot reuse its memory.
    ///
    /// # Errors
    /// That of the checkpoint before this one, of which nothing is left then: this one was not begun, and a further
    /// call saves. Those of a part that cannot be captured.
    pub fn save(&mut self, checkpoint: Checkpoint) -> Result<()> {
        self.wait()?;
        let checkpoint = checkpoint.captured()?;
        let attempt = format!("{}-{}", self.run, self.begun);
        self.begun += 1;
        let saving = Saving {
            storage: Arc::clone(&self.storage),
            exchange: self.saves.clone(),
            process: self.process,
            processes: self.processes,
            draft: Draft { entry: storage::entry(checkpoint.step), attempt },
            retention: self.retention,
        };
        let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(move || saving.run(checkpoint));
        self.running = Some(thread.map_err(CheckpointError::file("start a thread for", self.storage.root()))?);
        Ok(())
    }

    /// Waits until the checkpoint that is being written is on the disk, with the shares of all processes.
    ///
    /// # Errors
    /// Why it is not, with the process and the file; the checkpoints before it are as they were.
    pub fn wait(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let panicked = |_| Err(CheckpointError::Bug("the thread that writes panicked".to_owned()));
        running.join().unwrap_or_else(panicked)
    }

    /// Returns the newest intact checkpoint; `None` if there is none at all. A damaged one that is newer is named by a
    /// warning and stays where it is.
    ///
    /// A process that is alone reads every byte of it for that. Of several processes, the first one looks whether all
    /// files are there with their sizes, and all get the same checkpoint; a byte that changed is an error where it is
    /// loaded, or of [`Restored::verify`].
    ///
    /// # Errors
    /// [`CheckpointError::NoneIntact`] if there are checkpoints and all are damaged, [`CheckpointError::Version`] if
    /// the newest has another format, which is no damage; [`CheckpointError::Process`] if process 0 failed.
    pub fn restore(&self) -> Result<Option<Restored>> {
        let mut newest = None;
        let first = || {
            newest = self.newest()?;
            Ok(newest.as_ref().map_or_else(String::new, |found| storage::entry(found.step())))
        };
        let entry = first_process(self.restores.as_ref(), self.process, "the newest checkpoint", first)?;
        match entry.is_empty() || newest.is_some() {
            true => Ok(newest),
            false => Restored::open(Arc::clone(&self.storage), &entry).map(Some),
        }
    }

    fn newest(&self) -> Result<Option<Restored>> {
        let mut damaged = Vec::new();
        for step in self.storage.steps()?.into_iter().rev() {
            let found = Restored::open(Arc::clone(&self.storage), &storage::entry(step));
            let found =
                found.and_then(|found| if self.processes == 1 { found.verify().map(|()| found) } else { Ok(found) });
            match found {
                Ok(restored) => return Ok(Some(restored)),
                Err(CheckpointError::Damaged(damage)) => {
                    tracing::warn!("the checkpoint {damage}; trying the one before it");
                    damaged.push(damage);
                }
                Err(error) => return Err(error),
            }
        }
        match damaged.is_empty() {
            true => Ok(None),
            false => Err(none_intact(self.storage.root(), damaged)),
        }
    }
}

fn none_intact(folder: &Path, damaged: Vec<Damage>) -> CheckpointError {
    CheckpointError::NoneIntact { folder: PathBuf::from(folder), damaged }
}

/// Returns what process 0 finds, in every process.
fn first_process(
    exchange: Option<&Exchange>,
    process: usize,
    what: &str,
    find: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let Some(exchange) = exchange else { return find() };
    let mut own = if process == 0 { Some(find()) } else { None };
    let answer = exchange.round(
        "",
        |_| what.to_owned(),
        |_| match &own {
            Some(Ok(found)) => found.clone(),
            Some(Err(error)) => format!("{FAILED}{error}"),
            None => String::new(),
        },
    );
    if let Some(Err(error)) = own.take_if(|own| own.is_err()) {
        return Err(error);
    }
    let answer = answer?;
    match answer.strip_prefix(FAILED) {
        Some(error) => {
            let count = distributed::process_count()?;
            Err(CheckpointError::Process { process: 0, count, error: error.to_owned() })
        }
        None => Ok(answer),
    }
}

/// Returns a name that no earlier run has.
fn run_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{}", now.as_micros(), std::process::id())
}

/// Waits for the checkpoint that is being written.
impl Drop for Checkpointer {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            tracing::error!(%error, "the last checkpoint was not saved");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::testing::gated;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Tensor;
    use burn_tpu::{Tpu, TpuDevice};

    type B = Tpu<f32>;

    /// The files of a checkpoint of one model.
    const FILES: usize = 2;

    fn model(value: f32, device: &TpuDevice) -> Linear<B> {
        let model = LinearConfig::new(8, 4).with_bias(false).init(device);
        Linear { weight: burn::module::Param::from_tensor(Tensor::full([8, 4], value, device)), ..model }
    }

    #[test]
    fn the_run_goes_on_while_files_are_written_and_the_next_save_waits() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, gate) = gated(folder.path());
        let mut checkpoints = Checkpointer::of(storage).unwrap();
        let device = TpuDevice::ndarray();
        let save = |checkpoints: &mut Checkpointer, step: u64| {
            checkpoints.save(Checkpoint::new(step).model("model", &model(step as f32, &device))).unwrap();
        };
        save(&mut checkpoints, 1);
        gate.wait_for(1);
        // As many steps as one likes, with nothing on the disk.
        let sum: f32 = (0..20).map(|step| model(step as f32, &device).weight.val().sum().into_scalar()).sum();
        assert_eq!((sum, gate.begun(), checkpoints.steps().unwrap()), (32.0 * 190.0, 1, vec![]));
        std::thread::scope(|threads| {
            let second = threads.spawn(|| save(&mut checkpoints, 2));
            // It has not begun: the first one waits for its first file.
            assert_eq!((gate.begun(), second.is_finished()), (1, false));
            gate.let_through(FILES);
            gate.wait_for(FILES + 1);
            second.join().unwrap();
        });
        assert_eq!((gate.begun(), checkpoints.steps().unwrap()), (FILES + 1, vec![1]));
        gate.let_through(FILES);
        checkpoints.wait().unwrap();
        let saved = checkpoints.restore().unwrap().unwrap();
        let weight = saved.model("model", model(0.0, &device)).unwrap().weight.val().into_data();
        assert_eq!((checkpoints.steps().unwrap(), weight), (vec![1, 2], model(2.0, &device).weight.val().into_data()));
        assert_eq!(saved.bytes_read(), 8 * 4 * 4);
    }
}
