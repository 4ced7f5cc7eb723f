//! Every op kind with every element type that it takes, compiled and run on the CPU plugin, and compiled ahead of time for
//! TPUs that are not attached. The choices of the lowering (ties, NaN, packing, constants) are checked by value; the
//! results of all ops are compared with the interpreter's.

use crate::common;

use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::lower::{LowerOptions, lower, lower_with};
use burn_tpu_graph::op::{Combine, DotAttrs};
use burn_tpu_graph::{Builder, DType, Graph, Literal, NodeId, Number, Op, Program, TensorType};
use burn_tpu_pjrt::{Client, CompileOptions, TopologyDescription};
use common::programs::{self, client as cpu, pjrt_program};

/// Runs a program on the CPU. `parameters[i]` are the bytes of parameter `i`; a missing one is filled with zeros.
fn run(client: &Client, program: &Program, parameters: &[Vec<u8>], slots: &[u64]) -> Result<Vec<Vec<u8>>, String> {
    programs::compile(client, program, &CompileOptions::default())?.run(parameters, slots)
}

/// Tries the cases merged by family, and one by one where a family fails. Returns the names and errors of those that fail.
fn failures(cases: Vec<Case>, fails: &impl Fn(&Program) -> Option<String>) -> String {
    let mut report = String::new();
    for (family, members) in corpus::by_family(cases) {
        let Some(error) = fails(&corpus::merge(&members).unwrap()) else { continue };
        report += &format!("{family}: {error}\n");
        for case in members {
            report += &fails(&case.program).map(|error| format!("{}: {error}\n", case.name)).unwrap_or_default();
        }
    }
    report
}

/// Returns the disagreements between the interpreter and the CPU plugin on the cases of one family.
fn differences(client: &Client, family: &str, members: &[Case]) -> String {
    let program = corpus::merge(members).unwrap();
    let compiled = programs::compile(client, &program, &programs::cpu_options()).unwrap();
    programs::differences(family, members, &program, |parameters, slots| compiled.run(parameters, slots).unwrap())
}

#[test]
fn the_interpreter_agrees_with_the_cpu_plugin_on_the_corpus() {
    let Some(client) = cpu() else { return };
    let families = corpus::by_family(corpus::cases().unwrap());
    let report: String = families.iter().map(|(family, members)| differences(&client, family, members)).collect();
    assert!(report.is_empty(), "{report}");
}

/// Cases that TPUs refuse: their rewriting of 64-bit types does not support the op.
const NOT_ON_TPUS: [&str; 1] = ["select_and_scatter/f64"];

/// Returns whether the case uses 64-bit types, which take the compiler four times as long as all others.
fn is_wide(case: &Case) -> bool {
    ["f64", "i64"].iter().any(|wide| case.name.ends_with(wide))
}

fn compiles_for(name: &str, takes: impl Fn(&Case) -> bool) {
    let Some(libtpu) = programs::libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, name, &[]).unwrap();
    let options = CompileOptions::default();
    let fails = |program: &Program| {
        topology.compile(&pjrt_program(&lower(program).unwrap()), &options).err().map(|error| error.to_string())
    };
    let is_refused = |case: &Case| NOT_ON_TPUS.contains(&case.name.as_str());
    let (refused, taken): (Vec<_>, Vec<_>) = corpus::cases().unwrap().into_iter().filter(takes).partition(is_refused);
    let mut report = failures(taken, &fails);
    for case in refused.iter().filter(|case| fails(&case.program).is_none()) {
        report += &format!("{} compiles now: remove it from the list\n", case.name);
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn the_corpus_compiles_for_v5e() {
    compiles_for("v5e:1x1", |case| !is_wide(case));
}

/// They are decomposed in the same way for every generation, so one generation is enough for them.
#[test]
#[ignore = "four minutes: docs/testing.md, What CI leaves out"]
fn the_corpus_compiles_for_v5e_in_64_bits() {
    compiles_for("v5e:1x1", is_wide);
}

#[test]
#[ignore = "four minutes: docs/testing.md, What CI leaves out"]
fn the_corpus_compiles_for_every_other_generation() {
    for topology in ["v6e:1x1", "v4:1x1x1", "v5p:1x1x1", "tpu7x:1x1x1"] {
        compiles_for(topology, |case| !is_wide(case));
    }
}

fn parameter(graph: &mut Graph, index: u32, dtype: DType, dims: &[usize]) -> NodeId {
    graph.add(Op::Parameter { index, ty: TensorType::new(dtype, dims) }, &[]).unwrap()
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

fn i32s(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|chunk| i32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

#[test]
fn slots_of_every_type_are_passed_exactly() {
    let Some(client) = cpu() else { return };
    let numbers = [-3.25, 0.0, 1.0, 100.0, -0.0, f64::INFINITY, 0.1];
    for number in numbers {
        let mut graph = Graph::new();
        let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|&dtype| dtype != DType::C64).collect();
        let bits: Vec<u64> = dtypes.iter().map(|&dtype| Number::Float(number).bits(dtype)).collect();
        let slot = |graph: &mut Graph, (index, dtype): (usize, &DType)| {
            graph.add(Op::Slot { index: index as u32, dtype: *dtype }, &[]).unwrap()
        };
        let nodes: Vec<NodeId> = dtypes.iter().enumerate().map(|place| slot(&mut graph, place)).collect();
        let program = Program::extract(&graph, &nodes).unwrap();
        let outputs = run(&client, &program, &[], &bits).unwrap();
        for ((output, dtype), bits) in outputs.iter().zip(&dtypes).zip(&bits) {
            assert_eq!(*output, bits.to_le_bytes()[..dtype.size_bytes()], "{number} as {dtype}");
        }
    }
}

#[test]
fn constants_keep_every_bit() {
    let Some(client) = cpu() else { return };
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::C64) {
        let mut graph = Graph::new();
        let limit = if dtype == DType::Bool { 2 } else { 256 };
        let bytes: Vec<u8> = (0..12 * dtype.size_bytes()).map(|i| (i * 53 % limit) as u8).collect();
        let table = Literal::dense(TensorType::new(dtype, [3, 4]), bytes.clone());
        let bits = Number::Float(-1.7).bits(dtype);
        let nodes = [graph.constant(table).unwrap(), graph.splat(dtype, &[3], -1.7).unwrap()];
        let program = Program::extract(&graph, &nodes).unwrap();
        let outputs = run(&client, &program, &[], &[]).unwrap();
        assert_eq!(outputs[0], bytes, "{dtype}");
        assert_eq!(outputs[1], bits.to_le_bytes()[..dtype.size_bytes()].repeat(3), "{dtype}");
    }
}

const NAN: f32 = f32::NAN;

#[test]
fn a_sort_puts_nan_at_the_large_end_and_is_stable() {
    let Some(client) = cpu() else { return };
    let keys = [2.0, NAN, -0.0, 0.0, -1.0, f32::INFINITY, -NAN, 0.0, f32::NEG_INFINITY];
    for (descending, expected) in [(false, [8, 4, 2, 3, 7, 0, 5, 1, 6]), (true, [1, 6, 5, 0, 2, 3, 7, 4, 8])] {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
            let mut graph = Graph::new();
            let x = parameter(&mut graph, 0, DType::F32, &[9]);
            let converted = graph.convert(x, dtype).unwrap();
            let indices = graph.iota(DType::I32, &[9], 0).unwrap();
            let sorted = graph.sort(&[converted, indices], 0, descending).unwrap();
            let program = Program::extract(&graph, &sorted[1..]).unwrap();
            let outputs = run(&client, &program, &[f32_bytes(&keys)], &[]).unwrap();
            assert_eq!(i32s(&outputs[0]), expected, "{dtype} descending {descending}");
        }
    }
}

/// XLA adds the starts of a slice of a slice, and would clamp their sum.
#[test]
fn each_slice_of_a_slice_is_clamped_on_its_own() {
    let Some(client) = cpu() else { return };
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[8]);
    let [outer, inner] = [1, 2].map(|index| parameter(&mut graph, index, DType::I32, &[]));
    let half = graph.dynamic_slice(x, &[outer], &[4]).unwrap();
    let element = graph.dynamic_slice(half, &[inner], &[1]).unwrap();
    let program = Program::extract(&graph, &[element]).unwrap();
    let x = f32_bytes(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    for llvm in [false, true] {
        let lowered = lower_with(&program, LowerOptions { llvm, ..LowerOptions::default() }).unwrap();
        let compiled = programs::compile_lowered(&client, lowered, &programs::cpu_options()).unwrap();
        for (outer, inner, expected) in [(1, 2, 3.0), (0, 6, 3.0), (6, -6, 4.0), (-6, 6, 3.0), (6, 6, 7.0)] {
            let starts = [outer, inner].map(|start: i32| start.to_le_bytes().to_vec());
            let outputs = compiled.run(&[vec![x.clone()], starts.to_vec()].concat(), &[]).unwrap();
            assert_eq!(f32s(&outputs[0]), [expected], "starts {outer} and {inner}");
        }
    }
}

fn arg(client: &Client, max: bool, dtype: DType, values: &[f32]) -> (f32, i32) {
    let mut graph = Graph::new();
    let x = parameter(&mut graph, 0, DType::F32, &[values.len()]);
    let converted = graph.convert(x, dtype).unwrap();
    let indices = graph.iota(DType::I32, &[values.len()], 0).unwrap();
    let (value, index) = graph.arg_reduce(max, converted, indices, 0).unwrap();
    let value = graph.convert(value, DType::F32).unwrap();
    let program = Program::extract(&graph, &[value, index]).unwrap();
    let outputs = run(client, &program, &[f32_bytes(values)], &[]).unwrap();
    (f32s(&outputs[0])[0], i32s(&outputs[1])[0])
}

#[test]
fn the_lowest_index_of_the_most_extreme_value_wins() {
    let Some(client) = cpu() else { return };
    let inf = f32::INFINITY;
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
        assert_eq!(arg(&client, true, dtype, &[1.0, 3.0, 3.0, 2.0]), (3.0, 1), "{dtype}");
        assert_eq!(arg(&client, false, dtype, &[1.0, 3.0, 1.0]), (1.0, 0), "{dtype}");
        assert_eq!(arg(&client, true, dtype, &[-0.0, 0.0]).1, 0, "{dtype}");
        assert_eq!(arg(&client, true, dtype, &[-inf, -inf]), (-inf, 0), "{dtype}");
        assert_eq!(arg(&client, false, dtype, &[inf, inf]), (inf, 0), "{dtype}");
        for max in [true, false] {
            let (value, index) = arg(&client, max, dtype, &[inf, NAN, -inf, NAN]);
            assert!(value.is_nan() && index == 1, "{dtype}: {value} at {index}");
        }
    }
    let long: Vec<f32> = (0..1000).map(|i| if i % 100 == 77 { 9.0 } else { (i % 7) as f32 }).collect();
    assert_eq!(arg(&client, true, DType::I32, &long), (9.0, 77));
    assert_eq!(arg(&client, true, DType::Bool, &[0.0, 1.0, 1.0]), (1.0, 1));
    assert_eq!(arg(&client, false, DType::Bool, &[1.0, 1.0]), (1.0, 0));
}

#[test]
fn reductions_of_empty_arrays_return_the_neutral_element() {
    let Some(client) = cpu() else { return };
    for combine in [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min] {
        for dtype in [DType::F32, DType::BF16, DType::I8, DType::U64, DType::F64] {
            let mut graph = Graph::new();
            let x = parameter(&mut graph, 0, dtype, &[2, 0]);
            let reduced = graph.reduce(combine, x, &[1]).unwrap();
            let outputs = run(&client, &Program::extract(&graph, &[reduced]).unwrap(), &[], &[]).unwrap();
            let neutral = combine.identity_bits(dtype).to_le_bytes();
            assert_eq!(outputs[0], neutral[..dtype.size_bytes()].repeat(2), "{combine:?} {dtype}");
        }
    }
}

#[test]
fn wide_integer_dots_agree_with_a_loop() {
    let Some(client) = cpu() else { return };
    let mut graph = Graph::new();
    // [3, b = 2, 4] . [b = 2, 5, 4] -> [2, 3, 5]
    let lhs = parameter(&mut graph, 0, DType::I64, &[3, 2, 4]);
    let rhs = parameter(&mut graph, 1, DType::I64, &[2, 5, 4]);
    let attrs = DotAttrs::new([&[1], &[0]], [&[2], &[2]], DType::I64);
    let product = graph.dot_general(lhs, rhs, attrs).unwrap();
    let l: Vec<i64> = (0..24).map(|i| (1 << 33) * (i % 5) - i).collect();
    let r: Vec<i64> = (0..40).map(|i| 3 * i - 50).collect();
    let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let program = Program::extract(&graph, &[product]).unwrap();
    let outputs = run(&client, &program, &[bytes(&l), bytes(&r)], &[]).unwrap();
    let mut expected = Vec::new();
    for (b, m, n) in (0..2).flat_map(|b| (0..3).flat_map(move |m| (0..5).map(move |n| (b, m, n)))) {
        expected.push((0..4).map(|k| l[(m * 2 + b) * 4 + k] * r[(b * 5 + n) * 4 + k]).sum::<i64>());
    }
    assert_eq!(outputs[0], bytes(&expected));
}
