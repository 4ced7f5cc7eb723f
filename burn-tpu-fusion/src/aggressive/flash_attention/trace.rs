//! Follows attention from the product of its queries and keys to its result and its gradients.
//!
//! Owns: what each value that is computed from the scores is, and whether all that is read of them is attention. May not
//! know: how kernels compute it.

mod dropout;
mod masks;
mod numbers;
mod products;
mod rows;

use super::lengths::Lengths;
use super::matrix::{Matrix, sides};
use super::polynomial::{Changes, Factor, Polynomial, Term};
use super::positions::Steps;
use super::views::View;
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{DType, Graph, Node, NodeId, Op, Program};
use burn_tpu_kernels::kernels::attention::Dropped;
use std::collections::HashMap;

/// Scores up to this number are hidden, as in [`QueryBlocks`](crate::QueryBlocks).
const HIDDEN: f64 = -1000.0;

/// A scalar that is known at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    /// The scalar, or a value of equal elements.
    pub(super) value: NodeId,
    /// The narrower types that it is rounded to after that.
    pub(super) rounded: Vec<DType>,
}

/// What hides and changes the scores, after their scale.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Masking {
    /// Not 0 for the distances of `key - query` that are hidden.
    pub(super) hidden: Option<Steps>,
    /// The number of keys of each sequence.
    pub(super) lengths: Option<Lengths>,
    /// What is read from arrays.
    pub(super) added: Vec<Added>,
}

/// Weights or scores that are dropped at random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dropout {
    /// The state of the draw, `u64[2]`.
    pub(super) state: NodeId,
    /// The largest word that keeps its number.
    pub(super) most: u32,
    pub(super) of: Dropped,
}

/// What an array does to the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Its numbers are added.
    Adds,
    /// It is true for those that are hidden.
    Hides,
    /// It is true for those that are not hidden.
    Shows,
}

impl Effect {
    fn of_mask(shows: bool) -> Self {
        if shows { Self::Shows } else { Self::Hides }
    }
}

/// An array beside the scores.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Added {
    pub(super) view: View,
    pub(super) effect: Effect,
}

/// Scores before the softmax.
#[derive(Clone, Debug, PartialEq)]
struct Scores {
    scale: Factor,
    /// The bound, if they are capped; `None` inside is a bound that is still to be multiplied.
    cap: Option<Option<f64>>,
    /// Whether some are dropped.
    has_dropout: bool,
    masking: Masking,
}

/// What a value is. Values of one number for each query have no dim of keys, or one of size 1.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Scores(Scores),
    /// The largest score of each row.
    Largest,
    /// The place of the largest score of each row.
    Place,
    /// Whether a row sees no key.
    SeesNothing,
    /// Scores without their row's largest.
    Shifted,
    Polynomial(Polynomial),
    /// The result of attention, or a gradient.
    Result,
}

/// A value that is computed from the scores, and which dim of the scores each of its dims is; `None` for a dim of size 1.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    kind: Kind,
    roles: Vec<Option<usize>>,
}

/// A product that is a result of attention: the node, and the order of its dims, of which the first are the batch's, then
/// come rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) node: NodeId,
    pub(super) order: Vec<usize>,
    /// What it is multiplied by beside the gradient of the scores.
    pub(super) factor: Factor,
}

/// The gradients of attention.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gradients {
    /// The gradient of the result.
    pub(super) of_result: Matrix,
    pub(super) queries: Vec<Found>,
    pub(super) keys: Vec<Found>,
    pub(super) values: Vec<Found>,
}

/// Attention that was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attention {
    pub(super) queries: Matrix,
    pub(super) keys: Matrix,
    pub(super) values: Matrix,
    pub(super) scale: Factor,
    pub(super) cap: Option<f64>,
    pub(super) masking: Masking,
    pub(super) dropout: Option<Dropout>,
    pub(super) scalars: Vec<Scalar>,
    pub(super) results: Vec<Found>,
    pub(super) gradients: Option<Gradients>,
}

/// Returns the attention that begins with a product, if all that is computed from its scores is attention.
pub(super) fn attention(program: &Program, start: NodeId, readers: &[Vec<NodeId>]) -> Option<Attention> {
    let graph = program.graph();
    let node = graph.node(start);
    let Op::DotGeneral(attrs) = &node.op else { return None };
    let [left, right] = sides(graph, attrs, &node.operands)?;
    let rank = left.batch.len();
    let queries = Matrix::new(graph, node.operands[0], left.batch, [left.free, left.contracted]);
    let keys = Matrix::new(graph, node.operands[1], right.batch, [right.free, right.contracted]);
    let mut trace = Trace { graph, rank, dims: node.ty.dims.to_vec(), ..Trace::new(graph, queries, keys) };
    let scores = Scores { scale: Factor::constant(1.0), cap: None, has_dropout: false, masking: Masking::default() };
    trace.values.insert(start, Value { kind: Kind::Scores(scores), roles: (0..rank + 2).map(Some).collect() });
    let mut waiting = std::collections::BTreeSet::from_iter(readers[start.index()].iter().copied());
    // In the order of the program, so that a node comes after all that it reads.
    while let Some(id) = waiting.pop_first() {
        let value = trace.value(id)?;
        let is_open = value.kind != Kind::Result;
        trace.values.insert(id, value);
        if is_open {
            waiting.extend(&readers[id.index()]);
        }
        // The products with the values become known with the result.
        for product in trace.gradients_of_probabilities(id, readers)? {
            waiting.extend(&readers[product.index()]);
        }
    }
    let is_read = |id: &NodeId| trace.values.get(id).is_some_and(|value| value.kind != Kind::Result);
    if program.outputs().iter().any(is_read) {
        return None;
    }
    trace.finish()
}

struct Trace<'a> {
    graph: &'a Graph,
    /// The number of dims of the batch.
    rank: usize,
    /// The dims of the scores.
    dims: Vec<usize>,
    values: HashMap<NodeId, Value>,
    scalars: Vec<Scalar>,
    queries: Matrix,
    keys: Matrix,
    /// The scores of the softmax, once they are known.
    scores: Option<Scores>,
    /// The weights or scores that are dropped, once they are known.
    dropout: Option<Dropout>,
    values_matrix: Option<Matrix>,
    of_result: Option<Matrix>,
    results: Vec<Found>,
    of_queries: Vec<Found>,
    of_keys: Vec<Found>,
    of_values: Vec<Found>,
}

impl<'a> Trace<'a> {
    fn new(graph: &'a Graph, queries: Matrix, keys: Matrix) -> Self {
        Self {
            graph,
            rank: 0,
            dims: Vec::new(),
            values: HashMap::new(),
            scalars: Vec::new(),
            queries,
            keys,
            scores: None,
            dropout: None,
            values_matrix: None,
            of_result: None,
            results: Vec::new(),
            of_queries: Vec::new(),
            of_keys: Vec::new(),
            of_values: Vec::new(),
        }
    }

    fn query(&self) -> usize {
        self.rank
    }

    fn key(&self) -> usize {
        self.rank + 1
    }

    /// Returns what is done to the scores and their weights.
    fn changes(&self) -> Changes {
        let is_capped = self.scores.as_ref().is_some_and(|scores| scores.cap.is_some());
        Changes { is_capped, dropped: self.dropout.as_ref().map(|dropout| dropout.of) }
    }

    fn finish(self) -> Option<Attention> {
        let scores = self.scores?;
        let cap = match scores.cap {
            Some(cap) => Some(cap?),
            None => None,
        };
        let drops_scores = self.dropout.as_ref().is_some_and(|dropout| dropout.of == Dropped::Scores);
        (scores.has_dropout == drops_scores).then_some(())?;
        let (queries, keys, values) = (self.of_queries, self.of_keys, self.of_values);
        let gradients = match self.of_result {
            Some(of_result) => Some(Gradients { of_result, queries, keys, values }),
            None if queries.is_empty() && keys.is_empty() && values.is_empty() => None,
            None => return None,
        };
        Some(Attention {
            queries: self.queries,
            keys: self.keys,
            values: self.values_matrix?,
            scale: scores.scale,
            cap,
            masking: scores.masking,
            dropout: self.dropout,
            scalars: self.scalars,
            results: self.results,
            gradients,
        })
    }

    /// Returns what a node is that reads a value of the scores; `None` for what is no attention.
    fn value(&mut self, id: NodeId) -> Option<Value> {
        let node = self.graph.node(id);
        if let Op::DotGeneral(attrs) = &node.op {
            return self.product(id, node, attrs);
        }
        if let Op::Scatter(_) = &node.op {
            return self.scattered(node);
        }
        let roles = self.roles(node)?;
        let kind = self.kind(node, &roles)?;
        Some(Value { kind, roles })
    }

    /// Returns the dims of the scores that the dims of a result are.
    fn roles(&self, node: &Node) -> Option<Vec<Option<usize>>> {
        let known = node.operands.iter().find_map(|operand| Some((self.values.get(operand)?, operand)));
        let (value, operand) = known?;
        let (old, new) = (&self.graph.ty(*operand).dims, &node.ty.dims);
        match &node.op {
            Op::BroadcastInDim { mapping, dims } => {
                let mut roles = vec![None; dims.len()];
                mapping.iter().zip(&value.roles).for_each(|(&to, &role)| roles[to] = role);
                // A row is repeated along the keys, in their place.
                for dim in (0..dims.len()).filter(|&dim| dims[dim] != 1) {
                    let is_new = mapping.iter().position(|&to| to == dim).is_none_or(|from| old[from] == 1);
                    if is_new {
                        let role = (0..self.rank + 2).find(|role| {
                            self.dims[*role] == dims[dim] && !roles.contains(&Some(*role)) && *role == self.key()
                        })?;
                        roles[dim] = Some(role);
                    }
                }
                Some(roles)
            }
            Op::Reshape { .. } => {
                let wide = |dims: &[usize]| (0..dims.len()).filter(|&dim| dims[dim] != 1).collect::<Vec<_>>();
                let (from, to) = (wide(old), wide(new));
                let is_same = from.len() == to.len() && from.iter().zip(&to).all(|(&a, &b)| old[a] == new[b]);
                let mut roles = vec![None; new.len()];
                to.iter().zip(&from).for_each(|(&to, &from)| roles[to] = value.roles[from]);
                is_same.then_some(roles)
            }
            Op::Transpose { permutation } => Some(permutation.iter().map(|&from| value.roles[from]).collect()),
            Op::Reduce { dims, .. } => {
                let kept = (0..old.len()).filter(|dim| !dims.contains(dim));
                Some(kept.map(|dim| value.roles[dim]).collect())
            }
            Op::ArgReduce { dim, .. } => {
                Some((0..old.len()).filter(|of| of != dim).map(|dim| value.roles[dim]).collect())
            }
            Op::GetResult { .. } => Some(value.roles.clone()),
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Convert { .. }
            | Op::OptimizationBarrier => {
                let mut roles = vec![None; new.len()];
                for other in node.operands.iter().filter_map(|operand| self.values.get(operand)) {
                    for (role, &other) in roles.iter_mut().zip(&other.roles) {
                        if role.is_some() && other.is_some() && *role != other {
                            return None;
                        }
                        *role = role.or(other);
                    }
                }
                Some(roles)
            }
            _ => None,
        }
    }

    fn kind(&mut self, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let first = node.operands.first().and_then(|operand| self.values.get(operand)).map(|value| value.kind.clone());
        match (&node.op, first) {
            (Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. }, Some(kind))
            | (Op::OptimizationBarrier, Some(kind)) => Some(kind),
            (Op::Convert { .. }, Some(Kind::Place)) => Some(Kind::Place),
            (Op::Convert { dtype }, Some(kind)) => dtype.is_float().then_some(kind),
            (Op::ArgReduce { max: true, dim }, Some(Kind::Scores(scores))) => {
                let of = self.values.get(&node.operands[0])?;
                (of.roles[*dim] == Some(self.key())).then_some(())?;
                self.settle(scores)?;
                Some(Kind::Largest)
            }
            // The second result; the first is the node itself.
            (Op::GetResult { .. }, Some(Kind::Largest)) => Some(Kind::Place),
            (Op::Compare(direction), Some(kind)) => self.compared(*direction, kind, node.operands[1]),
            (Op::Unary(op), Some(kind)) => self.unary(*op, kind),
            (Op::Binary(op), _) => self.binary(*op, node, roles),
            (Op::Select, _) => self.select(node, roles),
            (Op::Reduce { combine, dims }, Some(kind)) => {
                let of = self.values.get(&node.operands[0])?;
                let is_row = dims.len() == 1 && of.roles[dims[0]] == Some(self.key());
                let sizes = &self.graph.ty(node.operands[0]).dims;
                match (combine, kind) {
                    // A sum of one number, as autodiff records for a value that was repeated along the keys.
                    (Combine::Sum, Kind::Polynomial(value)) if !is_row && dims.iter().all(|&dim| sizes[dim] == 1) => {
                        Some(Kind::Polynomial(value))
                    }
                    (Combine::Max, Kind::Scores(scores)) if is_row => {
                        self.settle(scores)?;
                        Some(Kind::Largest)
                    }
                    (Combine::Sum, Kind::Polynomial(sum)) if is_row => {
                        Some(Kind::Polynomial(sum.summed(self.changes())?))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Takes note of the scores of the softmax. There is one softmax.
    fn settle(&mut self, scores: Scores) -> Option<()> {
        match &self.scores {
            Some(known) => (*known == scores).then_some(()),
            None => {
                self.scores = Some(scores);
                Some(())
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, kind: Kind) -> Option<Kind> {
        match (op, kind) {
            (UnaryOp::Exp, Kind::Shifted) => Some(Kind::Polynomial(Polynomial::term(Term { e: 1, ..Term::default() }))),
            (UnaryOp::Neg, Kind::Polynomial(value)) => {
                Some(Kind::Polynomial(value.times(&Polynomial::factor(&Factor::constant(-1.0)))))
            }
            (UnaryOp::Tanh, Kind::Scores(scores)) if scores.cap.is_none() && scores.masking == Masking::default() => {
                Some(Kind::Scores(Scores { cap: Some(None), ..scores }))
            }
            _ => None,
        }
    }

    fn binary(&mut self, op: BinaryOp, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let &[lhs, rhs] = &node.operands[..] else { return None };
        let kind = |id: NodeId| self.values.get(&id).map(|value| value.kind.clone());
        match (op, kind(lhs), kind(rhs)) {
            (BinaryOp::Sub, Some(Kind::Scores(scores)), Some(Kind::Largest)) => {
                self.settle(scores)?;
                Some(Kind::Shifted)
            }
            (BinaryOp::Max, Some(kind @ (Kind::Largest | Kind::Polynomial(_))), None) => {
                self.is_bound(&kind, rhs)?.then_some(kind)
            }
            (_, Some(Kind::Scores(scores)), None) => self.scored(op, scores, rhs, roles),
            (BinaryOp::Mul | BinaryOp::Add, None, Some(Kind::Scores(scores))) => self.scored(op, scores, lhs, roles),
            (BinaryOp::Mul, Some(Kind::Polynomial(value)), None) if self.drops(rhs, roles, Dropped::Weights) => {
                Some(Kind::Polynomial(value.times(&Polynomial::term(Term { m: 1, ..Term::default() }))))
            }
            (_, left, right) => {
                let left = self.polynomial(left, lhs)?;
                if let (BinaryOp::Pow, None) = (op, &right) {
                    let power = self.factor(rhs)?.known()?;
                    let is_small = power.fract() == 0.0 && (0.0..5.0).contains(&power);
                    return is_small.then(|| Kind::Polynomial(left.power(power as u32)));
                }
                let right = self.polynomial(right, rhs)?;
                Some(Kind::Polynomial(match op {
                    BinaryOp::Add => left.plus(&right, 1.0),
                    BinaryOp::Sub => left.plus(&right, -1.0),
                    BinaryOp::Mul => left.times(&right),
                    BinaryOp::Div => left.times(&right.inverse()?),
                    _ => return None,
                }))
            }
        }
    }

    /// Returns scores and another value, combined.
    fn scored(&mut self, op: BinaryOp, scores: Scores, other: NodeId, roles: &[Option<usize>]) -> Option<Kind> {
        match op {
            BinaryOp::Mul if self.drops_scores(&scores, other, roles) => {
                Some(Kind::Scores(Scores { has_dropout: true, ..scores }))
            }
            BinaryOp::Mul | BinaryOp::Div if scores.masking == Masking::default() => {
                let factor = self.factor(other)?;
                let factor = if op == BinaryOp::Mul { factor } else { factor.inverse()? };
                match scores.cap {
                    None => Some(Kind::Scores(Scores { scale: scores.scale.times(&factor), ..scores })),
                    Some(None) => {
                        let cap = factor.known().filter(|cap| *cap > 0.0)?;
                        Some(Kind::Scores(Scores { cap: Some(Some(cap)), ..scores }))
                    }
                    Some(Some(_)) => None,
                }
            }
            BinaryOp::Add if scores.cap != Some(None) => {
                let masking = self.added(scores.masking, other, roles)?;
                Some(Kind::Scores(Scores { masking, ..scores }))
            }
            _ => None,
        }
    }
}
