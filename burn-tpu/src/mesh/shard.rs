//! A constraint on an activation, and its gradient.

use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::from_burn;
use crate::ops::host::bytes;
use crate::{Tpu, TpuDevice, TpuError, TpuTensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, TensorData};
use burn_core::tensor::{Tensor, TensorPrimitive};
use burn_tpu_runtime::graph::TensorType;
use burn_tpu_runtime::ops::data;
use burn_tpu_runtime::ops::sharding::{DimNames, constrain, names};

/// The backends whose tensors may live on a mesh: [`Tpu`] and its autodiff.
pub trait MeshBackend: Backend<Device = TpuDevice> {
    /// Constrains how a tensor is split, by the axes of each dim.
    ///
    /// # Panics
    /// For an axis that does not exist, another number of dims, or an axis that splits two dims.
    fn shard_float(tensor: FloatTensor<Self>, dims: &[DimNames]) -> FloatTensor<Self>;

    /// The same for integers.
    ///
    /// # Panics
    /// As [`MeshBackend::shard_float`].
    fn shard_int(tensor: IntTensor<Self>, dims: &[DimNames]) -> IntTensor<Self>;

    /// Returns a tensor without autodiff.
    fn value_of(tensor: FloatTensor<Self>) -> burn_tpu_runtime::Tensor;

    /// The same for integers.
    fn value_of_int(tensor: IntTensor<Self>) -> burn_tpu_runtime::Tensor;

    /// Returns the batch of which this process gives some rows. See [`distributed::batch`](crate::distributed::batch).
    ///
    /// # Errors
    /// [`TpuError`](crate::TpuError) for rows that cannot be a part of a batch, or that cannot be uploaded.
    fn batch_float(rows: TensorData, device: &TpuDevice) -> crate::Result<FloatTensor<Self>>;

    /// The same for integers.
    ///
    /// # Errors
    /// Those of [`MeshBackend::batch_float`].
    fn batch_int(rows: TensorData, device: &TpuDevice) -> crate::Result<IntTensor<Self>>;
}

impl<F: TpuFloat, I: TpuInt> MeshBackend for Tpu<F, I> {
    fn shard_float(tensor: FloatTensor<Self>, dims: &[DimNames]) -> FloatTensor<Self> {
        split(tensor, dims)
    }

    fn shard_int(tensor: IntTensor<Self>, dims: &[DimNames]) -> IntTensor<Self> {
        split(tensor, dims)
    }

    fn value_of(tensor: FloatTensor<Self>) -> burn_tpu_runtime::Tensor {
        tensor.0
    }

    fn value_of_int(tensor: IntTensor<Self>) -> burn_tpu_runtime::Tensor {
        tensor.0
    }

    fn batch_float(rows: TensorData, device: &TpuDevice) -> crate::Result<FloatTensor<Self>> {
        from_rows("float_from_data", rows, device)
    }

    fn batch_int(rows: TensorData, device: &TpuDevice) -> crate::Result<IntTensor<Self>> {
        from_rows("int_from_data", rows, device)
    }
}

fn split(tensor: TpuTensor, dims: &[DimNames]) -> TpuTensor {
    match constrain(tensor.0, dims) {
        Ok(tensor) => tensor.into(),
        // Burn's contract for a mistake in shapes.
        Err(error) => panic!("{error}"),
    }
}

/// The gradient is split as the value is.
#[derive(Debug)]
struct Shard;

impl<B: MeshBackend> Backward<B, 1> for Shard {
    type State = Vec<DimNames>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state } = ops;
        unary::<B, _>(parents, node, grads, |grad| B::shard_float(grad, &state));
    }
}

impl<B: MeshBackend, C: CheckpointStrategy> MeshBackend for Autodiff<B, C> {
    fn shard_float(tensor: FloatTensor<Self>, dims: &[DimNames]) -> FloatTensor<Self> {
        let result = B::shard_float(tensor.primitive, dims);
        match Shard.prepare::<C>([tensor.node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(dims.to_vec(), result),
            OpsKind::UnTracked(prepared) => prepared.finish(result),
        }
    }

    fn shard_int(tensor: IntTensor<Self>, dims: &[DimNames]) -> IntTensor<Self> {
        B::shard_int(tensor, dims)
    }

    fn value_of(tensor: FloatTensor<Self>) -> burn_tpu_runtime::Tensor {
        B::value_of(tensor.primitive)
    }

    fn value_of_int(tensor: IntTensor<Self>) -> burn_tpu_runtime::Tensor {
        B::value_of_int(tensor)
    }

    fn batch_float(rows: TensorData, device: &TpuDevice) -> crate::Result<FloatTensor<Self>> {
        B::batch_float(rows, device).map(FloatTensor::<Self>::new)
    }

    fn batch_int(rows: TensorData, device: &TpuDevice) -> crate::Result<IntTensor<Self>> {
        B::batch_int(rows, device)
    }
}

/// Splits a tensor over the axes of its mesh: a hint for the partitioner, where its own choice costs too much communication.
/// Each dim has the name of an axis, several joined with `+` (outermost first), or `None` where it is whole. The gradient is
/// split in the same way. On any device but a mesh, this is the identity.
///
/// Sizes need not divide: inside a program, parts may be uneven.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_tpu::{Tpu, TpuDevice, shard};
/// let x = Tensor::<Tpu<f32>, 2>::from_floats([[1.0, 2.0]], &TpuDevice::ndarray());
/// let y = shard(x, [Some("data"), None]);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// For an axis that the mesh does not have, or one that splits two dims.
pub fn shard<B: MeshBackend, const D: usize>(tensor: Tensor<B, D>, dims: [Option<&str>; D]) -> Tensor<B, D> {
    let names = dims.map(names);
    Tensor::from_primitive(TensorPrimitive::Float(B::shard_float(tensor.into_primitive().tensor(), &names)))
}

/// Returns the batch of which this process gives some rows.
///
/// # Errors
/// Those of [`data::from_rows`]; [`TpuError::DType`] for a type that the device does not have.
fn from_rows(name: &'static str, rows: TensorData, device: &TpuDevice) -> crate::Result<TpuTensor> {
    let unknown = || TpuError::DType { op: name, dtype: format!("{:?}", rows.dtype), device: device.to_string() };
    let ty = TensorType::new(from_burn(rows.dtype).ok_or_else(unknown)?, rows.shape.as_slice());
    data::from_rows(name, ty, bytes(rows), &device.0).map(TpuTensor::from)
}
