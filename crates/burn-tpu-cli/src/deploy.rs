//! `burn-tpu deploy`: prints what a person would write by hand to run a program on Google Cloud's TPUs.
//!
//! Owns: the options that the three targets share, and where the text goes. It starts nothing and asks no cloud: what is
//! printed is read, changed and run by a person. `table.rs` has what Google Cloud calls things, `slice.rs` the legal slices,
//! `fit.rs` the choice from a report; `gke.rs`, `vm.rs` and `docker.rs` render, `yaml.rs` quotes.

use clap::Subcommand;
use error::{Error, Result};
use fit::Choice;
use slice::Slice;
use std::path::PathBuf;
use std::process::ExitCode;

mod docker;
mod error;
mod fit;
mod gke;
mod slice;
mod table;
mod vm;
mod yaml;

/// Options of `deploy`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    target: Target,
}

#[derive(Subcommand)]
enum Target {
    /// YAML for Google Kubernetes Engine: `burn-tpu deploy gke --slice v5e:4x4 --image IMAGE -- train --epochs 10`
    Gke(gke::Args),
    /// gcloud commands for TPU VMs: `burn-tpu deploy vm --slice v5e:4x4 --zone ZONE --from gs://B/F -- ./train`
    Vm(vm::Args),
    /// A Dockerfile with the program and libtpu: `burn-tpu deploy docker --bin train`
    Docker(docker::Args),
}

/// Which slice.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SliceArgs {
    /// Slice of TPUs, such as v5e:4x4 or v4:2x2x2
    #[arg(long)]
    slice: Option<Slice>,
    /// Report of `fit --json`: the cheapest slice on which the step fits
    #[arg(long, value_name = "FILE")]
    fit: Option<PathBuf>,
}

impl SliceArgs {
    fn choose(&self) -> Result<Choice> {
        match (&self.slice, &self.fit) {
            (Some(slice), _) => Ok(Choice { slice: slice.clone(), mesh: None, reasons: Vec::new() }),
            (None, Some(report)) => fit::choose(report),
            (None, None) => Err(Error::NoSlice),
        }
    }
}

/// The program, and what it is given.
#[derive(clap::Args)]
struct ProgramArgs {
    /// Seconds between SIGTERM and the end by force, in which the program saves
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    grace: u32,
    /// Variable of the program, with its value here or another
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The program with its arguments; on GKE, the one in the image
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where the text goes.
#[derive(clap::Args)]
struct Output {
    /// Write to this file instead of printing
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Output {
    fn write(&self, text: &str) -> Result<()> {
        let Some(path) = &self.out else {
            print!("{text}");
            return Ok(());
        };
        std::fs::write(path, text).map_err(|error| Error::Write { path: path.clone(), error })
    }
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    match render(&args.target).and_then(|(output, text)| output.write(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn render(target: &Target) -> Result<(&Output, String)> {
    Ok(match target {
        Target::Gke(args) => (&args.output, gke::render(args)?),
        Target::Vm(args) => (&args.output, vm::render(args)?),
        Target::Docker(args) => (&args.output, docker::render(args)?),
    })
}

/// Parses a name that Kubernetes and Compute Engine both accept. It leaves room for what JobSet appends.
fn name(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.len() <= 40
        && text.chars().all(is_plain);
    let rule = "1 to 40 lower-case letters, digits and dashes, with a letter first and no dash last";
    if is_name { Ok(text.into()) } else { Err(Error::Name { name: text.into(), rule }) }
}

/// Returns lines as comments of YAML and of a shell.
fn comment(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("# {}\n", line.replace(|c: char| c.is_control() || "\u{2028}\u{2029}".contains(c), " ")))
        .collect()
}

/// Returns the variables of `--env` after those that `deploy` sets, of which they replace the ones of the same name.
fn variables(own: Vec<(String, String)>, given: &[String]) -> Result<Vec<(String, String)>> {
    let given = given.iter().map(|text| crate::launch::variable(text).map_err(Error::Variable));
    let given = given.collect::<Result<Vec<_>>>()?;
    let own = own.into_iter().filter(|(name, _)| given.iter().all(|(other, _)| other != name));
    let own: Vec<_> = own.collect();
    Ok([own, given].concat())
}

#[allow(clippy::print_stderr, reason = "an error, beside the text that is printed")]
fn say(text: &str) {
    eprintln!("burn-tpu deploy: {text}");
}
