//! Shape and element-type inference: the rule of every op, checked when a node is added.
//!
//! One file per family. A rule returns the result types, or one sentence that states what it requires and what it got.

mod contract;
mod control;
mod elementwise;
mod index;
mod movement;
mod window;

use crate::error::{GraphError, Result};
use crate::{DType, Graph, NodeId, Op, Sharding, TensorType};

/// The outcome of a rule: the result type, or the rule that does not hold.
type Rule<T = TensorType> = std::result::Result<T, String>;

/// The largest size of one value, in bytes. Larger sizes make XLA's arithmetic overflow and abort the process.
pub(crate) const MAX_BYTES: usize = 1 << 46;

/// Returns the types of all results of `op`. `types` are the types of the nodes `operands`.
pub(crate) fn infer(
    graph: &Graph,
    op: &Op,
    operands: &[NodeId],
    types: &[&TensorType],
) -> Result<(TensorType, Vec<TensorType>)> {
    let outcome = match op {
        Op::Sort { dim, .. } => window::sort(types, *dim).map(|more| (types[0].clone(), more)),
        Op::TopK { k } => window::top_k(types[0], *k).map(|(values, places)| (values, vec![places])),
        Op::ArgReduce { dim, .. } => window::arg_reduce(types, *dim).map(|(value, index)| (value, vec![index])),
        Op::RngBitGenerator { ty } => rng(types, ty).map(|state| (state, vec![ty.clone()])),
        Op::For { trips, body } => control::for_loop(types, *trips, body),
        Op::CustomCall(call) => control::custom_call(types, call),
        Op::GetResult { index } => get_result(graph, operands, *index).map(|ty| (ty, Vec::new())),
        single => single_result(single, types).map(|ty| (ty, Vec::new())),
    };
    let checked = outcome.and_then(|(ty, more)| {
        bounded(&ty)?;
        more.iter().try_for_each(bounded)?;
        Ok((ty, more))
    });
    checked.map_err(|rule| GraphError::new(op.mnemonic(), types, rule))
}

fn single_result(op: &Op, types: &[&TensorType]) -> Rule {
    match op {
        Op::Parameter { ty, .. } => real(ty.clone()),
        Op::Slot { dtype, .. } => real(TensorType::scalar(*dtype)),
        Op::Offset { dtype, .. } => elementwise::offset(*dtype),
        Op::Constant(literal) => elementwise::constant(literal),
        Op::Iota { ty, dim } => movement::iota(ty, *dim),
        Op::Unary(op) => elementwise::unary(*op, types[0]),
        Op::Binary(op) => elementwise::binary(*op, types[0], types[1]),
        Op::Compare(_) => elementwise::compare(types[0], types[1]),
        Op::IsFinite => elementwise::is_finite(types[0]),
        Op::Select => elementwise::select(types[0], types[1], types[2]),
        Op::Clamp => elementwise::clamp(types[0], types[1], types[2]),
        Op::Convert { dtype } => elementwise::convert(types[0], *dtype),
        Op::BitcastConvert { dtype } => elementwise::bitcast_convert(types[0], *dtype),
        Op::BroadcastInDim { dims, mapping } => movement::broadcast_in_dim(types[0], dims, mapping),
        Op::Reshape { dims } => movement::reshape(types[0], dims),
        Op::Transpose { permutation } => movement::transpose(types[0], permutation),
        Op::Reverse { dims } => movement::reverse(types[0], dims),
        Op::Slice(attrs) => movement::slice(types[0], attrs),
        Op::Pad(attrs) => movement::pad(types[0], types[1], attrs),
        Op::Concatenate { dim } => movement::concatenate(types, *dim),
        Op::DynamicSlice { sizes } => index::dynamic_slice(types, sizes),
        Op::DynamicUpdateSlice => index::dynamic_update_slice(types),
        Op::DotGeneral(attrs) => contract::dot_general(types[0], types[1], attrs),
        Op::Convolution(attrs) => contract::convolution(types[0], types[1], attrs),
        Op::Reduce { combine, dims } => window::reduce(types[0], *combine, dims),
        Op::ReduceWindow { combine, window } => window::reduce_window(types[0], *combine, window),
        Op::SelectAndScatter { window } => window::select_and_scatter(types[0], types[1], window),
        Op::Gather(attrs) => index::gather(types[0], types[1], attrs),
        Op::Scatter(attrs) => index::scatter(types[0], types[1], types[2], attrs),
        Op::Fft { kind, length } => movement::fft(types[0], *kind, *length),
        Op::Complex => elementwise::complex(types[0], types[1]),
        Op::Real | Op::Imag => elementwise::complex_part(types[0]),
        Op::OptimizationBarrier | Op::MoveTo(_) => Ok(types[0].clone()),
        Op::ShardingConstraint(sharding) => sharding_constraint(types[0], sharding),
        Op::Sort { .. }
        | Op::TopK { .. }
        | Op::ArgReduce { .. }
        | Op::RngBitGenerator { .. }
        | Op::For { .. }
        | Op::CustomCall(_)
        | Op::GetResult { .. } => Err("has several results".into()),
    }
}

/// Rejects complex types: complex values exist only inside a program.
fn real(ty: TensorType) -> Rule {
    if ty.dtype == DType::C64 { Err("complex values cannot be passed in".into()) } else { Ok(ty) }
}

fn sharding_constraint(x: &TensorType, sharding: &Sharding) -> Rule {
    match sharding.dims().len() == x.rank() {
        true => Ok(x.clone()),
        false => Err(format!("the sharding {sharding} is not one of rank {}", x.rank())),
    }
}

fn get_result(graph: &Graph, operands: &[NodeId], index: usize) -> Rule {
    let node = graph.node(operands[0]);
    let found = node.result_type(index).cloned();
    found.ok_or_else(|| format!("result {index} does not exist: the operand has {} results", node.results()))
}

fn rng(types: &[&TensorType], ty: &TensorType) -> Rule {
    if types[0].dtype != DType::U64 || types[0].dims[..] != [2] {
        return Err("the state must be ui64[2]".into());
    }
    if !matches!(ty.dtype, DType::U32 | DType::U64) {
        return Err(format!("draws ui32 or ui64, not {}", ty.dtype));
    }
    Ok(types[0].clone())
}

/// Rejects types whose size in bytes would overflow in XLA.
pub(crate) fn bounded(ty: &TensorType) -> Rule<()> {
    let bytes = ty.dims.iter().try_fold(ty.dtype.size_bytes(), |n, &d| n.checked_mul(d.max(1)));
    match bytes {
        Some(bytes) if bytes <= MAX_BYTES => Ok(()),
        _ => Err(format!("the result {ty} would be larger than {MAX_BYTES} bytes")),
    }
}

fn check_dim(dim: usize, rank: usize) -> Rule<()> {
    if dim < rank { Ok(()) } else { Err(format!("dim {dim} is out of range for rank {rank}")) }
}

/// Checks that every dim is in range and none occurs twice.
fn check_distinct(dims: &[usize], rank: usize) -> Rule<()> {
    for (i, &dim) in dims.iter().enumerate() {
        check_dim(dim, rank)?;
        if dims[..i].contains(&dim) {
            return Err(format!("dim {dim} is named twice in {dims:?}"));
        }
    }
    Ok(())
}

/// Checks that the dims are in range and strictly increasing.
fn check_increasing(what: &str, dims: &[usize], rank: usize) -> Rule<()> {
    check_distinct(dims, rank)?;
    if dims.is_sorted() { Ok(()) } else { Err(format!("{what} {dims:?} must increase")) }
}

fn check_len(what: &str, len: usize, rank: usize) -> Rule<()> {
    if len == rank { Ok(()) } else { Err(format!("{what} has {len} entries, expected {rank}")) }
}
