//! `cargo xtask layers`: the workspace's crates depend on each other, and say things, only as the design allows.
//!
//! Three kinds of rules: *arrows* between crates, read from `cargo metadata`; imports between *modules*, and *words*, both
//! looked for in the sources. Each broken rule is one line that names the crate or file, what is wrong, and why the rule
//! exists.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

mod arrows;
mod imports;
mod modules;
mod text;
mod tokens;
mod words;

/// The crates that others may depend on.
const LIBRARIES: [&str; 11] = [
    "burn-tpu",
    "burn-tpu-fusion",
    "burn-tpu-graph",
    "burn-tpu-interpreter",
    "burn-tpu-kernels",
    "burn-tpu-pjrt",
    "burn-tpu-profile",
    "burn-tpu-0-22",
    "burn-tpu-runtime",
    "burn-tpu-train",
    "burn-tpu-xla",
];
/// The one crate that may contain `unsafe`.
const UNSAFE_CRATE: &str = "burn-tpu-pjrt";

/// Fails with a list of every broken rule.
pub fn run() -> Result<()> {
    let root = root()?;
    let mut broken = arrows::check(&metadata(&root, &["--no-deps"])?)?;
    broken.extend(modules::check(&root)?);
    broken.extend(words::check(&root)?);
    if broken.is_empty() {
        println!("layers: every crate keeps to its arrows, the order of its modules and its words");
        return Ok(());
    }
    bail!("{} broken layer rules:\n  {}", broken.len(), broken.join("\n  "))
}

/// The workspace's folder: where this crate's own folder lies now, which Cargo says at each run. (Where it lay when it was
/// compiled may be another checkout, if a target folder came from there.)
pub fn root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").context("run this through Cargo: `cargo xtask`")?;
    Path::new(&manifest).ancestors().nth(2).map(Path::to_path_buf).context("xtask is not in `crates/`")
}

/// What `cargo metadata` says about the workspace.
pub fn metadata(root: &Path, options: &[&str]) -> Result<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1"]).args(options).current_dir(root);
    let output = cargo.output().context("cannot start `cargo metadata`")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("`cargo metadata` did not print UTF-8")
}
