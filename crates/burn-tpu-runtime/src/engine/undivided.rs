//! The executable of a program that is another one, but for divisions by one.
//!
//! Owns: which of its arguments the other program gets, and which are its results as they are.

use super::{Arguments, Executable, Execution, picked};
use crate::error::{Result, TpuError};
use burn_tpu_graph::{Undivided, UndividedOutput};
use std::sync::Arc;

/// A program, and the executable of what it is without divisions by one.
pub(crate) struct OfUndivided {
    program: Undivided,
    executable: Arc<dyn Executable>,
}

impl OfUndivided {
    pub(crate) fn new(program: Undivided, executable: Arc<dyn Executable>) -> Self {
        Self { program, executable }
    }
}

impl Executable for OfUndivided {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let Undivided { program: (_, inputs), outputs, .. } = &self.program;
        // A second owner keeps them from being donated.
        let passed: Vec<_> = outputs.iter().map(|output| passed(arguments, *output)).collect();
        let places = || inputs.parameters.iter().map(|&index| index as usize);
        let mut given: Arguments = places().map(|place| arguments[place].take()).collect();
        let execution = self.executable.execute(&mut given, &picked(&inputs.slots, slots));
        places().zip(given).for_each(|(place, value)| arguments[place] = value);
        let mut execution = execution?;
        let results = std::mem::take(&mut execution.outputs);
        let result = |(output, passed): (&UndividedOutput, _)| match *output {
            UndividedOutput::Parameter(_) => passed,
            UndividedOutput::Result(index) => results.get(index).cloned(),
        };
        let missing = || TpuError::Bug("a program without divisions by one has other results".to_owned());
        execution.outputs = outputs.iter().zip(passed).map(result).collect::<Option<_>>().ok_or_else(missing)?;
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        0
    }

    fn is_from_disk(&self) -> bool {
        true
    }
}

fn passed(arguments: &Arguments, output: UndividedOutput) -> Option<super::SharedBuffer> {
    let UndividedOutput::Parameter(index) = output else { return None };
    arguments[index as usize].clone()
}
