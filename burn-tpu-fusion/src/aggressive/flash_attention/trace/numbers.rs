//! Numbers that are the same for all elements: constants, and scalars that are known at run time.

use super::super::matrix::is_equal;
use super::super::polynomial::{Factor, Polynomial, Term};
use super::{Kind, Scalar, Scores, Softcap, Trace};
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{Builder, NodeId, Number, Op};

impl Trace<'_> {
    /// Returns a value of the scores, or a number that is the same everywhere, as a polynomial.
    pub(super) fn polynomial(&mut self, kind: Option<Kind>, id: NodeId) -> Option<Polynomial> {
        match kind {
            Some(Kind::Polynomial(value)) => Some(value),
            Some(Kind::Scores(Scores { softcap: Softcap::Unscaled, .. })) => {
                Some(Polynomial::term(Term { t: 1, ..Term::default() }))
            }
            None => Some(Polynomial::factor(&self.factor(id)?)),
            _ => None,
        }
    }

    /// Returns a number that is the same everywhere.
    pub(super) fn factor(&mut self, id: NodeId) -> Option<Factor> {
        let node = self.graph.node(id);
        match &node.op {
            Op::Constant(literal) => {
                let value = literal.splat().map(Number::to_f64).filter(|value| !value.is_nan());
                value.map(Factor::constant)
            }
            Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::OptimizationBarrier => self.factor(node.operands[0]),
            Op::Convert { dtype } if dtype.is_float() => {
                let factor = self.factor(node.operands[0])?;
                let is_wider = dtype.size_bytes() > self.graph.dtype(node.operands[0]).size_bytes();
                let mut scalars = factor.scalars.iter();
                match (scalars.next(), scalars.next()) {
                    (None, _) => Some(factor),
                    _ if is_wider => Some(factor),
                    (Some((&place, 1)), None) if factor.constant == 1.0 => {
                        let mut scalar = self.scalars[place].clone();
                        scalar.rounded.push(*dtype);
                        Some(self.scalar(scalar))
                    }
                    _ => None,
                }
            }
            Op::Unary(UnaryOp::Neg) => Some(self.factor(node.operands[0])?.times(&Factor::constant(-1.0))),
            Op::Binary(BinaryOp::Mul) => Some(self.factor(node.operands[0])?.times(&self.factor(node.operands[1])?)),
            Op::Binary(BinaryOp::Div) => {
                Some(self.factor(node.operands[0])?.times(&self.factor(node.operands[1])?.inverse()?))
            }
            _ if node.ty.rank() == 0 && node.ty.dtype.is_float() => {
                Some(self.scalar(Scalar { value: id, rounded: Vec::new() }))
            }
            _ => None,
        }
    }

    pub(super) fn scalar(&mut self, scalar: Scalar) -> Factor {
        let same =
            |known: &Scalar| known.rounded == scalar.rounded && is_equal(self.graph, known.value, scalar.value, 3);
        let place = self.scalars.iter().position(same).unwrap_or(self.scalars.len());
        if place == self.scalars.len() {
            self.scalars.push(scalar);
        }
        Factor::scalar(place)
    }
}
