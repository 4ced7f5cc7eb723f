//! Compares every method of Burn's backend traits with Burn's CPU backends, over random cases.
//!
//! The oracle is burn-ndarray, or burn-flex or plain loops where burn-ndarray lacks a method or departs from Burn's
//! documentation. Each method has a row in the list of its family, and each row is a test that can be selected by name:
//! `cargo test --workspace --test parity float_add`. A failure prints the smallest case.
//!
//! The long mode, `PROPTEST_CASES=10000 cargo test --workspace --test parity`, raises the number of cases of each row from
//! 64; `PROPTEST_RNG_SEED` sets another seed than CI's.
//!
//! `tests/numbers/module_parity` covers convolutions, pools and other modules. `crates/burn-tpu-0-22/tests/parity`
//! compiles the files of this folder, all but this one and `version.rs`, against Burn 0.22, and
//! `slots/burn-0.23/unpatched/tests/parity`, without `until_0_22.rs`, against Burn 0.23.

#![allow(clippy::print_stderr, reason = "prints the cases that ran")]

#[path = "../common/mod.rs"]
mod common;
mod until_0_22;
mod version;

mod case;
mod compare;
mod feed;
mod harness;
mod host;
mod strategies;
mod table;

mod activation;
mod boolean;
mod cast;
mod ctc;
mod float;
mod gradient;
mod index;
mod int;
mod matmul;
mod movement;
mod quantized;
mod random;
mod reduce;

fn main() -> std::process::ExitCode {
    table::main()
}
