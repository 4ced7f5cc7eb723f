//! The recipe of a random program, the rules of its steps, and the shrinking of a failing one.

use super::builder::{Builder, Choices, Step};
use super::{contract, elementwise, movement};
use burn_tpu_graph::Result;
use proptest::prelude::*;

/// Numbers that describe a program. Any change of them describes another valid program.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub steps: Vec<Step>,
    /// The values that are outputs, besides the last one.
    pub outputs: Vec<u16>,
}

pub fn recipes() -> impl Strategy<Value = Recipe> {
    recipes_of(any::<u8>(), 5..=50)
}

/// Returns recipes of few steps, most of which read or write windows at run-time positions.
pub fn window_recipes() -> impl Strategy<Value = Recipe> {
    recipes_of(prop::sample::select(&WINDOWS[..]), 3..=9)
}

fn recipes_of(op: impl Strategy<Value = u8>, steps: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Recipe> {
    let step = (op, any::<[u16; 12]>()).prop_map(|(op, choices)| Step { op, choices });
    let parts = (prop::collection::vec(step, steps), prop::collection::vec(any::<u16>(), 0..4));
    parts.prop_map(|(steps, outputs)| Recipe { steps, outputs })
}

/// Adds values to the program, or none if the choices do not lead to a valid op.
pub type Rule = fn(&mut Builder, &mut Choices) -> Result<()>;

/// All kinds of step; those that are listed twice occur twice as often.
const RULES: [Rule; 31] = [
    elementwise::leaf,
    elementwise::leaf,
    elementwise::smooth_unary,
    elementwise::smooth_unary,
    elementwise::smooth_binary,
    elementwise::smooth_binary,
    elementwise::exact_binary,
    elementwise::exact_binary,
    elementwise::any_exact_unary,
    elementwise::compare,
    elementwise::select,
    elementwise::update,
    elementwise::update,
    elementwise::clamp,
    elementwise::convert,
    elementwise::convert,
    elementwise::bitcast,
    movement::moved,
    movement::moved,
    movement::pad,
    movement::concatenate,
    movement::dynamic,
    movement::gather,
    movement::scatter,
    contract::dot,
    contract::convolution,
    contract::reduce,
    contract::reduce_window,
    contract::select_and_scatter,
    contract::arg_reduce,
    contract::sort,
];

/// Positions in [`RULES`]: a leaf, moves, and windows at run-time positions.
const WINDOWS: [u8; 9] = [0, 17, 18, 21, 21, 22, 22, 22, 23];

/// Rarer kinds: a step uses one of them if its number is high.
const RARE: [Rule; 3] = [contract::rng, contract::fft, movement::looped];

pub fn rule(op: u8) -> Rule {
    let op = usize::from(op);
    if op >= 240 { RARE[op % RARE.len()] } else { RULES[op % RULES.len()] }
}

/// Returns a smaller recipe that fails too: without the steps and outputs that the failure does not need, and with zeros
/// for the choices that do not matter. Each is tried once, since each try compiles a program.
pub fn shrunk(mut recipe: Recipe, mut fails: impl FnMut(&Recipe) -> bool) -> Recipe {
    for length in [16, 8, 4, 2, 1, 1] {
        let mut at = 0;
        while at < recipe.steps.len() {
            let mut smaller = recipe.clone();
            smaller.steps.drain(at..recipe.steps.len().min(at + length));
            if fails(&smaller) { recipe = smaller } else { at += length }
        }
    }
    for at in (0..recipe.outputs.len()).rev() {
        let mut smaller = recipe.clone();
        smaller.outputs.remove(at);
        if fails(&smaller) {
            recipe = smaller;
        }
    }
    for at in 0..recipe.steps.len() {
        for choice in 0..recipe.steps[at].choices.len() {
            let mut smaller = recipe.clone();
            if std::mem::take(&mut smaller.steps[at].choices[choice]) != 0 && fails(&smaller) {
                recipe = smaller;
            }
        }
    }
    recipe
}

#[test]
fn a_recipe_shrinks_to_its_failing_part() {
    let step = |op| Step { op, choices: [7; 12] };
    let recipe = Recipe { steps: (0..50).map(step).collect(), outputs: vec![1, 2, 3] };
    let bad = |step: &&Step| (step.op == 20 && step.choices[3] > 1) || step.op == 41;
    let small = shrunk(recipe, |recipe| recipe.steps.iter().filter(bad).count() == 2 && recipe.outputs.contains(&2));
    assert_eq!(small.steps.iter().map(|step| step.op).collect::<Vec<_>>(), [20, 41]);
    assert_eq!(small.steps[0].choices, [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((small.steps[1].choices, small.outputs), ([0; 12], vec![2]));
}
