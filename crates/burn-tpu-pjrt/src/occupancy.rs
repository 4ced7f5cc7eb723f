//! Finds out who uses an accelerator: processes that have its device files open, and the holder of libtpu's lock file.
//!
//! Everything is read from `/proc` and from file metadata. The lock file itself is never opened: POSIX drops a process's
//! locks on a file when it closes *any* descriptor of it, so opening it in a process that runs libtpu would release the
//! TPU.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that libtpu locks while it is initialised (`fcntl`, `F_SETLK`, `F_WRLCK`; libtpu 0.0.51), unless
/// `ALLOW_MULTIPLE_LIBTPU_LOAD` is set. The file remains, unlocked, when the process ends.
pub const LIBTPU_LOCK: &str = "/tmp/libtpu_lockfile";

/// A process that uses a device or holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process id, as this process sees it.
    pub pid: u32,
    /// The command line; empty if it cannot be read.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.command.as_str() {
            "" => write!(f, "process {}", self.pid),
            command => write!(f, "process {} ({command})", self.pid),
        }
    }
}

/// The processes that have a device file open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The processes found, in ascending order of ids.
    pub found: Vec<Holder>,
    /// The number of other users' processes that could not be inspected.
    pub hidden: usize,
}

/// The state of libtpu's lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LibtpuLock {
    /// No process holds it.
    Free,
    /// A process holds it: libtpu cannot initialise in another one.
    Held(Holder),
    /// No visible process holds it, but this user may not open it; libtpu treats this as a TPU in use.
    Foreign {
        /// The user id of the file's owner.
        owner: u32,
    },
}

/// Returns the processes that have one of these device files open.
pub fn holders(devices: &[PathBuf]) -> Holders {
    holders_below(Path::new("/"), devices)
}

/// Returns the state of libtpu's lock file.
///
/// A holder in another container is not visible: the result is then `Free`, and only loading libtpu shows the lock.
pub fn libtpu_lock() -> LibtpuLock {
    lock_below(Path::new("/"))
}

fn holders_below(root: &Path, devices: &[PathBuf]) -> Holders {
    let mut holders = Holders::default();
    if devices.is_empty() {
        return holders;
    }
    for pid in processes(root) {
        match open_files(root, pid) {
            None => holders.hidden += 1,
            Some(files) if files.iter().any(|file| devices.contains(file)) => holders.found.push(holder(root, pid)),
            Some(_) => {}
        }
    }
    holders
}

fn lock_below(root: &Path) -> LibtpuLock {
    let path = root.join(LIBTPU_LOCK.trim_start_matches('/'));
    let Ok(file) = fs::symlink_metadata(&path) else { return LibtpuLock::Free };
    let locks = fs::read_to_string(root.join("proc/locks")).unwrap_or_default();
    let locked =
        locks.lines().filter_map(Lock::parse).find(|lock| lock.inode == file.ino() && is_on(root, lock, &path));
    match locked {
        Some(lock) => LibtpuLock::Held(holder(root, lock.pid)),
        None if refuses_us(root, &file) => LibtpuLock::Foreign { owner: file.uid() },
        None => LibtpuLock::Free,
    }
}

/// A granted POSIX write lock in `/proc/locks`: `4: POSIX  ADVISORY  WRITE 27272 fe:00:10010693 0 EOF`.
struct Lock {
    pid: u32,
    device: (u64, u64),
    inode: u64,
}

impl Lock {
    fn parse(line: &str) -> Option<Lock> {
        let [_, "POSIX", _, "WRITE", pid, file, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let [major, minor, inode] = file.split(':').collect::<Vec<_>>()[..] else { return None };
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Lock { pid: pid.parse().ok()?, device: (hex(major)?, hex(minor)?), inode: inode.parse().ok()? })
    }
}

/// Returns whether a lock with the file's inode number is on that file: the device is the same, or its holder has the file
/// open. The second case is needed because layered file systems show another device in `/proc/locks` than in `stat`.
fn is_on(root: &Path, lock: &Lock, path: &Path) -> bool {
    let same_device = fs::symlink_metadata(path).is_ok_and(|file| device_numbers(file.dev()) == lock.device);
    same_device || open_files(root, lock.pid).is_some_and(|files| files.iter().any(|file| file == path))
}

/// Returns Linux's major and minor number of a `st_dev`.
fn device_numbers(dev: u64) -> (u64, u64) {
    (((dev >> 8) & 0xfff) | ((dev >> 32) & 0xffff_f000), (dev & 0xff) | ((dev >> 12) & 0xffff_ff00))
}

/// Returns whether opening the file with `O_RDWR | O_CREAT | O_NOFOLLOW`, as libtpu does, fails. Where the kernel protects
/// regular files in sticky folders, another user's file is refused whatever its mode.
fn refuses_us(root: &Path, file: &fs::Metadata) -> bool {
    let us = fs::metadata(root.join("proc/self")).map(|me| me.uid());
    let protected = fs::read_to_string(root.join("proc/sys/fs/protected_regular"));
    let protected = protected.is_ok_and(|level| level.trim() != "0");
    let theirs = us.is_ok_and(|us| us != file.uid());
    !file.is_file() || theirs && (protected || file.mode() & 0o002 == 0)
}

fn processes(root: &Path) -> Vec<u32> {
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Returns the files that a process's descriptors refer to; `None` if they may not be read.
fn open_files(root: &Path, pid: u32) -> Option<Vec<PathBuf>> {
    let descriptors = fs::read_dir(root.join(format!("proc/{pid}/fd"))).ok()?;
    Some(descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok()).collect())
}

fn holder(root: &Path, pid: u32) -> Holder {
    let command = fs::read(root.join(format!("proc/{pid}/cmdline"))).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    Holder { pid, command }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with process 7 (`python train.py`), which has `open` open.
    fn machine(open: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/7/fd")).unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::create_dir_all(root.path().join("tmp")).unwrap();
        fs::write(root.path().join("proc/7/cmdline"), b"python\0train.py\0").unwrap();
        std::os::unix::fs::symlink(open, root.path().join("proc/7/fd/3")).unwrap();
        root
    }

    fn python() -> Holder {
        Holder { pid: 7, command: "python train.py".into() }
    }

    #[test]
    fn a_process_with_the_device_open_is_named() {
        let root = machine("/dev/accel0");
        let found = holders_below(root.path(), &["/dev/accel0".into(), "/dev/accel1".into()]);
        assert_eq!(found, Holders { found: vec![python()], hidden: 0 });
        assert_eq!(found.found[0].to_string(), "process 7 (python train.py)");
        assert_eq!(holders_below(root.path(), &["/dev/accel1".into()]), Holders::default());
        fs::create_dir_all(root.path().join("proc/8")).unwrap();
        assert_eq!(holders_below(root.path(), &["/dev/accel1".into()]).hidden, 1);
    }

    #[test]
    fn the_lock_is_held_by_the_process_that_the_kernel_reports() {
        let root = machine("/dev/null");
        assert_eq!(lock_below(root.path()), LibtpuLock::Free, "no file");
        let path = root.path().join("tmp/libtpu_lockfile");
        fs::write(&path, "").unwrap();
        assert_eq!(lock_below(root.path()), LibtpuLock::Free, "a file without a lock");
        let (file, locks) = (fs::metadata(&path).unwrap(), root.path().join("proc/locks"));
        let (major, minor) = device_numbers(file.dev());
        let line = |kind: &str, device: String| format!("1: {kind}  ADVISORY  WRITE 7 {device}:{} 0 EOF\n", file.ino());
        let device = format!("{major:02x}:{minor:02x}");
        fs::write(&locks, line("FLOCK", device.clone())).unwrap();
        assert_eq!(lock_below(root.path()), LibtpuLock::Free, "another kind of lock");
        fs::write(&locks, line("POSIX", device)).unwrap();
        assert_eq!(lock_below(root.path()), LibtpuLock::Held(python()));
        fs::write(&locks, line("POSIX", "ff:fe".into())).unwrap();
        assert_eq!(lock_below(root.path()), LibtpuLock::Free, "the same inode number on another device");
        std::os::unix::fs::symlink(&path, root.path().join("proc/7/fd/4")).unwrap();
        assert_eq!(lock_below(root.path()), LibtpuLock::Held(python()), "a layered file system");
    }

    #[test]
    fn a_lock_file_that_libtpu_cannot_open_is_reported_as_foreign() {
        let root = machine("/dev/null");
        fs::create_dir(root.path().join("tmp/libtpu_lockfile")).unwrap();
        assert!(matches!(lock_below(root.path()), LibtpuLock::Foreign { .. }));
    }

    #[test]
    fn device_numbers_are_linuxs() {
        assert_eq!(device_numbers(65024), (0xfe, 0));
        assert_eq!(device_numbers(0x0000_1000_0010_0801), (0x1008, 0x101));
    }
}
