//! Lowering: turns a program into a graph of `XlaBuilder`, node by node.
//!
//! Owns: the ops that stand for each kind of the op table, as `burn-tpu-graph`'s lowering to StableHLO says what it means.
//! What `XlaBuilder` of this crate lacks is a computation of one op in HLO text that the graph calls (`call`). One function
//! per family returns a node's results. Parameters come first, in the program's order, then one packed array for each
//! element type of the slots.

mod call;
mod constant;
mod contract;
mod control;
mod elementwise;
mod float;
mod index;
mod inverse_erf;
mod movement;
mod reduce;
mod slots;

use crate::types::{ENGINE, element, failed, i64s};
use burn_tpu_runtime::graph::{Node, NodeId, Op, Program, TensorType};
use burn_tpu_runtime::{Result, TpuError};
use std::collections::BTreeMap;
use xla::{RandomAlgorithm, XlaBuilder, XlaComputation, XlaOp};

pub(crate) use slots::SlotUpload;

/// What the crate's calls return.
type Built<T> = std::result::Result<T, xla::Error>;

/// A program as a computation.
pub(crate) struct Lowered {
    /// It returns a tuple of the program's results.
    pub computation: XlaComputation,
    /// The arguments after the parameters.
    pub slots: Vec<SlotUpload>,
}

/// Lowers a program.
///
/// # Errors
/// [`TpuError::Engine`] with the node that the builder refused: for a verified program, a bug of this crate.
pub(crate) fn lower(program: &Program) -> Result<Lowered> {
    let builder = XlaBuilder::new("program");
    let mut inputs = BTreeMap::new();
    for (place, (index, ty)) in program.parameters().enumerate() {
        let parameter = builder.parameter(place as i64, element(ty.dtype), &i64s(&ty.dims), &format!("p{index}"));
        inputs.insert(index, parameter.map_err(failed(format!("parameter {index}, {ty}")))?);
    }
    let slots = slots::uploads(program);
    let first = inputs.len();
    let scalars = slots::unpack(&builder, program, &slots, first).map_err(failed("the scalars of a program"))?;
    let outputs = Lowering { builder: &builder, inputs: &inputs, slots: &scalars, values: Vec::new() }.run(program)?;
    let root = builder.tuple(&outputs).and_then(|root| builder.build(&root));
    Ok(Lowered { computation: root.map_err(failed("building a program"))?, slots })
}

/// The state of a lowering.
struct Lowering<'p> {
    builder: &'p XlaBuilder,
    /// The parameters, by index.
    inputs: &'p BTreeMap<u32, XlaOp>,
    /// The scalars of slots and offsets, by node.
    slots: &'p BTreeMap<NodeId, XlaOp>,
    /// The results of each node so far.
    values: Vec<Vec<XlaOp>>,
}

/// A node's operands, each with its type.
type Operands<'a> = [(&'a XlaOp, &'a TensorType)];

impl Lowering<'_> {
    /// Returns the program's results.
    fn run(mut self, program: &Program) -> Result<Vec<XlaOp>> {
        let nodes = program.graph().nodes();
        for (node, id) in nodes.iter().zip((0..).map(NodeId)) {
            let operands = node.operands.iter().map(|&operand| Ok((self.value(operand)?, program.graph().ty(operand))));
            let operands = operands.collect::<Result<Vec<_>>>()?;
            let results = self.node(id, node, &operands)?;
            self.values.push(results);
        }
        program.outputs().iter().map(|&output| self.value(output).cloned()).collect()
    }

    fn value(&self, id: NodeId) -> Result<&XlaOp> {
        let results = self.values.get(id.index());
        results.and_then(|results| results.first()).ok_or_else(|| bug(format!("{id} is used before it is computed")))
    }

    fn node(&self, id: NodeId, node: &Node, operands: &Operands) -> Result<Vec<XlaOp>> {
        match &node.op {
            Op::GetResult { index } => {
                let of = node.operands.first().and_then(|of| self.values.get(of.index()));
                let result = of.and_then(|results| results.get(*index)).cloned();
                Ok(vec![result.ok_or_else(|| bug(format!("{id} is a result that its node does not have")))?])
            }
            Op::For { trips, body } => control::counted_loop(self.builder, operands, *trips, body),
            Op::CustomCall(call) => control::plain_form(self.builder, operands, call),
            Op::Parameter { index, .. } => input(self.inputs.get(index), id),
            Op::Slot { .. } | Op::Offset { .. } => input(self.slots.get(&id), id),
            op => {
                let types = operands.iter().map(|(_, ty)| ty.to_string()).collect::<Vec<_>>().join(", ");
                let refused = failed(format!("lowering {} of ({types})", op.mnemonic()));
                self.op(op, node, operands).map_err(refused)
            }
        }
    }

    /// Returns the results of an op that is not structure.
    fn op(&self, op: &Op, node: &Node, operands: &Operands) -> Built<Vec<XlaOp>> {
        let builder = self.builder;
        let one = |result: Built<XlaOp>| result.map(|result| vec![result]);
        let x = || operand(operands, 0).map(|(x, _)| x);
        match op {
            Op::Constant(literal) => one(constant::literal(builder, literal)),
            Op::Iota { ty, dim } => one(builder.iota(element(ty.dtype), &i64s(&ty.dims), *dim as i64)),
            Op::Unary(op) => one(elementwise::unary(builder, *op, x()?, &node.ty)),
            Op::Binary(op) => one(elementwise::binary(builder, *op, operands, &node.ty)),
            Op::Compare(direction) => one(elementwise::compare(*direction, operands)),
            Op::IsFinite => one(x()?.is_finite()),
            Op::Select => one(elementwise::select(operands)),
            Op::Clamp => one(elementwise::clamp(operands)),
            Op::Convert { dtype } => one(x()?.convert(element(*dtype).primitive_type())),
            Op::BitcastConvert { .. } => call::one_op(builder, operands, node, "bitcast-convert", ""),
            Op::BroadcastInDim { mapping, .. } => one(x()?.broadcast_in_dim(&i64s(&node.ty.dims), &i64s(mapping))),
            Op::Reshape { .. } => one(x()?.reshape(&i64s(&node.ty.dims))),
            Op::Transpose { permutation } => one(x()?.transpose(&i64s(permutation))),
            Op::Reverse { dims } => one(x()?.rev(&i64s(dims))),
            Op::Slice(attrs) => one(movement::slice(operands, attrs)),
            Op::Pad(attrs) => one(movement::pad(operands, attrs)),
            Op::Concatenate { dim } => one(movement::concatenate(operands, *dim)),
            Op::DynamicSlice { sizes } => one(index::dynamic_slice(operands, sizes)),
            Op::DynamicUpdateSlice => one(index::dynamic_update_slice(operands)),
            Op::DotGeneral(attrs) => one(contract::dot_general(builder, operands, attrs, &node.ty)),
            Op::Convolution(attrs) => one(contract::convolution(operands, attrs, &node.ty)),
            Op::Reduce { combine, dims } => one(reduce::reduce(builder, operands, *combine, dims)),
            Op::ArgReduce { max, dim } => reduce::arg_reduce(builder, operands, node, *max, *dim),
            Op::ReduceWindow { combine, window } => reduce::reduce_window(builder, operands, node, *combine, window),
            Op::SelectAndScatter { window } => reduce::select_and_scatter(builder, operands, node, window),
            Op::Sort { dim, descending } => index::sort(builder, operands, node, *dim, *descending),
            Op::TopK { k } => index::top_k(builder, operands, *k),
            Op::Gather(attrs) => index::gather(builder, operands, node, attrs),
            Op::Scatter(attrs) => index::scatter(builder, operands, node, attrs),
            Op::RngBitGenerator { ty } => {
                let drawn = x()?.rng_bit_generator(RandomAlgorithm::ThreeFry, element(ty.dtype), &i64s(&ty.dims))?;
                Ok(vec![drawn.get_tuple_element(0)?, drawn.get_tuple_element(1)?])
            }
            Op::Fft { kind, length } => movement::fft(builder, operands, node, *kind, *length),
            Op::Complex => call::one_op(builder, operands, node, "complex", ""),
            Op::Real => one(x()?.real()),
            Op::Imag => one(x()?.imag()),
            Op::OptimizationBarrier => call::one_op(builder, operands, node, "opt-barrier", ""),
            // There is no mesh, and no program is given a memory of the host: the value is where it is.
            Op::ShardingConstraint(_) | Op::MoveTo(_) => Ok(vec![x()?.clone()]),
            // Handled above.
            Op::Parameter { .. }
            | Op::Slot { .. }
            | Op::Offset { .. }
            | Op::For { .. }
            | Op::CustomCall(_)
            | Op::GetResult { .. } => Ok(vec![builder.internal_error("a part of the structure is no op")]),
        }
    }
}

fn input(found: Option<&XlaOp>, id: NodeId) -> Result<Vec<XlaOp>> {
    found.map(|input| vec![input.clone()]).ok_or_else(|| bug(format!("{id} is no input of the program")))
}

fn bug(message: String) -> TpuError {
    TpuError::Bug(format!("{ENGINE}: {message}"))
}

/// Returns an operand with its type.
fn operand<'a>(operands: &Operands<'a>, place: usize) -> Built<(&'a XlaOp, &'a TensorType)> {
    let missing = || xla::Error::XlaError { msg: format!("there is no operand {place}"), backtrace: String::new() };
    operands.get(place).copied().ok_or_else(missing)
}
