//! The workspace's own commands. `cargo xtask help` lists them; each has its own file.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program talks to its user")]

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod api;
mod book;
mod burn_0_22;
mod coverage;
mod data;
mod demo;
mod examples;
mod fetch;
mod idiomatic;
mod judge;
mod layers;
mod models;
mod programs;
mod setup;
mod slot;
mod sources;
mod stage;
mod test;
mod text;
mod xla_rs;

/// The commands of the burn-tpu workspace.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch a PJRT plugin, or XLA's library for the crate xla, into the cache folder
    Setup(setup::Args),
    /// Fetch the data or the weights that an example reads into the cache folder
    Data(data::Args),
    /// Check the dependencies between crates, and words that the sources may not contain
    Layers,
    /// Write the table of every backend method from the sources
    Coverage(coverage::Args),
    /// Write the list of the public items of burn-tpu
    Api(api::Args),
    /// Check the links of the pages, and build docs/ as a book
    Book(book::Args),
    /// Fetch what is missing, then train and test an MNIST classifier, or run another example
    Demo(demo::Args),
    /// Run programs written for eager backends on burn-tpu and burn-flex, and compare counts, times and losses
    Idiomatic(idiomatic::Args),
    /// Compare the TPU compiler's figures of a model's step before and after a level of rewrites, or one rewrite
    Judge(judge::Args),
    /// Test the packages in slots/, with which programs of newer versions of Burn run in process
    Slot(slot::Args),
    /// Run everything that CI checks
    Test(test::Args),
    /// Run the checks of CI that run no program: format, lints, layers, coverage, api, docs, book
    Check,
}

fn main() -> ExitCode {
    match api::stand_in_for_rustdoc().unwrap_or_else(|| run(Cli::parse().command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            error.chain().skip(1).for_each(|cause| eprintln!("  because: {cause}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup(args) => setup::run(&args)?,
        Command::Data(args) => data::run(&args)?,
        Command::Layers => layers::run()?,
        Command::Coverage(args) => coverage::run(&args)?,
        Command::Api(args) => api::run(&args)?,
        Command::Book(args) => book::run(&args)?,
        Command::Demo(args) => demo::run(&args)?,
        Command::Idiomatic(args) => idiomatic::run(&args)?,
        Command::Judge(args) => judge::run(&args)?,
        Command::Slot(args) => slot::run(&args)?,
        Command::Test(args) => return test::run(&args),
        Command::Check => return Ok(test::check()),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }
}
