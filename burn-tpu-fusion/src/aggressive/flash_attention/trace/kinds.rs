//! What a node computes from the scores: its kind, from those of its operands.

use super::{Kind, Masking, Scores, Softcap, Trace};
use crate::aggressive::flash_attention::polynomial::{Factor, Polynomial, Term};
use burn_tpu_graph::op::{BinaryOp, Combine, UnaryOp};
use burn_tpu_graph::{Node, NodeId, Op};
use burn_tpu_kernels::kernels::attention::Dropped;

impl Trace<'_> {
    /// Returns the kind of a node's value, whose dims have these roles; `None` outside of attention.
    pub(super) fn kind(&mut self, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        match &node.op {
            Op::Binary(op) => return self.binary(*op, node, roles),
            Op::Select => return self.select(node, roles),
            _ => {}
        }
        let first = *node.operands.first()?;
        let kind = self.values.get(&first)?.kind.clone();
        match (&node.op, kind) {
            (Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::OptimizationBarrier, kind) => {
                Some(kind)
            }
            (Op::Convert { .. }, Kind::Place) => Some(Kind::Place),
            (Op::Convert { dtype }, kind) => dtype.is_float().then_some(kind),
            (Op::ArgReduce { max: true, dim }, Kind::Scores(scores)) if self.is_key_dim(first, *dim) => {
                self.largest(scores)
            }
            // The second result; the first is the node itself.
            (Op::GetResult { .. }, Kind::Largest) => Some(Kind::Place),
            (Op::Compare(direction), kind) => self.compared(*direction, kind, node.operands[1]),
            (Op::Unary(op), kind) => self.unary(*op, kind),
            (Op::Reduce { combine, dims }, kind) => self.reduced(*combine, dims, first, kind),
            _ => None,
        }
    }

    /// Returns the kind of a maximum or a sum, along the keys or of one number.
    fn reduced(&mut self, combine: Combine, dims: &[usize], operand: NodeId, kind: Kind) -> Option<Kind> {
        let is_along_keys = matches!(*dims, [dim] if self.is_key_dim(operand, dim));
        let sizes = &self.graph.ty(operand).dims;
        match (combine, kind) {
            (Combine::Max, Kind::Scores(scores)) if is_along_keys => self.largest(scores),
            (Combine::Sum, Kind::Polynomial(value)) if is_along_keys => {
                Some(Kind::Polynomial(value.summed(self.changes())?))
            }
            // A sum of one number, as autodiff records for a value that was repeated along the keys.
            (Combine::Sum, Kind::Polynomial(value)) if dims.iter().all(|&dim| sizes[dim] == 1) => {
                Some(Kind::Polynomial(value))
            }
            _ => None,
        }
    }

    /// Returns whether a dim of a traced value is that of the keys.
    fn is_key_dim(&self, id: NodeId, dim: usize) -> bool {
        self.values.get(&id).is_some_and(|value| value.roles[dim] == Some(self.key()))
    }

    fn largest(&mut self, scores: Scores) -> Option<Kind> {
        self.set_softmax(scores)?;
        Some(Kind::Largest)
    }

    /// Sets the scores of the softmax; `None` if an earlier op of it had other scores.
    fn set_softmax(&mut self, scores: Scores) -> Option<()> {
        let known = self.scores.get_or_insert_with(|| scores.clone());
        (*known == scores).then_some(())
    }

    fn unary(&mut self, op: UnaryOp, kind: Kind) -> Option<Kind> {
        match (op, kind) {
            (UnaryOp::Exp, Kind::Shifted) => Some(Kind::Polynomial(Polynomial::term(Term { e: 1, ..Term::default() }))),
            (UnaryOp::Neg, Kind::Polynomial(value)) => {
                Some(Kind::Polynomial(value.times(&Polynomial::factor(&Factor::constant(-1.0)))))
            }
            (UnaryOp::Tanh, Kind::Scores(scores))
                if scores.softcap == Softcap::Absent && scores.masking == Masking::default() =>
            {
                Some(Kind::Scores(Scores { softcap: Softcap::Unscaled, ..scores }))
            }
            _ => None,
        }
    }

    fn binary(&mut self, op: BinaryOp, node: &Node, roles: &[Option<usize>]) -> Option<Kind> {
        let &[lhs, rhs] = &node.operands[..] else { return None };
        let kind = |id: NodeId| self.values.get(&id).map(|value| value.kind.clone());
        match (op, kind(lhs), kind(rhs)) {
            (BinaryOp::Sub, Some(Kind::Scores(scores)), Some(Kind::Largest)) => {
                self.set_softmax(scores)?;
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
                match scores.softcap {
                    Softcap::Absent => Some(Kind::Scores(Scores { scale: scores.scale.times(&factor), ..scores })),
                    Softcap::Unscaled => {
                        let bound = factor.known().filter(|bound| *bound > 0.0)?;
                        Some(Kind::Scores(Scores { softcap: Softcap::Bound(bound), ..scores }))
                    }
                    Softcap::Bound(_) => None,
                }
            }
            BinaryOp::Add if scores.softcap != Softcap::Unscaled => {
                let masking = self.added(scores.masking, other, roles)?;
                Some(Kind::Scores(Scores { masking, ..scores }))
            }
            _ => None,
        }
    }
}
