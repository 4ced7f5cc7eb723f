//! `cargo xtask book`: checks the links of the Markdown pages, and builds `docs/` as a book with mdBook.
//!
//! The pages are written for a plain git host. The book is built from a copy of `README.md`, the other pages beside it and
//! `docs/`, at their places in the repository, so a relative link means the same in both.

use crate::stage::{TestCounts, cargo, succeed};
use crate::{fetch, layers};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod links;
mod pages;

/// The version of mdBook that the book is built with.
const MDBOOK: &str = "0.5.4";
/// The list of chapters.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The settings of mdBook.
const SETTINGS: &str = "docs/book.toml";
/// What belongs to the book beside `docs/`.
const BESIDE: [&str; 5] = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// What to do.
#[derive(clap::Args)]
pub struct Args {
    /// Check the links and that every page is a chapter; build nothing
    #[arg(long)]
    links_only: bool,
}

/// Runs the command: prints the path of the book's first page.
pub fn run(args: &Args) -> Result<()> {
    let root = layers::root()?;
    check_pages(&root)?;
    if !args.links_only {
        println!("book: {}", build(&root)?.display());
    }
    Ok(())
}

/// The stage of `cargo xtask test`.
pub fn stage() -> Result<TestCounts> {
    run(&Args { links_only: false }).map(|()| TestCounts::default())
}

/// Fails with a list of the links and paths that lead nowhere, and of the pages that are no chapter.
fn check_pages(root: &Path) -> Result<()> {
    let pages = pages::read(root)?;
    let mut broken = links::check(root, &pages);
    let summary = pages.get(SUMMARY).with_context(|| format!("there is no `{SUMMARY}`"))?;
    let chapters = links::targets(summary, SUMMARY);
    let missing = pages.keys().filter(|page| is_chapter(page) && !chapters.contains(*page));
    broken.extend(missing.map(|page| format!("{page}: it is no chapter: add it to {SUMMARY}")));
    if broken.is_empty() {
        println!("book: the links of {} pages lead somewhere, and each of docs/ is a chapter", pages.len());
        return Ok(());
    }
    bail!("the pages have broken links ({}):\n  {}", broken.len(), broken.join("\n  "))
}

/// Whether a page has to be a chapter.
fn is_chapter(page: &str) -> bool {
    page.starts_with("docs/") && page != SUMMARY
}

/// Whether a file is part of the book, so that its pages may link to it.
fn is_in_book(path: &str) -> bool {
    is_chapter(path) || BESIDE.contains(&path)
}

/// Builds the book in the target folder, and returns the path of its first page.
fn build(root: &Path) -> Result<PathBuf> {
    let mdbook = mdbook()?;
    let folder = target_folder(root)?.join("book");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    copy_sources(root, &folder)?;
    succeed(Command::new(mdbook).arg("build").arg(&folder))?;
    let first = folder.join("html/index.html");
    if !first.is_file() {
        bail!("mdBook wrote no `{}`", first.display());
    }
    Ok(first)
}

fn target_folder(root: &Path) -> Result<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(&layers::metadata(root, &["--no-deps"])?)?;
    let target = metadata["target_directory"].as_str().context("`cargo metadata` names no target folder")?;
    Ok(PathBuf::from(target))
}

/// Copies what the book is made of to `folder`: mdBook's settings, and below `src` the pages at their places.
fn copy_sources(root: &Path, folder: &Path) -> Result<()> {
    let source = folder.join("src");
    let copy = |from: &str, to: PathBuf| -> Result<()> {
        fs::create_dir_all(to.parent().unwrap_or(folder))
            .and_then(|()| fs::copy(root.join(from), &to))
            .map(drop)
            .with_context(|| format!("cannot copy `{from}` to `{}`", to.display()))
    };
    copy(SETTINGS, folder.join("book.toml"))?;
    for file in pages::files(root)?.iter().filter(|file| is_in_book(file)) {
        copy(file, source.join(file))?;
    }
    let summary = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read `{SUMMARY}`"))?;
    fs::write(source.join("SUMMARY.md"), seen_from_the_root(&summary)).context("cannot write the summary")
}

/// The summary with its links as they are one folder higher, where mdBook looks for it.
fn seen_from_the_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

/// Returns the path of the pinned mdBook, after installing it into the cache folder if it is missing. Without its server and
/// not optimized, it compiles in half a minute on two cores.
fn mdbook() -> Result<PathBuf> {
    let folder = fetch::cache_dir()?.join("tools").join(format!("mdbook-{MDBOOK}"));
    let program = folder.join("bin").join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    println!("book: installing mdBook {MDBOOK} into `{}`; this takes about a minute, once", folder.display());
    let mut install = cargo(&["install", "mdbook", "--version", MDBOOK, "--locked", "--debug", "--quiet"])?;
    install.args(["--no-default-features", "--features", "search", "--root"]).arg(&folder);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("CARGO_TARGET_DIR");
    succeed(&mut install).with_context(|| {
        format!("mdBook {MDBOOK} could not be installed from crates.io: is this machine online? See the messages above")
    })?;
    if !program.is_file() {
        bail!("`cargo install` left no `{}`", program.display());
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_moved_up() {
        let summary = "[A](../README.md)\n- [B](fit.md)\n  - [C](decisions/0001-x.md)\n";
        let moved = "[A](README.md)\n- [B](docs/fit.md)\n  - [C](docs/decisions/0001-x.md)\n";
        assert_eq!(seen_from_the_root(summary), moved);
    }

    #[test]
    fn the_book_is_docs_and_the_pages_beside_it() {
        assert!(is_in_book("docs/fit.md") && is_in_book("README.md") && is_in_book("LICENSE-MIT"));
        assert!(!is_in_book("crates/xtask/src/main.rs") && !is_in_book(SUMMARY));
        assert!(is_chapter("docs/decisions/0001-x.md") && !is_chapter("docs/SUMMARY.md") && !is_chapter("README.md"));
    }
}
