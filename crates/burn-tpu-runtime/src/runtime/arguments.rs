//! The arguments of a program: buffers of a trace, and copies of host values that are on the device for one run.
//!
//! Owns: that the trace gets back the buffers that a program did not take, also by a panic. May not know: how a program
//! runs.

use crate::engine::{Arguments, HostBytes, HostValue, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use burn_tpu_graph::TensorType;
use std::sync::Arc;

/// An argument of a program.
pub(super) enum Argument {
    /// The trace's buffer of this index.
    OfTrace(u32),
    /// A buffer that only this run has.
    Own(SharedBuffer),
}

/// The arguments of a run. When this is dropped, the trace gets back its buffers that the program did not take.
pub(super) struct TraceArguments<'b> {
    buffers: &'b mut [Input],
    /// The place of each of the trace's buffers among the arguments, and its index in the trace.
    of_trace: Vec<(usize, u32)>,
    pub(super) arguments: Arguments,
}

impl<'b> TraceArguments<'b> {
    /// Takes the arguments out of the trace's buffers.
    pub(super) fn new(buffers: &'b mut [Input], sources: impl ExactSizeIterator<Item = Argument>) -> Self {
        let taken = Arc::new(TpuError::Bug("a program has taken the buffer".to_owned()));
        let mut of_trace = Vec::with_capacity(sources.len());
        let mut arguments = Vec::with_capacity(sources.len());
        for (place, source) in sources.enumerate() {
            arguments.push(match source {
                Argument::OfTrace(index) => {
                    of_trace.push((place, index));
                    std::mem::replace(&mut buffers[index as usize], Err(Arc::clone(&taken))).ok()
                }
                Argument::Own(buffer) => Some(buffer),
            });
        }
        Self { buffers, of_trace, arguments }
    }
}

impl Drop for TraceArguments<'_> {
    fn drop(&mut self) {
        for (place, index) in self.of_trace.drain(..) {
            if let Some(buffer) = self.arguments[place].take() {
                self.buffers[index as usize] = Ok(buffer);
            }
        }
    }
}

/// Arguments that are all on the device: while this exists, copies are in the places of host values.
pub(super) struct OnDevice<'a> {
    pub(super) arguments: &'a mut Arguments,
    /// The host values, with their places.
    values: Vec<(usize, SharedBuffer)>,
}

impl<'a> OnDevice<'a> {
    /// Replaces host values by the device's copies. A copy belongs to the program alone if its value does. `take_out`
    /// copies what is in a larger buffer alone to the host.
    ///
    /// # Errors
    /// The errors of `take_out` and `upload`.
    pub(super) fn new(
        arguments: &'a mut Arguments,
        take_out: impl Fn(&HostValue) -> Result<()>,
        upload: impl Fn(usize, &TensorType, HostBytes) -> Result<SharedBuffer>,
    ) -> Result<Self> {
        let mut on_device = Self { arguments, values: Vec::new() };
        for place in 0..on_device.arguments.len() {
            let Some(argument) = &mut on_device.arguments[place] else { continue };
            let is_owner = Arc::strong_count(argument) == 1;
            let Some(value) = HostValue::of(argument) else { continue };
            take_out(value)?;
            let copy = value.on_device(is_owner, |ty, bytes| upload(place, ty, bytes))?;
            on_device.values.push((place, std::mem::replace(argument, copy)));
        }
        Ok(on_device)
    }

    /// Returns whether every argument is in place, with its value.
    pub(super) fn is_complete(&self) -> bool {
        self.arguments.iter().all(|argument| argument.as_ref().is_some_and(|buffer| !buffer.is_donated()))
    }
}

impl Drop for OnDevice<'_> {
    fn drop(&mut self) {
        for (place, value) in self.values.drain(..) {
            let argument = &mut self.arguments[place];
            if let (Some(copy), Some(host)) = (argument.take(), HostValue::of(&value)) {
                host.put_back(copy);
                *argument = Some(value);
            }
        }
    }
}
