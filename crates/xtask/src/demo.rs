//! `cargo xtask demo`: trains a classifier on a fresh checkout. Fetches what is missing, then runs the MNIST example, which
//! ends with the accuracy on all 10,000 test images, images per second, and the metrics report. `cargo xtask demo NAME` does
//! the same for another example; each has a file in `demo/`.

use crate::stage::{cargo, succeed};
use crate::{data, setup};
use anyhow::Result;
use burn_tpu_pjrt::discovery::PluginKind;

/// The options that are passed to the example.
#[derive(clap::Args)]
pub struct Args {
    /// Options of the example, such as `--dtype f32`, `--platform ndarray` or `--model cnn`
    /// (`cargo run --release -p mnist -- --help` lists them); or the name of another example and its options:
    /// `chat`, `embed`, `gpt`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    example: Vec<String>,
}

mod chat;
mod embed;
mod gpt;

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    match args.example.split_first() {
        Some((name, options)) if name == "chat" => chat::run(options),
        Some((name, options)) if name == "embed" => embed::run(options),
        Some((name, options)) if name == "gpt" => gpt::run(options),
        _ => mnist(args),
    }
}

fn mnist(args: &Args) -> Result<()> {
    if args.value("--platform").is_none_or(|platform| platform == "cpu") {
        setup::ensure(PluginKind::Cpu, None)?;
    }
    if args.value("--data").is_none() {
        data::mnist(None)?;
    }
    println!(
        "Building the example `mnist` with Burn and burn-tpu, without optimisation: some minutes on two cores, once. \
         Training is half a minute; `cargo run --release -p mnist` builds longer and trains faster."
    );
    let mut command = cargo(&["run", "-p", "mnist", "--"])?;
    // A first build never reads the incremental state, which takes a minute of processor time and 400 MB to write.
    command.args(&args.example).env("CARGO_INCREMENTAL", "0");
    succeed(&mut command).map(drop)
}

impl Args {
    /// Returns the value of an option in the example's arguments: `--name value` or `--name=value`.
    fn value(&self, name: &str) -> Option<&str> {
        let mut options = self.example.iter();
        let given = options.find_map(|option| option.strip_prefix(name))?;
        given.strip_prefix('=').or_else(|| options.next().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_example_are_read_in_both_spellings() {
        let args = |words: &[&str]| Args { example: words.iter().map(ToString::to_string).collect() };
        assert_eq!(args(&["--epochs", "1", "--platform", "tpu"]).value("--platform"), Some("tpu"));
        assert_eq!(args(&["--data=x"]).value("--data"), Some("x"));
        assert_eq!(args(&["--dtype", "f32"]).value("--data"), None);
    }
}
