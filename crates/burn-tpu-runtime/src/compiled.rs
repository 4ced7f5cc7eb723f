//! Functions of anything that has tensors, which are recorded once for each set of shapes and dtypes.
//!
//! Owns: how an argument and a result are taken apart into tensors and put together. May not know: how a function is
//! recorded, checked and run, which is [`Function`]'s.

use crate::leaves::Leaves;
use crate::{Function, RecordedFunction, Result, Tensor, TpuError};
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;

/// A function that is recorded once for each set of shapes and dtypes. A front end's `compile` makes it and says what
/// the function may do.
pub struct Compiled<A, R> {
    function: Box<dyn Fn(A) -> R + Send>,
    recorded: Function<R>,
    arguments: Leaves<A>,
    results: Leaves<R>,
}

impl<A: Clone + Debug, R: Clone + Debug> Compiled<A, R> {
    /// Takes the function, and how to reach the tensors of its argument and of its result.
    #[doc(hidden)]
    pub fn new(function: impl Fn(A) -> R + Send + 'static, arguments: Leaves<A>, results: Leaves<R>) -> Self {
        Self { function: Box::new(function), recorded: Function::default(), arguments, results }
    }

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
    pub(crate) fn call_or_return(&self, argument: A) -> Result<R, (TpuError, Option<A>)> {
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

impl<A, R> Debug for Compiled<A, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiled(fn({}) -> {})", std::any::type_name::<A>(), std::any::type_name::<R>())
    }
}

fn no_tensor() -> TpuError {
    let reason = "its argument has no tensor, so it has no device".to_owned();
    TpuError::Impure { reason, op: String::new(), caller: String::new() }
}
