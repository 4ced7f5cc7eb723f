//! `cargo xtask test --only burn-0.22`, and `--only iroh`: a program of Burn 0.22 on a device that `burn-tpu-serve` serves,
//! over loopback, through a WebSocket or Iroh.
//!
//! They train the example of `examples/burn-0.22`, check what the server did, and kill the client and the server in the
//! middle of steps. They are no part of `cargo xtask test`: the client of Burn 0.22 is a build of its own, of 470 crates,
//! and the server with Iroh is 111 crates more than without.

use crate::stage::{self, TestCounts, cargo, succeed};
use crate::{data, layers, setup};
use anyhow::{Context, Result, bail, ensure};
use burn_tpu_pjrt::discovery::PluginKind;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end that has a reason to.
const PATIENCE: Duration = Duration::from_secs(60);
/// Programs of a run that are no training steps: initial weights, the test images.
const OTHER_PROGRAMS: u64 = 40;

/// What is checked, and how.
type Scenario = (&'static str, fn(&Programs) -> Result<()>);

/// Runs the scenarios through a WebSocket. Each counts as a test.
pub fn websocket() -> Result<TestCounts> {
    scenarios("websocket", &["build", "-p", "burn-tpu-serve"])
}

/// Runs what Iroh alone has, with lints, and the scenarios through it.
pub fn iroh() -> Result<TestCounts> {
    setup::ensure(PluginKind::Cpu, None)?;
    let with_iroh = ["-p", "burn-tpu-serve", "--features", "iroh"];
    succeed(cargo(&["clippy", "--all-targets"])?.args(with_iroh).args(["--", "-D", "warnings"]))?;
    let mut tests = cargo(&["test", "--test", "iroh"])?;
    let mut counts = stage::test(tests.args(with_iroh).env("BURN_TPU_REQUIRE_PLUGIN", "1"))?;
    counts += scenarios("iroh", &[&["build"][..], &with_iroh].concat())?;
    Ok(counts)
}

fn scenarios(transport: &'static str, build_server: &[&str]) -> Result<TestCounts> {
    setup::ensure(PluginKind::Cpu, None)?;
    data::mnist(None)?;
    succeed(&mut cargo(build_server)?)?;
    let programs = Programs::build(transport)?;
    let scenarios: [Scenario; 3] = [
        ("steps are one program each, and the same ones", steps),
        ("a client that is killed frees its tensors", killed_client),
        ("a client whose server is killed gets an error", killed_server),
    ];
    let mut counts = TestCounts::default();
    for (name, scenario) in scenarios {
        match scenario(&programs) {
            Ok(()) => counts.passed += 1,
            Err(error) => {
                println!("{name}: {error:#}");
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// The two programs, and what is between them.
struct Programs {
    server: PathBuf,
    client: PathBuf,
    transport: &'static str,
}

impl Programs {
    fn build(transport: &'static str) -> Result<Self> {
        let root = layers::root()?;
        let example = root.join("examples/burn-0.22");
        let mut build = cargo(&["build", "--release", "--locked", "--bin", "burn-0-22-mnist"])?;
        succeed(build.current_dir(&example).env_remove("CARGO_TARGET_DIR"))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let client = example.join("target/release/burn-0-22-mnist");
        Ok(Self { server: target.join("debug/burn-tpu-serve"), client, transport })
    }

    fn serve(&self) -> Result<Server> {
        let mut command = Command::new(&self.server);
        command
            .args(["--platform", "cpu", "--port", "0", "--transport", self.transport])
            .env("BURN_TPU_FALLBACK", "deny")
            .env("BURN_TPU_DISK_CACHE", "0");
        let mut child =
            command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("cannot start the server")?;
        let mut output = BufReader::new(child.stdout.take().context("the server has no output")?);
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read what the server prints")?;
        let address = line.split_once(" on ").and_then(|(_, rest)| rest.split_once(", "));
        let (address, _) = address.with_context(|| format!("the server does not serve: {line}"))?;
        Ok(Server { child, output, address: address.to_owned() })
    }

    fn client(&self, server: &Server, options: &[&str]) -> Command {
        let mut command = Command::new(&self.client);
        command.arg(&server.address).args(options).stdin(Stdio::null());
        command
    }
}

/// A running server. It is killed when it is dropped.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    /// What the client is given.
    address: String,
}

/// What a server says at its end.
#[derive(Debug)]
struct Report {
    programs: u64,
    compiles: u64,
    host_fallbacks: u64,
    bytes_left: u64,
}

impl Server {
    /// Ends the server as a supervisor does, and returns its report.
    fn stop(mut self) -> Result<Report> {
        signal(&self.child, "TERM")?;
        wait(&mut self.child)?;
        let mut output = String::new();
        self.output.read_to_string(&mut output).context("cannot read the server's report")?;
        let line = output.lines().find(|line| line.starts_with("served: ")).context("the server has no report")?;
        println!("{line}");
        let field = |name: &str| {
            let value =
                line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
            value.with_context(|| format!("there is no {name} in {line:?}"))
        };
        Ok(Report {
            programs: field("programs")?,
            compiles: field("compiles")?,
            host_fallbacks: field("host_fallbacks")?,
            bytes_left: field("bytes_left")?,
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) -> Result<()> {
    succeed(Command::new("kill").args(["-s", name, &child.id().to_string()])).map(drop)
}

/// Waits for the end of a process that has a reason to end. Returns whether it succeeded.
fn wait(child: &mut Child) -> Result<bool> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().context("cannot wait for a process")? {
            return Ok(status.success());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().context("cannot kill a process that hangs")?;
    bail!("a process did not end within {} s", PATIENCE.as_secs())
}

/// Twice as many steps take twice as many programs, and no compile more.
fn steps(programs: &Programs) -> Result<()> {
    let after = |steps: &str, options: &[&str]| {
        let server = programs.serve()?;
        let all = [&["--steps", steps, "--at-least", "0.4"], options].concat();
        succeed(&mut programs.client(&server, &all))?;
        server.stop()
    };
    for options in [&["--step-end", "read"][..], &["--step-end", "mark"]] {
        let [few, many] = [after("100", options)?, after("200", options)?];
        ensure!(few.compiles == many.compiles, "later steps compiled: {few:?}, {many:?}");
        steps_are_programs(few.programs, many.programs)?;
        ensure!(many.host_fallbacks == 0 && many.bytes_left == 0, "{many:?}");
    }
    Ok(())
}

/// Fails unless a training step was one program or two, by the programs of 100 and of 200 steps.
pub fn steps_are_programs(few: u64, many: u64) -> Result<()> {
    let more = many.saturating_sub(few);
    ensure!((100..=200).contains(&more), "{more} programs in 100 steps");
    ensure!(few <= 200 + OTHER_PROGRAMS, "{few} programs in 100 steps from the start");
    Ok(())
}

fn killed_client(programs: &Programs) -> Result<()> {
    let server = programs.serve()?;
    drop(Training::start(programs, &server)?);
    // The server lives on, and has nothing left of the first client at its end.
    succeed(&mut programs.client(&server, &["--steps", "100", "--at-least", "0.4"]))?;
    let report = server.stop()?;
    ensure!(report.bytes_left == 0, "{report:?}");
    Ok(())
}

fn killed_server(programs: &Programs) -> Result<()> {
    let mut server = programs.serve()?;
    let mut client = Training::start(programs, &server)?;
    server.child.kill().context("cannot kill the server")?;
    ensure!(!wait(&mut client.child)?, "a client trained to its end without a server");
    let mut error = String::new();
    client.error.read_to_string(&mut error).context("cannot read the client's error")?;
    println!("{}", error.trim_end());
    ensure!(error.contains("Error: "), "the client ended without an error of its own");
    Ok(())
}

/// A client in the middle of a long training. It is killed when it is dropped.
struct Training {
    child: Child,
    /// Kept open: the client prints on.
    _output: BufReader<ChildStdout>,
    error: ChildStderr,
}

impl Training {
    fn start(programs: &Programs, server: &Server) -> Result<Self> {
        let mut client = programs.client(server, &["--epochs", "100"]);
        let mut child =
            client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start the client")?;
        let mut output = BufReader::new(child.stdout.take().context("the client has no output")?);
        let error = child.stderr.take().context("the client has no errors")?;
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read what the client prints")?;
        ensure!(line.starts_with("step 100"), "the client does not train: {line}");
        Ok(Self { child, _output: output, error })
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
