//! The program that computes the class of every value of another one.

use super::flag::DTYPES;
use super::{Class, LABEL, magnitude};
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Program, Result};
use std::sync::Arc;

/// A program whose results are the largest magnitudes of the values of another program: one vector for each type of float.
pub(crate) struct Probes {
    /// It has the other program's parameters and slots.
    pub(crate) program: Arc<Program>,
    /// The values of each vector.
    probed: Vec<(DType, Vec<NodeId>)>,
    /// The number of nodes of the other program.
    nodes: usize,
}

impl Probes {
    /// Returns the probes of the values that the first `results` results of a program need.
    ///
    /// # Errors
    /// Only a bug gives one.
    pub(crate) fn of(program: &Program, results: usize) -> Result<Self> {
        let results = &program.outputs()[..results.min(program.outputs().len())];
        let needed = needed(program.graph(), results);
        let mut graph = program.graph().clone();
        graph.set_label(LABEL);
        let nodes = graph.len();
        let (mut probed, mut vectors) = (Vec::new(), Vec::new());
        for dtype in DTYPES {
            let (mut of_type, mut magnitudes) = (Vec::new(), Vec::new());
            for id in (0..nodes as u32).map(NodeId) {
                if needed[id.index()] && is_probed(&graph, id) && probed_type(&graph, id) == dtype {
                    of_type.push(id);
                    magnitudes.push(probe(&mut graph, id)?);
                }
            }
            if !of_type.is_empty() {
                vectors.push(graph.concatenate(&magnitudes, 0)?);
                probed.push((dtype, of_type));
            }
        }
        Ok(Self { program: Arc::new(Program::extract(&graph, &vectors)?), probed, nodes })
    }

    /// Returns the class of each node, from the bytes of the program's results. A node with the elements of its operands has
    /// the worst of their classes.
    pub(crate) fn classes(&self, graph: &Graph, results: &[impl AsRef<[u8]>]) -> Vec<Class> {
        let mut classes = vec![None; self.nodes];
        for ((dtype, of_type), bytes) in self.probed.iter().zip(results) {
            let size = dtype.size_bytes();
            for (&id, bits) in of_type.iter().zip(bytes.as_ref().chunks_exact(size)) {
                let mut wide = [0; 8];
                wide[..size].copy_from_slice(bits);
                classes[id.index()] = Some(Class::of(u64::from_le_bytes(wide), *dtype));
            }
        }
        let mut known: Vec<Class> = Vec::with_capacity(self.nodes);
        for (node, probed) in graph.nodes().iter().zip(classes) {
            let of_operands = || node.operands.iter().map(|id| known[id.index()]).max().unwrap_or_default();
            let derived = if node.op.moves_all() { of_operands() } else { Class::Finite };
            known.push(probed.unwrap_or(derived));
        }
        known
    }
}

/// Returns for each node whether these results need it.
fn needed(graph: &Graph, results: &[NodeId]) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    results.iter().for_each(|id| needed[id.index()] = true);
    for (i, node) in graph.nodes().iter().enumerate().rev() {
        if needed[i] {
            node.operands.iter().for_each(|id| needed[id.index()] = true);
        }
    }
    needed
}

/// Returns whether the class of a node is computed. The class of a node with the elements of its operands follows from
/// theirs.
fn is_probed(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    (node.ty.dtype.is_float() || node.ty.dtype == DType::C64) && !node.op.moves_all()
}

/// Returns the type of the floats that a probed value consists of.
fn probed_type(graph: &Graph, id: NodeId) -> DType {
    match graph.dtype(id) {
        DType::C64 => DType::F32,
        dtype => dtype,
    }
}

/// Adds the largest magnitude of a value, or of the parts of complex numbers.
fn probe(graph: &mut Graph, id: NodeId) -> Result<NodeId> {
    if graph.dtype(id) != DType::C64 {
        return magnitude(graph, id);
    }
    let (real, imaginary) = (graph.real(id)?, graph.imag(id)?);
    let (real, imaginary) = (magnitude(graph, real)?, magnitude(graph, imaginary)?);
    graph.binary(BinaryOp::Max, real, imaginary)
}
