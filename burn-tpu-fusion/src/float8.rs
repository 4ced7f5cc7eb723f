//! Products of floats of 8 bits, for training: the factors of large matrix products are rounded to 8 bits, with a scale for
//! each.
//!
//! ```text
//! dot(x, w)   ->   dot_8(x * s, w * t) / s / t     s, t: powers of two that bring the largest magnitude near the format's
//! ```
//!
//! `dot_8` is a call whose StableHLO rounds both factors to the format; its plain form does the same with ops of f32. Sums
//! and results are f32, as before.
//!
//! Legality: none. Results change by the roundings of the format, so no level has this pass; an option asks for it. Scales
//! are powers of two of the current values, so that scaling is exact and nothing is kept from step to step. An infinity or a
//! NaN in a factor makes the whole product NaN.
//!
//! What it leaves alone: products with batch dims (attention), factors that are no bf16, products with a side shorter than
//! [`Float8::least`], bodies of loops (such as a loss in blocks of rows), and programs of a mesh.
//!
//! Gain, and on which generation: `docs/decisions/0038-products-with-factors-of-8-bits.md`.

mod plain;
#[cfg(test)]
mod tests;

use crate::{Pass, Rewritten};
use burn_tpu_graph::op::{BinaryOp, Combine, DotAttrs, UnaryOp};
use burn_tpu_graph::{
    Builder, CallForm, CustomCall, DType, Graph, GraphError, Node, NodeId, Op, Program, StableHlo, TensorType,
};
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::sync::Arc;

/// A format of floats of 8 bits, by its name in StableHLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Float8Format {
    /// 5 bits of exponent, 2 of mantissa: numbers up to 57,344.
    E5M2,
    /// 4 bits of exponent, 3 of mantissa: numbers up to 448.
    E4M3FN,
    /// 4 bits of exponent, 3 of mantissa, shifted towards small numbers: up to 30.
    E4M3B11FNUZ,
}

impl Float8Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::E5M2, Self::E4M3FN, Self::E4M3B11FNUZ];

    /// Returns the largest number.
    fn largest(self) -> f64 {
        match self {
            Self::E5M2 => 57_344.0,
            Self::E4M3FN => 448.0,
            Self::E4M3B11FNUZ => 30.0,
        }
    }

    /// Returns the smallest normal number, and the step between it and the next.
    fn smallest(self) -> (f64, f64) {
        let (exponent, mantissa) = match self {
            Self::E5M2 => (-14, 2),
            Self::E4M3FN => (-6, 3),
            Self::E4M3B11FNUZ => (-10, 3),
        };
        (2f64.powi(exponent), 2f64.powi(exponent - mantissa))
    }
}

impl Display for Float8Format {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::E5M2 => "e5m2",
            Self::E4M3FN => "e4m3fn",
            Self::E4M3B11FNUZ => "e4m3b11fnuz",
        })
    }
}

/// The pass that computes products with factors of 8 bits. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Float8 {
    /// The format of both factors.
    pub format: Float8Format,
    /// The shortest side of a product: its rows, its columns and what is summed over are at least as long.
    pub least: usize,
}

impl Float8 {
    /// Creates the pass for products whose sides are 2,048 or longer: with shorter ones, rounding costs more than it saves.
    pub fn new(format: Float8Format) -> Self {
        Self { format, least: 2048 }
    }
}

impl From<Float8Format> for Float8 {
    fn from(format: Float8Format) -> Self {
        Self::new(format)
    }
}

impl FromStr for Float8 {
    type Err = String;

    /// Parses a format, or a format and the shortest side: `e5m2`, `e5m2:4096`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, least) = text.split_once(':').map_or((text, None), |(name, least)| (name, Some(least)));
        let format = Float8Format::ALL.into_iter().find(|format| format.to_string() == name);
        let names = || Float8Format::ALL.map(|format| format.to_string()).join(", ");
        let pass = Self::new(format.ok_or_else(|| format!("is not one of {}", names()))?);
        let Some(least) = least else { return Ok(pass) };
        let least = least.parse().map_err(|_| "has no number of at least 1 after its `:`".to_owned());
        least.map(|least| Self { least, ..pass })
    }
}

impl Pass for Float8 {
    fn name(&self) -> &'static str {
        "float8"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut state = State { pass: *self, program, scaled: HashMap::new(), count: 0 };
        if program.mesh().is_some() {
            return Ok(Rewritten { program: program.clone(), count: 0 });
        }
        let rewritten = program.rewrite(|graph, _, node, operands| state.node(graph, node, operands))?;
        Ok(Rewritten { program: if state.count == 0 { program.clone() } else { rewritten }, count: state.count })
    }
}

/// A factor times its scale, and one divided by the scale, an f32.
#[derive(Clone, Copy)]
struct Scaled {
    value: NodeId,
    inverse: NodeId,
}

struct State<'a> {
    pass: Float8,
    program: &'a Program,
    /// The factors so far: most are of two products.
    scaled: HashMap<NodeId, Scaled>,
    count: usize,
}

impl State<'_> {
    /// Adds the new node for an old one. `operands` are the new nodes of its operands.
    fn node(&mut self, graph: &mut Graph, node: &Node, operands: &[NodeId]) -> Result<NodeId, GraphError> {
        match (&node.op, operands) {
            (Op::DotGeneral(attrs), &[lhs, rhs]) if self.takes(node, attrs) => {
                let [lhs, rhs] = [self.scaled(graph, lhs)?, self.scaled(graph, rhs)?];
                let types = [graph.ty(lhs.value).clone(), graph.ty(rhs.value).clone()];
                let call = product(self.pass.format, types, attrs, &node.ty)?;
                let mut result = graph.custom_call(Arc::new(call), &[lhs.value, rhs.value])?[0];
                for inverse in [lhs.inverse, rhs.inverse] {
                    let inverse = graph.broadcast_like(inverse, result)?;
                    result = graph.binary(BinaryOp::Mul, result, inverse)?;
                }
                self.count += 1;
                Ok(result)
            }
            _ => graph.add(node.op.clone(), operands),
        }
    }

    fn takes(&self, node: &Node, attrs: &DotAttrs) -> bool {
        let factors = [0, 1].map(|side| self.program.graph().ty(node.operands[side]));
        let summed: usize = attrs.lhs_contract.iter().map(|&dim| factors[0].dims[dim]).product();
        attrs.lhs_batch.is_empty()
            && attrs.result == DType::F32
            && summed >= self.pass.least.max(1)
            && factors.iter().all(|ty| ty.dtype == DType::BF16 && ty.elements() / summed >= self.pass.least)
    }

    /// Returns a factor times the largest power of two that keeps its largest magnitude within the format.
    fn scaled(&mut self, graph: &mut Graph, factor: NodeId) -> Result<Scaled, GraphError> {
        if let Some(known) = self.scaled.get(&factor) {
            return Ok(*known);
        }
        let all: Vec<usize> = (0..graph.rank(factor)).collect();
        let magnitudes = graph.unary(UnaryOp::Abs, factor)?;
        let largest = graph.reduce(Combine::Max, magnitudes, &all)?;
        let largest = graph.convert(largest, DType::F32)?;
        // Factors that are all 0 need a scale too.
        let largest = graph.binary_const(BinaryOp::Max, largest, 2f64.powi(-60))?;
        let bound = graph.splat_like(largest, self.pass.format.largest())?;
        let quotient = graph.binary(BinaryOp::Div, bound, largest)?;
        let scale = plain::power_of_two(graph, quotient)?;
        let one = graph.splat_like(scale, 1.0)?;
        let inverse = graph.binary(BinaryOp::Div, one, scale)?;
        let scale = graph.convert(scale, DType::BF16)?;
        let scale = graph.broadcast_like(scale, factor)?;
        let scaled = Scaled { value: graph.binary(BinaryOp::Mul, factor, scale)?, inverse };
        self.scaled.insert(factor, scaled);
        Ok(scaled)
    }
}

/// Returns the call that rounds two factors to a format and multiplies them.
fn product(
    format: Float8Format,
    factors: [TensorType; 2],
    attrs: &DotAttrs,
    result: &TensorType,
) -> Result<CustomCall, GraphError> {
    let dims = |ty: &TensorType| ty.dims.iter().map(|dim| format!("{dim}x")).collect::<String>();
    let [lhs, rhs] = [dims(&factors[0]), dims(&factors[1])];
    let narrow = format!("f8{}", format.to_string().to_uppercase());
    let text = format!(
        "func.func @product_of_8_bits(%x: tensor<{lhs}bf16>, %y: tensor<{rhs}bf16>) -> tensor<{result}f32> {{
            %a = stablehlo.convert %x : (tensor<{lhs}bf16>) -> tensor<{lhs}{narrow}>
            %b = stablehlo.convert %y : (tensor<{rhs}bf16>) -> tensor<{rhs}{narrow}>
            %sums = stablehlo.dot_general %a, %b, contracting_dims = {:?} x {:?}
                : (tensor<{lhs}{narrow}>, tensor<{rhs}{narrow}>) -> tensor<{result}f32>
            return %sums : tensor<{result}f32>
        }}",
        attrs.lhs_contract.as_slice(),
        attrs.rhs_contract.as_slice(),
        result = dims(result),
    );
    let plain = plain::product(format, factors, attrs)?;
    CustomCall::new("product_of_8_bits", CallForm::Function(StableHlo::parse(text)?), plain)
}
