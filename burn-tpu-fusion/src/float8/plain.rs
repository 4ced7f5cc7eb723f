//! The plain form of a product with factors of 8 bits: what the call means, for engines without such floats.

use super::Float8Format;
use burn_tpu_graph::op::{BinaryOp, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, GraphError, NodeId, Number, Op, Program, TensorType};

/// The exponent of an f32.
const EXPONENT: u64 = 0x7F80_0000;

/// Returns the program of a product whose factors are rounded to a format.
pub(super) fn product(format: Float8Format, factors: [TensorType; 2], attrs: &DotAttrs) -> Result<Program, GraphError> {
    let mut graph = Graph::new();
    let mut rounded_factor = |(index, ty)| {
        let factor = graph.add(Op::Parameter { index, ty }, &[])?;
        rounded(&mut graph, format, factor)
    };
    let [x, y] = factors;
    let (x, y) = (rounded_factor((0, x))?, rounded_factor((1, y))?);
    let sums = graph.dot_general(x, y, attrs.clone())?;
    Program::extract(&graph, &[sums])
}

/// Rounds numbers within a format's range to the nearest number of the format, halves to even. The result has the type of
/// the numbers, of which it is one.
fn rounded(graph: &mut Graph, format: Float8Format, x: NodeId) -> Result<NodeId, GraphError> {
    let dtype = graph.dtype(x);
    let wide = graph.convert(x, DType::F32)?;
    let magnitude = graph.unary(UnaryOp::Abs, wide)?;
    let (smallest, step) = format.smallest();
    // The steps between numbers are proportional to the power of two below them; between small numbers they are equal.
    let normal = graph.binary_const(BinaryOp::Max, magnitude, smallest)?;
    let power = power_of_two(graph, normal)?;
    let step = graph.binary_const(BinaryOp::Mul, power, step / smallest)?;
    let steps = graph.binary(BinaryOp::Div, wide, step)?;
    let steps = graph.unary(UnaryOp::RoundNearestEven, steps)?;
    let rounded = graph.binary(BinaryOp::Mul, steps, step)?;
    graph.convert(rounded, dtype)
}

/// Returns the largest powers of two that are not above positive f32 numbers.
pub(super) fn power_of_two(graph: &mut Graph, x: NodeId) -> Result<NodeId, GraphError> {
    let bits = graph.bitcast_convert(x, DType::U32)?;
    let exponent = graph.binary_const(BinaryOp::And, bits, Number::UInt(EXPONENT))?;
    graph.bitcast_convert(exponent, DType::F32)
}
