//! The table: every family of rows, and the program that runs them as tests.

use crate::harness::{self, Row};
use crate::version;
use crate::{
    activation, boolean, cast, compare, ctc, float, gradient, index, int, matmul, movement, quantized, random, reduce,
};
use libtest_mimic::{Arguments, Trial};

pub fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let missing = version::device().is_none();
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
        ("version", version::rows()),
    ];
    let trials = families.into_iter().flat_map(|(family, rows)| {
        rows.into_iter().map(move |Row { method, check }| {
            Trial::test(format!("{family}::{method}"), move || Ok(check()?)).with_ignored_flag(missing)
        })
    });
    let own = Trial::test("the comparison rejects what differs", || Ok(compare::rejects_what_differs()?));
    libtest_mimic::run(&arguments, trials.chain([own]).collect()).exit_code()
}
