//! Compiled functions and training steps: [`compile`] and [`compile_step`].
//!
//! Owns: how an argument and a result are taken apart into tensors and put together. May not know: how a function is
//! recorded, checked and run, which is the runtime's.

mod adamw;
pub(crate) mod leaves;
mod named_state;
mod packs;
mod step;
mod tensors;

pub use adamw::DeviceAdamW;
pub use step::{CompiledStep, compile_step};

use crate::{Result, Tpu, TpuError, TpuFloat, TpuInt};
use burn_core::module::Module;
use burn_tpu_runtime::{Function, RecordedFunction, Tensor};
use leaves::Leaves;
use std::cell::Cell;
use std::sync::Arc;

/// A function that is recorded once for each set of shapes and dtypes. See [`compile`].
pub struct Compiled<A, R> {
    function: Box<dyn Fn(A) -> R + Send>,
    recorded: Function<R>,
    arguments: Leaves<A>,
    results: Leaves<R>,
}

/// Compiles a pure function of tensors: it is recorded once for each set of shapes and dtypes, and from then on a call runs
/// one program, with no recording. Calls of a model's forward or of a decode step cost microseconds on the host instead of
/// what recording their ops takes.
///
/// The argument and the result are anything that is a Burn [`Module`]: a tensor, a tuple of up to ten, an array, a `Vec`, an
/// `Option`, a model, a struct with `#[derive(Module, Debug)]`. Tensors that the function captures are held as they are: a
/// model that never changes is best captured. What changes is an argument and a result: state goes in by value and comes
/// out, and the memory of a tensor that nothing else holds is reused for the result, as in a recorded step.
///
/// ```
/// use burn_core::tensor::{Int, Tensor};
/// use burn_tpu::{Tpu, TpuDevice, TpuError, compile};
///
/// # fn main() -> Result<(), TpuError> {
/// type B = Tpu<f32>;
/// let device = TpuDevice::ndarray();
/// let weights = Tensor::<B, 2>::ones([4, 4], &device);
/// let step = compile(move |(state, position): (Tensor<B, 2>, Tensor<B, 1, Int>)| {
///     (state.matmul(weights.clone()), position + 1)
/// });
/// let mut state = (Tensor::<B, 2>::ones([2, 4], &device), Tensor::from_ints([0], &device));
/// for _ in 0..3 {
///     state = step.call(state)?;
/// }
/// assert_eq!(state.1.into_scalar(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # What a function may do
///
/// It must record the same whenever it is called with the same shapes and dtypes. Random draws are allowed: each call has
/// new ones, those that the function would have drawn itself. A position or a length that changes from call to call must be
/// an integer tensor, and a rate a float tensor. A number in the argument, such as an `Option` or a `usize` in a tuple, is a
/// part of the signature: another one is recorded and compiled anew. Autodiff may be used inside.
///
/// The function may not read a value, end a step, copy to another device, or use a number or a tensor from outside that
/// changes. It is recorded twice at the first call, and once more at the second, fourth, eighth call and so on: a
/// difference is an error that names the op and the line. Between these checks a number that changes is not seen.
///
/// Burn initialises a parameter of a new model when it is first used. That must not be in the function: call
/// `model.num_params()` before the model is captured. Models that were loaded, trained or passed as an argument are
/// initialised.
///
/// Sizes may vary: from the third set on, a new one is recorded and runs as the program of its bucket of sizes
/// (`docs/shapes.md`).
///
/// A call inside another compiled function is a part of that one.
pub fn compile<F, I, A, R>(function: impl Fn(A) -> R + Send + 'static) -> Compiled<A, R>
where
    F: TpuFloat,
    I: TpuInt,
    A: Module<Tpu<F, I>>,
    R: Module<Tpu<F, I>>,
{
    Compiled {
        function: Box::new(function),
        recorded: Function::default(),
        arguments: Leaves::of::<Tpu<F, I>>(),
        results: Leaves::of::<Tpu<F, I>>(),
    }
}

impl<A: Clone + std::fmt::Debug, R: Clone + std::fmt::Debug> Compiled<A, R> {
    /// Calls the function. The program is dispatched and not waited for.
    ///
    /// # Errors
    /// [`TpuError::Impure`] if the function is none that can be compiled; [`TpuError::Frozen`] if its program has to be
    /// compiled on a frozen device; those of the compiler and of earlier work on the argument's tensors.
    ///
    /// # Panics
    /// If the function panics while it is recorded.
    pub fn call(&self, argument: A) -> Result<R> {
        self.call_or_return(argument).map_err(|(error, _)| error)
    }

    /// [`Compiled::call`] that returns the argument if the program did not begin.
    fn call_or_return(&self, argument: A) -> Result<R, (TpuError, Option<A>)> {
        if Function::<R>::is_recording() {
            return Ok((self.function)(argument));
        }
        let tensors = self.arguments.tensors(&argument);
        let recorded = match self.recorded(&argument, &tensors) {
            Ok(recorded) => recorded,
            Err(error) => return Err((error, Some(argument))),
        };
        // From here on, what nothing else refers to belongs to the call.
        drop(argument);
        let run = recorded.run(tensors).map_err(|error| (error, None));
        run.map(|(result, tensors)| self.results.replace(result, tensors))
    }

    /// Returns what the function records on this argument, ready to run.
    fn recorded(&self, argument: &A, tensors: &[Tensor]) -> Result<Arc<RecordedFunction<R>>> {
        let Some(device) = tensors.first().map(Tensor::device) else { return Err(no_tensor()) };
        let structure = self.arguments.structure(argument);
        let was_recorded = Cell::new(false);
        let record = |tensors: Vec<Tensor>| {
            was_recorded.set(true);
            let result = (self.function)(self.arguments.replace(argument.clone(), tensors));
            let tensors = self.results.tensors(&result);
            // Each call clones the result and replaces its tensors.
            (self.results.hollow(result, &tensors), tensors)
        };
        let recorded = self.recorded.recorded(device, structure, tensors, &record);
        if was_recorded.get() {
            // Running statistics are shared by all clones of a module, so its clones have the tensors of the recording.
            drop(self.arguments.replace(argument.clone(), tensors.to_vec()));
        }
        recorded
    }
}

impl<A, R> std::fmt::Debug for Compiled<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiled(fn({}) -> {})", std::any::type_name::<A>(), std::any::type_name::<R>())
    }
}

fn no_tensor() -> TpuError {
    let reason = "its argument has no tensor, so it has no device".to_owned();
    TpuError::Impure { reason, op: String::new(), caller: String::new() }
}
