//! Training runs of Burn 0.23 that survive, on burn-tpu in process: checkpoints that are complete or absent,
//! preemption, a watchdog, an account of the time, a memory monitor. It is the crate `burn-tpu-train` for this version,
//! under the same name,
//! and its checkpoints are those of that: each loads the models, the optimizers and the values that the other saved.
//! The state of a schedule loads in the version that saved it.
//!
//! ```
//! use burn::nn::LinearConfig;
//! use burn::optim::{AdamWConfig, GradientsParams};
//! use burn::tensor::{Device, Distribution, Tensor};
//! use burn_tpu::{TpuDevice, TpuOptimizer};
//! use burn_tpu_train::{Checkpoint, CheckpointError, Checkpointer};
//!
//! # fn main() -> Result<(), CheckpointError> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let tpu = TpuDevice::ndarray();
//! let device = Device::from(tpu).autodiff();
//! let mut model = LinearConfig::new(4, 1).init(&device);
//! let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
//! let mut checkpoints = Checkpointer::open(folder)?.keep_last(3).keep_every(1000);
//!
//! let mut step = 0;
//! if let Some(restored) = checkpoints.restore()? {
//!     model = restored.model("model", model)?;
//!     optimizer = restored.optimizer("optimizer", optimizer, &model)?;
//!     restored.random(&tpu)?;
//!     step = restored.step();
//! }
//! while step < 20 {
//!     let x = Tensor::<2>::random([32, 4], Distribution::Default, &device);
//!     let gradients = GradientsParams::from_grads(model.forward(x).mean().backward(), &model);
//!     model = optimizer.step(1e-2, model, gradients);
//!     step += 1;
//!     if step % 10 == 0 {
//!         let checkpoint = Checkpoint::new(step).model("model", &model).optimizer("optimizer", &optimizer, &model);
//!         checkpoints.save(checkpoint.random(&tpu))?;
//!     }
//! }
//! checkpoints.wait()?;
//! assert_eq!(checkpoints.steps()?, [10, 20]);
//! # Ok(())
//! # }
//! ```
//!
//! The sources are those of `burn-tpu-train-0-22` and of `burn-tpu-train`, compiled against Burn 0.23.
#![forbid(unsafe_code)]

pub use checkpoint::Checkpoint;
pub use checkpointer::Checkpointer;
pub use error::{CheckpointError, Damage, Differences, Result};
pub use goodput::{Goodput, GoodputReport, Phase, Work};
pub use loading::LoadsRecord;
pub use memory_monitor::{MemoryMonitor, MemoryMonitorOptions, MemorySample};
pub use preemption::{Cause, Notice, Preemption, PreemptionError, PreemptionOptions};
pub use restored::Restored;
pub use samples::Samples;
pub use watchdog::{Hang, Watchdog, WatchdogOptions};

#[path = "../../../../crates/burn-tpu-train/src/by_path.rs"]
mod by_path;
#[path = "../../../../crates/burn-tpu-train/src/checkpoint.rs"]
mod checkpoint;
#[path = "../../../../crates/burn-tpu-train/src/checkpointer.rs"]
mod checkpointer;
#[path = "../../../../crates/burn-tpu-train/src/error.rs"]
mod error;
#[path = "../../../../crates/burn-tpu-train/src/goodput/mod.rs"]
mod goodput;
#[path = "../../../../crates/burn-tpu-train/src/layer_forms.rs"]
mod layer_forms;
#[path = "../../../burn-0.22/train/src/loading.rs"]
mod loading;
#[path = "../../../../crates/burn-tpu-train/src/manifest.rs"]
mod manifest;
#[path = "../../../../crates/burn-tpu-train/src/memory_monitor/mod.rs"]
mod memory_monitor;
#[path = "../../../burn-0.22/train/src/parameters.rs"]
mod parameters;
#[path = "../../../../crates/burn-tpu-train/src/preemption/mod.rs"]
mod preemption;
#[path = "../../../burn-0.22/train/src/record_tree.rs"]
mod record_tree;
#[path = "../../../../crates/burn-tpu-train/src/restored.rs"]
mod restored;
#[path = "../../../../crates/burn-tpu-train/src/retention.rs"]
mod retention;
#[path = "../../../../crates/burn-tpu-train/src/samples.rs"]
mod samples;
#[path = "../../../burn-0.22/train/src/saving.rs"]
mod saving;
#[path = "../../../../crates/burn-tpu-train/src/shares.rs"]
mod shares;
#[path = "../../../../crates/burn-tpu-train/src/storage/mod.rs"]
mod storage;
#[path = "../../../../crates/burn-tpu-train/src/stored_tensor.rs"]
mod stored_tensor;
#[path = "../../../../crates/burn-tpu-train/src/tensor_file.rs"]
mod tensor_file;
#[path = "../../../../crates/burn-tpu-train/src/tree.rs"]
mod tree;
#[path = "../../../burn-0.22/train/src/version.rs"]
mod version;
#[path = "../../../../crates/burn-tpu-train/src/watchdog/mod.rs"]
mod watchdog;
#[path = "../../../../crates/burn-tpu-train/src/writing.rs"]
mod writing;
