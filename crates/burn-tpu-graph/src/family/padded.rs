//! The program of a family for one bucket of each varying size: values are as large as their buckets, and what is computed
//! of their true part is what the program of the true sizes computes.
//!
//! Owns: which part of a value is true, the true sizes as scalars, masks, and moving values between layouts. May not know:
//! the rule of any op, which `rules` has.
//!
//! An axis that varies holds its true indices first. What follows is padding: any bits at all. An axis that a reshape merged
//! of several is true where each of them is.

use super::{Part, Size};
use crate::op::{BinaryOp, Direction, GatherAttrs};
use crate::{Bindings, Builder, DType, Dims, Graph, GraphError, NodeId, Number, Op, Program, Result, TensorType};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// A part of an axis: its true size, and the size of its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    pub(super) size: Size,
    pub(super) capacity: usize,
}

impl Factor {
    fn varies(&self) -> bool {
        !self.size.is_fixed()
    }
}

/// An axis of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// What was merged, outermost first.
    pub(super) factors: SmallVec<[Factor; 1]>,
    /// Whether all indices hold equal values: such an axis takes any layout.
    pub(super) is_uniform: bool,
}

impl Axis {
    pub(super) fn of(size: &Size, capacity: usize) -> Self {
        Self { factors: smallvec![Factor { size: size.clone(), capacity }], is_uniform: false }
    }

    pub(super) fn varies(&self) -> bool {
        self.factors.iter().any(Factor::varies)
    }

    pub(super) fn capacity(&self) -> usize {
        self.factors.iter().map(|factor| factor.capacity).product()
    }
}

pub(super) type Axes = SmallVec<[Axis; 4]>;

/// A value of the padded program.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) node: NodeId,
    pub(super) axes: Axes,
}

impl Value {
    pub(super) fn varies(&self) -> bool {
        self.axes.iter().any(Axis::varies)
    }

    /// Returns the sizes of its buffer.
    pub(super) fn capacities(&self) -> Dims {
        capacities(&self.axes)
    }
}

/// Returns the sizes of a buffer with these axes.
pub(super) fn capacities(axes: &[Axis]) -> Dims {
    axes.iter().map(Axis::capacity).collect()
}

/// A program for one bucket of each varying size.
#[derive(Clone, Debug)]
pub struct Padded {
    /// The program, in its canonical form.
    pub program: Arc<Program>,
    /// What its inputs are. Its parameters are those of the recorded program; its slots are those of the recorded program,
    /// then the varying sizes as `i32`.
    pub bindings: Bindings,
    /// The true dims of each parameter of the recorded program, by its index.
    pub parameters: Vec<Vec<Size>>,
    /// The true dims of each output.
    pub outputs: Vec<Vec<Size>>,
    /// Numbers that must not be negative: the program is not exact for sizes where one is.
    pub at_least_zero: Vec<Size>,
}

/// Where the varying sizes are in a program, as scalars `i32[]`.
enum Varying {
    Slots {
        first: u32,
    },
    /// In the body of a loop, which carries them.
    Given(Vec<NodeId>),
}

/// What builds the padded program.
pub(super) struct Padder<'f> {
    pub(super) old: Part<'f>,
    pub(super) graph: Graph,
    pub(super) buckets: &'f [i64],
    varying: Varying,
    values: Vec<Option<Value>>,
    scalars: FxHashMap<Size, NodeId>,
    pub(super) at_least_zero: Vec<Size>,
}

impl<'f> Padder<'f> {
    /// Creates what pads a recorded program of `slots` slots.
    pub(super) fn new(old: Part<'f>, buckets: &'f [i64], slots: u32) -> Self {
        let values = vec![None; old.graph().len()];
        let (graph, varying, scalars) = (Graph::new(), Varying::Slots { first: slots }, FxHashMap::default());
        Self { old, graph, buckets, varying, values, scalars, at_least_zero: Vec::new() }
    }

    /// Builds the program.
    ///
    /// # Errors
    /// The op that has no exact rule for an axis that varies.
    pub(super) fn build(mut self) -> Result<Padded> {
        let outputs = self.outputs()?;
        let dims = |id: NodeId| self.old.dims(id, 0);
        let is_parameter = |id: &NodeId| matches!(self.old.graph().node(*id).op, Op::Parameter { .. });
        let (program, bindings) = Program::canonical(&self.graph, &outputs)?;
        Ok(Padded {
            program: Arc::new(program),
            bindings,
            parameters: self.old.graph().ids().filter(is_parameter).map(dims).collect(),
            outputs: self.old.program.outputs().iter().map(|&id| dims(id)).collect(),
            at_least_zero: self.at_least_zero,
        })
    }

    /// Builds the program of one trip of a loop. It carries the loop's values, of these types, and the varying sizes.
    ///
    /// # Errors
    /// The op that has no exact rule for an axis that varies.
    pub(super) fn build_body(&mut self, body: Part<'f>, carries: &[TensorType], sizes: usize) -> Result<Program> {
        let mut graph = Graph::new();
        let scalar = TensorType::scalar(DType::I32);
        let mut parameters = Vec::new();
        // The trip's number is the last one.
        for ty in carries.iter().chain(std::iter::repeat_n(&scalar, sizes + 1)) {
            let index = parameters.len() as u32;
            parameters.push(graph.add(Op::Parameter { index, ty: ty.clone() }, &[])?);
        }
        let given = parameters[carries.len()..carries.len() + sizes].to_vec();
        let mut padder = Padder {
            old: body,
            graph,
            buckets: self.buckets,
            varying: Varying::Given(given.clone()),
            values: vec![None; body.graph().len()],
            scalars: FxHashMap::default(),
            at_least_zero: Vec::new(),
        };
        for id in body.graph().ids() {
            if let Op::Parameter { index, .. } = body.graph().node(id).op {
                let index = index as usize;
                let place = if index < carries.len() { index } else { index + sizes };
                padder.values[id.index()] = Some(Value { node: parameters[place], axes: padder.axes_of(id, 0)? });
            }
        }
        let mut next = padder.outputs()?;
        for (node, ty) in next.iter_mut().zip(carries) {
            *node = padder.in_buffer(*node, &ty.dims)?;
        }
        next.extend(given);
        self.at_least_zero.append(&mut padder.at_least_zero);
        Program::extract(&padder.graph, &next)
    }

    /// Computes all values, and returns the outputs: each axis in one part.
    fn outputs(&mut self) -> Result<Vec<NodeId>> {
        for id in self.old.graph().ids() {
            if self.values[id.index()].is_none() {
                self.graph.set_label(self.old.graph().label(id));
                self.values[id.index()] = Some(self.value_of(id)?);
            }
        }
        let mut outputs = Vec::new();
        for &id in self.old.program.outputs() {
            let value = self.value(id)?;
            outputs.push(self.unmerged(value)?.node);
        }
        Ok(outputs)
    }

    /// Returns a node in a buffer of these sizes.
    pub(super) fn in_buffer(&mut self, node: NodeId, sizes: &[usize]) -> Result<NodeId> {
        let mut node = node;
        for (axis, &size) in sizes.iter().enumerate() {
            node = self.resized(node, axis, size)?;
        }
        Ok(node)
    }

    /// Returns the value of an old node.
    ///
    /// # Errors
    /// None: operands come before their users.
    pub(super) fn value(&self, old: NodeId) -> Result<Value> {
        let value = self.values[old.index()].clone();
        value.ok_or_else(|| self.refusal(old, "is used before it is computed"))
    }

    /// Returns why a node has no exact form for an axis that varies.
    pub(super) fn refusal(&self, old: NodeId, rule: &str) -> GraphError {
        let node = self.old.graph().node(old);
        let types = node.operands.iter().map(|&id| self.old.graph().ty(id).to_string()).collect::<Vec<_>>().join(", ");
        GraphError { op: node.op.mnemonic(), operands: types, rule: rule.into() }
    }

    /// Returns the size of a buffer for a true size.
    pub(super) fn capacity(&self, old: NodeId, size: &Size) -> Result<usize> {
        size.capacity(self.buckets).ok_or_else(|| self.refusal(old, "has a size that no buffer has"))
    }

    /// Returns the axes of a node's result, each in one part.
    pub(super) fn axes_of(&self, old: NodeId, result: usize) -> Result<Axes> {
        let sizes = self.old.dims(old, result);
        sizes.iter().map(|size| Ok(Axis::of(size, self.capacity(old, size)?))).collect()
    }

    /// Returns a number as a scalar `i32[]`.
    pub(super) fn scalar(&mut self, size: &Size) -> Result<NodeId> {
        if let Some(&known) = self.scalars.get(size) {
            return Ok(known);
        }
        let (scale, of, offset) = size.parts();
        let node = if size.is_fixed() {
            self.graph.scalar(DType::I32, offset)?
        } else {
            let mut product = self.graph.scalar(DType::I32, scale)?;
            for &index in of {
                let size = match &self.varying {
                    Varying::Given(nodes) => nodes[usize::from(index)],
                    Varying::Slots { first } => {
                        let index = first + u32::from(index);
                        self.graph.add(Op::Slot { index, dtype: DType::I32 }, &[])?
                    }
                };
                product = self.graph.binary(BinaryOp::Mul, product, size)?;
            }
            let offset = self.graph.scalar(DType::I32, offset)?;
            self.graph.binary(BinaryOp::Add, product, offset)?
        };
        self.scalars.insert(size.clone(), node);
        Ok(node)
    }

    /// Returns a number as `i32` of these dims.
    fn repeated(&mut self, size: &Size, dims: &[usize]) -> Result<NodeId> {
        let scalar = self.scalar(size)?;
        self.graph.broadcast_in_dim(scalar, dims, &[])
    }

    /// Returns which indices of an axis are true, as `bool` of these dims.
    pub(super) fn mask(&mut self, axis: &Axis, dims: &[usize], at: usize) -> Result<NodeId> {
        let along = [axis.capacity()];
        let places = self.graph.iota(DType::I32, &along, 0)?;
        let mut mask = None;
        for (number, factor) in axis.factors.iter().enumerate().filter(|(_, factor)| factor.varies()) {
            let inner = axis.factors[number + 1..].iter().map(|factor| factor.capacity).product::<usize>();
            let mut digit = places;
            if inner > 1 {
                digit = self.graph.binary_const(BinaryOp::Div, digit, inner as i64)?;
            }
            if number > 0 {
                digit = self.graph.binary_const(BinaryOp::Rem, digit, factor.capacity as i64)?;
            }
            let size = self.repeated(&factor.size, &along)?;
            let is_true = self.graph.compare(Direction::Lt, digit, size)?;
            mask = Some(match mask {
                None => is_true,
                Some(mask) => self.graph.binary(BinaryOp::And, mask, is_true)?,
            });
        }
        let mask = match mask {
            Some(mask) => mask,
            None => self.graph.splat(DType::Bool, &along, Number::Bool(true))?,
        };
        self.graph.broadcast_in_dim(mask, dims, &[at])
    }

    /// Returns a value whose padding along an axis is this number. What a view repeats is masked before it is repeated: there
    /// is less of it, and XLA then reads it once for a product.
    pub(super) fn masked(&mut self, value: &Value, axis: usize, bits: u64) -> Result<Value> {
        if !value.axes[axis].varies() {
            return Ok(value.clone());
        }
        let (mut source, mut views) = ((value.node, axis), Vec::new());
        while let Some(operand) = self.view_of(source) {
            views.push(source.0);
            source = operand;
        }
        if self.graph.ty(source.0).elements() == self.graph.ty(value.node).elements() {
            (source, views) = ((value.node, axis), Vec::new());
        }
        let ty = self.graph.ty(source.0);
        let (dtype, dims) = (ty.dtype, ty.dims.clone());
        let fill = self.graph.splat(dtype, &dims, Number::of_bits(bits, dtype))?;
        let mut filled = self.filled_node(source.0, (&value.axes[axis], source.1), fill)?;
        for view in views.into_iter().rev() {
            filled = self.graph.add(self.graph.node(view).op.clone(), &[filled])?;
        }
        Ok(not_uniform(value, axis, filled))
    }

    /// Returns the operand of a view, and its axis that is this axis of the result; `None` for another op, or if there is no
    /// such axis.
    fn view_of(&self, (node, axis): (NodeId, usize)) -> Option<(NodeId, usize)> {
        let (view, size) = (self.graph.node(node), self.graph.dims(node)[axis]);
        let operand = *view.operands.first()?;
        let dims = self.graph.dims(operand);
        let from = match &view.op {
            Op::BroadcastInDim { mapping, .. } => mapping.iter().position(|&to| to == axis)?,
            Op::Transpose { permutation } => permutation[axis],
            Op::Reshape { .. } => {
                let before = self.graph.dims(node)[..axis].iter().product::<usize>();
                (0..dims.len()).find(|&d| dims[d] == size && dims[..d].iter().product::<usize>() == before)?
            }
            _ => return None,
        };
        (dims[from] == size).then_some((operand, from))
    }

    /// Returns a value whose padding along an axis is that of another one.
    pub(super) fn filled(&mut self, value: &Value, axis: usize, fill: NodeId) -> Result<Value> {
        let node = self.filled_node(value.node, (&value.axes[axis], axis), fill)?;
        Ok(not_uniform(value, axis, node))
    }

    /// Returns a node whose padding along an axis at a dim is that of another one.
    fn filled_node(&mut self, node: NodeId, (axis, at): (&Axis, usize), fill: NodeId) -> Result<NodeId> {
        if !axis.varies() {
            return Ok(node);
        }
        let dims = self.graph.dims(node);
        let mask = self.mask(axis, &dims, at)?;
        self.graph.select(mask, node, fill)
    }

    /// Returns a node whose axis has this size: what is beyond it is cut off, and what is missing is padding.
    pub(super) fn resized(&mut self, node: NodeId, axis: usize, size: usize) -> Result<NodeId> {
        let dims = self.graph.dims(node);
        if dims[axis] >= size {
            return self.graph.slice_dim(node, axis, 0, size);
        }
        let (low, mut high, interior) = (vec![0; dims.len()], vec![0; dims.len()], vec![0; dims.len()]);
        high[axis] = (size - dims[axis]) as isize;
        let fill = self.graph.scalar(self.graph.dtype(node), Number::Int(0))?;
        self.graph.pad(node, fill, &low, &high, &interior)
    }

    /// Returns the part of a node's axis that begins at a scalar `i32[]` and has this size; what is beyond the end of the
    /// axis is padding.
    pub(super) fn taken(&mut self, node: NodeId, axis: usize, start: NodeId, size: usize) -> Result<NodeId> {
        let dims = self.graph.dims(node);
        let room = self.resized(node, axis, dims[axis] + size)?;
        self.part(room, axis, start, size)
    }

    /// Returns the part of a node's axis that begins at a scalar `i32[]` and has this size, for which there is room.
    pub(super) fn part(&mut self, node: NodeId, axis: usize, start: NodeId, size: usize) -> Result<NodeId> {
        let mut sizes = self.graph.dims(node);
        sizes[axis] = size;
        let starts = self.starts(node, axis, start)?;
        self.graph.dynamic_slice(node, &starts, &sizes)
    }

    /// Returns the starts of a part that begins at a scalar `i32[]` along an axis, and at 0 along all others.
    fn starts(&mut self, node: NodeId, axis: usize, start: NodeId) -> Result<Vec<NodeId>> {
        let zero = self.graph.scalar(DType::I32, Number::Int(0))?;
        Ok((0..self.graph.rank(node)).map(|d| if d == axis { start } else { zero }).collect())
    }

    /// Returns a node with another one written at a scalar `i32[]` along an axis; what does not fit is cut off.
    pub(super) fn placed(&mut self, node: NodeId, part: NodeId, axis: usize, start: NodeId) -> Result<NodeId> {
        let (size, more) = (self.graph.dims(node)[axis], self.graph.dims(part)[axis]);
        let room = self.resized(node, axis, size + more)?;
        let placed = self.written(room, part, axis, start)?;
        self.graph.slice_dim(placed, axis, 0, size)
    }

    /// Returns a node with another one, which fits, written at a scalar `i32[]` along an axis.
    pub(super) fn written(&mut self, node: NodeId, part: NodeId, axis: usize, start: NodeId) -> Result<NodeId> {
        let starts = self.starts(node, axis, start)?;
        self.graph.dynamic_update_slice(node, part, &starts)
    }

    /// Returns a static slice of one axis with a step.
    pub(super) fn stepped(&mut self, node: NodeId, axis: usize, range: (usize, usize), step: usize) -> Result<NodeId> {
        let (dims, rank) = (self.graph.dims(node), self.graph.rank(node));
        let (mut start, mut limit, mut stride) = (vec![0; rank], dims, vec![1; rank]);
        (start[axis], limit[axis], stride[axis]) = (range.0, range.1, step);
        self.graph.slice(node, &start, &limit, &stride)
    }

    /// Returns a value each of whose axes has one part.
    pub(super) fn unmerged(&mut self, value: Value) -> Result<Value> {
        let mut value = value;
        for axis in 0..value.axes.len() {
            value = self.unmerged_axis(value, axis)?;
        }
        Ok(value)
    }

    /// Returns a value whose axis has one part: its true indices come first.
    pub(super) fn unmerged_axis(&mut self, value: Value, axis: usize) -> Result<Value> {
        let of = &value.axes[axis];
        if of.factors.len() == 1 || !of.varies() {
            return Ok(value);
        }
        let mut size = Size::fixed(1);
        for factor in &of.factors {
            let product = size.times(&factor.size);
            size = product.ok_or_else(|| refused("merges sizes that have no product"))?;
        }
        let to: SmallVec<[Factor; 1]> = smallvec![Factor { size, capacity: of.capacity() }];
        if of.is_uniform {
            let mut axes = value.axes.clone();
            axes[axis].factors = to;
            return Ok(Value { axes, ..value });
        }
        let node = self.repacked(value.node, axis, &of.factors.clone(), &to)?;
        let mut axes = value.axes;
        axes[axis] = Axis { factors: to, is_uniform: false };
        Ok(Value { node, axes })
    }

    /// Returns an axis of parts `from` as one of parts `to`, both of the same true indices in row-major order.
    pub(super) fn repacked(&mut self, node: NodeId, axis: usize, from: &[Factor], to: &[Factor]) -> Result<NodeId> {
        let along = [to.iter().map(|factor| factor.capacity).product::<usize>()];
        if i32::try_from(along[0]).is_err() {
            return Err(refused("moves more elements than 32 bits count"));
        }
        let places = self.graph.iota(DType::I32, &along, 0)?;
        let (mut index, mut inner) = (None, along[0]);
        for (number, factor) in to.iter().enumerate() {
            inner /= factor.capacity.max(1);
            let mut digit = self.graph.binary_const(BinaryOp::Div, places, inner.max(1) as i64)?;
            if number > 0 {
                digit = self.graph.binary_const(BinaryOp::Rem, digit, factor.capacity.max(1) as i64)?;
            }
            index = Some(match index {
                None => digit,
                Some(outer) => {
                    let size = self.repeated(&factor.size, &along)?;
                    let outer = self.graph.binary(BinaryOp::Mul, outer, size)?;
                    self.graph.binary(BinaryOp::Add, outer, digit)?
                }
            });
        }
        let mut rest = index.unwrap_or(places);
        let (mut place, mut inner) = (None, 1);
        for (number, factor) in from.iter().enumerate().rev() {
            let digit = if number == 0 {
                rest
            } else {
                let size = self.repeated(&factor.size, &along)?;
                let one = self.graph.splat(DType::I32, &along, Number::Int(1))?;
                // Without elements there is no true index, and nothing may be divided by 0.
                let size = self.graph.binary(BinaryOp::Max, size, one)?;
                let digit = self.graph.binary(BinaryOp::Rem, rest, size)?;
                rest = self.graph.binary(BinaryOp::Div, rest, size)?;
                digit
            };
            let digit = self.graph.binary_const(BinaryOp::Mul, digit, inner as i64)?;
            place = Some(match place {
                None => digit,
                Some(place) => self.graph.binary(BinaryOp::Add, place, digit)?,
            });
            inner *= factor.capacity;
        }
        self.gathered(node, axis, place.unwrap_or(places))
    }

    /// Returns the indices `places`, `i32[size]`, of an axis.
    fn gathered(&mut self, node: NodeId, axis: usize, places: NodeId) -> Result<NodeId> {
        let attrs = GatherAttrs::slices_along(&self.graph.dims(node), axis, 1);
        self.graph.gather(node, places, attrs)
    }
}

/// Returns a value with another node, of which an axis is equal everywhere no longer if it varies.
fn not_uniform(value: &Value, axis: usize, node: NodeId) -> Value {
    let mut axes = value.axes.clone();
    axes[axis].is_uniform &= !axes[axis].varies();
    Value { node, axes }
}

fn refused(rule: &str) -> GraphError {
    GraphError { op: "graph.family", operands: String::new(), rule: rule.into() }
}

#[cfg(test)]
mod tests {
    use crate::family::{Family, Numbers};
    use crate::op::DotAttrs;
    use crate::{Builder, DType, Graph, Op, Program, TensorType};
    use std::sync::Arc;

    /// The weights `[2 * 3, n]` of 6 heads times the values `[2, n, 4]` of 2 heads, each of which 3 heads share.
    fn attention(n: usize) -> Arc<Program> {
        let mut g = Graph::new();
        let parameter = |index, dims: &[usize]| Op::Parameter { index, ty: TensorType::new(DType::F32, dims) };
        let weights = g.add(parameter(0, &[6, n]), &[]).unwrap();
        let values = g.add(parameter(1, &[2, n, 4]), &[]).unwrap();
        let shared = g.broadcast_in_dim(values, &[2, 3, n, 4], &[0, 2, 3]).unwrap();
        let shared = g.reshape(shared, &[6, n, 4]).unwrap();
        let product = DotAttrs::new([&[0], &[0]], [&[1], &[1]], DType::F32);
        let product = g.dot_general(weights, shared, product).unwrap();
        Program::canonical(&g, &[product]).map(|(program, _)| Arc::new(program)).unwrap()
    }

    #[test]
    fn what_is_repeated_is_masked_before() {
        let recordings = [3, 5, 8].map(attention).map(|program| {
            let numbers = Numbers::of(&program, &[]);
            (program, numbers)
        });
        let padded = Family::of(&recordings).expect("a family").padded(&[16], 0).unwrap();
        let nodes = padded.program.graph().nodes().iter().filter(|node| matches!(node.op, Op::Select));
        let mut masked: Vec<usize> = nodes.map(|node| node.ty.elements()).collect();
        masked.sort_unstable();
        assert_eq!(masked, [6 * 16, 2 * 16 * 4], "{}", padded.program);
    }
}
