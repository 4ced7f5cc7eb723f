//! Accelerators and the processes that use them, from device files and `/proc`. No device is opened.

use super::report::{Accelerator, Hardware, Lock};
use burn_tpu_pjrt::occupancy::{self, LibtpuLock};
use burn_tpu_pjrt::presence;
use std::path::PathBuf;

/// Returns the accelerators of this machine.
pub fn look() -> Hardware {
    Hardware {
        tpu: accelerator(presence::tpu_present(), presence::tpu_devices()),
        gpu: accelerator(presence::nvidia_gpu_present(), presence::nvidia_devices()),
        nvidia_driver: nvidia_driver(),
        libtpu_lock: match occupancy::libtpu_lock() {
            LibtpuLock::Free => Lock::Free,
            LibtpuLock::Held(holder) => Lock::Held { pid: holder.pid, command: holder.command },
            LibtpuLock::Foreign { owner } => Lock::Foreign { owner },
        },
    }
}

fn accelerator(present: bool, devices: Vec<PathBuf>) -> Accelerator {
    let holders = occupancy::holders(&devices);
    Accelerator {
        present,
        devices,
        used_by: holders.found.iter().map(ToString::to_string).collect(),
        hidden_processes: holders.hidden,
    }
}

/// Returns the version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06 ...`.
fn nvidia_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let version =
        text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    version.map(str::to_owned)
}
