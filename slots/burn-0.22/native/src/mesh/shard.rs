//! A constraint on an activation, and its gradient.

use crate::tensors::{integer_tensor, integers};
use backend::{Tpu, TpuTensor};
use burn::tensor::{Int, Tensor};
use burn_dispatch::backends::Autodiff;
use burn_dispatch::backends::autodiff::checkpoint::base::Checkpointer;
use burn_dispatch::backends::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn_dispatch::{DispatchKindConversion, DispatchTensor, GradientCheckpointingStrategy};
use burn_tpu_runtime::ops::sharding::{DimNames, constrain, names};

/// Splits a tensor over the axes of its mesh: a hint for the partitioner, where its own choice costs too much
/// communication. Each dim has the name of an axis, several joined with `+` (outermost first), or `None` where it is
/// whole. The gradient is split in the same way. On any device but a mesh, this is the identity.
///
/// Sizes need not divide: inside a program, parts may be uneven.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use burn_tpu::{TpuDevice, shard};
/// let x = Tensor::<2>::from_floats([[1.0, 2.0]], &Device::from(TpuDevice::ndarray()));
/// let y = shard(x, [Some("data"), None]);
/// assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// For an axis that the mesh does not have, or one that splits two dims.
pub fn shard<const D: usize>(tensor: Tensor<D>, dims: [Option<&str>; D]) -> Tensor<D> {
    constrained(tensor, &dims.map(names))
}

/// Constrains how a tensor is split, by the axes of each dim. One of another backend stays as it is.
///
/// # Panics
/// As [`shard`].
pub(super) fn constrained<const D: usize>(tensor: Tensor<D>, dims: &[DimNames]) -> Tensor<D> {
    match tensor.gradient_checkpointing_strategy() {
        None => {
            let primitive = tensor.clone().try_into_primitive::<Tpu>();
            primitive.map_or(tensor, |primitive| Tensor::from_primitive::<Tpu>(split(primitive, dims)))
        }
        Some(GradientCheckpointingStrategy::Disabled) => tracked::<NoCheckpointing, D>(tensor, dims),
        Some(GradientCheckpointingStrategy::Balanced) => tracked::<BalancedCheckpointing, D>(tensor, dims),
    }
}

/// The same for integers.
///
/// # Panics
/// As [`shard`].
pub(super) fn constrained_integers<const D: usize>(tensor: Tensor<D, Int>, dims: &[DimNames]) -> Tensor<D, Int> {
    let strategy = tensor.gradient_checkpointing_strategy();
    match integers(tensor.clone()) {
        Some(whole) => integer_tensor(split(whole.into(), dims).into(), strategy),
        None => tensor,
    }
}

fn split(tensor: TpuTensor, dims: &[DimNames]) -> TpuTensor {
    match constrain(tensor.into(), dims) {
        Ok(tensor) => tensor.into(),
        // Burn's contract for a mistake in shapes.
        Err(error) => panic!("{error}"),
    }
}

/// The gradient is split as the value is.
#[derive(Debug)]
struct Shard;

impl Backward<Tpu, 1> for Shard {
    type State = Vec<DimNames>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state } = ops;
        unary::<Tpu, _>(parents, node, grads, |grad| split(grad, &state));
    }
}

/// Constrains a tensor of autodiff.
fn tracked<C: CheckpointStrategy, const D: usize>(tensor: Tensor<D>, dims: &[DimNames]) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    let Ok(primitive) = tensor.clone().try_into_primitive::<Autodiff<Tpu, C>>() else { return tensor };
    let (primitive, node) = primitive.into_parts();
    let result = split(primitive, dims);
    let result = match Shard.prepare::<C>([node]).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(dims.to_vec(), result),
        OpsKind::UnTracked(prepared) => prepared.finish(result),
    };
    Tensor::from_primitive::<Autodiff<Tpu, C>>(result)
}
