//! The pipeline: every pass of a level in order, each between two runs of the verifier.

use crate::{LinearActivation, Pass};
use burn_tpu_graph::{GraphError, Program, VerifyError, verify};

/// How much is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// Nothing.
    Off,
    /// Every pass with a measured gain.
    #[default]
    Full,
}

/// When the verifier spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On what the pass was given: a bug before it.
    Before,
    /// On what the pass made: its own bug.
    After,
}

/// A rewrite that went wrong; always a bug of ours.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FusionError {
    /// A replacement broke an op's rule.
    #[error("pass {pass} built a node that cannot exist: {error}")]
    Rule {
        /// The pass.
        pass: &'static str,
        /// The broken rule.
        error: GraphError,
    },
    /// The verifier refused the program.
    #[error("{stage:?} pass {pass} the program was invalid: {error}")]
    Invalid {
        /// The pass.
        pass: &'static str,
        /// Before or after it.
        stage: Stage,
        /// The broken invariant.
        error: VerifyError,
    },
    /// The pass changed what the program gives.
    #[error("pass {pass} changed the number or the types of the outputs")]
    Outputs {
        /// The pass.
        pass: &'static str,
    },
}

/// What rewriting returns.
pub type Result<T, E = FusionError> = std::result::Result<T, E>;

/// A program after the pipeline, with what was done to it.
#[derive(Clone, Debug)]
pub struct Optimized {
    /// The program to lower.
    pub program: Program,
    /// How often each pass found its pattern, in the order of the passes.
    pub applied: Vec<(&'static str, usize)>,
}

/// Passes in order.
pub struct Pipeline {
    passes: Vec<Box<dyn Pass>>,
    verify: bool,
}

impl Pipeline {
    /// The passes of a level. The verifier runs in debug builds.
    pub fn new(level: Level) -> Self {
        let passes: Vec<Box<dyn Pass>> = match level {
            Level::Off => Vec::new(),
            Level::Full => vec![Box::new(LinearActivation)],
        };
        Self::of(passes)
    }

    /// Passes of the caller's choice. The verifier runs in debug builds.
    pub fn of(passes: Vec<Box<dyn Pass>>) -> Self {
        Self { passes, verify: cfg!(debug_assertions) }
    }

    /// Whether the verifier runs before and after each pass.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Runs every pass.
    ///
    /// # Errors
    /// If a pass breaks the program, or was given a broken one.
    pub fn run(&self, program: Program) -> Result<Optimized> {
        let start = Optimized { program, applied: Vec::new() };
        self.passes.iter().try_fold(start, |state, pass| self.step(state, pass.as_ref()))
    }

    fn step(&self, mut state: Optimized, pass: &dyn Pass) -> Result<Optimized> {
        let name = pass.name();
        self.check(name, Stage::Before, &state.program)?;
        let rewritten = pass.run(&state.program).map_err(|error| FusionError::Rule { pass: name, error })?;
        self.check(name, Stage::After, &rewritten.program)?;
        if !state.program.output_types().eq(rewritten.program.output_types()) {
            return Err(FusionError::Outputs { pass: name });
        }
        tracing::debug!(pass = name, count = rewritten.count, nodes = rewritten.program.graph().len(), "rewrote");
        state.applied.push((name, rewritten.count));
        state.program = rewritten.program;
        Ok(state)
    }

    fn check(&self, pass: &'static str, stage: Stage, program: &Program) -> Result<()> {
        if !self.verify {
            return Ok(());
        }
        verify(program).map_err(|error| FusionError::Invalid { pass, stage, error })
    }
}

/// The program after every pass of a level.
///
/// # Errors
/// If a pass breaks the program, or was given a broken one.
pub fn optimize(program: Program, level: Level) -> Result<Program> {
    Pipeline::new(level).run(program).map(|optimized| optimized.program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rewritten;
    use burn_tpu_graph::corpus;
    use burn_tpu_graph::{Builder, Graph, Op};

    #[test]
    fn the_corpus_goes_through_and_a_second_run_finds_nothing() {
        for case in corpus::cases().unwrap() {
            let pipeline = Pipeline::new(Level::Full).verify(true);
            let once = pipeline.run(case.program).unwrap();
            let twice = pipeline.run(once.program.clone()).unwrap();
            assert_eq!(twice.program, once.program, "{}", case.name);
            assert!(twice.applied.iter().all(|(_, count)| *count == 0), "{}", case.name);
        }
    }

    #[test]
    fn off_changes_nothing() {
        for case in corpus::cases().unwrap() {
            assert_eq!(optimize(case.program.clone(), Level::Off).unwrap(), case.program);
        }
    }

    /// Loses the last output.
    struct Forgetful;

    impl Pass for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }

        fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
            let kept = program.outputs().len().saturating_sub(1);
            Ok(Rewritten { program: Program::extract(program.graph(), &program.outputs()[..kept])?, count: 1 })
        }
    }

    /// Builds a node that cannot exist.
    struct Clumsy;

    impl Pass for Clumsy {
        fn name(&self) -> &'static str {
            "clumsy"
        }

        fn run(&self, _: &Program) -> Result<Rewritten, GraphError> {
            let mut graph = Graph::new();
            let node = graph.add(Op::IsFinite, &[])?;
            Ok(Rewritten { program: Program::extract(&graph, &[node])?, count: 1 })
        }
    }

    #[test]
    fn a_pass_that_breaks_the_program_is_named() {
        let program = corpus::cases().unwrap().remove(0).program;
        let run = |pass: Box<dyn Pass>| Pipeline::of(vec![pass]).run(program.clone()).map(|o| o.applied);
        assert_eq!(run(Box::new(Forgetful)), Err(FusionError::Outputs { pass: "forgetful" }));
        assert!(matches!(run(Box::new(Clumsy)), Err(FusionError::Rule { pass: "clumsy", .. })));
    }
}
