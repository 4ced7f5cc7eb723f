//! What libtpu says of steps for TPUs that are not attached: `fit`, its layout search, golden steps, slices as devices.

#[path = "../common/mod.rs"]
mod common;

mod fit;
mod fit_search;
mod golden_steps;
mod layers;
mod mesh;
mod product_precision;
mod topology;
