//! The Markdown pages of the repository, and the files that they may link to.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The text of pages, by path from the workspace's folder.
pub type Pages = BTreeMap<String, String>;

/// Reads every Markdown page of the workspace.
pub fn read(root: &Path) -> Result<Pages> {
    let pages = files(root)?.into_iter().filter(|path| path.ends_with(".md"));
    pages
        .map(|path| {
            let text = fs::read_to_string(root.join(&path)).with_context(|| format!("cannot read `{path}`"))?;
            Ok((path, text))
        })
        .collect()
}

/// Lists the files of the workspace, by path from its folder, without build output and hidden files.
pub fn files(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    collect(root, root, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list `{}`", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || (path.is_dir() && name == "target") {
            continue;
        }
        if path.is_dir() {
            collect(root, &path, found)?;
        } else {
            found.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(())
}
