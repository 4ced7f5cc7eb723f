//! Module operations of Burn 0.23 against its burn-flex, over random attributes: the rows of the workspace's
//! `tests/numbers/module_parity`, compiled here against Burn 0.23, and in `changed` those of methods that Burn 0.23 added or
//! changed. `PROPTEST_CASES` sets another number of cases.

#[macro_use]
#[path = "../../../../../tests/numbers/module_parity/rows.rs"]
mod rows;
mod attention;
mod collective;
mod interpolation;
mod pools;
mod version;

/// The CPU devices of this process: those of the collectives; the first is that of the module operations.
const CPU_DEVICES: u16 = 2;
