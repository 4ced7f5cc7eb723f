//! The rule of loops.

use super::super::Size;
use super::super::padded::{Padder, Value, capacities};
use crate::op::Trips;
use crate::{Builder, NodeId, Op, Result, TensorType};
use std::sync::Arc;

impl Padder<'_> {
    /// The body is padded as every program is. The loop carries the varying sizes for it, and a trip count that varies is
    /// an operand: what trips beyond it would do is never done.
    pub(super) fn counted_loop(&mut self, id: NodeId, operands: Vec<Value>) -> Result<Value> {
        let (Some(body), [Some(trips), ..]) = (self.old.body(id), self.old.op_numbers(id)) else {
            return Err(self.refusal(id, "is no loop with a known trip count"));
        };
        let (mut carries, mut types) = (Vec::new(), Vec::new());
        for (x, operand) in operands.into_iter().enumerate() {
            let sizes = capacities(&self.axes_of(self.old.graph().node(id).operands[x], 0)?);
            let operand = self.unmerged(operand)?;
            let carry = self.in_buffer(operand.node, &sizes)?;
            types.push(TensorType::new(self.graph.dtype(carry), sizes));
            carries.push(carry);
        }
        let count = self.old.family.varying();
        let body = Arc::new(self.build_body(body, &types, count)?);
        for index in 0..count {
            let size = self.scalar(&Size::varying(index))?;
            carries.push(size);
        }
        let trips = match trips.as_fixed() {
            Some(trips) => Trips::Exactly(trips as usize),
            None => {
                let most = self.capacity(id, trips)?;
                let trips = self.scalar(trips)?;
                carries.push(trips);
                Trips::AtMost(most)
            }
        };
        let node = self.graph.add(Op::For { trips, body }, &carries)?;
        Ok(Value { node, axes: self.axes_of(id, 0)? })
    }
}
