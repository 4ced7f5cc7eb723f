//! The tests of this crate. They are one program, since each would link Burn and two backends.

mod context;
mod experts;
mod families;
mod few_bits;
mod fit_search;
mod generate;
mod gguf;
mod lora;
mod smollm2;
mod training;

use burn_tpu::{TpuDevice, TpuOptions};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns the device of the CPU plugin for one test at a time, since a test counts compiles; `None` if there is no
/// plugin and none is required.
fn cpu() -> Option<(TpuDevice, MutexGuard<'static, ()>)> {
    static ONE: Mutex<()> = Mutex::new(());
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let (device, alone) = (TpuDevice::cpu(0), ONE.lock().unwrap_or_else(PoisonError::into_inner));
    options().install(&device).ok();
    Some((device, alone))
}

/// Everything is compiled, as in the program. The first test decides how many devices the plugin has.
fn options() -> TpuOptions {
    TpuOptions::inference().disk_cache(false).cpu_devices(8)
}
