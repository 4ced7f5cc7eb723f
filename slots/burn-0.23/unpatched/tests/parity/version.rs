//! What the rows need to know of Burn's version, here 0.23. `tests/parity/version.rs` is the same for Burn 0.21.

use burn_tpu_0_23::{Device, TpuOptions};

pub use burn_autodiff::Autodiff;
pub use burn_tpu_0_23::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu_0_23::Tpu;
/// The oracle.
pub type Cpu = burn_flex::Flex;

/// The rows of methods that other versions lack, or have in another form.
pub fn rows() -> Vec<crate::harness::Row> {
    [crate::since_0_22::rows(), crate::added::rows()].into_iter().flatten().collect()
}

#[path = "../../../../../crates/burn-tpu-0-22/tests/parity/version_since_0_22.rs"]
mod version_since_0_22;

pub use version_since_0_22::*;
