//! A Burn backend that trains and serves models on Google TPUs, through XLA and the PJRT C API.
//!
//! [`Tpu`] is a Burn backend like any other: name it, or `Autodiff<Tpu>`, as the backend of native Burn modules. Tensor ops
//! are recorded; a mark step (or a read) turns what was recorded into one program, compiled by XLA once and found in a
//! cache ever after. The same program runs on TPUs, on NVIDIA GPUs and on the host's processor, whichever PJRT plugin is
//! there, and on burn-ndarray without any.
#![forbid(unsafe_code)]

mod backend;
mod buckets;
mod cache;
mod compiling;
mod device;
mod dtype;
mod engine;
mod error;
pub mod fit;
mod metrics;
mod ops;
mod optim;
mod options;
mod program;
mod qtensor;
mod recompile;
mod runtime;
mod tensor;
mod topology;
mod trace;

pub use backend::Tpu;
pub use buckets::Buckets;
pub use device::{Platform, TpuDevice};
#[doc(hidden)]
pub use engine::{CPU_COMPILER_FLAGS, interpret_program};
pub use error::{Fault, Result, TpuError};
pub use metrics::{CutReason, Metrics};
pub use optim::{MarkStep, MasterState, MasterWeights};
pub use options::{FallbackPolicy, TpuOptions};
pub use qtensor::TpuQTensor;
pub use recompile::{Recompile, RecompileCause};
pub use tensor::TpuTensor;
pub use topology::{Generation, Topology};
pub use trace::{InStream, Stream};

/// Runs everything that the calling thread has recorded on `device` as one program, without waiting for it.
///
/// The end of a training step is the place for it: with all of a step in one program, XLA fuses across its ops and
/// nothing but the step's results is kept. [`MarkStep`] does this for an optimizer that Burn's `Learner` drives.
///
/// A program that cannot be compiled leaves its work recorded: the error is logged, the tensors keep their values, and the
/// next read or sync tries again and returns it.
pub fn mark_step(device: &TpuDevice) {
    if let Err(error) = trace::cut(*device, CutReason::MarkStep) {
        tracing::error!(%device, %error, "a step did not run; it stays pending, and a read reports the error");
    }
}

/// What a device has done since it started: all zeros for one that was not used yet, which this does not start. Print it
/// for a report.
pub fn metrics(device: &TpuDevice) -> Metrics {
    runtime::metrics(*device)
}

/// Makes every later compile on a device an error, [`TpuError::Frozen`], which says what differs and where. It is the
/// tensors of the refused program that fail.
///
/// Freeze a training or serving loop once it is warm: from then on, nothing can stop for a compile unnoticed. A device that was not used yet is frozen from
/// its start.
pub fn freeze(device: &TpuDevice) {
    runtime::freeze(*device, true);
}

/// Ends [`freeze`].
pub fn unfreeze(device: &TpuDevice) {
    runtime::freeze(*device, false);
}

/// Identities of the programs in a device's cache, ascending. Two runs that recorded the same programs give the same list. It is
/// empty for a device that was not used yet.
pub fn program_keys(device: &TpuDevice) -> Vec<u64> {
    runtime::program_keys(*device)
}
