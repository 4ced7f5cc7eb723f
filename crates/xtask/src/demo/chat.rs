//! `cargo xtask demo chat`: asks a language model. Fetches SmolLM2 and a plugin, then runs `burn-tpu-llm chat`.

use super::Args;
use crate::models::{SMOLLM2, SMOLLM2_FILE};
use crate::setup;
use crate::stage::{cargo, succeed};
use anyhow::Result;
use burn_tpu_pjrt::discovery::PluginKind;

/// What is asked without options.
const QUESTION: [&str; 2] = ["--prompt", "What is the capital of France?"];

/// Runs the program with these options, which are those of `burn-tpu chat`.
pub fn run(options: &[String]) -> Result<()> {
    let args = Args { example: options.to_vec() };
    if args.value("--platform").is_none_or(|platform| platform == "cpu") {
        setup::ensure(PluginKind::Cpu, None)?;
    }
    let mut command = cargo(&["run", "-p", "burn-tpu-llm", "--", "chat"])?;
    if args.value("--model").is_none() {
        command.arg("--model").arg(SMOLLM2.ensure(None)?.join(SMOLLM2_FILE));
    }
    if args.value("--prompt").is_none() {
        command.args(QUESTION);
    }
    println!(
        "Building burn-tpu-llm, without optimisation of most crates: some minutes on two cores, once. Compiling the model's \
         programs takes half a minute; they are kept on disk."
    );
    // A first build never reads the incremental state, which takes a minute of processor time and 400 MB to write.
    succeed(command.args(options).env("CARGO_INCREMENTAL", "0")).map(drop)
}
