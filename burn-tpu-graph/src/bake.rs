//! Baking: offsets that do not change become constants, and the slices that they made dynamic become static again.
//!
//! A static slice is a view or part of a fusion, a dynamic one often a copy. So an offset is passed at run time only in
//! programs in which it has changed.

use crate::op::SliceAttrs;
use crate::{Builder, Dims, Graph, Literal, LiteralData, Node, NodeId, Op, Program, Result, TensorType};

impl Program {
    /// The offsets that the program reads, by `index`, in node order.
    pub fn offsets(&self) -> impl Iterator<Item = u32> {
        self.graph().nodes().iter().filter_map(|node| match node.op {
            Op::Offset { index, .. } => Some(index),
            _ => None,
        })
    }

    /// The program with constants for the offsets that `value` gives bits for (by `index`); the others stay run-time
    /// scalars.
    ///
    /// # Errors
    /// Never, for a program that the verifier accepts.
    pub fn bake(&self, value: impl Fn(u32) -> Option<u64>) -> Result<Self> {
        self.rewrite(|graph, _, node, operands| match &node.op {
            Op::Offset { index, dtype } => match value(*index) {
                Some(bits) => {
                    graph.constant(Literal { ty: TensorType::scalar(*dtype), data: LiteralData::Splat(bits) })
                }
                None => graph.add(node.op.clone(), operands),
            },
            Op::DynamicSlice { sizes } => dynamic_slice(graph, node, operands, sizes),
            op => graph.add(op.clone(), operands),
        })
    }
}

/// A dynamic slice, static if all of its starts are constants.
fn dynamic_slice(graph: &mut Graph, node: &Node, operands: &[NodeId], sizes: &[usize]) -> Result<NodeId> {
    let starts: Option<Vec<i64>> = operands[1..].iter().map(|&start| constant(graph, start)).collect();
    let Some(starts) = starts else { return graph.add(node.op.clone(), operands) };
    // As at run time: a start clamps so that the slice fits.
    let clamp = |(d, start): (usize, i64)| start.clamp(0, (graph.ty(operands[0]).dims[d] - sizes[d]) as i64) as usize;
    let start: Dims = starts.into_iter().enumerate().map(clamp).collect();
    let limit: Dims = start.iter().zip(sizes).map(|(start, size)| start + size).collect();
    let attrs = SliceAttrs { start, limit, stride: Dims::from_elem(1, sizes.len()) };
    graph.add(Op::Slice(Box::new(attrs)), &operands[..1])
}

/// The value of an integer scalar constant.
fn constant(graph: &Graph, id: NodeId) -> Option<i64> {
    let Op::Constant(literal) = &graph.node(id).op else { return None };
    let LiteralData::Splat(bits) = literal.data else { return None };
    let unused = 64 - 8 * literal.ty.dtype.size_bytes() as u32;
    let value = (bits << unused) as i64;
    Some(if literal.ty.dtype.is_signed_int() { value >> unused } else { bits as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, verify};

    /// A slice `[2, 3]` of `f32[4, 5]` at two offsets.
    fn sliced() -> Program {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [4, 5]) }, &[]).unwrap();
        let starts = [0, 1].map(|index| graph.add(Op::Offset { index, dtype: DType::I32 }, &[]).unwrap());
        let taken = graph.dynamic_slice(x, &starts, &[2, 3]).unwrap();
        Program::extract(&graph, &[taken]).unwrap()
    }

    #[test]
    fn offsets_that_do_not_change_make_a_static_slice() {
        let baked = sliced().bake(|index| Some([1, 2][index as usize])).unwrap();
        verify(&baked).unwrap();
        assert_eq!(baked.offsets().count(), 0);
        assert!(baked.to_string().contains("slice %0 {start = [1, 2], limit = [3, 5], stride = [1, 1]}"), "{baked}");
    }

    #[test]
    fn starts_clamp_as_they_do_at_run_time() {
        let baked = sliced().bake(|index| Some([u64::from(u32::MAX), 9][index as usize])).unwrap();
        assert!(baked.to_string().contains("start = [0, 2], limit = [2, 5]"), "{baked}");
    }

    #[test]
    fn an_offset_that_changes_stays_an_input() {
        let baked = sliced().bake(|index| (index == 0).then_some(1)).unwrap();
        verify(&baked).unwrap();
        assert_eq!(baked.offsets().collect::<Vec<_>>(), [1]);
        assert_eq!(baked.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [1]);
        assert!(baked.to_string().contains("dynamic_slice"), "{baked}");
    }
}
