//! Burn 0.22 on Google TPUs, through XLA and the PJRT C API.
//!
//! From Burn 0.22 on, a tensor does not name its backend, and programs choose a device, from those of Burn's own backends.
//! [`Tpu`] gets into a program in one of two ways:
//!
//! - *In process.* The package in `slots/burn-0.22` stands where Burn looks for its backend burn-flex, and is this crate. A
//!   line of the program's manifest chooses it, and `Device::default()` is a TPU.
//! - *Through a server* of Burn's remote protocol, which hosts any backend that implements
//!   [`BackendIr`](burn_ir::BackendIr): `burn-tpu serve`. The program then says `Device::remote(..)`.
//!
//! ```
//! use burn_backend::{Backend, TensorData, TensorMetadata, ops::FloatTensorOps, try_read_sync};
//! use burn_tpu_0_22::{Tpu, TpuDevice};
//!
//! let device = TpuDevice::ndarray();
//! let x = Tpu::float_from_data(TensorData::from([1.0f32, 2.0]), &device);
//! let y = Tpu::float_add(x.clone(), x);
//! assert_eq!(y.device().to_string(), "ndarray:0");
//! let read = try_read_sync(Tpu::float_into_data(y)).expect("a read needs no other future").unwrap();
//! assert_eq!(read.try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
//! ```
//!
//! # This crate
//!
//! It owns what Burn 0.22.1 has of its own: the backend and device types, handles, and `version.rs`, which says where its
//! operations differ from those of 0.21. The operations themselves, thin methods over the crate `burn-tpu-runtime`, are
//! the sources of the crate `burn-tpu`, which this one compiles against Burn 0.22.1 (`docs/burn-versions.md`).
//!
//! It may not know: how programs are recorded, cached, compiled or run; the protocol and its transports.
#![forbid(unsafe_code)]

pub use buckets::{Buckets, BucketsError};
pub use burn_tpu_runtime::{Device, Mesh, Metrics, Platform, TpuError, TpuOptions};
pub use device::TpuDevice;
pub use qtensor::TpuQTensor;
pub use server::{MARK_STEP, follow_client_threads, mark_step};
pub use tensor::TpuTensor;

mod backend;
#[path = "../../../burn-tpu/src/buckets.rs"]
mod buckets;
mod device;
#[path = "../../../burn-tpu/src/dtype.rs"]
mod dtype;
#[path = "../../../burn-tpu/src/error.rs"]
mod error;
pub mod fft;
mod ir;
#[path = "../../../burn-tpu/src/ops/mod.rs"]
mod ops;
mod qtensor;
mod server;
mod since_0_22;
mod tensor;
#[path = "../../../burn-tpu/src/tensor_parts.rs"]
mod tensor_parts;
#[path = "../../../burn-tpu/src/tickets.rs"]
pub mod tickets;
#[path = "../../../burn-tpu/src/until_0_22.rs"]
mod until_0_22;
mod version;

/// The TPU backend of Burn 0.22. A tensor has any element type; what a device prefers is in its
/// [`defaults`](burn_backend::DeviceOps::defaults).
pub type Tpu = backend::Tpu;
