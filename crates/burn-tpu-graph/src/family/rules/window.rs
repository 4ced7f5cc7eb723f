//! The rules of windows and convolutions.

use super::super::Size;
use super::super::padded::{Axis, Padder, Value};
use crate::op::{AxisRule, ConvAttrs, WindowAttrs};
use crate::{Builder, NodeId, Op, Result};

impl Padder<'_> {
    /// A window sees neutral elements in the padding, as it does beyond the edges. It may grow with the axis only if it
    /// covers all indices up to its own, or from its own on.
    pub(super) fn window(&mut self, id: NodeId, x: Value, window: &WindowAttrs) -> Result<Value> {
        let (numbers, rules) = (self.known(id)?, self.rules(id, 0)?);
        let rank = x.axes.len();
        let mut axes = self.axes_of(id, 0)?;
        let mut value = x;
        let mut attrs = window.clone();
        for axis in 0..rank {
            let combine = match &rules[axis] {
                AxisRule::Kept(_) => {
                    axes[axis] = value.axes[axis].clone();
                    continue;
                }
                _ if !value.axes[axis].varies() => continue,
                AxisRule::Windowed(_, combine) => *combine,
                _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
            };
            let (size, low, high) = (&numbers[axis], &numbers[rank + 2 * axis], &numbers[rank + 2 * axis + 1]);
            value = self.unmerged_axis(value, axis)?;
            let of = value.axes[axis].factors[0].clone();
            let bits = combine.identity_bits(self.graph.dtype(value.node));
            value = self.masked(&value, axis, bits)?;
            let is_scan =
                window.strides[axis] == 1 && window.base_dilation[axis] == 1 && window.window_dilation[axis] == 1;
            let covers_all = is_scan && *size == of.size;
            let reaches = |edge: &Size| edge.plus(&Size::fixed(1)).as_ref() == Some(size);
            if size.is_fixed() && low.is_fixed() {
                let reach = dilated(window.dims[axis], window.window_dilation[axis]);
                let there = dilated(of.capacity, window.base_dilation[axis]);
                let edge = &mut attrs.padding[axis];
                edge.1 = last_edge(axes[axis].capacity(), window.strides[axis], reach, there, edge.0);
            } else if covers_all && reaches(low) && high.as_fixed() == Some(0) {
                attrs.dims[axis] = of.capacity;
                attrs.padding[axis] = (of.capacity as isize - 1, 0);
            } else if covers_all && reaches(high) && low.as_fixed() == Some(0) {
                attrs.dims[axis] = of.capacity;
                attrs.padding[axis] = (0, of.capacity as isize - 1);
            } else {
                return Err(self.refusal(id, "has a window whose size varies"));
            }
        }
        let Op::ReduceWindow { combine, .. } = self.old.graph().node(id).op else {
            return Err(self.refusal(id, "is no window"));
        };
        let mut node = self.graph.reduce_window(combine, value.node, attrs)?;
        for axis in 0..rank {
            node = self.resized(node, axis, axes[axis].capacity())?;
        }
        axes.iter_mut().for_each(|axis| axis.is_uniform = false);
        Ok(Value { node, axes })
    }

    /// Spatial axes hold zeros in their padding, as they do beyond the edges, and so do features that are added up. A kernel
    /// whose size varies, as the weight's gradient has one, adds products with those zeros.
    pub(super) fn convolution(&mut self, id: NodeId, mut operands: Vec<Value>) -> Result<Value> {
        let Op::Convolution(attrs) = &self.old.graph().node(id).op else {
            return Err(self.refusal(id, "is no convolution"));
        };
        let rules = self.all_rules(id)?;
        self.unify(id, &mut operands, &rules)?;
        let mut axes = self.axes_of(id, 0)?;
        for (operand, rules) in operands.iter_mut().zip(&rules) {
            for (axis, rule) in rules.iter().enumerate() {
                if !operand.axes[axis].varies() {
                    continue;
                }
                match rule {
                    AxisRule::Kept(to) => axes[*to] = operand.axes[axis].clone(),
                    AxisRule::Reduced(_) => *operand = self.masked(operand, axis, 0)?,
                    AxisRule::Windowed(..) => {
                        *operand = self.unmerged_axis(operand.clone(), axis)?;
                        *operand = self.masked(operand, axis, 0)?;
                    }
                    _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
                }
            }
        }
        let attrs = self.padded_convolution(id, attrs, &operands, &axes)?;
        let nodes: Vec<NodeId> = operands.iter().map(|operand| operand.node).collect();
        let mut node = self.graph.add(Op::Convolution(attrs), &nodes)?;
        for axis in 0..axes.len() {
            node = self.resized(node, axis, axes[axis].capacity())?;
        }
        axes.iter_mut().for_each(|axis| axis.is_uniform = false);
        Ok(Value { node, axes })
    }

    /// Returns the attributes of a convolution of padded operands, whose result ends where its buffer does.
    fn padded_convolution(
        &self,
        id: NodeId,
        attrs: &ConvAttrs,
        operands: &[Value],
        results: &[Axis],
    ) -> Result<Box<ConvAttrs>> {
        let numbers = self.known(id)?;
        let mut padded = Box::new(attrs.clone());
        for i in 0..attrs.padding.len() {
            let input = &operands[0].axes[attrs.input.spatial[i]];
            let kernel = &operands[1].axes[attrs.kernel.spatial[i]];
            if !input.varies() && !kernel.varies() {
                continue;
            }
            let Some(low) = numbers[2 * i].as_fixed() else {
                return Err(self.refusal(id, "has an edge that varies"));
            };
            let low = low as isize;
            let reach = dilated(kernel.capacity(), attrs.rhs_dilation[i]);
            let there = dilated(input.capacity(), attrs.lhs_dilation[i]);
            let places = results[attrs.output.spatial[i]].capacity();
            padded.padding[i] = (low, last_edge(places, attrs.strides[i], reach, there, low));
        }
        Ok(padded)
    }
}

/// Returns the number of places from the first to the last of `size` elements with this distance.
fn dilated(size: usize, distance: usize) -> usize {
    if size == 0 { 0 } else { (size - 1) * distance + 1 }
}

/// Returns the padding after an axis of `there` places with which a window that covers `reach` places has `results`
/// results: the result ends where its buffer does, whatever the recorded padding is.
fn last_edge(results: usize, stride: usize, reach: usize, there: usize, low: isize) -> isize {
    (results.saturating_sub(1) * stride + reach) as isize - low - there as isize
}
