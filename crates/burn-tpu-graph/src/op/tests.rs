//! The op table against inference: what the rules say of axes agrees with the sizes of every node of the corpus. What they
//! say of elements is tested in the interpreter (`axis_tests.rs`).

use super::*;
use crate::{Builder, Graph, Node, NodeId, corpus};
use std::collections::BTreeSet;
use std::ops::Range;

/// Calls `check` with every node of the corpus, those in loops and in plain forms included.
fn each_node(check: &mut impl FnMut(&Graph, &Node)) {
    fn walk(program: &Program, check: &mut impl FnMut(&Graph, &Node)) {
        for node in program.graph().nodes() {
            check(program.graph(), node);
            match &node.op {
                Op::For { body, .. } => walk(body, check),
                Op::CustomCall(call) => {
                    walk(call.plain(), check);
                    call.parts().into_iter().for_each(|parts| walk(parts.part(), check));
                }
                _ => {}
            }
        }
    }
    corpus::cases().unwrap().iter().for_each(|case| walk(&case.program, check));
}

/// Checks the rule of an axis against the sizes of the operand and of one result.
fn check_sizes(rule: &AxisRule, axis: usize, operand: &[usize], result: &[usize]) {
    let size = operand[axis];
    match rule {
        AxisRule::Kept(to) | AxisRule::Reversed(to) => assert_eq!(size, result[*to]),
        AxisRule::Repeated(to) => assert!(size == 1 && *to < result.len()),
        AxisRule::Dropped => assert_eq!(size, 1),
        AxisRule::Regrouped { from, to } => {
            assert!(from.contains(&axis));
            assert_eq!(operand[from.clone()].iter().product::<usize>(), result[to.clone()].iter().product());
        }
        AxisRule::Joined(to) | AxisRule::Placed(to) => assert!(size <= result[*to]),
        AxisRule::Sliced(to) | AxisRule::Ordered(to) => assert!(size >= result[*to]),
        AxisRule::Padded(to) | AxisRule::Windowed(to, _) | AxisRule::Transformed(to) => assert!(*to < result.len()),
        AxisRule::Addressed(to) => assert!(to.is_none_or(|to| result[to] <= size)),
        AxisRule::Reduced(_) | AxisRule::Scattered(_) | AxisRule::Components | AxisRule::Opaque => {}
    }
}

/// Returns the axes of the result that a rule names.
fn named(rule: &AxisRule) -> Range<usize> {
    match rule {
        AxisRule::Kept(to)
        | AxisRule::Repeated(to)
        | AxisRule::Reversed(to)
        | AxisRule::Sliced(to)
        | AxisRule::Padded(to)
        | AxisRule::Joined(to)
        | AxisRule::Windowed(to, _)
        | AxisRule::Addressed(Some(to))
        | AxisRule::Placed(to)
        | AxisRule::Ordered(to)
        | AxisRule::Transformed(to) => *to..*to + 1,
        AxisRule::Regrouped { to, .. } => to.clone(),
        AxisRule::Dropped
        | AxisRule::Reduced(_)
        | AxisRule::Addressed(None)
        | AxisRule::Scattered(_)
        | AxisRule::Components
        | AxisRule::Opaque => 0..0,
    }
}

#[test]
fn the_rules_of_axes_agree_with_the_sizes_of_the_results() {
    let mut rules_seen = BTreeSet::new();
    each_node(&mut |graph, node| {
        for position in 0..node.operands.len() {
            let operand = &graph.ty(node.operands[position]).dims;
            let rules = graph.axis_rules(node, position);
            assert_eq!(rules.len(), operand.len(), "{node:?}");
            for (axis, rule) in rules.iter().enumerate() {
                (0..node.results()).for_each(|i| {
                    check_sizes(rule, axis, operand, &node.result_type(i).unwrap().dims);
                });
                let text = format!("{rule:?}");
                rules_seen.insert(text.split(['(', ' ']).next().unwrap().to_owned());
            }
            // Two axes of an operand are the same axis of the result in a reshape alone.
            let axes: Vec<usize> = rules.iter().filter(|rule| !is_regrouped(rule)).flat_map(named).collect();
            assert_eq!(axes.iter().collect::<BTreeSet<_>>().len(), axes.len(), "{node:?}: {rules:?}");
        }
    });
    let missing: Vec<_> = RULES.into_iter().filter(|rule| !rules_seen.contains(*rule)).collect();
    assert!(missing.is_empty(), "no case of the corpus has {missing:?}");
}

#[rustfmt::skip]
const RULES: [&str; 17] = [
    "Kept", "Repeated", "Dropped", "Reduced", "Regrouped", "Reversed", "Sliced", "Padded", "Joined", "Windowed",
    "Addressed", "Placed", "Scattered", "Components", "Ordered", "Transformed", "Opaque",
];

fn is_regrouped(rule: &AxisRule) -> bool {
    matches!(rule, AxisRule::Regrouped { .. })
}

#[test]
fn element_wise_ops_keep_all_dims_and_leaves_have_no_operands() {
    each_node(&mut |graph, node| {
        let op = &node.op;
        if op.is_elementwise() {
            let same = |id: &NodeId| graph.ty(*id).dims == node.ty.dims;
            assert!(node.operands.iter().all(same), "{op:?}");
            (0..node.operands.len()).for_each(|position| {
                let kept = graph.axis_rules(node, position).into_iter().enumerate();
                kept.for_each(|(axis, rule)| assert_eq!(rule, AxisRule::Kept(axis), "{op:?}"));
            });
        }
        assert_eq!(op.is_leaf(), op.arity() == (0, 0), "{op:?}");
        if op.moves_all() {
            let given: usize = node.operands.iter().map(|&id| graph.ty(id).elements()).sum();
            assert!(matches!(op, Op::BroadcastInDim { .. }) || node.ty.elements() == given, "{op:?}");
        }
    });
}

/// Returns the index along each axis of the element at a row-major place.
fn indices(dims: &[usize], mut place: usize) -> Vec<usize> {
    let mut indices = vec![0; dims.len()];
    for (index, size) in indices.iter_mut().zip(dims).rev() {
        *index = place % size;
        place /= size;
    }
    indices
}

/// Returns the row-major place in a run of axes.
fn place(indices: &[usize], dims: &[usize]) -> usize {
    indices.iter().zip(dims).fold(0, |place, (index, size)| place * size + index)
}

#[test]
fn a_reshape_keeps_merges_and_splits_the_axes_that_it_says() {
    let mut shapes: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..4 {
        let longer = shapes.iter().flat_map(|dims| [1, 2, 3, 4, 6].map(|size| [dims.as_slice(), &[size]].concat()));
        shapes = shapes.iter().cloned().chain(longer).collect::<BTreeSet<_>>().into_iter().collect();
    }
    shapes.retain(|dims| [12, 24].contains(&dims.iter().product::<usize>()));
    let mut graph = Graph::new();
    for old in &shapes {
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, old) }, &[]).unwrap();
        for new in shapes.iter().filter(|new| new.iter().product::<usize>() == old.iter().product()) {
            let y = graph.add(Op::Reshape { dims: Dims::from_slice(new) }, &[x]).unwrap();
            let rules = graph.axis_rules(graph.node(y), 0);
            for (axis, rule) in rules.iter().enumerate() {
                check_sizes(rule, axis, old, new);
                for element in 0..old.iter().product() {
                    let (before, after) = (indices(old, element), indices(new, element));
                    match rule {
                        AxisRule::Kept(to) => assert_eq!(before[axis], after[*to], "{old:?} to {new:?}: {rules:?}"),
                        AxisRule::Regrouped { from, to } => {
                            let [from, to] = [from, to].map(Range::clone);
                            let before = place(&before[from.clone()], &old[from]);
                            assert_eq!(before, place(&after[to.clone()], &new[to]), "{old:?} to {new:?}: {rules:?}");
                        }
                        rule => assert_eq!(*rule, AxisRule::Dropped),
                    }
                }
            }
        }
        graph.clear();
    }
}

#[test]
fn a_reshape_of_no_elements_says_nothing() {
    let mut graph = Graph::new();
    let ty = TensorType::new(DType::F32, [0, 1, 3]);
    let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
    let y = graph.reshape(x, &[5, 0]).unwrap();
    let rules = graph.axis_rules(graph.node(y), 0);
    assert_eq!(rules[..], [AxisRule::Opaque, AxisRule::Dropped, AxisRule::Opaque]);
}
