//! Meshes of CPU devices, which are one device to a program.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/fit/looped.rs"]
mod looped;

mod corpus;
mod families;
mod first_steps;
mod layers;
mod placed;
mod shapes;
mod training;
