//! The text of a kernel: one MLIR module in the versioned dialects of Mosaic, in MLIR's generic form.
//!
//! `stable_mosaic.*` is what JAX serialises kernels to. It has a version, and a newer libtpu upgrades it, so a kernel that
//! compiles today compiles tomorrow. The text depends on the kernel alone. Owns: names, types and attributes in the text.
//! May not know: what ops mean, and how the text reaches a plugin.

use crate::index::Expression;
use crate::kernel::{Kernel, Role, Semantics, Space, Window};
use crate::op::{Binary, Ref, Value};
use crate::{ArrayType, Index};
use std::fmt::{Display, Write};

mod body;

/// The version of the dialects that is printed: that of JAX 0.10.
const VERSION: u32 = 15;

/// A named value of the text, with its type.
#[derive(Clone, Debug)]
struct Term {
    name: String,
    ty: String,
}

impl Kernel {
    /// Returns the kernel as MLIR text.
    pub fn text(&self) -> String {
        let mut printer = Printer::new(self);
        let version = format!("stable_mosaic.version = {VERSION} : i64");
        let _ = writeln!(printer.text, "module @{} attributes {{{version}}} {{", self.name);
        printer.main();
        for (place, window) in windows(self).enumerate() {
            printer.index_map(place, window);
        }
        printer.text + "}\n"
    }
}

/// Returns what moves with the grid: operands, then results.
fn windows(kernel: &Kernel) -> impl Iterator<Item = &Window> {
    let buffers = kernel.of(Role::Operand).chain(kernel.of(Role::Result));
    buffers.map(|(_, buffer)| &buffer.window)
}

struct Printer<'k> {
    kernel: &'k Kernel,
    text: String,
    /// The name of each value that was printed.
    values: Vec<Option<Term>>,
    /// The number of names of this function.
    names: usize,
    depth: usize,
}

impl<'k> Printer<'k> {
    fn new(kernel: &'k Kernel) -> Self {
        Self { kernel, text: String::new(), values: vec![None; kernel.nodes.len()], names: 0, depth: 2 }
    }

    fn main(&mut self) {
        let kernel = self.kernel;
        let roles = [Role::Operand, Role::Result, Role::Scratch];
        let buffers = roles.into_iter().flat_map(|role| kernel.of(role));
        let blocks = buffers.map(|(at, _)| self.buffer(at));
        let arguments: Vec<Term> = grid(kernel).chain(blocks).collect();
        self.open(&arguments);
        self.body(&kernel.body);
        let attributes = self.attributes();
        self.close(&[], &arguments, &[], "main", &attributes);
    }

    /// Returns what the function `@main` says of the grid and its windows, before and after its type.
    fn attributes(&self) -> [String; 2] {
        let kernel = self.kernel;
        let semantics = list(kernel.axes.iter().map(|axis| match axis.semantics {
            Semantics::Parallel => "#tpu.dimension_semantics<parallel>",
            Semantics::Arbitrary => "#tpu.dimension_semantics<arbitrary>",
        }));
        let bounds = list(kernel.axes.iter().map(|axis| axis.size));
        let windows = list(windows(kernel).enumerate().map(|(place, window)| {
            let bounds = list(&window.block);
            format!("{{transform_indices = @window_{place}, window_bounds = array<i64: {bounds}>}}")
        }));
        let scratch = kernel.of(Role::Scratch).count();
        let before = format!("dimension_semantics = [{semantics}], iteration_bounds = array<i64: {bounds}>, ");
        let after = format!(
            ", scalar_prefetch = 0 : i64, scratch_operands = {scratch} : i64, tpu.core_type = #tpu.core_type<tc>, \
             window_params = [{windows}]"
        );
        [before, after]
    }

    /// Prints the function that returns the index of the block that a step sees.
    fn index_map(&mut self, place: usize, window: &Window) {
        let arguments: Vec<Term> = grid(self.kernel).collect();
        self.open(&arguments);
        let results: Vec<Term> = window.index.iter().map(|index| self.index(index)).collect();
        self.close(&results, &arguments, &results, &format!("window_{place}"), &[String::new(), String::new()]);
    }

    fn index(&mut self, index: &Index) -> Term {
        match &index.0 {
            Expression::Constant(value) => self.constant(value, "i32".into()),
            Expression::Grid(axis) => Term { name: format!("%g{axis}"), ty: "i32".into() },
            Expression::Binary(op, lhs, rhs) => {
                let operands = [self.index(lhs), self.index(rhs)];
                self.integers(Binary::from(*op), &operands)
            }
        }
    }

    /// Prints an op on two integers.
    fn integers(&mut self, op: Binary, operands: &[Term; 2]) -> Term {
        let overflow = "overflowFlags = #arith.overflow<none>";
        let (name, attributes) = match op {
            Binary::Add => ("arith.addi", overflow),
            Binary::Sub => ("arith.subi", overflow),
            Binary::Mul => ("arith.muli", overflow),
            Binary::Div => ("arith.divsi", ""),
            Binary::Max => ("arith.maxsi", ""),
            Binary::Min => ("arith.minsi", ""),
            Binary::And => ("arith.andi", ""),
            Binary::Or => ("arith.ori", ""),
            Binary::Xor => ("arith.xori", ""),
            Binary::ShiftLeft => ("arith.shli", overflow),
            Binary::ShiftRight => ("arith.shrui", ""),
        };
        self.op(name, operands, attributes, operands[0].ty.clone())
    }

    fn constant(&mut self, value: impl Display, ty: String) -> Term {
        self.op("arith.constant", &[], &format!("value = {value} : {ty}"), ty)
    }

    /// Prints an op with one result.
    fn op(&mut self, name: &str, operands: &[Term], attributes: &str, ty: String) -> Term {
        let result = Term { name: format!("%{}", self.names), ty };
        self.names += 1;
        let call = call(name, operands, attributes);
        self.line(&format!("{} = {call} -> {}", result.name, result.ty));
        result
    }

    fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{:1$}{line}", "", 2 * self.depth);
    }

    fn open(&mut self, arguments: &[Term]) {
        self.names = 0;
        let arguments = list(arguments.iter().map(|term| format!("{}: {}", term.name, term.ty)));
        let _ = writeln!(self.text, "  \"stable_mosaic.func.func\"() ({{\n  ^bb0({arguments}):");
    }

    fn close(&mut self, returned: &[Term], arguments: &[Term], results: &[Term], name: &str, attributes: &[String; 2]) {
        self.line(&format!("{} -> ()", call("func.return", returned, "")));
        let (arguments, results) = (types(arguments), types(results));
        let [before, after] = attributes;
        let _ = writeln!(
            self.text,
            "  }}) {{{before}function_type = ({arguments}) -> ({results}){after}, sym_name = \"{name}\"}} : () -> ()"
        );
    }

    /// Returns a block as an argument of `@main`.
    fn buffer(&self, at: Ref) -> Term {
        let window = &self.kernel.buffer(at).window;
        let space = match window.space {
            Space::Vmem => "vmem",
            Space::Smem => "smem",
        };
        let ty = format!("memref<{}, #tpu.memory_space<{space}>>", shape(&window.block_type()));
        Term { name: format!("%r{}", at.0), ty }
    }

    fn value(&self, value: Value) -> Term {
        let printed = self.values.get(value.0 as usize).cloned().flatten();
        printed.unwrap_or_else(|| Term { name: format!("%undefined{}", value.0), ty: String::new() })
    }
}

/// Returns the arguments that are the indices of the grid.
fn grid(kernel: &Kernel) -> impl Iterator<Item = Term> {
    (0..kernel.axes.len()).map(|axis| Term { name: format!("%g{axis}"), ty: "i32".into() })
}

/// Returns `"stable_mosaic.arith.addi"(%1, %2) {…} : (i32, i32)`.
fn call(name: &str, operands: &[Term], attributes: &str) -> String {
    let names = list(operands.iter().map(|operand| &operand.name));
    let attributes = if attributes.is_empty() { String::new() } else { format!(" {{{attributes}}}") };
    format!("\"stable_mosaic.{name}\"({names}){attributes} : ({})", types(operands))
}

fn types(terms: &[Term]) -> String {
    list(terms.iter().map(|term| &term.ty))
}

/// Returns `8x128xf32`.
fn shape(ty: &ArrayType) -> String {
    let dims: String = ty.dims.iter().map(|dim| format!("{dim}x")).collect();
    dims + ty.element.name()
}

/// Returns `vector<8x128xf32>`, or `f32` for a scalar.
fn mlir_type(ty: &ArrayType) -> String {
    if ty.is_scalar() { ty.element.name().into() } else { format!("vector<{}>", shape(ty)) }
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
