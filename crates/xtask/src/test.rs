//! `cargo xtask test`: everything that CI checks, from plugins to examples. `cargo xtask check` is its static part.
//!
//! Tier 0 needs no plugin, tier 1 the CPU plugin, tier 2 libtpu (which compiles ahead of time without a TPU). Here a
//! missing plugin is a failure, and no test is skipped for it.

use crate::examples;
use crate::models::MINILM;
use crate::stage::{self, Stage, TestCounts, cargo, succeed};
use crate::{api, book, burn_0_22, coverage, data, layers, programs, setup, xla_rs};
use anyhow::{Context, Result, bail};
use burn_tpu_pjrt::discovery::PluginKind;
use std::process::ExitCode;

/// The stages to run.
#[derive(clap::Args)]
pub struct Args {
    /// Run only what takes five minutes from a bare clone: format, layers, coverage, and the crates with few dependencies
    #[arg(long, conflicts_with = "only")]
    quick: bool,
    /// Run only this stage
    #[arg(long, value_name = "STAGE")]
    only: Option<String>,
}

const SETUP: Stage = Stage { name: "setup", about: "plugins and data", run: set_up };
const FMT: Stage =
    Stage { name: "fmt", about: "formatting", run: || succeed(&mut cargo(&["fmt", "--all", "--check"])?) };
const CLIPPY: Stage = Stage { name: "clippy", about: "lints", run: clippy };
const LAYERS: Stage = Stage {
    name: "layers",
    about: "crate dependencies and words",
    run: || layers::run().map(|()| TestCounts::default()),
};
const COVERAGE: Stage = Stage {
    name: "coverage",
    about: "the table of backend methods matches the sources",
    run: || coverage::check().map(|()| TestCounts::default()),
};
const API: Stage = Stage {
    name: "api",
    about: "the list of public items matches the sources",
    run: || api::check().map(|()| TestCounts::default()),
};
const DOCS: Stage = Stage { name: "docs", about: "API documentation", run: docs };
const BOOK: Stage = Stage { name: "book", about: "the links of the pages, and the book", run: book::stage };
const TESTS: Stage = Stage { name: "tests", about: "tiers 0 to 2", run: tests };
const TIER0: Stage = Stage { name: "tier0", about: "lints and tests of the crates with few dependencies", run: tier0 };
/// Not among the stages that run without `--only`: it builds Burn's crates again, with about a hundred more.
const DDP: Stage = Stage { name: "ddp", about: "Burn's own ways to use several devices", run: ddp };
const OUTSIDE: Stage =
    Stage { name: "outside", about: "a crate outside of the workspace, on public items alone", run: examples::outside };
/// Not among them either: it needs a C++ compiler, 1.3 GB and some minutes.
const XLA_RS: Stage = Stage { name: "xla-rs", about: "the engine on the crate xla", run: xla_rs::stage };
const EXAMPLES: Stage = Stage { name: "examples", about: "every example for a few steps", run: examples::run };
/// Not a part of the whole: it builds Burn 0.22 with its client.
const BURN_0_22: Stage = Stage { name: "burn-0.22", about: "Burn 0.22 through a server", run: burn_0_22::websocket };
/// Not a part of the whole either, with the crates of Iroh besides.
const IROH: Stage = Stage { name: "iroh", about: "Burn 0.22 through a server, over Iroh", run: burn_0_22::iroh };

/// What `cargo xtask test` runs. The tests' build lints all crates, so there is no stage for that.
const ALL: [Stage; 9] = [SETUP, FMT, LAYERS, COVERAGE, API, DOCS, BOOK, TESTS, EXAMPLES];
/// What `cargo xtask test --quick` runs.
const QUICK: [Stage; 4] = [FMT, LAYERS, COVERAGE, TIER0];
/// The stages that run when they are named.
const NAMED: [Stage; 7] = [CLIPPY, TIER0, DDP, OUTSIDE, XLA_RS, BURN_0_22, IROH];
/// The crates that the stage `tier0` lints and tests: they and what they depend on are built in minutes.
const TIER0_CRATES: [&str; 7] = [
    "burn-tpu-fusion",
    "burn-tpu-graph",
    "burn-tpu-interpreter",
    "burn-tpu-kernels",
    "burn-tpu-pjrt",
    "burn-tpu-profile",
    "xtask",
];

/// Runs `cargo xtask test`.
pub fn run(args: &Args) -> Result<ExitCode> {
    Ok(match &args.only {
        _ if args.quick => finish(&QUICK, &left_out()?),
        Some(name) => finish(&select(ALL.into_iter().chain(NAMED).collect(), name)?, ""),
        None => finish(&ALL, ""),
    })
}

/// Runs `cargo xtask check`.
pub fn check() -> ExitCode {
    finish(&[FMT, CLIPPY, LAYERS, COVERAGE, API, DOCS, BOOK], "")
}

/// Runs stages, and says before the last line what they left out.
fn finish(stages: &[Stage], left_out: &str) -> ExitCode {
    if stage::run(stages, "cargo xtask test", left_out) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what `--quick` does not run.
fn left_out() -> Result<String> {
    let stages: Vec<_> =
        ALL.iter().map(|stage| stage.name).filter(|name| !QUICK.iter().any(|s| s.name == *name)).collect();
    let metadata: serde_json::Value = serde_json::from_str(&layers::metadata(&layers::root()?, &["--no-deps"])?)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let names = packages.iter().filter_map(|package| package["name"].as_str());
    let crates: Vec<_> = names.filter(|name| !TIER0_CRATES.contains(name)).collect();
    Ok(format!(
        "not run: the stages {}; lints and tests of {}\n`cargo xtask test` runs everything",
        stages.join(", "),
        crates.join(", ")
    ))
}

fn select(stages: Vec<Stage>, name: &str) -> Result<Vec<Stage>> {
    let names: Vec<_> = stages.iter().map(|stage| stage.name).collect();
    let found: Vec<_> = stages.into_iter().filter(|stage| stage.name == name).collect();
    if found.is_empty() {
        bail!("there is no stage `{name}`; the stages are {}", names.join(", "));
    }
    Ok(found)
}

fn set_up() -> Result<TestCounts> {
    setup::ensure(PluginKind::Cpu, None)?;
    setup::ensure(PluginKind::Tpu, None)?;
    data::mnist(None)?;
    MINILM.ensure(None)?;
    Ok(TestCounts::default())
}

fn clippy() -> Result<TestCounts> {
    succeed(&mut cargo(&["clippy", "--all-targets", "--workspace", "--", "-D", "warnings"])?)
}

fn docs() -> Result<TestCounts> {
    succeed(cargo(&["doc", "--workspace", "--no-deps"])?.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Flags of XLA for the tests, which wait for its compiler: half as long with these, since LLVM optimises less. JAX's tests
/// do the same (`jax_disable_most_optimizations`). Examples run without them.
const QUICK_COMPILES: &str = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true";

/// The environment has what libtpu needs before the test processes start. In one of them, the CPU plugin's threads read the
/// environment while another test loads libtpu, and before glibc 2.41 a write at that moment may end the process.
fn tests() -> Result<TestCounts> {
    if !burn_tpu_pjrt::presence::tpu_present() {
        burn_tpu_pjrt::aot_environment();
    }
    let [driver, arguments] = stage::lints()?;
    let variables = [
        ("BURN_TPU_REQUIRE_PLUGIN", "1"),
        ("BURN_TPU_REQUIRE_LIBTPU", "1"),
        ("TF_CPP_MIN_LOG_LEVEL", "1"),
        ("XLA_FLAGS", QUICK_COMPILES),
        // A test builds an example.
        (driver.0, &driver.1),
        (arguments.0, &arguments.1),
    ];
    let mut counts = programs::run(&["--workspace"], &variables)?;
    counts += stage::test(cargo(&["test", "--workspace", "--doc", "--no-fail-fast"])?.envs(variables))?;
    Ok(counts)
}

/// They need a feature that makes Burn's crates other ones, with about a hundred more: these are built for this stage alone.
fn ddp() -> Result<TestCounts> {
    let features = ["--workspace", "--features", "ddp", "--test", "ddp"];
    succeed(cargo(&["clippy"])?.args(features).args(["--", "-D", "warnings"]))?;
    stage::test(cargo(&["test"])?.args(features).env("BURN_TPU_REQUIRE_PLUGIN", "1"))
}

fn tier0() -> Result<TestCounts> {
    let packages: Vec<_> = TIER0_CRATES.iter().flat_map(|name| ["-p", name]).collect();
    programs::run(&packages, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_stage_lists_the_known_ones() {
        let error = select(vec![FMT, DOCS], "x").err().unwrap().to_string();
        assert!(error.contains("`x`") && error.contains("fmt, docs"), "{error}");
        assert_eq!(select(vec![FMT, DOCS], "docs").unwrap().len(), 1);
    }
}
