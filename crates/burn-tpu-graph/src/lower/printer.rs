//! The text of one op, in one form for all ops: `%3 = "stablehlo.add"(%1, %2) : (tensor<8xf32>, …) -> tensor<8xf32>`.

use crate::{Label, TensorType};
use std::fmt::{Display, Write};

/// A named value of the text, with its type.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub name: String,
    pub ty: TensorType,
}

impl Value {
    pub fn new(name: String, ty: TensorType) -> Self {
        Self { name, ty }
    }
}

/// Returns `tensor<8x3xf32>`.
pub(super) fn mlir_type(ty: &TensorType) -> String {
    let dims: String = ty.dims.iter().map(|dim| format!("{dim}x")).collect();
    format!("tensor<{dims}{}>", ty.dtype)
}

/// Returns the items separated by commas.
pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns `array<i64: 1, 2>`.
pub(super) fn array<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items = list(items);
    if items.is_empty() { "array<i64>".into() } else { format!("array<i64: {items}>") }
}

/// Returns `[1, 2]`.
pub(super) fn array_of<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", list(items))
}

/// Returns `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`: low and high padding per dim.
pub(super) fn edges(padding: &[(isize, isize)]) -> String {
    if padding.is_empty() {
        return "dense<> : tensor<0x2xi64>".into();
    }
    let rows = list(padding.iter().map(|(low, high)| format!("[{low}, {high}]")));
    format!("dense<[{rows}]> : tensor<{}x2xi64>", padding.len())
}

/// One op without the names and types of its results.
pub(super) struct Statement {
    name: &'static str,
    operands: Vec<Value>,
    attributes: Vec<String>,
    regions: Vec<Block>,
}

impl Statement {
    pub fn new(name: &'static str, operands: impl Into<Vec<Value>>) -> Self {
        Self { name, operands: operands.into(), attributes: Vec::new(), regions: Vec::new() }
    }

    pub fn attr(mut self, name: &str, value: impl Display) -> Self {
        self.attributes.push(format!("{name} = {value}"));
        self
    }

    pub fn region(mut self, region: Block) -> Self {
        self.regions.push(region);
        self
    }

    fn write(&self, text: &mut String, indent: &str, results: &[&TensorType], label: Label) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\"{}\"({})", self.name, list(self.operands.iter().map(|value| &value.name)));
        if !self.regions.is_empty() {
            let bodies: Vec<_> = self.regions.iter().map(|region| format!("{{\n{}{indent}}}", region.text)).collect();
            let _ = write!(text, " ({})", bodies.join(", "));
        }
        if !self.attributes.is_empty() {
            let _ = write!(text, " {{{}}}", self.attributes.join(", "));
        }
        let takes = list(self.operands.iter().map(|value| mlir_type(&value.ty)));
        let gives = match results {
            [single] => mlir_type(single),
            many => format!("({})", list(many.iter().map(|ty| mlir_type(ty)))),
        };
        let _ = write!(text, " : ({takes}) -> {gives}");
        if !label.is_empty() {
            let _ = write!(text, "{LOCATION}{label}\")");
        }
        text.push('\n');
    }
}

/// Returns a line of the text up to its location.
pub(super) fn without_location(line: &str) -> &str {
    line.rfind(LOCATION).map_or(line, |end| &line[..end])
}

/// The start of a location. It occurs nowhere else in the text.
const LOCATION: &str = " loc(\"";

/// A sequence of ops: the body of a function, or a region of an op. Regions do not nest (the region of a loop calls a
/// function), so two name spaces are enough.
pub(super) struct Block {
    text: String,
    indent: &'static str,
    prefix: &'static str,
    temporaries: usize,
    /// The label of the ops that follow, which XLA keeps as their `op_name`.
    label: Label,
}

impl Block {
    /// Creates the body of a function.
    pub fn function() -> Self {
        Self { text: String::new(), indent: "    ", prefix: "%t", temporaries: 0, label: "" }
    }

    /// Creates a region with block arguments of the given types.
    pub fn region(types: &[TensorType]) -> (Self, Vec<Value>) {
        let name = |(i, ty): (usize, &TensorType)| Value::new(format!("%a{i}"), ty.clone());
        let arguments: Vec<_> = types.iter().enumerate().map(name).collect();
        let head = list(arguments.iter().map(|value| format!("{}: {}", value.name, mlir_type(&value.ty))));
        let text = format!("    ^bb0({head}):\n");
        (Self { text, indent: "      ", prefix: "%r", temporaries: 0, label: "" }, arguments)
    }

    /// Returns the lines written so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Sets the label of the ops that are written from now on.
    pub fn set_label(&mut self, label: Label) {
        self.label = label;
    }

    /// Writes an op under a given name.
    pub fn assign(&mut self, name: &str, statement: &Statement, results: &[&TensorType]) {
        let count = if results.len() == 1 { String::new() } else { format!(":{}", results.len()) };
        let _ = write!(self.text, "{}{name}{count} = ", self.indent);
        statement.write(&mut self.text, self.indent, results, self.label);
    }

    /// Writes an op with one result under the next free name.
    pub fn push(&mut self, statement: &Statement, ty: TensorType) -> Value {
        let name = format!("{}{}", self.prefix, self.temporaries);
        self.temporaries += 1;
        self.assign(&name, statement, &[&ty]);
        Value::new(name, ty)
    }

    /// Writes the op that ends the block.
    pub fn finish(&mut self, name: &'static str, results: &[Value]) {
        self.text.push_str(self.indent);
        Statement::new(name, results).write(&mut self.text, self.indent, &[], "");
    }
}
