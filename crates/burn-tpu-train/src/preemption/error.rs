//! Why a process cannot listen for preemption, or cannot stop together with the others.

use burn_tpu::TpuError;

/// An error of [`Preemption`](crate::Preemption).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreemptionError {
    /// There is another `Preemption` in this process.
    #[error("this process listens for preemption already\n  fix: use the first `Preemption`, or drop it before")]
    AlreadyWatching,
    /// The system refused a handler or a thread.
    #[error("SIGTERM and SIGINT cannot be listened for: {0}")]
    Signals(#[from] std::io::Error),
    /// The group of processes cannot be joined, or one of them does not answer.
    #[error(transparent)]
    Processes(#[from] TpuError),
}
