//! Attention on a mesh: every device has some of the sequences and some of the heads, and runs the kernels on them.
//!
//! Owns: the axes that split sequences and heads, and what a call on parts looks like. May not know: how attention was
//! found.
//!
//! The axes of batches split the sequences. Any other axis that splits a parameter, or a value that the user placed, is that
//! of a layer whose heads are divided, and splits the heads. Where the heads are not there, the partitioner moves them:
//! correct, but slower. Attention that does not divide is left alone.

use super::plain;
use burn_tpu_graph::op::BinaryOp;
use burn_tpu_graph::{Axis, Builder, DType, DimAxes, Graph, GraphError, KernelCall, Mesh, NodeId, Op, Partition};
use burn_tpu_graph::{Program, Sharding, TensorType};
use burn_tpu_kernels::kernels::attention::Attention;

/// How a mesh divides attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    mesh: Mesh,
    /// The axes that split the sequences.
    sequences: DimAxes,
    /// The axes that split the heads.
    heads: DimAxes,
}

impl Division {
    /// Returns how a program's mesh divides attention; `None` for one device.
    pub(super) fn of(program: &Program) -> Option<Self> {
        let (mesh, placement) = (program.mesh()?, program.placement()?);
        let mut placed: Vec<&Sharding> = placement.parameters.iter().collect();
        for node in program.graph().nodes() {
            if let Op::ShardingConstraint(sharding) = &node.op {
                placed.push(sharding);
            }
        }
        let (mut sequences, mut heads) = (DimAxes::new(), DimAxes::new());
        for axis in 0..mesh.axes().len() as Axis {
            let splits_a_value = placed.iter().any(|sharding| sharding.dims().iter().flatten().any(|&own| own == axis));
            if mesh.size(axis) == 1 {
                continue;
            } else if placement.batch.contains(&axis) {
                sequences.push(axis);
            } else if splits_a_value {
                heads.push(axis);
            }
        }
        Some(Self { mesh: mesh.clone(), sequences, heads })
    }

    /// Returns the attention of one device; `None` if sequences or heads do not divide.
    pub(super) fn part(&self, attention: &Attention) -> Option<Attention> {
        attention.part(self.mesh.parts(&self.sequences), self.mesh.parts(&self.heads))
    }

    /// Returns the call in which every device runs `part`, the kernel of its sequences and heads, instead of `whole`.
    /// `has_state` says that the last operand is the state of a draw.
    pub(super) fn call(&self, whole: &KernelCall, part: KernelCall, has_state: bool) -> KernelCall {
        let mut operands = whole.operands.clone();
        let mut shardings = self.shardings(&whole.operands, &part.operands);
        if has_state && let (Some(state), Some(sharding)) = (operands.last_mut(), shardings.last_mut()) {
            *state = TensorType::new(DType::I32, [self.state_words()]);
            *sharding = Sharding::new([self.all()]);
        }
        let results = self.shardings(&whole.results, &part.results);
        let partition = Partition { mesh: self.mesh.clone(), operands: shardings, results };
        KernelCall { operands, results: whole.results.clone(), partition: Some(partition), ..part }
    }

    /// Returns the sharding of each array, from its type and that of one device's part.
    fn shardings(&self, whole: &[TensorType], parts: &[TensorType]) -> Vec<Sharding> {
        whole.iter().zip(parts).map(|(whole, part)| self.sharding(whole, part)).collect()
    }

    /// Returns the sharding of an array from its type and that of one device's part. Dim 0 has the sequences, dim 1 the
    /// heads.
    fn sharding(&self, whole: &TensorType, part: &TensorType) -> Sharding {
        let mut dims = vec![DimAxes::new(); whole.rank()];
        for (dim, axes) in dims.iter_mut().enumerate() {
            if whole.dims[dim] != part.dims[dim] {
                *axes = if dim == 0 { self.sequences.clone() } else { self.heads.clone() };
            }
        }
        Sharding::new(dims)
    }

    /// Adds the state of a draw for every part: the words, the part's first sequence and its first head.
    pub(super) fn state(&self, graph: &mut Graph, words: NodeId, part: &Attention) -> Result<NodeId, GraphError> {
        let parts = self.parts();
        let words = graph.broadcast_in_dim(words, &[parts, plain::STATE_WORDS], &[1])?;
        let place = graph.iota(DType::I32, &[parts, 1], 0)?;
        let heads = self.mesh.parts(&self.heads) as i64;
        let row = graph.binary_const(BinaryOp::Div, place, heads)?;
        let column = graph.binary_const(BinaryOp::Rem, place, heads)?;
        let row = graph.binary_const(BinaryOp::Mul, row, part.batch as i64)?;
        let column = graph.binary_const(BinaryOp::Mul, column, part.heads as i64)?;
        let all = graph.concatenate(&[words, row, column], 1)?;
        graph.reshape(all, &[self.state_words()])
    }

    /// The number of words of all parts' states.
    pub(super) fn state_words(&self) -> usize {
        self.parts() * WORDS
    }

    /// The number of parts.
    fn parts(&self) -> usize {
        self.mesh.parts(&self.all())
    }

    /// The axes of the sequences and then those of the heads.
    fn all(&self) -> DimAxes {
        self.sequences.iter().chain(&self.heads).copied().collect()
    }
}

/// The words of a part's state: those of the draw, its first sequence and its first head.
const WORDS: usize = plain::STATE_WORDS + 2;
