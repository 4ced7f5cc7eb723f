//! Follows attention from the product of its queries and keys to its result and its gradients.
//!
//! Owns: what each value that is computed from the scores is, and whether all that is read of them is attention. May not
//! know: how kernels compute it.

mod dropout;
mod kinds;
mod masks;
mod numbers;
mod products;
mod roles;
mod rows;

use super::lengths::Lengths;
use super::matrix::{Matrix, sides};
use super::polynomial::{Changes, Factor, Polynomial};
use super::positions::Steps;
use super::views::View;
use burn_tpu_graph::{DType, Graph, NodeId, Op, Program};
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

/// The bound of capped scores: `bound * tanh(scores / bound)`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Softcap {
    Absent,
    /// A hyperbolic tangent that is not multiplied by its bound yet.
    Unscaled,
    Bound(f64),
}

/// Scores before the softmax.
#[derive(Clone, Debug, PartialEq)]
struct Scores {
    scale: Factor,
    softcap: Softcap,
    /// Whether some are dropped.
    has_dropout: bool,
    masking: Masking,
}

/// What a value is in attention. Values of one number for each query have no dim of keys, or one of size 1.
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

/// A product that is a result of attention: the node, and the order of its dims (the batch's, rows, columns).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResultProduct {
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
    pub(super) queries: Vec<ResultProduct>,
    pub(super) keys: Vec<ResultProduct>,
    pub(super) values: Vec<ResultProduct>,
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
    pub(super) results: Vec<ResultProduct>,
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
    let scores = Scores {
        scale: Factor::constant(1.0),
        softcap: Softcap::Absent,
        has_dropout: false,
        masking: Masking::default(),
    };
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
    results: Vec<ResultProduct>,
    of_queries: Vec<ResultProduct>,
    of_keys: Vec<ResultProduct>,
    of_values: Vec<ResultProduct>,
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

    /// Returns the ops that are applied to the scores and their weights.
    fn changes(&self) -> Changes {
        let is_capped = self.scores.as_ref().is_some_and(|scores| scores.softcap != Softcap::Absent);
        Changes { is_capped, dropped: self.dropout.as_ref().map(|dropout| dropout.of) }
    }

    fn finish(self) -> Option<Attention> {
        let scores = self.scores?;
        let cap = match scores.softcap {
            Softcap::Absent => None,
            Softcap::Unscaled => return None,
            Softcap::Bound(bound) => Some(bound),
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

    /// Returns the value of a node that reads the scores, or something computed from them; `None` outside of attention.
    fn value(&mut self, id: NodeId) -> Option<Value> {
        let node = self.graph.node(id);
        match &node.op {
            Op::DotGeneral(attrs) => self.product(id, node, attrs),
            Op::Scatter(_) => self.scattered(node),
            _ => {
                let roles = self.roles(node)?;
                let kind = self.kind(node, &roles)?;
                Some(Value { kind, roles })
            }
        }
    }
}
