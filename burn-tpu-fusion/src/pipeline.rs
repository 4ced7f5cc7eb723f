//! The pipeline: every pass of a level in order, each between two runs of the verifier.

use crate::{Pass, Rewrite};
use burn_tpu_graph::{Builder, GraphError, NodeId, Op, Placement, Program, Sharding, VerifyError, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far programs are rewritten before they are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Optimization {
    /// Not at all: programs are compiled as they are recorded. Use it to find out whether a rewrite makes a result wrong.
    Off,
    /// Rewrites whose results have the same bits or fewer roundings, and that cost no compile time. A formula of 16-bit floats
    /// is rounded where its result is stored, not after each op (decision 57).
    Conservative,
    /// All that make programs faster and assume nothing of values. Sums may have another order: see decision 52.
    #[default]
    Balanced,
    /// What no TPU has run yet, and what takes several compiles: on TPUs, attention in kernels, the loss in blocks of rows
    /// (decision 37), and compiler options that are chosen for each program by the compiler's estimate (decision 34). What
    /// masks attention in kernels is taken for smaller than all scores.
    Aggressive,
}

/// What a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// TPUs, whose compiler takes kernels.
    Tpu,
    /// The host's processor, by XLA's CPU compiler.
    Cpu,
    /// Anything: other platforms, the interpreter.
    Any,
}

/// When the verifier ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// On the input of the pass: the bug is before the pass.
    Before,
    /// On the output of the pass: the bug is in the pass.
    After,
}

/// A failed rewrite; always a bug of this project.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FusionError {
    /// A replacement broke an op's rule.
    #[error("pass {pass} built a node that cannot exist: {error}")]
    Rule {
        /// The pass's name.
        pass: &'static str,
        /// The rule that the replacement broke.
        error: GraphError,
    },
    /// The verifier rejected the program.
    #[error("{stage:?} pass {pass} the program was invalid: {error}")]
    Invalid {
        /// The pass's name.
        pass: &'static str,
        /// Whether the verifier ran before or after the pass.
        stage: Stage,
        /// The invariant that does not hold.
        error: VerifyError,
    },
    /// The pass changed the number or the types of the outputs.
    #[error("pass {pass} changed the number or the types of the outputs")]
    Outputs {
        /// The pass's name.
        pass: &'static str,
    },
}

/// The result of a rewrite.
pub type Result<T, E = FusionError> = std::result::Result<T, E>;

/// A program after the pipeline, with the number of rewrites.
#[derive(Clone, Debug)]
pub struct Optimized {
    /// The program to lower.
    pub program: Program,
    /// The number of places where each pass found its pattern, in the order of the passes. A place in the body of a
    /// loop counts once.
    pub applied: Vec<(&'static str, usize)>,
}

/// A sequence of passes.
pub struct Pipeline {
    passes: Vec<Box<dyn Pass>>,
    verify: bool,
}

impl Pipeline {
    /// Creates the pipeline of a level. The verifier runs in debug builds.
    pub fn new(level: Optimization) -> Self {
        Self::without(level, &[])
    }

    /// Creates the pipeline of a level without some of its rewrites. The verifier runs in debug builds.
    pub fn without(level: Optimization, skipped: &[Rewrite]) -> Self {
        Self::with_target(level, skipped, Target::Any)
    }

    /// Creates the pipeline of a level for a target, without some of its rewrites. The verifier runs in debug builds.
    pub fn with_target(level: Optimization, skipped: &[Rewrite], target: Target) -> Self {
        Self::with(|rewrite| {
            rewrite.is_of(level, skipped) && (rewrite.target() == Target::Any || rewrite.target() == target)
        })
    }

    /// Creates the pipeline of those rewrites of a level that leave out roundings and nothing else, without some of them.
    /// What a program is divided into, and what is not compiled, rounds as the whole program does after these.
    pub fn of_roundings(level: Optimization, skipped: &[Rewrite]) -> Self {
        let roundings = [Rewrite::LinearActivation, Rewrite::RoundOnce];
        Self::with(|rewrite| rewrite.is_of(level, skipped) && roundings.contains(&rewrite))
    }

    fn with(is_kept: impl Fn(Rewrite) -> bool) -> Self {
        Self::of(Rewrite::ALL.into_iter().filter(|&rewrite| is_kept(rewrite)).map(Rewrite::pass).collect())
    }

    /// Creates a pipeline of the given passes. The verifier runs in debug builds.
    pub fn of(passes: Vec<Box<dyn Pass>>) -> Self {
        Self { passes, verify: cfg!(debug_assertions) }
    }

    /// Sets whether the verifier runs before and after each pass.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Runs every pass in order, on the bodies of loops first.
    ///
    /// # Errors
    /// Fails if a pass produces an invalid program, or is given one.
    pub fn run(&self, program: Program) -> Result<Optimized> {
        let start = self.run_on_bodies(program)?;
        self.passes.iter().try_fold(start, |state, pass| self.step(state, pass.as_ref()))
    }

    /// Runs every pass on the bodies of the program's loops.
    fn run_on_bodies(&self, program: Program) -> Result<Optimized> {
        let mut applied: Vec<(&'static str, usize)> = Vec::new();
        let mut bodies = BTreeMap::new();
        for id in program.graph().ids() {
            let Op::For { trips, body } = &program.graph().node(id).op else { continue };
            let optimized = self.run(on_mesh_of(&program, id, body))?;
            if optimized.applied.iter().any(|(_, count)| *count > 0) {
                bodies.insert(id, Op::For { trips: *trips, body: Arc::new(optimized.program.unplaced()) });
                optimized.applied.into_iter().for_each(|(name, count)| add(&mut applied, name, count));
            }
        }
        if bodies.is_empty() {
            return Ok(Optimized { program, applied: Vec::new() });
        }
        let rewritten = program
            .rewrite(|graph, id, node, operands| graph.add(bodies.get(&id).unwrap_or(&node.op).clone(), operands));
        let program = rewritten.map_err(|error| FusionError::Rule { pass: "body", error })?;
        Ok(Optimized { program, applied })
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
        add(&mut state.applied, name, rewritten.count);
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

/// Returns the body of a loop as a program of the mesh that the program around it runs on: a carry that begins as a
/// parameter is placed as that.
fn on_mesh_of(program: &Program, id: NodeId, body: &Program) -> Program {
    let Some(placement) = program.placement() else { return body.clone() };
    let graph = program.graph();
    let carry = |&operand: &NodeId| match graph.node(operand).op {
        Op::Parameter { index, .. } => placement.parameter(index).cloned(),
        _ => None,
    };
    let operands = &graph.node(id).operands;
    let replicated = |id: &NodeId| Sharding::replicated(graph.ty(*id).rank());
    let mut parameters: Vec<_> = operands.iter().map(|id| carry(id).unwrap_or_else(|| replicated(id))).collect();
    let counter = body.parameters().any(|(index, _)| index as usize == parameters.len());
    parameters.extend(counter.then(|| Sharding::replicated(0)));
    let results = body.output_types().map(|ty| Sharding::replicated(ty.rank())).collect();
    let (mesh, batch) = (placement.mesh.clone(), placement.batch.clone());
    body.clone().placed(Placement { mesh, batch, parameters, results })
}

/// Adds the places that a pass found to those that it found before.
fn add(applied: &mut Vec<(&'static str, usize)>, name: &'static str, count: usize) {
    match applied.iter_mut().find(|(of, _)| *of == name) {
        Some((_, before)) => *before += count,
        None => applied.push((name, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rewritten;
    use burn_tpu_graph::op::{BinaryOp, Trips};
    use burn_tpu_graph::{Builder, DType, Graph, Mesh, Op, TensorType, corpus};
    use std::sync::Mutex;

    #[test]
    fn the_corpus_is_rewritten_and_a_second_run_finds_nothing() {
        for case in corpus::cases().unwrap() {
            let pipeline = Pipeline::new(Optimization::Balanced).verify(true);
            let once = pipeline.run(case.program).unwrap();
            let twice = pipeline.run(once.program.clone()).unwrap();
            assert_eq!(twice.program, once.program, "{}", case.name);
            assert!(twice.applied.iter().all(|(_, count)| *count == 0), "{}", case.name);
        }
    }

    #[test]
    fn each_level_has_the_passes_of_the_one_below() {
        let names = |level| Pipeline::new(level).passes.iter().map(|pass| pass.name()).collect::<Vec<_>>();
        let conservative = ["linear_activation", "gather_first", "scatter_sum", "round_once", "roll"];
        assert_eq!(names(Optimization::Conservative), conservative);
        let balanced = names(Optimization::Balanced);
        assert_eq!(balanced[3..], ["product_sum", "softmax_gradient", "query_blocks", "round_once", "roll"]);
        // Kernels are for TPUs alone.
        assert_eq!(names(Optimization::Aggressive), balanced);
        let on_tpus = Pipeline::with_target(Optimization::Aggressive, &[], Target::Tpu);
        let on_tpus: Vec<_> = on_tpus.passes.iter().map(|pass| pass.name()).collect();
        let passes = ["flash_attention", "product_sum", "softmax_gradient", "query_blocks", "row_blocks", "round_once"];
        assert_eq!(on_tpus[3..9], passes);
        assert_eq!(Pipeline::with_target(Optimization::Balanced, &[], Target::Tpu).passes.len(), balanced.len());
        let on_cpus = Pipeline::with_target(Optimization::Balanced, &[], Target::Cpu);
        let on_cpus: Vec<_> = on_cpus.passes.iter().map(|pass| pass.name()).collect();
        assert_eq!(on_cpus[on_cpus.len() - 3..], ["depthwise", "few_bits", "few_rows"]);
    }

    /// A pass that notes the placement of what it is given.
    struct Sees(Arc<Mutex<Vec<Option<Placement>>>>);

    impl Pass for Sees {
        fn name(&self) -> &'static str {
            "sees"
        }

        fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
            self.0.lock().unwrap().push(program.placement().map(|placement| Placement::clone(placement)));
            Ok(Rewritten { program: program.clone(), count: 1 })
        }
    }

    /// `for _ in 0..3 { x = x + y }`, with `x + x` for `x` at first.
    fn a_loop() -> Program {
        let parameter = |graph: &mut Graph, index| {
            let ty = TensorType::new(DType::F32, [4, 2]);
            graph.add(Op::Parameter { index, ty }, &[]).unwrap()
        };
        let mut body = Graph::new();
        let [x, y] = [0, 1].map(|index| parameter(&mut body, index));
        let sum = body.binary(BinaryOp::Add, x, y).unwrap();
        let body = Arc::new(Program::extract(&body, &[sum, y]).unwrap());
        let mut graph = Graph::new();
        let [x, y] = [0, 1].map(|index| parameter(&mut graph, index));
        let first = graph.binary(BinaryOp::Add, x, x).unwrap();
        let carries = graph.loop_of(Trips::Exactly(3), body, &[first, y]).unwrap();
        Program::extract(&graph, &carries[..1]).unwrap()
    }

    #[test]
    fn the_body_of_a_loop_on_a_mesh_is_of_the_mesh_for_passes_alone() {
        let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
        let (split, whole) = (Sharding::first_dim(2, &[0]), Sharding::replicated(2));
        let placement = |parameters: [&Sharding; 2], results: &[&Sharding]| Placement {
            mesh: mesh.clone(),
            batch: vec![0],
            parameters: parameters.map(Sharding::clone).to_vec(),
            results: results.iter().copied().cloned().collect(),
        };
        let of_all = placement([&split, &split], &[&split]);
        let seen = Arc::default();
        let pipeline = Pipeline::of(vec![Box::new(Sees(Arc::clone(&seen)))]);
        let placed = a_loop().placed(of_all.clone());
        assert_eq!(pipeline.run(placed.clone()).unwrap().program, placed);
        // What is computed before the loop may be anywhere.
        let of_body = placement([&whole, &split], &[&whole, &whole]);
        assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), [Some(of_body), Some(of_all)]);
        pipeline.run(a_loop()).unwrap();
        assert_eq!(*seen.lock().unwrap(), [None, None]);
    }

    #[test]
    fn a_skipped_rewrite_is_left_out() {
        let pipeline = Pipeline::without(Optimization::Balanced, &[Rewrite::QueryBlocks, Rewrite::Roll]);
        let names: Vec<_> = pipeline.passes.iter().map(|pass| pass.name()).collect();
        let balanced =
            ["linear_activation", "gather_first", "scatter_sum", "product_sum", "softmax_gradient", "round_once"];
        assert_eq!(names, balanced);
    }

    #[test]
    fn roundings_are_left_out_as_the_level_says() {
        let names = |level, skipped: &[_]| {
            let passes = Pipeline::of_roundings(level, skipped).passes;
            passes.iter().map(|pass| pass.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(Optimization::Conservative, &[]), ["linear_activation", "round_once"]);
        assert_eq!(names(Optimization::Balanced, &[Rewrite::RoundOnce]), ["linear_activation"]);
        assert!(names(Optimization::Off, &[]).is_empty());
    }

    #[test]
    fn off_changes_nothing() {
        for case in corpus::cases().unwrap() {
            assert_eq!(Pipeline::new(Optimization::Off).run(case.program.clone()).unwrap().program, case.program);
        }
    }

    /// A pass that drops the last output.
    struct DropsAnOutput;

    impl Pass for DropsAnOutput {
        fn name(&self) -> &'static str {
            "drops_an_output"
        }

        fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
            let kept = program.outputs().len().saturating_sub(1);
            Ok(Rewritten { program: Program::extract(program.graph(), &program.outputs()[..kept])?, count: 1 })
        }
    }

    /// A pass that builds an invalid node.
    struct BuildsAnInvalidNode;

    impl Pass for BuildsAnInvalidNode {
        fn name(&self) -> &'static str {
            "builds_an_invalid_node"
        }

        fn run(&self, _: &Program) -> Result<Rewritten, GraphError> {
            let mut graph = Graph::new();
            let node = graph.add(Op::IsFinite, &[])?;
            Ok(Rewritten { program: Program::extract(&graph, &[node])?, count: 1 })
        }
    }

    #[test]
    fn the_error_names_the_pass_that_breaks_the_program() {
        let program = corpus::cases().unwrap().remove(0).program;
        let run = |pass: Box<dyn Pass>| Pipeline::of(vec![pass]).run(program.clone()).map(|o| o.applied);
        assert_eq!(run(Box::new(DropsAnOutput)), Err(FusionError::Outputs { pass: "drops_an_output" }));
        assert!(matches!(
            run(Box::new(BuildsAnInvalidNode)),
            Err(FusionError::Rule { pass: "builds_an_invalid_node", .. })
        ));
    }
}
