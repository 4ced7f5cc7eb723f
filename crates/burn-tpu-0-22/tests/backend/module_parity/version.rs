//! What the rows need to know of Burn's version, here 0.22. `tests/numbers/module_parity/version.rs` is the same for Burn
//! 0.21.

use burn_tpu_0_22::{Device, TpuOptions};

pub use super::until_0_22::*;
pub use burn_tpu_0_22::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu_0_22::Tpu;
/// The oracle.
pub type Cpu = burn_flex::Flex;

#[path = "version_since_0_22.rs"]
mod version_since_0_22;

pub use version_since_0_22::*;
