//! The Rust files of the workspace, for the checks that read them.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Returns all Rust files below a folder in the order of their paths, without those of build output and hidden folders; a
/// file for its own path.
///
/// # Errors
/// If a folder cannot be listed.
pub fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.is_file() {
        return Ok(vec![folder.to_path_buf()]);
    }
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list `{}`", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
