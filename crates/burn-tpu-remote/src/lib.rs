//! Burn 0.22 on Google TPUs, through XLA and the PJRT C API: the backend that a server of Burn's remote protocol hosts.
//!
//! From Burn 0.22 on, a tensor does not name its backend, and programs choose a device. The way for a backend from outside is
//! `burn_remote::server::BackendServer`, which serves any backend that implements [`BackendIr`](burn_ir::BackendIr); a Burn
//! program then says `Device::remote(..)`. [`Tpu`] is such a backend. `burn-tpu serve` is a server of it.
//!
//! ```
//! use burn_backend::{Backend, TensorData, TensorMetadata, ops::FloatTensorOps, try_read_sync};
//! use burn_tpu_remote::{Device, Tpu, TpuDevice};
//!
//! let device = TpuDevice::from(Device::ndarray());
//! let x = Tpu::float_from_data(TensorData::from([1.0f32, 2.0]), &device);
//! let y = Tpu::float_add(x.clone(), x);
//! assert_eq!(y.device().to_string(), "ndarray:0");
//! let read = try_read_sync(Tpu::float_into_data(y)).expect("a read needs no other future").unwrap();
//! assert_eq!(read.try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
//! ```
//!
//! # This crate
//!
//! It owns the traits of Burn 0.22.1 as thin methods over the crate `burn-tpu-runtime`, which has all that is computed. The
//! crate `burn-tpu` does the same for Burn 0.21: the files of `ops/` have the same names and the same order in both, so a
//! diff of the two folders shows what differs between the two versions of Burn (`docs/burn-versions.md`).
//!
//! It may not know: how programs are recorded, cached, compiled or run; the protocol and its transports.
#![forbid(unsafe_code)]

pub use backend::Tpu;
pub use burn_tpu_runtime::{Device, Mesh, Metrics, Platform, TpuError, TpuOptions};
pub use device::TpuDevice;
pub use qtensor::TpuQTensor;
pub use server::{MARK_STEP, follow_client_threads, mark_step};
pub use tensor::TpuTensor;

mod backend;
mod device;
mod dtype;
mod error;
mod ir;
mod ops;
mod qtensor;
mod server;
mod tensor;
