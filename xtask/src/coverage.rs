//! `cargo xtask coverage`: writes `docs/op-coverage.md`, the table of every method of Burn's backend traits.
//!
//! Nothing in it is written by hand: the methods come from the sources of the Burn release that the workspace is pinned
//! to, what is overridden from the backend's own sources, and what is tested from the tests' sources. What the engines do
//! with each kind of graph node comes from `burn-tpu-xla`'s table.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

mod engines;
mod methods;
mod table;
mod tested;

/// Where the table lies.
const TABLE: &str = "docs/op-coverage.md";

/// How the table is made.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if the table is not what the sources say
    #[arg(long)]
    check: bool,
}

/// `cargo xtask coverage`
pub fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    let root = crate::layers::root()?;
    let table = generate(&root)?;
    std::fs::write(root.join(TABLE), &table).with_context(|| format!("cannot write {TABLE}"))?;
    complete(&table)
}

/// Fails if the table is not what the sources say, or a method is missing or without a test.
pub fn check() -> Result<()> {
    let root = crate::layers::root()?;
    let written = std::fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
    if written != generate(&root)? {
        bail!("{TABLE} is stale: run `cargo xtask coverage` and commit it");
    }
    complete(&written)
}

fn complete(table: &str) -> Result<()> {
    let table::Summary { methods, missing, untested } = table::Summary::of(table);
    if !missing.is_empty() || !untested.is_empty() {
        bail!("of {methods} methods are missing: {}; without a test: {}", missing.join(", "), untested.join(", "));
    }
    println!("coverage: {methods} methods, none missing, none without a test");
    Ok(())
}

fn generate(root: &Path) -> Result<String> {
    let burn = burn_sources(root)?;
    let traits = methods::traits(&burn)?;
    let overridden = methods::overridden(&root.join("burn-tpu/src"))?;
    let names = traits.iter().flat_map(|(_, methods)| methods.iter().map(|method| method.name.clone())).collect();
    let tests = tested::find(root, &names)?;
    Ok(table::render(&traits, &overridden, &tests) + &engines::render())
}

/// The backend traits' sources, where cargo keeps the pinned release.
fn burn_sources(root: &Path) -> Result<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(&crate::layers::metadata(root, &[])?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let burn = packages.iter().find(|package| package["name"] == "burn-backend").context("no burn-backend")?;
    let manifest = burn["manifest_path"].as_str().context("burn-backend has no manifest")?;
    let folder = Path::new(manifest).parent().context("burn-backend has no folder")?;
    Ok(folder.join("src/backend"))
}

/// Every Rust file below a folder, in a fixed order.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn parsed(path: &Path) -> Result<syn::File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))
}
