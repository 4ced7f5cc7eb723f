//! Whole random programs on two engines: what the CPU plugin computes through the lowering, the interpreter must
//! compute too.
//!
//! 256 programs of 5 to 50 steps by default, always the same ones; `PROPTEST_CASES` asks for more and
//! `PROPTEST_RNG_SEED` for others. A program that fails is shrunk: steps are left out and choices become zeros as long
//! as the engines still disagree.
#![allow(clippy::print_stderr, reason = "says how much was compared, and what failed before it is made small")]

#[path = "random_programs/builder.rs"]
mod builder;
mod common;
#[path = "random_programs/contract.rs"]
mod contract;
#[path = "random_programs/elementwise.rs"]
mod elementwise;
#[path = "random_programs/movement.rs"]
mod movement;
#[path = "random_programs/recipe.rs"]
mod recipe;
#[path = "random_programs/trial.rs"]
mod trial;

use common::programs;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use recipe::{Recipe, recipes, shrunk};
use std::collections::BTreeSet;
use trial::{Plugin, Trial};

/// Programs that are compiled as one: compiling dominates, and costs less so.
const BATCH: usize = 16;

fn config() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

/// The recipes that a configuration stands for, one after another.
fn sampled(config: ProptestConfig) -> impl Iterator<Item = Recipe> {
    let (strategy, cases) = (recipes(), config.cases as usize);
    let mut runner = TestRunner::new(config);
    (0..cases).map(move |_| strategy.new_tree(&mut runner).expect("a recipe").current())
}

/// The first program on which the engines disagree, made small, and what is wrong.
fn first_disagreement(plugin: &Plugin, recipes: &[Recipe], trials: &[Trial]) -> Option<(Trial, String)> {
    let together = plugin.disagreements(trials);
    if together.as_ref().is_ok_and(|found| found.iter().all(Option::is_none)) {
        return None;
    }
    for (recipe, trial) in recipes.iter().zip(trials) {
        let Some(wrong) = plugin.disagreement(trial) else { continue };
        eprintln!("{wrong}\n{}\nlooking for less that fails", trial.described());
        let fails = |recipe: &Recipe| plugin.disagreement(&Trial::new(recipe)).is_some();
        let smallest = Trial::new(&shrunk(recipe.clone(), fails));
        let wrong = plugin.disagreement(&smallest).unwrap_or(wrong);
        return Some((smallest, wrong));
    }
    panic!("{} programs disagree only as one: {together:?}", trials.len());
}

#[test]
fn engines_agree_on_random_programs() {
    let Some(client) = programs::client() else { return };
    let plugin = Plugin { client, fault: None };
    let config = config();
    let seed = config.rng_seed;
    let (mut checked, mut nodes, mut elements, mut in_place) = (0, 0, 0, 0);
    let recipes: Vec<Recipe> = sampled(config).collect();
    for recipes in recipes.chunks(BATCH) {
        let trials: Vec<Trial> = recipes.iter().map(Trial::new).collect();
        if let Some((trial, wrong)) = first_disagreement(&plugin, recipes, &trials) {
            panic!("a program of {checked} to {}, {seed:?}: {wrong}\n{}", checked + trials.len(), trial.described());
        }
        checked += trials.len();
        nodes += trials.iter().map(|trial| trial.program.graph().nodes().len()).sum::<usize>();
        in_place += trials.iter().flat_map(|trial| trial.program.results_in_place()).flatten().count();
        elements += trials.iter().flat_map(|trial| trial.program.output_types()).map(|ty| ty.elements()).sum::<usize>();
    }
    eprintln!(
        "{checked} programs of {nodes} nodes agree on {elements} elements, {in_place} results in an argument's memory, {seed:?}"
    );
    assert!(elements > 10 * checked, "programs without results agree on nothing");
    assert!(in_place > checked / 2, "programs that update nothing say nothing about aliases");
}

/// What the lowering says, and what a wrong one might.
const FAULTS: [(&str, &str); 3] = [
    ("comparison_direction LE", "comparison_direction LT"),
    ("stablehlo.minimum", "stablehlo.maximum"),
    ("stablehlo.tanh", "stablehlo.logistic"),
];

/// Batches of the sampled programs that a fault changes anything about.
fn altered(plugin: &Plugin) -> impl Iterator<Item = (Vec<Recipe>, Vec<Trial>)> {
    let recipes: Vec<Recipe> = sampled(config()).collect();
    let batches: Vec<_> = recipes.chunks(BATCH).map(<[Recipe]>::to_vec).collect();
    let trials = batches.into_iter().map(|batch| (batch.iter().map(Trial::new).collect::<Vec<_>>(), batch));
    trials.filter(|(trials, _)| trials.iter().any(|trial| plugin.alters(trial))).map(|(trials, batch)| (batch, trials))
}

#[test]
fn wrong_lowerings_are_noticed() {
    let Some(client) = programs::client() else { return };
    let mut plugin = Plugin { client, fault: None };
    for fault in FAULTS {
        plugin.fault = Some(fault);
        let differs = |trials: &[Trial]| plugin.disagreements(trials).unwrap().iter().any(Option::is_some);
        assert!(altered(&plugin).any(|(_, trials)| differs(&trials)), "{fault:?} was not noticed");
    }
}

#[test]
fn a_program_that_fails_is_made_small() {
    let Some(client) = programs::client() else { return };
    let plugin = Plugin { client, fault: Some(FAULTS[0]) };
    let found = altered(&plugin).find_map(|(recipes, trials)| first_disagreement(&plugin, &recipes, &trials));
    let (smallest, wrong) = found.expect("a program that fails");
    let nodes = smallest.program.graph().nodes().len();
    assert!(nodes <= 16, "{wrong}\n{}", smallest.described());
}

#[test]
fn random_programs_hold_every_op() {
    let names = |trial: burn_tpu_graph::Program| -> BTreeSet<&'static str> {
        trial.graph().nodes().iter().map(|node| node.op.mnemonic()).collect()
    };
    let corpus = burn_tpu_graph::corpus::cases().unwrap();
    let all: BTreeSet<&str> = corpus.into_iter().flat_map(|case| names(case.program)).collect();
    let config = ProptestConfig { cases: 2000, ..config() };
    let met: BTreeSet<&str> = sampled(config).flat_map(|recipe| names(Trial::new(&recipe).program)).collect();
    assert!(all.is_subset(&met), "never met: {:?}", all.difference(&met).collect::<Vec<_>>());
}
