//! Training: whole steps, compiled steps and functions, precision, checkpoints of a run, weights, Burn's Learner.
//!
//! Every test takes `common::alone()`: one of them compares the memory of the process before and after.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/resumable.rs"]
mod resumable;

mod autocast;
mod bert;
mod burn_versions;
mod checkpoint;
mod checkpointer;
mod compiled;
mod compiled_step;
mod donation;
mod first_steps;
mod layers;
mod learner;
mod learner_checkpoints;
mod master_weights;
mod microbatches;
mod steps;
mod varying;
mod weights;
