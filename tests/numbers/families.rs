//! Families of programs on the CPU plugin: the program of a bucket computes what the interpreter computes of the program of
//! the true sizes, at every level, whatever is in the padding.

use crate::common::{self, programs};
use burn_tpu_fusion::{Optimization, Pipeline};
use burn_tpu_graph::Program;
use burn_tpu_graph::corpus::varying::{Run, TRIED, Trial};
use burn_tpu_runtime::testing::interpret_program;

fn interpreted(program: &Program, run: &Run) -> Vec<Vec<u8>> {
    interpret_program(program, &run.parameters, &run.slots).expect("every op is computed")
}

#[test]
fn the_program_of_a_bucket_computes_what_the_exact_one_does() {
    let Some(client) = programs::client() else { return };
    let (mut compared, programs) = (0, common::cases(24).cases);
    for seed in 0..u64::from(programs) {
        let trial = Trial::new(seed + 1_000, 12);
        let Some(family) = trial.family() else { continue };
        let padded = trial.padded(&family).expect("every op of these programs has an exact form");
        let levels = [Optimization::Off, Optimization::Conservative, Optimization::Balanced, Optimization::Aggressive];
        let level = levels[seed as usize % levels.len()];
        let rewritten = Pipeline::new(level).run(Program::clone(&padded.program)).expect("the rewrites").program;
        let compiled = programs::compile(&client, &rewritten, &programs::cpu_options()).expect("a program");
        for (number, sizes) in TRIED.into_iter().enumerate() {
            let Some(found) = trial.member(&family, &padded, sizes) else { continue };
            let exact = trial.program(sizes).expect("a member");
            let run = trial.run(&exact, number % 2 == 1);
            let own = trial.padded_run(&exact, &run, &padded, &found);
            let ours = compiled.run(&own.parameters, &own.slots).expect("a run");
            let wrong = Trial::difference(&exact, &interpreted(&exact, &run), &padded, &ours);
            assert!(wrong.is_none(), "{trial:?} {level:?} {sizes:?}: {wrong:?}\n{exact}\n{}", padded.program);
            compared += 1;
        }
    }
    assert!(compared > 4 * programs, "too few programs are of a family: {compared}");
}
