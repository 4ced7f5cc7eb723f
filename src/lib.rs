//! The package of the workspace's `examples/`, `tests/` and `benches/`, with the models that they share. The library
//! is `burn-tpu`.
#![forbid(unsafe_code)]
// Compiles and runs the README's program with the doc tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod models;
