//! Burn 0.23 on Google TPUs, through XLA and the PJRT C API.
//!
//! From Burn 0.22 on, a tensor does not name its backend, and programs choose a device, from those of Burn's own backends.
//! [`Tpu`] gets into a program of Burn 0.23 in one of two ways:
//!
//! - *The slot.* The package in `slots/burn-0.23` has the name of Burn's backend burn-flex, and is this crate. A line of the
//!   program's manifest chooses it, and `Device::default()` is a TPU.
//! - *A group of one device*, of burn-group, which takes any backend that implements [`BackendIr`](burn_ir::BackendIr):
//!   `GroupDevice::new::<Tpu>(&[TpuDevice::default()])`. It needs no such line, and an op costs more.
//!
//! # This crate
//!
//! It owns what Burn 0.23 has of its own: `version.rs`, which says where its operations differ from those of other
//! versions, and the collectives. Everything else is a source of another crate, compiled against Burn 0.23: the operations
//! are those of `burn-tpu`, thin methods over the crate `burn-tpu-runtime`; devices, tensors and handles those of
//! `burn-tpu-0-22` (`docs/burn-versions.md`).
//!
//! It may not know: how programs are recorded, cached, compiled or run.
#![forbid(unsafe_code)]

pub use buckets::{Buckets, BucketsError};
pub use burn_tpu_runtime::{Device, Mesh, Metrics, Platform, TpuError, TpuOptions};
pub use device::TpuDevice;
pub use host_elements::{Layout, StorageMut};
pub use qtensor::TpuQTensor;
pub use server::{MARK_STEP, follow_client_threads, mark_step};
pub use tensor::TpuTensor;

#[path = "../../../../crates/burn-tpu-0-22/src/backend.rs"]
mod backend;
#[path = "../../../../burn-tpu/src/buckets.rs"]
mod buckets;
mod collective;
#[path = "../../../../crates/burn-tpu-0-22/src/device.rs"]
mod device;
#[path = "../../../../burn-tpu/src/dtype.rs"]
mod dtype;
#[path = "../../../../burn-tpu/src/error.rs"]
mod error;
#[path = "../../../../crates/burn-tpu-0-22/src/fft.rs"]
pub mod fft;
mod host_elements;
#[path = "../../../../crates/burn-tpu-0-22/src/ir.rs"]
mod ir;
#[path = "../../../../burn-tpu/src/ops/mod.rs"]
mod ops;
#[path = "../../../../crates/burn-tpu-0-22/src/qtensor.rs"]
mod qtensor;
#[path = "../../../../crates/burn-tpu-0-22/src/server.rs"]
mod server;
#[path = "../../../../crates/burn-tpu-0-22/src/since_0_22.rs"]
mod since_0_22;
#[path = "../../../../crates/burn-tpu-0-22/src/tensor.rs"]
mod tensor;
#[path = "../../../../burn-tpu/src/tensor_parts.rs"]
mod tensor_parts;
#[path = "../../../../burn-tpu/src/tickets.rs"]
pub mod tickets;
mod version;

/// The TPU backend of Burn 0.23. A tensor has any element type; what a device prefers is in its
/// [`defaults`](burn_backend::DeviceOps::defaults).
pub type Tpu = backend::Tpu;
