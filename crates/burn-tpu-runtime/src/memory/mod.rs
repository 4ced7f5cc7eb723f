//! What a device's memory holds: live bytes now and at their peak, by what they are, and the largest values with the op and
//! the line that made them.
//!
//! Owns: the [`Ledger`] of a device's live values, the report of it, and the error of a device that is full. May not know:
//! engines; they tell the ledger which values they have.
//!
//! Counting is always on. A value in the memory of the donated one that it updates, as in every warm training step, costs
//! nothing; any other costs a few atomic additions.

mod error;
mod ledger;
mod regions;
mod report;

pub use error::OutOfMemory;
pub(crate) use ledger::{AllocationSite, Ledger, LiveValue};
pub(crate) use regions::regions_are_short;
pub use report::{LiveTensors, MemoryKind, MemoryUse, PluginMemory};
