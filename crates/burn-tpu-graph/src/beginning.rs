//! The beginning of a first program: what makes its initial values, apart from the rest.
//!
//! The first step of a training draws the weights and makes the optimizer's first state; the first call of a model scales
//! its input. The next program takes these values as inputs, and is equal to the rest of the first one.
//!
//! Owns: which values are initial, and the division of a program at them. May not know: how the parts run.
//!
//! A value is *made* if it is computed from nothing but constants, run-time scalars and what is given (data of the user that
//! no program has read), by ops that draw, move or combine elements. A made value is *initial* if
//! 1. the caller says that a step begins with it, or
//! 2. it is an output that is made of something given, or
//! 3. it is an output of a first program, so that a later one may take it, or
//! 4. in a first program, it is the result of an op without operands, and an output takes its memory that is not the next
//!    value of anything above: it is the next value of the same state.
//!
//! A program is a *first* one if all of its arguments came from the user. Later ones create zeros and draw masks too,
//! and hold some of them: they are what comes back.

use crate::op::OpKind;
use crate::{Bindings, Node, NodeId, Op, Program, Rebuild, Result, Source};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The fewest nodes of a rest that is worth a compile of its own.
const LEAST_NODES: usize = 64;

/// What a caller knows of the nodes that a program may begin with.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    /// The values that a step begins with.
    pub initial: Vec<NodeId>,
    /// The results of ops without operands.
    pub created: Vec<NodeId>,
    /// Whether the program is a first one.
    pub is_first: bool,
    /// Whether a created value is initial only if it is drawn: a call that comes back may create zeros each time.
    pub only_drawn: bool,
}

/// A program as several: what makes its initial values, and the rest, of which they are parameters.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// What makes the values: all that need no draw together, and each draw alone, so that weights of one shape have one
    /// program.
    pub makers: Vec<Maker>,
    /// The rest, and what its inputs are in the whole program. A parameter that is bound to an index of at least
    /// `first_value` is an initial value.
    pub rest: (Arc<Program>, Bindings),
    /// The index in `rest`'s bindings of the first value; the others follow.
    pub first_value: u32,
    /// Where each output of the whole program comes from: [`Source::Host`] is an initial value.
    pub outputs: Vec<Source>,
}

/// A program that makes initial values.
#[derive(Clone, Debug)]
pub struct Maker {
    /// The program.
    pub program: Arc<Program>,
    /// What its inputs are in the whole program.
    pub inputs: Bindings,
    /// The index of the value that each result is.
    pub values: Vec<usize>,
}

impl Beginning {
    /// Returns a program divided at its initial values, or `None` if it has none, or if what is left is little. `is_given`
    /// tells whether a parameter is data that no program has read.
    ///
    /// # Errors
    /// Only a bug gives one: a part that breaks an op's rule.
    pub fn of(program: &Program, is_given: impl Fn(u32) -> bool, starts: &Starts) -> Result<Option<Self>> {
        let made = made(program, is_given);
        let draws = draws(program);
        let is_made = |id: &NodeId| made[id.index()].is_some() && is_computed(program.graph().node(*id));
        let is_left = |id: &NodeId| is_made(id) && (starts.is_first || made[id.index()] == Some(Made::OfGiven));
        let counts =
            |id: &NodeId| starts.is_first && is_made(id) && (draws[id.index()].is_some() || !starts.only_drawn);
        let mut values: Vec<NodeId> = starts.initial.iter().copied().filter(is_made).collect();
        values.extend(program.outputs().iter().copied().filter(is_left));
        let created: Vec<NodeId> = starts.created.iter().copied().filter(counts).collect();
        values.extend(updated(program, &values, &created)?);
        values.sort_unstable();
        values.dedup();
        if values.is_empty() {
            return Ok(None);
        }
        let first_value = first_free(program);
        let Some(rest) = rest(program, &values, first_value)? else { return Ok(None) };
        let has_work = |node: &Node| !is_maker(&node.op) && is_computed(node);
        if rest.0.graph().len() < LEAST_NODES || !rest.0.graph().nodes().iter().any(has_work) {
            return Ok(None);
        }
        let mut next = 0..;
        let source = |id: &NodeId| match values.binary_search(id) {
            Ok(value) => Source::Host(value),
            Err(_) => Source::Device(next.next().unwrap_or_default()),
        };
        let outputs = program.outputs().iter().map(source).collect();
        Ok(Some(Self { makers: makers(program, &values, &draws)?, rest, first_value, outputs }))
    }
}

/// What a made value is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    OfNothing,
    OfGiven,
}

/// Returns for each node what it is made of, if it is made.
fn made(program: &Program, is_given: impl Fn(u32) -> bool) -> Vec<Option<Made>> {
    let graph = program.graph();
    let mut made: Vec<Option<Made>> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let of_operands =
            || node.operands.iter().try_fold(Made::OfNothing, |most, id| Some(most.max(made[id.index()]?)));
        made.push(match node.op {
            Op::Parameter { index, .. } => is_given(index).then_some(Made::OfGiven),
            ref op => is_maker(op).then(of_operands).flatten(),
        });
    }
    made
}

/// Returns whether an op draws, moves or combines elements.
fn is_maker(op: &Op) -> bool {
    use OpKind::{Arithmetic, Cast, Constant, Draw, Input, Marker, Move, Part, Reduction, Result, Test, Update, View};
    let kind = op.kind();
    matches!(kind, Input | Constant | Draw | Result | Arithmetic | Test | Cast | Marker)
        || matches!(kind, View | Move | Part | Update | Reduction)
}

/// Returns whether a node is more than an input.
fn is_computed(node: &Node) -> bool {
    !matches!(node.op, Op::Parameter { .. } | Op::Slot { .. } | Op::Offset { .. })
}

/// Returns those of the created values whose memory an output takes, if they and `values` are parameters, and if none of
/// `values` is without them what that output updates.
fn updated(program: &Program, values: &[NodeId], created: &[NodeId]) -> Result<Vec<NodeId>> {
    let updates: FxHashSet<NodeId> = updates(program, values)?.into_iter().map(|(_, output)| output).collect();
    let of_all = self::updates(program, &[values, created].concat())?.into_iter();
    let values = of_all.filter(|(value, output)| created.contains(value) && !updates.contains(output));
    Ok(values.map(|(value, _)| value).collect())
}

/// Returns the values whose memory an output takes, if they are parameters, and that output.
fn updates(program: &Program, values: &[NodeId]) -> Result<Vec<(NodeId, NodeId)>> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    let first_value = first_free(program);
    let Some((rest, inputs)) = rest(program, &values, first_value)? else { return Ok(Vec::new()) };
    let outputs: Vec<NodeId> = outputs_besides(program, &values).collect();
    let mut updates = Vec::new();
    for (index, result) in inputs.parameters.iter().zip(rest.results_in_place()) {
        if let (Some(value), Some(result)) = (index.checked_sub(first_value), result) {
            updates.push((values[value as usize], outputs[result]));
        }
    }
    Ok(updates)
}

/// Returns the outputs of a program that are not among these values, which are ascending.
fn outputs_besides(program: &Program, values: &[NodeId]) -> impl Iterator<Item = NodeId> {
    program.outputs().iter().copied().filter(|output| values.binary_search(output).is_err())
}

/// Returns the index after those of a program's parameters.
fn first_free(program: &Program) -> u32 {
    program.parameters().map(|(index, _)| index + 1).max().unwrap_or(0)
}

/// Returns what a program computes besides `values`, which are ascending and its parameters from `first_value` on; `None` if
/// that is nothing.
fn rest(program: &Program, values: &[NodeId], first_value: u32) -> Result<Option<(Arc<Program>, Bindings)>> {
    let whole = program.graph();
    let mut new = Rebuild::new(whole);
    for (id, node) in whole.ids().zip(whole.nodes()) {
        match values.binary_search(&id) {
            Ok(value) => {
                let op = Op::Parameter { index: first_value + value as u32, ty: node.ty.clone() };
                new.add(id, op, &[])?;
            }
            Err(_) => {
                new.copy(id)?;
            }
        }
    }
    let outputs: Vec<NodeId> = outputs_besides(program, values).collect();
    if outputs.is_empty() {
        return Ok(None);
    }
    let (rest, inputs) = Program::canonical(&new.graph, &new.renamed.ids(&outputs)?)?;
    Ok(Some((Arc::new(rest), inputs)))
}

/// Returns for each node the place of the first draw that it depends on.
fn draws(program: &Program) -> Vec<Option<usize>> {
    let graph = program.graph();
    let mut draws: Vec<Option<usize>> = Vec::with_capacity(graph.len());
    for (place, node) in graph.nodes().iter().enumerate() {
        let earlier = node.operands.iter().filter_map(|id| draws[id.index()]).min();
        let own = (node.op.kind() == OpKind::Draw).then_some(place);
        draws.push(earlier.or(own));
    }
    draws
}

/// Returns the programs that make the values: those of one draw together, and those without a draw.
fn makers(program: &Program, values: &[NodeId], draws: &[Option<usize>]) -> Result<Vec<Maker>> {
    let mut groups: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, value) in values.iter().enumerate() {
        groups.entry(draws[value.index()]).or_default().push(index);
    }
    let mut makers = Vec::with_capacity(groups.len());
    for indices in groups.into_values() {
        let outputs: Vec<NodeId> = indices.iter().map(|&index| values[index]).collect();
        let (program, inputs) = Program::canonical(program.graph(), &outputs)?;
        makers.push(Maker { program: Arc::new(program), inputs, values: indices });
    }
    Ok(makers)
}

#[cfg(test)]
mod tests;
