//! Finds the nodes of a program that an engine cannot run.

use super::Engine;
use burn_tpu_graph::{CallForm, Node, Op, Program};
use std::collections::BTreeSet;

/// Returns the mnemonics of the nodes that run on the host.
pub(super) fn host_ops(engine: &dyn Engine, program: &Program, host: &[String]) -> BTreeSet<&'static str> {
    let nodes = program.graph().nodes().iter().filter(|node| is_for_host(engine, host, node));
    nodes.map(|node| node.op.mnemonic()).collect()
}

/// Returns whether a node's mnemonic is in `host` or the engine has no lowering for it. A loop, and a call whose plain
/// form may be lowered, run on the host as a whole if a node in them does.
pub(super) fn is_for_host(engine: &dyn Engine, host: &[String], node: &Node) -> bool {
    let body = match &node.op {
        Op::For { body, .. } => body.graph().nodes(),
        Op::CustomCall(call) if !matches!(call.form(), CallForm::Function(_)) => call.plain().graph().nodes(),
        _ => &[],
    };
    let named = host.iter().any(|name| name == node.op.mnemonic());
    named || !engine.lowers(&node.op) || body.iter().any(|inner| is_for_host(engine, host, inner))
}
