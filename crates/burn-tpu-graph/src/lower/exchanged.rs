//! Sums of a placed program that devices compute in parts, and exchange in 16 bits.
//!
//! Products and scatters of 16-bit values are computed in f32 and then rounded. The partitioner adds the devices' parts
//! where the sum is, in f32, which sends twice the bytes of the rounded values. So each device rounds its own part first, as
//! in JAX.

use super::printer::{Block, Statement, Value};
use super::{constant, contract, index, movement, region, sharding};
use crate::literal::LiteralData;
use crate::op::{Combine, DotAttrs, ScatterAttrs, ScatterMode};
use crate::{DType, Dims, Node, NodeId, Op, Placement, Program, Result, Sharding, TensorType};
use std::sync::Arc;

/// The 16-bit type in which devices exchange each node's value, for the nodes of a placed program or of a loop's body in
/// one.
pub(super) struct Exchanged {
    /// Of a body, none: where its values are is the partitioner's choice.
    placement: Option<Arc<Placement>>,
    types: Vec<Option<DType>>,
}

impl Exchanged {
    /// Finds them in a function of a program, which is on a mesh or not.
    pub fn of(program: &Program, is_on_mesh: bool) -> Self {
        let placement = program.placement();
        if !is_on_mesh {
            return Self { placement: None, types: Vec::new() };
        }
        let (nodes, rounded) = (program.graph().nodes(), rounded(program));
        let narrow = |(i, node): (usize, &Node)| match &node.op {
            Op::DotGeneral(attrs) => {
                let split = |placement: &Arc<Placement>| contracts_split(nodes, node, attrs, placement);
                let narrow = operand_type(nodes, node).filter(|_| node.ty.dtype == DType::F32)?;
                (rounded[i] == Some(narrow) || placement.is_some_and(split)).then_some(narrow)
            }
            Op::Scatter(attrs) => {
                rounded[i].filter(|_| placement.is_some_and(|of| adds_split_rows(nodes, node, attrs, of)))
            }
            _ => None,
        };
        let types = nodes.iter().enumerate().map(narrow).collect();
        Self { placement: placement.cloned(), types }
    }

    /// Returns the op that yields a node's value, if devices exchange it in 16 bits.
    pub fn lower(&self, block: &mut Block, id: NodeId, operands: &[Value], node: &Node) -> Result<Option<Statement>> {
        let Some(Some(narrow)) = self.types.get(id.index()) else { return Ok(None) };
        let narrowed = node.ty.with_dtype(*narrow);
        let sum = match (&node.op, &self.placement) {
            (Op::DotGeneral(attrs), _) => contract::dot_general(block, operands.to_vec(), attrs, &narrowed)?,
            (Op::Scatter(attrs), Some(placement)) => scatter_in_parts(block, operands, attrs, placement, &narrowed),
            _ => return Ok(None),
        };
        let sum = block.push(&sum, narrowed);
        Ok(Some(Statement::new("stablehlo.convert", [sum])))
    }
}

/// Returns the 16-bit type to which a node's value is converted, of each node whose value has no other use.
fn rounded(program: &Program) -> Vec<Option<DType>> {
    let nodes = program.graph().nodes();
    let mut rounded = vec![None; nodes.len()];
    let mut is_used_otherwise = vec![false; nodes.len()];
    for output in program.outputs() {
        is_used_otherwise[output.index()] = true;
    }
    for node in nodes {
        let to = matches!(node.op, Op::Convert { .. }).then_some(node.ty.dtype).filter(|&dtype| is_narrow(dtype));
        for operand in &node.operands {
            let first = *rounded[operand.index()].get_or_insert(to.unwrap_or(node.ty.dtype));
            is_used_otherwise[operand.index()] |= to != Some(first);
        }
    }
    for (to, is_used_otherwise) in rounded.iter_mut().zip(is_used_otherwise) {
        if is_used_otherwise {
            *to = None;
        }
    }
    rounded
}

fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// Returns the 16-bit type of all operands.
fn operand_type(nodes: &[Node], node: &Node) -> Option<DType> {
    let mut types = node.operands.iter().map(|operand| nodes[operand.index()].ty.dtype);
    let first = types.next().filter(|&dtype| is_narrow(dtype))?;
    types.all(|dtype| dtype == first).then_some(first)
}

/// Returns whether a product contracts a split dim of a parameter.
fn contracts_split(nodes: &[Node], node: &Node, attrs: &DotAttrs, placement: &Placement) -> bool {
    node.operands.iter().zip([&attrs.lhs_contract, &attrs.rhs_contract]).any(|(operand, contracted)| {
        let Op::Parameter { index, .. } = nodes[operand.index()].op else { return false };
        let split = |sharding: &Sharding| contracted.iter().any(|&dim| !sharding.dims()[dim].is_empty());
        placement.parameter(index).is_some_and(split)
    })
}

/// Returns whether a scatter adds rows to zeros, as many as the batch axes split into equal parts.
fn adds_split_rows(nodes: &[Node], node: &Node, attrs: &ScatterAttrs, placement: &Placement) -> bool {
    let [zeros, indices, updates] = node.operands[..] else { return false };
    let [indices, updates] = [indices, updates].map(|operand| &nodes[operand.index()].ty);
    let parts = placement.mesh.parts(&placement.batch);
    let rows = updates.dims.first().copied().unwrap_or(0);
    attrs.mode == ScatterMode::Combine(Combine::Sum)
        && attrs.input_batching_dims.is_empty()
        && !attrs.update_window_dims.contains(&0)
        && attrs.index_vector_dim > 0
        && indices.dims.first() == Some(&rows)
        && parts > 1
        && rows.is_multiple_of(parts)
        && node.ty.dtype == DType::F32
        && is_zero(nodes, zeros)
}

fn is_zero(nodes: &[Node], id: NodeId) -> bool {
    let node = &nodes[id.index()];
    match &node.op {
        Op::Constant(literal) => literal.data == LiteralData::Splat(0),
        Op::BroadcastInDim { .. } | Op::Reshape { .. } | Op::Convert { .. } => {
            node.operands.first().is_some_and(|&of| is_zero(nodes, of))
        }
        _ => false,
    }
}

/// Returns a sum of rows, `result`: each device adds its own rows in f32, in a part of its own along a new dim 0, and the
/// parts are rounded and then added.
fn scatter_in_parts(
    block: &mut Block,
    operands: &[Value],
    attrs: &ScatterAttrs,
    placement: &Placement,
    result: &TensorType,
) -> Statement {
    let Placement { mesh, batch, .. } = placement;
    let parts = mesh.parts(batch);
    let split = |block: &mut Block, value: Value| sharding::split_batch(block, value, placement);
    let in_parts = |block: &mut Block, value: &Value| {
        let mut dims: Dims = [parts, value.ty.dims[0] / parts].into_iter().collect();
        dims.extend(value.ty.dims[1..].iter().copied());
        let ty = TensorType { dtype: value.ty.dtype, dims };
        let value = block.push(&Statement::new("stablehlo.reshape", [value.clone()]), ty);
        split(block, value)
    };
    let (indices, updates) = (in_parts(block, &operands[1]), in_parts(block, &operands[2]));
    let mut dims: Dims = [parts].into_iter().collect();
    dims.extend(result.dims.iter().copied());
    let wide = TensorType { dtype: DType::F32, dims };
    let zero = constant::scalar(block, DType::F32, 0);
    let zeros = block.push(&movement::broadcast_in_dim(vec![zero], &[]), wide.clone());
    let zeros = split(block, zeros);
    let sums = block.push(&index::scatter(vec![zeros, indices, updates], &behind_a_batch(attrs)), wide.clone());
    let sums = split(block, sums);
    let sums = block.push(&Statement::new("stablehlo.convert", [sums]), wide.with_dtype(result.dtype));
    region::reduce(block, vec![sums], Combine::Sum, &[0])
}

/// Returns the attributes of the scatter that does the same for each element of a new dim 0 of all operands.
fn behind_a_batch(attrs: &ScatterAttrs) -> ScatterAttrs {
    let after = |dims: &Dims| dims.iter().map(|dim| dim + 1).collect();
    ScatterAttrs {
        update_window_dims: after(&attrs.update_window_dims),
        inserted_window_dims: after(&attrs.inserted_window_dims),
        input_batching_dims: [0].into_iter().collect(),
        scatter_indices_batching_dims: [0].into_iter().collect(),
        scatter_dims_to_operand_dims: after(&attrs.scatter_dims_to_operand_dims),
        index_vector_dim: attrs.index_vector_dim + 1,
        mode: attrs.mode,
    }
}

#[cfg(test)]
mod tests {
    use crate::op::DotAttrs;
    use crate::{Builder, DType, Graph, Mesh, Op, Placement, Program, Sharding, TensorType, lower};

    /// A loop whose body rounds a product.
    fn program() -> Program {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::BF16, [8, 8]) }, &[]).unwrap();
        let body = |graph: &mut Graph, _, [x]: [_; 1]| {
            let product = graph.dot_general(x, x, DotAttrs::new([&[], &[]], [&[0], &[0]], DType::F32))?;
            Ok([graph.convert(product, DType::BF16)?])
        };
        let [y] = graph.for_loop(3, [x], body).unwrap();
        Program::extract(&graph, &[y]).unwrap()
    }

    #[test]
    fn devices_round_their_parts_of_a_product_in_a_loop() {
        let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
        let split = vec![Sharding::first_dim(2, &[0])];
        let placed = program().placed(Placement { mesh, batch: vec![0], parameters: split.clone(), results: split });
        for (program, result) in [(program(), "f32"), (placed, "bf16")] {
            let text = lower(&program).unwrap().text;
            let product = text.lines().find(|line| line.contains("stablehlo.dot_general")).unwrap();
            assert!(product.contains(&format!("-> tensor<8x8x{result}>")), "{product}");
        }
    }
}
