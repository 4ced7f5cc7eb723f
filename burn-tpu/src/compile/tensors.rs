//! A list of tensors of any rank and dtype, as a Burn module.

use super::leaves::{replaced, visited};
use crate::backend::{TpuFloat, TpuInt};
use crate::{Tpu, TpuDevice, TpuTensor};
use burn_core::module::{
    Content, Devices, EmptyRecord, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};

use burn_core::tensor::{Tensor, TensorPrimitive};

/// Tensors in an order that their owner knows.
#[derive(Clone, Default)]
pub(super) struct TensorList(pub(super) Vec<TpuTensor>);

/// Their number is all that a signature needs beside their types.
impl std::fmt::Debug for TensorList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorList({})", self.0.len())
    }
}

impl TensorList {
    pub(super) fn push<F: TpuFloat, I: TpuInt, const D: usize>(&mut self, tensor: Tensor<Tpu<F, I>, D>) {
        self.0.push(tensor.into_primitive().tensor());
    }
}

/// Returns a tensor of a list as one of Burn's.
pub(super) fn tensor<F: TpuFloat, I: TpuInt, const D: usize>(tensor: TpuTensor) -> Tensor<Tpu<F, I>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

impl<F: TpuFloat, I: TpuInt> Module<Tpu<F, I>> for TensorList {
    type Record = EmptyRecord;

    fn collect_devices(&self, mut devices: Devices<Tpu<F, I>>) -> Devices<Tpu<F, I>> {
        for tensor in &self.0 {
            let device = visited(tensor).device();
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices
    }

    fn fork(self, device: &TpuDevice) -> Self {
        Module::<Tpu<F, I>>::to_device(self, device)
    }

    fn to_device(self, device: &TpuDevice) -> Self {
        let moved = |tensor: TpuTensor| {
            replaced(tensor, |tensor| burn_tpu_runtime::ops::data::to_device(tensor.0, &device.0).into())
        };
        Self(self.0.into_iter().map(moved).collect())
    }

    fn visit<V: ModuleVisitor<Tpu<F, I>>>(&self, _visitor: &mut V) {}

    fn map<M: ModuleMapper<Tpu<F, I>>>(self, _mapper: &mut M) -> Self {
        self
    }

    fn load_record(self, _record: EmptyRecord) -> Self {
        self
    }

    fn into_record(self) -> EmptyRecord {
        EmptyRecord::new()
    }
}

impl ModuleDisplayDefault for TensorList {
    fn content(&self, content: Content) -> Option<Content> {
        content.add_single(&format!("{} tensors", self.0.len())).optional()
    }
}

impl ModuleDisplay for TensorList {}
