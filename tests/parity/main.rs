//! Compares every method of Burn's backend traits with Burn's CPU backends, over random cases.
//!
//! The oracle is burn-ndarray, or burn-flex or plain loops where burn-ndarray lacks a method or departs from Burn's
//! documentation. Each method has a row in the list of its family, and each row is a test that can be selected by name:
//! `cargo test --workspace --test parity float_add`. A failure prints the smallest case.
//!
//! The long mode, `PROPTEST_CASES=10000 cargo test --workspace --test parity`, raises the number of cases of each row from
//! 256; `PROPTEST_RNG_SEED` sets another seed than CI's.
//!
//! `tests/module_parity.rs` covers convolutions, pools and other modules.

#![allow(clippy::print_stderr, reason = "prints the cases that ran")]

#[path = "../common/mod.rs"]
mod common;

mod case;
mod compare;
mod feed;
mod harness;
mod host;
mod strategies;

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

use harness::Row;
use libtest_mimic::{Arguments, Trial};

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let missing = common::cpu().is_none();
    harness::silence_caught_panics();
    eprintln!("PROPTEST_RNG_SEED={} PROPTEST_CASES={}", harness::seed(), harness::cases());
    let families: Vec<(&str, Vec<Row>)> = vec![
        ("float", float::rows()),
        ("int", int::rows()),
        ("bool", boolean::rows()),
        ("cast", cast::rows()),
        ("activation", activation::rows()),
        ("matmul", matmul::rows()),
        ("random", random::rows()),
        ("movement", movement::rows()),
        ("index", index::rows()),
        ("reduce", reduce::rows()),
        ("module", ctc::rows()),
        ("quantized", quantized::rows()),
        ("gradient", gradient::rows()),
    ];
    let trials = families.into_iter().flat_map(|(family, rows)| {
        rows.into_iter().map(move |Row { method, check }| {
            Trial::test(format!("{family}::{method}"), move || Ok(check()?)).with_ignored_flag(missing)
        })
    });
    let own = Trial::test("the comparison rejects what differs", || Ok(compare::rejects_what_differs()?));
    libtest_mimic::run(&arguments, trials.chain([own]).collect()).exit_code()
}
