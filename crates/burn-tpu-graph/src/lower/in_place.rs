//! Layouts of what loops update in place, such as caches of keys and values.
//!
//! Owns: which values of a loop's body get the layout of an argument, and which layout that is. May not know: what computes
//! the arguments.
//!
//! libtpu chooses the layouts in a loop by the ops of its body, and copies a carry before and after the loop where its
//! argument has another one. For a cache that a row is written to it chooses the row's, though all else reads the cache, so
//! it also copies what it reads. Here, the updates of such a carry keep the layout of the argument.

use super::printer::{Block, Statement, Value, array_of};
use super::{Argument, Op, Program};
use crate::op::MemorySpace;
use crate::{NodeId, TensorType};
use rustc_hash::FxHashMap;

/// The order of dims in memory, from the one whose elements are next to each other to the one that is outermost.
type Layout = Vec<usize>;

/// The layouts of nodes of a program, and of the bodies of its loops.
#[derive(Default)]
pub(super) struct Layouts {
    nodes: FxHashMap<NodeId, Layout>,
    /// Those of a loop's body, for each loop.
    bodies: FxHashMap<NodeId, Layouts>,
}

impl Layouts {
    /// Returns those of a program with these arguments.
    pub(super) fn of(program: &Program, arguments: &[Argument]) -> Self {
        let mut layouts = Self::default();
        for id in program.graph().ids() {
            let node = program.graph().node(id);
            let Op::For { body, .. } = &node.op else { continue };
            let nodes = &mut layouts.bodies.entry(id).or_default().nodes;
            for (carry, &operand) in node.operands.iter().enumerate().take(body.outputs().len()) {
                if let Some(ty) = updated_argument(program, operand, arguments) {
                    nodes.extend(body.updates_in_place(carry).into_iter().map(|update| (update, layout(&ty))));
                }
            }
        }
        layouts
    }

    /// Returns those of the body of a loop.
    pub(super) fn of_body(&mut self, of: NodeId) -> Self {
        self.bodies.remove(&of).unwrap_or_default()
    }

    /// Returns a value with the layout of the node that it is.
    pub(super) fn kept(&self, block: &mut Block, id: NodeId, value: Value) -> Value {
        let Some(layout) = self.nodes.get(&id) else { return value };
        let (ty, layouts) = (value.ty.clone(), array_of([attribute(layout)]));
        let statement = Statement::new("stablehlo.custom_call", [value])
            .attr("call_target_name", "\"LayoutConstraint\"")
            .attr("operand_layouts", &layouts)
            .attr("result_layouts", &layouts);
        block.push(&statement, ty)
    }
}

/// Returns the type of a device's part of an argument whose memory a result takes.
fn updated_argument(program: &Program, operand: NodeId, arguments: &[Argument]) -> Option<TensorType> {
    let Op::Parameter { index: wanted, .. } = program.graph().node(operand).op else { return None };
    let is_updated = |argument: &&Argument| match **argument {
        Argument::Parameter { index, result: Some(_), memory: MemorySpace::Device, .. } => index == wanted,
        _ => false,
    };
    arguments.iter().find(is_updated).map(|argument| argument.local(program))
}

/// Returns the layout that libtpu gives an argument: row-major, with the last two dims exchanged where that needs less
/// memory, since the last one is padded to 128 elements and the one before it to 8 (seen of libtpu 0.0.51, for values of
/// several rows in each tile).
fn layout(ty: &TensorType) -> Layout {
    let mut layout: Layout = (0..ty.rank()).rev().collect();
    if let [.., rows, lanes] = ty.dims[..] {
        let padded = |rows: usize, lanes: usize| rows.next_multiple_of(8) * lanes.next_multiple_of(128);
        if padded(lanes, rows) < padded(rows, lanes) {
            layout.swap(0, 1);
        }
    }
    layout
}

/// Returns the attribute of a layout.
pub(super) fn attribute(layout: &[usize]) -> String {
    match layout.len() {
        0 => "dense<> : tensor<0xindex>".to_owned(),
        rank => format!("dense<{}> : tensor<{rank}xindex>", array_of(layout)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, DType, Graph, LowerOptions, lower_with};

    /// A loop that writes a row to each part of a cache, in two updates, and sums the part.
    fn looped(dims: [usize; 3]) -> Program {
        let g = &mut Graph::new();
        let cache = g.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
        let sums = g.splat(DType::F32, &[1], 0i64).unwrap();
        let [cache, sums] = g
            .for_loop(3, [cache, sums], |body, trip, [mut cache, sums]| {
                let zero = body.scalar(DType::I32, 0i64)?;
                for row in 0..2 {
                    let (row, value) =
                        (body.scalar(DType::I32, row as i64)?, body.splat(DType::F32, &[1, 1, dims[2]], 1i64)?);
                    cache = body.dynamic_update_slice(cache, value, &[trip, row, zero])?;
                }
                let part = body.dynamic_slice(cache, &[trip, zero, zero], &[1, dims[1], dims[2]])?;
                let sum = body.reduce(crate::op::Combine::Sum, part, &[1, 2])?;
                Ok([cache, body.binary(crate::op::BinaryOp::Add, sums, sum)?])
            })
            .unwrap();
        Program::extract(g, &[cache, sums]).unwrap()
    }

    #[test]
    fn updates_of_an_argument_in_a_loop_keep_its_layout() {
        let tpu = LowerOptions { kernels: true, ..LowerOptions::default() };
        let text = |dims, options| lower_with(&looped(dims), options).unwrap().text;
        assert!(!text([3, 16, 128], LowerOptions::default()).contains("LayoutConstraint"));
        assert!(!text([3, 16, 128], LowerOptions { keeps_arguments: true, ..tpu }).contains("LayoutConstraint"));
        for (dims, layout) in [([3, 16, 128], "dense<[2, 1, 0]>"), ([3, 256, 64], "dense<[1, 2, 0]>")] {
            let text = text(dims, tpu);
            assert_eq!(text.matches("LayoutConstraint").count(), 2, "{text}");
            assert_eq!(text.matches(layout).count(), 4, "{text}");
        }
    }
}
