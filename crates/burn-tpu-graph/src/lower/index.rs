//! Lowering of ops that address elements by run-time integers.

use super::printer::{Statement, Value, array, list};
use super::region;
use crate::op::{GatherAttrs, ScatterAttrs};

pub(super) fn dynamic_slice(operands: Vec<Value>, sizes: &[usize]) -> Statement {
    Statement::new("stablehlo.dynamic_slice", operands).attr("slice_sizes", array(sizes))
}

/// Returns the fields `name = [1, 2]`. Empty lists are omitted, which is the form that parses back.
fn fields(dialect_attr: &str, lists: &[(&str, &[usize])], index_vector_dim: usize) -> String {
    let mut parts: Vec<String> = lists
        .iter()
        .filter(|(_, dims)| !dims.is_empty())
        .map(|(name, dims)| format!("{name} = [{}]", list(*dims)))
        .collect();
    parts.push(format!("index_vector_dim = {index_vector_dim}"));
    format!("#stablehlo.{dialect_attr}<{}>", parts.join(", "))
}

pub(super) fn gather(operands: Vec<Value>, attrs: &GatherAttrs) -> Statement {
    let lists: [(&str, &[usize]); 5] = [
        ("offset_dims", &attrs.offset_dims),
        ("collapsed_slice_dims", &attrs.collapsed_slice_dims),
        ("operand_batching_dims", &attrs.operand_batching_dims),
        ("start_indices_batching_dims", &attrs.start_indices_batching_dims),
        ("start_index_map", &attrs.start_index_map),
    ];
    Statement::new("stablehlo.gather", operands)
        .attr("dimension_numbers", fields("gather", &lists, attrs.index_vector_dim))
        .attr("slice_sizes", array(&attrs.slice_sizes))
        .attr("indices_are_sorted", false)
}

pub(super) fn scatter(operands: Vec<Value>, attrs: &ScatterAttrs) -> Statement {
    let lists: [(&str, &[usize]); 5] = [
        ("update_window_dims", &attrs.update_window_dims),
        ("inserted_window_dims", &attrs.inserted_window_dims),
        ("input_batching_dims", &attrs.input_batching_dims),
        ("scatter_indices_batching_dims", &attrs.scatter_indices_batching_dims),
        ("scatter_dims_to_operand_dims", &attrs.scatter_dims_to_operand_dims),
    ];
    let body = region::update_body(attrs.mode, &operands);
    Statement::new("stablehlo.scatter", operands)
        .attr("scatter_dimension_numbers", fields("scatter", &lists, attrs.index_vector_dim))
        .attr("indices_are_sorted", false)
        .attr("unique_indices", false)
        .region(body)
}
