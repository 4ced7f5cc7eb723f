//! Detects accelerators from device files alone: it opens no library and never waits.
//!
//! The result is a hint: only creating a client shows that a device works.

use std::path::{Path, PathBuf};

/// Google's PCI vendor id, as sysfs prints it.
const GOOGLE_PCI_VENDOR: &str = "0x1ae0";

/// Returns whether a TPU is attached: `/dev/accel*`, or `/dev/vfio` together with a PCI device of Google's.
///
/// VFIO alone is not enough, since other passed-through hardware uses it too.
pub fn tpu_present() -> bool {
    tpu_below(Path::new("/"))
}

/// Returns whether an NVIDIA GPU's driver is loaded: `/dev/nvidiactl` or `/proc/driver/nvidia/version`.
pub fn nvidia_gpu_present() -> bool {
    nvidia_below(Path::new("/"))
}

/// Returns the device files of the attached TPUs: `/dev/accel0` and on, or `/dev/vfio/0` and on.
pub fn tpu_devices() -> Vec<PathBuf> {
    tpus_below(Path::new("/"))
}

/// Returns the device files of the NVIDIA GPUs: `/dev/nvidia0` and on.
pub fn nvidia_devices() -> Vec<PathBuf> {
    numbered(Path::new("/dev"), "nvidia")
}

fn tpu_below(root: &Path) -> bool {
    !numbered(&root.join("dev"), "accel").is_empty() || (root.join("dev/vfio").is_dir() && google_pci_device(root))
}

fn tpus_below(root: &Path) -> Vec<PathBuf> {
    let accel = numbered(&root.join("dev"), "accel");
    if accel.is_empty() && google_pci_device(root) { numbered(&root.join("dev/vfio"), "") } else { accel }
}

/// Returns the files in `folder` whose name is `prefix` and a number, in ascending order.
fn numbered(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let number = |name: &String| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut names: Vec<(u32, String)> = names(folder).filter_map(|name| Some((number(&name)?, name))).collect();
    names.sort();
    names.into_iter().map(|(_, name)| folder.join(name)).collect()
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
    fn device_files_are_sorted_by_number_and_vfio_needs_a_tpu() {
        let vendor = "sys/bus/pci/devices/0000:00:04.0/vendor";
        let found = |files: &[(&str, &str)]| {
            let root = machine(files);
            let name = |path: PathBuf| path.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned();
            tpus_below(root.path()).into_iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(found(&[("dev/accel10", ""), ("dev/accel2", ""), ("dev/accel", "")]), ["dev/accel2", "dev/accel10"]);
        let vfio = [("dev/vfio/1", ""), ("dev/vfio/vfio", ""), (vendor, "0x1ae0\n")];
        assert_eq!(found(&vfio), ["dev/vfio/1"]);
        assert!(found(&vfio[..2]).is_empty());
    }

    #[test]
    fn a_gpu_is_found_by_its_control_device_or_a_loaded_driver() {
        assert!(nvidia_below(machine(&[("dev/nvidiactl", "")]).path()));
        assert!(nvidia_below(machine(&[("proc/driver/nvidia/version", "")]).path()));
        assert!(!nvidia_below(machine(&[("dev/null", "")]).path()));
    }
}
