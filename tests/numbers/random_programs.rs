//! Random whole programs on two engines: the CPU plugin, through the lowering, and the interpreter must compute the same.
//!
//! The default is 96 programs of 5 to 50 steps, always the same ones; `PROPTEST_CASES` sets another number and
//! `PROPTEST_RNG_SEED` another seed. A failing program is shrunk: steps are removed and choices become zeros as long as the
//! engines still disagree.
#![allow(clippy::print_stderr, reason = "prints how much was compared, and what failed before it is shrunk")]

mod builder;
use crate::common;
mod contract;
mod elementwise;
mod movement;
mod pieces;
mod recipe;
mod split;
mod trial;

use burn_tpu_fusion::{Optimization, Pipeline, RowBlocks};
use burn_tpu_runtime::testing::interpret_program;
use common::programs;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use recipe::{Recipe, recipes, shrunk, window_recipes};
use std::collections::{BTreeMap, BTreeSet};
use trial::{Plugin, Trial};

/// The number of programs that are compiled as one: compiling dominates, and merging makes it cheaper.
const BATCH: usize = 16;

fn config() -> ProptestConfig {
    let mut config = common::cases(96);
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(1);
    }
    config
}

/// Returns the recipes of a configuration, in order.
fn sampled(strategy: impl Strategy<Value = Recipe>, config: ProptestConfig) -> Vec<Recipe> {
    let cases = config.cases as usize;
    let mut runner = TestRunner::new(config);
    (0..cases).map(|_| strategy.new_tree(&mut runner).expect("a recipe").current()).collect()
}

/// Returns the first program on which the engines disagree, shrunk, and the disagreement.
fn first_disagreement(plugin: &Plugin, recipes: &[Recipe], trials: &[Trial]) -> Option<(Trial, String)> {
    let together = plugin.disagreements(trials);
    if together.as_ref().is_ok_and(|found| found.iter().all(Option::is_none)) {
        return None;
    }
    for (recipe, trial) in recipes.iter().zip(trials) {
        let Some(wrong) = plugin.disagreement(trial) else { continue };
        eprintln!("{wrong}\n{}\nshrinking", trial.described());
        let fails = |recipe: &Recipe| plugin.disagreement(&Trial::new(recipe)).is_some();
        let smallest = Trial::new(&shrunk(recipe.clone(), fails));
        let wrong = plugin.disagreement(&smallest).unwrap_or(wrong);
        return Some((smallest, wrong));
    }
    panic!("{} programs disagree only when merged: {together:?}", trials.len());
}

/// Returns the programs of the recipes, which were compared in batches.
fn agreeing(recipes: &[Recipe]) -> Option<Vec<Trial>> {
    let plugin = Plugin { client: programs::client()?, fault: None };
    let mut agreed = Vec::with_capacity(recipes.len());
    for recipes in recipes.chunks(BATCH) {
        let trials: Vec<Trial> = recipes.iter().map(Trial::new).collect();
        if let Some((trial, wrong)) = first_disagreement(&plugin, recipes, &trials) {
            let (first, last) = (agreed.len(), agreed.len() + trials.len());
            panic!("a program of {first} to {last}, {:?}: {wrong}\n{}", config().rng_seed, trial.described());
        }
        agreed.extend(trials);
    }
    let elements: usize = agreed.iter().flat_map(|trial| trial.program.output_types()).map(|ty| ty.elements()).sum();
    eprintln!("{} programs agree on {elements} elements, {:?}", agreed.len(), config().rng_seed);
    assert!(elements > 10 * agreed.len(), "programs without results test nothing");
    Some(agreed)
}

#[test]
fn engines_agree_on_random_programs() {
    let Some(agreed) = agreeing(&sampled(recipes(), config())) else { return };
    let in_place = agreed.iter().flat_map(|trial| trial.program.results_in_place()).flatten().count();
    assert!(in_place > agreed.len() / 2, "programs without updates do not test aliases");
}

/// Windows of windows, many of them out of range: what XLA joins must have the same result.
#[test]
fn engines_agree_on_windows_of_windows() {
    agreeing(&sampled(window_recipes(), config()));
}

/// The host's part in the interpreter and the device's part on the plugin compute what the whole program does.
#[test]
fn split_programs_agree() {
    let Some(client) = programs::client() else { return };
    let plugin = Plugin { client, fault: None };
    let (mut checked, mut split, mut transfers) = (0, 0, 0);
    let recipes = sampled(recipes(), config());
    for recipes in recipes.chunks(BATCH) {
        let trials: Vec<Trial> = recipes.iter().map(Trial::new).collect();
        let parts: Vec<_> =
            trials.iter().enumerate().filter_map(|(i, trial)| split::device_part(trial, i % 4)).collect();
        checked += trials.len();
        split += parts.len();
        transfers += parts.iter().map(|(_, transfers)| transfers).sum::<usize>();
        let parts: Vec<Trial> = parts.into_iter().map(|(part, _)| part).collect();
        let together = plugin.disagreements(&parts);
        if !together.as_ref().is_ok_and(|found| found.iter().all(Option::is_none)) {
            let alone = parts.iter().find_map(|part| Some((plugin.disagreement(part)?, part.described())));
            panic!("of {checked} programs: {:?} {together:?}", alone);
        }
    }
    eprintln!("{split} of {checked} programs are split, with {transfers} transfers");
    assert!(
        split > checked / 4 && transfers > split / 2,
        "{split} of {checked} were split, with {transfers} transfers"
    );
}

/// Rewritten programs compute what the recorded ones do: with all rewrites but those for a TPU's kernels, with losses of any
/// size in blocks of rows, and with the roundings that the interpreter leaves out of programs that are not compiled.
#[test]
fn rewritten_programs_agree() {
    let level = Pipeline::new(Optimization::Aggressive).verify(true);
    let small = Pipeline::of(vec![Box::new(RowBlocks::of(4, 2))]).verify(true);
    let roundings = Pipeline::of_roundings(Optimization::Balanced, &[]).verify(true);
    let (mut checked, mut rewritten) = (0, BTreeMap::<&str, usize>::new());
    for recipe in sampled(recipes(), config()) {
        let trial = Trial::new(&recipe);
        let first = level.run(trial.program.clone()).unwrap();
        let second = small.run(first.program.clone()).unwrap();
        let interpreted = roundings.run(trial.program.clone()).unwrap();
        for optimized in [&first, &second, &interpreted] {
            let found = interpret_program(&optimized.program, &trial.parameters, &trial.slots).unwrap();
            if let Some(wrong) = trial.mismatch(&found) {
                panic!("program {checked}: {wrong}\n{}rewritten: {}", trial.described(), optimized.program);
            }
            optimized.applied.iter().for_each(|(name, count)| *rewritten.entry(name).or_default() += count);
        }
        checked += 1;
    }
    eprintln!("{checked} programs agree after their rewrites: {rewritten:?}");
    assert!(["gather_first", "round_once"].iter().all(|name| rewritten[name] > 0), "{rewritten:?}");
}

/// The number of batches of which one runs in pieces on the plugin too. Pieces have more nodes than the whole together.
const BATCHES_PER_PLUGIN_RUN: usize = 4;

/// Pieces that run one after another compute what the whole program does: the same bits in the interpreter.
#[test]
fn pieces_agree() {
    let Some(client) = programs::client() else { return };
    let plugin = Plugin { client, fault: None };
    let (mut checked, mut divided, mut on_plugin, mut pieces, mut distinct) = (0, 0, 0, 0, 0);
    let recipes = sampled(recipes(), config());
    for recipes in recipes.chunks(BATCH) {
        let trials: Vec<Trial> = recipes.iter().map(Trial::new).collect();
        let limit = |number: usize| 4 + (checked + number) % 9;
        let runs = trials.iter().enumerate().filter_map(|(i, trial)| pieces::Run::of(trial, limit(i)));
        let mut runs: Vec<_> = runs.map(pieces::Run::check).collect();
        if (checked / BATCH).is_multiple_of(BATCHES_PER_PLUGIN_RUN) {
            on_plugin += runs.len();
            if let Some(wrong) = pieces::first_disagreement(&plugin, &mut runs) {
                panic!("a program of {checked} to {}: {wrong}", checked + trials.len());
            }
        }
        checked += trials.len();
        divided += runs.len();
        pieces += runs.iter().map(|run| run.division.pieces.len()).sum::<usize>();
        distinct += runs.iter().map(|run| run.division.programs.len()).sum::<usize>();
    }
    eprintln!(
        "{divided} of {checked} programs agree in {pieces} pieces, {distinct} distinct; {on_plugin} on the plugin too"
    );
    assert!(divided > checked / 2 && pieces > 3 * divided, "{divided} of {checked} were divided, into {pieces} pieces");
}

/// Replacements in the text of the lowering that make it wrong.
const FAULTS: [(&str, &str); 3] = [
    ("comparison_direction LE", "comparison_direction LT"),
    ("stablehlo.minimum", "stablehlo.maximum"),
    ("stablehlo.tanh", "stablehlo.logistic"),
];

/// Returns batches of the sampled programs that a fault changes.
fn altered(plugin: &Plugin) -> impl Iterator<Item = (Vec<Recipe>, Vec<Trial>)> {
    let recipes = sampled(recipes(), config());
    let batches: Vec<_> = recipes.chunks(BATCH).map(<[Recipe]>::to_vec).collect();
    let trials = batches.into_iter().map(|batch| (batch.iter().map(Trial::new).collect::<Vec<_>>(), batch));
    trials.filter(|(trials, _)| trials.iter().any(|trial| plugin.alters(trial))).map(|(trials, batch)| (batch, trials))
}

#[test]
fn wrong_lowerings_are_detected() {
    let Some(client) = programs::client() else { return };
    let mut plugin = Plugin { client, fault: None };
    for fault in FAULTS {
        plugin.fault = Some(fault);
        let differs = |trials: &[Trial]| plugin.disagreements(trials).unwrap().iter().any(Option::is_some);
        assert!(altered(&plugin).any(|(_, trials)| differs(&trials)), "{fault:?} was not detected");
    }
}

#[test]
fn a_failing_program_is_shrunk() {
    let Some(client) = programs::client() else { return };
    let plugin = Plugin { client, fault: Some(FAULTS[0]) };
    let found = altered(&plugin).find_map(|(recipes, trials)| first_disagreement(&plugin, &recipes, &trials));
    let (smallest, wrong) = found.expect("a program that fails");
    let nodes = smallest.program.graph().nodes().len();
    assert!(nodes <= 16, "{wrong}\n{}", smallest.described());
}

#[test]
fn random_programs_contain_every_op() {
    let names = |trial: burn_tpu_graph::Program| -> BTreeSet<&'static str> {
        trial.graph().nodes().iter().map(|node| node.op.mnemonic()).collect()
    };
    let corpus = burn_tpu_graph::corpus::cases().unwrap();
    let mut all: BTreeSet<&str> = corpus.into_iter().flat_map(|case| names(case.program)).collect();
    // Its two forms are compared by the corpus and by `tests/numbers/custom_op.rs`.
    all.remove("graph.custom_call");
    let config = ProptestConfig { cases: 2000, ..config() };
    let met: BTreeSet<&str> =
        sampled(recipes(), config).iter().flat_map(|recipe| names(Trial::new(recipe).program)).collect();
    assert!(all.is_subset(&met), "never met: {:?}", all.difference(&met).collect::<Vec<_>>());
}
