//! A Burn backend that trains and serves models on Google TPUs, through XLA and the PJRT C API.
//!
//! [`Tpu`] is a Burn backend like any other: name it, or `Autodiff<Tpu>`, as the backend of native Burn modules. Tensor ops
//! are recorded and not run. A mark step (or a read) turns what was recorded into one program, which XLA compiles once and
//! a cache holds from then on. The same code runs on TPUs, on NVIDIA GPUs and on the host's processor, with whichever PJRT
//! plugin is installed, and in an interpreter without any.
//!
//! ```
//! use burn::backend::Autodiff;
//! use burn::nn::{LinearConfig, loss::{MseLoss, Reduction}};
//! use burn::optim::{AdamConfig, GradientsParams, Optimizer};
//! use burn::tensor::{Distribution, Tensor};
//! use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
//!
//! type B = Autodiff<Tpu>;
//!
//! let device = TpuDevice::default();
//! let mut model = LinearConfig::new(4, 1).init::<B>(&device);
//! let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
//! let x = Tensor::<B, 2>::random([32, 4], Distribution::Default, &device);
//! let y = x.clone().sum_dim(1);
//! for _ in 0..3 {
//!     let loss = MseLoss::new().forward(model.forward(x.clone()), y.clone(), Reduction::Mean);
//!     let grads = GradientsParams::from_grads(loss.backward(), &model);
//!     // Ends the step: forward, backward and update run as one program.
//!     model = optimizer.step(1e-2, model, grads);
//! }
//! device.sync()?;
//! // A report of compiles, cache hits, transfers and times.
//! println!("{}", device.metrics());
//! # Ok::<(), burn_tpu::TpuError>(())
//! ```
//!
//! # What there is, in the order in which you meet it
//!
//! | to | use |
//! |---|---|
//! | name the backend | [`Tpu`]; in generic code also [`TpuFloat`], [`TpuInt`], [`TpuTensor`], [`TpuQTensor`] |
//! | name a device | [`TpuDevice`], on a [`Platform`] |
//! | train on many chips | [`TpuDevice::mesh`] of a [`Mesh`]; [`place`] parameters by a [`PlacementRule`]: [`Replicate`], [`Fsdp`], [`Patterns`]; [`shard`] activations |
//! | train | [`TpuOptimizer`] around the optimizer: it ends each step, and keeps f32 master weights for bf16 weights |
//! | compute f32 parameters in bf16 or f16 | [`autocast`], [`autocast_to`] on an [`AutocastBackend`] |
//! | keep small gradients in f16 | [`LossScaler`], which a [`LossScaling`] configures; [`LossScalerState`] |
//! | compute activations again instead of keeping them | [`Checkpoints`] on a [`CheckpointBackend`] |
//! | run equal blocks as one loop, recorded and compiled once | [`Layers`] on a [`LayersBackend`]; what its backward pass computes again: [`Keep`], [`keep`] |
//! | end a step without an optimizer | [`TpuDevice::mark_step`] |
//! | serve a model, or decode, without recording | [`compile`] returns a [`Compiled`] function |
//! | train without recording each step | [`compile_step`] returns a [`CompiledStep`], which a [`DeviceOptimizer`] updates |
//! | batch data whose lengths vary | [`Buckets`] |
//! | run a kernel or StableHLO text of your own | [`custom_op`] returns a [`CustomOp`] on a [`CustomOpBackend`]; [`CustomForm`], [`CustomPartition`], [`OpTensors`], [`kernels`] |
//! | load and save weights with burn-store, in bf16 too | `store::CastFloats` (feature `store`) |
//! | set options before the first tensor | [`TpuOptions`], [`FallbackPolicy`], [`IndexChecks`], [`ShapeBuckets`], [`Optimization`], [`Rewrite`], [`Precision`]; [`TpuOptions::VARIABLES`] lists the environment |
//! | handle errors | [`TpuError`], which says whose [`Fault`] it is; [`BucketsError`] |
//! | see what ran, and why it compiled | [`TpuDevice::metrics`] returns [`Metrics`] with [`CutReason`], [`Recompile`], [`RecompileCause`] |
//! | see what a device does now, and what threads wait for | [`TpuDevice::activity`] returns an [`Activity`] with [`RunningProgram`], [`Wait`], [`WaitFor`] |
//! | see what a device's memory holds, and which line keeps it | [`memory`] returns a [`MemoryReport`] with [`MemoryUse`], [`MemoryKind`], [`LiveTensors`], [`PluginMemory`]; [`OutOfMemory`] |
//! | see where the time of some steps goes, by Burn op and line | [`profile`] returns a [`Profile`] with its [`ProfileReport`]; [`ProfileSteps`] |
//! | forbid compiles once a loop is warm | [`TpuDevice::freeze`], [`TpuDevice::unfreeze`]; [`TpuDevice::compile_buckets`] where sizes vary |
//! | know whether a step fits a TPU, without one | [`fit`], [`Topology`], [`Generation`] |
//! | run one program as several processes, on one host or on many | [`distributed`] |
//! | multiply 32-bit floats exactly in a part of a program | [`with_precision`] |
//! | save and restore random numbers | [`TpuDevice::random_state`] returns a [`RandomState`] |
//! | take records apart without reading their tensors | [`tickets`]; the crate `burn-tpu-train` writes checkpoints with them |
//! | record on another stream than the thread's | [`Stream`], [`InStream`] |
//!
//! The functions [`mark_step`], [`memory`], [`metrics`], [`freeze`], [`unfreeze`] and [`program_keys`] do the same as the
//! methods of [`TpuDevice`] of those names.
//!
//! # This crate
//!
//! It owns Burn 0.21's traits, as thin methods over the crate `burn-tpu-runtime`, and what wraps Burn's own types: the
//! optimizers, [`Buckets`], the closures of [`fit`]. It may not know how programs are recorded, cached, compiled or run.
#![forbid(unsafe_code)]

use std::path::Path;

// In the order of the table above.
pub use backend::{Tpu, TpuFloat, TpuInt};
pub use qtensor::TpuQTensor;
pub use tensor::TpuTensor;

pub use burn_tpu_runtime::Platform;
pub use device::{RandomState, TpuDevice};

pub use burn_tpu_runtime::Mesh;
pub use burn_tpu_runtime::placement::{Axes, Fsdp, Parameter, Patterns, PlacementRule, Replicate};
pub use mesh::{MeshBackend, place, shard};

pub use burn_tpu_runtime::step::LossScaling;
pub use optim::{LossScaler, LossScalerState, MasterState, TpuOptimizer, WithMasterWeights};

pub use burn_tpu_runtime::Compiled;
pub use burn_tpu_runtime::step::{DeviceAdamW, DeviceOptimizer};
pub use compile::{CompiledStep, compile, compile_step};

/// ```
/// use burn_tpu::Buckets;
/// let buckets = Buckets::new([32, 64, 128])?;
/// assert_eq!(buckets.size(33)?, 64);
/// assert!(buckets.size(129).is_err());
/// # Ok::<(), burn_tpu::BucketsError>(())
/// ```
pub use buckets::Buckets;
pub use buckets::BucketsError;

pub use burn_tpu_runtime::{
    custom_op::{CustomForm, CustomPartition},
    kernels,
};
pub use custom_op::{CustomOp, CustomOpBackend, OpTensors, custom_op};

pub use autocast::{AutocastBackend, autocast, autocast_to};

pub use checkpoint::{CheckpointBackend, Checkpoints};

pub use burn_tpu_runtime::layers::Keep;
pub use layers::{Layers, LayersBackend, keep};

pub use burn_tpu_runtime::{
    ChosenOptions, FallbackPolicy, Fault, IndexChecks, Optimization, Precision, Result, Rewrite, ShapeBuckets,
    TpuError, TpuOptions, with_precision,
};

pub use burn_tpu_runtime::{NonFinite, NonFiniteOp, NotFinite, StepPart};

pub use burn_tpu_runtime::{CutReason, Metrics, Recompile, RecompileCause};

pub use burn_tpu_runtime::{Activity, RunningProgram, Wait, WaitFor};

pub use burn_tpu_runtime::{LiveTensors, MemoryKind, MemoryReport, MemoryUse, OutOfMemory, PluginMemory};
pub use burn_tpu_runtime::{OpCost, PhaseCost, Profile, ProfileFiles, ProfileReport, ProfileSteps};

/// ```no_run
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Distribution, Tensor};
/// use burn_tpu::{Tpu, fit::Fit};
///
/// let report = Fit::new()?.samples(32).run(
///     // Builds what lives from step to step: a model, an optimizer.
///     |device| (LinearConfig::new(512, 10).init::<Tpu>(device), None),
///     // Takes that, runs one step, and returns it with everything that the caller would read.
///     |(model, _), device| {
///         let x = Tensor::<Tpu, 2>::random([32, 512], Distribution::Default, device);
///         let y = model.forward(x);
///         (model, Some(y))
///     },
/// )?;
/// println!("{report}");
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
pub mod fit;
pub use burn_tpu_runtime::{Generation, Topology};

pub use burn_tpu_runtime::{InStream, Stream};

pub mod distributed;

mod autocast;
mod backend;
mod buckets;
mod checkpoint;
mod compile;
mod custom_op;
#[cfg(feature = "ddp")]
mod ddp;
mod device;
mod dtype;
mod error;
mod layers;
mod mesh;
mod ops;
#[cfg(test)]
mod ops_tests;
mod optim;
mod qtensor;
#[cfg(feature = "store")]
pub mod store;
mod tensor;
mod tensor_parts;
/// ```
/// use burn_core::tensor::{Int, Tensor};
/// use burn_tpu::tickets::{self, Ticket};
/// use burn_tpu::{Tpu, TpuDevice, TpuError};
///
/// type B = Tpu<f32>;
/// let device = TpuDevice::ndarray();
/// let (data, tensors) = tickets::collect(|| Tensor::<B, 1>::from_floats([0.5, 2.0], &device).into_data());
/// assert_eq!(Ticket::of(&data).map(Ticket::index), Some(0));
/// let again = tickets::supply(tensors, || Tensor::<B, 1>::from_data(Ticket::new(0).data(1), &device));
/// assert_eq!(again.into_data().to_vec::<f32>().unwrap(), [0.5, 2.0]);
/// # Ok::<(), TpuError>(())
/// ```
pub mod tickets;
mod until_0_22;
mod version;

/// Runs a closure and writes a profile of it below `folder`: what the host and the device did, and when, with the names of
/// Burn ops and the lines that recorded them. TensorBoard, XProf and Perfetto open its files, and `burn-tpu profile` prints
/// its summary. What was recorded before runs before the profile begins; the profile ends when the device has finished.
///
/// See `docs/profiling.md`. To profile steps of a program that is not changed, set `BURN_TPU_PROFILE=DIR,steps=10..15`.
///
/// # Errors
/// [`TpuError::ProfileRunning`] if the process has a profile running; [`TpuError::Profile`] if its files cannot be written;
/// those of [`TpuDevice::sync`] and of the plugin's profiler. If the closure was run, its result is lost then.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_tpu::{Tpu, TpuDevice};
/// # let folder = std::env::temp_dir().join(format!("burn-tpu-profile-{}", std::process::id()));
/// let device = TpuDevice::default();
/// let (sum, profile) = burn_tpu::profile(&device, &folder, || {
///     Tensor::<Tpu<f32>, 1>::ones([1000], &device).exp().sum().into_scalar()
/// })?;
/// println!("{sum}\n{profile}");
/// assert!(profile.files.xspace.is_file());
/// # std::fs::remove_dir_all(folder).ok();
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
pub fn profile<R>(device: &TpuDevice, folder: impl AsRef<Path>, run: impl FnOnce() -> R) -> Result<(R, Profile)> {
    burn_tpu_runtime::profile(device, folder, run)
}

/// Returns what a device's memory holds: the same as [`TpuDevice::memory`].
pub fn memory(device: &TpuDevice) -> MemoryReport {
    device.memory()
}

/// Ends a step: the same as [`TpuDevice::mark_step`].
pub fn mark_step(device: &TpuDevice) {
    device.mark_step();
}

/// Returns what a device has done: the same as [`TpuDevice::metrics`].
pub fn metrics(device: &TpuDevice) -> Metrics {
    device.metrics()
}

/// Makes later compiles on a device errors: the same as [`TpuDevice::freeze`].
pub fn freeze(device: &TpuDevice) {
    device.freeze();
}

/// Allows compiles again: the same as [`TpuDevice::unfreeze`].
pub fn unfreeze(device: &TpuDevice) {
    device.unfreeze();
}

/// Returns the identities of a device's programs: the same as [`TpuDevice::program_keys`].
pub fn program_keys(device: &TpuDevice) -> Vec<u64> {
    device.program_keys()
}
