//! The programs, and how much a short run of each may compile and transfer.

use super::COMPARED_STEPS;
use super::process::Report;
use anyhow::{Result, ensure};

/// A program of the example with its options, and the limits of a short run in CI.
pub struct Case {
    /// The name in the table.
    pub name: &'static str,
    /// The options of the example.
    pub options: &'static [&'static str],
    /// More options of the short run: few steps, small sizes.
    pub short: &'static [&'static str],
    /// The largest number of programs that it may compile.
    compiles: u64,
    /// The largest number of transfers to the device per step, with those of the weights.
    uploads_per_step: f64,
    /// The largest difference of a loss, or of a token, from burn-flex.
    loss_difference: f64,
}

const fn case(
    name: &'static str,
    options: &'static [&'static str],
    short: &'static [&'static str],
    (compiles, uploads_per_step, loss_difference): (u64, f64, f64),
) -> Case {
    Case { name, options, short, compiles, uploads_per_step, loss_difference }
}

/// In the last column: compiles, transfers per step, difference of the losses. `stack` and `custom-loop` are interpreted in
/// their first eight steps, and compiled in one of the next. In `text-multi-sharded` Burn's threads read one another's
/// tensors, so where programs end, and how many are compiled, depends on which thread is first.
#[rustfmt::skip]
pub const CASES: [Case; 18] = [
    case("text", &["--program", "text", "--workers", "0"], &["--steps", "4"], (2, 4.0, 1e-5)),
    case("text-worker", &["--program", "text", "--workers", "1"], &["--steps", "4"], (2, 4.0, 1e-5)),
    case("text-threads", &["--program", "text-threads"], &["--steps", "4"], (2, 4.0, 1e-5)),
    case("text-multi", &["--program", "text-multi"], &["--steps", "8"], (4, 12.0, 1e-5)),
    case("text-multi-sharded", &["--program", "text-multi-sharded"], &["--steps", "8"], (10, 12.0, 1e-5)),
    case("text-generation", &["--program", "text-generation"], &["--steps", "4"], (2, 4.0, 1e-5)),
    case("lstm", &["--program", "lstm"], &["--steps", "4", "--time-steps", "6"], (2, 6.5, 1e-5)),
    case("gru", &["--program", "gru"], &["--steps", "4", "--time-steps", "6"], (2, 5.5, 1e-5)),
    case("stacked-lstm", &["--program", "stacked-lstm"], &["--steps", "4"], (0, 4.0, 1e-5)),
    case("regression", &["--program", "regression"], &["--steps", "4"], (2, 4.0, 1e-5)),
    case("stack", &["--program", "stack"], &["--steps", "12"], (1, 6.0, 1e-5)),
    case("custom-loop", &["--program", "custom-loop"], &["--steps", "12"], (1, 6.0, 1e-5)),
    case("dqn", &["--program", "dqn"], &["--steps", "60"], (4, 4.0, 1e-5)),
    case("generate", &["--program", "generate"], &["--steps", "4"], (1, 4.0, 0.0)),
    case("generate-cached", &["--program", "generate-cached"], &["--steps", "4"], (1, 4.0, 0.0)),
    case("detection", &["--program", "detection"], &["--steps", "3"], (0, 1.0, 0.0)),
    case("replay", &["--program", "replay"], &["--steps", "5"], (0, 1.0, 1e-5)),
    case("last-batch", &["--program", "last-batch"], &["--steps", "3"], (0, 1.0, 1e-5)),
];

impl Case {
    /// Returns an error that names the first limit that the run on burn-tpu exceeds.
    pub fn judge(&self, tpu: &Report, flex: &Report) -> Result<()> {
        let (compiles, uploads) = (tpu.compiles, tpu.uploads_per_step());
        let difference = tpu.loss_difference(flex, COMPARED_STEPS);
        ensure!(compiles <= self.compiles, "{compiles} programs were compiled, expected at most {}", self.compiles);
        ensure!(
            uploads <= self.uploads_per_step,
            "{uploads:.1} transfers to the device per step, expected at most {}",
            self.uploads_per_step
        );
        ensure!(
            difference <= self.loss_difference,
            "a loss differs by {difference:e} from burn-flex's, expected at most {:e}",
            self.loss_difference
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_judged() {
        let case = case("x", &[], &[], (3, 2.0, 0.1));
        let flex = Report { losses: vec![1.0, 0.5], ..Report::default() };
        let good = || Report { steps: 2, compiles: 3, uploads: 4, ..flex.clone() };
        assert!(case.judge(&good(), &flex).is_ok());
        assert!(case.judge(&Report { compiles: 4, ..good() }, &flex).is_err());
        assert!(case.judge(&Report { uploads: 5, ..good() }, &flex).is_err());
        assert!(case.judge(&Report { losses: vec![1.0, 0.7], ..good() }, &flex).is_err());
    }
}
