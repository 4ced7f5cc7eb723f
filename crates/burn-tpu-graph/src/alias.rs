//! Input-output aliases: which result may take a parameter's memory when a call donates the parameter.
//!
//! By default, XLA pairs donors and results of one size in their order: a weight's memory goes to an optimizer
//! moment, and the weight is copied first. Here, each result is paired with the parameter that it updates: the
//! parameter of its type that the fewest element-wise ops separate from it. A parameter without such a result is not
//! a donor, so that inference does not pay for a pair that only training could use.

use crate::op::OpKind;
use crate::{Graph, Node, NodeId, Op, Program};
use rustc_hash::{FxHashMap, FxHashSet};

impl Program {
    /// Returns, for each parameter in the order of [`Program::parameters`], the result that takes its memory, if any.
    pub fn results_in_place(&self) -> Vec<Option<usize>> {
        let nodes = self.graph().nodes().iter().enumerate();
        let parameters: Vec<_> = nodes.filter(|(_, node)| is_parameter(node)).map(|(i, _)| NodeId(i as u32)).collect();
        let reaches: Vec<Reach> = self.outputs().iter().map(|&output| Reach::of(self, output)).collect();
        let mut updates: Vec<(usize, usize, NodeId)> = Vec::new();
        for (result, reach) in reaches.iter().enumerate() {
            updates.extend(reach.parameters.iter().map(|&(distance, parameter)| (distance, result, parameter)));
        }
        updates.sort_unstable();
        let mut pairs = Pairs::default();
        updates.into_iter().for_each(|(_, result, parameter)| pairs.join(result, parameter));
        narrow_copies(self, &parameters, &reaches, &mut pairs);
        parameters.iter().map(|parameter| pairs.result_of.get(parameter).copied()).collect()
    }

    /// Returns the updates that each trip of a loop with this body makes to a carry, if it leaves the rest of it as it is:
    /// else none.
    pub(crate) fn updates_in_place(&self, carry: usize) -> Vec<NodeId> {
        let (mut id, mut updates) = (self.outputs()[carry], Vec::new());
        while self.graph().node(id).op == Op::DynamicUpdateSlice {
            updates.push(id);
            id = self.graph().node(id).operands[0];
        }
        match self.graph().node(id).op {
            Op::Parameter { index, .. } if index as usize == carry => updates,
            _ => Vec::new(),
        }
    }
}

/// Pairs 16-bit weights that have f32 masters: each result computed from an already paired result takes a remaining
/// parameter of its own type.
fn narrow_copies(program: &Program, parameters: &[NodeId], reaches: &[Reach], pairs: &mut Pairs) {
    let graph = program.graph();
    // A master copy may go to the host's memory.
    let value = |id: NodeId| match &graph.node(id).op {
        Op::MoveTo(_) => graph.node(id).operands[0],
        _ => id,
    };
    let updated: FxHashSet<NodeId> = pairs.results.iter().map(|&result| value(program.outputs()[result])).collect();
    let mut left = parameters.to_vec();
    left.retain(|parameter| !pairs.result_of.contains_key(parameter));
    for (result, &output) in program.outputs().iter().enumerate() {
        let follows = || reaches[result].through.iter().any(|node| *node != output && updated.contains(node));
        if pairs.results.contains(&result) || !follows() {
            continue;
        }
        if let Some(place) = left.iter().position(|&parameter| graph.ty(parameter) == graph.ty(output)) {
            pairs.join(result, left.remove(place));
        }
    }
}

/// A matching: each parameter has at most one result, and each result at most one parameter.
#[derive(Default)]
struct Pairs {
    result_of: FxHashMap<NodeId, usize>,
    results: FxHashSet<usize>,
}

impl Pairs {
    fn join(&mut self, result: usize, parameter: NodeId) {
        if !self.results.contains(&result) && !self.result_of.contains_key(&parameter) {
            self.results.insert(result);
            self.result_of.insert(parameter, result);
        }
    }
}

/// The values that a result is computed from, element by element.
struct Reach {
    /// Every node on the path, including the result itself.
    through: FxHashSet<NodeId>,
    /// The parameters of the result's type, each with the number of ops between it and the result.
    parameters: Vec<(usize, NodeId)>,
}

impl Reach {
    fn of(program: &Program, output: NodeId) -> Self {
        let graph = program.graph();
        let mut reach = Self { through: FxHashSet::from_iter([output]), parameters: Vec::new() };
        let (mut ring, mut distance) = (vec![output], 0);
        while !ring.is_empty() {
            distance += 1;
            let mut next = Vec::new();
            for &operand in ring.iter().flat_map(|&id| updated_operands(graph, graph.node(id))) {
                let same_size = graph.ty(operand).elements() == graph.ty(output).elements();
                if !same_size || !reach.through.insert(operand) {
                    continue;
                }
                if is_parameter(graph.node(operand)) && graph.ty(operand) == graph.ty(output) {
                    reach.parameters.push((distance, operand));
                }
                next.push(operand);
            }
            ring = next;
        }
        reach
    }
}

fn is_parameter(node: &Node) -> bool {
    matches!(node.op, Op::Parameter { .. })
}

/// Returns the operands whose memory the node's result could take: each element of the result depends on the
/// operand's element at the same position and on no other.
fn updated_operands<'g>(graph: &'g Graph, node: &'g Node) -> &'g [NodeId] {
    match (&node.op, node.op.kind()) {
        (_, OpKind::Arithmetic | OpKind::Cast | OpKind::Marker) => &node.operands,
        (_, OpKind::Update) => &node.operands[..1],
        (Op::For { body, .. }, _) if writes_parts(body, 0) => &node.operands[..1],
        (Op::GetResult { index }, _) => match graph.node(node.operands[0]) {
            Node { op: Op::For { body, .. }, operands, .. } if writes_parts(body, *index) => &operands[*index..=*index],
            _ => &[],
        },
        // The same elements in the same order.
        (Op::Reshape { .. }, _) => &node.operands,
        _ => &[],
    }
}

/// Returns whether each trip of a loop writes parts of this carry, and leaves the rest of it as it is.
fn writes_parts(body: &Program, carry: usize) -> bool {
    !body.updates_in_place(carry).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{BinaryOp, MemorySpace, UnaryOp};
    use crate::{Builder, DType, Graph, TensorType};

    fn parameter(graph: &mut Graph, index: u32, dtype: DType) -> NodeId {
        graph.add(Op::Parameter { index, ty: TensorType::new(dtype, [4]) }, &[]).unwrap()
    }

    fn pairs(graph: &Graph, outputs: &[NodeId]) -> Vec<Option<usize>> {
        Program::extract(graph, outputs).unwrap().results_in_place()
    }

    /// `m = m / 2 + g; w = w - tanh(m)`, with 16-bit copies of w from which the gradient is computed.
    #[test]
    fn a_result_takes_the_memory_of_what_it_updates() {
        let g = &mut Graph::new();
        let [small, m, w] =
            [(0, DType::BF16), (1, DType::F32), (2, DType::F32)].map(|(i, dtype)| parameter(g, i, dtype));
        let square = g.binary(BinaryOp::Mul, small, small).unwrap();
        let gradient = g.convert(square, DType::F32).unwrap();
        let half = g.binary_const(BinaryOp::Mul, m, 0.5).unwrap();
        let new_m = g.binary(BinaryOp::Add, half, gradient).unwrap();
        let update = g.unary(UnaryOp::Tanh, new_m).unwrap();
        let new_w = g.binary(BinaryOp::Sub, w, update).unwrap();
        let new_small = g.convert(new_w, DType::BF16).unwrap();
        // In any order of the results, `w` is nearer to the new `w` than `m` is.
        assert_eq!(pairs(g, &[new_m, new_w]), [None, Some(0), Some(1)]);
        assert_eq!(pairs(g, &[new_w, new_m, new_small]), [Some(2), Some(1), Some(0)]);
        assert_eq!(pairs(g, &[new_w]), [None, None, Some(0)]);
    }

    /// `w = w - g` row by row, in the host's memory, with a 16-bit copy of `w`.
    #[test]
    fn a_loop_that_replaces_the_parts_of_a_value_takes_its_memory() {
        let g = &mut Graph::new();
        let [small, w] = [(0, DType::BF16), (1, DType::F32)].map(|(i, dtype)| parameter(g, i, dtype));
        let square = g.binary(BinaryOp::Mul, small, small).unwrap();
        let gradient = g.convert(square, DType::F32).unwrap();
        let trip = |body: &mut Graph, counter: NodeId, [w, gradient]: [NodeId; 2]| {
            let [part, of] = [w, gradient].map(|x| body.dynamic_slice(x, &[counter], &[1]).unwrap());
            let part = body.binary(BinaryOp::Sub, part, of)?;
            Ok([body.dynamic_update_slice(w, part, &[counter])?, gradient])
        };
        let [new, _] = g.for_loop(4, [w, gradient], trip).unwrap();
        let new_small = g.convert(new, DType::BF16).unwrap();
        let there = g.move_to(new, MemorySpace::PinnedHost).unwrap();
        assert_eq!(pairs(g, &[there, new_small]), [Some(1), Some(0)]);
    }

    /// A result may have a weight's type without being computed from its elements.
    #[test]
    fn a_parameter_that_is_not_updated_keeps_its_memory() {
        let g = &mut Graph::new();
        let [x, y] = [0, 1].map(|i| parameter(g, i, DType::F32));
        let reversed = g.reverse(x, &[0]).unwrap();
        let sum = g.binary(BinaryOp::Add, reversed, y).unwrap();
        assert_eq!(pairs(g, &[sum]), [None, Some(0)]);
        assert_eq!(pairs(g, &[x, reversed]), [None]);
    }

    /// A trip may read every element of its carries.
    #[test]
    fn a_loop_takes_no_parameters_memory() {
        let g = &mut Graph::new();
        let x = parameter(g, 0, DType::F32);
        let [looped] = g.for_loop(2, [x], |g, _, [x]| Ok([g.unary(UnaryOp::Exp, x)?])).unwrap();
        let sum = g.binary(BinaryOp::Add, looped, x).unwrap();
        assert_eq!(pairs(g, &[looped]), [None]);
        assert_eq!(pairs(g, &[looped, sum]), [Some(1)]);
    }
}
