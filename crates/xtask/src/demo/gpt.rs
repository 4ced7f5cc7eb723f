//! `cargo xtask demo gpt`: trains a GPT on the Linux kernel's documentation, and lets it write. Fetches the text and a
//! plugin, then runs the example `gpt` twice.

use super::Args;
use crate::stage::{cargo, succeed};
use crate::{setup, text};
use anyhow::{Context, Result};
use burn_tpu_pjrt::discovery::{PluginKind, cache_dir};

/// Runs the example with these options, which are those of `gpt train`.
pub fn run(options: &[String]) -> Result<()> {
    let args = Args { example: options.to_vec() };
    if args.value("--platform").is_none_or(|platform| platform == "cpu") {
        setup::ensure(PluginKind::Cpu, None)?;
    }
    if args.value("--data").is_none() {
        text::ensure()?;
    }
    let stored = || cache_dir().map(|cache| cache.join("gpt-model"));
    let out = args.value("--out").map(Into::into).or_else(stored).context("there is no cache folder: pass `--out`")?;
    let both = |name| args.value(name).map(|value| [name.to_owned(), value.to_owned()]);
    let shared: Vec<String> = ["--platform", "--dtype"].into_iter().filter_map(both).flatten().collect();
    let mut train = cargo(&["run", "--release", "--example", "gpt", "--", "train", "--out"])?;
    succeed(train.arg(&out).args(without_out(options)))?;
    let mut generate = cargo(&["run", "--release", "--example", "gpt", "--", "generate", "--model"])?;
    succeed(generate.arg(&out).args(shared)).map(drop)
}

/// Returns options without `--out` and its value, which are passed on their own.
fn without_out(options: &[String]) -> Vec<&String> {
    let mut kept = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.strip_prefix("--out") {
            Some("") => drop(options.next()),
            Some(value) if value.starts_with('=') => {}
            _ => kept.push(option),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_model_is_passed_once() {
        let words: Vec<String> = ["--out", "a", "--steps", "2", "--out=b"].iter().map(ToString::to_string).collect();
        assert_eq!(without_out(&words), ["--steps", "2"]);
    }
}
