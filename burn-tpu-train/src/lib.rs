//! Training runs that survive: checkpoints that are complete or absent, on top of `burn-tpu`.
//!
//! Owns what a run needs around its steps. May not know how a step is recorded, compiled or run: it uses `burn-tpu` as a
//! user's program does.
#![forbid(unsafe_code)]

mod preemption;
mod watchdog;

pub use preemption::{Cause, Notice, Preemption, PreemptionError, PreemptionOptions};
pub use watchdog::{Hang, Watchdog, WatchdogOptions};
