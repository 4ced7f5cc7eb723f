//! Compares every method of Burn 0.23's backend traits with Burn 0.23's burn-flex, over random cases.
//!
//! The rows are those of the workspace's `tests/parity`, whose files are compiled here against Burn 0.23; `version.rs` has
//! what they need to know of it. The rows of methods that Burn 0.21 has not are those of `burn-tpu-0-22`, and in `added.rs`
//! those of methods that Burn 0.22 has not. Each row is a test that can be selected by name:
//! `cargo test --test parity float_add`.
//!
//! A row has 16 cases here, since those of `tests/parity` test the same programs with 64; `PROPTEST_CASES` sets another
//! number.

#![allow(clippy::print_stderr, reason = "prints the cases that ran")]

mod added;
#[path = "../../../../../crates/burn-tpu-0-22/tests/parity/added.rs"]
mod since_0_22;
mod version;

#[path = "../../../../../tests/parity/case.rs"]
mod case;
#[path = "../../../../../tests/parity/compare.rs"]
mod compare;
#[path = "../../../../../tests/parity/feed.rs"]
mod feed;
#[path = "../../../../../tests/parity/harness.rs"]
mod harness;
#[path = "../../../../../tests/parity/host.rs"]
mod host;
#[path = "../../../../../tests/parity/strategies.rs"]
mod strategies;
#[path = "../../../../../tests/parity/table.rs"]
mod table;

#[path = "../../../../../tests/parity/activation.rs"]
mod activation;
#[path = "../../../../../tests/parity/boolean.rs"]
mod boolean;
#[path = "../../../../../tests/parity/cast.rs"]
mod cast;
#[path = "../../../../../tests/parity/ctc.rs"]
mod ctc;
#[path = "../../../../../tests/parity/float.rs"]
mod float;
#[path = "../../../../../tests/parity/gradient/mod.rs"]
mod gradient;
#[path = "../../../../../tests/parity/index.rs"]
mod index;
#[path = "../../../../../tests/parity/int.rs"]
mod int;
#[path = "../../../../../tests/parity/matmul.rs"]
mod matmul;
#[path = "../../../../../tests/parity/movement.rs"]
mod movement;
#[path = "../../../../../tests/parity/quantized.rs"]
mod quantized;
#[path = "../../../../../tests/parity/random.rs"]
mod random;
#[path = "../../../../../tests/parity/reduce/mod.rs"]
mod reduce;

fn main() -> std::process::ExitCode {
    table::main()
}
