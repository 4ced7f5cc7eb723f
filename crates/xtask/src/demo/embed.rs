//! `cargo xtask demo embed`: searches a text by meaning. Fetches the weights of MiniLM-L6 and a plugin, then runs the
//! example `embed`.

use super::Args;
use crate::models::MINILM;
use crate::setup;
use crate::stage::{cargo, succeed};
use anyhow::Result;
use burn_tpu_pjrt::discovery::PluginKind;

/// What runs without options: a question whose words are not those of its answer.
const SEARCH: [&str; 4] = ["search", "Can I try this out if I do not own the hardware?", "README.md", "--top=3"];

/// Runs the example with these options.
pub fn run(options: &[String]) -> Result<()> {
    let args = Args { example: options.to_vec() };
    if args.value("--platform").is_none_or(|platform| platform == "cpu") {
        setup::ensure(PluginKind::Cpu, None)?;
    }
    if args.value("--model").is_none() {
        MINILM.ensure(None)?;
    }
    let mut command = cargo(&["run", "--release", "--example", "embed", "--"])?;
    if options.is_empty() {
        command.args(SEARCH)
    } else {
        command.args(options)
    };
    succeed(&mut command).map(drop)
}
