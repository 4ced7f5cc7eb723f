//! Training runs that survive, on top of `burn-tpu`: checkpoints that are complete or absent, preemption, a watchdog, an
//! account of the time, a memory monitor.
//!
//! A [`Checkpointer`] saves what a run is made of, by name: models, optimizers, schedules, random numbers, values of
//! the program's own. Started again, the run goes on where it was, bit for bit.
//!
//! ```
//! use burn::backend::Autodiff;
//! use burn::nn::LinearConfig;
//! use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
//! use burn::tensor::{Distribution, Tensor};
//! use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
//! use burn_tpu_train::{Checkpoint, CheckpointError, Checkpointer};
//!
//! # fn main() -> Result<(), CheckpointError> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! type B = Autodiff<Tpu>;
//! let device = TpuDevice::ndarray();
//! let mut model = LinearConfig::new(4, 1).init::<B>(&device);
//! let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
//! let mut checkpoints = Checkpointer::open(folder)?.keep_last(3).keep_every(1000);
//!
//! let mut step = 0;
//! if let Some(restored) = checkpoints.restore()? {
//!     model = restored.model("model", model)?;
//!     optimizer = restored.optimizer("optimizer", optimizer, &model)?;
//!     restored.random(&device)?;
//!     step = restored.step();
//! }
//! while step < 20 {
//!     let x = Tensor::<B, 2>::random([32, 4], Distribution::Default, &device);
//!     let gradients = GradientsParams::from_grads(model.forward(x).mean().backward(), &model);
//!     model = optimizer.step(1e-2, model, gradients);
//!     step += 1;
//!     if step % 10 == 0 {
//!         let checkpoint = Checkpoint::new(step).model("model", &model).optimizer("optimizer", &optimizer, &model);
//!         checkpoints.save(checkpoint.random(&device))?;
//!     }
//! }
//! checkpoints.wait()?;
//! assert_eq!(checkpoints.steps()?, [10, 20]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Samples`] is the position in the data, in samples of all processes. A [`Preemption`] hears that the machine will
//! be taken away, a [`Watchdog`] says what a step that hangs waits for, [`Goodput`] says where the time of a run went over
//! all of its starts, and a [`MemoryMonitor`] warns before a device is full.
//!
//! # What is on the disk
//!
//! `step-00000010/` has a file of tensors for each part (`model.safetensors`, `optimizer.safetensors`), whose names are
//! paths (`weight`, `weight.momentum.moment_1`); `state.cbor` with everything that is no tensor; and `manifest.json`
//! with the sizes and the checksums of the files, and where in them each tensor is. Of several processes each has files
//! of its own: `model-2-of-4.safetensors`. Any number of processes reads what any number wrote, each the bytes that it
//! needs.
//!
//! # Features
//!
//! `s3` and `gs` save to buckets (`s3://bucket/runs/7`), by the crate `object_store`. Neither is on by default.
//!
//! This crate owns what a run needs around its steps. It may not know how a step is recorded, compiled or run: it uses
//! `burn-tpu` as a user's program does.
#![forbid(unsafe_code)]

pub use checkpoint::Checkpoint;
pub use checkpointer::Checkpointer;
pub use error::{CheckpointError, Damage, Differences, Result};
pub use goodput::{Goodput, GoodputReport, Phase, Work};
pub use memory_monitor::{MemoryMonitor, MemoryMonitorOptions, MemorySample};
pub use preemption::{Cause, Notice, Preemption, PreemptionError, PreemptionOptions};
pub use restored::Restored;
pub use samples::Samples;
pub use watchdog::{Hang, Watchdog, WatchdogOptions};

mod by_path;
mod checkpoint;
mod checkpointer;
mod error;
mod goodput;
mod layer_forms;
mod loading;
mod manifest;
mod memory_monitor;
mod parameters;
mod preemption;
mod record_tree;
mod restored;
mod retention;
mod samples;
mod saving;
mod shares;
mod storage;
mod stored_tensor;
mod tensor_file;
mod tree;
mod version;
mod watchdog;
mod writing;
