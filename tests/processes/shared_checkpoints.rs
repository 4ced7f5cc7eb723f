//! Checkpoints of several processes: each writes a share, any number reads them, and whichever is killed, what is
//! listed is whole.
//!
//! Every process has a device of its own, since the CPU plugin belongs to one process; so all of them have all values.
//! `SHARED_CHECKPOINT_KILLS` sets the number of kills.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a child process tells its parent what it found")]

use crate::common;

use burn::backend::Autodiff;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{Adam, AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions, distributed};
use burn_tpu_train::{Checkpoint, Checkpointer, Restored};
use common::child;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

type B = Autodiff<Tpu<f32>>;

/// The width of the model: its weights and their moments are 1.6 MB.
const WIDTH: usize = 360;

/// Plays a process.
#[test]
fn child() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    let folder = PathBuf::from(std::env::var("FOLDER").expect("it is set"));
    match scenario.as_str() {
        "saves" => saves(&folder),
        "restores" => restores(&folder),
        "saves on" => saves_on(&folder),
        "fails" => fails(&folder),
        other => panic!("{other}"),
    }
}

/// A small run: a layer and its optimizer.
struct Run {
    model: Linear<B>,
    optimizer: TpuOptimizer<Adam, Linear<B>, B>,
    device: TpuDevice,
}

impl Run {
    fn new(seed: u64) -> Self {
        let device = TpuDevice::cpu(0);
        let options = TpuOptions::training().disk_cache_dir(std::env::var("PROGRAMS").expect("it is set"));
        options.interpret_from(0).disk_cache_least_compile(Duration::ZERO).install(&device).expect("first use");
        B::seed(&device, seed);
        let model = LinearConfig::new(WIDTH, WIDTH).init(&device);
        Self { model, optimizer: TpuOptimizer::new(AdamConfig::new().init()), device }
    }

    fn step(mut self) -> Self {
        let x = Tensor::<B, 2>::ones([4, WIDTH], &self.device);
        let loss = self.model.forward(x).powi_scalar(2).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &self.model);
        self.model = self.optimizer.step(1e-2, self.model, gradients);
        self
    }

    fn checkpoint(&self, step: u64) -> Checkpoint {
        let checkpoint = Checkpoint::new(step).model("model", &self.model).value("step", &step);
        checkpoint.optimizer("optimizer", &self.optimizer, &self.model)
    }

    fn restore(mut self, saved: &Restored) -> Self {
        self.model = saved.model("model", self.model).expect("it fits");
        self.optimizer = saved.optimizer("optimizer", self.optimizer, &self.model).expect("it fits");
        self
    }

    /// Returns a digest of the weights now and after one more step, in which the moments are.
    fn digest(self) -> u32 {
        let bytes = |run: &Run| run.model.weight.val().into_data().bytes.to_vec();
        let now = bytes(&self);
        crc32fast::hash(&[now, bytes(&self.step())].concat())
    }
}

fn saves(folder: &Path) {
    let mut checkpoints = Checkpointer::open(folder).expect("a folder");
    let run = Run::new(1).step();
    checkpoints.save(run.checkpoint(1)).expect("it is begun");
    checkpoints.wait().expect("it is written");
    println!("digest: {:08x}", run.digest());
}

fn restores(folder: &Path) {
    let mut checkpoints = Checkpointer::open(folder).expect("a folder");
    let saved = checkpoints.restore().expect("intact").expect("there is one");
    let run = Run::new(2).restore(&saved);
    println!("read: {}", saved.bytes_read());
    // As many processes as read it write it again.
    checkpoints.save(run.checkpoint(saved.step() + 1)).expect("it is begun");
    checkpoints.wait().expect("it is written");
    println!("digest: {:08x}", run.digest());
}

/// Saves until it is killed: at each step all weights are the number of the step.
fn saves_on(folder: &Path) {
    let mut checkpoints = Checkpointer::open(folder).expect("a folder").keep_last(2);
    let mut run = Run::new(1);
    let saved = checkpoints.restore().expect("intact");
    let begin = saved.map_or(0, |saved| saved.step());
    for step in begin + 1.. {
        let weight = Tensor::<B, 2>::full([WIDTH, WIDTH], step as f32, &run.device);
        run.model.weight = burn::module::Param::from_tensor(weight);
        // The one before is written then.
        if let Err(error) = checkpoints.save(run.checkpoint(step)) {
            println!("error: {error}");
            return;
        }
        println!("saved: {}", step - 1);
    }
}

/// One process cannot write its part.
fn fails(folder: &Path) {
    let mut folder = folder.to_path_buf();
    if std::env::var_os("ELSEWHERE").is_some() {
        folder.push("elsewhere");
    }
    let mut checkpoints = Checkpointer::open(folder).expect("a folder");
    // Values of its own, where it is to train apart.
    let run = Run::new(std::env::var("SEED").map_or(1, |seed| seed.parse().expect("a number")));
    checkpoints.save(run.checkpoint(1)).expect("it is begun");
    let error = checkpoints.wait().expect_err("one of them cannot");
    println!("error: {}", error.to_string().replace('\n', " "));
    assert!(checkpoints.steps().expect("a folder").is_empty());
}

/// Processes of one run.
pub struct Group {
    pub children: Vec<Child>,
}

/// What the processes of a test share.
pub struct Shared {
    pub folder: tempfile::TempDir,
    programs: tempfile::TempDir,
}

impl Shared {
    pub fn new() -> Self {
        let [folder, programs] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        Self { folder, programs }
    }

    /// Starts processes that play a scenario of a module. `change` changes the command of each.
    pub fn start(
        &self,
        module: &str,
        scenario: &str,
        count: usize,
        timeout_s: u32,
        change: impl Fn(usize, &mut Command),
    ) -> Group {
        let store = format!("redis://{}", distributed::serve("127.0.0.1:0").expect("a free port"));
        let start = |process: usize| {
            let mut command = child::command(module, scenario);
            command.env("FOLDER", self.folder.path()).env("PROGRAMS", self.programs.path());
            command.env("BURN_TPU_PROCESS", format!("{process}/{count}")).env("BURN_TPU_STORE", &store);
            command.env("BURN_TPU_STORE_TIMEOUT_S", timeout_s.to_string());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            change(process, &mut command);
            command.spawn().expect("it starts")
        };
        Group { children: (0..count).map(start).collect() }
    }

    /// Runs processes to their end, and returns what each printed.
    fn run(&self, scenario: &str, count: usize) -> Vec<String> {
        self.start(module_path!(), scenario, count, 300, |_, _| ()).ended()
    }

    fn entry(&self, step: u64) -> PathBuf {
        self.folder.path().join(format!("step-{step:08}"))
    }
}

impl Group {
    fn ended(self) -> Vec<String> {
        let ended = self.children.into_iter().map(|child| {
            let output = child.wait_with_output().expect("it ran");
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            text
        });
        ended.collect()
    }
}

/// Returns what follows a name on its line.
fn value<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name:?} in {text}")).trim()
}

/// Returns the bytes that each process wrote of a checkpoint's tensors.
fn written(entry: &Path, count: usize) -> Vec<u64> {
    let size = |name: String| std::fs::metadata(entry.join(name)).map_or(0, |found| found.len());
    let of = |process: usize| {
        let name = |part: &str| format!("{part}-{process}-of-{count}.safetensors");
        ["model", "optimizer"].map(name).map(size).iter().sum::<u64>()
    };
    (0..count).map(of).collect()
}

#[test]
fn each_of_four_processes_writes_a_quarter_and_two_eight_or_one_read_it_bit_for_bit() {
    if !common::has_cpu_plugin() {
        return;
    }
    let shared = Shared::new();
    let texts = shared.run("saves", 4);
    let digest = value(&texts[0], "digest: ").to_owned();
    let bytes = written(&shared.entry(1), 4);
    eprintln!("bytes of each process: {bytes:?}");
    let quarter = bytes.iter().sum::<u64>() as f64 / 4.0;
    assert!(bytes.iter().all(|&bytes| (bytes as f64 / quarter - 1.0).abs() < 0.05), "{bytes:?}");
    let tensors = (3 * WIDTH * (WIDTH + 1) * 4) as f64;
    assert!((4.0 * quarter / tensors - 1.0).abs() < 0.01, "each tensor is written once: {bytes:?} of {tensors}");
    // What one number of processes wrote, the next one reads.
    for (step, count) in [(1, 2), (2, 8), (3, 1)] {
        let texts = shared.run("restores", count);
        for text in &texts {
            assert_eq!(value(text, "digest: "), digest, "{count} processes");
            // Each has all values here, and so needs all bytes, once.
            assert_eq!(value(text, "read: ").parse::<f64>().expect("a number"), tensors);
        }
        assert_eq!(written(&shared.entry(step + 1), count).len(), count);
    }
    // One process has files without numbers.
    assert!(shared.entry(4).join("model.safetensors").exists());
}

#[test]
fn a_process_that_cannot_write_is_named_in_all_with_its_file() {
    if !common::has_cpu_plugin() {
        return;
    }
    let shared = Shared::new();
    // Process 1 may write no file of more than 4 KiB.
    let limited = |process: usize, command: &mut Command| {
        if process == 1 {
            let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
            let mut limited = Command::new("sh");
            limited.args(["-c", script]).arg(command.get_program()).args(command.get_args());
            limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            limited.env("BURN_TPU_DISK_CACHE", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
            *command = limited;
        }
    };
    for (process, text) in shared.start(module_path!(), "fails", 2, 300, limited).ended().iter().enumerate() {
        let error = value(text, "error: ");
        assert!(error.contains("cannot write") && error.contains("model-1-of-2.safetensors"), "{error}");
        assert!(process == 1 || error.starts_with("process 1 of 2: "), "{error}");
    }
    let elsewhere = |process: usize, command: &mut Command| {
        if process == 1 {
            command.env("ELSEWHERE", "1");
        }
    };
    for text in shared.start(module_path!(), "fails", 2, 300, elsewhere).ended() {
        let error = value(&text, "error: ");
        assert!(error.starts_with("process 1 of 2: `model-1-of-2.safetensors`"), "{error}");
        assert!(error.contains("all processes have to write to one folder"), "{error}");
    }
    let apart = |process: usize, command: &mut Command| {
        command.env("SEED", process.to_string());
    };
    for text in shared.start(module_path!(), "fails", 2, 300, apart).ended() {
        let error = value(&text, "error: ");
        assert!(error.starts_with("process 1 of 2: its `bias` has other values than that of process 0"), "{error}");
    }
}

/// Waits until a process has saved so many checkpoints.
fn saves_so_many(output: &mut BufReader<impl Read>, saves: usize) -> String {
    let mut text = String::new();
    while text.lines().filter(|line| line.starts_with("saved: ")).count() < saves {
        assert_ne!(output.read_line(&mut text).expect("text"), 0, "it ended: {text}");
    }
    text
}

/// Returns the last step that a process said was saved.
fn last_saved(text: &str) -> u64 {
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().rev().find_map(|line| line.strip_prefix("saved: ")?.parse().ok()).unwrap_or(0)
}

/// Checks that every checkpoint that is listed is whole, and is that of its step. Returns the steps.
fn all_are_whole(folder: &Path) -> Vec<u64> {
    let checkpoints = Checkpointer::open(folder).expect("a folder");
    let steps = checkpoints.steps().expect("a folder");
    for &step in &steps {
        let saved = Restored::read(folder.join(format!("step-{step:08}"))).expect("it is whole");
        saved.verify().expect("it is whole");
        assert_eq!((saved.step(), saved.value::<u64>("step").expect("a number")), (step, step));
        let model = LinearConfig::new(WIDTH, WIDTH).init::<Tpu<f32>>(&TpuDevice::ndarray());
        let weight = saved.model("model", model).expect("it fits").weight.val().into_data();
        assert!(weight.iter::<f32>().all(|found| found == step as f32), "step {step}");
    }
    steps
}

#[test]
fn a_process_that_is_killed_while_all_save_leaves_whole_checkpoints() {
    if !common::has_cpu_plugin() {
        return;
    }
    let kills =
        std::env::var("SHARED_CHECKPOINT_KILLS").ok().map_or(3, |kills| kills.parse::<usize>().expect("a number"));
    let shared = Shared::new();
    let (mut newest, mut half, mut named) = (0, 0, 0);
    for kill in 0..kills {
        let random = (kill + 1) * 7919;
        // Started again with another number of processes.
        let count = if kill % 2 == 0 { 4 } else { 3 };
        let mut group = shared.start(module_path!(), "saves on", count, 2, |_, _| ());
        let mut output = BufReader::new(group.children[0].stdout.take().expect("a pipe"));
        let mut text = saves_so_many(&mut output, 2 + random % 3);
        std::thread::sleep(Duration::from_micros((random * 31 % 40_000) as u64));
        // Every third time the others find out for themselves; else they are ended, as a launcher does.
        let alone = kill % 3 == 1;
        let killed = if alone { 1 + random / 7 % (count - 1) } else { random / 7 % count };
        group.children[killed].kill().expect("it runs");
        if !alone {
            group.children.iter_mut().for_each(|child| child.kill().expect("it runs"));
        }
        output.read_to_string(&mut text).expect("text");
        group.children.iter_mut().for_each(|child| {
            child.wait().expect("it ran");
        });
        if alone {
            let error = value(&text, "error: ");
            let file = format!("model-{killed}-of-{count}.safetensors");
            assert!(error.contains(&format!("process {killed}")) && error.contains(&file), "{error}");
            named += 1;
        }
        let names =
            std::fs::read_dir(shared.folder.path()).expect("a folder").map(|entry| entry.expect("one").file_name());
        half += names.filter(|name| name.to_string_lossy().starts_with('.')).count();
        let steps = all_are_whole(shared.folder.path());
        let saved = steps.last().copied().unwrap_or(0);
        assert!(saved >= last_saved(&text) && saved >= newest, "kill {kill}: {saved} of {text}");
        newest = saved;
    }
    eprintln!(
        "{kills} kills: {newest} checkpoints, {half} times amid writing or removing, {named} times named by the others"
    );
    assert!(newest > 0);
}
