//! The nodes of a program in the order in which a repetition can be found.

use burn_tpu_graph::op::SliceAttrs;
use burn_tpu_graph::{Builder, Graph, GraphError, LiteralData, Node, NodeId, Op, Program};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// A program without duplicates, and its members: the nodes that are not leaves, in order. A member is named by its place.
pub(super) struct Sequence {
    pub(super) program: Program,
    members: Vec<NodeId>,
    /// The place of each node that is a member.
    places: Vec<Option<usize>>,
    /// A hash of each member's op and types, without the operands.
    pub(super) keys: Vec<u64>,
    /// For each member of several results, the place of the last `get_result` that reads it.
    last_result: FxHashMap<usize, usize>,
}

impl Sequence {
    pub(super) fn new(program: &Program) -> Result<Self, GraphError> {
        let program = without_duplicates(program)?;
        let nodes = program.graph().nodes();
        let (mut members, mut keys, mut last_result) = (Vec::new(), Vec::new(), FxHashMap::default());
        let mut places: Vec<Option<usize>> = Vec::with_capacity(nodes.len());

        for (node, id) in nodes.iter().zip((0..).map(NodeId)) {
            if node.op.is_leaf_or_view() && node.operands.iter().all(|operand| places[operand.index()].is_none()) {
                places.push(None);
                continue;
            }
            if let (Op::GetResult { .. }, Some(read)) = (&node.op, place_of_first(node, &places)) {
                last_result.insert(read, members.len());
            }
            places.push(Some(members.len()));
            members.push(id);
            keys.push(key(program.graph(), node));
        }
        Ok(Self { members, places, keys, last_result, program })
    }

    pub(super) fn graph(&self) -> &Graph {
        self.program.graph()
    }

    /// Returns the number of members.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the node at a place.
    pub(super) fn id(&self, place: usize) -> NodeId {
        self.members[place]
    }

    /// Returns the node at a place.
    pub(super) fn node(&self, place: usize) -> &Node {
        self.graph().node(self.id(place))
    }

    /// Returns the place of a node; `None` for a leaf.
    pub(super) fn place(&self, id: NodeId) -> Option<usize> {
        self.places[id.index()]
    }

    /// Returns the place of the last node that reads a further result of the member at `place`.
    pub(super) fn last_result(&self, place: usize) -> usize {
        self.last_result.get(&place).copied().unwrap_or(place)
    }

    /// Returns whether the members at two places differ at most in their operands and in where they slice.
    pub(super) fn same_kind(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.node(a), self.node(b));
        let types = a.ty == b.ty && a.more == b.more && a.operands.len() == b.operands.len();
        types && ((starts(a).is_some() && starts(b).is_some()) || a.op == b.op)
    }
}

fn place_of_first(node: &Node, places: &[Option<usize>]) -> Option<usize> {
    node.operands.first().and_then(|operand| places[operand.index()])
}

/// Returns where a slice begins, if a dynamic slice can replace it.
pub(super) fn starts(node: &Node) -> Option<&[usize]> {
    let Op::Slice(attrs) = &node.op else { return None };
    let SliceAttrs { start, stride, .. } = attrs.as_ref();
    stride.iter().all(|&stride| stride == 1).then_some(start)
}

/// Returns the value of a rank-0 constant of a signed integer type.
pub(super) fn integer(node: &Node) -> Option<i64> {
    let Op::Constant(literal) = &node.op else { return None };
    let LiteralData::Splat(bits) = literal.data else { return None };
    let unused = 64 - 8 * literal.ty.dtype.size_bytes() as u32;
    (literal.ty.rank() == 0 && literal.ty.dtype.is_signed_int()).then_some((bits << unused) as i64 >> unused)
}

fn key(graph: &Graph, node: &Node) -> u64 {
    let mut hasher = FxHasher::default();
    match starts(node) {
        Some(_) => node.operands.iter().for_each(|&operand| graph.ty(operand).hash(&mut hasher)),
        None => node.op.hash(&mut hasher),
    }
    (&node.ty, &node.more, node.operands.len()).hash(&mut hasher);
    hasher.finish()
}

/// Returns the program with one node for all nodes of equal op and operands. A barrier is kept: it separates a
/// recomputation from its original.
fn without_duplicates(program: &Program) -> Result<Program, GraphError> {
    let mut first: FxHashMap<u64, SmallVec<[NodeId; 1]>> = FxHashMap::default();
    program.rewrite(|graph, _, node, operands| {
        let mut hasher = FxHasher::default();
        (&node.op, operands).hash(&mut hasher);
        let known = first.entry(hasher.finish()).or_default();
        let is_same = |id: &&NodeId| graph.node(**id).operands[..] == *operands && graph.node(**id).op == node.op;
        if !matches!(node.op, Op::OptimizationBarrier)
            && let Some(&id) = known.iter().find(is_same)
        {
            return Ok(id);
        }
        let id = graph.add(node.op.clone(), operands)?;
        known.push(id);
        Ok(id)
    })
}
