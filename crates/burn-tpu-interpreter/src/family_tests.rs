//! Families of programs against the interpreter: the program of a bucket computes what the program of the true sizes does,
//! bit by bit, whatever is in the padding.

use super::{HostTensor, interpret};
use burn_tpu_graph::Program;
use burn_tpu_graph::corpus::varying::{Run, TRIED, Trial};

fn results(program: &Program, run: &Run) -> Vec<Vec<u8>> {
    let types: Vec<_> = program.parameters().map(|(_, ty)| ty.clone()).collect();
    let take =
        |index: u32| Some(HostTensor::from_bytes(types[index as usize].clone(), &run.parameters[index as usize]));
    let results = interpret(program, take, &run.slots).expect("every op is computed");
    results.iter().map(HostTensor::to_bytes).collect()
}

/// Seeds of programs that were wrong once.
const FOUND: [u64; 1] = [2_001];

/// Several thousand programs in the long mode, with `PROPTEST_CASES`.
#[test]
fn the_program_of_a_bucket_computes_what_the_exact_one_does() {
    let programs: u64 = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    let mut compared = 0;
    for seed in (0..programs).chain(FOUND) {
        // Fewer steps are tried first, so that what fails is short.
        for steps in 1..14 {
            let trial = Trial::new(seed, steps);
            let Some(family) = trial.family() else { continue };
            let padded = trial.padded(&family).expect("every op of these programs has an exact form");
            for (number, sizes) in TRIED.into_iter().enumerate() {
                let Some(found) = trial.member(&family, &padded, sizes) else { continue };
                let exact = trial.program(sizes).expect("a member");
                let run = trial.run(&exact, number % 2 == 1);
                let ours = results(&padded.program, &trial.padded_run(&exact, &run, &padded, &found));
                let wrong = Trial::difference(&exact, &results(&exact, &run), &padded, &ours);
                assert!(wrong.is_none(), "{trial:?} {sizes:?}: {wrong:?}\n{exact}\n{}", padded.program);
                compared += 1;
            }
        }
    }
    assert!(compared > 20 * programs, "too few programs are of a family: {compared}");
}
