//! Lowering of ops that create, move, repeat or drop whole dims.

use super::printer::{Statement, Value, array};
use crate::op::{FftKind, MemorySpace, PadAttrs, SliceAttrs};

pub(super) fn iota(dim: usize) -> Statement {
    Statement::new("stablehlo.iota", []).attr("iota_dimension", format!("{dim} : i64"))
}

pub(super) fn broadcast_in_dim(operands: Vec<Value>, mapping: &[usize]) -> Statement {
    Statement::new("stablehlo.broadcast_in_dim", operands).attr("broadcast_dimensions", array(mapping))
}

pub(super) fn transpose(operands: Vec<Value>, permutation: &[usize]) -> Statement {
    Statement::new("stablehlo.transpose", operands).attr("permutation", array(permutation))
}

pub(super) fn reverse(operands: Vec<Value>, dims: &[usize]) -> Statement {
    Statement::new("stablehlo.reverse", operands).attr("dimensions", array(dims))
}

pub(super) fn slice(operands: Vec<Value>, attrs: &SliceAttrs) -> Statement {
    Statement::new("stablehlo.slice", operands)
        .attr("start_indices", array(&attrs.start))
        .attr("limit_indices", array(&attrs.limit))
        .attr("strides", array(&attrs.stride))
}

pub(super) fn pad(operands: Vec<Value>, attrs: &PadAttrs) -> Statement {
    Statement::new("stablehlo.pad", operands)
        .attr("edge_padding_low", array(&attrs.low))
        .attr("edge_padding_high", array(&attrs.high))
        .attr("interior_padding", array(&attrs.interior))
}

pub(super) fn concatenate(operands: Vec<Value>, dim: usize) -> Statement {
    Statement::new("stablehlo.concatenate", operands).attr("dimension", format!("{dim} : i64"))
}

pub(super) fn fft(operands: Vec<Value>, kind: FftKind, length: usize) -> Statement {
    let kind = match kind {
        FftKind::Fft => "FFT",
        FftKind::Ifft => "IFFT",
        FftKind::Rfft => "RFFT",
        FftKind::Irfft => "IRFFT",
    };
    Statement::new("stablehlo.fft", operands)
        .attr("fft_type", format!("#stablehlo<fft_type {kind}>"))
        .attr("fft_length", array([length]))
}

/// Selects Threefry by name, since the default algorithm differs between platforms.
pub(super) fn rng_bit_generator(operands: Vec<Value>) -> Statement {
    Statement::new("stablehlo.rng_bit_generator", operands).attr("rng_algorithm", "#stablehlo<rng_algorithm THREE_FRY>")
}

/// Says in which memory a value is. XLA's pass `HostOffloader` makes copies of it, and updates and slices of what is there.
pub(super) fn move_to(operands: Vec<Value>, memory: MemorySpace) -> Statement {
    Statement::new("stablehlo.custom_call", operands)
        .attr("call_target_name", "\"annotate_device_placement\"")
        .attr("has_side_effect", true)
        .attr("mhlo.frontend_attributes", format!("{{_xla_buffer_placement = {:?}}}", memory.name()))
}

#[cfg(test)]
mod tests {
    use crate::lower::{LowerOptions, lower, lower_with};
    use crate::op::MemorySpace;
    use crate::{Builder, DType, Graph, Op, Program, TensorType};

    /// Where there is no other memory, the value is the operand.
    #[test]
    fn values_move_where_there_is_a_memory_of_the_host() {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: TensorType::new(DType::F32, [4]) }, &[]).unwrap();
        let moved = graph.move_to(x, MemorySpace::PinnedHost).unwrap();
        let program = Program::extract(&graph, &[moved]).unwrap();
        let options = LowerOptions { host_memory: true, ..LowerOptions::default() };
        let text = lower_with(&program, options).unwrap().text;
        assert!(text.contains("_xla_buffer_placement = \"pinned_host\""), "{text}");
        assert!(!lower(&program).unwrap().text.contains("custom_call"));
    }
}
