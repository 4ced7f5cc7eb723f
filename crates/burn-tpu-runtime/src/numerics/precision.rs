//! What loses precision in 16-bit floats, read off a program: weights without masters, updates that may be lost to rounding,
//! long sums, losses.
//!
//! The rules are meant to have few false alarms rather than to find everything: sums and means of 16-bit floats run in f32
//! inside, as do products, so only what user code itself keeps in 16 bits is looked for.

use super::LABEL;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Number, Op, Program, Result, Role, TensorType};
use std::sync::Arc;

/// The number of additions from which a chain is long. The sum of 256 equal terms in bf16 does not grow any more: one term
/// is less than half of its last place.
const LONG: usize = 256;

/// A 16-bit float that a step updates by a sum or a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// The value before.
    pub(crate) parameter: NodeId,
    /// The sum or difference, perhaps in a wider type.
    pub(crate) sum: NodeId,
    /// What is added or subtracted.
    pub(crate) change: NodeId,
    /// The value after.
    pub(crate) result: NodeId,
    /// Whether it is combined with values of another shape, as a weight is.
    pub(crate) is_weight: bool,
}

/// Returns the updates of 16-bit floats among the first `results` results of a program. A value that is rounded from an f32
/// master is no update: the sum is the master's.
pub(crate) fn updates(program: &Program, results: usize) -> Vec<Update> {
    let graph = program.graph();
    let in_place = program.results_in_place();
    let roles = program.roles(&in_place);
    let parameters = (0..graph.len() as u32).map(NodeId).filter(|&id| is_parameter(&graph.node(id).op));
    let mut updates = Vec::new();
    for (parameter, place) in parameters.zip(in_place) {
        let Some(place) = place.filter(|&place| place < results && graph.dtype(parameter).is_half()) else { continue };
        let result = program.outputs()[place];
        let Some((sum, change)) = sum_with(graph, result, parameter) else { continue };
        updates.push(Update { parameter, sum, change, result, is_weight: roles[place] == Role::Parameter });
    }
    updates
}

/// Returns the sum or difference that gives a result from a parameter, and the operand that is added or subtracted.
fn sum_with(graph: &Graph, result: NodeId, parameter: NodeId) -> Option<(NodeId, NodeId)> {
    let sum = find_sum(graph, result)?;
    let [lhs, rhs] = graph.node(sum).operands[..] else { return None };
    if same(graph, lhs) == parameter {
        return Some((sum, rhs));
    }
    let is_sum = graph.node(sum).op == Op::Binary(BinaryOp::Add);
    (is_sum && same(graph, rhs) == parameter).then_some((sum, lhs))
}

/// Returns the last addition of each long chain of additions in a 16-bit float, with its length.
pub(crate) fn long_sums(graph: &Graph) -> Vec<(NodeId, usize)> {
    let mut lengths = vec![0; graph.len()];
    let mut continued = vec![false; graph.len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        if !node.ty.dtype.is_half() || !matches!(node.op, Op::Binary(BinaryOp::Add | BinaryOp::Sub)) {
            continue;
        }
        let longest = node.operands.iter().copied().max_by_key(|id| lengths[id.index()]);
        let Some(longest) = longest else { continue };
        lengths[index] = lengths[longest.index()] + 1;
        continued[longest.index()] = true;
    }
    let long = lengths.into_iter().enumerate().filter(|&(index, length)| length >= LONG && !continued[index]);
    long.map(|(index, length)| (NodeId(index as u32), length)).collect()
}

/// Returns the nodes with which the backward pass of a 16-bit loss may begin: the loss's gradient with respect to itself,
/// which Burn's autodiff records as ones. The line of such a node tells whether it belongs to a backward pass.
pub(crate) fn loss_gradients(graph: &Graph) -> Vec<NodeId> {
    let mut gradients = Vec::new();
    for id in (0..graph.len() as u32).map(NodeId) {
        let ty: &TensorType = graph.ty(id);
        if graph.label(id) == "float_ones" && ty.dtype.is_half() && ty.elements() == 1 {
            gradients.push(id);
        }
    }
    gradients
}

/// A program that counts, for some updates of another program, the elements that should change and the elements that keep
/// their value, since the change is lost to rounding.
#[derive(Debug)]
pub(crate) struct LostCounts {
    /// It has the other program's parameters and slots. Its result is `u32[2 n]`: lost, changed, lost, changed.
    pub(crate) program: Arc<Program>,
}

impl LostCounts {
    /// Returns the program that counts for these updates.
    ///
    /// # Errors
    /// Only a bug gives one.
    pub(crate) fn of(program: &Program, updates: &[Update]) -> Result<Self> {
        let mut graph = program.graph().clone();
        graph.set_label(LABEL);
        let mut counts = Vec::new();
        for update in updates {
            let changed = graph.compare_const(Direction::Ne, update.change, Number::Float(0.0))?;
            let changed = reshaped(&mut graph, changed, update.parameter)?;
            // Compared as bits: a compiler may keep the sum in f32 and see a difference that the result does not have.
            let [before, after] = [update.parameter, update.result].map(|id| graph.bitcast_convert(id, DType::U16));
            let same = graph.compare(Direction::Eq, before?, after?)?;
            let lost = graph.binary(BinaryOp::And, same, changed)?;
            counts.push(count(&mut graph, lost)?);
            counts.push(count(&mut graph, changed)?);
        }
        let all = graph.concatenate(&counts, 0)?;
        Ok(Self { program: Arc::new(Program::extract(&graph, &[all])?) })
    }

    /// Returns the lost and the changed elements of each update, from the bytes of the result.
    pub(crate) fn read(bytes: &[u8]) -> Vec<(u32, u32)> {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |number, &byte| (number << 8) | u32::from(byte));
        bytes.chunks_exact(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect()
    }
}

/// Adds the number of true elements: `u32[1]`.
fn count(graph: &mut Graph, x: NodeId) -> Result<NodeId> {
    let ones = graph.convert(x, DType::U32)?;
    let dims: Vec<usize> = (0..graph.rank(ones)).collect();
    let sum = graph.reduce(Combine::Sum, ones, &dims)?;
    graph.reshape(sum, &[1])
}

/// Adds a value with the dims of another one, which has as many elements.
fn reshaped(graph: &mut Graph, x: NodeId, like: NodeId) -> Result<NodeId> {
    let dims = graph.dims(like);
    graph.reshape(x, &dims)
}

/// Returns the sum or difference that a result is, perhaps rounded or chosen by a condition.
fn find_sum(graph: &Graph, result: NodeId) -> Option<NodeId> {
    let mut waiting = vec![result];
    // There are few nodes between an update and its result.
    for _ in 0..64 {
        let id = same(graph, waiting.pop()?);
        match &graph.node(id).op {
            Op::Binary(BinaryOp::Add | BinaryOp::Sub) => return Some(id),
            Op::Select => waiting.extend_from_slice(&graph.node(id).operands[1..]),
            _ => {}
        }
    }
    None
}

/// Returns the value that a node is, perhaps in another type or with other dims.
fn same(graph: &Graph, mut id: NodeId) -> NodeId {
    while let (
        Op::Convert { .. } | Op::Reshape { .. } | Op::OptimizationBarrier | Op::ShardingConstraint(_),
        [operand],
    ) = (&graph.node(id).op, &graph.node(id).operands[..])
    {
        id = *operand;
    }
    id
}

fn is_parameter(op: &Op) -> bool {
    matches!(op, Op::Parameter { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::UnaryOp;

    fn parameter(g: &mut Graph, index: u32, dtype: DType) -> NodeId {
        g.add(Op::Parameter { index, ty: TensorType::new(dtype, [4]) }, &[]).unwrap()
    }

    fn found(g: &Graph, outputs: &[NodeId]) -> Vec<Update> {
        let program = Program::extract(g, outputs).unwrap();
        updates(&program, outputs.len())
    }

    /// `w = w - tanh(m)` in bf16, the same with an f32 master, and the same in f32 with only the bf16 weight kept.
    #[test]
    fn an_update_is_that_of_a_value_without_a_master() {
        let g = &mut Graph::new();
        let [w, m] = [0, 1].map(|i| parameter(g, i, DType::BF16));
        let change = g.unary(UnaryOp::Tanh, m).unwrap();
        let new = g.binary(BinaryOp::Sub, w, change).unwrap();
        let updates = found(g, &[new]);
        assert_eq!(updates.len(), 1);
        assert!(!updates[0].is_weight);

        let g = &mut Graph::new();
        let (w, master, m) = (parameter(g, 0, DType::BF16), parameter(g, 1, DType::F32), parameter(g, 2, DType::F32));
        let wide = g.convert(w, DType::F32).unwrap();
        let change = g.binary(BinaryOp::Mul, wide, m).unwrap();
        let new_master = g.binary(BinaryOp::Sub, master, change).unwrap();
        let with_master = g.convert(new_master, DType::BF16).unwrap();
        assert_eq!(found(g, &[with_master, new_master]), []);
        let sum = g.binary(BinaryOp::Add, change, wide).unwrap();
        let without = g.convert(sum, DType::BF16).unwrap();
        assert_eq!(found(g, &[without]).len(), 1);
        let away = g.binary(BinaryOp::Sub, change, wide).unwrap();
        let away = g.convert(away, DType::BF16).unwrap();
        assert_eq!(found(g, &[away]), [], "the value is subtracted from something");
    }

    #[test]
    fn a_chain_of_additions_is_long_from_256_on_and_reported_once() {
        let chain = |dtype, length| {
            let mut g = Graph::new();
            let (mut sum, x) = (parameter(&mut g, 0, dtype), parameter(&mut g, 1, dtype));
            for _ in 0..length {
                sum = g.binary(BinaryOp::Add, sum, x).unwrap();
            }
            long_sums(&g)
        };
        assert_eq!((chain(DType::BF16, LONG - 1), chain(DType::F32, LONG)), (vec![], vec![]));
        assert_eq!(chain(DType::BF16, LONG + 4), [(NodeId(LONG as u32 + 5), LONG + 4)]);
    }

    #[test]
    fn counts_are_pairs_of_little_endian_numbers() {
        assert_eq!(LostCounts::read(&[1, 0, 0, 0, 2, 1, 0, 0]), [(1, 258)]);
    }
}
