//! Runs the programs of compiled functions. They are never interpreted: a function was compiled because it will be called
//! often.

use super::numerics::RunNumber;
use super::placement::sharding_of;
use super::{DeviceRuntime, RunError};
use crate::engine::{Arguments, HostValue, SharedBuffer};
use crate::error::Result;
use crate::lines::OpLines;
use crate::profile;
use crate::program::{CompiledProgram, Recorded};
use crate::recompile::RecordedRun;
use std::sync::Arc;

impl DeviceRuntime {
    /// Returns the compiled program of a function for the slots of a call, from memory if it is there.
    ///
    /// # Errors
    /// Those of a compile: also that the device is frozen.
    pub(crate) fn compiled(&self, run: RecordedRun) -> Result<Arc<CompiledProgram>> {
        let RecordedRun { recorded, slots, .. } = run;
        let found = self.open().cache.get(&recorded.program);
        if let Some(compiled) = found.clone().filter(|compiled| compiled.assumptions.hold(slots)) {
            return Ok(compiled);
        }
        self.compiler.compile(run, &recorded.program, &[slots], found)
    }

    /// Returns the device's copy of a captured value, which is the program's parameter of this index.
    ///
    /// # Errors
    /// Those of a transfer.
    pub(crate) fn captured(&self, recorded: &Recorded, index: u32, value: &SharedBuffer) -> Result<SharedBuffer> {
        let Some(host) = HostValue::of(value) else { return Ok(Arc::clone(value)) };
        let sharding = sharding_of(&recorded.program, index);
        self.open().take_out(host)?;
        let copy = host.on_device(false, |ty, bytes| self.open().upload(ty, bytes, sharding))?;
        // Every call reads it.
        copy.site().into_iter().for_each(|site| site.read_again());
        Ok(copy)
    }

    /// Runs a function's program. Arguments that it takes are gone.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) fn call(
        &self,
        recorded: &Arc<Recorded>,
        lines: &OpLines,
        compiled: &CompiledProgram,
        arguments: &mut Arguments,
        slots: &[u64],
    ) -> Result<Vec<SharedBuffer>> {
        if let Some(profile) = profile::active() {
            // The lines of a function are not known: it was recorded before.
            profile.cut(std::iter::empty());
        }
        self.note_numeric_errors();
        let kept = self.keep(recorded, lines, RunNumber::Call, slots, || arguments.clone());
        let results = self.open().dispatch(&recorded.program, compiled, arguments, slots);
        let results = results.map_err(|error| match error {
            RunError::Refused(error) | RunError::Failed(error) => error,
        })?;
        Ok(self.check_when_run(kept, results))
    }
}
