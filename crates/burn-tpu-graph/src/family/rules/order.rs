//! The rules of ops that order elements.

use super::super::padded::{Padder, Value};
use crate::op::{AxisRule, Combine};
use crate::{Builder, DType, NodeId, Op, Result};

impl Padder<'_> {
    /// The padding comes last, and after all that is equal to it, since sorts are stable.
    pub(super) fn sort(&mut self, id: NodeId, mut operands: Vec<Value>, descending: bool) -> Result<Value> {
        let Op::Sort { dim, .. } = self.old.graph().node(id).op else {
            return Err(self.refusal(id, "is no sort"));
        };
        for operand in &mut operands {
            *operand = self.unmerged_axis(operand.clone(), dim)?;
        }
        let mut rules = self.all_rules(id)?;
        rules.iter_mut().for_each(|rules| rules[dim] = AxisRule::Kept(dim));
        self.unify(id, &mut operands, &rules)?;
        let last = last_in_order(self.graph.dtype(operands[0].node), descending);
        operands[0] = self.masked(&operands[0], dim, last)?;
        let nodes: Vec<NodeId> = operands.iter().map(|operand| operand.node).collect();
        let node = self.graph.add(self.old.graph().node(id).op.clone(), &nodes)?;
        let mut axes = operands.swap_remove(0).axes;
        for operand in &operands {
            for (axis, other) in axes.iter_mut().zip(&operand.axes) {
                if axis.is_uniform && !other.is_uniform {
                    *axis = other.clone();
                }
            }
        }
        axes[dim].is_uniform = false;
        Ok(Value { node, axes })
    }

    pub(super) fn top_k(&mut self, id: NodeId, x: Value) -> Result<Value> {
        let last = x.axes.len() - 1;
        let mut value = self.unmerged_axis(x, last)?;
        let bits = last_in_order(self.graph.dtype(value.node), true);
        value = self.masked(&value, last, bits)?;
        let mut axes = value.axes.clone();
        axes[last] = self.axes_of(id, 0)?.swap_remove(last);
        let k = axes[last].capacity().min(value.axes[last].capacity());
        if k != axes[last].capacity() {
            return Err(self.refusal(id, "has more results than operands"));
        }
        let node = self.graph.add(Op::TopK { k }, &[value.node])?;
        Ok(Value { node, axes })
    }
}

/// Returns the bits of the element that comes last in a sort.
fn last_in_order(dtype: DType, descending: bool) -> u64 {
    if descending {
        return Combine::Max.identity_bits(dtype);
    }
    match dtype {
        // NaN comes last.
        DType::F16 => 0x7fff,
        DType::BF16 => 0x7fff,
        DType::F32 => 0x7fff_ffff,
        DType::F64 => 0x7fff_ffff_ffff_ffff,
        _ => Combine::Min.identity_bits(dtype),
    }
}
