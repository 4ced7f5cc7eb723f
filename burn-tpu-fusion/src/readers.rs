//! Who reads each value of a program, for passes that change a value with one reader.

use burn_tpu_graph::{NodeId, Program};

/// Who reads a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    Nobody,
    One(NodeId),
    /// Two ops, in the order of the program.
    Two([NodeId; 2]),
    /// More ops, or who runs the program.
    Many,
}

impl Readers {
    /// Returns who reads each node.
    pub(crate) fn all(program: &Program) -> Vec<Self> {
        let mut readers = vec![Self::Nobody; program.graph().len()];
        for (reader, node) in program.graph().nodes().iter().enumerate() {
            let reader = NodeId(reader as u32);
            for operand in &node.operands {
                let known = &mut readers[operand.index()];
                *known = match *known {
                    Self::Nobody => Self::One(reader),
                    Self::One(last) | Self::Two([_, last]) if last == reader => *known,
                    Self::One(first) => Self::Two([first, reader]),
                    Self::Two(_) | Self::Many => Self::Many,
                };
            }
        }
        program.outputs().iter().for_each(|output| readers[output.index()] = Self::Many);
        readers
    }
}
