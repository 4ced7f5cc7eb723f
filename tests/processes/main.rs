//! Tests in processes of their own: children that are killed, that find other plugins, variables and files, that wait for
//! one another, or that have loaded nothing yet.
//!
//! A scenario is the test `child` of its module, run by `common::child`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/resumable.rs"]
mod resumable;

mod checkpoint_faults;
mod compile_timeout;
mod disk_cache;
mod distributed;
mod elastic;
mod errors;
mod first_use;
mod preemption;
mod shared_checkpoints;
mod watchdog;
