//! Families of programs on four CPU devices: with varying axes that are split, the program of a bucket computes what the
//! interpreter computes of the program of the true sizes, whatever is in the padding. Only the padding has NaN: the CPU
//! plugin loses one where it takes the maximum of several devices, in the program of the true sizes too.

use crate::common::{self, programs};
use crate::placed::Split;
use burn_tpu_fusion::{Optimization, Pipeline};
use burn_tpu_graph::Program;
use burn_tpu_graph::corpus::varying::{TRIED, Trial};
use burn_tpu_pjrt::{Client, ClientOptions};
use burn_tpu_runtime::testing::interpret_program;

const PARTS: usize = 4;

#[test]
fn the_program_of_a_bucket_computes_what_the_exact_one_does_in_parts() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let client = Client::new(plugin, &ClientOptions::cpu(PARTS).unwrap()).unwrap();
    let (mut compared, programs) = (0, common::cases(12).cases);
    for seed in 0..u64::from(programs) {
        let trial = Trial::new(seed + 2_000, 12);
        let Some(family) = trial.family() else { continue };
        let padded = trial.padded(&family).expect("every op of these programs has an exact form");
        let rewritten =
            Pipeline::new(Optimization::Balanced).run(Program::clone(&padded.program)).expect("the rewrites");
        // The sizes that vary are at dim 0 of all parameters, and at dim 1 of one.
        let dim = usize::from(seed % 4 == 3);
        let even = |position: usize| position.is_multiple_of(2).then_some(dim);
        let Some(split) = Split::of(&rewritten.program, PARTS, |_| Some(dim), even) else { continue };
        let compiled = split.compile(&client).unwrap_or_else(|error| panic!("{trial:?}, dim {dim}: {error}"));
        for sizes in TRIED {
            let Some(found) = trial.member(&family, &padded, sizes) else { continue };
            let exact = trial.program(sizes).expect("a member");
            let run = trial.run(&exact, false);
            let own = trial.padded_run(&exact, &run, &padded, &found);
            let ours = compiled.run(&own.parameters, &own.slots).expect("a run");
            let expected = interpret_program(&exact, &run.parameters, &run.slots).expect("every op is computed");
            let wrong = Trial::difference(&exact, &expected, &padded, &ours);
            assert!(wrong.is_none(), "{trial:?}, dim {dim}, {sizes:?}: {wrong:?}\n{exact}\n{}", rewritten.program);
            compared += 1;
        }
    }
    assert!(compared > 4 * programs, "too few programs are of a family: {compared}");
}
