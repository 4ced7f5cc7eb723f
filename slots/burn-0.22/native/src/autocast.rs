//! Mixed precision: a model whose parameters are f32 and whose layers compute in 16 bits.
//!
//! Owns: which parameters are cast. May not know: what ops do with operands of two float types, which is the runtime's.

use crate::version::NORMS_MAY_BE_WIDER;
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{FloatDType, Tensor};
use burn_backend::ops::FloatTensorOps;
use burn_dispatch::Dispatch;

/// Returns the module with its float parameters in bf16, by a cast that gradients flow through. On Burn 0.22 parameters
/// of norms keep their type.
///
/// The optimizer keeps f32 parameters and f32 state; forward and backward run in bf16. Cast at the beginning of each
/// step, compute the loss with the result, and take the gradients for the original: they have the types of its
/// parameters.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::optim::{AdamWConfig, GradientsParams};
/// use burn::prelude::*;
/// use burn::tensor::{DType, FloatDType};
/// use burn_tpu::{TpuDevice, TpuOptimizer, autocast};
///
/// let device = Device::from(TpuDevice::ndarray()).autodiff();
/// let mut model = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = TpuOptimizer::new(AdamWConfig::new().build());
/// let x = Tensor::<2>::ones([8, 4], &device);
/// for _ in 0..3 {
///     let fast = autocast(&model);
///     let loss = fast.forward(x.clone().cast(FloatDType::BF16)).cast(FloatDType::F32).powi_scalar(2).mean();
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     model = optimizer.step(1e-2, model, gradients);
/// }
/// assert_eq!(model.weight.val().dtype(), DType::F32);
/// ```
///
/// - *Norms.* On Burn 0.22, the parameters of a module whose type's name ends in `Norm` (`LayerNorm`, `RmsNorm`, a type of your own),
///   or in `Norm` and a number of dims, are not cast, nor are running statistics. Ops of a 16-bit operand and an f32
///   one compute in f32 and have the type of the first operand, so a norm maps bf16 to bf16. Burn 0.23's norms refuse
///   operands of two types, so there the parameters are cast too; the norm itself is computed in f32.
/// - *Inputs.* On Burn 0.22 layers with bf16 weights take f32 inputs, such as images, and compute in bf16. Burn 0.23's
///   `Linear` refuses them: cast the inputs, as above.
/// - *Losses.* Cast what the loss reads to f32, as above: the mean of a bf16 loss has 8 significant bits.
///
/// Integers and bools stay as they are. Parameters that Burn has not initialised yet are initialised. The result is a
/// model for one step: an optimizer cannot update it.
pub fn autocast<M: Module>(module: &M) -> M {
    autocast_to(module, FloatDType::BF16)
}

/// The same as [`autocast`], in another float type.
pub fn autocast_to<M: Module>(module: &M, dtype: FloatDType) -> M {
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

impl ModuleMapper for Autocast {
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

    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let is_of_norm = self.is_within_norm();
        if is_of_norm && !parameter.is_require_grad() {
            // Running statistics among others, which all clones of a module share.
            return parameter;
        }
        let (id, value, mapper) = parameter.consume();
        let stays = is_of_norm && NORMS_MAY_BE_WIDER;
        let dtype = if stays { value.dtype().into() } else { self.dtype };
        Param::from_mapped_value(id, cast(value, dtype), mapper)
    }
}

impl Autocast {
    fn is_within_norm(&self) -> bool {
        self.within_norm.last().copied().unwrap_or(false)
    }
}

/// Returns a parameter in a float type. Its gradient has the parameter's type, also where that stays: `Tensor::cast`
/// would do nothing then, and the gradient of a norm's f32 scale arrives in 16 bits.
fn cast<const D: usize>(parameter: Tensor<D>, dtype: FloatDType) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::float_cast(parameter.into_dispatch(), dtype))
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
