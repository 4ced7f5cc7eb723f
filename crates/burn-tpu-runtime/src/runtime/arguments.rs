//! The arguments of a program: buffers that a trace lends, and values of the host that are on the device for one run.
//!
//! Owns: that what a program did not take goes back to where it came from, also by a panic. May not know: how a program runs.

use super::HostValue;
use crate::engine::{Arguments, HostBytes, Input, SharedBuffer};
use crate::error::{Result, TpuError};
use burn_tpu_graph::TensorType;
use std::sync::Arc;

/// Arguments of which some are a trace's buffers.
pub(super) struct Lent<'b> {
    buffers: &'b mut [Input],
    /// The lent buffers: the place of each among the arguments and among the buffers.
    lent: Vec<(usize, u32)>,
    pub(super) arguments: Arguments,
}

impl<'b> Lent<'b> {
    /// Takes the arguments: a place among the buffers, or a buffer of the caller's own.
    pub(super) fn new(buffers: &'b mut [Input], given: Vec<Result<u32, SharedBuffer>>) -> Self {
        let taken = Arc::new(TpuError::Bug("a program has taken the buffer".to_owned()));
        let mut lent = Vec::with_capacity(given.len());
        let mut take = |(place, given): (usize, Result<u32, SharedBuffer>)| match given {
            Ok(index) => {
                lent.push((place, index));
                std::mem::replace(&mut buffers[index as usize], Err(Arc::clone(&taken))).ok()
            }
            Err(own) => Some(own),
        };
        let arguments = given.into_iter().enumerate().map(&mut take).collect();
        Self { buffers, lent, arguments }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        for (place, index) in self.lent.drain(..) {
            if let Some(buffer) = self.arguments[place].take() {
                self.buffers[index as usize] = Ok(buffer);
            }
        }
    }
}

/// Arguments of which none is a value of the host: while this exists, the device's copies are in their places.
pub(super) struct OnDevice<'a> {
    pub(super) arguments: &'a mut Arguments,
    /// The values of the host, with their places.
    values: Vec<(usize, SharedBuffer)>,
}

impl<'a> OnDevice<'a> {
    /// Replaces values of the host by the device's copies. A copy belongs to the program alone if its value does.
    ///
    /// # Errors
    /// Those of `upload`.
    pub(super) fn new(
        arguments: &'a mut Arguments,
        upload: impl Fn(usize, &TensorType, HostBytes) -> Result<SharedBuffer>,
    ) -> Result<Self> {
        let mut on_device = Self { arguments, values: Vec::new() };
        for place in 0..on_device.arguments.len() {
            let Some(argument) = &mut on_device.arguments[place] else { continue };
            let is_owner = Arc::strong_count(argument) == 1;
            let Some(value) = HostValue::of(argument) else { continue };
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
