//! Run-time scalars: all numbers of a run are packed into at most three uploads and unpacked on the device.
//!
//! Slots of up to 32 bits share one `i32[n]`, since TPUs bitcast 32-bit words but not 64-bit ones; wide integers share
//! one `i64[n]` and doubles one `f64[n]`. A 16-bit float is widened to f32, which is exact both ways.

use super::Argument;
use super::movement;
use super::printer::{Block, Statement, Value};
use crate::op::SliceAttrs;
use crate::{DType, GraphError, NodeId, Program, Result, TensorType};
use half::{bf16, f16};
use smallvec::smallvec;

/// Returns the element type of the upload that holds a slot.
fn word(dtype: DType) -> DType {
    match dtype {
        DType::I64 | DType::U64 => DType::I64,
        DType::F64 => DType::F64,
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::BF16
        | DType::F16
        | DType::F32
        | DType::C64 => DType::I32,
    }
}

/// The row-major little-endian bytes of a [`Argument::Slots`] of element type `upload`, from the bits of all of the
/// trace's slots (`values[i]` belongs to slot `i`, as [`Number::bits`](crate::Number::bits) gives them).
///
/// # Errors
/// If a slot has no value.
pub fn pack_slots(upload: DType, slots: &[(u32, DType)], values: &[u64]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(slots.len() * upload.size_bytes());
    for &(index, dtype) in slots {
        let bits = *values.get(index as usize).ok_or_else(|| GraphError {
            op: "graph.slot",
            operands: format!("slot {index}"),
            rule: format!("has no value: {} were given", values.len()),
        })?;
        match upload.size_bytes() {
            8 => bytes.extend_from_slice(&bits.to_le_bytes()),
            _ => bytes.extend_from_slice(&word_bits(dtype, bits).to_le_bytes()),
        }
    }
    Ok(bytes)
}

/// The 32-bit word of a slot: narrow integers by value, so that the device's conversion is exact, floats as f32 bits.
fn word_bits(dtype: DType, bits: u64) -> u32 {
    match dtype {
        DType::I8 => i32::from(bits as i8) as u32,
        DType::I16 => i32::from(bits as i16) as u32,
        DType::BF16 => bf16::from_bits(bits as u16).to_f32().to_bits(),
        DType::F16 => f16::from_bits(bits as u16).to_f32().to_bits(),
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::I32
        | DType::U32
        | DType::F32
        | DType::I64
        | DType::U64
        | DType::F64
        | DType::C64 => bits as u32,
    }
}

/// Where a slot's value is: which upload, which element.
struct Place {
    node: NodeId,
    upload: usize,
    element: usize,
    dtype: DType,
}

/// How a program's slots are packed.
pub(super) struct Packing {
    uploads: Vec<(DType, Vec<(u32, DType)>)>,
    places: Vec<Place>,
    first_argument: usize,
}

impl Packing {
    /// Packs the slots of a program after `first_argument` other arguments.
    pub fn new(program: &Program, first_argument: usize) -> Self {
        let mut packing = Self { uploads: Vec::new(), places: Vec::new(), first_argument };
        for upload in [DType::I32, DType::I64, DType::F64] {
            packing.add_upload(upload, program);
        }
        packing.places.sort_by_key(|place| place.node);
        packing
    }

    fn add_upload(&mut self, upload: DType, program: &Program) {
        let mut slots = Vec::new();
        for (node, index, dtype) in program.slots().filter(|(_, _, dtype)| word(*dtype) == upload) {
            self.places.push(Place { node, upload: self.uploads.len(), element: slots.len(), dtype });
            slots.push((index, dtype));
        }
        if !slots.is_empty() {
            self.uploads.push((upload, slots));
        }
    }

    pub fn arguments(&self) -> impl Iterator<Item = Argument> {
        self.uploads
            .iter()
            .map(|(dtype, slots)| Argument::Slots { ty: TensorType::new(*dtype, [slots.len()]), slots: slots.clone() })
    }

    /// Takes a slot's scalar out of its upload.
    pub fn unpack(&self, node: NodeId, block: &mut Block) -> Result<Statement> {
        let missing =
            || GraphError { op: "graph.slot", operands: node.to_string(), rule: "is not a slot of the program".into() };
        let found = self.places.binary_search_by_key(&node, |place| place.node);
        let place = found.ok().and_then(|i| self.places.get(i)).ok_or_else(missing)?;
        let (word, slots) = self.uploads.get(place.upload).ok_or_else(missing)?;
        let name = format!("%arg{}", self.first_argument + place.upload);
        let upload = Value::new(name, TensorType::new(*word, [slots.len()]));
        let at =
            SliceAttrs { start: smallvec![place.element], limit: smallvec![place.element + 1], stride: smallvec![1] };
        let single = block.push(&movement::slice(vec![upload], &at), TensorType::new(*word, [1]));
        let reshape = Statement::new("stablehlo.reshape", [single]);
        if *word == place.dtype {
            return Ok(reshape);
        }
        let scalar = block.push(&reshape, TensorType::scalar(*word));
        Ok(from_word(scalar, place.dtype, block))
    }
}

/// The op that turns a word into the slot's element type.
fn from_word(word: Value, dtype: DType, block: &mut Block) -> Statement {
    match dtype {
        DType::F32 | DType::U32 => Statement::new("stablehlo.bitcast_convert", [word]),
        DType::BF16 | DType::F16 => {
            let bitcast = Statement::new("stablehlo.bitcast_convert", [word]);
            let wide = block.push(&bitcast, TensorType::scalar(DType::F32));
            Statement::new("stablehlo.convert", [wide])
        }
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U64
        | DType::F64
        | DType::C64 => Statement::new("stablehlo.convert", [word]),
    }
}
