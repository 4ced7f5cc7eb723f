//! A Burn backend that trains and serves models on Google TPUs, through XLA and the PJRT C API.
//!
//! [`Tpu`] is a Burn backend like any other: name it, or `Autodiff<Tpu>`, as the backend of native Burn modules. Tensor ops
//! are recorded; a mark step (or a read) turns what was recorded into one program, compiled by XLA once and found in a
//! cache ever after. The same program runs on TPUs, on NVIDIA GPUs and on the host's processor, whichever PJRT plugin is
//! there, and on burn-ndarray without any.
//!
//! Owns: Burn 0.21's traits, as thin methods over the crate `burn-tpu-runtime`, and what wraps Burn's own types: optimizers
//! ([`MarkStep`], [`MasterWeights`]), [`Buckets`], the closures of [`fit`]. May not know: how programs are recorded,
//! cached, compiled or run.
#![forbid(unsafe_code)]

mod backend;
mod buckets;
mod device;
mod dtype;
mod error;
pub mod fit;
mod ops;
mod optim;
mod qtensor;
mod tensor;

pub use backend::{Tpu, TpuFloat, TpuInt};
pub use buckets::Buckets;
pub use burn_tpu_runtime::{
    CutReason, FallbackPolicy, Fault, Generation, InStream, Metrics, Platform, Recompile, RecompileCause, Result,
    Stream, Topology, TpuError, TpuOptions,
};
pub use device::TpuDevice;
pub use optim::{MarkStep, MasterState, MasterWeights};
pub use qtensor::TpuQTensor;
pub use tensor::TpuTensor;

/// The same as [`TpuDevice::mark_step`].
pub fn mark_step(device: &TpuDevice) {
    device.mark_step();
}

/// The same as [`TpuDevice::metrics`].
pub fn metrics(device: &TpuDevice) -> Metrics {
    device.metrics()
}

/// The same as [`TpuDevice::freeze`].
pub fn freeze(device: &TpuDevice) {
    device.freeze();
}

/// The same as [`TpuDevice::unfreeze`].
pub fn unfreeze(device: &TpuDevice) {
    device.unfreeze();
}

/// The same as [`TpuDevice::program_keys`].
pub fn program_keys(device: &TpuDevice) -> Vec<u64> {
    device.program_keys()
}
