//! Module operations of Burn 0.22 against its CPU backends, over random attributes: the rows of the workspace's
//! `tests/numbers/module_parity`, compiled here against Burn 0.22. A row has 3 cases, since there they test the same
//! programs with 6; `PROPTEST_CASES` sets another number.

#[path = "../../../../../tests/numbers/module_parity/rows.rs"]
mod rows;
#[path = "../../../../../tests/numbers/module_parity/until_0_22.rs"]
mod until_0_22;
mod version;
