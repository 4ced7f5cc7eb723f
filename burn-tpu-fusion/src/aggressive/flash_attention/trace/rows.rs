//! Rows of scores: bounds of their largest score and of their sum, and the gradient of the largest score.

use super::super::polynomial::{Polynomial, Term};
use super::{Kind, Trace, Value};
use burn_tpu_graph::op::{Combine, Direction, ScatterMode};
use burn_tpu_graph::{Node, NodeId, Op};

impl Trace<'_> {
    /// Returns the gradient of the largest scores at their places: a sum over a row that is zero, whatever the places are.
    pub(super) fn scattered(&self, node: &Node) -> Option<Value> {
        let (Op::Scatter(attrs), &[zeros, _, updates]) = (&node.op, &node.operands[..]) else { return None };
        let value = self.values.get(&updates)?;
        let (&[dim], ScatterMode::Combine(Combine::Sum)) = (&attrs.scatter_dims_to_operand_dims[..], attrs.mode) else {
            return None;
        };
        let is_zero = |id: NodeId| match &self.graph.node(id).op {
            Op::Constant(literal) => literal.splat().is_some_and(|number| number.to_f64() == 0.0),
            _ => false,
        };
        let zero = Kind::Polynomial(Polynomial::default());
        let mut roles = value.roles.clone();
        if value.kind != zero || roles.len() != node.ty.rank() || !is_zero(self.source(zeros)) {
            return None;
        }
        roles[dim] = Some(self.key());
        Some(Value { kind: zero, roles })
    }

    /// Returns whether every row that sees a key has a largest score, or a sum, of at least this number.
    pub(super) fn is_bound(&mut self, kind: &Kind, number: NodeId) -> Option<bool> {
        let number = self.factor(number)?.known()?;
        Some(match kind {
            Kind::Largest => number <= f64::from(f32::MIN) / 4.0,
            Kind::Polynomial(sum) => *sum == Polynomial::term(Term { l: 1, ..Term::default() }) && number <= 1.0,
            _ => false,
        })
    }

    pub(super) fn compared(&mut self, direction: Direction, kind: Kind, number: NodeId) -> Option<Kind> {
        let is_below = direction == Direction::Lt && !self.values.contains_key(&number);
        (is_below && self.is_bound(&kind, number)?).then_some(Kind::SeesNothing)
    }

    /// Returns the value that this one copies, through broadcasts, reshapes and conversions.
    pub(super) fn source(&self, mut id: NodeId) -> NodeId {
        while let Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Convert { .. } = &self.graph.node(id).op {
            id = self.graph.node(id).operands[0];
        }
        id
    }
}
