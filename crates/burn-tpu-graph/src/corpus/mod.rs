//! Small programs that together use every op kind with every element type that it takes.
//!
//! Tests of several crates compile, run, print and hash them, so they are a hidden module of this crate and not files
//! under one crate's `tests/`. Add the cases of a new op kind here.

mod contract;
mod control;
mod custom_call;
mod elementwise;
mod index;
mod leaf;
mod movement;
pub mod varying;
mod window;

use crate::{Builder, DType, DTypeClass, Graph, NodeId, Op, Program, Result, TensorType};

/// A named program.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name, as `family/what/element type`.
    pub name: String,
    /// The program.
    pub program: Program,
}

/// Returns every case, in a fixed order.
///
/// # Errors
/// Fails only if an inference rule and a case disagree.
pub fn cases() -> Result<Vec<Case>> {
    let mut cases = Cases::default();
    leaf::add(&mut cases)?;
    elementwise::add(&mut cases)?;
    movement::add(&mut cases)?;
    contract::add(&mut cases)?;
    window::add(&mut cases)?;
    index::add(&mut cases)?;
    control::add(&mut cases)?;
    custom_call::add(&mut cases)?;
    Ok(cases.0)
}

/// Groups cases by family (the name up to the first `/`), to merge them for faster compilation.
pub fn by_family(cases: Vec<Case>) -> Vec<(String, Vec<Case>)> {
    let mut families: Vec<(String, Vec<Case>)> = Vec::new();
    for case in cases {
        let family = case.name.split('/').next().unwrap_or_default().to_string();
        match families.iter_mut().find(|(name, _)| *name == family) {
            Some((_, members)) => members.push(case),
            None => families.push((family, vec![case])),
        }
    }
    families
}

/// Returns one program that computes all of the cases independently.
///
/// # Errors
/// Never fails: every node was checked before.
pub fn merge(cases: &[Case]) -> Result<Program> {
    let mut graph = Graph::new();
    let mut outputs = Vec::new();
    let (mut parameters, mut slots) = (0, 0);
    for Case { program, .. } in cases {
        let first = graph.len() as u32;
        for node in program.graph().nodes() {
            let operands: Vec<_> = node.operands.iter().map(|id| NodeId(id.0 + first)).collect();
            let op = match node.op.clone() {
                Op::Parameter { index, ty } => Op::Parameter { index: index + parameters, ty },
                Op::Slot { index, dtype } => Op::Slot { index: index + slots, dtype },
                Op::Offset { index, dtype } => Op::Offset { index: index + slots, dtype },
                other => other,
            };
            graph.add(op, &operands)?;
        }
        outputs.extend(program.outputs().iter().map(|id| NodeId(id.0 + first)));
        parameters += program.parameters().map(|(index, _)| index + 1).max().unwrap_or(0);
        slots += program.slots().map(|(_, index, _)| index + 1).max().unwrap_or(0);
    }
    Program::extract(&graph, &outputs)
}

/// Returns the element types of a class, in declaration order.
pub fn dtypes(class: DTypeClass) -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(move |&dtype| class.contains(dtype))
}

/// Element types that represent all others in ops that only move elements.
const MOVED: [DType; 5] = [DType::Bool, DType::I64, DType::U8, DType::BF16, DType::F32];

/// The cases added so far.
#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    /// Adds the program whose outputs `build` records.
    fn add(
        &mut self,
        name: impl std::fmt::Display,
        build: impl FnOnce(&mut Recorder) -> Result<Vec<NodeId>>,
    ) -> Result<()> {
        let mut recorder = Recorder::default();
        let outputs = build(&mut recorder)?;
        let program = Program::extract(&recorder.graph, &outputs)?;
        self.0.push(Case { name: name.to_string(), program });
        Ok(())
    }
}

/// A graph under construction, with the next free parameter and slot.
#[derive(Default)]
struct Recorder {
    graph: Graph,
    parameters: u32,
    slots: u32,
}

impl Recorder {
    fn parameter(&mut self, dtype: DType, dims: &[usize]) -> Result<NodeId> {
        let index = self.parameters;
        self.parameters += 1;
        self.graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[])
    }

    fn slot(&mut self, dtype: DType) -> Result<NodeId> {
        let index = self.slots;
        self.slots += 1;
        self.graph.add(Op::Slot { index, dtype }, &[])
    }

    fn offset(&mut self, dtype: DType) -> Result<NodeId> {
        let index = self.slots;
        self.slots += 1;
        self.graph.add(Op::Offset { index, dtype }, &[])
    }
}
