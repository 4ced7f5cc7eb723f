//! The end of a training step, for a server of burn-tpu.
//!
//! burn-tpu records ops and runs them as one program where a value is read. A loop that reads its loss in every step needs
//! nothing more. One that does not may say where a step ends, so that each step is one program, and the client does not wait.

use anyhow::{Result, bail};
use burn::backend::DispatchDevice;
use burn::backend::ir::CustomOpIr;
use burn::prelude::*;
use burn::remote::CustomOpClient;

/// Ends a step, without waiting for it.
pub fn mark(device: &Device) -> Result<()> {
    let device = device.clone().inner();
    let DispatchDevice::Remote(remote) = device.as_dispatch() else { bail!("the device is not a remote one") };
    CustomOpClient::new(remote).register(CustomOpIr::new("burn_tpu.mark_step", &[], &[]));
    Ok(())
}
