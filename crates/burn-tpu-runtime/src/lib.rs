//! The runtime of burn-tpu, free of Burn: tensors that are recorded, cut into programs, compiled once and run.
//!
//! Owns: traces and where they are cut, engines (PJRT plugins, ahead-of-time compiles for TPU slices, the interpreter), the
//! program caches, options, metrics, devices, errors, and the compositions of tensor operations ([`ops`]) in terms of graph
//! nodes and plain types. A front end, such as the crate `burn-tpu`, maps a framework's traits to them.
//!
//! May not know: any trait or type of a framework above it, StableHLO text (`burn-tpu-graph`), raw PJRT structs
//! (`burn-tpu-pjrt`). It depends on no crate of Burn.
//!
//! ```
//! use burn_tpu_runtime::graph::{DType, TensorType, op::BinaryOp};
//! use burn_tpu_runtime::{Device, ops::{arithmetic, data}};
//! let device = Device::ndarray();
//! let bytes: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
//! let x = data::from_bytes("x", TensorType::new(DType::F32, [2]), bytes, &device);
//! let sum = arithmetic::binary("add", BinaryOp::Add, x.clone(), x);
//! assert_eq!(data::into_bytes(&sum)?, [2.0f32, 4.0].map(f32::to_le_bytes).concat());
//! # Ok::<(), burn_tpu_runtime::TpuError>(())
//! ```
#![forbid(unsafe_code)]

mod activity;
mod cache;
pub mod collective;
mod compiled;
mod compiling;
mod control;
pub mod custom_op;
mod device;
pub mod distributed;
mod engine;
mod error;
pub mod fit;
mod function;
pub mod layers;
pub mod leaves;
mod lines;
mod memory;
mod metrics;
mod numerics;
pub mod ops;
mod options;
pub mod placement;
mod profile;
mod program;
mod recompile;
mod recording;
mod region;
mod runtime;
pub mod step;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;
mod units;
mod warnings;

pub use activity::{Activity, RunningProgram, Wait, WaitFor};
pub use burn_tpu_fusion::{Optimization, Rewrite};
pub use burn_tpu_graph as graph;
pub use burn_tpu_graph::op::Precision;
pub use burn_tpu_kernels as kernels;
#[doc(hidden)]
pub use burn_tpu_pjrt::xla_flag_environment;
pub use burn_tpu_profile::{OpCost, PhaseCost, ProfileFiles, ProfileReport};
pub use compiled::Compiled;
pub use control::{end_step, local_devices, profile};
pub use device::{Device, Generation, Mesh, Platform, Topology};
pub use engine::external::{ExternalEngine, provide_xla_rs};
pub use error::{Fault, NonFinite, NonFiniteOp, NotFinite, Result, TpuError};
pub use function::{Function, RecordedFunction};
pub use lines::StepPart;
pub use memory::{LiveTensors, MemoryKind, MemoryUse, OutOfMemory, PluginMemory};
pub use metrics::{CutReason, Metrics, Recompile, RecompileCause};
pub use options::{ChosenOptions, FallbackPolicy, IndexChecks, ProfileSteps, ShapeBuckets, TpuOptions};
pub use profile::Profile;
pub use region::{Part, Region};
pub use runtime::MemoryReport;
pub use trace::{InStream, Recorder, Stream, Tensor, begin_with, create, record, record_many};
pub use trace::{scoped_precision, with_precision};
