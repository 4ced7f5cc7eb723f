//! The rules of ops that move elements: views, slices, edges and joins.

use super::super::Size;
use super::super::padded::{Axis, Factor, Padder, Value, capacities};
use crate::op::{AxisRule, BinaryOp, PadAttrs, SliceAttrs};
use crate::{Builder, DType, Dims, NodeId, Result};
use smallvec::SmallVec;

impl Padder<'_> {
    pub(super) fn broadcast(&mut self, id: NodeId, x: &Value, mapping: &[usize]) -> Result<Value> {
        let rules = self.rules(id, 0)?;
        let mut axes = self.axes_of(id, 0)?;
        axes.iter_mut().for_each(|axis| axis.is_uniform = true);
        for (from, rule) in rules.iter().enumerate() {
            match rule {
                AxisRule::Kept(to) => axes[*to] = x.axes[from].clone(),
                _ if x.axes[from].varies() => return Err(self.refusal(id, "repeats a size that varies")),
                _ => {}
            }
        }
        let dims = capacities(&axes);
        Ok(Value { node: self.graph.broadcast_in_dim(x.node, &dims, mapping)?, axes })
    }

    /// A reshape keeps the parts of the axes that it merges. A merged axis is divided where its parts allow it, else its
    /// true elements are moved.
    pub(super) fn reshape(&mut self, id: NodeId, x: Value) -> Result<Value> {
        let rules = self.rules(id, 0)?;
        let sizes = self.old.dims(id, 0);
        let mut axes = self.axes_of(id, 0)?;
        let mut value = x;
        let mut moved: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> = Vec::new();
        for (from, rule) in rules.iter().enumerate() {
            match rule {
                AxisRule::Kept(to) => axes[*to] = value.axes[from].clone(),
                AxisRule::Dropped if !value.axes[from].varies() => {}
                AxisRule::Regrouped { from: run, .. } if run.start != from => {}
                AxisRule::Regrouped { from: run, to } => {
                    let parts: Vec<Factor> =
                        value.axes[run.clone()].iter().flat_map(|axis| axis.factors.clone()).collect();
                    // A fixed axis beside a repeated one has elements that differ.
                    let is_uniform = value.axes[run.clone()].iter().all(|axis| axis.is_uniform);
                    match grouped(&parts, &sizes[to.clone()]) {
                        Some(groups) => {
                            for (axis, factors) in to.clone().zip(groups) {
                                axes[axis] = Axis { factors, is_uniform: is_uniform && axes[axis].varies() };
                            }
                        }
                        None => moved.push((run.clone(), to.clone())),
                    }
                }
                _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
            }
        }
        for (run, to) in moved.into_iter().rev() {
            let from: Vec<Factor> = value.axes[run.clone()].iter().flat_map(|axis| axis.factors.clone()).collect();
            let into: Vec<Factor> = axes[to.clone()].iter().flat_map(|axis| axis.factors.clone()).collect();
            let mut dims = value.capacities();
            let merged: usize = dims[run.clone()].iter().product();
            dims.drain(run.clone());
            dims.insert(run.start, merged);
            let node = self.graph.reshape(value.node, &dims)?;
            let node = self.repacked(node, run.start, &from, &into)?;
            // Until the last reshape, the run is this one axis.
            let mut after = value.axes;
            after.drain(run.clone());
            after.insert(run.start, Axis { factors: into.into(), is_uniform: false });
            value = Value { node, axes: after };
        }
        let dims = capacities(&axes);
        Ok(Value { node: self.graph.reshape(value.node, &dims)?, axes })
    }

    /// Reverses the true indices: they come last in the reversed buffer, and are moved to its start.
    pub(super) fn reverse(&mut self, x: Value, dims: &[usize]) -> Result<Value> {
        let mut value = x;
        for &axis in dims {
            value = self.unmerged_axis(value, axis)?;
        }
        value.node = self.graph.reverse(value.node, dims)?;
        for &axis in dims {
            let of = value.axes[axis].clone();
            if of.varies() && !of.is_uniform {
                let size = self.scalar(&of.factors[0].size)?;
                let capacity = self.graph.scalar(DType::I32, of.capacity() as i64)?;
                let start = self.graph.binary(BinaryOp::Sub, capacity, size)?;
                value.node = self.taken(value.node, axis, start, of.capacity())?;
            }
        }
        Ok(value)
    }

    pub(super) fn slice(&mut self, id: NodeId, x: Value, attrs: &SliceAttrs) -> Result<Value> {
        let numbers = self.known(id)?;
        let rank = x.axes.len();
        let mut axes = self.axes_of(id, 0)?;
        let mut value = x;
        for axis in 0..rank {
            let (start, limit, stride) = (&numbers[axis], &numbers[rank + axis], attrs.stride[axis]);
            let of = value.axes[axis].clone();
            let is_whole = matches!(self.rules(id, 0)?[axis], AxisRule::Kept(_));
            if is_whole {
                axes[axis] = of;
                continue;
            }
            value = self.unmerged_axis(value, axis)?;
            let capacity = axes[axis].capacity();
            let end = value.axes[axis].capacity();
            value.node = match (start.as_fixed(), limit.as_fixed()) {
                (Some(start), Some(limit)) => {
                    self.stepped(value.node, axis, (start as usize, limit as usize), stride)?
                }
                (Some(start), None) => self.stepped(value.node, axis, ((start as usize).min(end), end), stride)?,
                (None, _) => {
                    let start = self.scalar(start)?;
                    let taken = self.taken(value.node, axis, start, capacity * stride)?;
                    self.stepped(taken, axis, (0, capacity * stride), stride)?
                }
            };
            value.node = self.resized(value.node, axis, capacity)?;
            axes[axis].is_uniform = of.is_uniform && of.varies();
            value.axes[axis] = axes[axis].clone();
        }
        Ok(Value { node: value.node, axes })
    }

    pub(super) fn pad(&mut self, id: NodeId, mut operands: Vec<Value>, attrs: &PadAttrs) -> Result<Value> {
        let numbers = self.known(id)?;
        let (fill, mut value) = (operands[1].node, operands.swap_remove(0));
        let rank = value.axes.len();
        let mut axes = self.axes_of(id, 0)?;
        for axis in 0..rank {
            let (low, high, interior) = (&numbers[axis], &numbers[rank + axis], attrs.interior[axis]);
            if low.as_fixed() == Some(0) && high.as_fixed() == Some(0) && interior == 0 {
                axes[axis] = value.axes[axis].clone();
                continue;
            }
            value = self.unmerged_axis(value, axis)?;
            let dims = value.capacities();
            let filled = self.graph.broadcast_in_dim(fill, &dims, &[])?;
            value = self.filled(&value, axis, filled)?;
            let (capacity, of) = (axes[axis].capacity(), dims[axis]);
            let spread = of + of.saturating_sub(1) * interior;
            let mut edges = (SmallVec::<[isize; 4]>::from_elem(0, rank), SmallVec::<[isize; 4]>::from_elem(0, rank));
            let mut between = Dims::from_elem(0, rank);
            between[axis] = interior;
            let first = low.as_fixed().unwrap_or(0) as isize;
            if low.is_fixed() {
                (edges.0[axis], edges.1[axis]) = (first, capacity as isize - spread as isize - first);
                value.node = self.graph.pad(value.node, fill, &edges.0, &edges.1, &between)?;
            } else {
                self.at_least_zero.push(low.clone());
                let spread_out = self.graph.pad(value.node, fill, &edges.0, &edges.1, &between)?;
                let mut dims = dims;
                dims[axis] = capacity;
                let room = self.graph.broadcast_in_dim(fill, &dims, &[])?;
                let low = self.scalar(low)?;
                value.node = self.placed(room, spread_out, axis, low)?;
            }
            value.axes[axis] = axes[axis].clone();
        }
        Ok(Value { node: value.node, axes })
    }

    /// Each operand is written over the padding of those before it.
    pub(super) fn concatenate(&mut self, id: NodeId, mut operands: Vec<Value>, dim: usize) -> Result<Value> {
        for operand in &mut operands {
            *operand = self.unmerged_axis(operand.clone(), dim)?;
        }
        let rules = self.all_rules(id)?;
        self.unify(id, &mut operands, &rules)?;
        let mut axes = self.axes_of(id, 0)?;
        for d in (0..axes.len()).filter(|&d| d != dim) {
            let shown = operands.iter().find(|operand| !operand.axes[d].is_uniform).unwrap_or(&operands[0]);
            axes[d] = shown.axes[d].clone();
        }
        if operands.iter().all(|operand| !operand.axes[dim].varies()) {
            let nodes: Vec<NodeId> = operands.iter().map(|operand| operand.node).collect();
            return Ok(Value { node: self.graph.concatenate(&nodes, dim)?, axes });
        }
        let capacity = axes[dim].capacity();
        let mut node = self.resized(operands[0].node, dim, capacity)?;
        let mut end = operands[0].axes[dim].factors[0].size.clone();
        let mut start = self.scalar(&end)?;
        for operand in &operands[1..] {
            // A part of fixed size fits where it goes; the padding of another one may not.
            node = match operand.axes[dim].varies() {
                true => self.placed(node, operand.node, dim, start)?,
                false => self.written(node, operand.node, dim, start)?,
            };
            end = operand.axes[dim].factors[0].size.clone();
            let size = self.scalar(&end)?;
            start = self.graph.binary(BinaryOp::Add, start, size)?;
        }
        Ok(Value { node, axes })
    }
}

/// Returns the parts of axes of these sizes, which are together these parts in row-major order. A part `3n` may be divided
/// into `n` and 3.
fn grouped(parts: &[Factor], sizes: &[Size]) -> Option<Vec<SmallVec<[Factor; 1]>>> {
    let mut rest: Vec<Factor> = parts.iter().rev().cloned().collect();
    let mut groups = Vec::new();
    for size in sizes {
        let (mut group, mut missing) = (SmallVec::<[Factor; 1]>::new(), size.clone());
        while missing.as_fixed() != Some(1) {
            let next = rest.pop()?;
            if let Some(after) = missing.over(&next.size) {
                missing = after;
                group.push(next);
                continue;
            }
            // The outer part of `next` completes this axis; its inner part goes to the next one.
            let inner = usize::try_from(next.size.over(&missing)?.as_fixed()?).ok()?;
            if inner == 0 || next.capacity % inner != 0 {
                return None;
            }
            rest.push(Factor { size: Size::fixed(inner as i64), capacity: inner });
            group.push(Factor { size: missing, capacity: next.capacity / inner });
            missing = Size::fixed(1);
        }
        // What does not vary is one part.
        if group.iter().all(|part| part.size.is_fixed()) {
            let capacity = group.iter().map(|part| part.capacity).product();
            group = SmallVec::from_elem(Factor { size: size.clone(), capacity }, 1);
        }
        groups.push(group);
    }
    rest.iter().all(|part| part.size.as_fixed() == Some(1)).then_some(groups)
}
