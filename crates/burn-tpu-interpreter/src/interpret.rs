//! Runs nodes and programs.
//!
//! Owns: which function computes an op, what is widened before and rounded after it, and how long a value lives. What only
//! moves elements keeps their bits; subnormal numbers are zeros for the rest ([`subnormal`]).

use super::buffer::C64;
use super::convert::{bitcast, convert, iota, splat, widen};
use super::error::{HostError, Result};
use super::tensor::HostTensor;
use super::{
    binary, contract, convolution, elementwise, fft, index, movement, reduce, rng, sort, subnormal, unary, window,
};
use burn_tpu_graph::op::{ScatterMode, Trips};
use burn_tpu_graph::{DType, Graph, LiteralData, Node, NodeId, Op, Program, TensorType, use_counts};
use smallvec::{SmallVec, smallvec};

/// The results of a node. Most have one.
type Results = SmallVec<[HostTensor; 1]>;

/// The operands of a node. The list is used for one node after another: what an op takes by value, it takes out.
type Operands = Vec<HostTensor>;

/// Runs one node and returns all its results. `operands` are each operand's result 0, except for `get_result`: there
/// they are all results of its operand. They are taken, so that an op may write into a buffer that has no other owner.
fn eval_node(node: &Node, operands: &mut Operands) -> Result<Results> {
    check_count(&node.op, operands.len())?;
    let computes = operands.first().is_some_and(|x| subnormal::computes(&node.op, x.dtype()));
    if computes {
        operands.iter_mut().try_for_each(subnormal::flush)?;
    }
    let mut results = compute(node, operands)?;
    operands.clear();
    for (i, result) in results.iter_mut().enumerate() {
        if computes {
            subnormal::flush(result)?;
        }
        node.result_type(i).map_or(Ok(()), |ty| finish(ty, result))?;
    }
    Ok(results)
}

fn check_count(op: &Op, count: usize) -> Result<()> {
    let (least, most) = op.arity();
    let several = matches!(op, Op::GetResult { .. });
    if count >= least && (count <= most || several) { Ok(()) } else { Err(format!("got {count} operands").into()) }
}

/// Converts a result to its type in the graph: one that was computed in f32 is rounded here, once.
fn finish(ty: &TensorType, result: &mut HostTensor) -> Result<()> {
    if ty.dtype.is_half() && result.dtype() == ty.dtype.accumulator() {
        let is_flushed = result.is_flushed();
        *result = convert(result.clone(), ty.dtype)?;
        if is_flushed {
            // Rounding makes no number smaller than a normal one.
            result.set_flushed();
        }
    }
    if result.ty() == ty { Ok(()) } else { Err(format!("computed {} for {ty}", result.ty()).into()) }
}

/// Returns the operands, with 16-bit floats converted to f32.
fn widened(operands: &mut Operands) -> Result<&mut Operands> {
    for x in operands.iter_mut().filter(|x| x.dtype().is_half()) {
        *x = widen(x.clone())?;
    }
    Ok(operands)
}

fn one(operands: &mut Operands) -> Result<HostTensor> {
    operands.pop().ok_or_else(|| "takes an operand".into())
}

fn two(operands: &mut Operands) -> Result<[HostTensor; 2]> {
    let second = one(operands)?;
    Ok([one(operands)?, second])
}

fn three(operands: &mut Operands) -> Result<[HostTensor; 3]> {
    let third = one(operands)?;
    let [first, second] = two(operands)?;
    Ok([first, second, third])
}

/// Computes a node's results. The table of all ops, which is why it is long.
fn compute(node: &Node, operands: &mut Operands) -> Result<Results> {
    let dims = &node.ty.dims;
    let result = match &node.op {
        Op::Parameter { .. } | Op::Slot { .. } | Op::Offset { .. } => {
            return Err("has a value only inside a program".into());
        }
        Op::Constant(literal) => match &literal.data {
            LiteralData::Splat(bits) => splat(literal.ty.dtype, &literal.ty.dims, *bits),
            LiteralData::Dense(bytes) => HostTensor::from_bytes(literal.ty.clone(), bytes),
        },
        Op::Iota { ty, dim } => iota(ty.dtype, &ty.dims, *dim)?,
        Op::Unary(op) => {
            let x = one(widened(operands)?)?;
            unary::unary(*op, x)?
        }
        Op::Binary(op) => {
            let [lhs, rhs] = two(widened(operands)?)?;
            binary::binary(*op, lhs, rhs)?
        }
        Op::Compare(direction) => {
            let [lhs, rhs] = two(widened(operands)?)?;
            binary::compare(*direction, &lhs, &rhs)?
        }
        Op::IsFinite => {
            let x = one(widened(operands)?)?;
            unary::is_finite(&x)?
        }
        Op::Select => {
            let [predicate, on_true, on_false] = three(operands)?;
            elementwise::select(&predicate, &on_true, &on_false)?
        }
        Op::Clamp => {
            let [low, x, high] = three(widened(operands)?)?;
            binary::clamp(low, x, high)?
        }
        Op::Convert { dtype } => {
            let x = one(operands)?;
            convert(x, *dtype)?
        }
        Op::BitcastConvert { dtype } => {
            let x = one(operands)?;
            bitcast(&x, *dtype)
        }
        Op::BroadcastInDim { dims, mapping } => {
            let x = one(operands)?;
            movement::broadcast_in_dim(x, dims, mapping)
        }
        Op::Reshape { dims } => {
            let x = one(operands)?;
            movement::reshape(x, dims)?
        }
        Op::Transpose { permutation } => {
            let x = one(operands)?;
            movement::transpose(x, permutation)
        }
        Op::Reverse { dims } => {
            let x = one(operands)?;
            movement::reverse(x, dims)
        }
        Op::Slice(attrs) => {
            let x = one(operands)?;
            movement::own_part(movement::static_slice(x, attrs))?
        }
        Op::Pad(attrs) => {
            let [x, value] = two(operands)?;
            movement::pad(x, &value, attrs, dims)?
        }
        Op::Concatenate { dim } => movement::concatenate(operands, *dim, dims)?,
        Op::DynamicSlice { sizes } => {
            let starts = operands.split_off(1);
            let x = one(operands)?;
            index::dynamic_slice(x, &starts, sizes)?
        }
        Op::DynamicUpdateSlice => {
            let starts = operands.split_off(2);
            let [x, update] = two(operands)?;
            index::dynamic_update_slice(x, &update, &starts)?
        }
        Op::DotGeneral(attrs) => {
            let [lhs, rhs] = two(operands)?;
            contract::dot_general(lhs, rhs, attrs, dims)?
        }
        Op::Convolution(attrs) => {
            let [x, kernel] = two(operands)?;
            convolution::convolution(x, kernel, attrs, dims)?
        }
        Op::Reduce { combine, dims: reduced } => {
            let x = one(widened(operands)?)?;
            reduce::reduce(&x, *combine, reduced, dims)?
        }
        Op::ArgReduce { max, dim } => {
            let [x, indices] = two(widened(operands)?)?;
            return Ok(reduce::arg_reduce(&x, &indices, *max, *dim)?.into_iter().collect());
        }
        Op::ReduceWindow { combine, window } => {
            let x = one(widened(operands)?)?;
            window::reduce_window(&x, *combine, window, dims)?
        }
        Op::SelectAndScatter { window } => {
            let [x, source] = two(widened(operands)?)?;
            window::select_and_scatter(&x, &source, window)?
        }
        Op::Sort { dim, descending } => return Ok(sort::sort(operands, *dim, *descending)?.into()),
        Op::TopK { k } => {
            let x = one(widened(operands)?)?;
            return Ok(sort::top_k(&x, *k)?.into_iter().collect());
        }
        Op::Gather(attrs) => {
            let [x, indices] = two(operands)?;
            index::gather(&x, &indices, attrs, dims)?
        }
        Op::Scatter(attrs) => {
            let [x, indices, updates] = match attrs.mode {
                ScatterMode::Assign => three(operands)?,
                ScatterMode::Combine(_) => three(widened(operands)?)?,
            };
            index::scatter(x, &indices, &updates, attrs)?
        }
        Op::RngBitGenerator { ty } => {
            let state = one(operands)?;
            return Ok(rng::rng_bit_generator(&state, ty)?.into_iter().collect());
        }
        Op::Fft { kind, length } => {
            let x = one(operands)?;
            fft::fft(&x, *kind, *length)?
        }
        Op::Complex => {
            let [re, im] = two(operands)?;
            elementwise::complex(&re, &im)?
        }
        Op::Real => {
            let x = one(operands)?;
            elementwise::map(&x, |v: C64| v.re)?
        }
        Op::Imag => {
            let x = one(operands)?;
            elementwise::map(&x, |v: C64| v.im)?
        }
        Op::OptimizationBarrier | Op::ShardingConstraint(_) | Op::MoveTo(_) => one(operands)?,
        Op::For { trips, body } => return Ok(for_loop(*trips, body, std::mem::take(operands))?.into()),
        Op::CustomCall(call) => return Ok(inner(call.plain(), std::mem::take(operands))?.into()),
        Op::GetResult { index } => {
            let result = operands.drain(..).nth(*index);
            result.ok_or_else(|| format!("there is no result {index}"))?
        }
    };
    Ok(smallvec![result])
}

/// Every trip owns its carries, so that a body writes into them.
fn for_loop(trips: Trips, body: &Program, mut carries: Vec<HostTensor>) -> Result<Vec<HostTensor>> {
    let count = match trips {
        Trips::Exactly(trips) => trips,
        Trips::AtMost(most) => trip_count(carries.pop())?.min(most),
    };
    for trip in 0..count {
        carries.push(splat(DType::I32, &[], trip as u64));
        carries = inner(body, carries)?;
    }
    Ok(carries)
}

/// Returns the trip count that a loop's last operand has.
fn trip_count(operand: Option<HostTensor>) -> Result<usize> {
    let count = operand.map(|count| index::integer(&count)).transpose()?;
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
}

/// Runs the program in a node. It owns its operands.
fn inner(program: &Program, operands: Vec<HostTensor>) -> Result<Vec<HostTensor>> {
    let mut parameters: Vec<_> = operands.into_iter().map(Some).collect();
    let take = |index: u32| parameters.get_mut(index as usize)?.take();
    Ok(interpret(program, take, &[]).map_err(|error| error.to_string())?)
}

/// Runs a program on the parameters that `take` returns by their index; `slots[index]` are the bits of each run-time
/// scalar. Every value is dropped after its last use; a value without other owners is overwritten by its last user.
///
/// # Errors
/// A parameter or a slot has no value, or a node cannot be computed.
pub fn interpret(
    program: &Program,
    take: impl FnMut(u32) -> Option<HostTensor>,
    slots: &[u64],
) -> std::result::Result<Vec<HostTensor>, HostError> {
    interpret_graph(program.graph(), program.outputs(), take, slots)
}

/// [`interpret`] of a graph. All its nodes are computed, also those that no output needs.
///
/// # Errors
/// Those of [`interpret`].
pub fn interpret_graph(
    graph: &Graph,
    outputs: &[NodeId],
    mut take: impl FnMut(u32) -> Option<HostTensor>,
    slots: &[u64],
) -> std::result::Result<Vec<HostTensor>, HostError> {
    let values = std::iter::repeat_with(Results::new).take(graph.len()).collect();
    let mut run = Run { values, uses: use_counts(graph, outputs) };
    let mut operands = Operands::new();
    for (i, node) in graph.nodes().iter().enumerate() {
        run.values[i] = if let Op::Parameter { index, ref ty } = node.op {
            let value = take(index).ok_or_else(|| format!("parameter {index} has no value").into());
            let value = value.and_then(|mut value| finish(ty, &mut value).map(|()| smallvec![value]));
            value.map_err(|reason| HostError::new(&node.op, [], reason))?
        } else if let Op::Slot { index, dtype } | Op::Offset { index, dtype } = node.op {
            let bits = slots.get(index as usize).ok_or_else(|| format!("slot {index} has no value").into());
            smallvec![splat(dtype, &[], *bits.map_err(|reason| HostError::new(&node.op, [], reason))?)]
        } else {
            let types = || node.operands.iter().map(|&operand| graph.ty(operand));
            run.operands(node, &mut operands);
            eval_node(node, &mut operands).map_err(|reason| HostError::new(&node.op, types(), reason))?
        };
    }
    outputs.iter().map(|&output| run.output(graph, output)).collect()
}

/// The values of a program that is running.
struct Run {
    /// The results of each computed node that will still be read.
    values: Vec<Results>,
    /// The number of remaining reads of each node.
    uses: Vec<u32>,
}

impl Run {
    fn operands(&mut self, node: &Node, operands: &mut Operands) {
        match node.op {
            Op::GetResult { .. } => operands.extend(node.operands.iter().flat_map(|&id| self.read(id))),
            _ => operands.extend(node.operands.iter().filter_map(|&id| self.read_first(id))),
        }
    }

    /// Returns whether this read of a node is the last one, after which its reader owns the results.
    fn is_last_read(&mut self, id: NodeId) -> bool {
        let uses = &mut self.uses[id.index()];
        *uses = uses.saturating_sub(1);
        *uses == 0
    }

    /// Returns all results of a node.
    fn read(&mut self, id: NodeId) -> Results {
        if self.is_last_read(id) {
            std::mem::take(&mut self.values[id.index()])
        } else {
            self.values[id.index()].clone()
        }
    }

    /// Returns the first result of a node.
    fn read_first(&mut self, id: NodeId) -> Option<HostTensor> {
        if self.is_last_read(id) {
            let results = &mut self.values[id.index()];
            results.truncate(1);
            results.pop()
        } else {
            self.values[id.index()].first().cloned()
        }
    }

    /// Returns a result of the program, which keeps only its own elements alive.
    fn output(&mut self, graph: &Graph, id: NodeId) -> std::result::Result<HostTensor, HostError> {
        let value = self.read_first(id).ok_or_else(|| "was not computed".into());
        let kept = value.and_then(|x| if x.is_small_part() { x.into_dense() } else { Ok(x) });
        kept.map_err(|reason| HostError::new(&graph.node(id).op, [graph.ty(id)], reason))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Trial, tensor, values};
    use super::*;
    use burn_tpu_graph::Number;
    use burn_tpu_graph::op::BinaryOp;
    use burn_tpu_graph::{Builder, TensorType};

    #[test]
    fn a_parameter_without_other_owners_is_overwritten() {
        let mut graph = Graph::new();
        let ty = TensorType::new(DType::F32, [2]);
        let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
        let y = graph.binary(BinaryOp::Add, x, x).unwrap();
        let z = graph.binary_const(BinaryOp::Mul, y, 3.0).unwrap();
        let program = Program::extract(&graph, &[z]).unwrap();
        let own = tensor(&[2], &[1f32, 2.]);
        let (kept, place) = (own.clone(), own.view::<f32>().unwrap().data.as_ptr());
        let mut own = Some(own);
        let shared = interpret(&program, |_| own.take(), &[]).unwrap();
        assert_ne!(shared[0].view::<f32>().unwrap().data.as_ptr(), place);
        assert_eq!(values::<f32>(&kept), [1., 2.]);
        let twice = graph.binary_const(BinaryOp::Mul, x, 2.0).unwrap();
        let program = Program::extract(&graph, &[twice]).unwrap();
        let mut kept = Some(kept);
        let owned = interpret(&program, |_| kept.take(), &[]).unwrap();
        assert_eq!(owned[0].view::<f32>().unwrap().data.as_ptr(), place);
    }

    #[test]
    fn slots_have_the_bits_that_are_passed() {
        let mut graph = Graph::new();
        let slot = graph.add(Op::Slot { index: 1, dtype: DType::BF16 }, &[]).unwrap();
        let program = Program::extract(&graph, &[slot]).unwrap();
        let bits = [0, Number::Float(-2.5).bits(DType::BF16)];
        let found = interpret(&program, |_| None, &bits).unwrap();
        assert_eq!(values::<half::bf16>(&found[0]), [half::bf16::from_f32(-2.5)]);
    }

    #[test]
    fn the_error_of_a_missing_value_names_the_op() {
        let mut graph = Graph::new();
        let ty = TensorType::new(DType::F32, [2]);
        let x = graph.add(Op::Parameter { index: 4, ty }, &[]).unwrap();
        let slot = graph.add(Op::Slot { index: 2, dtype: DType::F32 }, &[]).unwrap();
        for output in [x, slot] {
            let program = Program::extract(&graph, &[output]).unwrap();
            let error = interpret(&program, |_| None, &[]).unwrap_err().to_string();
            assert!(error.contains("has no value"), "{error}");
        }
    }

    #[test]
    fn an_output_keeps_only_its_own_elements() {
        let mut t = Trial::default();
        let x = t.counted(&[1000]);
        let first = t.graph.slice_dim(x, 0, 10, 12).unwrap();
        let found = t.run(&[first, first]);
        assert_eq!(values::<f32>(&found[1]), [10., 11.]);
        assert_eq!(found[0].view::<f32>().unwrap().data.len(), 2);
    }

    /// The gradient of what is assigned to a slice: a part is read, then overwritten.
    #[test]
    fn a_buffer_whose_parts_were_read_is_written_in_place() {
        let mut graph = Graph::new();
        let parameter = |index, size| Op::Parameter { index, ty: TensorType::new(DType::F32, [size]) };
        let x = graph.add(parameter(0, 8), &[]).unwrap();
        let zeros = graph.add(parameter(1, 2), &[]).unwrap();
        let part = graph.slice_dim(x, 0, 2, 4).unwrap();
        let start = graph.splat(DType::I32, &[], 2).unwrap();
        let rest = graph.add(Op::DynamicUpdateSlice, &[x, zeros, start]).unwrap();
        let program = Program::extract(&graph, &[part, rest]).unwrap();
        let given = tensor(&[8], &[0f32, 1., 2., 3., 4., 5., 6., 7.]);
        let place = given.view::<f32>().unwrap().data.as_ptr();
        let mut given = [Some(given), Some(tensor(&[2], &[0f32; 2]))];
        let found = interpret(&program, |index| given[index as usize].take(), &[]).unwrap();
        assert_eq!(values::<f32>(&found[0]), [2., 3.]);
        assert_eq!(values::<f32>(&found[1]), [0., 1., 0., 0., 4., 5., 6., 7.]);
        assert_eq!(found[1].view::<f32>().unwrap().data.as_ptr(), place, "it was copied");
    }

    #[test]
    fn constants_of_both_forms_are_read() {
        let mut t = Trial::default();
        let ty = TensorType::new(DType::I16, [2]);
        let dense = t.graph.constant(burn_tpu_graph::Literal::dense(ty, [1, 0, 2, 1])).unwrap();
        let splat = t.graph.splat(DType::Bool, &[2], true).unwrap();
        let found = t.run(&[dense, splat]);
        assert_eq!(values::<i16>(&found[0]), [1, 258]);
        assert_eq!(values::<bool>(&found[1]), [true, true]);
    }
}
