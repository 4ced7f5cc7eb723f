//! What Burn's crates call of the tensors of burn-flex beside Burn's traits: burn-linalg's Cholesky factorization and
//! burn-vision's median filter read and write elements on the host.
//!
//! Each view runs what was recorded and copies the tensor to the host, and the tensor keeps that copy; what was written is
//! uploaded when the view is dropped. A tensor is always row-major here.

use crate::ops::host;
use crate::{TpuDevice, TpuError, TpuTensor};
use burn_backend::{Element, TensorData, TensorMetadata};
use burn_std::Shape;
use burn_tpu_runtime::graph::GraphError;
use burn_tpu_runtime::ops::data;
use std::any::Any;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

thread_local! {
    /// The device of the tensor that the thread viewed last.
    static VIEWED: Cell<TpuDevice> = const { Cell::new(TpuDevice::BEST) };
}

/// The elements of a tensor that was viewed. Clones of the tensor do not share them.
#[derive(Default)]
pub(crate) struct HostCopy(OnceLock<Box<dyn Any + Send + Sync>>);

impl Clone for HostCopy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl TpuTensor {
    /// Returns a tensor of host data. The filters of burn-vision name no device, and compute the data of a tensor that they
    /// viewed: it is on the device of the tensor that the thread viewed last, else on the best one.
    pub fn from_data(data: TensorData) -> Self {
        host::from_data("from_data", data, &VIEWED.get())
    }

    /// Returns how the elements are stored.
    pub fn layout(&self) -> Layout {
        Layout(self.shape())
    }

    /// Returns true.
    pub fn is_contiguous(&self) -> bool {
        true
    }

    /// Returns the tensor itself.
    pub fn to_contiguous(&self) -> Self {
        self.clone()
    }

    /// Returns the elements, row-major; `None` if they are of another type, or cannot be read.
    pub fn as_slice<E: Element>(&self) -> Option<&[E]> {
        if self.1.0.get().is_none() {
            let elements: Vec<E> = self.elements().ok()?;
            self.1.0.get_or_init(|| Box::new(elements));
        }
        self.1.0.get()?.downcast_ref::<Vec<E>>().map(Vec::as_slice)
    }

    /// Returns the elements, row-major, to be changed. A tensor that cannot be read, or that has elements of another type,
    /// becomes a failed one: its next read returns the reason, and this view is of zeros.
    pub fn storage_mut<E: Element>(&mut self) -> StorageMut<'_, E> {
        let read = self.elements();
        let is_failed = read.is_err();
        let elements = read.unwrap_or_else(|error| {
            *self = data::failed(self.0.ty().clone(), error, &self.device()).into();
            vec![E::default(); self.shape().num_elements()]
        });
        StorageMut { elements, tensor: self, is_failed }
    }

    fn elements<E: Element>(&self) -> Result<Vec<E>, TpuError> {
        VIEWED.set(self.device());
        self.to_data()?.try_into_vec().map_err(|error| {
            let (operands, rule) = (self.0.ty().to_string(), error.to_string());
            TpuError::Operation { op: "storage", source: GraphError { op: "graph.parameter", operands, rule } }
        })
    }
}

/// The layout of a tensor: row-major from its first element.
pub struct Layout(Shape);

impl Layout {
    /// Returns the dims.
    pub fn shape(&self) -> Shape {
        self.0.clone()
    }

    /// Returns 0.
    pub fn start_offset(&self) -> usize {
        0
    }
}

/// The elements of a tensor on the host, which replace it when this is dropped.
pub struct StorageMut<'t, E: Element> {
    elements: Vec<E>,
    tensor: &'t mut TpuTensor,
    /// Whether the elements are not those of the tensor.
    is_failed: bool,
}

impl<E: Element> Deref for StorageMut<'_, E> {
    type Target = [E];

    fn deref(&self) -> &[E] {
        &self.elements
    }
}

impl<E: Element> DerefMut for StorageMut<'_, E> {
    fn deref_mut(&mut self) -> &mut [E] {
        &mut self.elements
    }
}

impl<E: Element> Drop for StorageMut<'_, E> {
    fn drop(&mut self) {
        if !self.is_failed {
            let data = TensorData::new(std::mem::take(&mut self.elements), self.tensor.shape());
            *self.tensor = host::from_data("storage_mut", data, &self.tensor.device());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_std::DType;

    fn tensor(device: TpuDevice) -> TpuTensor {
        host::from_data("test", TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &device)
    }

    #[test]
    fn what_is_written_replaces_the_tensor_and_no_copy_of_it() {
        let mut written = tensor(TpuDevice::ndarray());
        let copy = written.clone();
        assert_eq!((written.layout().shape().to_vec(), written.layout().start_offset()), (vec![2, 2], 0));
        written.storage_mut::<f32>()[1..3].fill(9.0);
        assert_eq!(written.as_slice::<f32>().unwrap(), [1.0, 9.0, 9.0, 4.0]);
        assert_eq!(copy.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn data_is_on_the_device_that_was_viewed() {
        tensor(TpuDevice::ndarray()).as_slice::<f32>().unwrap();
        assert_eq!(TpuTensor::from_data(TensorData::from([1i32])).device(), TpuDevice::ndarray());
    }

    #[test]
    fn a_view_of_another_type_fails_the_tensor() {
        let mut wrong = tensor(TpuDevice::ndarray());
        assert!(wrong.as_slice::<i32>().is_none());
        assert_eq!(*wrong.storage_mut::<i32>(), [0; 4]);
        let error = wrong.to_data().unwrap_err().to_string();
        assert!(error.contains("storage") && wrong.dtype() == DType::F32, "{error}");
    }
}
