//! Compiled functions and training steps: [`compile`] and [`compile_step`].
//!
//! Owns: what is a module of Burn, which has tensors. May not know: how a function is taken apart, recorded, checked
//! and run, which is the runtime's.

mod step;

pub use burn_tpu_runtime::Compiled;
pub use burn_tpu_runtime::step::{DeviceAdamW, DeviceOptimizer};
pub use step::{CompiledStep, compile_step};

use crate::tensors::{device, initialise};
use burn::module::Module;
use burn_tpu_runtime::leaves::Leaves;

/// Compiles a pure function of tensors: it is recorded once for each set of shapes and dtypes, and from then on a call
/// runs one program, with no recording. Calls of a model's forward or of a decode step cost microseconds on the host
/// instead of what recording their ops takes.
///
/// The argument and the result are anything that is a Burn [`Module`]: a tensor, a tuple of up to ten, an array, a
/// `Vec`, an `Option`, a model, a struct with `#[derive(Module, Debug)]`. Tensors that the function captures are held
/// as they are: a model that never changes is best captured. What changes is an argument and a result: state goes in by
/// value and comes out, and the memory of a tensor that nothing else holds is reused for the result, as in a recorded
/// step.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// use burn_tpu::{TpuDevice, TpuError, compile};
///
/// # fn main() -> Result<(), TpuError> {
/// let device = Device::from(TpuDevice::ndarray());
/// let weights = Tensor::<2>::ones([4, 4], &device);
/// let step = compile(move |(state, position): (Tensor<2>, Tensor<1, Int>)| {
///     (state.matmul(weights.clone()), position + 1)
/// });
/// let mut state = (Tensor::<2>::ones([2, 4], &device), Tensor::from_ints([0], &device));
/// for _ in 0..3 {
///     state = step.call(state)?;
/// }
/// assert_eq!(state.1.into_scalar::<i32>(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # What a function may do
///
/// It must record the same whenever it is called with the same shapes and dtypes. Random draws are allowed: each call
/// has new ones, those that the function would have drawn itself. A position or a length that changes from call to call
/// must be an integer tensor, and a rate a float tensor. A number in the argument, such as a `usize` in a tuple, is a
/// part of the signature: another one is recorded and compiled anew. Autodiff may be used inside.
///
/// The function may not read a value, end a step, copy to another device, or use a number or a tensor from outside that
/// changes. It is recorded twice at the first call, and once more at the second, fourth, eighth call and so on: a
/// difference is an error that names the op and the line. Between these checks a number that changes is not seen.
///
/// Burn initialises a parameter of a new model when it is first used. That must not be in the function: use a model
/// once, or ask a parameter for its value, before the model is captured. Models that were loaded, trained or passed as
/// an argument are initialised.
///
/// Sizes may vary: from the third set on, a new one is recorded and runs as the program of its bucket of sizes
/// (`docs/shapes.md`).
///
/// A call inside another compiled function is a part of that one.
pub fn compile<A, R>(function: impl Fn(A) -> R + Send + 'static) -> Compiled<A, R>
where
    A: Module + 'static,
    R: Module + 'static,
{
    Compiled::new(function, leaves_of(), leaves_of())
}

/// Returns how to reach the tensors of a module. Parameters that Burn has not initialised yet are initialised.
fn leaves_of<M: Module + 'static>() -> Leaves<M> {
    Leaves::new(
        |module: &M| {
            initialise(module);
            drop(module.devices());
        },
        |module: M, to| module.fork(&device(to)),
    )
}
