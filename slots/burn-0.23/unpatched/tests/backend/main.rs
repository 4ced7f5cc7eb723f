//! Burn 0.23's backend on one process: the methods about a device, tensors as handles, the collectives, and module
//! operations against burn-flex, over random attributes. Handles and most module operations are the tests of Burn 0.22
//! and 0.21, compiled against Burn 0.23; the other files have what Burn 0.23 added or changed. `PROPTEST_CASES` sets
//! another number of cases.

#[macro_use]
#[path = "../../../../../tests/numbers/module_parity/rows.rs"]
mod rows;
mod attention;
mod collective;
#[path = "../../../../../crates/burn-tpu-0-22/tests/backend/handles.rs"]
mod handles;
mod interpolation;
mod pools;
mod version;

// The name that the tests of Burn 0.22 know.
extern crate burn_tpu_0_23 as burn_tpu_0_22;

/// The CPU devices of this process: the first is that of the module operations, the last is the collectives' second one, the
/// others have a test each.
const CPU_DEVICES: u16 = 5;
