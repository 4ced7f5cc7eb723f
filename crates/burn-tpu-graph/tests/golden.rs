//! The StableHLO text of selected programs, after the graph that it was lowered from. `BLESS=1` rewrites the files;
//! read the changes before you commit them, since every cached executable of such a program is compiled again.

use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs};
use burn_tpu_graph::{Builder, DType, Dims, Graph, NodeId, Op, Program, TensorType, lower};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// One case per lowering, and one per way in which the element type changes it.
const CASES: &[&str] = &[
    "leaf/parameter/f32",
    "leaf/outputs",
    "leaf/no_outputs",
    "leaf/slot",
    "leaf/constant/i1",
    "leaf/constant/i8",
    "leaf/constant/bf16",
    "leaf/constant/f32",
    "leaf/constant/f64",
    "leaf/iota/i32",
    "leaf/rng_bit_generator",
    "unary/Exp/f32",
    "unary/Erf/bf16",
    "binary/Add/f32",
    "binary/Rem/i32",
    "compare/f32",
    "compare/is_finite/f32",
    "choice/select/f32",
    "choice/clamp/bf16",
    "convert/bf16",
    "bitcast/f32",
    "movement/shape/f32",
    "movement/order/f32",
    "movement/pad/bf16",
    "movement/concatenate/i1",
    "movement/barrier/f32",
    "movement/sharding_constraint/f32",
    "fft/real",
    "fft/complex",
    "dot/bf16_f32",
    "dot/f32_highest",
    "dot/i32_i64",
    "conv/2d/bf16_f32",
    "conv/grouped",
    "conv/batch_grouped",
    "conv/transposed",
    "conv/channels_last",
    "reduce/Sum/f32",
    "reduce/Max/bf16",
    "reduce/And/i1",
    "reduce/Min/ui8",
    "arg_reduce/f32",
    "arg_reduce/i32",
    "reduce_window/Max/f32",
    "select_and_scatter/f32",
    "sort/descending/f32",
    "top_k/f32",
    "sort/ascending/i32",
    "dynamic/f32",
    "gather/f32",
    "scatter/assign/f32",
    "scatter/Sum/bf16",
    "loop/single/f32",
    "loop/rows/6",
    "loop/at_most/2",
    "loop/nested",
    "custom/kernel/f32",
    "custom/function",
    "custom/in_loop",
];

/// A hand-written training step of a linear layer: dot, bias, relu, its gradient, an SGD update with the rate in a slot.
fn training_step() -> Case {
    let mut graph = Graph::new();
    let mut parameter =
        |index, dims: &[usize]| graph.add(Op::Parameter { index, ty: TensorType::new(DType::F32, dims) }, &[]).unwrap();
    let (x, weight, bias) = (parameter(0, &[8, 3]), parameter(1, &[3, 2]), parameter(2, &[2]));
    let dot = |graph: &mut Graph, lhs: NodeId, rhs: NodeId, lhs_contract: usize, rhs_contract: usize| {
        let attrs = DotAttrs::new([&[], &[]], [&[lhs_contract], &[rhs_contract]], DType::F32);
        graph.dot_general(lhs, rhs, attrs).unwrap()
    };
    let linear = dot(&mut graph, x, weight, 1, 0);
    let linear = graph.binary(BinaryOp::Add, linear, bias).unwrap();
    let zero = graph.splat_like(linear, 0.0).unwrap();
    let output = graph.binary(BinaryOp::Max, linear, zero).unwrap();
    let weight_grad = dot(&mut graph, x, output, 0, 0);
    let bias_grad = graph.accumulate(Combine::Sum, output, &[0]).unwrap();
    let rate = graph.add(Op::Slot { index: 0, dtype: DType::F32 }, &[]).unwrap();
    let mut updated = |value, grad| {
        let step = graph.binary(BinaryOp::Mul, grad, rate).unwrap();
        graph.binary(BinaryOp::Sub, value, step).unwrap()
    };
    let outputs = [updated(weight, weight_grad), updated(bias, bias_grad)];
    Case { name: "training_step".into(), program: Program::extract(&graph, &outputs).unwrap() }
}

fn cases() -> Vec<Case> {
    let all = corpus::cases().unwrap();
    let chosen = CASES.iter().map(|name| all.iter().find(|case| case.name == *name).cloned());
    let chosen: Option<Vec<Case>> = chosen.collect();
    let mut chosen = chosen.expect("every chosen case is in the corpus");
    chosen.push(training_step());
    chosen
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn file_name(case: &Case) -> String {
    format!("{}.mlir", case.name.replace('/', "_").to_lowercase())
}

/// Returns the graph as comments, followed by its StableHLO.
fn text(case: &Case) -> String {
    let graph: String = case.program.to_string().lines().map(|line| format!("// {line}\n")).collect();
    format!("{graph}\n{}", lower(&case.program).unwrap().text)
}

#[test]
fn lowered_text_equals_the_golden_file() {
    let bless = std::env::var("BLESS").is_ok_and(|value| value == "1");
    let mut report = String::new();
    for case in cases() {
        let path = folder().join(file_name(&case));
        let found = text(&case);
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if bless && found != expected {
            std::fs::write(&path, &found).unwrap();
        } else if found != expected {
            report += &format!("{}\n{}\n", path.display(), diff(&expected, &found));
        }
    }
    assert!(report.is_empty(), "{report}BLESS=1 accepts what was found (+)");
    let named: BTreeSet<String> = cases().iter().map(file_name).collect();
    let present = std::fs::read_dir(folder()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(present.collect::<BTreeSet<_>>(), named, "files without a case");
}

#[test]
fn lowering_twice_gives_the_same_text() {
    for (one, two) in corpus::cases().unwrap().iter().zip(&corpus::cases().unwrap()) {
        assert_eq!(lower(&one.program).unwrap(), lower(&two.program).unwrap(), "{}", one.name);
    }
}

/// Returns the lines that differ, with `-` for expected and `+` for found lines, by longest common subsequence.
fn diff(expected: &str, found: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    // common[i][j]: length of the longest common subsequence of a[i..] and b[j..].
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("  {:>4} - {}", i + 1, a[i]));
            i += 1;
        } else {
            lines.push(format!("  {:>4} + {}", j + 1, b[j]));
            j += 1;
        }
    }
    lines.join("\n")
}

#[test]
fn diffs_show_only_what_differs() {
    assert_eq!(diff("a\nb\nc", "a\nx\nc\nd"), "     2 - b\n     2 + x\n     4 + d");
    assert_eq!(diff("a", "a"), "");
}

/// Lowers `exp` or `neg` of a vector, recorded under the given label.
fn labelled(op: burn_tpu_graph::op::UnaryOp, label: &'static str) -> lower::Lowered {
    let mut graph = Graph::new();
    let ty = TensorType { dims: Dims::from_slice(&[4]), dtype: DType::F32 };
    let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
    graph.set_label(label);
    let y = graph.unary(op, x).unwrap();
    lower::lower(&Program::extract(&graph, &[y]).unwrap()).unwrap()
}

#[test]
fn the_hash_of_a_text_covers_its_ops_and_not_its_locations() {
    use burn_tpu_graph::op::UnaryOp;
    let [plain, here, there] = ["", "float_exp", "float_neg"].map(|label| labelled(UnaryOp::Exp, label));
    assert!(here.text.contains("float_exp") && here.text != there.text && here.text != plain.text);
    assert_eq!(here.stable_hash(), there.stable_hash());
    assert_eq!(here.stable_hash(), plain.stable_hash());
    assert_ne!(here.stable_hash(), labelled(UnaryOp::Neg, "float_exp").stable_hash());
}
