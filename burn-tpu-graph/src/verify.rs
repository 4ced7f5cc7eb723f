//! The verifier: what holds of every program that is rewritten, lowered or cached. Checked builders keep all of it, so
//! an error here is a bug of ours, found before XLA sees text.
//!
//! Of each node, in order:
//! 1. its operands stand before it;
//! 2. it has as many operands as its op takes;
//! 3. `get_result` is applied to a node of several results, and its index is one of them;
//! 4. no result is so large that XLA could not count its bytes;
//! 5. its op's inference rule accepts the operand types and attributes;
//! 6. its stored result types are those that the rule gives;
//! 7. the body of a loop keeps all of these invariants itself.
//!
//! Of the program:
//! 8. every output is a node of it;
//! 9. no output is complex: such values exist only inside;
//! 10. no two nodes are the same parameter: one buffer, one argument, one type;
//! 11. no two nodes are the same slot or offset: equal values are never merged, uses are;
//! 12. every node is reachable from an output.

#[cfg(test)]
mod tests;

use crate::{DType, GraphError, Node, NodeId, Op, Program, TensorType, infer};
use std::collections::BTreeMap;

/// The first broken invariant of a program; always a bug of ours. Numbers as in the module's list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Invariant 1.
    #[error("{node} uses {operand}, which does not stand before it")]
    OperandOrder {
        /// The user.
        node: NodeId,
        /// Its operand.
        operand: NodeId,
    },
    /// Invariant 2.
    #[error("{node} = {op} has {found} operands")]
    Arity {
        /// The node.
        node: NodeId,
        /// Its mnemonic.
        op: &'static str,
        /// How many operands it has.
        found: usize,
    },
    /// Invariant 3.
    #[error("{node} takes result {index} of {operand}, which has {results}")]
    NoSuchResult {
        /// The `get_result`.
        node: NodeId,
        /// Its operand.
        operand: NodeId,
        /// The result that it wants.
        index: usize,
        /// How many the operand has.
        results: usize,
    },
    /// Invariant 4.
    #[error("{node} has a result {ty}, which is larger than {} bytes", infer::MAX_BYTES)]
    TooLarge {
        /// The node.
        node: NodeId,
        /// The result's type.
        ty: TensorType,
    },
    /// Invariant 5.
    #[error("{node}: {error}")]
    Rule {
        /// The node.
        node: NodeId,
        /// The broken rule.
        error: GraphError,
    },
    /// Invariant 6.
    #[error("{node} claims {claimed:?}, inference gives {inferred:?}")]
    Types {
        /// The node.
        node: NodeId,
        /// What it stores.
        claimed: Vec<TensorType>,
        /// What its rule gives.
        inferred: Vec<TensorType>,
    },
    /// Invariant 7.
    #[error("{node}'s body: {error}")]
    Body {
        /// The loop.
        node: NodeId,
        /// What is broken in it.
        error: Box<VerifyError>,
    },
    /// Invariant 8.
    #[error("output {position} is {node}, which does not exist")]
    OutputMissing {
        /// Which output.
        position: usize,
        /// The node that it names.
        node: NodeId,
    },
    /// Invariant 9.
    #[error("output {position}, {node}, is complex")]
    OutputComplex {
        /// Which output.
        position: usize,
        /// The node that it names.
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
    #[error("{node} is not needed by any output")]
    Unreachable {
        /// The node.
        node: NodeId,
    },
}

type Result<T = ()> = std::result::Result<T, VerifyError>;

/// Checks every invariant in the module's list.
///
/// # Errors
/// The first one that is broken.
pub fn verify(program: &Program) -> Result {
    for (node, id) in program.graph().nodes().iter().zip((0..).map(NodeId)) {
        verify_node(program, id, node)?;
    }
    verify_outputs(program)?;
    verify_inputs(program)?;
    verify_reachable(program)
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
    let claimed: Vec<&TensorType> = std::iter::once(&node.ty).chain(&node.more).collect();
    if let Some(&ty) = claimed.iter().find(|ty| infer::bounded(ty).is_err()) {
        return Err(VerifyError::TooLarge { node: id, ty: ty.clone() });
    }
    if let Op::For { body, .. } = &node.op {
        verify(body).map_err(|error| VerifyError::Body { node: id, error: Box::new(error) })?;
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
    // Users stand behind their operands: the last of the nodes that no output needs is read by nobody.
    let unread = program.use_counts().iter().rposition(|&count| count == 0);
    unread.map_or(Ok(()), |i| Err(VerifyError::Unreachable { node: NodeId(i as u32) }))
}
