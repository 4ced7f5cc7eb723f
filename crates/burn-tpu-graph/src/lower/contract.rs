//! Lowering of contractions.

use super::printer::{Block, Statement, Value, array, edges, list};
use super::region;
use crate::op::{Combine, ConvAttrs, ConvDims, DotAttrs, Precision};
use crate::{Dims, Result, TensorType};

pub(super) fn dot_general(
    block: &mut Block,
    operands: Vec<Value>,
    attrs: &DotAttrs,
    result: &TensorType,
) -> Result<Statement> {
    if result.dtype.is_int() && result.dtype.size_bytes() == 8 {
        return Ok(wide_integer_dot(block, &operands, attrs, result));
    }
    let numbers = [
        ("lhs_batching_dimensions", &attrs.lhs_batch),
        ("rhs_batching_dimensions", &attrs.rhs_batch),
        ("lhs_contracting_dimensions", &attrs.lhs_contract),
        ("rhs_contracting_dimensions", &attrs.rhs_contract),
    ];
    let numbers: Vec<_> = numbers.iter().map(|(name, dims)| format!("{name} = [{}]", list(dims.iter()))).collect();
    let product = Statement::new("stablehlo.dot_general", operands)
        .attr("dot_dimension_numbers", format!("#stablehlo.dot<{}>", numbers.join(", ")));
    Ok(with_precision(product, attrs.precision))
}

/// Adds the precision of both factors, if it is not the default.
fn with_precision(product: Statement, precision: Precision) -> Statement {
    if precision == Precision::Default {
        return product;
    }
    let factor = format!("#stablehlo<precision {}>", precision.name());
    product.attr("precision_config", format!("[{factor}, {factor}]"))
}

/// TPUs from v5e on have no 64-bit integer dot. This multiplies over `[batch, free of lhs, free of rhs, contracted]`
/// and sums, which XLA fuses into one loop.
fn wide_integer_dot(block: &mut Block, operands: &[Value], attrs: &DotAttrs, result: &TensorType) -> Statement {
    let batch = attrs.lhs_batch.len();
    let contracted: Dims = operands
        .first()
        .map(|lhs| attrs.lhs_contract.iter().filter_map(|&d| lhs.ty.dims.get(d).copied()).collect())
        .unwrap_or_default();
    let mut dims = result.dims.clone();
    dims.extend(contracted.iter().copied());
    let space = TensorType { dtype: result.dtype, dims };
    let rhs_free = operands.get(1).map_or(0, |rhs| rhs.ty.rank() - batch - contracted.len());
    let lhs_free = result.rank() - batch - rhs_free;
    let roles =
        [(&attrs.lhs_batch, &attrs.lhs_contract, batch), (&attrs.rhs_batch, &attrs.rhs_contract, batch + lhs_free)];
    let spread: Vec<Value> = operands
        .iter()
        .zip(roles)
        .map(|(value, (batch_dims, contract, free_at))| {
            let mapping = space_mapping(value.ty.rank(), batch_dims, contract, free_at, result.rank());
            broadcast(block, value, &mapping, &space)
        })
        .collect();
    let product = block.push(&Statement::new("stablehlo.multiply", spread), space);
    let summed: Dims = (result.rank()..result.rank() + contracted.len()).collect();
    region::reduce(block, vec![product], Combine::Sum, &summed)
}

/// Returns the position of each dim of an operand in the index space of a [`wide_integer_dot`].
fn space_mapping(rank: usize, batch: &[usize], contract: &[usize], free_at: usize, contract_at: usize) -> Vec<usize> {
    let mut free = free_at..;
    let place = |dim: usize| {
        let named = |dims: &[usize], at: usize| dims.iter().position(|&d| d == dim).map(|i| at + i);
        named(batch, 0).or_else(|| named(contract, contract_at)).or_else(|| free.next()).unwrap_or(dim)
    };
    (0..rank).map(place).collect()
}

fn broadcast(block: &mut Block, value: &Value, mapping: &[usize], space: &TensorType) -> Value {
    let wide = value.ty.with_dtype(space.dtype);
    let converted = if value.ty == wide {
        value.clone()
    } else {
        block.push(&Statement::new("stablehlo.convert", [value.clone()]), wide)
    };
    block.push(&super::movement::broadcast_in_dim(vec![converted], mapping), space.clone())
}

/// Returns `[b, f, 0, 1]` for an input or output, `[o, i, 0, 1]` for a kernel.
fn roles(dims: &ConvDims, batch: &str, feature: &str) -> String {
    let rank = 2 + dims.spatial.len();
    let role = |at: usize| match dims.spatial.iter().position(|&s| s == at) {
        Some(i) => i.to_string(),
        None if at == dims.batch => batch.into(),
        None => feature.into(),
    };
    format!("[{}]", list((0..rank).map(role)))
}

pub(super) fn convolution(operands: Vec<Value>, attrs: &ConvAttrs) -> Statement {
    let numbers = format!(
        "#stablehlo.conv<{}x{}->{}>",
        roles(&attrs.input, "b", "f"),
        roles(&attrs.kernel, "o", "i"),
        roles(&attrs.output, "b", "f")
    );
    let convolution = Statement::new("stablehlo.convolution", operands)
        .attr("window_strides", array(&attrs.strides))
        .attr("padding", edges(&attrs.padding))
        .attr("lhs_dilation", array(&attrs.lhs_dilation))
        .attr("rhs_dilation", array(&attrs.rhs_dilation))
        .attr("dimension_numbers", numbers)
        .attr("feature_group_count", format!("{} : i64", attrs.feature_groups))
        .attr("batch_group_count", format!("{} : i64", attrs.batch_groups));
    with_precision(convolution, attrs.precision)
}
