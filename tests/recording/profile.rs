//! Profiles of training steps on the CPU plugin: what the files contain, and that profiling changes nothing.
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use crate::common;

use burn::backend::Autodiff;
use burn::optim::AdamW;
use burn::tensor::Tensor;
use burn_tpu::{ProfileReport, Tpu, TpuDevice, TpuError, TpuOptimizer, TpuOptions};
use burn_tpu_pjrt::{
    CompileOptions, ElementType, HloModule, Plugin, Profiler, Program, TensorSpec, TopologyDescription,
};
use burn_tpu_profile::xspace::{XPlane, XSpace};
use burn_tpu_profile::{PlaneBuilder, ProfileFolder, Stat};
use burn_tpu_runtime::testing::is_profiled;
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use common::{alone, child, counted};
use std::path::Path;

type B = Autodiff<Tpu<f32>>;

/// A small GPT that is trained on synthetic batches.
struct Training {
    config: GptConfig,
    model: Option<Gpt<B>>,
    optimizer: TpuOptimizer<AdamW, Gpt<B>, B>,
    device: TpuDevice,
    step: usize,
}

impl Training {
    fn new(device: TpuDevice) -> Self {
        let config = GptConfig::new().with_layers(2).with_width(32).with_heads(2).with_feed_forward(64);
        Self::of(config.with_sequence(16).with_batch(4), device)
    }

    fn of(config: GptConfig, device: TpuDevice) -> Self {
        let (model, optimizer) = (Some(config.init::<B>(&device)), TpuOptimizer::new(adamw()));
        Self { config, model, optimizer, device, step: 0 }
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let batch = Tokens::synthetic(&self.config, self.step, &self.device);
            let Some(model) = self.model.take() else { return };
            let (model, _) = train_step(model, &mut self.optimizer, 1e-3, batch);
            self.model = Some(model);
            self.step += 1;
        }
    }

    /// Returns a training whose programs are in memory.
    fn warm(device: TpuDevice) -> Self {
        Self::new(device).warmed()
    }

    fn warmed(mut self) -> Self {
        self.steps(4);
        self.device.sync().expect("the steps run");
        self
    }
}

fn plane<'s>(space: &'s XSpace, prefix: &str) -> &'s XPlane {
    space.planes.iter().find(|plane| plane.name.starts_with(prefix)).unwrap_or_else(|| panic!("no plane {prefix}"))
}

/// Returns the values of a statistic of a plane's events, once each.
fn texts(plane: &XPlane, name: &str) -> Vec<String> {
    use burn_tpu_profile::xspace::StatValue;
    let id = plane.stat_metadata.values().find(|stat| stat.name == name).map(|stat| stat.id);
    let events = plane.lines.iter().flat_map(|line| &line.events);
    let stats = events.flat_map(|event| &event.stats).filter(|stat| Some(stat.metadata_id) == id);
    let mut texts: Vec<String> = stats
        .filter_map(|stat| match &stat.value {
            Some(StatValue::Text(text)) => Some(text.clone()),
            _ => None,
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

#[test]
fn three_steps_of_a_gpt_have_rows_with_burn_ops_lines_and_modules() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let mut training = Training::warm(device);
    let keys = device.program_keys();
    let folder = tempfile::tempdir().expect("a folder");
    let (((), profile), counted) =
        counted(&device, || burn_tpu::profile(&device, folder.path(), || training.steps(3)).expect("a profile"));
    assert_eq!((counted.compiles, device.program_keys()), (0, keys), "profiling changes no program");

    let report = ProfileReport::read(folder.path()).expect("it is read");
    assert_eq!(report, profile.report);
    assert_eq!(report.window, report.device + report.host + report.profiler + report.idle);
    assert!(report.named_share() >= 0.9, "{report}");
    let step = report.ops.iter().find(|op| op.count == 3).expect("the program of the step");
    assert!(step.burn_ops.contains("float_matmul "), "{}", step.burn_ops);
    assert!(step.source.contains("src/models/gpt.rs:"), "{}", step.source);
    let rows: u64 = report.ops.iter().map(|op| op.count).sum();
    assert_eq!(rows, counted.executions);
    for phase in ["record", "cut", "dispatch", "transfer", "wait"] {
        assert!(report.phases.iter().any(|found| found.name == phase), "no {phase} in {report}");
    }

    let (_, space) = burn_tpu_profile::read(&profile.files.xspace).expect("an XSpace");
    let host = plane(&space, burn_tpu_profile::HOST_PLANE);
    let modules = texts(host, burn_tpu_profile::names::MODULE);
    // Types, or files where the binary's debug information has no types.
    let is_linear =
        |path: &&String| path.to_lowercase().starts_with("gpt/") && path.to_lowercase().ends_with("/linear");
    assert!(modules.iter().any(|path| is_linear(&path)), "{modules:?}");
    assert!(plane(&space, burn_tpu_profile::CUSTOM_DEVICE_PREFIX).name.ends_with(&device.to_string()));
    assert!(profile.files.trace.is_file());
}

#[test]
fn compiles_are_in_the_profile() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let run = || Tensor::<Tpu<f32>, 2>::ones([3, 5], &device).exp().tanh().sin().sum().into_scalar();
    let (sum, profile) = burn_tpu::profile(&device, folder.path(), run).expect("a profile");
    assert!(sum > 0.0);
    for phase in ["rewrite", "lower", "compile"] {
        assert!(profile.report.phases.iter().any(|found| found.name == phase), "no {phase} in {}", profile.report);
    }
}

/// A program in pieces has a row for each: the way to rows that are smaller than a step, where a plugin has no profiler.
#[test]
fn pieces_are_rows_of_their_own() {
    let Some(device) = common::cpu_with("pieces", common::development().program_cap(40)) else { return };
    let _alone = alone();
    let mut training = Training::warm(device);
    let folder = tempfile::tempdir().expect("a folder");
    let (((), profile), counted) =
        counted(&device, || burn_tpu::profile(&device, folder.path(), || training.steps(2)).expect("a profile"));
    let rows: u64 = profile.report.ops.iter().map(|op| op.count).sum();
    assert!(rows > 5 * counted.executions, "{rows} rows of {} programs", counted.executions);
    assert!(profile.report.named_share() >= 0.9, "{}", profile.report);
}

#[test]
fn there_is_one_profile_at_a_time_and_a_panic_ends_it() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let inner = || burn_tpu::profile(&device, folder.path(), || ()).map(|_| ());
    let (refused, _) = burn_tpu::profile(&device, folder.path(), inner).expect("the outer one");
    assert!(matches!(refused, Err(TpuError::ProfileRunning)), "{refused:?}");
    let panics = || burn_tpu::profile(&device, folder.path(), || panic!("on purpose")).map(|((), _)| ());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(!is_profiled(), "without a profile, nothing is collected");
    let (collects, _) = burn_tpu::profile(&device, folder.path(), is_profiled).expect("the next one");
    assert!(collects);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let error = burn_tpu::profile(&device, file.path(), || ()).map(|((), _)| ()).expect_err("it is a file");
    assert!(matches!(error, TpuError::Profile { .. }), "{error}");
    assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
}

/// The steps that the variable names, of a program that knows nothing of profiles.
#[test]
fn the_variable_profiles_its_steps() {
    let Some(plugin) = child::cpu_plugin() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let traces = folder.path().join("traces");
    let value = format!("{},steps=2..4", traces.display());
    child::run(module_path!(), "five steps", &[("BURN_TPU_PLUGIN", &plugin), ("BURN_TPU_PROFILE", &value)]);
    let report = ProfileReport::read(&traces).expect("a profile");
    assert!(report.ops.iter().any(|op| op.count == 2 && op.burn_ops.contains("float_matmul")), "{report}");
    let runs = std::fs::read_dir(traces.join("plugins/profile")).expect("a folder of runs");
    assert_eq!(runs.count(), 1);
}

#[test]
fn a_variable_that_names_no_steps_is_an_error() {
    let Some(plugin) = child::cpu_plugin() else { return };
    let text = child::run(
        module_path!(),
        "wrong variable",
        &[("BURN_TPU_PLUGIN", &plugin), ("BURN_TPU_PROFILE", "here,steps=5")],
    );
    assert!(text.contains("FIRST..END"), "{text}");
}

/// libtpu's profiler collects without a TPU: the programs that were compiled. Their instructions have the names of Burn ops.
#[test]
fn instructions_of_a_plugins_programs_have_burn_ops() {
    let Some(plugin) = child::libtpu() else { return };
    child::run(module_path!(), "libtpu", &[("BURN_TPU_PLUGIN", &plugin)]);
}

fn profile_of_libtpu() {
    const TEXT: &str = "func.func @main(%x: tensor<128x128xf32>) -> tensor<128x128xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
        : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32> loc(\"float_matmul\")
      return %0 : tensor<128x128xf32>
    }";
    let libtpu = Plugin::load(std::env::var("BURN_TPU_PLUGIN").expect("set by the test")).expect("libtpu");
    let options = [5 << 3, 1, 7 << 3, 1];
    let mut profiler = Profiler::new(libtpu, &options).expect("no error").expect("libtpu has a profiler");
    profiler.start().expect("it starts");
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).expect("a slice");
    let program = Program::stablehlo(TEXT, [TensorSpec::new(ElementType::F32, [128, 128]).expect("a type")]);
    let compiled = topology.compile(&program.expect("a program"), &CompileOptions::default()).expect("it compiles");
    profiler.stop().expect("it stops");
    let collected = profiler.collect().expect("a profile");

    let hlo = HloModule::parse(&compiled.optimized_program().expect("a program").code).expect("HLO");
    let matmul = hlo.instructions.iter().find(|one| one.op_name == "float_matmul").expect("it keeps its location");
    let folder = tempfile::tempdir().expect("a folder");
    let run = ProfileFolder::new_run(folder.path());
    let (_, space) = run.write("host", &collected, &XSpace::default()).expect("an XSpace");
    let id = *plane(&space, "/host:metadata").event_metadata.keys().next().expect("the program");
    // A row as a TPU's profile has it, of the instruction.
    let mut device = PlaneBuilder::new("/device:TPU:0");
    let line = device.line(1, "XLA Ops");
    device.event(line, &matmul.name, 0..1000, [("program_id", Stat::Number(id))]);
    let space = XSpace { planes: [space.planes, vec![device.finish()]].concat(), ..space };
    assert_eq!(ProfileReport::of(&space).ops[0].burn_ops, "float_matmul");
}

#[test]
fn child() {
    match child::scenario().as_deref() {
        None => {}
        Some("five steps") => {
            let device = TpuDevice::cpu(0);
            let mut training = Training::new(device);
            training.steps(5);
            device.sync().expect("the steps run");
        }
        Some("libtpu") => profile_of_libtpu(),
        Some("wrong variable") => {
            let error = TpuOptions::training().install(&TpuDevice::cpu(0)).expect_err("the value is wrong");
            println!("{error}");
        }
        Some(other) => panic!("no scenario {other}"),
    }
}

/// Runs three steps of a larger GPT and writes their profile where `BURN_TPU_TEST_PROFILE_DIR` says, for
/// `benches/xprof/check.py`.
#[test]
fn a_profile_for_xprof() {
    let (Ok(folder), Some(device)) = (std::env::var("BURN_TPU_TEST_PROFILE_DIR"), common::cpu()) else { return };
    let _alone = alone();
    let mut training = Training::of(GptConfig::new().with_batch(4), device).warmed();
    let ((), profile) = burn_tpu::profile(&device, Path::new(&folder), || training.steps(3)).expect("a profile");
    assert!(profile.report.named_share() >= 0.9, "{}", profile.report);
}
