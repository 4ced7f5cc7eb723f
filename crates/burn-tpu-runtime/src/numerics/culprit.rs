//! The op that made the first NaN or infinity, from the classes of all values.
//!
//! The search begins at the results that are not finite, and follows operands of the same class: what is not on such a way
//! has nothing to do with the result. An infinity that was put there (a number, a constant, an element of an argument) is
//! *given*. It was made by nobody, so results that are infinite because of given infinities alone are meant to be so: masks.

use super::Class;
use burn_tpu_graph::{Graph, NodeId, Op};

/// The op that made a NaN or an infinity, as a node of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) class: Class,
    pub(crate) node: NodeId,
    /// Whether it was not made: it is a number or an argument of the program.
    pub(crate) is_given: bool,
    /// Of a NaN that came from an infinity: the node that made that, and whether it was given.
    pub(crate) infinity: Option<(NodeId, bool)>,
}

/// What the classes of a program's values say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Made(Culprit),
    /// Some results are infinite, because the user gave infinities.
    Meant,
    /// All results are finite.
    Finite,
}

impl Verdict {
    /// Returns who made the first value that is not finite, in the order of the recording.
    pub(crate) fn of(graph: &Graph, results: &[NodeId], classes: &[Class]) -> Self {
        let search = Search { graph, classes };
        let of_class = |class| results.iter().copied().filter(move |id| classes[id.index()] == class);
        if let Some((node, is_given)) = search.origin(of_class(Class::Nan), Class::Nan) {
            let infinite = graph.node(node).operands.iter().copied();
            let infinite = infinite.filter(|id| classes[id.index()] == Class::Infinite);
            let infinity = search.origin(infinite, Class::Infinite);
            return Self::Made(Culprit { class: Class::Nan, node, is_given, infinity });
        }
        match search.origin(of_class(Class::Infinite), Class::Infinite) {
            Some((node, false)) => {
                Self::Made(Culprit { class: Class::Infinite, node, is_given: false, infinity: None })
            }
            Some((_, true)) => Self::Meant,
            None => Self::Finite,
        }
    }
}

struct Search<'g> {
    graph: &'g Graph,
    classes: &'g [Class],
}

impl Search<'_> {
    /// Returns the first node that made what is of a class at these nodes, and whether it was given. One that made it comes
    /// before all that were given.
    fn origin(&self, from: impl Iterator<Item = NodeId>, class: Class) -> Option<(NodeId, bool)> {
        let mut seen = vec![false; self.graph.len()];
        let mut waiting: Vec<NodeId> = from.collect();
        let mut origins = Vec::new();
        while let Some(id) = waiting.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let node = self.graph.node(id);
            let before = waiting.len();
            waiting.extend(node.operands.iter().copied().filter(|id| self.classes[id.index()] == class));
            if waiting.len() == before {
                origins.push((is_given(&node.op), id));
            }
        }
        origins.into_iter().min().map(|(is_given, id)| (id, is_given))
    }
}

/// Returns whether a node computes nothing: it is what the program was given.
fn is_given(op: &Op) -> bool {
    matches!(op, Op::Parameter { .. } | Op::Slot { .. } | Op::Offset { .. } | Op::Constant(_) | Op::Iota { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::{BinaryOp, UnaryOp};
    use burn_tpu_graph::{Builder, DType, TensorType};

    use Class::{Finite, Infinite, Nan};

    /// `[x, mask, log x, mask + log x, exp x, exp x - mask]`.
    fn graph() -> Graph {
        let mut g = Graph::new();
        let ty = TensorType::new(DType::F32, [4]);
        let [x, mask] = [0, 1].map(|index| g.add(Op::Parameter { index, ty: ty.clone() }, &[]).unwrap());
        let log = g.unary(UnaryOp::Log, x).unwrap();
        g.binary(BinaryOp::Add, mask, log).unwrap();
        let exp = g.unary(UnaryOp::Exp, x).unwrap();
        g.binary(BinaryOp::Sub, exp, mask).unwrap();
        g
    }

    fn verdict(results: &[u32], classes: [Class; 6]) -> Verdict {
        Verdict::of(&graph(), &results.iter().copied().map(NodeId).collect::<Vec<_>>(), &classes)
    }

    fn made(class: Class, node: u32, is_given: bool, infinity: Option<(u32, bool)>) -> Verdict {
        let infinity = infinity.map(|(node, is_given)| (NodeId(node), is_given));
        Verdict::Made(Culprit { class, node: NodeId(node), is_given, infinity })
    }

    #[test]
    fn the_first_op_without_a_nan_among_its_operands_made_it() {
        assert_eq!(verdict(&[3, 5], [Finite, Finite, Nan, Nan, Finite, Finite]), made(Nan, 2, false, None));
        assert_eq!(verdict(&[3, 5], [Nan, Finite, Nan, Nan, Nan, Nan]), made(Nan, 0, true, None));
    }

    #[test]
    fn a_nan_of_infinities_names_the_one_that_was_made() {
        let classes = [Finite, Infinite, Infinite, Nan, Finite, Infinite];
        assert_eq!(verdict(&[3, 5], classes), made(Nan, 3, false, Some((2, false))));
        let given = [Finite, Infinite, Finite, Nan, Finite, Infinite];
        assert_eq!(verdict(&[3, 5], given), made(Nan, 3, false, Some((1, true))));
    }

    #[test]
    fn given_infinities_are_no_mistake_and_hide_none() {
        assert_eq!(verdict(&[3, 5], [Finite, Infinite, Finite, Infinite, Finite, Infinite]), Verdict::Meant);
        let overflow = [Finite, Infinite, Finite, Infinite, Infinite, Infinite];
        assert_eq!(verdict(&[3, 5], overflow), made(Infinite, 4, false, None));
        assert_eq!(verdict(&[3], overflow), Verdict::Meant, "no result needs the overflow");
        assert_eq!(verdict(&[3, 5], [Finite; 6]), Verdict::Finite);
    }
}
