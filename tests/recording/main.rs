//! What is recorded, when it runs and what it says: cuts, tiers, recompiles, profiles, memory, checks of numbers and of
//! indices.
//!
//! Every test takes `common::alone()`: some count the process's buffers, its memory, or what a profile collects.

#[path = "../common/mod.rs"]
mod common;

mod check_numerics;
mod compiled_shapes;
mod cuts;
mod devices;
mod endurance;
mod host_values;
mod index_checks;
mod interleavings;
mod interpreted;
mod lengths;
mod memory;
mod precision_lint;
mod product_precision;
mod profile;
mod recompile_warnings;
mod recompiles;
mod shapes;
mod varying_gradients;
