//! A search for programs whose results a pass of the default level changes by more than rounding.
//!
//! Random attention with its gradients, as Burn's autodiff records it ([`attention`]), is run by the interpreter before and
//! after each pass, on values with infinities, NaN, zeros of both signs and extreme scores ([`values`]). A result has to be
//! infinite or NaN at the same places, and elsewhere within a bound of rounding.
//!
//! `PROPTEST_CASES=100000 PROPTEST_RNG_SEED=1 cargo test --release -p burn-tpu-fusion exactness` searches for longer.

mod attention;
mod values;

use crate::{GatherFirst, LinearActivation, Pass, QueryBlocks, Roll, ScatterSum, SoftmaxGradient};
use attention::{Attention, Fill, How, Mask, RandomAttention, Softmax, Weights};
use burn_tpu_graph::{DType, Program, verify};
use burn_tpu_interpreter::interpret;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::cell::Cell;
use values::{Values, numbers};

fn masks() -> impl Strategy<Value = Vec<Mask>> {
    let places = prop_oneof![
        4 => (-2i64..4).prop_map(|ahead| How::Causal { ahead }),
        2 => (0i64..6).prop_map(|before| How::Window { before }),
        2 => Just(How::Padding),
        1 => Just(How::Data),
    ];
    let number =
        prop::sample::select(vec![f64::NEG_INFINITY, f64::NEG_INFINITY, -1e4, -1e4, -1e9, f32::MIN.into(), 0.0]);
    let fill = (
        number,
        prop_oneof![4 => Just(Fill::Selected), 2 => Just(Fill::Kept), 1 => Just(Fill::Added), 1 => Just(Fill::Given)],
    );
    prop::collection::vec((places, fill).prop_map(|(how, (number, fill))| Mask { how, number, fill }), 1..4)
}

fn forms() -> impl Strategy<Value = RandomAttention> {
    let dims = [1usize..3, 2..11, 2..11, 1..4];
    let softmax = prop_oneof![
        4 => Just(Softmax::Plain),
        2 => Just(Softmax::Op),
        1 => Just(Softmax::Quiet),
        1 => Just(Softmax::Unshifted),
    ];
    let weights = prop_oneof![3 => Just(Weights::All), 1 => Just(Weights::Dropped), 1 => Just(Weights::Scaled)];
    let dtype = prop_oneof![2 => Just(DType::F64), 1 => Just(DType::F32), 1 => Just(DType::BF16)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.7));
    (dims, dtype, masks(), softmax, weights, flags, any::<u64>()).prop_map(
        |(dims, dtype, masks, softmax, weights, (has_bias, softcap, returns_weights, trains, moves_sums), seed)| {
            RandomAttention {
                dims,
                dtype,
                masks,
                softmax,
                weights,
                has_bias,
                softcap,
                returns_weights,
                trains,
                moves_sums,
                seed,
            }
        },
    )
}

fn cases(cases: u32) -> ProptestConfig {
    let asked = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    ProptestConfig {
        cases: asked("PROPTEST_CASES").map_or(cases, |asked| asked as u32),
        rng_seed: RngSeed::Fixed(asked("PROPTEST_RNG_SEED").unwrap_or(0)),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Returns the results of a program as numbers.
fn results(program: &Program, values: &Values) -> Vec<Vec<f64>> {
    let results = interpret(program, |index| values.parameters.get(index as usize).cloned(), &[]);
    results.expect("the interpreter runs every op").iter().map(numbers).collect()
}

/// Returns why two numbers are not the same up to this rounding. `moves_sum` tells that one NaN or infinity may replace
/// another.
fn difference(before: f64, after: f64, bound: f64, moves_sum: bool) -> Option<String> {
    let is_same = match before.is_finite() {
        true => (before - after).abs() <= bound,
        false if moves_sum => !after.is_finite(),
        false => before == after || before.is_nan() && after.is_nan(),
    };
    (!is_same).then(|| format!("{before} became {after}, bound {bound}"))
}

/// The number of programs, and of those that each pass has changed.
#[derive(Default)]
struct Found {
    programs: Cell<usize>,
    changed: [Cell<usize>; 6],
}

fn check(form: &RandomAttention, found: &Found) -> Result<(), TestCaseError> {
    let attention = Attention::record(form);
    let values = Values::new(form, &attention);
    let bounds = values.bounds(&attention);
    let passes: [&dyn Pass; 6] =
        [&LinearActivation, &GatherFirst, &ScatterSum, &SoftmaxGradient, &QueryBlocks::of(2), &Roll];
    let mut program = attention.program();
    let mut before = results(&program, &values);
    found.programs.set(found.programs.get() + 1);
    for (pass, changed) in passes.iter().zip(&found.changed) {
        if !form.moves_sums && pass.name() == "softmax_gradient" {
            continue;
        }
        let rewritten = pass.run(&program).expect("a pass that breaks no rule");
        if rewritten.count == 0 {
            continue;
        }
        changed.set(changed.get() + 1);
        verify(&rewritten.program).expect("a program");
        let after = results(&rewritten.program, &values);
        // Fewer roundings of scores to 16 bits: those of 1e5 move by hundreds.
        if pass.name() == "linear_activation" {
            (program, before) = (rewritten.program, after);
            continue;
        }
        for (result, (before, after)) in before.iter().zip(&after).enumerate() {
            for (place, (&x, &y)) in before.iter().zip(after).enumerate() {
                let difference = difference(x, y, bounds[result], pass.name() == "softmax_gradient");
                let name = attention.outputs[result].0;
                prop_assert!(difference.is_none(), "{}: {name} at {place}: {difference:?}\n{program}", pass.name());
            }
        }
        (program, before) = (rewritten.program, after);
    }
    Ok(())
}

#[test]
fn no_pass_changes_more_than_rounding() {
    let found = Found::default();
    TestRunner::new(cases(300)).run(&forms(), |form| check(&form, &found)).unwrap();
    let counts: Vec<usize> = found.changed.iter().map(Cell::get).collect();
    // A search of programs that no pass changes finds nothing.
    assert!(counts[3] * 4 > found.programs.get() && counts[4] * 8 > found.programs.get(), "{counts:?}");
}
