//! Sharing: run-time scalars that are equal and have the same role share one input.
//!
//! An optimizer multiplies every parameter by the same few numbers, each recorded on its own. Separate inputs are costly:
//! in the AdamW step of a small GPT on a TPU v5e, 694 of them took 8.5 of 17 MiB of temporaries. The caller must check at
//! every run that the shared ones are still equal.
//!
//! Roles come from ops and operands alone, which the program's identity covers; labels do not count.

use crate::{Builder, DType, Graph, NodeId, Op, Program, Result};
use std::collections::{BTreeMap, HashMap};

/// What a scalar is used for: each op that combines it with a value, and the ops that the value comes from. Two numbers
/// that are equal by chance (a learning rate of 0.001 and Adam's 1 - 0.999) differ in it.
type Role = Vec<Use>;

/// One op that combines a scalar with a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Use {
    op: &'static str,
    /// Which operand the scalar is.
    operand: usize,
    /// The op that computes the value. Where the scalar is combined with other scalars only, it is the op that reads the
    /// result, so that the low and the high words of a random draw's state differ: both counters begin at zero.
    value: &'static str,
}

impl Program {
    /// Returns the slots that may share another one's input: pairs of a slot and the first slot with the same element type,
    /// bits and role, both by `index`, in node order.
    pub fn twins(&self, bits: impl Fn(u32) -> Option<u64>) -> Vec<(u32, u32)> {
        let mut roles = roles(self.graph());
        let mut first: HashMap<(DType, u64, Role), u32> = HashMap::new();
        let mut twins = Vec::new();
        for node in self.graph().nodes() {
            let Op::Slot { index, dtype } = node.op else { continue };
            let Some(bits) = bits(index) else { continue };
            let Some(role) = roles.remove(&index) else { continue };
            match *first.entry((dtype, bits, role)).or_insert(index) {
                same if same == index => (),
                other => twins.push((index, other)),
            }
        }
        twins
    }

    /// Returns the program with one slot for all those that `first` (by `index`) maps to the same one.
    ///
    /// # Errors
    /// Never, for slots that [`Program::twins`] pairs.
    pub fn share(&self, first: impl Fn(u32) -> u32) -> Result<Self> {
        let mut kept: HashMap<u32, NodeId> = HashMap::new();
        self.rewrite(|graph, _, node, operands| {
            let Op::Slot { index, dtype } = node.op else { return graph.add(node.op.clone(), operands) };
            let index = first(index);
            match kept.get(&index) {
                Some(&id) => Ok(id),
                None => {
                    let id = graph.add(Op::Slot { index, dtype }, &[])?;
                    kept.insert(index, id);
                    Ok(id)
                }
            }
        })
    }
}

/// Returns the role of every slot that is combined with something.
fn roles(graph: &Graph) -> BTreeMap<u32, Role> {
    let mut roles: BTreeMap<u32, Role> = BTreeMap::new();
    let mut readers: Vec<&'static str> = vec![""; graph.len()];
    for node in graph.nodes() {
        node.operands.iter().for_each(|id| readers[id.index()] = node.op.mnemonic());
    }
    // The slot that a node is a copy of: the slot itself, broadcast or converted.
    let mut copies: Vec<Option<u32>> = Vec::with_capacity(graph.len());
    for (place, node) in graph.nodes().iter().enumerate() {
        let copy_of = |id: &NodeId| copies[id.index()];
        let copied = match (&node.op, &node.operands[..]) {
            (Op::Slot { index, .. }, _) => Some(*index),
            (Op::BroadcastInDim { .. } | Op::Convert { .. } | Op::Reshape { .. }, [only]) => copy_of(only),
            (op, operands) => {
                let value = operands.iter().find(|id| copy_of(id).is_none());
                let value = value.map_or(readers[place], |&id| graph.node(id).op.mnemonic());
                for (operand, slot) in operands.iter().map(copy_of).enumerate() {
                    let Some(slot) = slot else { continue };
                    roles.entry(slot).or_default().push(Use { op: op.mnemonic(), operand, value });
                }
                None
            }
        };
        copies.push(copied);
    }
    roles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::BinaryOp;
    use crate::{TensorType, verify};

    /// `x * s0 + y * s1`, and `(x + s2)`: all slots f32.
    fn scaled() -> Program {
        let mut graph = Graph::new();
        let ty = TensorType::new(DType::F32, [3]);
        let [x, y] = [0, 1].map(|index| graph.add(Op::Parameter { index, ty: ty.clone() }, &[]).unwrap());
        let slots = [0, 1, 2].map(|index| {
            let slot = graph.add(Op::Slot { index, dtype: DType::F32 }, &[]).unwrap();
            graph.broadcast_to(slot, &[3]).unwrap()
        });
        let mut apply = |op, a, b| graph.binary(op, a, b).unwrap();
        let (a, b) = (apply(BinaryOp::Mul, x, slots[0]), apply(BinaryOp::Mul, y, slots[1]));
        let (sum, moved) = (apply(BinaryOp::Add, a, b), apply(BinaryOp::Add, x, slots[2]));
        Program::extract(&graph, &[sum, moved]).unwrap()
    }

    #[test]
    fn equal_scalars_in_one_role_are_twins_and_share_a_slot() {
        let program = scaled();
        let twins = program.twins(|_| Some(7));
        assert_eq!(twins, [(1, 0)], "the one that is added has another role");
        let shared = program.share(|index| if index == 1 { 0 } else { index }).unwrap();
        verify(&shared).unwrap();
        assert_eq!(shared.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [0, 2]);
    }

    /// `concatenate(s0, s1) + (concatenate(s2, s3) << 32)`, the state of a random draw.
    #[test]
    fn the_words_of_a_random_state_have_roles_of_their_own() {
        let mut graph = Graph::new();
        let words = [0, 1, 2, 3].map(|index| {
            let slot = graph.add(Op::Slot { index, dtype: DType::U64 }, &[]).unwrap();
            graph.reshape(slot, &[1]).unwrap()
        });
        let low = graph.concatenate(&words[..2], 0).unwrap();
        let high = graph.concatenate(&words[2..], 0).unwrap();
        let width = graph.splat(DType::U64, &[2], 32i64).unwrap();
        let high = graph.binary(BinaryOp::ShiftLeft, high, width).unwrap();
        let state = graph.binary(BinaryOp::Or, high, low).unwrap();
        let program = Program::extract(&graph, &[state]).unwrap();
        assert_eq!(program.twins(|_| Some(0)), []);
    }

    #[test]
    fn scalars_that_differ_are_none() {
        assert_eq!(scaled().twins(|index| Some(u64::from(index))), []);
        assert_eq!(scaled().twins(|_| None), []);
    }
}
