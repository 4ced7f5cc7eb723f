//! The verifier: the invariants of every program that is rewritten, lowered or cached. The checked builders keep
//! them, so an error here is a bug of this project, found before XLA sees the text.
//!
//! For each node, in order:
//! 1. its operands come before it;
//! 2. it has as many operands as its op takes;
//! 3. `get_result` is applied to a node of several results, and its index is one of them;
//! 4. no result is so large that XLA could not count its bytes;
//! 5. its op's inference rule accepts the operand types and attributes;
//! 6. its stored result types are those that the rule returns;
//! 7. the body of a loop and the plain form of a custom call keep all of these invariants.
//!
//! For the program:
//! 8. every output is a node of it;
//! 9. no output is complex: such values exist only inside;
//! 10. no two nodes are the same parameter: one buffer is one argument of one type;
//! 11. no two nodes are the same slot or offset: the uses of one slot share its node, equal values do not;
//! 12. every node is reachable from an output;
//! 13. the placement of a program for a mesh has a sharding for each parameter and result, which splits it into equal parts,
//!     and constraints name axes of the mesh.

#[cfg(test)]
mod tests;

use crate::{DType, GraphError, Node, NodeId, Op, Placement, Program, Sharding, TensorType, infer};
use std::collections::BTreeMap;

/// The first invariant that a program breaks; always a bug of this project. The numbers are those of the module's list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Invariant 1.
    #[error("{node} uses {operand}, which does not come before it")]
    OperandOrder {
        /// The user of the operand.
        node: NodeId,
        /// The operand.
        operand: NodeId,
    },
    /// Invariant 2.
    #[error("{node} = {op} has {found} operands")]
    Arity {
        /// The node with the wrong number of operands.
        node: NodeId,
        /// The node's mnemonic.
        op: &'static str,
        /// The number of operands that it has.
        found: usize,
    },
    /// Invariant 3.
    #[error("{node} takes result {index} of {operand}, which has {results}")]
    NoSuchResult {
        /// The `get_result` node.
        node: NodeId,
        /// Its operand.
        operand: NodeId,
        /// The index of the requested result.
        index: usize,
        /// The number of results of the operand.
        results: usize,
    },
    /// Invariant 4.
    #[error("{node} has a result {ty}, which is larger than {} bytes", infer::MAX_BYTES)]
    TooLarge {
        /// The node with the large result.
        node: NodeId,
        /// The result's type.
        ty: TensorType,
    },
    /// Invariant 5.
    #[error("{node}: {error}")]
    Rule {
        /// The invalid node.
        node: NodeId,
        /// The rule that it breaks.
        error: GraphError,
    },
    /// Invariant 6.
    #[error("{node} stores the types {claimed:?}, inference returns {inferred:?}")]
    Types {
        /// The node with the wrong types.
        node: NodeId,
        /// The types that it stores.
        claimed: Vec<TensorType>,
        /// The types that its rule returns.
        inferred: Vec<TensorType>,
    },
    /// Invariant 7.
    #[error("{node}'s body: {error}")]
    Body {
        /// The loop or custom call.
        node: NodeId,
        /// The invariant that the body breaks.
        error: Box<VerifyError>,
    },
    /// Invariant 8.
    #[error("output {position} is {node}, which does not exist")]
    OutputMissing {
        /// The position among the outputs.
        position: usize,
        /// The missing node.
        node: NodeId,
    },
    /// Invariant 9.
    #[error("output {position}, {node}, is complex")]
    OutputComplex {
        /// The position among the outputs.
        position: usize,
        /// The complex node.
        node: NodeId,
    },
    /// Invariant 10.
    #[error("{first} and {second} are both parameter {index}")]
    ParameterTwice {
        /// The parameter's index.
        index: u32,
        /// The first node.
        first: NodeId,
        /// The second node.
        second: NodeId,
    },
    /// Invariant 11.
    #[error("{first} and {second} are both slot {index}")]
    SlotTwice {
        /// The slot's index.
        index: u32,
        /// The first node.
        first: NodeId,
        /// The second node.
        second: NodeId,
    },
    /// Invariant 12.
    #[error("no output depends on {node}")]
    Unreachable {
        /// The unreachable node.
        node: NodeId,
    },
    /// Invariant 13.
    #[error("{node} cannot be placed: {rule}")]
    Placement {
        /// The parameter, result or constraint.
        node: NodeId,
        /// The rule that its sharding breaks.
        rule: String,
    },
}

type Result<T = ()> = std::result::Result<T, VerifyError>;

/// Checks every invariant in the module's list.
///
/// # Errors
/// Returns the first invariant that does not hold.
pub fn verify(program: &Program) -> Result {
    for (node, id) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
        verify_node(program, id, node)?;
    }
    verify_outputs(program)?;
    verify_inputs(program)?;
    verify_reachable(program)?;
    program.placement().map_or(Ok(()), |placement| verify_placement(program, placement))
}

fn verify_placement(program: &Program, placement: &Placement) -> Result {
    let mesh = &placement.mesh;
    let check = |node: NodeId, sharding: Option<&Sharding>| {
        let checked = sharding.ok_or("it has no sharding".to_owned());
        let checked = checked.and_then(|sharding| sharding.check(program.graph().ty(node), mesh));
        checked.map_err(|rule| VerifyError::Placement { node, rule })
    };
    for (node, id) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
        match &node.op {
            Op::Parameter { index, .. } => check(id, placement.parameter(*index))?,
            Op::ShardingConstraint(sharding) => {
                let checked = sharding.check_axes(node.ty.rank(), mesh);
                checked.map_err(|rule| VerifyError::Placement { node: id, rule })?;
            }
            _ => {}
        }
    }
    program.outputs().iter().enumerate().try_for_each(|(i, &node)| check(node, placement.results.get(i)))
}

fn verify_node(program: &Program, id: NodeId, node: &Node) -> Result {
    if let Some(&operand) = node.operands.iter().find(|&&operand| operand >= id) {
        return Err(VerifyError::OperandOrder { node: id, operand });
    }
    let (least, most) = node.op.arity();
    let found = node.operands.len();
    if found < least || found > most {
        return Err(VerifyError::Arity { node: id, op: node.op.mnemonic(), found });
    }
    verify_get_result(program, id, node)?;
    let claimed: Vec<&TensorType> = node.result_types().collect();
    if let Some(&ty) = claimed.iter().find(|ty| infer::bounded(ty).is_err()) {
        return Err(VerifyError::TooLarge { node: id, ty: ty.clone() });
    }
    if let Op::For { body, .. } = &node.op {
        verify_body(id, body)?;
    }
    if let Op::CustomCall(call) = &node.op {
        verify_body(id, call.plain())?;
        call.parts().map_or(Ok(()), |parts| verify_body(id, parts.part()))?;
    }
    let graph = program.graph();
    let types: Vec<_> = node.operands.iter().map(|&operand| graph.ty(operand)).collect();
    let inferred = infer::infer(graph, &node.op, &node.operands, &types);
    let (first, more) = inferred.map_err(|error| VerifyError::Rule { node: id, error })?;
    if first == node.ty && more == node.more {
        return Ok(());
    }
    let inferred = std::iter::once(first).chain(more).collect();
    Err(VerifyError::Types { node: id, claimed: claimed.into_iter().cloned().collect(), inferred })
}

fn verify_body(node: NodeId, body: &Program) -> Result {
    verify(body).map_err(|error| VerifyError::Body { node, error: Box::new(error) })
}

fn verify_get_result(program: &Program, id: NodeId, node: &Node) -> Result {
    let Op::GetResult { index } = node.op else { return Ok(()) };
    let Some(&operand) = node.operands.first() else { return Ok(()) };
    let results = program.graph().node(operand).results();
    if results > 1 && index < results {
        return Ok(());
    }
    Err(VerifyError::NoSuchResult { node: id, operand, index, results })
}

fn verify_outputs(program: &Program) -> Result {
    for (position, &node) in program.outputs().iter().enumerate() {
        match program.graph().nodes().get(node.index()) {
            None => return Err(VerifyError::OutputMissing { position, node }),
            Some(found) if found.ty.dtype == DType::C64 => return Err(VerifyError::OutputComplex { position, node }),
            Some(_) => {}
        }
    }
    Ok(())
}

fn verify_inputs(program: &Program) -> Result {
    let (mut parameters, mut slots) = (BTreeMap::new(), BTreeMap::new());
    for (node, second) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
        if let Op::Parameter { index, .. } = node.op
            && let Some(first) = parameters.insert(index, second)
        {
            return Err(VerifyError::ParameterTwice { index, first, second });
        }
        if let Op::Slot { index, .. } | Op::Offset { index, .. } = node.op
            && let Some(first) = slots.insert(index, second)
        {
            return Err(VerifyError::SlotTwice { index, first, second });
        }
    }
    Ok(())
}

fn verify_reachable(program: &Program) -> Result {
    // Users come after their operands, so nothing reads the last of the nodes that no output depends on.
    let unread = program.use_counts().iter().rposition(|&count| count == 0);
    unread.map_or(Ok(()), |i| Err(VerifyError::Unreachable { node: NodeId(i as u32) }))
}
