//! The op that made the first NaN or infinity, from the classes of all values.
//!
//! The search begins at the results that are not finite, and follows operands of the same class: no other node has to do
//! with the result. An infinity that is a number, a constant or an element of an argument is *given*. Results that are
//! infinite because of given infinities alone are intended: masks.

use super::Class;
use burn_tpu_graph::{Graph, NodeId};

/// A node where values of a class begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: NodeId,
    /// Whether the node computes nothing: it is a number or an argument of the program.
    pub(crate) is_given: bool,
}

/// The op that made a NaN or an infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) class: Class,
    pub(crate) origin: Origin,
    /// For a NaN that was computed from an infinity: where that begins.
    pub(crate) infinity: Option<Origin>,
}

/// Why a program's results are not finite, or that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Diagnosis {
    /// An op made the first value that is not finite.
    Culprit(Culprit),
    /// Some results are infinite because the user gave infinities.
    Intended,
    /// All results are finite.
    Finite,
}

impl Diagnosis {
    /// Returns the diagnosis of a program from the classes of all its nodes.
    pub(crate) fn of(graph: &Graph, results: &[NodeId], classes: &[Class]) -> Self {
        let of_class = |nodes: &[NodeId], class| {
            nodes.iter().copied().filter(|id| classes[id.index()] == class).collect::<Vec<NodeId>>()
        };
        let nans = of_class(results, Class::Nan);
        if let Some(origin) = origin(graph, classes, nans, Class::Nan) {
            let infinite = of_class(&graph.node(origin.node).operands, Class::Infinite);
            let infinity = self::origin(graph, classes, infinite, Class::Infinite);
            return Self::Culprit(Culprit { class: Class::Nan, origin, infinity });
        }
        let infinite = of_class(results, Class::Infinite);
        match origin(graph, classes, infinite, Class::Infinite) {
            Some(Origin { is_given: true, .. }) => Self::Intended,
            Some(origin) => Self::Culprit(Culprit { class: Class::Infinite, origin, infinity: None }),
            None => Self::Finite,
        }
    }
}

/// Returns the first origin of these nodes, which are of a class. An origin that was computed comes before all given ones.
fn origin(graph: &Graph, classes: &[Class], mut waiting: Vec<NodeId>, class: Class) -> Option<Origin> {
    let mut seen = vec![false; graph.len()];
    let mut first: Option<Origin> = None;
    while let Some(id) = waiting.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let node = graph.node(id);
        let before = waiting.len();
        waiting.extend(node.operands.iter().copied().filter(|operand| classes[operand.index()] == class));
        if waiting.len() == before {
            let found = Origin { node: id, is_given: node.op.is_leaf() };
            let is_earlier = |first: Origin| (found.is_given, id) < (first.is_given, first.node);
            if first.is_none_or(is_earlier) {
                first = Some(found);
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::op::{BinaryOp, UnaryOp};
    use burn_tpu_graph::{Builder, DType, Op, TensorType};

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

    fn diagnosis(results: &[u32], classes: [Class; 6]) -> Diagnosis {
        Diagnosis::of(&graph(), &results.iter().copied().map(NodeId).collect::<Vec<_>>(), &classes)
    }

    fn made(class: Class, node: u32, is_given: bool, infinity: Option<(u32, bool)>) -> Diagnosis {
        let origin = |(node, is_given)| Origin { node: NodeId(node), is_given };
        Diagnosis::Culprit(Culprit { class, origin: origin((node, is_given)), infinity: infinity.map(origin) })
    }

    #[test]
    fn the_first_op_without_a_nan_among_its_operands_made_it() {
        assert_eq!(diagnosis(&[3, 5], [Finite, Finite, Nan, Nan, Finite, Finite]), made(Nan, 2, false, None));
        assert_eq!(diagnosis(&[3, 5], [Nan, Finite, Nan, Nan, Nan, Nan]), made(Nan, 0, true, None));
    }

    #[test]
    fn a_nan_of_infinities_names_the_one_that_was_made() {
        let classes = [Finite, Infinite, Infinite, Nan, Finite, Infinite];
        assert_eq!(diagnosis(&[3, 5], classes), made(Nan, 3, false, Some((2, false))));
        let given = [Finite, Infinite, Finite, Nan, Finite, Infinite];
        assert_eq!(diagnosis(&[3, 5], given), made(Nan, 3, false, Some((1, true))));
    }

    #[test]
    fn given_infinities_are_no_mistake_and_hide_none() {
        assert_eq!(diagnosis(&[3, 5], [Finite, Infinite, Finite, Infinite, Finite, Infinite]), Diagnosis::Intended);
        let overflow = [Finite, Infinite, Finite, Infinite, Infinite, Infinite];
        assert_eq!(diagnosis(&[3, 5], overflow), made(Infinite, 4, false, None));
        assert_eq!(diagnosis(&[3], overflow), Diagnosis::Intended, "no result needs the overflow");
        assert_eq!(diagnosis(&[3, 5], [Finite; 6]), Diagnosis::Finite);
    }
}
