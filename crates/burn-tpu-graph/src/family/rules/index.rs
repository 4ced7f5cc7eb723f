//! The rules of ops that address elements by positions known at run time.

use super::super::Size;
use super::super::padded::{Padder, Value};
use crate::op::{AxisRule, BinaryOp, GatherAttrs};
use crate::{Builder, DType, Dims, NodeId, Number, Op, Result};

impl Padder<'_> {
    /// Returns the start of a part in an axis, clamped as it is without padding.
    pub(super) fn clamped(&mut self, start: NodeId, of: &Size, part: &Size) -> Result<NodeId> {
        let start = self.graph.convert(start, DType::I32)?;
        let (of, part) = (self.scalar(of)?, self.scalar(part)?);
        let last = self.graph.binary(BinaryOp::Sub, of, part)?;
        let zero = self.graph.scalar(DType::I32, Number::Int(0))?;
        self.graph.clamp(zero, start, last)
    }

    /// Returns a start that is known before the program runs.
    pub(super) fn known_start(&self, start: NodeId) -> Option<usize> {
        let Op::Constant(literal) = &self.graph.node(start).op else { return None };
        usize::try_from(literal.splat()?.to_i64().max(0)).ok()
    }

    pub(super) fn dynamic_slice(&mut self, id: NodeId, mut operands: Vec<Value>) -> Result<Value> {
        let starts: Vec<NodeId> = operands[1..].iter().map(|start| start.node).collect();
        let mut value = operands.swap_remove(0);
        let (rules, sizes) = (self.rules(id, 0)?, self.old.dims(id, 0));
        let mut axes = self.axes_of(id, 0)?;
        for axis in 0..axes.len() {
            if matches!(rules[axis], AxisRule::Kept(_)) {
                axes[axis] = value.axes[axis].clone();
                continue;
            }
            value = self.unmerged_axis(value, axis)?;
            let (of, capacity) = (value.axes[axis].clone(), axes[axis].capacity());
            let start = starts[axis];
            value.node = match self.known_start(start) {
                Some(0) => self.resized(value.node, axis, capacity)?,
                _ => {
                    let start = self.clamped(start, &of.factors[0].size, &sizes[axis])?;
                    if sizes[axis].is_fixed() {
                        self.part(value.node, axis, start, capacity)?
                    } else {
                        self.taken(value.node, axis, start, capacity)?
                    }
                }
            };
            axes[axis].is_uniform = of.is_uniform && of.varies();
            value.axes[axis] = axes[axis].clone();
        }
        Ok(Value { node: value.node, axes })
    }

    /// Writes the true part of the update at starts that are clamped as they are without padding.
    pub(super) fn dynamic_update_slice(&mut self, id: NodeId, operands: Vec<Value>) -> Result<Value> {
        let old_starts: Vec<NodeId> = operands[2..].iter().map(|start| start.node).collect();
        let rules = [self.rules(id, 0)?, self.rules(id, 1)?];
        let mut pair = operands[..2].to_vec();
        for (axis, rule) in rules[0].iter().enumerate() {
            if !matches!(rule, AxisRule::Kept(_)) {
                pair[0] = self.unmerged_axis(pair[0].clone(), axis)?;
                pair[1] = self.unmerged_axis(pair[1].clone(), axis)?;
            }
        }
        self.unify(id, &mut pair, &rules)?;
        let [x, update] = [pair[0].clone(), pair[1].clone()];
        let (mut starts, mut room, mut node) = (Vec::new(), x.capacities(), x.node);
        for (axis, start) in old_starts.into_iter().enumerate() {
            if matches!(rules[0][axis], AxisRule::Kept(_)) {
                starts.push(self.graph.scalar(DType::I32, Number::Int(0))?);
                continue;
            }
            let (of, part) = (&x.axes[axis], &update.axes[axis]);
            let (of, part) = (of.factors[0].clone(), part.factors[0].clone());
            starts.push(match self.known_start(start) {
                Some(0) => self.graph.scalar(DType::I32, Number::Int(0))?,
                _ => self.clamped(start, &of.size, &part.size)?,
            });
            if !part.size.is_fixed() {
                room[axis] += part.capacity;
                node = self.resized(node, axis, room[axis])?;
            }
        }
        let mut part = update.clone();
        if update.axes.iter().zip(&rules[1]).any(|(axis, rule)| axis.varies() && !matches!(rule, AxisRule::Kept(_))) {
            let below = self.graph.dynamic_slice(node, &starts, &update.capacities())?;
            for (axis, rule) in rules[1].iter().enumerate() {
                if !matches!(rule, AxisRule::Kept(_)) {
                    part = self.filled(&part, axis, below)?;
                }
            }
        }
        node = self.graph.dynamic_update_slice(node, part.node, &starts)?;
        for (axis, capacity) in x.capacities().into_iter().enumerate() {
            node = self.graph.slice_dim(node, axis, 0, capacity)?;
        }
        let mut axes = x.axes;
        axes.iter_mut().for_each(|axis| axis.is_uniform = false);
        Ok(Value { node, axes })
    }

    /// Positions are clamped to the true sizes.
    pub(super) fn gather(&mut self, id: NodeId, operands: Vec<Value>, attrs: &GatherAttrs) -> Result<Value> {
        let rules = [self.rules(id, 0)?, self.rules(id, 1)?];
        let numbers = self.known(id)?;
        let mut pair = operands;
        for (axis, rule) in rules[0].iter().enumerate() {
            match rule {
                AxisRule::Kept(_) => {}
                AxisRule::Dropped if !pair[0].axes[axis].varies() => {}
                AxisRule::Addressed(_) => pair[0] = self.unmerged_axis(pair[0].clone(), axis)?,
                _ if !pair[0].axes[axis].varies() => {}
                _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
            }
        }
        self.unify(id, &mut pair, &rules)?;
        let [x, indices] = [pair[0].clone(), pair[1].clone()];
        let mut bounds = Vec::new();
        for &axis in &attrs.start_index_map {
            let last = x.axes[axis].factors[0].size.plus(&numbers[axis].negated());
            bounds.push(last.filter(|_| x.axes[axis].varies()));
        }
        let index = self.bounded(&indices, &bounds, attrs.index_vector_dim)?;
        let mut axes = self.axes_of(id, 0)?;
        for (operand, rules) in [&x, &indices].into_iter().zip(&rules) {
            for (axis, rule) in rules.iter().enumerate() {
                if let AxisRule::Kept(to) = rule {
                    axes[*to] = operand.axes[axis].clone();
                }
            }
        }
        axes.iter_mut().for_each(|axis| axis.is_uniform = false);
        let mut slice_sizes = Dims::new();
        for (axis, rule) in rules[0].iter().enumerate() {
            slice_sizes.push(match rule {
                AxisRule::Kept(_) if attrs.operand_batching_dims.contains(&axis) => 1,
                AxisRule::Kept(_) | AxisRule::Dropped => x.axes[axis].capacity(),
                _ => match numbers[axis].as_fixed() {
                    Some(size) => size as usize,
                    None => return Err(self.refusal(id, "takes parts whose size varies")),
                },
            });
        }
        let node = self.graph.gather(x.node, index, GatherAttrs { slice_sizes, ..attrs.clone() })?;
        Ok(Value { node, axes })
    }

    /// Returns positions whose components are at most `bounds`, where there are some.
    pub(super) fn bounded(&mut self, indices: &Value, bounds: &[Option<Size>], vector_dim: usize) -> Result<NodeId> {
        if bounds.iter().all(Option::is_none) {
            return Ok(indices.node);
        }
        let (dtype, dims) = (self.graph.dtype(indices.node), indices.capacities());
        let mut parts = Vec::new();
        for bound in bounds {
            let scalar = match bound {
                Some(size) => self.scalar_of(size, dtype)?,
                None => {
                    let (_, most) = crate::literal::extremes(dtype);
                    self.graph.scalar(dtype, Number::of_bits(most, dtype))?
                }
            };
            parts.push(self.graph.reshape(scalar, &[1])?);
        }
        let bound = self.graph.concatenate(&parts, 0)?;
        let bound = if vector_dim < dims.len() {
            self.graph.broadcast_in_dim(bound, &dims, &[vector_dim])?
        } else {
            let scalar = self.graph.reshape(bound, &[])?;
            self.graph.broadcast_in_dim(scalar, &dims, &[])?
        };
        self.graph.binary(BinaryOp::Min, indices.node, bound)
    }

    /// The padding of positions addresses nothing: -1 is out of range everywhere.
    pub(super) fn scatter(&mut self, id: NodeId, operands: Vec<Value>) -> Result<Value> {
        let rules = [self.rules(id, 0)?, self.rules(id, 1)?, self.rules(id, 2)?];
        let mut three = operands;
        for (x, rules) in rules.iter().enumerate() {
            for (axis, rule) in rules.iter().enumerate() {
                if !three[x].axes[axis].varies() {
                    continue;
                }
                match rule {
                    AxisRule::Kept(_) | AxisRule::Scattered(_) => {}
                    AxisRule::Addressed(_) => three[x] = self.unmerged_axis(three[x].clone(), axis)?,
                    _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
                }
            }
        }
        self.unify(id, &mut three, &rules)?;
        // The axes of positions and of updates that are scattered belong together in their order.
        let scattered = |x: usize| -> Vec<usize> {
            rules[x]
                .iter()
                .enumerate()
                .filter(|(_, rule)| matches!(rule, AxisRule::Scattered(_)))
                .map(|(axis, _)| axis)
                .collect()
        };
        for (from, to) in scattered(1).into_iter().zip(scattered(2)) {
            let (a, b) = (three[1].axes[from].clone(), three[2].axes[to].clone());
            if a.varies() && a.factors != b.factors {
                three[1] = self.unmerged_axis(three[1].clone(), from)?;
                three[2] = self.unmerged_axis(three[2].clone(), to)?;
            }
        }
        let minus_one = Number::Int(-1).bits(self.graph.dtype(three[1].node));
        for axis in scattered(1) {
            three[1] = self.masked(&three[1].clone(), axis, minus_one)?;
        }
        let nodes: Vec<NodeId> = three.iter().map(|operand| operand.node).collect();
        let node = self.graph.add(self.old.graph().node(id).op.clone(), &nodes)?;
        let mut axes = three.swap_remove(0).axes;
        axes.iter_mut().for_each(|axis| axis.is_uniform = false);
        Ok(Value { node, axes })
    }
}
