//! The rule of each op: how it is computed on values whose axes are padded.
//!
//! Owns: the exact form of every op for axes that vary. May not know: how sizes were found, nor which buckets there are.
//!
//! The rules of axes say what an op does with an index that is padding: an axis that is kept keeps it, an axis that is
//! reduced holds the neutral element there, and an op that moves indices moves the true ones. A form that is not exact is
//! refused, and then the whole family is.

mod control;
mod draw;
mod index;
mod movement;
mod order;
mod window;

use super::Size;
use super::padded::{Axes, Axis, Factor, Padder, Value, capacities};
use crate::op::{AxisRule, AxisRules};
use crate::{Builder, DType, Literal, LiteralData, NodeId, Number, Op, Result};
use smallvec::SmallVec;

impl Padder<'_> {
    /// Returns the value of an old node in the padded program.
    ///
    /// # Errors
    /// If the op has no exact form.
    pub(super) fn value_of(&mut self, id: NodeId) -> Result<Value> {
        let node = self.old.graph().node(id);
        let mut operands = Vec::with_capacity(node.operands.len());
        for &operand in &node.operands {
            operands.push(self.value(operand)?);
        }
        if operands.iter().all(|operand| !operand.varies()) && self.old.is_fixed(id) {
            return self.copied(id, &operands);
        }
        match &node.op {
            Op::Parameter { index, ty } => {
                let axes = self.axes_of(id, 0)?;
                let dims = capacities(&axes);
                let ty = crate::TensorType::new(ty.dtype, dims);
                let node = self.graph.add(Op::Parameter { index: *index, ty }, &[])?;
                Ok(Value { node, axes })
            }
            Op::Offset { dtype, .. } => self.offset(id, *dtype),
            Op::Constant(literal) => self.constant(id, literal),
            Op::Iota { ty, dim } => {
                let mut axes = self.axes_of(id, 0)?;
                let dims = capacities(&axes);
                axes.iter_mut().enumerate().for_each(|(d, axis)| axis.is_uniform = d != *dim);
                Ok(Value { node: self.graph.iota(ty.dtype, &dims, *dim)?, axes })
            }
            Op::BroadcastInDim { mapping, .. } => self.broadcast(id, &operands[0], mapping),
            Op::Reshape { .. } => self.reshape(id, operands.swap_remove(0)),
            Op::Transpose { permutation } => {
                let axes = permutation.iter().map(|&from| operands[0].axes[from].clone()).collect();
                Ok(Value { node: self.graph.transpose(operands[0].node, permutation)?, axes })
            }
            Op::Reverse { dims } => self.reverse(operands.swap_remove(0), dims),
            Op::Slice(attrs) => self.slice(id, operands.swap_remove(0), attrs),
            Op::Pad(attrs) => self.pad(id, operands, attrs),
            Op::Concatenate { dim } => self.concatenate(id, operands, *dim),
            Op::DynamicSlice { .. } => self.dynamic_slice(id, operands),
            Op::DynamicUpdateSlice => self.dynamic_update_slice(id, operands),
            Op::ReduceWindow { window, .. } => self.window(id, operands.swap_remove(0), window),
            Op::Convolution(_) => self.convolution(id, operands),
            Op::Sort { descending, .. } => self.sort(id, operands, *descending),
            Op::TopK { .. } => self.top_k(id, operands.swap_remove(0)),
            Op::Gather(attrs) => self.gather(id, operands, attrs),
            Op::Scatter(_) => self.scatter(id, operands),
            Op::RngBitGenerator { ty } => self.draw(id, &operands[0], ty),
            // The bits of a draw are all that there is of it.
            Op::GetResult { .. } if self.is_draw(node.operands[0]) => Ok(operands.swap_remove(0)),
            Op::GetResult { index } => {
                let of = &operands[0];
                let result = self.graph.get_result(of.node, *index)?;
                let is_of_loop = matches!(self.old.graph().node(node.operands[0]).op, Op::For { .. });
                let axes = if is_of_loop { self.axes_of(id, 0)? } else { of.axes.clone() };
                Ok(Value { node: result, axes })
            }
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::IsFinite
            | Op::Select
            | Op::Clamp
            | Op::Convert { .. }
            | Op::BitcastConvert { .. }
            | Op::Complex
            | Op::Real
            | Op::Imag
            | Op::OptimizationBarrier
            | Op::ShardingConstraint(_)
            | Op::MoveTo(_)
            | Op::DotGeneral(_)
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Fft { .. }
            | Op::SelectAndScatter { .. } => self.kept_and_reduced(id, operands),
            Op::For { .. } => self.counted_loop(id, operands),
            Op::Slot { .. } | Op::CustomCall(_) => Err(self.refusal(id, "has no exact form for a size that varies")),
        }
    }

    fn is_draw(&self, id: NodeId) -> bool {
        matches!(self.old.graph().node(id).op, Op::RngBitGenerator { .. })
    }

    /// Returns a node that no varying size reaches.
    fn copied(&mut self, id: NodeId, operands: &[Value]) -> Result<Value> {
        let nodes: Vec<NodeId> = operands.iter().map(|operand| operand.node).collect();
        let op = &self.old.graph().node(id).op;
        // An offset that is the same in the whole family is a constant of its programs.
        let op = match (op, self.old.op_numbers(id)) {
            (Op::Offset { dtype, .. }, [Some(size)]) => {
                Op::Constant(Literal::scalar(*dtype, size.as_fixed().unwrap_or(0)))
            }
            _ => op.clone(),
        };
        let node = self.graph.add(op, &nodes)?;
        Ok(Value { node, axes: self.axes_of(id, 0)? })
    }

    fn offset(&mut self, id: NodeId, dtype: DType) -> Result<Value> {
        let size = self.old.op_numbers(id).first().cloned().flatten();
        let node = match size {
            Some(size) => self.scalar_of(&size, dtype)?,
            // It differs between recordings, so it is no constant of a program.
            None => {
                let Op::Offset { index, .. } = self.old.graph().node(id).op else {
                    return Err(self.refusal(id, "is no offset"));
                };
                self.graph.add(Op::Slot { index, dtype }, &[])?
            }
        };
        Ok(Value { node, axes: Axes::new() })
    }

    /// Returns a number as a scalar of an element type.
    fn scalar_of(&mut self, size: &Size, dtype: DType) -> Result<NodeId> {
        let scalar = self.scalar(size)?;
        self.graph.convert(scalar, dtype)
    }

    fn constant(&mut self, id: NodeId, literal: &Literal) -> Result<Value> {
        let mut axes = self.axes_of(id, 0)?;
        axes.iter_mut().for_each(|axis| axis.is_uniform = true);
        let (dims, dtype) = (capacities(&axes), literal.ty.dtype);
        let LiteralData::Splat(bits) = literal.data else {
            return Err(self.refusal(id, "is a table whose size varies"));
        };
        let value = self.old.op_numbers(id).get(dims.len()).cloned().flatten();
        let node = match value {
            Some(size) if !size.is_fixed() => {
                let scalar = self.scalar_of(&size, dtype)?;
                self.graph.broadcast_in_dim(scalar, &dims, &[])?
            }
            _ => self.graph.splat(dtype, &dims, Number::of_bits(bits, dtype))?,
        };
        Ok(Value { node, axes })
    }

    /// Returns the rules of the axes of an operand, which are the same in the whole family.
    fn rules(&self, id: NodeId, position: usize) -> Result<AxisRules> {
        self.old.rules(id, position).ok_or_else(|| self.refusal(id, "does another thing at another size"))
    }

    /// Returns the rules of all operands.
    fn all_rules(&self, id: NodeId) -> Result<Vec<AxisRules>> {
        (0..self.old.graph().node(id).operands.len()).map(|position| self.rules(id, position)).collect()
    }

    /// Ops that keep axes or reduce them: the padding of a reduced axis is neutral.
    fn kept_and_reduced(&mut self, id: NodeId, operands: Vec<Value>) -> Result<Value> {
        let (operands, axes) = self.neutral(id, operands)?;
        let nodes: Vec<NodeId> = operands.iter().map(|operand| operand.node).collect();
        let node = self.graph.add(self.old.graph().node(id).op.clone(), &nodes)?;
        Ok(Value { node, axes })
    }

    /// Returns the operands with neutral elements in the padding of what is reduced, and the axes of the results: those that
    /// are kept, with one layout in all operands.
    fn neutral(&mut self, id: NodeId, mut operands: Vec<Value>) -> Result<(Vec<Value>, Axes)> {
        let rules = self.all_rules(id)?;
        self.unify(id, &mut operands, &rules)?;
        let mut axes = self.axes_of(id, 0)?;
        let mut is_found: SmallVec<[bool; 4]> = SmallVec::from_elem(false, axes.len());
        for (x, operand) in operands.iter_mut().enumerate() {
            for (axis, rule) in rules[x].iter().enumerate() {
                let of = &operand.axes[axis];
                match rule {
                    AxisRule::Kept(to) if !is_found[*to] || axes[*to].is_uniform => {
                        (axes[*to], is_found[*to]) = (of.clone(), true);
                    }
                    AxisRule::Kept(_) => {}
                    _ if !of.varies() => {}
                    AxisRule::Reduced(combine) => {
                        let bits = combine.identity_bits(self.graph.dtype(operand.node));
                        *operand = self.masked(operand, axis, bits)?;
                    }
                    _ => return Err(self.refusal(id, "has no exact form for an axis that varies")),
                }
            }
        }
        Ok((operands, axes))
    }

    /// Gives the axes that become one axis of the result, or are reduced together, one layout.
    fn unify(&mut self, id: NodeId, operands: &mut [Value], rules: &[AxisRules]) -> Result<()> {
        for places in self.meetings(id, rules) {
            let layouts = |operands: &[Value]| {
                let mut layouts: Vec<SmallVec<[Factor; 1]>> = Vec::new();
                for &(x, axis) in &places {
                    let of: &Axis = &operands[x].axes[axis];
                    if !of.is_uniform && of.varies() && !layouts.contains(&of.factors) {
                        layouts.push(of.factors.clone());
                    }
                }
                layouts
            };
            if layouts(operands).len() > 1 {
                for &(x, axis) in &places {
                    operands[x] = self.unmerged_axis(operands[x].clone(), axis)?;
                }
            }
            // What is equal everywhere takes the layout of what is not.
            let Some(layout) = layouts(operands).into_iter().next() else { continue };
            for &(x, axis) in &places {
                let of = &mut operands[x].axes[axis];
                if of.is_uniform && of.varies() {
                    of.factors.clone_from(&layout);
                }
            }
        }
        Ok(())
    }

    /// Returns the axes of operands that meet each other, as operand and axis: for each axis of the result those that are
    /// it, and the contracted axes of two factors in pairs.
    fn meetings(&self, id: NodeId, rules: &[AxisRules]) -> Vec<Vec<(usize, usize)>> {
        let mut meetings: Vec<Vec<(usize, usize)>> = Vec::new();
        for (x, rules) in rules.iter().enumerate() {
            for (axis, rule) in rules.iter().enumerate() {
                if let AxisRule::Kept(to) = rule {
                    meetings.resize(meetings.len().max(to + 1), Vec::new());
                    meetings[*to].push((x, axis));
                }
            }
        }
        match &self.old.graph().node(id).op {
            Op::DotGeneral(attrs) => {
                let pairs = attrs.lhs_contract.iter().zip(&attrs.rhs_contract);
                meetings.extend(pairs.map(|(&lhs, &rhs)| vec![(0, lhs), (1, rhs)]));
            }
            Op::ArgReduce { dim, .. } => meetings.push(vec![(0, *dim), (1, *dim)]),
            Op::Convolution(attrs) => meetings.push(vec![(0, attrs.input.feature), (1, attrs.kernel.feature)]),
            _ => {}
        }
        meetings.retain(|places| places.len() > 1);
        meetings
    }

    /// The numbers of an op, all of which are known.
    fn known(&self, id: NodeId) -> Result<Vec<Size>> {
        let known: Option<Vec<Size>> = self.old.op_numbers(id).iter().cloned().collect();
        known.ok_or_else(|| self.refusal(id, "has a number that no size explains"))
    }
}
