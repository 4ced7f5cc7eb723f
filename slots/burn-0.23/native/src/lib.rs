//! burn-tpu for programs of Burn 0.23 in one process, where the slot is (`docs/from-burn-0.22.md`).
//!
//! | to | use |
//! |---|---|
//! | name a device | [`TpuDevice`], on a [`Platform`] |
//! | train | [`TpuOptimizer`] around the optimizer: it ends each step, and keeps f32 master weights for bf16 weights |
//! | compute f32 parameters in bf16 or f16 | [`autocast`], [`autocast_to`] |
//! | keep small gradients in f16 | [`LossScaler`], which a [`LossScaling`] configures |
//! | serve a model, or decode, without recording | [`compile`] returns a [`Compiled`] function |
//! | train without recording each step | [`compile_step`] returns a [`CompiledStep`], which a [`DeviceOptimizer`] updates |
//! | train on many chips | [`TpuDevice::mesh`] of a [`Mesh`]; [`place`] parameters by a [`PlacementRule`]; [`shard`] activations |
//! | compute activations again instead of keeping them | [`Checkpoints`] |
//! | record and compile equal layers once | [`Layers`]; [`Keep`] and [`keep`] say what is kept for its backward pass |
//! | run a kernel or StableHLO text of your own | [`custom_op`] returns a [`CustomOp`]; [`CustomForm`], [`CustomPartition`], [`OpTensors`], [`kernels`] |
//! | see where the time of some steps goes | [`profile`] returns a [`Profile`] with its [`ProfileReport`] |
//! | know whether a step fits a TPU, without one | [`fit`] |
//! | pad data of many lengths to a few sizes | [`Buckets`] |
//! | take records apart without reading their tensors | [`tickets`] |
//!
//! A manifest may give it the name that it has for Burn 0.21, so that the program's imports stay what they were:
//!
//! ```toml
//! burn-tpu = { package = "burn-tpu-native-0-23", path = "…/burn-tpu/slots/burn-0.23/native" }
//! ```
//!
//! It owns `version.rs`. The other sources are those of `burn-tpu-native-0-22`, compiled against Burn 0.23.
#![forbid(unsafe_code)]

#[path = "../../../burn-0.22/native/src/autocast.rs"]
mod autocast;
#[path = "../../../burn-0.22/native/src/checkpoint.rs"]
mod checkpoint;
#[path = "../../../burn-0.22/native/src/compile/mod.rs"]
mod compile;
#[path = "../../../burn-0.22/native/src/custom_op/mod.rs"]
mod custom_op;
/// ```no_run
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_tpu::fit::Fit;
///
/// let report = Fit::new()?.samples(32).run(
///     // Builds what lives from step to step: a model, an optimizer.
///     |tpu| (LinearConfig::new(512, 10).init(&Device::from(*tpu)), None),
///     // Takes that, runs one step, and returns it with everything that the caller would read.
///     |(model, _), tpu| {
///         let x = Tensor::<2>::random([32, 512], Distribution::Default, &Device::from(*tpu));
///         let y = model.forward(x);
///         (model, Some(y))
///     },
/// )?;
/// println!("{report}");
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
#[path = "../../../../burn-tpu/src/fit.rs"]
pub mod fit;
#[path = "../../../burn-0.22/native/src/layers/mod.rs"]
mod layers;
#[path = "../../../burn-0.22/native/src/mesh/mod.rs"]
mod mesh;
#[path = "../../../burn-0.22/native/src/optim/mod.rs"]
mod optim;
#[path = "../../../burn-0.22/native/src/tensors.rs"]
mod tensors;
mod version;

pub use backend::{Buckets, BucketsError, TpuDevice, TpuTensor, tickets};
/// Several processes that run the same program: which one this is, and its part of the data.
pub mod distributed {
    pub use burn_tpu_runtime::distributed::*;
    pub use burn_tpu_runtime::{Part, Region};
}
pub use burn_tpu_runtime::{Activity, MemoryKind, MemoryReport, MemoryUse, RunningProgram, Wait, WaitFor};
pub use burn_tpu_runtime::{
    ChosenOptions, CutReason, FallbackPolicy, Fault, Generation, IndexChecks, Mesh, Metrics, Optimization, Platform,
    Precision, Recompile, RecompileCause, Result, ShapeBuckets, Topology, TpuError, TpuOptions, with_precision,
};
pub use burn_tpu_runtime::{OpCost, PhaseCost, Profile, ProfileFiles, ProfileReport, profile};

pub use autocast::{autocast, autocast_to};
pub use burn_tpu_runtime::kernels;
pub use burn_tpu_runtime::layers::Keep;
pub use checkpoint::Checkpoints;
pub use compile::{Compiled, CompiledStep, DeviceAdamW, DeviceOptimizer, compile, compile_step};
pub use custom_op::{CustomForm, CustomOp, CustomPartition, OpTensors, custom_op};
pub use layers::{Layers, keep};
pub use mesh::{Axes, Fsdp, Parameter, Patterns, PlacementRule, Replicate, place, shard};
pub use optim::{LossScaler, LossScalerState, LossScaling, MasterState, MasterWeights, TpuOptimizer, end_step};
