//! Runs the programs of compiled functions. They are never interpreted: a function was compiled because it will be called
//! often.

use super::families::Member;
use super::numerics::RunNumber;
use super::placement::sharding_of;
use super::{DeviceRuntime, RunError};
use crate::engine::{Arguments, HostValue, SharedBuffer};
use crate::error::Result;
use crate::profile;
use crate::program::{CompiledProgram, Recorded};
use crate::recompile::RecordedRun;
use std::sync::Arc;

/// What runs a function for one signature.
pub(crate) enum CallProgram {
    /// Its own program.
    Own(Arc<CompiledProgram>),
    /// The program of its family for a bucket of sizes.
    Bucket(Member, Arc<CompiledProgram>),
}

impl CallProgram {
    /// Returns whether it runs a call with these slots.
    pub(crate) fn serves(&self, slots: &[u64]) -> bool {
        match self {
            Self::Own(compiled) => compiled.assumptions.hold(slots),
            Self::Bucket(member, compiled) => {
                !member.bucket.is_left_out() && compiled.assumptions.hold(&member.slots(slots))
            }
        }
    }
}

impl DeviceRuntime {
    /// Returns what runs a function for the slots of a call, from memory if it is there.
    ///
    /// # Errors
    /// Those of a compile: also that the device is frozen.
    pub(crate) fn call_program(&self, run: RecordedRun) -> Result<CallProgram> {
        let RecordedRun { recorded, slots, .. } = run;
        let found = self.open().cache.get(&recorded.program);
        if let Some(compiled) = found.clone().filter(|compiled| compiled.assumptions.hold(slots)) {
            return Ok(CallProgram::Own(compiled));
        }
        if let Some(member) = self.member_of(&recorded.program, slots) {
            return match self.compiled_bucket(&member, run) {
                Ok(compiled) => Ok(CallProgram::Bucket(member, compiled)),
                Err(error) => self.exact_instead(&member, run, error).map(CallProgram::Own),
            };
        }
        self.warn_of_uneven_batches(recorded);
        self.compiler.compile(run, &recorded.program, &[slots], found).map(CallProgram::Own)
    }

    /// Counts a call, and returns whether it comes so often that it gets a program of its own instead of that of a bucket.
    pub(crate) fn gets_own_program(&self, program: &CallProgram) -> bool {
        match program {
            CallProgram::Own(_) => false,
            CallProgram::Bucket(member, _) => member.comes_often() && !self.compiler.is_frozen(),
        }
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

    /// Returns a captured value as a program reads it, if that is not as it is: in the larger buffer of a bucket.
    ///
    /// # Errors
    /// Those of a transfer.
    pub(crate) fn captured_for(
        &self,
        program: &CallProgram,
        recorded: &Recorded,
        index: usize,
        value: &SharedBuffer,
    ) -> Result<Option<SharedBuffer>> {
        match program {
            CallProgram::Own(_) => Ok(None),
            CallProgram::Bucket(member, _) => self.captured_in_bucket(member, recorded, index, value),
        }
    }

    /// Runs a function's program. Arguments that it takes are gone.
    ///
    /// # Errors
    /// Why it did not run.
    pub(crate) fn call(
        &self,
        run: RecordedRun,
        program: &CallProgram,
        arguments: &mut Arguments,
    ) -> Result<Vec<SharedBuffer>> {
        let RecordedRun { recorded, slots, provenance } = run;
        if let Some(profile) = profile::active() {
            // The lines of a function are not known: it was recorded before.
            profile.cut(std::iter::empty());
        }
        self.note_numeric_errors();
        let kept = self.keep(recorded, &provenance.lines, RunNumber::Call, slots, || arguments.clone());
        let results = match program {
            CallProgram::Own(compiled) => self.open().dispatch(&recorded.program, compiled, arguments, slots),
            CallProgram::Bucket(member, compiled) => {
                match self.dispatch_member(member, compiled, (&recorded.program, slots), arguments) {
                    Err(RunError::Refused(error)) => {
                        let compiled = self.exact_instead(member, run, error)?;
                        self.open().dispatch(&recorded.program, &compiled, arguments, slots)
                    }
                    results => results,
                }
            }
        };
        let results = results.map_err(|error| match error {
            RunError::Refused(error) | RunError::Failed(error) => error,
        })?;
        Ok(self.check_when_run(kept, results))
    }
}
