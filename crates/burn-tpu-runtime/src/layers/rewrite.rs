//! What is rewritten in a layer before its two passes become loops of their own, since each loop hides its values from the
//! other: the gradient of attention reads the result of the forward pass, which may be kept.

use super::{LayerLoop, LayerValue};
use crate::runtime::runtime;
use crate::trace::FunctionSource;
use burn_tpu_fusion::{Pass, SoftmaxGradient};
use burn_tpu_graph::{GraphError, NodeId, Program};
use std::sync::Arc;

/// Rewrites a layer as the level of its device says.
pub(super) fn rewrite(layer: &mut LayerLoop) -> Result<(), GraphError> {
    let runtime = runtime(layer.device);
    if !runtime.compiler().rewrites_layers() {
        return Ok(());
    }
    let graph = Arc::clone(&layer.graph);
    let mut values = nodes(layer);
    let outputs: Vec<NodeId> = values.iter().map(|value| **value).collect();
    let rewritten = SoftmaxGradient.run(&Program::extract(&graph, &outputs)?)?;
    if rewritten.count == 0 {
        return Ok(());
    }
    runtime.open().counters().rewrote(&[(SoftmaxGradient.name(), rewritten.count)]);
    values.iter_mut().zip(rewritten.program.outputs()).for_each(|(value, &new)| **value = new);
    layer.graph = Arc::new(rewritten.program.graph().clone());
    Ok(())
}

/// Returns the nodes that a layer's results, gradients and names are.
fn nodes(layer: &mut LayerLoop) -> Vec<&mut NodeId> {
    let values = layer.results.iter_mut().chain(layer.gradients.iter_mut().flatten());
    let values = values.filter_map(|value| match value {
        LayerValue::Node(id) => Some(id),
        LayerValue::Argument(_) => None,
    });
    let named = layer.recording.named.iter_mut().filter_map(|(_, source)| match source {
        FunctionSource::Node(id) => Some(id),
        _ => None,
    });
    values.chain(named).collect()
}
