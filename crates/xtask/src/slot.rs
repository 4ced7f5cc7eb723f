//! `cargo xtask slot`: tests the packages in `slots/`, which put burn-tpu in the place of one of Burn's own backends. Each is
//! its own program of Burn, with all of Burn's crates that ask something of a backend. They are no part of `cargo xtask test`:
//! each is a build of its own, of a version of Burn that the workspace does not have.

use crate::stage::{self, TestCounts, cargo, succeed};
use crate::{burn_0_22, coverage, data, layers, setup};
use anyhow::{Context, Result, bail, ensure};
use burn_tpu_pjrt::discovery::PluginKind;
use std::path::Path;
use std::process::Command;

/// What there is for one version of Burn.
struct Slot {
    burn: &'static str,
    /// The slot's workspace, and those of tests without its patch.
    workspaces: &'static [&'static str],
    /// An example that runs in the slot.
    example: Option<&'static str>,
}

const SLOTS: [Slot; 2] = [
    Slot { burn: "0.22", workspaces: &["slots/burn-0.22"], example: Some("examples/burn-0.22-native") },
    Slot {
        burn: "0.23",
        workspaces: &["slots/burn-0.23", "slots/burn-0.23/unpatched"],
        example: Some("examples/burn-0.23-native"),
    },
];

/// How the slots are tested.
#[derive(clap::Args)]
pub struct Args {
    /// The version of Burn, 0.22 or 0.23; all of them without one
    burn: Option<String>,
    /// Check and lint them with all of Burn's crates, and run nothing
    #[arg(long)]
    check: bool,
}

/// `cargo xtask slot`
pub fn run(args: &Args) -> Result<()> {
    let is_asked = |slot: &&Slot| args.burn.as_ref().is_none_or(|burn| burn == slot.burn);
    let slots: Vec<&Slot> = SLOTS.iter().filter(is_asked).collect();
    ensure!(!slots.is_empty(), "there is no slot for Burn {}", args.burn.as_deref().unwrap_or_default());
    if args.check {
        return slots.into_iter().try_for_each(Slot::check);
    }
    setup::ensure(PluginKind::Cpu, None)?;
    setup::ensure(PluginKind::Tpu, None)?;
    if !burn_tpu_pjrt::presence::tpu_present() {
        burn_tpu_pjrt::aot_environment();
    }
    let mut counts = TestCounts::default();
    for slot in slots {
        counts += slot.test()?;
    }
    println!("\n{} passed, {} failed", counts.passed, counts.failed);
    if counts.failed == 0 { Ok(()) } else { bail!("a test of a slot failed") }
}

impl Slot {
    fn check(&self) -> Result<()> {
        // Not `--all-targets`: unit tests in sources of 0.21 are compiled there alone.
        let clippy = ["clippy", "--workspace", "--bins", "--tests", "--examples", "--", "-D", "warnings"];
        for folder in self.workspaces.iter().copied().chain(self.example) {
            succeed(&mut inside(folder, &clippy)?)?;
        }
        coverage::check_slot(self.burn)
    }

    /// Runs the tests, and the example for some steps in each type, which counts as a test.
    fn test(&self) -> Result<TestCounts> {
        let mut counts = TestCounts::default();
        for folder in self.workspaces {
            let required = ["BURN_TPU_REQUIRE_PLUGIN", "BURN_TPU_REQUIRE_LIBTPU"].map(|variable| (variable, "1"));
            counts += stage::test(inside(folder, &["test"])?.envs(required))?;
        }
        let Some(folder) = self.example else { return Ok(counts) };
        data::mnist(None)?;
        succeed(&mut inside(folder, &["build", "--release"])?)?;
        for dtype in ["f32", "bf16"] {
            match example(folder, dtype) {
                Ok(()) => counts.passed += 1,
                Err(error) => {
                    println!("{folder}: {dtype}: {error:#}");
                    counts.failed += 1;
                }
            }
        }
        Ok(counts)
    }
}

/// Returns a command of Cargo inside one of the folders.
fn inside(folder: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = cargo(arguments)?;
    command.current_dir(layers::root()?.join(folder)).env_remove("CARGO_TARGET_DIR");
    Ok(command)
}

/// Trains an example, which is built, for some steps: each step is one program, and later steps compile nothing.
fn example(folder: &str, dtype: &str) -> Result<()> {
    let name = Path::new(folder).file_name().context("a folder has a name")?.to_string_lossy().replace('.', "-");
    let program = layers::root()?.join(folder).join("target/release").join(name);
    let after = |steps: &str| -> Result<[u64; 3]> {
        let mut command = Command::new(&program);
        command.args(["--dtype", dtype, "--steps", steps, "--at-least", "0.4"]).env("BURN_TPU_DISK_CACHE", "0");
        command.env("BURN_TPU_FALLBACK", "deny").env("BURN_TPU_PLATFORM", "cpu");
        let output = command.output().with_context(|| format!("cannot start {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metric = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            line.unwrap_or(0)
        };
        Ok([metric("executions "), metric("interpreted "), metric("compiles ")])
    };
    let ([few, interpreted, compiles], [many, interpreted_later, compiles_later]) = (after("100")?, after("200")?);
    ensure!(compiles == compiles_later && compiles > 0, "later steps compiled: {compiles}, then {compiles_later}");
    burn_0_22::steps_are_programs(few + interpreted, many + interpreted_later)
}
