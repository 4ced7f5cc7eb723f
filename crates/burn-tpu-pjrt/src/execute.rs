//! Running a program: one C call for all devices of a launch.
//!
//! This is the hot path, with hundreds of arguments per step. It queries nothing from the plugin, since types and
//! shapes are cached, and allocates only the lists that the C call and the caller need.

use std::collections::HashSet;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::abi::Struct;
use crate::bindings::*;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{PjrtError, Result};
use crate::event::Event;
use crate::loaded_executable::LoadedExecutable;
use crate::process::WorkGuard;
use crate::tensor_spec::TensorSpec;

/// One entry per device, on the stack for a launch on up to eight devices.
type PerDevice<T> = SmallVec<[T; 8]>;

/// Options of one execute call. With the default, the program donates every argument that it declares as a donor.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExecuteOptions<'a> {
    /// Positions of arguments that must survive although the program declares them as donors. Every argument that is
    /// also referenced elsewhere belongs here.
    pub non_donatable: &'a [i64],
    /// The device to run on: required for a portable program, otherwise `None`.
    pub device: Option<&'a Device>,
    /// Requests an event per device that completes with the execution. Errors at run time, such as a collective that
    /// cannot run, are reported there (and by the outputs).
    pub events: bool,
    /// Distinguishes launches where several hosts run the same programs; 0 otherwise.
    pub launch_id: i32,
}

/// The result of a launch, returned while the program runs.
#[derive(Debug)]
pub struct Execution {
    /// The outputs of each device.
    pub outputs: Vec<Vec<Buffer>>,
    /// The event of each device that completes with the execution; empty unless requested.
    pub events: Vec<Event>,
    /// Keep it until an exit of the process would find the events: see [`watch_work`](crate::watch_work).
    pub guard: WorkGuard,
}

impl LoadedExecutable {
    /// Starts the program on all its devices with one call and returns before the program has run.
    ///
    /// `arguments` holds one list per device, in the order of [`LoadedExecutable::devices`]. Donated arguments are
    /// empty afterwards. A program with collectives must be launched with this one call: one call per device from one
    /// thread would deadlock.
    ///
    /// # Errors
    /// [`PjrtError::Count`], [`PjrtError::Argument`] or [`PjrtError::Usage`] before the plugin is called; otherwise
    /// [`PjrtError::Call`], for example for a deleted argument or one donated twice.
    pub fn execute(&self, arguments: &[&[&Buffer]], options: &ExecuteOptions<'_>) -> Result<Execution> {
        let _span = tracing::trace_span!("pjrt.execute", program = self.executable().name()).entered();
        self.check_launch(arguments.len(), options)?;
        arguments.iter().enumerate().try_for_each(|(device, list)| self.check_arguments(device, list, options))?;
        let (devices, count) = (arguments.len(), self.executable().parameters().len());
        let flat: Vec<*mut PJRT_Buffer> = arguments.iter().copied().flatten().map(|buffer| buffer.raw()).collect();
        let lists: PerDevice<*const *mut PJRT_Buffer> =
            (0..devices).map(|device| flat[device * count..].as_ptr()).collect();
        // SAFETY: `lists` holds one pointer per device to `count` live buffers of this client; both outlive the call.
        unsafe { self.launch(&lists, count, options) }
    }

    /// Starts a program for one device and returns its outputs before the program has run.
    ///
    /// # Errors
    /// As [`LoadedExecutable::execute`].
    pub fn execute_single(&self, arguments: &[&Buffer], options: &ExecuteOptions<'_>) -> Result<Vec<Buffer>> {
        let mut execution = self.execute(&[arguments], options)?;
        Ok(execution.outputs.pop().unwrap_or_default())
    }

    /// Checks a launch's counts and device.
    fn check_launch(&self, lists: usize, options: &ExecuteOptions<'_>) -> Result<()> {
        let call = "LoadedExecutable::execute";
        let expected = if options.device.is_some() { 1 } else { self.device_indices().len() };
        if self.executable().is_portable() && options.device.is_none() {
            return Err(PjrtError::usage(call, "a portable program needs `ExecuteOptions::device`"));
        }
        if options.device.is_some_and(|device| device.client() != self.client()) {
            return Err(PjrtError::usage(call, "the device belongs to another client"));
        }
        if lists != expected {
            return Err(self.count_error("devices", expected, lists));
        }
        let parameters = self.executable().parameters().len() as i64;
        match options.non_donatable.iter().find(|&&index| !(0..parameters).contains(&index)) {
            None => Ok(()),
            Some(index) => {
                let reason = format!("non-donatable argument {index} does not exist; there are {parameters}");
                Err(PjrtError::usage(call, reason))
            }
        }
    }

    /// Checks the arguments of one device: types, shapes and owner, which plugins do not check. For a launch on several
    /// devices also where the buffers are and that they are live: after a plugin refuses such a launch, every later one on
    /// the client hangs (measured on the CPU plugin).
    fn check_arguments(&self, device: usize, arguments: &[&Buffer], options: &ExecuteOptions<'_>) -> Result<()> {
        let parameters = self.executable().parameters();
        if arguments.len() != parameters.len() {
            return Err(self.count_error("arguments", parameters.len(), arguments.len()));
        }
        for (index, (buffer, expected)) in arguments.iter().zip(parameters).enumerate() {
            if !same(buffer.spec(), expected) {
                return Err(self.argument_error(device, index, expected, buffer.spec()));
            }
            if buffer.client() != self.client() {
                let reason = format!("argument {index} belongs to another client");
                return Err(PjrtError::usage("LoadedExecutable::execute", reason));
            }
        }
        match self.device_indices() {
            [] | [_] => Ok(()),
            devices => self.check_places(device, devices[device], arguments, options.non_donatable),
        }
    }

    fn check_places(&self, position: usize, device: usize, arguments: &[&Buffer], kept: &[i64]) -> Result<()> {
        let kept: HashSet<i64> = kept.iter().copied().collect();
        let mut donated = HashSet::new();
        for (index, buffer) in arguments.iter().enumerate() {
            let is_donated = !kept.contains(&(index as i64));
            let reason = match buffer.device_index() {
                found if found != device => format!("is on device {found} of the client, not on device {device}"),
                _ if buffer.is_deleted()? => "was deleted or donated".to_owned(),
                _ if is_donated && !donated.insert(buffer.raw()) => "is donated twice".to_owned(),
                _ => continue,
            };
            let reason = format!("argument {index} of device {position} {reason}");
            return Err(PjrtError::usage("LoadedExecutable::execute", reason));
        }
        Ok(())
    }

    /// # Safety
    /// Each entry of `lists` points to `count` live buffers of this client; both stay valid during the call.
    unsafe fn launch(
        &self,
        lists: &[*const *mut PJRT_Buffer],
        count: usize,
        options: &ExecuteOptions<'_>,
    ) -> Result<Execution> {
        let output_count = self.executable().outputs().len();
        let mut outputs: Vec<*mut PJRT_Buffer> = vec![null_mut(); lists.len() * output_count];
        let first: *mut *mut PJRT_Buffer = outputs.as_mut_ptr();
        let output_lists: PerDevice<*mut *mut PJRT_Buffer> =
            (0..lists.len()).map(|device| first.wrapping_add(device * output_count)).collect();
        let mut events: PerDevice<*mut PJRT_Event> =
            smallvec![null_mut(); if options.events { lists.len() } else { 0 }];
        let mut raw_options = self.raw_options(options);
        let mut args = PJRT_LoadedExecutable_Execute_Args::new();
        args.executable = self.raw();
        args.options = &mut raw_options;
        args.argument_lists = lists.as_ptr();
        args.num_devices = lists.len();
        args.num_args = count;
        args.output_lists = output_lists.as_ptr();
        if options.events {
            args.device_complete_events = events.as_mut_ptr();
        }
        args.execute_device = options.device.map_or(null_mut(), Device::raw);
        let guard = WorkGuard::new()?;
        // SAFETY: all lists have the lengths that the header requires (devices; arguments; `PJRT_Executable_NumOutputs`
        // per device; devices) and outlive the call; the handles are live and belong to one client.
        unsafe { self.api().call(&mut args) }?;
        // SAFETY: the call succeeded, so it filled both lists with handles that are owned here.
        unsafe { self.collect(&outputs, &events, options, guard) }
    }

    fn raw_options(&self, options: &ExecuteOptions<'_>) -> PJRT_ExecuteOptions {
        let mut raw = PJRT_ExecuteOptions::new();
        raw.non_donatable_input_indices = options.non_donatable.as_ptr();
        raw.num_non_donatable_input_indices = options.non_donatable.len();
        raw.launch_id = options.launch_id;
        raw
    }

    /// Takes ownership of every handle before it returns an error, so that nothing leaks.
    ///
    /// # Safety
    /// Every non-null pointer is a handle of this client, and the caller passes its ownership.
    unsafe fn collect(
        &self,
        outputs: &[*mut PJRT_Buffer],
        events: &[*mut PJRT_Event],
        options: &ExecuteOptions<'_>,
        guard: WorkGuard,
    ) -> Result<Execution> {
        let specs = self.executable().outputs();
        let own_devices = self.device_indices().iter().copied();
        let mut devices: PerDevice<usize> = own_devices.collect();
        if let Some(device) = options.device {
            devices = smallvec![device.index()];
        }
        let mut missing = false;
        let mut lists = Vec::with_capacity(devices.len());
        for (position, &device) in devices.iter().enumerate() {
            let raw = &outputs[position * specs.len()..][..specs.len()];
            let mut list = Vec::with_capacity(specs.len());
            for (&raw, spec) in raw.iter().zip(specs) {
                match NonNull::new(raw) {
                    // SAFETY: the caller passes ownership of the handle.
                    Some(raw) => list.push(unsafe { Buffer::new(raw, spec.clone(), self.client().clone(), device) }),
                    None => missing = true,
                }
            }
            lists.push(list);
        }
        let owned = events.iter().filter_map(|&raw| NonNull::new(raw));
        // SAFETY: the caller passes ownership of the handles.
        let owned: Vec<Event> = owned.map(|raw| unsafe { Event::new(raw, self.client().clone()) }).collect();
        if missing || owned.len() != events.len() {
            return Err(self.api().broken("PJRT_LoadedExecutable_Execute", "it left an output or an event empty"));
        }
        Ok(Execution { outputs: lists, events: owned, guard })
    }

    fn count_error(&self, what: &'static str, expected: usize, given: usize) -> PjrtError {
        PjrtError::Count { program: self.executable().name().to_owned(), what, expected, given }
    }

    fn argument_error(&self, device: usize, index: usize, expected: &TensorSpec, given: &TensorSpec) -> PjrtError {
        let program = self.executable().name().to_owned();
        PjrtError::Argument { program, device, index, expected: expected.clone().into(), given: given.clone().into() }
    }
}

/// Returns whether the specs are equal. Compares addresses first, since most arguments of a training step are its own
/// outputs.
fn same(given: &Arc<TensorSpec>, expected: &Arc<TensorSpec>) -> bool {
    Arc::ptr_eq(given, expected) || given == expected
}
