//! The readable text of graphs and programs: one node per line, `%3 = add %1, %2 : f32[8]`.
//!
//! [`Program::stable_hash`] hashes this text, so it must be canonical: it contains every attribute and every constant
//! exactly, is equal for equal programs and different for different ones, and contains no addresses or slot values.
//! Increment [`FORMAT`] when the text changes.

#[cfg(test)]
mod tests;

use crate::op::*;
use crate::{DType, Graph, Literal, LiteralData, Node, NodeId, Op, Placement, Program, Sharding};
use half::{bf16, f16};
use sha2::{Digest, Sha256};
use std::fmt::{Display, Formatter, Result, Write};

/// The version of the text, which is part of every stable hash.
const FORMAT: &str = "burn-tpu-graph text 1";

impl Program {
    /// Returns a hash of the program that is the same in every process and on every machine, for keys of on-disk caches.
    pub fn stable_hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        hasher.update(format!("{FORMAT}\n{self}"));
        hasher.finalize().into()
    }
}

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut nodes = self.nodes().iter().enumerate();
        nodes.try_for_each(|(i, node)| writeln!(f, "{} = {node}", NodeId(i as u32)))
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}outputs", self.graph())?;
        list(f, self.outputs())?;
        f.write_char('\n')?;
        self.placement().map_or(Ok(()), |placement| placement.fmt(f))
    }
}

impl Display for Placement {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Placement { mesh, batch, parameters, results } = self;
        let mut line = |name: &str, shardings: &[Sharding]| {
            let named: Vec<_> = shardings.iter().map(|sharding| sharding.named(mesh).to_string()).collect();
            writeln!(f, "{name} {}", named.join(", "))
        };
        let batch: Vec<&str> = batch.iter().map(|&axis| mesh.name(axis)).collect();
        line(&format!("mesh {mesh}\nbatches {}\nparameters", batch.join(", ")), parameters)?;
        line("results", results)
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}", self.op.short_name())?;
        list(f, &self.operands)?;
        let attributes = attributes(&self.op);
        if !attributes.is_empty() {
            let pairs: Vec<_> = attributes.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            write!(f, " {{{}}}", pairs.join(", "))?;
        }
        write!(f, " : {}", self.ty)?;
        self.more.iter().try_for_each(|ty| write!(f, ", {ty}"))
    }
}

/// Writes ` %1, %2`.
fn list(f: &mut Formatter<'_>, ids: &[NodeId]) -> Result {
    ids.iter().enumerate().try_for_each(|(i, id)| write!(f, "{} {id}", if i == 0 { "" } else { "," }))
}

impl Op {
    /// Returns the mnemonic without its dialect.
    pub fn short_name(&self) -> &'static str {
        let mnemonic = self.mnemonic();
        mnemonic.split_once('.').map_or(mnemonic, |(_, name)| name)
    }
}

type Attributes = Vec<(&'static str, String)>;

fn attr(name: &'static str, value: impl std::fmt::Debug) -> (&'static str, String) {
    (name, format!("{value:?}"))
}

/// Returns every attribute of an op. The patterns name every field, so that a new field cannot be forgotten.
fn attributes(op: &Op) -> Attributes {
    match op {
        Op::Parameter { index, ty: _ } | Op::Slot { index, dtype: _ } | Op::Offset { index, dtype: _ } => {
            vec![attr("index", index)]
        }
        Op::Constant(literal) => vec![("value", constant(literal))],
        Op::Iota { ty: _, dim } => vec![attr("dim", dim)],
        Op::Compare(direction) => vec![attr("direction", direction)],
        // The result's type contains the attribute.
        Op::Convert { dtype: _ } | Op::BitcastConvert { dtype: _ } => Vec::new(),
        Op::Reshape { dims: _ } | Op::RngBitGenerator { ty: _ } | Op::DynamicSlice { sizes: _ } => Vec::new(),
        Op::BroadcastInDim { dims: _, mapping } => vec![attr("mapping", mapping)],
        Op::Transpose { permutation } => vec![attr("permutation", permutation)],
        Op::Reverse { dims } => vec![attr("dims", dims)],
        Op::Slice(attrs) => slice(attrs),
        Op::Pad(attrs) => pad(attrs),
        Op::Concatenate { dim } => vec![attr("dim", dim)],
        Op::DotGeneral(attrs) => dot(attrs),
        Op::Convolution(attrs) => convolution(attrs),
        Op::Reduce { combine, dims } => vec![attr("combine", combine), attr("dims", dims)],
        Op::ArgReduce { max, dim } => vec![attr("max", max), attr("dim", dim)],
        Op::ReduceWindow { combine, window: attrs } => {
            std::iter::once(attr("combine", combine)).chain(window(attrs)).collect()
        }
        Op::SelectAndScatter { window: attrs } => window(attrs),
        Op::Sort { dim, descending } => vec![attr("dim", dim), attr("descending", descending)],
        Op::TopK { k } => vec![attr("k", k)],
        Op::Gather(attrs) => gather(attrs),
        Op::Scatter(attrs) => scatter(attrs),
        Op::Fft { kind, length } => vec![attr("kind", kind), attr("length", length)],
        Op::For { trips: Trips::Exactly(trips), body } => vec![attr("trips", trips), ("body", one_line(body))],
        Op::For { trips: Trips::AtMost(most), body } => vec![attr("at_most", most), ("body", one_line(body))],
        Op::CustomCall(call) => {
            vec![("name", call.name().into()), ("form", call.form().text()), ("plain", one_line(call.plain()))]
        }
        Op::GetResult { index } => vec![attr("index", index)],
        Op::Unary(_)
        | Op::Binary(_)
        | Op::IsFinite
        | Op::Select
        | Op::Clamp
        | Op::DynamicUpdateSlice
        | Op::Complex
        | Op::Real
        | Op::Imag
        | Op::OptimizationBarrier => Vec::new(),
        Op::ShardingConstraint(sharding) => vec![("sharding", sharding.to_string())],
        Op::MoveTo(memory) => vec![("memory", memory.name().to_owned())],
    }
}

fn slice(SliceAttrs { start, limit, stride }: &SliceAttrs) -> Attributes {
    vec![attr("start", start), attr("limit", limit), attr("stride", stride)]
}

fn pad(PadAttrs { low, high, interior }: &PadAttrs) -> Attributes {
    vec![attr("low", low), attr("high", high), attr("interior", interior)]
}

fn dot(attrs: &DotAttrs) -> Attributes {
    let DotAttrs { lhs_batch, rhs_batch, lhs_contract, rhs_contract, result: _, precision } = attrs;
    let mut attributes = vec![
        attr("lhs_batch", lhs_batch),
        attr("rhs_batch", rhs_batch),
        attr("lhs_contract", lhs_contract),
        attr("rhs_contract", rhs_contract),
    ];
    attributes.extend(of_precision(*precision));
    attributes
}

fn of_precision(precision: Precision) -> Option<(&'static str, String)> {
    (precision != Precision::Default).then(|| ("precision", precision.name().to_lowercase()))
}

fn conv_dims(name: &'static str, ConvDims { batch, feature, spatial }: &ConvDims) -> (&'static str, String) {
    (name, format!("({batch}, {feature}, {spatial:?})"))
}

fn convolution(attrs: &ConvAttrs) -> Attributes {
    let ConvAttrs {
        strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        input,
        kernel,
        output,
        feature_groups,
        batch_groups,
        result: _,
        precision,
    } = attrs;
    let mut attributes = vec![
        attr("strides", strides),
        attr("padding", padding),
        attr("lhs_dilation", lhs_dilation),
        attr("rhs_dilation", rhs_dilation),
        conv_dims("input", input),
        conv_dims("kernel", kernel),
        conv_dims("output", output),
        attr("feature_groups", feature_groups),
        attr("batch_groups", batch_groups),
    ];
    attributes.extend(of_precision(*precision));
    attributes
}

fn window(attrs: &WindowAttrs) -> Attributes {
    let WindowAttrs { dims, strides, base_dilation, window_dilation, padding } = attrs;
    vec![
        attr("dims", dims),
        attr("strides", strides),
        attr("base_dilation", base_dilation),
        attr("window_dilation", window_dilation),
        attr("padding", padding),
    ]
}

fn gather(attrs: &GatherAttrs) -> Attributes {
    let GatherAttrs {
        offset_dims,
        collapsed_slice_dims,
        operand_batching_dims,
        start_indices_batching_dims,
        start_index_map,
        index_vector_dim,
        slice_sizes,
    } = attrs;
    vec![
        attr("offset_dims", offset_dims),
        attr("collapsed_slice_dims", collapsed_slice_dims),
        attr("operand_batching_dims", operand_batching_dims),
        attr("start_indices_batching_dims", start_indices_batching_dims),
        attr("start_index_map", start_index_map),
        attr("index_vector_dim", index_vector_dim),
        attr("slice_sizes", slice_sizes),
    ]
}

fn scatter(attrs: &ScatterAttrs) -> Attributes {
    let ScatterAttrs {
        update_window_dims,
        inserted_window_dims,
        input_batching_dims,
        scatter_indices_batching_dims,
        scatter_dims_to_operand_dims,
        index_vector_dim,
        mode,
    } = attrs;
    vec![
        attr("update_window_dims", update_window_dims),
        attr("inserted_window_dims", inserted_window_dims),
        attr("input_batching_dims", input_batching_dims),
        attr("scatter_indices_batching_dims", scatter_indices_batching_dims),
        attr("scatter_dims_to_operand_dims", scatter_dims_to_operand_dims),
        attr("index_vector_dim", index_vector_dim),
        attr("mode", mode),
    ]
}

/// Returns a program inside a node, such as a loop's body, on the line of the node: `(%0 = …; outputs %0)`. Its node numbers
/// start from 0.
fn one_line(body: &Program) -> String {
    format!("({})", body.to_string().trim_end().replace('\n', "; "))
}

/// Returns a constant's value: one number for a splat, hex digits of the bytes for a table.
fn constant(literal: &Literal) -> String {
    match &literal.data {
        LiteralData::Splat(bits) => number(literal.ty.dtype, *bits),
        LiteralData::Dense(bytes) => {
            let digits = bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
                // Writing to a String cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            });
            format!("0x{digits}")
        }
    }
}

/// Returns the text of a number, which differs for different bits: the shortest decimal that parses back, NaNs by
/// their bits.
fn number(dtype: DType, bits: u64) -> String {
    let float = |value: f64| if value.is_nan() { format!("nan:{bits:#x}") } else { format!("{value:?}") };
    match dtype {
        DType::Bool => (bits != 0).to_string(),
        DType::I8 => (bits as i8).to_string(),
        DType::I16 => (bits as i16).to_string(),
        DType::I32 => (bits as i32).to_string(),
        DType::I64 => (bits as i64).to_string(),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits.to_string(),
        DType::BF16 => float(bf16::from_bits(bits as u16).to_f64()),
        DType::F16 => float(f16::from_bits(bits as u16).to_f64()),
        DType::F32 if f32::from_bits(bits as u32).is_nan() => float(f64::NAN),
        DType::F32 => format!("{:?}", f32::from_bits(bits as u32)),
        DType::F64 => float(f64::from_bits(bits)),
        DType::C64 => format!("{bits:#x}"),
    }
}
