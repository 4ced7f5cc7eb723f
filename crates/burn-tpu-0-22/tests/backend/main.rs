//! Burn 0.22's backend on one process: the methods about a device, tensors as handles, and module operations.

mod handles;
mod module_parity;

/// The CPU devices of this process: the first is that of the module operations, the others have a test each.
const CPU_DEVICES: u16 = 4;
