//! Tests of what a program's text and hashes depend on.

use super::*;
use crate::op::{MemorySpace, Trips};
use crate::{
    Builder, CallForm, CustomCall, KernelCall, KernelCost, Operands, Partition, Parts, Sharding, StableHlo, TensorType,
    corpus,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the op with each of its attributes changed in turn. The patterns name every field, so that a new field
/// must be added here.
fn changed(op: &Op) -> Vec<Op> {
    let grown = |ty: &TensorType| TensorType::new(ty.dtype, [&ty.dims[..], &[9]].concat());
    let other = |dtype: DType| if dtype == DType::F32 { DType::I32 } else { DType::F32 };
    match op {
        Op::Parameter { index, ty } => vec![
            Op::Parameter { index: index + 1, ty: ty.clone() },
            Op::Parameter { index: *index, ty: grown(ty) },
            Op::Parameter { index: *index, ty: ty.with_dtype(other(ty.dtype)) },
        ],
        Op::Slot { index, dtype } => {
            vec![Op::Slot { index: index + 1, dtype: *dtype }, Op::Slot { index: *index, dtype: other(*dtype) }]
        }
        Op::Offset { index, dtype } => vec![
            Op::Offset { index: index + 1, dtype: *dtype },
            Op::Offset { index: *index, dtype: other(*dtype) },
            Op::Slot { index: *index, dtype: *dtype },
        ],
        Op::Constant(literal) => changed_literal(literal).into_iter().map(Op::Constant).collect(),
        Op::Iota { ty, dim } => vec![Op::Iota { ty: grown(ty), dim: *dim }, Op::Iota { ty: ty.clone(), dim: dim + 1 }],
        Op::Unary(op) => UnaryOp::ALL.iter().filter(|o| *o != op).map(|&o| Op::Unary(o)).collect(),
        Op::Binary(op) => BinaryOp::ALL.iter().filter(|o| *o != op).map(|&o| Op::Binary(o)).collect(),
        Op::Compare(_) => vec![Op::Compare(Direction::Ne), Op::Compare(Direction::Le), Op::Compare(Direction::Gt)],
        Op::Convert { dtype } => vec![Op::Convert { dtype: other(*dtype) }, Op::BitcastConvert { dtype: *dtype }],
        Op::BitcastConvert { dtype } => vec![Op::BitcastConvert { dtype: other(*dtype) }],
        Op::BroadcastInDim { dims, mapping } => vec![
            Op::BroadcastInDim { dims: more(dims), mapping: mapping.clone() },
            Op::BroadcastInDim { dims: dims.clone(), mapping: more(mapping) },
        ],
        Op::Reshape { dims } => vec![Op::Reshape { dims: more(dims) }],
        Op::Transpose { permutation } => vec![Op::Transpose { permutation: more(permutation) }],
        Op::Reverse { dims } => vec![Op::Reverse { dims: more(dims) }],
        Op::DynamicSlice { sizes } => vec![Op::DynamicSlice { sizes: more(sizes) }],
        Op::Concatenate { dim } => vec![Op::Concatenate { dim: dim + 1 }],
        Op::Slice(attrs) => changed_slice(attrs).into_iter().map(|a| Op::Slice(Box::new(a))).collect(),
        Op::Pad(attrs) => changed_pad(attrs).into_iter().map(|a| Op::Pad(Box::new(a))).collect(),
        Op::DotGeneral(attrs) => changed_dot(attrs).into_iter().map(|a| Op::DotGeneral(Box::new(a))).collect(),
        Op::Convolution(attrs) => changed_conv(attrs).into_iter().map(|a| Op::Convolution(Box::new(a))).collect(),
        Op::Reduce { combine, dims } => vec![
            Op::Reduce { combine: Combine::Prod, dims: dims.clone() },
            Op::Reduce { combine: *combine, dims: more(dims) },
        ],
        Op::ArgReduce { max, dim } => {
            vec![Op::ArgReduce { max: !max, dim: *dim }, Op::ArgReduce { max: *max, dim: dim + 1 }]
        }
        Op::ReduceWindow { combine, window } => {
            let windows = changed_window(window).into_iter();
            let windows = windows.map(|w| Op::ReduceWindow { combine: *combine, window: Box::new(w) });
            windows.chain([Op::ReduceWindow { combine: Combine::Prod, window: window.clone() }]).collect()
        }
        Op::SelectAndScatter { window } => {
            changed_window(window).into_iter().map(|w| Op::SelectAndScatter { window: Box::new(w) }).collect()
        }
        Op::Sort { dim, descending } => {
            vec![Op::Sort { dim: dim + 1, descending: *descending }, Op::Sort { dim: *dim, descending: !descending }]
        }
        Op::TopK { k } => vec![Op::TopK { k: k - 1 }],
        Op::Gather(attrs) => changed_gather(attrs).into_iter().map(|a| Op::Gather(Box::new(a))).collect(),
        Op::Scatter(attrs) => changed_scatter(attrs).into_iter().map(|a| Op::Scatter(Box::new(a))).collect(),
        Op::RngBitGenerator { ty } => {
            vec![Op::RngBitGenerator { ty: grown(ty) }, Op::RngBitGenerator { ty: ty.with_dtype(DType::U16) }]
        }
        Op::Fft { kind, length } => {
            vec![Op::Fft { kind: FftKind::Ifft, length: *length }, Op::Fft { kind: *kind, length: length + 1 }]
        }
        Op::For { trips, body } => {
            let swapped = Program::extract(body.graph(), &[body.outputs(), body.outputs()].concat()).unwrap();
            vec![
                Op::For { trips: Trips::Exactly(trips.most() + 1), body: body.clone() },
                Op::For { trips: Trips::AtMost(trips.most()), body: body.clone() },
                Op::For { trips: *trips, body: std::sync::Arc::new(swapped) },
            ]
        }
        Op::CustomCall(call) => changed_call(call).into_iter().map(|call| Op::CustomCall(Arc::new(call))).collect(),
        Op::GetResult { index } => vec![Op::GetResult { index: index + 1 }],
        Op::IsFinite => vec![Op::OptimizationBarrier],
        Op::Select => vec![Op::Clamp],
        Op::Clamp => vec![Op::Select],
        Op::DynamicUpdateSlice => vec![Op::Complex],
        Op::Complex => vec![Op::DynamicUpdateSlice],
        Op::Real => vec![Op::Imag],
        Op::Imag => vec![Op::Real],
        Op::OptimizationBarrier => vec![Op::IsFinite],
        Op::ShardingConstraint(sharding) => {
            let axes = |first: &[u8]| Sharding::first_dim(sharding.dims().len(), first);
            vec![Op::ShardingConstraint(axes(&[1])), Op::ShardingConstraint(axes(&[0, 1]))]
        }
        Op::MoveTo(MemorySpace::Device) => vec![Op::MoveTo(MemorySpace::PinnedHost)],
        Op::MoveTo(MemorySpace::PinnedHost) => vec![Op::MoveTo(MemorySpace::Device)],
    }
}

fn changed_call(call: &CustomCall) -> Vec<CustomCall> {
    let new = |name: &str, form: CallForm, plain: &Program| CustomCall::new(name, form, plain.clone()).unwrap();
    let mut graph = call.plain().graph().clone();
    let outputs = call.plain().outputs().iter().map(|&id| graph.add(Op::OptimizationBarrier, &[id]).unwrap());
    let outputs: Vec<NodeId> = outputs.collect();
    let plain = Program::extract(&graph, &outputs).unwrap();
    let mut all = vec![new("other", call.form().clone(), call.plain()), new(call.name(), call.form().clone(), &plain)];
    let forms: Vec<CallForm> = match call.form() {
        CallForm::Kernel(kernel) => changed_kernel(kernel).into_iter().map(CallForm::Kernel).collect(),
        CallForm::Function(function) => {
            let parse = |text: String| CallForm::Function(StableHlo::parse(text).unwrap());
            let source = function.source();
            vec![
                parse(format!("{source} ")),
                parse(source.replacen("%n: tensor<i32>", "%n: tensor<i32>, %u: tensor<i1>", 1)),
            ]
        }
        CallForm::Parts(parts) => changed_parts(parts).into_iter().map(CallForm::Parts).collect(),
    };
    all.extend(forms.into_iter().map(|form| new(call.name(), form, call.plain())));
    all
}

fn changed_parts(parts: &Parts) -> Vec<Parts> {
    let new = |partition: &Partition, part: &Program| {
        Parts::new(parts.operands().to_vec(), parts.results().to_vec(), partition.clone(), part.clone()).unwrap()
    };
    let (partition, part) = (parts.partition(), parts.part());
    let mesh = crate::Mesh::new(&[("rows".to_owned(), 2)]).unwrap();
    let mut graph = part.graph().clone();
    let outputs = part.outputs().iter().map(|&id| graph.add(Op::OptimizationBarrier, &[id]).unwrap());
    let outputs: Vec<NodeId> = outputs.collect();
    vec![
        new(&Partition { mesh, ..partition.clone() }, part),
        new(partition, &Program::extract(&graph, &outputs).unwrap()),
    ]
}

fn changed_kernel(kernel: &KernelCall) -> Vec<KernelCall> {
    let KernelCall { results, .. } = kernel;
    assert_eq!(results.len(), 1, "the results are those of the plain form");
    let KernelCost { flops, transcendentals, bytes } = kernel.cost;
    let cost = |flops, transcendentals, bytes| KernelCall {
        cost: KernelCost { flops, transcendentals, bytes },
        ..kernel.clone()
    };
    let whole = |devices: usize| {
        let mesh = crate::Mesh::new(&[("data".to_owned(), devices)]).unwrap();
        let shardings = |types: &[TensorType]| types.iter().map(|ty| Sharding::replicated(ty.rank())).collect();
        Partition { mesh, operands: shardings(&kernel.operands), results: shardings(results) }
    };
    let mut more = kernel.operands.clone();
    more.push(TensorType::scalar(DType::I32));
    vec![
        KernelCall { target: "other".into(), ..kernel.clone() },
        KernelCall { backend_config: "{}".into(), ..kernel.clone() },
        KernelCall { operands: more, ..kernel.clone() },
        cost(flops + 1, transcendentals, bytes),
        cost(flops, transcendentals + 1, bytes),
        cost(flops, transcendentals, bytes + 1),
        KernelCall { partition: Some(whole(2)), ..kernel.clone() },
        KernelCall { partition: Some(whole(3)), ..kernel.clone() },
    ]
}

fn more(dims: &[usize]) -> crate::Dims {
    dims.iter().copied().chain([7]).collect()
}

fn longer<T: Copy, L: Clone + Extend<T>>(list: &L, item: T) -> L {
    let mut list = list.clone();
    list.extend([item]);
    list
}

fn changed_literal(literal: &Literal) -> Vec<Literal> {
    let Literal { ty, data } = literal;
    let value = match data {
        LiteralData::Splat(bits) => LiteralData::Splat(bits ^ 1),
        LiteralData::Dense(bytes) => LiteralData::Dense(bytes.iter().map(|byte| byte ^ 1).collect()),
    };
    let unsigned = ty.with_dtype(DType::U8);
    vec![Literal { ty: ty.clone(), data: value }, Literal { ty: unsigned, data: data.clone() }]
}

/// Makes one copy per field, with that field changed by its expression.
macro_rules! change_each {
    ($attrs:expr, $kind:ident { $($field:ident => $new:expr),* $(,)? }) => {{
        let $kind { $($field),* } = $attrs;
        vec![$($kind { $field: $new, ..$attrs.clone() }),*]
    }};
}

fn changed_slice(attrs: &SliceAttrs) -> Vec<SliceAttrs> {
    change_each!(attrs, SliceAttrs { start => more(start), limit => more(limit), stride => more(stride) })
}

fn changed_pad(attrs: &PadAttrs) -> Vec<PadAttrs> {
    change_each!(attrs, PadAttrs { low => longer(low, 7), high => longer(high, 7), interior => more(interior) })
}

fn changed_dot(attrs: &DotAttrs) -> Vec<DotAttrs> {
    change_each!(attrs, DotAttrs {
        lhs_batch => more(lhs_batch), rhs_batch => more(rhs_batch), lhs_contract => more(lhs_contract),
        rhs_contract => more(rhs_contract), result => if *result == DType::F32 { DType::I32 } else { DType::F32 },
        precision => if *precision == Precision::Default { Precision::Highest } else { Precision::Default },
    })
}

fn changed_conv_dims(dims: &ConvDims) -> Vec<ConvDims> {
    change_each!(dims, ConvDims { batch => batch + 1, feature => feature + 1, spatial => more(spatial) })
}

fn changed_conv(attrs: &ConvAttrs) -> Vec<ConvAttrs> {
    let mut all = change_each!(attrs, ConvAttrs {
        strides => more(strides), padding => longer(padding, (1, 2)), lhs_dilation => more(lhs_dilation),
        rhs_dilation => more(rhs_dilation), input => changed_conv_dims(input)[0].clone(),
        kernel => changed_conv_dims(kernel)[0].clone(), output => changed_conv_dims(output)[0].clone(),
        feature_groups => feature_groups + 1, batch_groups => batch_groups + 1,
        result => if *result == DType::F32 { DType::I32 } else { DType::F32 },
        precision => if *precision == Precision::Default { Precision::High } else { Precision::Default },
    });
    for i in 1..3 {
        all.push(ConvAttrs { input: changed_conv_dims(&attrs.input)[i].clone(), ..attrs.clone() });
        all.push(ConvAttrs { kernel: changed_conv_dims(&attrs.kernel)[i].clone(), ..attrs.clone() });
        all.push(ConvAttrs { output: changed_conv_dims(&attrs.output)[i].clone(), ..attrs.clone() });
    }
    all
}

fn changed_window(attrs: &WindowAttrs) -> Vec<WindowAttrs> {
    change_each!(attrs, WindowAttrs {
        dims => more(dims), strides => more(strides), base_dilation => more(base_dilation),
        window_dilation => more(window_dilation), padding => longer(padding, (1, 2)),
    })
}

fn changed_gather(attrs: &GatherAttrs) -> Vec<GatherAttrs> {
    change_each!(attrs, GatherAttrs {
        offset_dims => more(offset_dims), collapsed_slice_dims => more(collapsed_slice_dims),
        operand_batching_dims => more(operand_batching_dims),
        start_indices_batching_dims => more(start_indices_batching_dims), start_index_map => more(start_index_map),
        index_vector_dim => index_vector_dim + 1, slice_sizes => more(slice_sizes),
    })
}

fn changed_scatter(attrs: &ScatterAttrs) -> Vec<ScatterAttrs> {
    change_each!(attrs, ScatterAttrs {
        update_window_dims => more(update_window_dims), inserted_window_dims => more(inserted_window_dims),
        input_batching_dims => more(input_batching_dims),
        scatter_indices_batching_dims => more(scatter_indices_batching_dims),
        scatter_dims_to_operand_dims => more(scatter_dims_to_operand_dims), index_vector_dim => index_vector_dim + 1,
        mode => if *mode == ScatterMode::Assign { ScatterMode::Combine(Combine::Sum) } else { ScatterMode::Assign },
    })
}

/// Returns the result types that an op's attributes state, for nodes that need not be valid. The real rules need
/// valid operands.
fn stated_types(op: &Op, like: &Node) -> (TensorType, Vec<TensorType>) {
    let dims = |dims: &[usize]| TensorType::new(like.ty.dtype, dims);
    match op {
        Op::Parameter { ty, .. } | Op::Iota { ty, .. } | Op::Constant(Literal { ty, .. }) => (ty.clone(), Vec::new()),
        Op::Slot { dtype, .. } | Op::Offset { dtype, .. } | Op::Convert { dtype } | Op::BitcastConvert { dtype } => {
            (like.ty.with_dtype(*dtype), Vec::new())
        }
        Op::DotGeneral(attrs) => (like.ty.with_dtype(attrs.result), Vec::new()),
        Op::Convolution(attrs) => (like.ty.with_dtype(attrs.result), Vec::new()),
        Op::BroadcastInDim { dims: to, .. } | Op::Reshape { dims: to } | Op::DynamicSlice { sizes: to } => {
            (dims(to), Vec::new())
        }
        Op::RngBitGenerator { ty } => (like.ty.clone(), vec![ty.clone()]),
        // If an op that states a type gets here, the test below fails, since its text does not change.
        _ => (like.ty.clone(), like.more.clone()),
    }
}

#[test]
fn every_attribute_of_every_op_changes_text_hash_and_equality() {
    let mut kinds = BTreeMap::new();
    for case in corpus::cases().unwrap() {
        for node in case.program.graph().nodes() {
            // A table and a splat are two different ops, and so are the forms of a custom call.
            let form = match &node.op {
                Op::Constant(literal) => usize::from(matches!(literal.data, LiteralData::Dense(_))),
                Op::CustomCall(call) => match call.form() {
                    CallForm::Kernel(_) => 0,
                    CallForm::Function(_) => 1,
                    CallForm::Parts(_) => 2,
                },
                _ => 0,
            };
            kinds.entry((node.op.mnemonic(), form)).or_insert(node.clone());
        }
    }
    for node in kinds.values() {
        let alone = |op: &Op| {
            let (ty, more) = stated_types(op, node);
            Program::unchecked(vec![Node { op: op.clone(), operands: Operands::new(), ty, more }], vec![NodeId(0)])
        };
        let programs: Vec<Program> = std::iter::once(&node.op).chain(&changed(&node.op)).map(alone).collect();
        assert!(programs.len() > 1, "{}", node.op.mnemonic());
        for (i, a) in programs.iter().enumerate() {
            for b in &programs[..i] {
                assert_ne!(a, b);
                assert_ne!(a.to_string(), b.to_string());
                assert_ne!(a.graph().hash_at(1), b.graph().hash_at(1), "{a}{b}");
                assert_ne!(a.stable_hash(), b.stable_hash());
            }
        }
    }
}

fn two_sums(swap_operands: bool, outputs: &[u32], dead: bool) -> Program {
    let mut graph = Graph::new();
    let ty = TensorType::new(DType::F32, [2]);
    let x = graph.add(Op::Parameter { index: 0, ty: ty.clone() }, &[]).unwrap();
    if dead {
        graph.unary(UnaryOp::Exp, x).unwrap();
    }
    let y = graph.add(Op::Parameter { index: 1, ty }, &[]).unwrap();
    let operands = if swap_operands { [y, x] } else { [x, y] };
    let difference = graph.add(Op::Binary(BinaryOp::Sub), &operands).unwrap();
    let sum = graph.add(Op::Binary(BinaryOp::Add), &[x, y]).unwrap();
    if dead {
        graph.unary(UnaryOp::Neg, sum).unwrap();
    }
    let nodes = [x, y, difference, sum];
    let outputs: Vec<NodeId> = outputs.iter().map(|&i| nodes[i as usize]).collect();
    Program::extract(&graph, &outputs).unwrap()
}

#[test]
fn operands_and_outputs_change_the_stable_hash() {
    let base = two_sums(false, &[2, 3], false);
    for other in [two_sums(true, &[2, 3], false), two_sums(false, &[3, 2], false), two_sums(false, &[2, 3, 3], false)] {
        assert_ne!(base.stable_hash(), other.stable_hash());
        assert_ne!(base, other);
    }
}

#[test]
fn dead_nodes_change_no_hash() {
    let (live, with_dead) = (two_sums(false, &[2, 3], false), two_sums(false, &[2, 3], true));
    assert_eq!(live, with_dead);
    assert_eq!(live.to_string(), with_dead.to_string());
    assert_eq!(live.stable_hash(), with_dead.stable_hash());
    assert_eq!(live.graph().hash_at(live.graph().len()), with_dead.graph().hash_at(with_dead.graph().len()));
}

#[test]
fn all_programs_of_the_corpus_differ() {
    let cases = corpus::cases().unwrap();
    let mut seen = BTreeMap::new();
    for case in &cases {
        if let Some(other) = seen.insert(case.program.stable_hash(), &case.name) {
            panic!("{other} and {} are one program:\n{}", case.name, case.program);
        }
    }
}

#[test]
fn numbers_with_different_bits_have_different_texts() {
    let nans = [0x7FC0_0000, 0x7FC0_0001, 0xFFC0_0000].map(|bits| number(DType::F32, bits));
    assert_eq!(nans, ["nan:0x7fc00000", "nan:0x7fc00001", "nan:0xffc00000"]);
    assert_eq!([number(DType::F32, 0), number(DType::F32, 1 << 31)], ["0.0", "-0.0"]);
    assert_eq!(number(DType::BF16, 0xFF80), "-inf");
    for dtype in [DType::BF16, DType::F16] {
        let all: std::collections::BTreeSet<String> = (0..1 << 16).map(|bits| number(dtype, bits)).collect();
        assert_eq!(all.len(), 1 << 16, "{dtype}");
    }
}

#[test]
fn the_text_has_the_documented_form() {
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 4, ty: TensorType::new(DType::F32, [2, 3]) }, &[]).unwrap();
    let slot = graph.add(Op::Slot { index: 1, dtype: DType::F32 }, &[]).unwrap();
    let scaled = graph.binary(BinaryOp::Mul, x, slot).unwrap();
    let sum = graph.reduce(Combine::Sum, scaled, &[1]).unwrap();
    let keys = graph.sort(&[sum, sum], 0, true).unwrap();
    let program = Program::extract(&graph, &[keys[1], sum]).unwrap();
    let expected = "\
%0 = parameter {index = 4} : f32[2,3]
%1 = slot {index = 1} : f32[]
%2 = broadcast_in_dim %1 {mapping = []} : f32[2,3]
%3 = multiply %0, %2 : f32[2,3]
%4 = reduce %3 {combine = Sum, dims = [1]} : f32[2]
%5 = sort %4, %4 {dim = 0, descending = true} : f32[2], f32[2]
%6 = get_result %5 {index = 1} : f32[2]
outputs %6, %4
";
    assert_eq!(program.to_string(), expected);
    assert_eq!(graph.to_string().lines().count(), 7);
}

#[test]
fn labels_change_only_the_lowered_text() {
    let labelled = |label| {
        let mut graph = Graph::new();
        graph.set_label(label);
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [4]) }, &[]).unwrap();
        let y = graph.binary(BinaryOp::Add, x, x).unwrap();
        Program::extract(&graph, &[y]).unwrap()
    };
    let (plain, named) = (labelled(""), labelled("float_add"));
    assert_eq!(plain, named);
    assert_eq!(plain.stable_hash(), named.stable_hash());
    assert_eq!(plain.graph().hash_at(2), named.graph().hash_at(2));
    let text = |program| crate::lower::lower(program).unwrap().text;
    assert!(!text(&plain).contains("loc("));
    assert!(text(&named).contains("-> tensor<4xf32> loc(\"float_add\")"), "{}", text(&named));
}
