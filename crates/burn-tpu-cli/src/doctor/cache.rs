//! The cache folder: its content, who may write to it, what is stale, and the free space.

use super::report::{CacheEntry, CacheReport};
use burn_tpu_pjrt::PluginKind;
use burn_tpu_pjrt::discovery;
use rustix::fs::{Access, access, statvfs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the state of the cache folder.
pub fn look() -> CacheReport {
    match discovery::cache_dir() {
        Some(path) => examine(path),
        None => CacheReport::default(),
    }
}

fn examine(path: PathBuf) -> CacheReport {
    // If the folder does not exist yet, its nearest ancestor determines free space and permission.
    let nearest = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let folders: Vec<PathBuf> = entries(&path).into_iter().filter(|entry| entry.is_dir()).collect();
    CacheReport {
        exists: path.is_dir(),
        writable: access(nearest, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        open_to_others: std::iter::once(&path).chain(&folders).filter(|folder| is_open(folder)).cloned().collect(),
        entries: folders.iter().map(|folder| measure(folder)).collect(),
        stale: stale(&path),
        free_bytes: statvfs(nearest).ok().map(|disk| disk.f_bavail * disk.f_frsize),
        path: Some(path),
    }
}

/// Returns whether other users may replace files in the folder, which this user's processes load as code.
fn is_open(folder: &Path) -> bool {
    let us = fs::metadata("/proc/self").map_or(0, |me| me.uid());
    fs::metadata(folder).is_ok_and(|found| found.mode() & 0o022 != 0 || found.uid() != us && found.uid() != 0)
}

fn measure(folder: &Path) -> CacheEntry {
    let mut total = CacheEntry { name: name(folder), bytes: 0, files: 0 };
    for path in entries(folder) {
        // Links are not followed: they may lead anywhere, even back here.
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {
                let below = measure(&path);
                (total.bytes, total.files) = (total.bytes + below.bytes, total.files + below.files);
            }
            Ok(found) => (total.bytes, total.files) = (total.bytes + found.len(), total.files + 1),
            Err(_) => {}
        }
    }
    total
}

/// Returns plugins of versions that are no longer pinned, and scratch folders of interrupted downloads.
fn stale(cache: &Path) -> Vec<PathBuf> {
    let pinned = PluginKind::ALL.map(|kind| format!("{kind}-{}", kind.package().version));
    let plugins = entries(&cache.join("plugins")).into_iter().filter(|path| !pinned.contains(&name(path)));
    let scratch = entries(cache).into_iter().filter(|path| name(path).starts_with("fetch-"));
    plugins.chain(scratch).collect()
}

/// Returns the paths in a folder, sorted; empty if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sizes_stale_files_and_open_folders_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("cache");
        let pinned = format!("cpu-{}", PluginKind::Cpu.package().version);
        for file in [format!("plugins/{pinned}/a.so"), "plugins/cpu-0.0.0/a.so".into(), "fetch-x/a.whl".into()] {
            let file = cache.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "1234").unwrap();
        }
        fs::set_permissions(cache.join("plugins"), fs::Permissions::from_mode(0o777)).unwrap();
        let found = examine(cache.clone());
        assert!(found.exists && found.writable && found.free_bytes.is_some());
        assert_eq!(found.entries[1], CacheEntry { name: "plugins".into(), bytes: 8, files: 2 });
        assert_eq!(found.stale, [cache.join("plugins/cpu-0.0.0"), cache.join("fetch-x")]);
        assert_eq!(found.open_to_others, [cache.join("plugins")]);
    }

    #[test]
    fn a_folder_that_does_not_exist_yet_has_its_parents_permission_and_space() {
        let root = tempfile::tempdir().unwrap();
        let found = examine(root.path().join("a/b"));
        assert!(!found.exists && found.writable && found.free_bytes.is_some() && found.entries.is_empty());
    }
}
