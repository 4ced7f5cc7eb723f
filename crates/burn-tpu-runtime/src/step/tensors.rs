//! A list of tensors of any rank and dtype.

use crate::leaves::{replaced, visited};
use crate::ops::data;
use crate::{Device, Tensor};

/// Tensors in an order that their owner knows.
#[derive(Clone, Default)]
pub(super) struct TensorList(pub(super) Vec<Tensor>);

impl TensorList {
    /// Visits each tensor, as a part of a traversal.
    pub(super) fn visit(&self) {
        self.0.iter().for_each(visited);
    }

    /// Replaces each tensor, as a part of a traversal.
    pub(super) fn moved(self, device: Device) -> Self {
        let moved = |tensor| replaced(tensor, |tensor| data::to_device(tensor, &device));
        Self(self.0.into_iter().map(moved).collect())
    }
}

/// Their number is all that a signature needs beside their types.
impl std::fmt::Debug for TensorList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorList({})", self.0.len())
    }
}
