//! The builder trait: one checked method per op of the table, and the few compositions that every framework op needs.
//!
//! Whatever can take a node implements [`Builder`]: a [`Graph`] adds it; a recorder may compare it with an earlier
//! recording first. A method that would change nothing (a reshape to the same dims, a conversion to the same type)
//! returns its operand.

use crate::error::{GraphError, Result};
use crate::op::*;
use crate::{
    CustomCall, DType, Dims, Graph, Label, Literal, LiteralData, Node, NodeId, Number, Program, Sharding, TensorType,
};
use std::sync::Arc;

/// Adds nodes to a graph, each checked against its op's rule.
///
/// Every method that adds a node returns an error that names the op, the operand types and the broken rule.
pub trait Builder {
    /// Adds a node after checking its operands against the op's rule.
    ///
    /// # Errors
    /// Names the op, the operand types and the broken rule.
    fn add(&mut self, op: Op, operands: &[NodeId]) -> Result<NodeId>;

    /// The nodes so far, in recording order.
    fn nodes(&self) -> &[Node];

    /// The label that the next node gets.
    fn current_label(&self) -> Label;

    /// One node.
    ///
    /// # Panics
    /// If the id is not of this graph.
    fn node(&self, id: NodeId) -> &Node {
        &self.nodes()[id.index()]
    }

    /// The type of a node's result 0.
    ///
    /// # Panics
    /// If the id is not of this graph.
    fn ty(&self, id: NodeId) -> &TensorType {
        &self.node(id).ty
    }

    /// The element type of a node.
    fn dtype(&self, id: NodeId) -> DType {
        self.ty(id).dtype
    }

    /// The dims of a node.
    fn dims(&self, id: NodeId) -> Dims {
        Dims::from_slice(&self.ty(id).dims)
    }

    /// The number of dims of a node.
    fn rank(&self, id: NodeId) -> usize {
        self.ty(id).dims.len()
    }

    /// A constant that is part of the program.
    fn constant(&mut self, literal: Literal) -> Result<NodeId> {
        self.add(Op::Constant(literal), &[])
    }

    /// A rank-0 constant that is part of the program. Numbers that may change from step to step are slots instead.
    fn scalar(&mut self, dtype: DType, value: impl Into<Number>) -> Result<NodeId> {
        self.constant(Literal::scalar(dtype, value))
    }

    /// A constant of one repeated value.
    fn splat(&mut self, dtype: DType, dims: &[usize], value: impl Into<Number>) -> Result<NodeId> {
        let data = LiteralData::Splat(value.into().bits(dtype));
        self.constant(Literal { ty: TensorType::new(dtype, dims), data })
    }

    /// A constant of one repeated value with the type of `like`.
    fn splat_like(&mut self, like: NodeId, value: impl Into<Number>) -> Result<NodeId> {
        let ty = self.ty(like).clone();
        self.splat(ty.dtype, &ty.dims, value)
    }

    /// 0, 1, 2, … along `dim`.
    fn iota(&mut self, dtype: DType, dims: &[usize], dim: usize) -> Result<NodeId> {
        self.add(Op::Iota { ty: TensorType::new(dtype, dims), dim }, &[])
    }

    /// An element-wise op of one operand.
    fn unary(&mut self, op: UnaryOp, x: NodeId) -> Result<NodeId> {
        self.add(Op::Unary(op), &[x])
    }

    /// An element-wise op of two operands of one rank and type; size-1 dims are broadcast first.
    fn binary(&mut self, op: BinaryOp, lhs: NodeId, rhs: NodeId) -> Result<NodeId> {
        let (lhs, rhs) = self.broadcast_pair(lhs, rhs)?;
        self.add(Op::Binary(op), &[lhs, rhs])
    }

    /// An element-wise op with a constant of the operand's type on the right.
    fn binary_const(&mut self, op: BinaryOp, lhs: NodeId, rhs: impl Into<Number>) -> Result<NodeId> {
        let rhs = self.splat_like(lhs, rhs)?;
        self.add(Op::Binary(op), &[lhs, rhs])
    }

    /// An element-wise comparison; size-1 dims are broadcast first, a rank-0 side to the other's dims.
    fn compare(&mut self, direction: Direction, lhs: NodeId, rhs: NodeId) -> Result<NodeId> {
        let (lhs, rhs) = self.broadcast_pair(lhs, rhs)?;
        self.add(Op::Compare(direction), &[lhs, rhs])
    }

    /// A comparison with a constant of the operand's type.
    fn compare_const(&mut self, direction: Direction, lhs: NodeId, rhs: impl Into<Number>) -> Result<NodeId> {
        let rhs = self.splat_like(lhs, rhs)?;
        self.add(Op::Compare(direction), &[lhs, rhs])
    }

    /// Whether each float element is neither infinite nor NaN.
    fn is_finite(&mut self, x: NodeId) -> Result<NodeId> {
        self.add(Op::IsFinite, &[x])
    }

    /// `on_true` where the predicate holds, else `on_false`; all three broadcast to common dims.
    fn select(&mut self, predicate: NodeId, on_true: NodeId, on_false: NodeId) -> Result<NodeId> {
        let (on_true, on_false) = self.broadcast_pair(on_true, on_false)?;
        let (predicate, on_true) = self.broadcast_pair(predicate, on_true)?;
        let on_false = self.broadcast_to(on_false, &self.dims(on_true))?;
        self.add(Op::Select, &[predicate, on_true, on_false])
    }

    /// min(max(x, low), high), no low above its high; bounds broadcast to the operand.
    fn clamp(&mut self, low: NodeId, x: NodeId, high: NodeId) -> Result<NodeId> {
        let dims = self.dims(x);
        let low = self.broadcast_to(low, &dims)?;
        let high = self.broadcast_to(high, &dims)?;
        self.add(Op::Clamp, &[low, x, high])
    }

    /// Conversion of values to another element type.
    fn convert(&mut self, x: NodeId, dtype: DType) -> Result<NodeId> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        self.add(Op::Convert { dtype }, &[x])
    }

    /// Reinterpretation of the bits as another element type of the same width.
    fn bitcast_convert(&mut self, x: NodeId, dtype: DType) -> Result<NodeId> {
        if self.dtype(x) == dtype {
            return Ok(x);
        }
        self.add(Op::BitcastConvert { dtype }, &[x])
    }

    /// Places operand dim `i` at result dim `mapping[i]` and repeats along all others.
    fn broadcast_in_dim(&mut self, x: NodeId, dims: &[usize], mapping: &[usize]) -> Result<NodeId> {
        if self.ty(x).dims[..] == *dims && mapping.iter().copied().eq(0..dims.len()) {
            return Ok(x);
        }
        let op = Op::BroadcastInDim { dims: Dims::from_slice(dims), mapping: Dims::from_slice(mapping) };
        self.add(op, &[x])
    }

    /// Repeats size-1 dims up to `dims`; leading dims are added when the operand has fewer (a scalar fits anything).
    fn broadcast_to(&mut self, x: NodeId, dims: &[usize]) -> Result<NodeId> {
        let own = &self.ty(x).dims;
        if own[..] == *dims {
            return Ok(x);
        }
        let missing = dims.len().saturating_sub(own.len());
        let mapping = if own.is_empty() { Dims::new() } else { (missing..missing + own.len()).collect() };
        self.add(Op::BroadcastInDim { dims: Dims::from_slice(dims), mapping }, &[x])
    }

    /// Repeats a value up to the dims of another one; see [`Builder::broadcast_to`].
    fn broadcast_like(&mut self, x: NodeId, like: NodeId) -> Result<NodeId> {
        self.broadcast_to(x, &self.dims(like))
    }

    /// Broadcasts two operands to their common dims: sizes 1 repeat, and missing leading dims are added.
    fn broadcast_pair(&mut self, lhs: NodeId, rhs: NodeId) -> Result<(NodeId, NodeId)> {
        if self.ty(lhs).dims == self.ty(rhs).dims {
            return Ok((lhs, rhs));
        }
        let Some(dims) = common_dims(&self.ty(lhs).dims, &self.ty(rhs).dims) else {
            let types = [self.ty(lhs), self.ty(rhs)];
            return Err(GraphError::new("graph.broadcast", &types, "dims must be equal or 1"));
        };
        Ok((self.broadcast_to(lhs, &dims)?, self.broadcast_to(rhs, &dims)?))
    }

    /// The same elements in row-major order under other dims.
    fn reshape(&mut self, x: NodeId, dims: &[usize]) -> Result<NodeId> {
        if self.ty(x).dims[..] == *dims {
            return Ok(x);
        }
        self.add(Op::Reshape { dims: Dims::from_slice(dims) }, &[x])
    }

    /// Result dim `i` is operand dim `permutation[i]`.
    fn transpose(&mut self, x: NodeId, permutation: &[usize]) -> Result<NodeId> {
        if permutation.iter().copied().eq(0..self.rank(x)) {
            return Ok(x);
        }
        self.add(Op::Transpose { permutation: Dims::from_slice(permutation) }, &[x])
    }

    /// Reverses the order along `dims`.
    fn reverse(&mut self, x: NodeId, dims: &[usize]) -> Result<NodeId> {
        if dims.is_empty() {
            return Ok(x);
        }
        self.add(Op::Reverse { dims: Dims::from_slice(dims) }, &[x])
    }

    /// A static slice `[start, limit)` with a step of at least 1, per dim.
    fn slice(&mut self, x: NodeId, start: &[usize], limit: &[usize], stride: &[usize]) -> Result<NodeId> {
        let whole = start.iter().all(|&s| s == 0) && self.ty(x).dims[..] == *limit && stride.iter().all(|&s| s == 1);
        if whole {
            return Ok(x);
        }
        let attrs = SliceAttrs {
            start: Dims::from_slice(start),
            limit: Dims::from_slice(limit),
            stride: Dims::from_slice(stride),
        };
        self.add(Op::Slice(Box::new(attrs)), &[x])
    }

    /// A static slice of one dim with step 1, all others whole.
    fn slice_dim(&mut self, x: NodeId, dim: usize, start: usize, limit: usize) -> Result<NodeId> {
        let mut limits = self.dims(x);
        let mut starts = Dims::from_elem(0, limits.len());
        let strides = Dims::from_elem(1, limits.len());
        if let (Some(s), Some(l)) = (starts.get_mut(dim), limits.get_mut(dim)) {
            *s = start;
            *l = limit;
        }
        self.slice(x, &starts, &limits, &strides)
    }

    /// Pads with `value` (rank 0): elements before, after and between, per dim. Negative edges crop.
    fn pad(&mut self, x: NodeId, value: NodeId, low: &[isize], high: &[isize], interior: &[usize]) -> Result<NodeId> {
        let nothing = low.iter().chain(high).all(|&p| p == 0) && interior.iter().all(|&p| p == 0);
        if nothing {
            return Ok(x);
        }
        let attrs = PadAttrs { low: low.into(), high: high.into(), interior: Dims::from_slice(interior) };
        self.add(Op::Pad(Box::new(attrs)), &[x, value])
    }

    /// Operands in order along `dim`.
    fn concatenate(&mut self, operands: &[NodeId], dim: usize) -> Result<NodeId> {
        if let [single] = operands {
            return Ok(*single);
        }
        self.add(Op::Concatenate { dim }, operands)
    }

    /// A slice of static sizes at starts known at run time (rank-0 integers, one per dim).
    fn dynamic_slice(&mut self, x: NodeId, starts: &[NodeId], sizes: &[usize]) -> Result<NodeId> {
        let operands: Vec<_> = std::iter::once(x).chain(starts.iter().copied()).collect();
        self.add(Op::DynamicSlice { sizes: Dims::from_slice(sizes) }, &operands)
    }

    /// Writes `update` at starts known at run time (rank-0 integers, one per dim).
    fn dynamic_update_slice(&mut self, x: NodeId, update: NodeId, starts: &[NodeId]) -> Result<NodeId> {
        let operands: Vec<_> = [x, update].into_iter().chain(starts.iter().copied()).collect();
        self.add(Op::DynamicUpdateSlice, &operands)
    }

    /// A contraction.
    fn dot_general(&mut self, lhs: NodeId, rhs: NodeId, attrs: DotAttrs) -> Result<NodeId> {
        self.add(Op::DotGeneral(Box::new(attrs)), &[lhs, rhs])
    }

    /// A convolution.
    fn convolution(&mut self, input: NodeId, kernel: NodeId, attrs: ConvAttrs) -> Result<NodeId> {
        self.add(Op::Convolution(Box::new(attrs)), &[input, kernel])
    }

    /// Combines all elements along `dims`, which disappear. 16-bit floats stay 16-bit here: see [`Builder::accumulate`].
    fn reduce(&mut self, combine: Combine, x: NodeId, dims: &[usize]) -> Result<NodeId> {
        if dims.is_empty() {
            return Ok(x);
        }
        self.add(Op::Reduce { combine, dims: Dims::from_slice(dims) }, &[x])
    }

    /// A reduction whose sums and products of 16-bit floats run in f32 and round once at the end.
    fn accumulate(&mut self, combine: Combine, x: NodeId, dims: &[usize]) -> Result<NodeId> {
        let dtype = self.dtype(x);
        let exact = !matches!(combine, Combine::Sum | Combine::Prod);
        let wide = self.convert(x, if exact { dtype } else { dtype.accumulator() })?;
        let reduced = self.reduce(combine, wide, dims)?;
        self.convert(reduced, dtype)
    }

    /// [`Builder::accumulate`] over one dim, which stays with size 1.
    fn accumulate_keepdim(&mut self, combine: Combine, x: NodeId, dim: usize) -> Result<NodeId> {
        let mut dims = self.dims(x);
        let reduced = self.accumulate(combine, x, &[dim])?;
        dims[dim] = 1;
        self.reshape(reduced, &dims)
    }

    /// The extreme value along `dim` (which disappears) and the lowest of the `indices` at which it occurs.
    fn arg_reduce(&mut self, max: bool, x: NodeId, indices: NodeId, dim: usize) -> Result<(NodeId, NodeId)> {
        let value = self.add(Op::ArgReduce { max, dim }, &[x, indices])?;
        Ok((value, self.get_result(value, 1)?))
    }

    /// Combines the elements under a moving window.
    fn reduce_window(&mut self, combine: Combine, x: NodeId, window: WindowAttrs) -> Result<NodeId> {
        self.add(Op::ReduceWindow { combine, window: Box::new(window) }, &[x])
    }

    /// Adds each source element at the position of its window's largest operand element.
    fn select_and_scatter(&mut self, x: NodeId, source: NodeId, window: WindowAttrs) -> Result<NodeId> {
        self.add(Op::SelectAndScatter { window: Box::new(window) }, &[x, source])
    }

    /// Sorts all operands along `dim` by the first one, stably. One result per operand, in order.
    fn sort(&mut self, operands: &[NodeId], dim: usize, descending: bool) -> Result<Vec<NodeId>> {
        let first = self.add(Op::Sort { dim, descending }, operands)?;
        (0..operands.len()).map(|i| self.get_result(first, i)).collect()
    }

    /// The `k` largest elements along the last dim, largest first, and their places there (`i32`).
    fn top_k(&mut self, x: NodeId, k: usize) -> Result<(NodeId, NodeId)> {
        let values = self.add(Op::TopK { k }, &[x])?;
        Ok((values, self.get_result(values, 1)?))
    }

    /// A gather, in StableHLO's terms.
    fn gather(&mut self, x: NodeId, indices: NodeId, attrs: GatherAttrs) -> Result<NodeId> {
        self.add(Op::Gather(Box::new(attrs)), &[x, indices])
    }

    /// A scatter, in StableHLO's terms.
    fn scatter(&mut self, x: NodeId, indices: NodeId, updates: NodeId, attrs: ScatterAttrs) -> Result<NodeId> {
        self.add(Op::Scatter(Box::new(attrs)), &[x, indices, updates])
    }

    /// Next state and uniformly random bits (`ui32` or `ui64`) from a Threefry state `ui64[2]`.
    fn rng_bit_generator(&mut self, state: NodeId, dtype: DType, dims: &[usize]) -> Result<(NodeId, NodeId)> {
        let next = self.add(Op::RngBitGenerator { ty: TensorType::new(dtype, dims) }, &[state])?;
        Ok((next, self.get_result(next, 1)?))
    }

    /// A Fourier transform over the last dim; `length` is that of the time-domain signal.
    fn fft(&mut self, x: NodeId, kind: FftKind, length: usize) -> Result<NodeId> {
        self.add(Op::Fft { kind, length }, &[x])
    }

    /// A complex value from real and imaginary part.
    fn complex(&mut self, real: NodeId, imag: NodeId) -> Result<NodeId> {
        self.add(Op::Complex, &[real, imag])
    }

    /// The real part of a complex value.
    fn real(&mut self, x: NodeId) -> Result<NodeId> {
        self.add(Op::Real, &[x])
    }

    /// The imaginary part of a complex value.
    fn imag(&mut self, x: NodeId) -> Result<NodeId> {
        self.add(Op::Imag, &[x])
    }

    /// Keeps XLA from merging what comes before with what comes after.
    fn optimization_barrier(&mut self, x: NodeId) -> Result<NodeId> {
        self.add(Op::OptimizationBarrier, &[x])
    }

    /// Splits a value over the axes of the program's mesh.
    fn sharding_constraint(&mut self, x: NodeId, sharding: Sharding) -> Result<NodeId> {
        self.add(Op::ShardingConstraint(sharding), &[x])
    }

    /// Moves a value to a memory.
    fn move_to(&mut self, x: NodeId, memory: MemorySpace) -> Result<NodeId> {
        self.add(Op::MoveTo(memory), &[x])
    }

    /// Runs a body `trips` times and returns the carries after the last trip. `body` records one trip: it takes the trip's
    /// number (`i32[]`, from 0) and the carries, and returns the carries of the next trip, as many and of the same types.
    /// Whatever else it reads of this graph must be a carry too.
    fn for_loop<const N: usize>(
        &mut self,
        trips: usize,
        carries: [NodeId; N],
        body: impl FnOnce(&mut Graph, NodeId, [NodeId; N]) -> Result<[NodeId; N]>,
    ) -> Result<[NodeId; N]> {
        self.looped(Trips::Exactly(trips), None, carries, body)
    }

    /// Runs a body as often as a scalar `i32[]` says, and at most `most` times. See [`Builder::for_loop`].
    fn for_loop_at_most<const N: usize>(
        &mut self,
        (count, most): (NodeId, usize),
        carries: [NodeId; N],
        body: impl FnOnce(&mut Graph, NodeId, [NodeId; N]) -> Result<[NodeId; N]>,
    ) -> Result<[NodeId; N]> {
        self.looped(Trips::AtMost(most), Some(count), carries, body)
    }

    /// The loop of [`Builder::for_loop`] and [`Builder::for_loop_at_most`].
    #[doc(hidden)]
    fn looped<const N: usize>(
        &mut self,
        trips: Trips,
        count: Option<NodeId>,
        carries: [NodeId; N],
        body: impl FnOnce(&mut Graph, NodeId, [NodeId; N]) -> Result<[NodeId; N]>,
    ) -> Result<[NodeId; N]> {
        let mut inner = Graph::new();
        inner.set_label(self.current_label());
        let mut given = [NodeId(0); N];
        for (index, (slot, carry)) in given.iter_mut().zip(carries).enumerate() {
            *slot = inner.add(Op::Parameter { index: index as u32, ty: self.ty(carry).clone() }, &[])?;
        }
        let counter = inner.add(Op::Parameter { index: N as u32, ty: TensorType::scalar(DType::I32) }, &[])?;
        let left = body(&mut inner, counter, given)?;
        let body = Arc::new(Program::extract(&inner, &left)?);
        let operands: Vec<NodeId> = carries.into_iter().chain(count).collect();
        let last = self.loop_of(trips, body, &operands)?;
        let mut results = [NodeId(0); N];
        results.copy_from_slice(&last);
        Ok(results)
    }

    /// A loop whose body is a program, with its results in order: as many as it has carries.
    fn loop_of(&mut self, trips: Trips, body: Arc<Program>, operands: &[NodeId]) -> Result<Vec<NodeId>> {
        let carries = trips.split(operands).0.len();
        let last = self.add(Op::For { trips, body }, operands)?;
        (0..carries).map(|index| self.get_result(last, index)).collect()
    }

    /// A custom call, with its results in order.
    fn custom_call(&mut self, call: Arc<CustomCall>, operands: &[NodeId]) -> Result<Vec<NodeId>> {
        let results = call.form().results().len();
        let first = self.add(Op::CustomCall(call), operands)?;
        (0..results).map(|index| self.get_result(first, index)).collect()
    }

    /// Result `index` of a node of several results.
    fn get_result(&mut self, x: NodeId, index: usize) -> Result<NodeId> {
        if index == 0 {
            return Ok(x);
        }
        self.add(Op::GetResult { index }, &[x])
    }
}

/// Returns the dims that two operands broadcast to, if they do.
fn common_dims(lhs: &[usize], rhs: &[usize]) -> Option<Dims> {
    let rank = lhs.len().max(rhs.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |k| dims[k]);
    (0..rank)
        .map(|i| match (at(lhs, i), at(rhs, i)) {
            (1, size) | (size, 1) => Some(size),
            (l, r) => (l == r).then_some(l),
        })
        .collect()
}
