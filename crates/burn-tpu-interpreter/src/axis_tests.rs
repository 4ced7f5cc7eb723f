//! The op table against the interpreter: what the table says of axes and elements is what the ops compute.
//!
//! Each node of the corpus is computed alone, on small whole numbers, whose sums do not depend on their order. Then its
//! operands are changed in a way that the table says a result of, and the bits are compared.

use super::{HostTensor, interpret};
use burn_tpu_graph::op::{AxisRule, AxisRules, Combine, OpKind, ScatterAttrs, ScatterMode};
use burn_tpu_graph::{Builder, DType, Dims, Graph, Node, NodeId, Number, Op, Program, TensorType, corpus};
use std::collections::BTreeSet;

/// A row-major array.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Array {
    ty: TensorType,
    elements: Vec<Vec<u8>>,
}

impl Array {
    /// Returns whole numbers from -3 to 3, those of unsigned types from 0.
    fn whole_numbers(ty: &TensorType, seed: usize) -> Self {
        let mut state = seed as u64 + 1;
        let mut next = |sizes: i64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i64 % sizes
        };
        let (part, parts) = if ty.dtype == DType::C64 { (DType::F32, 2) } else { (ty.dtype, 1) };
        let mut element = || {
            let mut bytes = Vec::new();
            for _ in 0..parts {
                let lowest = if part.is_float() || part.is_signed_int() { -3 } else { 0 };
                let number = Number::Int(lowest + next(if part == DType::Bool { 2 } else { 4 - lowest }));
                bytes.extend_from_slice(&number.bits(part).to_le_bytes()[..part.size_bytes()]);
            }
            bytes
        };
        Self { ty: ty.clone(), elements: (0..ty.elements()).map(|_| element()).collect() }
    }

    fn of(value: &HostTensor) -> Self {
        let elements = value.to_bytes().chunks(value.ty().dtype.size_bytes()).map(<[u8]>::to_vec).collect();
        Self { ty: value.ty().clone(), elements }
    }

    /// Returns the value of each parameter that the array is passed as: complex numbers are passed as two parts.
    fn parameters(&self) -> Vec<HostTensor> {
        if self.ty.dtype != DType::C64 {
            return vec![HostTensor::from_bytes(self.ty.clone(), self.elements.concat())];
        }
        let part = |range: std::ops::Range<usize>| {
            let bytes: Vec<u8> = self.elements.iter().flat_map(|element| element[range.clone()].to_vec()).collect();
            HostTensor::from_bytes(self.ty.with_dtype(DType::F32), bytes)
        };
        vec![part(0..4), part(4..8)]
    }

    /// Returns the array whose index `i` along an axis is index `index(i)` of this one.
    fn reordered(&self, axis: usize, index: impl Fn(usize) -> usize) -> Self {
        let (size, inner) = (self.ty.dims[axis], self.ty.dims[axis + 1..].iter().product::<usize>());
        let from = |place: usize| {
            let (outer, i, rest) = (place / (size * inner), place / inner % size, place % inner);
            self.elements[(outer * size + index(i)) * inner + rest].clone()
        };
        Self { ty: self.ty.clone(), elements: (0..self.elements.len()).map(from).collect() }
    }

    fn rotated(&self, axis: usize) -> Self {
        self.reordered(axis, |i| (i + 1) % self.ty.dims[axis])
    }

    fn reversed(&self, axis: usize) -> Self {
        self.reordered(axis, |i| self.ty.dims[axis] - 1 - i)
    }

    /// Returns the elements in the opposite order.
    fn backwards(&self) -> Self {
        Self { ty: self.ty.clone(), elements: self.elements.iter().rev().cloned().collect() }
    }

    /// Returns the array with one more index along an axis, of equal elements.
    fn extended(&self, axis: usize, bits: u64) -> Self {
        let mut ty = self.ty.clone();
        let (size, inner) = (ty.dims[axis], ty.dims[axis + 1..].iter().product::<usize>());
        ty.dims[axis] += 1;
        let added = bits.to_le_bytes()[..ty.dtype.size_bytes()].to_vec();
        let at = |place: usize| {
            let (outer, i, rest) = (place / ((size + 1) * inner), place / inner % (size + 1), place % inner);
            if i == size { added.clone() } else { self.elements[(outer * size + i) * inner + rest].clone() }
        };
        let elements = (0..ty.elements()).map(at).collect();
        Self { ty, elements }
    }
}

/// Computes all results of an op.
fn compute(op: &Op, operands: &[Array]) -> Vec<Array> {
    let mut graph = Graph::new();
    let (mut values, mut ids) = (Vec::new(), Vec::new());
    for operand in operands {
        let mut parts = Vec::new();
        for value in operand.parameters() {
            let op = Op::Parameter { index: values.len() as u32, ty: value.ty().clone() };
            parts.push(graph.add(op, &[]).expect("a real type"));
            values.push(Some(value));
        }
        ids.push(if let [re, im] = parts[..] { graph.complex(re, im).expect("two parts") } else { parts[0] });
    }
    let node = graph.add(op.clone(), &ids).expect("the op takes these operands");
    let results = 0..graph.node(node).results();
    let results: Vec<NodeId> =
        results.map(|index| graph.add(Op::GetResult { index }, &[node]).expect("a result")).collect();
    let program = Program::extract(&graph, &results).expect("results exist");
    let computed = interpret(&program, |index| values[index as usize].take(), &[]).expect("a checked op");
    computed.iter().map(Array::of).collect()
}

/// A node with values for its operands.
struct Case<'g> {
    node: &'g Node,
    /// The rule of each axis of each operand.
    rules: Vec<AxisRules>,
    operands: Vec<Array>,
}

impl Case<'_> {
    fn results(&self) -> Vec<Array> {
        compute(&self.node.op, &self.operands)
    }

    fn all_rules(&self) -> impl Iterator<Item = &AxisRule> {
        self.rules.iter().flatten()
    }

    /// Returns the operands, each changed along the axes whose rule `is_changed` accepts.
    fn changed(
        &self,
        is_changed: impl Fn(&AxisRule) -> bool,
        change: impl Fn(Array, usize, &AxisRule) -> Array,
    ) -> Vec<Array> {
        let changed = |(array, rules): (&Array, &AxisRules)| {
            let axes = rules.iter().enumerate().filter(|(_, rule)| is_changed(rule));
            axes.fold(array.clone(), |array, (axis, rule)| change(array, axis, rule))
        };
        self.operands.iter().zip(&self.rules).map(changed).collect()
    }
}

/// Returns a program of reshapes and updates that keep an axis, which the corpus has none of.
fn more() -> Program {
    let mut g = Graph::new();
    let mut parameter = |index: u32, ty| g.add(Op::Parameter { index, ty }, &[]).expect("a real type");
    let f32 = |dims: &[usize]| TensorType::new(DType::F32, dims);
    let (x, table, columns) = (parameter(0, f32(&[2, 3, 4])), parameter(1, f32(&[5, 4])), parameter(2, f32(&[5, 2])));
    let rows = parameter(3, f32(&[3, 4]));
    let (start, places) =
        (parameter(4, TensorType::scalar(DType::I32)), parameter(5, TensorType::new(DType::I32, [3, 1])));
    let merged = g.reshape(x, &[6, 4]).expect("24 elements");
    let split = g.reshape(merged, &[3, 2, 1, 4]).expect("24 elements");
    let updated = g.dynamic_update_slice(table, columns, &[start, start]).expect("two columns");
    let attrs = ScatterAttrs {
        update_window_dims: [1].into_iter().collect(),
        inserted_window_dims: [0].into_iter().collect(),
        input_batching_dims: Dims::new(),
        scatter_indices_batching_dims: Dims::new(),
        scatter_dims_to_operand_dims: [0].into_iter().collect(),
        index_vector_dim: 1,
        mode: ScatterMode::Combine(Combine::Sum),
    };
    let scattered = g.scatter(updated, places, rows, attrs).expect("rows of the table");
    Program::extract(&g, &[split, scattered]).expect("results exist")
}

/// Calls `check` with every node of the corpus that has operands, once for all nodes of an op on operands of the same types.
fn each_case(mut check: impl FnMut(&Case<'_>)) {
    let mut seen = BTreeSet::new();
    let programs = corpus::cases().expect("the corpus").into_iter().map(|case| case.program);
    for program in programs.chain([more()]) {
        let graph = program.graph();
        for node in graph.nodes() {
            let types: Vec<String> = node.operands.iter().map(|&id| graph.ty(id).to_string()).collect();
            // The results of several are tested with the op that has them.
            let is_alone = !node.operands.is_empty() && node.op.kind() != OpKind::Result;
            if is_alone && seen.insert(format!("{:?} {types:?}", node.op)) {
                let operands = node.operands.iter().enumerate();
                let operands = operands.map(|(i, &id)| Array::whole_numbers(graph.ty(id), i)).collect();
                let rules = (0..node.operands.len()).map(|position| graph.axis_rules(node, position)).collect();
                check(&Case { node, rules, operands });
            }
        }
    }
}

/// The axis of the result that a rule reorders or takes apart.
fn is_other_rule_of(rule: &AxisRule, axis: usize) -> bool {
    match rule {
        AxisRule::Kept(_) | AxisRule::Repeated(_) => false,
        AxisRule::Reversed(to)
        | AxisRule::Sliced(to)
        | AxisRule::Padded(to)
        | AxisRule::Joined(to)
        | AxisRule::Windowed(to, _)
        | AxisRule::Addressed(Some(to))
        | AxisRule::Placed(to)
        | AxisRule::Ordered(to)
        | AxisRule::Transformed(to) => *to == axis,
        AxisRule::Regrouped { to, .. } => to.contains(&axis),
        AxisRule::Opaque => true,
        AxisRule::Dropped
        | AxisRule::Reduced(_)
        | AxisRule::Addressed(None)
        | AxisRule::Scattered(_)
        | AxisRule::Components => false,
    }
}

#[test]
fn an_axis_that_is_kept_is_computed_index_by_index() {
    let mut kept = BTreeSet::new();
    each_case(|case| {
        for to in 0..case.node.ty.rank() {
            let is_kept = |rule: &AxisRule| *rule == AxisRule::Kept(to);
            if case.all_rules().any(|rule| is_other_rule_of(rule, to)) || !case.all_rules().any(is_kept) {
                continue;
            }
            let rotated = case.changed(is_kept, |array, axis, _| array.rotated(axis));
            let expected: Vec<Array> = case.results().iter().map(|result| result.rotated(to)).collect();
            assert_eq!(compute(&case.node.op, &rotated), expected, "axis {to} of {:?}: {:?}", case.node, case.rules);
            kept.insert(case.node.op.mnemonic());
        }
    });
    let moved = ["slice", "pad", "concatenate", "dynamic_slice", "dynamic_update_slice", "transpose", "reshape"];
    let others = ["dot_general", "convolution", "reduce", "reduce_window", "sort", "gather", "scatter", "fft"];
    let missing = moved.iter().chain(&others).filter(|name| !kept.contains(format!("stablehlo.{name}").as_str()));
    assert_eq!(missing.collect::<Vec<_>>(), [&""; 0], "no case of the corpus keeps an axis of these");
}

#[test]
fn an_axis_that_is_reduced_has_no_order_and_a_neutral_element() {
    let mut reduced = BTreeSet::new();
    each_case(|case| {
        let is_reduced = |rule: &AxisRule| matches!(rule, AxisRule::Reduced(_));
        if case.all_rules().any(|rule| *rule == AxisRule::Opaque) || !case.all_rules().any(is_reduced) {
            return;
        }
        let reversed = case.changed(is_reduced, |array, axis, _| array.reversed(axis));
        assert_eq!(compute(&case.node.op, &reversed), case.results(), "{:?}", case.node);
        let longer = case.changed(is_reduced, |array, axis, rule| {
            let AxisRule::Reduced(combine) = rule else { return array };
            let bits = combine.identity_bits(array.ty.dtype);
            array.extended(axis, bits)
        });
        assert_eq!(compute(&case.node.op, &longer), case.results(), "{:?}", case.node);
        reduced.insert(case.node.op.mnemonic());
    });
    let all = ["graph.arg_reduce", "stablehlo.convolution", "stablehlo.dot_general", "stablehlo.reduce"];
    assert_eq!(reduced.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn an_axis_under_a_window_has_a_neutral_element() {
    let mut windowed = BTreeSet::new();
    each_case(|case| {
        for axis in 0..case.operands[0].ty.rank() {
            let AxisRule::Windowed(_, combine) = case.rules[0][axis] else { continue };
            // One more index of the operand replaces as many places of padding.
            let mut op = case.node.op.clone();
            match &mut op {
                Op::ReduceWindow { window, .. } => window.padding[axis].1 -= window.base_dilation[axis] as isize,
                Op::Convolution(attrs) => {
                    let Some(i) = attrs.input.spatial.iter().position(|&spatial| spatial == axis) else { continue };
                    attrs.padding[i].1 -= attrs.lhs_dilation[i] as isize;
                }
                _ => continue,
            }
            let mut operands = case.operands.clone();
            let bits = combine.identity_bits(operands[0].ty.dtype);
            operands[0] = operands[0].extended(axis, bits);
            assert_eq!(compute(&op, &operands), case.results(), "axis {axis} of {:?}", case.node);
            windowed.insert(op.mnemonic());
        }
    });
    assert_eq!(windowed.into_iter().collect::<Vec<_>>(), ["stablehlo.convolution", "stablehlo.reduce_window"]);
}

#[test]
fn ops_that_keep_the_order_compute_each_element_from_those_at_its_place() {
    let mut kept = BTreeSet::new();
    each_case(|case| {
        if case.node.op.keeps_order() {
            let backwards: Vec<Array> = case.operands.iter().map(Array::backwards).collect();
            let expected: Vec<Array> = case.results().iter().map(Array::backwards).collect();
            assert_eq!(compute(&case.node.op, &backwards), expected, "{:?}", case.node);
            kept.insert(case.node.op.mnemonic());
        }
    });
    let few = ["select", "clamp", "compare", "convert", "bitcast_convert", "reshape", "real", "optimization_barrier"];
    assert!(few.iter().all(|name| kept.contains(format!("stablehlo.{name}").as_str())), "{kept:?}");
}

#[test]
fn ops_that_move_elements_make_no_others() {
    let elements = |arrays: &[Array]| -> BTreeSet<Vec<u8>> {
        arrays.iter().flat_map(|array| array.elements.iter().cloned()).collect()
    };
    each_case(|case| {
        let (op, given) = (&case.node.op, elements(&case.operands));
        let made = || elements(&case.results());
        if op.moves_all() && case.node.ty.elements() > 0 {
            assert_eq!(made(), given, "{op:?}");
        } else if matches!(op.kind(), OpKind::Part | OpKind::Lookup) {
            assert!(made().is_subset(&given), "{op:?}");
        }
    });
}
