//! Constant folding in plugins: ops of constants must have the same results as at run time.

use crate::common;

use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, Literal, NodeId, Number, Program, Result, TensorType};
use common::programs;

/// Every element type except the complex one, which occurs only around Fourier transforms.
fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&dtype| dtype != DType::C64)
}

/// Numbers of either sign, the extremes of integers, and the special values of floats.
fn values(dtype: DType) -> Vec<u64> {
    if dtype == DType::Bool {
        return vec![0, 1];
    }
    let mut values: Vec<u64> = [0, 1, 2, 5, 7, 100].map(|n| Number::Int(n).bits(dtype)).to_vec();
    if dtype.is_float() {
        let floats = [-0.5, -1.0, -7.0, 0.3, 1.5, 2.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
        values.extend(floats.map(|x| Number::Float(x).bits(dtype)));
    } else {
        let mask = u64::MAX >> (64 - 8 * dtype.size_bytes());
        values.extend([mask, mask >> 1, (mask >> 1) + 1, mask - 31]);
    }
    values
}

/// Adds a constant of one dim.
fn constant(graph: &mut Graph, dtype: DType, bits: &[u64]) -> Result<NodeId> {
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()[..dtype.size_bytes()].to_vec()).collect();
    graph.constant(Literal::dense(TensorType::new(dtype, [bits.len()]), bytes))
}

/// Returns all pairs of the values, as two constants.
fn pairs(graph: &mut Graph, dtype: DType, values: &[u64]) -> Result<[NodeId; 2]> {
    let each = || values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y)));
    let (lhs, rhs): (Vec<u64>, Vec<u64>) = each().unzip();
    Ok([constant(graph, dtype, &lhs)?, constant(graph, dtype, &rhs)?])
}

fn nan(dtype: DType) -> u64 {
    Number::Float(f64::NAN).bits(dtype)
}

/// Returns every element-wise op of constants of one type, each with its name.
fn folded(dtype: DType) -> Result<(Program, Vec<String>)> {
    let mut graph = Graph::default();
    let (mut outputs, mut names) = (Vec::new(), Vec::new());
    let values = values(dtype);
    let numbers: Vec<u64> = values.iter().copied().filter(|&bits| !dtype.is_float() || bits != nan(dtype)).collect();
    let x = constant(&mut graph, dtype, &values)?;
    let [[lhs, rhs], [lower, upper]] = [pairs(&mut graph, dtype, &values)?, pairs(&mut graph, dtype, &numbers)?];
    let mut keep = |name: String, node: NodeId| {
        names.push(format!("{name} of {dtype}"));
        outputs.push(node);
    };
    for &op in UnaryOp::ALL.iter().filter(|op| op.class().contains(dtype)) {
        keep(op.mnemonic().into(), graph.unary(op, x)?);
    }
    // At run time an integer power uses six bits of the exponent; the backend composes larger ones from such powers.
    let same = |op: &BinaryOp| op.class().contains(dtype) && !(*op == BinaryOp::Pow && dtype.is_int());
    for &op in BinaryOp::ALL.iter().filter(|&op| same(op)) {
        // The option by which NaN wins has no effect on folding.
        let extreme = matches!(op, BinaryOp::Max | BinaryOp::Min);
        let (lhs, rhs) = if extreme { (lower, upper) } else { (lhs, rhs) };
        keep(op.mnemonic().into(), graph.binary(op, lhs, rhs)?);
    }
    for direction in [Direction::Eq, Direction::Ne, Direction::Lt, Direction::Le, Direction::Gt, Direction::Ge] {
        keep(format!("{direction:?}"), graph.compare(direction, lhs, rhs)?);
    }
    for to in dtypes().filter(|&to| !dtype.is_float() || to.is_float()) {
        keep(format!("convert to {to}"), graph.convert(x, to)?);
    }
    Ok((Program::extract(&graph, &outputs)?, names))
}

#[test]
fn folded_ops_have_the_same_results_as_at_run_time() {
    let Some(client) = programs::client() else { return };
    let mut wrong = Vec::new();
    for dtype in dtypes() {
        let (program, names) = folded(dtype).unwrap();
        let found = programs::compile(&client, &program, &programs::cpu_options()).unwrap().run(&[], &[]).unwrap();
        let expected = burn_tpu_runtime::testing::interpret_program(&program, &[[0u8; 0]; 0], &[]).unwrap();
        for (i, ty) in program.output_types().enumerate() {
            if let Some(difference) = difference(ty.dtype, &found[i], &expected[i]) {
                wrong.push(format!("{}: {difference}", names[i]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Describes the first element that differs; for floats, by more than a few steps of the narrower type.
fn difference(dtype: DType, found: &[u8], expected: &[u8]) -> Option<String> {
    if !dtype.is_float() {
        let size = dtype.size_bytes();
        let at = found.chunks(size).zip(expected.chunks(size)).position(|(found, expected)| found != expected)?;
        let element = |bytes: &[u8]| bytes[at * size..][..size].to_vec();
        return Some(format!("at {at}: bytes {:?}, not {:?}", element(found), element(expected)));
    }
    let tolerance = match dtype {
        DType::BF16 => 2e-2,
        DType::F16 => 4e-3,
        _ => 1e-5,
    };
    let near = |f: f64, e: f64| f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= tolerance * e.abs().max(1e-3);
    let pairs = || programs::floats(dtype, found).into_iter().zip(programs::floats(dtype, expected));
    let at = pairs().position(|(f, e)| !near(f, e))?;
    pairs().nth(at).map(|(f, e)| format!("at {at}: {f}, not {e}"))
}
