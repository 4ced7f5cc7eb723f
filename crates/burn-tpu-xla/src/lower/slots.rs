//! Run-time scalars: all slots of one element type are one array, which the program takes apart.

use super::Built;
use crate::types::{element, i64s};
use burn_tpu_runtime::graph::{DType, NodeId, Program};
use burn_tpu_runtime::{Result, TpuError};
use std::collections::BTreeMap;
use xla::{XlaBuilder, XlaOp};

/// An argument of slots.
pub(crate) struct SlotUpload {
    /// Their element type.
    pub dtype: DType,
    /// The index of each element's slot.
    pub slots: Vec<u32>,
}

impl SlotUpload {
    /// Returns the bytes of the array in a run with these slots.
    ///
    /// # Errors
    /// [`TpuError::Bug`] if a slot has no value.
    pub(crate) fn bytes(&self, slots: &[u64]) -> Result<Vec<u8>> {
        let size = self.dtype.size_bytes();
        let mut bytes = Vec::with_capacity(size * self.slots.len());
        for &index in &self.slots {
            let bits = slots.get(index as usize);
            let bits = bits.ok_or_else(|| TpuError::Bug(format!("slot {index} has no value")))?;
            bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
        }
        Ok(bytes)
    }
}

/// Returns the arrays of a program's slots.
pub(super) fn uploads(program: &Program) -> Vec<SlotUpload> {
    let mut by_type: BTreeMap<DType, Vec<u32>> = BTreeMap::new();
    for (_, index, dtype) in program.slots() {
        by_type.entry(dtype).or_default().push(index);
    }
    by_type.into_iter().map(|(dtype, slots)| SlotUpload { dtype, slots }).collect()
}

/// Returns the scalar of each slot's node. The arrays are the parameters from `first`.
pub(super) fn unpack(
    builder: &XlaBuilder,
    program: &Program,
    uploads: &[SlotUpload],
    first: usize,
) -> Built<BTreeMap<NodeId, XlaOp>> {
    let mut scalars = BTreeMap::new();
    for (number, upload) in uploads.iter().enumerate() {
        let (place, dims) = ((first + number) as i64, i64s(&[upload.slots.len()]));
        let array = builder.parameter(place, element(upload.dtype), &dims, &format!("slots{number}"))?;
        let nodes = program.slots().filter(|(_, _, dtype)| *dtype == upload.dtype);
        for (at, (node, ..)) in (0..).zip(nodes) {
            scalars.insert(node, array.slice_in_dim1(at, at + 1, 0)?.reshape(&[])?);
        }
    }
    Ok(scalars)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_element_type() {
        let upload = SlotUpload { dtype: DType::I16, slots: vec![1, 0] };
        assert_eq!(upload.bytes(&[0x1_0203, 0xffff]).unwrap(), [0xff, 0xff, 3, 2]);
        assert!(matches!(upload.bytes(&[0]), Err(TpuError::Bug(_))));
    }
}
