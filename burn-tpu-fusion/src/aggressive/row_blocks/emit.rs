//! The program with a region in a loop over blocks of rows.
//!
//! Owns: what comes before and after the loop, and what the loop carries. May not know: what a trip computes
//! ([`super::body`]).

use super::body::{Body, is_recomputed};
use super::region::{Region, operand_splits};
use crate::readers::Readers;
use burn_tpu_graph::op::{Trips, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, NodeId, Op, Program, Rebuild, TensorType};
use std::collections::BTreeSet;
use std::sync::Arc;

type Result<T> = std::result::Result<T, GraphError>;

/// Returns the program with the loop in the place of the region.
pub(super) fn emit(program: &Program, region: &Region) -> Result<Program> {
    let old = program.graph();
    let mut new = Rebuild::new(old);
    for id in old.ids().filter(|&id| !region.contains(id) && !region.is_after(id)) {
        new.copy(id)?;
    }
    add_loop(program, region, &mut new)?;
    for id in old.ids().filter(|&id| region.is_after(id)) {
        new.copy(id)?;
    }
    new.finish(program)
}

/// Adds the loop. It carries its results and then its inputs, which no trip changes.
fn add_loop(program: &Program, region: &Region, new: &mut Rebuild) -> Result<()> {
    let old = program.graph();
    let (results, inputs) = (results(program, region), inputs(old, region));
    let mut carries = Vec::with_capacity(results.len() + inputs.len());
    for &id in &results {
        new.label(id);
        carries.push(new.graph.splat(region.carried_dtype(old, id), &old.ty(id).dims, 0i64)?);
    }
    for &id in &inputs {
        carries.push(new.renamed.id(id)?);
    }
    let types: Vec<TensorType> = carries.iter().map(|&id| new.graph.ty(id).clone()).collect();
    let body = Body::new(old, region, rounded_logits(program, region), &types)?.trip(&results, &inputs)?;
    let last = new.graph.add(Op::For { trips: Trips::Exactly(region.blocks), body: Arc::new(body) }, &carries)?;
    for (index, &id) in results.iter().enumerate() {
        new.label(id);
        let result = new.graph.get_result(last, index)?;
        let result = new.graph.convert(result, old.dtype(id))?;
        new.renamed.set(id, result);
    }
    Ok(())
}

/// Returns the nodes of the region that are read outside of it, ascending.
fn results(program: &Program, region: &Region) -> Vec<NodeId> {
    let old = program.graph();
    let mut read = BTreeSet::from_iter(program.outputs());
    for id in old.ids().filter(|&id| region.is_after(id)) {
        read.extend(&old.node(id).operands);
    }
    read.into_iter().copied().filter(|&id| region.contains(id)).collect()
}

/// Returns the values from outside of the region that a trip reads, ascending.
fn inputs(old: &Graph, region: &Region) -> Vec<NodeId> {
    let mut pending = Vec::new();
    for &id in region.nodes.keys() {
        pending.extend(old.node(id).operands.iter().copied().zip(region.operand_splits(old, id)));
    }
    let (mut seen, mut inputs) = (BTreeSet::new(), BTreeSet::new());
    while let Some((id, split)) = pending.pop() {
        if region.contains(id) || !seen.insert((id, split.clone())) {
            continue;
        }
        if is_recomputed(old, region, id, &split) {
            pending.extend(old.node(id).operands.iter().copied().zip(operand_splits(old, id, &split)));
        } else {
            inputs.insert(id);
        }
    }
    inputs.into_iter().collect()
}

/// Returns the logits and the type to which they are rounded, if their factors have 16 bits. These are the product after
/// bias and cap, if several ops read it: each reads it from main memory, where it is kept in 16 bits.
fn rounded_logits(program: &Program, region: &Region) -> Option<(NodeId, DType)> {
    let (old, readers) = (program.graph(), Readers::all(program));
    let product = *region.nodes.keys().next()?;
    let dtype = old.dtype(old.node(product).operands[0]);
    let (mut logits, mut read) = (product, product);
    while let Readers::One(reader) = readers[read.index()] {
        match old.node(reader).op {
            Op::Binary(_) | Op::Unary(UnaryOp::Tanh) => logits = reader,
            Op::Reshape { .. } => {}
            _ => return None,
        }
        read = reader;
    }
    (dtype.is_half() && old.dtype(read) == DType::F32).then_some((logits, dtype))
}
