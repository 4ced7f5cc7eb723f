//! Computations in HLO text that a graph calls.
//!
//! `XlaBuilder` of this crate has no call and lacks ops, but it has a conditional, whose branches are computations, and
//! computations can be read from HLO text. A conditional on a constant is a call: XLA replaces it by the branch and inlines
//! that before it does anything else with it (`ConditionalSimplifier`).
//!
//! `XlaBuilder` ends the process if a name in such a computation has no number, so texts here write `%name`, and `module`
//! adds one to each.

use super::{Built, Operands};
use crate::types::hlo_name;
use burn_tpu_runtime::graph::{DType, Node, TensorType};
use std::fmt::Write;
use xla::{HloModuleProto, XlaBuilder, XlaComputation, XlaOp};

/// Returns the results of a node that is one HLO op of these operands.
pub(super) fn one_op(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    op: &str,
    attributes: &str,
) -> Built<Vec<XlaOp>> {
    with_regions(builder, operands, node, op, attributes, "")
}

/// [`one_op`] with attributes that name `regions`, which are computations.
pub(super) fn with_regions(
    builder: &XlaBuilder,
    operands: &Operands,
    node: &Node,
    op: &str,
    attributes: &str,
    regions: &str,
) -> Built<Vec<XlaOp>> {
    let results: Vec<&TensorType> = node.result_types().collect();
    let text = module(operands, &results, op, attributes, regions);
    let operand = match operands {
        [(single, _)] => (*single).clone(),
        many => builder.tuple(&many.iter().map(|(value, _)| *value).collect::<Vec<_>>())?,
    };
    let branch = || {
        HloModuleProto::parse_and_return_unverified_module(text.as_bytes()).map(|hlo| XlaComputation::from_proto(&hlo))
    };
    let always = super::constant::scalar(builder, DType::Bool, 1)?;
    let called = always.conditional(operand.clone(), branch()?, operand, branch()?)?;
    match results.len() {
        1 => Ok(vec![called]),
        count => (0..count).map(|place| called.get_tuple_element(place as i64)).collect(),
    }
}

/// Returns `f32[2,3]{1,0}`.
pub(super) fn shape(ty: &TensorType) -> String {
    let list = |numbers: &mut dyn Iterator<Item = usize>| numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let (dims, layout) = (list(&mut ty.dims.iter().copied()), list(&mut (0..ty.rank()).rev()));
    let layout = if layout.is_empty() { layout } else { format!("{{{layout}}}") };
    format!("{}[{dims}]{layout}", hlo_name(ty.dtype))
}

fn tuple(types: &[&TensorType]) -> String {
    match types {
        [single] => shape(single),
        many => format!("({})", many.iter().map(|ty| shape(ty)).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the text of a module whose entry is one op of its parameter, or of the elements of its parameter.
fn module(operands: &Operands, results: &[&TensorType], op: &str, attributes: &str, regions: &str) -> String {
    let types: Vec<&TensorType> = operands.iter().map(|(_, ty)| *ty).collect();
    let mut text = format!("HloModule called\n\n{regions}\nENTRY %entry {{\n");
    let parameter = format!("{} parameter(0)", tuple(&types));
    // Writing to a String cannot fail.
    if let [_] = types[..] {
        let _ = writeln!(text, "  %x0 = {parameter}");
    } else {
        let _ = writeln!(text, "  %p = {parameter}");
        for (place, ty) in types.iter().enumerate() {
            let _ = writeln!(text, "  %x{place} = {} get-tuple-element(%p), index={place}", shape(ty));
        }
    }
    let arguments: Vec<String> = (0..types.len()).map(|place| format!("%x{place}")).collect();
    let _ = writeln!(text, "  ROOT %r = {} {op}({}){attributes}\n}}", tuple(results), arguments.join(", "));
    numbered(&text)
}

/// Returns the text with a number at the end of each name that begins with `%`.
fn numbered(text: &str) -> String {
    let mut parts = text.split('%');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let _ = write!(numbered, "%{name}.1{rest}");
    }
    numbered
}

/// Returns `, name={1,2}`.
pub(super) fn dims(name: &str, dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!(", {name}={{{}}}", dims.join(","))
}

/// Returns the computation `%name` of two scalars.
pub(super) fn binary_region(name: &str, op: &str, dtype: DType) -> String {
    let ty = shape(&TensorType::scalar(dtype));
    format!("%{name} {{\n  %a = {ty} parameter(0)\n  %b = {ty} parameter(1)\n  ROOT %r = {ty} {op}(%a, %b)\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_their_layout() {
        let text = |dims: &[usize]| shape(&TensorType::new(DType::BF16, dims));
        assert_eq!((text(&[2, 0, 3]), text(&[])), ("bf16[2,0,3]{2,1,0}".to_owned(), "bf16[]".to_owned()));
        assert_eq!(dims("dimensions", &[0, 2]), ", dimensions={0,2}");
    }

    #[test]
    fn names_have_numbers() {
        assert_eq!(
            numbered("ROOT %r = f32[] add(%a_1, %b), to_apply=%c"),
            "ROOT %r.1 = f32[] add(%a_1.1, %b.1), to_apply=%c.1"
        );
    }
}
