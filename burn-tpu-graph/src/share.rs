//! Sharing: run-time scalars that are equal and play the same part travel as one.
//!
//! An optimizer multiplies every parameter by the same few numbers, each recorded on its own. As inputs of their own they
//! cost: in the AdamW step of a small GPT on a TPU v5e, 694 of them took 8.5 of 17 MiB of temporaries. Whoever shares
//! must see to it, at every run, that the shared ones are still equal.

use crate::{DType, Graph, Label, NodeId, Op, Program, Result};
use std::collections::{BTreeMap, HashMap};

/// What a scalar is used for: for each op that combines it with a value, the op's name, its label and the label of that
/// value. Two numbers that are equal by chance (a learning rate of 0.001 and Adam's 1 - 0.999) differ in it.
type Role = Vec<(&'static str, Label, Label)>;

impl Program {
    /// Slots that may travel as another one: pairs of a slot and the first slot with the same element type, bits and
    /// role, both by `index` among the trace's slots, in node order.
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

    /// The program with one slot for each of those that `first` (by `index`) maps to the same one.
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

/// The role of every slot that is combined with something.
fn roles(graph: &Graph) -> BTreeMap<u32, Role> {
    let mut roles: BTreeMap<u32, Role> = BTreeMap::new();
    // The slot that a node is a copy of: itself, broadcast or converted.
    let mut copies: Vec<Option<u32>> = Vec::with_capacity(graph.len());
    for (i, node) in graph.nodes().iter().enumerate() {
        let copy_of = |id: &NodeId| copies[id.index()];
        let copied = match (&node.op, &node.operands[..]) {
            (Op::Slot { index, .. }, _) => Some(*index),
            (Op::BroadcastInDim { .. } | Op::Convert { .. } | Op::Reshape { .. }, [only]) => copy_of(only),
            (_, operands) => {
                let value = operands.iter().find(|id| copy_of(id).is_none());
                let value = value.map_or("", |&id| graph.label(id));
                for slot in operands.iter().filter_map(copy_of) {
                    let part = (node.op.mnemonic(), graph.label(NodeId(i as u32)), value);
                    roles.entry(slot).or_default().push(part);
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
        assert_eq!(twins, [(1, 0)], "the one that is added plays another part");
        let shared = program.share(|index| if index == 1 { 0 } else { index }).unwrap();
        verify(&shared).unwrap();
        assert_eq!(shared.slots().map(|(_, index, _)| index).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn scalars_that_differ_are_none() {
        assert_eq!(scaled().twins(|index| Some(u64::from(index))), []);
        assert_eq!(scaled().twins(|_| None), []);
    }
}
