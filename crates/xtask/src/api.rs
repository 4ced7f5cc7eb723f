//! `cargo xtask api`: writes `docs/public-api.txt`, the list of everything public in the crate `burn-tpu`.
//!
//! The list comes from rustdoc's JSON, a format that only a nightly toolchain writes unless it is told otherwise by a
//! variable. Build scripts look at that variable too, and would all run again, so only rustdoc sees it: this program is
//! rustdoc's wrapper while it makes the list.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};

mod document;
mod list;
mod signature;

/// Where the list is.
const LIST: &str = "docs/public-api.txt";
/// The crate that it is about.
const CRATE: &str = "burn_tpu";
/// Set for the child processes in which this program stands in for rustdoc; its value is the real one.
const REAL_RUSTDOC: &str = "XTASK_REAL_RUSTDOC";

/// How the list is made.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if the list is not what the sources say
    #[arg(long)]
    check: bool,
}

/// `cargo xtask api`
pub fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    let root = crate::layers::root()?;
    let list = generate(&root)?;
    std::fs::write(root.join(LIST), &list).with_context(|| format!("cannot write {LIST}"))?;
    println!("api: {}", list::summary(&list));
    Ok(())
}

/// Fails if the list is not what the sources say, and names the lines that differ.
pub fn check() -> Result<()> {
    let root = crate::layers::root()?;
    let written = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let found = generate(&root)?;
    if written != found {
        let changes = list::changes(&written, &found).join("\n  ");
        bail!(
            "the public items of burn-tpu changed:\n  {changes}\nif that is wanted, run `cargo xtask api` and commit {LIST}"
        );
    }
    println!("api: {}", list::summary(&found));
    Ok(())
}

/// Runs rustdoc instead of `xtask` in a process that [`generate`] started; returns `None` in any other.
pub fn stand_in_for_rustdoc() -> Option<Result<ExitCode>> {
    let rustdoc = std::env::var_os(REAL_RUSTDOC)?;
    let status = Command::new(rustdoc).args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").status();
    let code = |status: std::process::ExitStatus| if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Some(status.map(code).context("cannot start rustdoc"))
}

fn generate(root: &Path) -> Result<String> {
    let metadata: serde_json::Value = serde_json::from_str(&crate::layers::metadata(root, &["--no-deps"])?)?;
    let target = metadata["target_directory"].as_str().context("`cargo metadata` names no target folder")?;
    describe()?;
    let mut documents = document::Documents::new(|name| read(Path::new(target), name));
    list::render(CRATE, &mut documents)
}

/// Has rustdoc describe the libraries of the workspace. All of them, since Cargo then builds what they depend on as it does
/// for the lints and for the API documentation: once.
fn describe() -> Result<()> {
    let mut cargo = crate::stage::cargo(&["doc", "--quiet", "--workspace", "--no-deps", "--lib"])?;
    cargo.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    cargo.env(REAL_RUSTDOC, std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into()));
    cargo.env("RUSTDOC", std::env::current_exe().context("this program has no path")?);
    crate::stage::succeed(&mut cargo).map(drop)
}

/// Returns rustdoc's description of a crate.
fn read(target: &Path, name: &str) -> Result<serde_json::Value> {
    let path = target.join("doc").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}
