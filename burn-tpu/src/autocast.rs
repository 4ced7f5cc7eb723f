//! Mixed precision: a model whose parameters are f32 and whose layers compute in 16 bits.
//!
//! Owns: which parameters are cast, and the gradient of the cast. May not know: what ops do with operands of two float
//! types, which is the runtime's (`crates/burn-tpu-runtime/src/ops/mixed.rs`).

use crate::backend::{TpuFloat, TpuInt};
use crate::{Tpu, TpuDevice, TpuTensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, TensorMetadata};
use burn_core::module::{Module, ModuleMapper, Param};
use burn_core::tensor::{FloatDType, Tensor, TensorPrimitive};

/// The backends whose modules [`autocast`] takes: [`Tpu`] and its autodiff.
pub trait AutocastBackend: Backend<Device = TpuDevice> {
    /// Returns a parameter in a float type. Its gradient arrives in the type that the parameter has.
    fn cast_parameter(parameter: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self>;
}

impl<F: TpuFloat, I: TpuInt> AutocastBackend for Tpu<F, I> {
    fn cast_parameter(parameter: TpuTensor, dtype: FloatDType) -> TpuTensor {
        Self::float_cast(parameter, dtype)
    }
}

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> AutocastBackend for Autodiff<Tpu<F, I>, C> {
    fn cast_parameter(parameter: FloatTensor<Self>, dtype: FloatDType) -> FloatTensor<Self> {
        let own = parameter.dtype().into();
        let cast = Tpu::<F, I>::float_cast(parameter.primitive, dtype);
        let prepared = Backward::<Tpu<F, I>, 1>::prepare::<C>(CastParameter, [parameter.node]);
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(own, cast),
            OpsKind::UnTracked(prepared) => prepared.finish(cast),
        }
    }
}

/// The gradient of a cast. Other than that of Burn's own cast, it also exists where the type stays: a 16-bit gradient of an
/// f32 parameter becomes f32.
#[derive(Debug)]
struct CastParameter;

impl<F: TpuFloat, I: TpuInt> Backward<Tpu<F, I>, 1> for CastParameter {
    type State = FloatDType;

    fn backward(self, ops: Ops<FloatDType, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents, node, state: own } = ops;
        unary::<Tpu<F, I>, _>(parents, node, gradients, |gradient| Tpu::<F, I>::float_cast(gradient, own));
    }
}

/// Returns the module with its float parameters in bf16, by a cast that gradients flow through. Parameters of norms keep
/// their type.
///
/// The optimizer keeps f32 parameters and f32 state; forward and backward run in bf16. Cast at the beginning of each step,
/// compute the loss with the result, and take the gradients for the original: they have the types of its parameters.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
/// use burn::tensor::{DType, Tensor};
/// use burn_autodiff::Autodiff;
/// use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, autocast};
///
/// type B = Autodiff<Tpu<f32>>;
/// let device = TpuDevice::ndarray();
/// let mut model = LinearConfig::new(4, 1).init::<B>(&device);
/// let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init::<B, Linear<B>>());
/// let x = Tensor::<B, 2>::ones([8, 4], &device);
/// for _ in 0..3 {
///     let fast = autocast(&model);
///     let loss = fast.forward(x.clone()).cast(DType::F32).powi_scalar(2).mean();
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     model = optimizer.step(1e-2, model, gradients);
/// }
/// assert_eq!(model.weight.val().dtype(), DType::F32);
/// ```
///
/// - *Norms.* The parameters of a module whose type's name ends in `Norm` (`LayerNorm`, `RmsNorm`, a type of your own), or
///   in `Norm` and a number of dims, are not cast, nor are running statistics. Ops of a 16-bit operand and an f32 one
///   compute in f32 and have the type of the first operand, so a norm maps bf16 to bf16.
/// - *Inputs.* Layers with bf16 weights take f32 inputs, such as images, and compute in bf16.
/// - *Losses.* Cast what the loss reads to f32, as above: the mean of a bf16 loss has 8 significant bits.
///
/// Integers and bools stay as they are. Parameters that Burn has not initialised yet are initialised. The result is a model
/// for one step: an optimizer cannot update it.
///
/// See `docs/mixed-precision.md`, also for [`compile_step`](crate::compile_step) and [`Checkpoints`](crate::Checkpoints).
pub fn autocast<B: AutocastBackend, M: Module<B>>(module: &M) -> M {
    autocast_to(module, FloatDType::BF16)
}

/// The same as [`autocast`], in another float type. In f16 small gradients vanish: train with a
/// [`LossScaler`](crate::LossScaler).
pub fn autocast_to<B: AutocastBackend, M: Module<B>>(module: &M, dtype: FloatDType) -> M {
    // A clone of a parameter that is not initialised would be initialised with other numbers.
    let _initialised = module.num_params();
    module.clone().map(&mut Autocast { dtype, within_norm: Vec::new() })
}

/// Casts parameters.
struct Autocast {
    dtype: FloatDType,
    /// Of each module around the current parameter, whether it is a norm.
    within_norm: Vec<bool>,
}

impl<B: AutocastBackend> ModuleMapper<B> for Autocast {
    fn enter_module(&mut self, _name: &str, container: &str) {
        let is_norm = match container {
            "Vec" | "Array" | "Tuple" => self.is_within_norm(),
            container => is_norm(container),
        };
        self.within_norm.push(is_norm);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.within_norm.pop();
    }

    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let stays = self.is_within_norm();
        if stays && !parameter.is_require_grad() {
            // Running statistics among others, which all clones of a module share.
            return parameter;
        }
        let (id, value, mapper) = parameter.consume();
        let dtype = if stays { value.dtype().into() } else { self.dtype };
        let cast = B::cast_parameter(value.into_primitive().tensor(), dtype);
        Param::from_mapped_value(id, Tensor::from_primitive(TensorPrimitive::Float(cast)), mapper)
    }
}

impl Autocast {
    fn is_within_norm(&self) -> bool {
        self.within_norm.last().copied().unwrap_or(false)
    }
}

/// Returns whether Burn's name of a module's type, such as `Struct:LayerNorm`, is that of a norm.
fn is_norm(container: &str) -> bool {
    let dims = |c: char| c.is_ascii_digit() || c == 'd' || c == 'D';
    container.trim_end_matches(dims).ends_with("Norm")
}

#[cfg(test)]
mod tests {
    use super::is_norm;

    #[test]
    fn norms_are_known_by_the_names_of_their_types() {
        let norms = ["Struct:LayerNorm", "Struct:BatchNorm2d", "Struct:RmsNorm", "Enum:AnyNorm"];
        assert!(norms.into_iter().all(is_norm));
        let others = ["Struct:Linear", "Enum:Normalization", "Struct:PreNormBlock", "Struct:Normed"];
        assert!(!others.into_iter().any(is_norm));
    }
}
