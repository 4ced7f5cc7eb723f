//! The package of the workspace's `examples/`, `tests/` and `benches/`, with the models that they share. The library
//! is `burn-tpu`.
#![forbid(unsafe_code)]
// Compiles and runs the README's programs with the doc tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod models;

/// The same for the pages of `docs/` that are written as doc tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/from-laptop-to-tpu.md")]
    mod from_laptop_to_tpu {}
    #[doc = include_str!("../docs/kernels.md")]
    mod kernels {}
    #[doc = include_str!("../docs/migrating-from-python.md")]
    mod migrating_from_python {}
    #[doc = include_str!("../docs/tour.md")]
    mod tour {}
}
