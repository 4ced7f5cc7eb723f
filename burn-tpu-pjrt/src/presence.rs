//! Whether an accelerator is in this machine, told from device files alone: no library is opened, nothing waits.
//!
//! A hint, not a promise: only creating a client shows that a device works.

use std::path::Path;

/// Google's PCI vendor id, as sysfs prints it.
const GOOGLE_PCI_VENDOR: &str = "0x1ae0";

/// Whether a TPU is attached: `/dev/accel*`, or `/dev/vfio` together with a PCI device of Google's.
///
/// VFIO alone says nothing, since other passed-through hardware uses it too.
pub fn tpu_present() -> bool {
    tpu_below(Path::new("/"))
}

/// Whether an NVIDIA GPU's driver is loaded: `/dev/nvidiactl` or `/proc/driver/nvidia/version`.
pub fn nvidia_gpu_present() -> bool {
    nvidia_below(Path::new("/"))
}

fn tpu_below(root: &Path) -> bool {
    let accel = names(&root.join("dev")).any(|name| {
        name.strip_prefix("accel").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    });
    accel || (root.join("dev/vfio").is_dir() && google_pci_device(root))
}

fn google_pci_device(root: &Path) -> bool {
    let devices = root.join("sys/bus/pci/devices");
    names(&devices).any(|name| {
        std::fs::read_to_string(devices.join(name).join("vendor")).is_ok_and(|id| id.trim() == GOOGLE_PCI_VENDOR)
    })
}

fn nvidia_below(root: &Path) -> bool {
    root.join("dev/nvidiactl").exists() || root.join("proc/driver/nvidia/version").exists()
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_tpu_is_an_accel_file_or_vfio_with_googles_vendor_id() {
        let vendor = "sys/bus/pci/devices/0000:00:04.0/vendor";
        assert!(tpu_below(machine(&[("dev/accel0", "")]).path()));
        assert!(tpu_below(machine(&[("dev/vfio/0", ""), (vendor, "0x1ae0\n")]).path()));
        assert!(!tpu_below(machine(&[("dev/vfio/0", ""), (vendor, "0x10de\n")]).path()));
        assert!(!tpu_below(machine(&[(vendor, "0x1ae0\n")]).path()));
        assert!(!tpu_below(machine(&[("dev/accelerator", ""), ("dev/accel", "")]).path()));
    }

    #[test]
    fn a_gpu_is_its_control_device_or_a_loaded_driver() {
        assert!(nvidia_below(machine(&[("dev/nvidiactl", "")]).path()));
        assert!(nvidia_below(machine(&[("proc/driver/nvidia/version", "")]).path()));
        assert!(!nvidia_below(machine(&[("dev/null", "")]).path()));
    }
}
