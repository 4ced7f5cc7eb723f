//! The package that owns `examples/`, `tests/` and `benches/` of the workspace, with the models that they share. The
//! library is `burn-tpu`.
#![forbid(unsafe_code)]
// The README's program is compiled and run with the tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod models;
