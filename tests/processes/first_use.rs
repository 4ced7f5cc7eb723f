//! What happens before a device's first use: choosing it, asking it, its options; each in a process in which nothing was
//! loaded.
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use crate::common;

use burn::tensor::{Tensor, TensorData};
use burn_backend::{Backend, DeviceOps};
use burn_tpu::{FallbackPolicy, Metrics, Tpu, TpuDevice, TpuError, TpuOptions};
use common::child::{self, cache_with_plugin, cpu_plugin, libtpu, scenario};
use std::time::Duration;

type B = Tpu<f32>;

fn run(scenario: &str, environment: &[(&str, &str)]) -> String {
    child::run(module_path!(), scenario, environment)
}

/// Runs a scenario in a process that finds the CPU plugin by itself, without being told its path by our own variable.
fn run_with_plugin(scenario: &str) -> Option<String> {
    let plugin = cpu_plugin()?;
    let text = run(scenario, &[("PJRT_NAMES_AND_LIBRARY_PATHS", &format!("cpu:{plugin}"))]);
    assert!(text.contains("PLAYED"), "{text}");
    Some(text)
}

/// The scenarios; without one this test has nothing to do.
#[test]
fn child() {
    let Some(scenario) = scenario() else { return };
    match scenario.as_str() {
        "install" => install_after_choosing(),
        "ask" => ask_without_loading(),
        "count" => count_before_opening(),
        "conflict" => differing_client_options(),
        "allow" => listen_and(|| fall_back(FallbackPolicy::Allow)),
        "warn" => listen_and(|| fall_back(FallbackPolicy::Warn)),
        "unheard" => fall_back(FallbackPolicy::Warn),
        "small" => small_programs_load_nothing(),
        "slice" => compile_for_a_slice(),
        "exit" => exit_during_a_compile(),
        "end" => end_during_a_program(),
        other => panic!("no scenario {other}"),
    }
    println!("PLAYED");
}

fn sum(device: &TpuDevice, x: f32) -> Result<f32, String> {
    let sum = Tensor::<B, 1>::from_data(TensorData::from([x]), device) + 1.0;
    sum.try_into_data().map(|data| data.iter::<f32>().sum()).map_err(|error| format!("{error:?}"))
}

fn count(device: &TpuDevice) -> usize {
    B::device_count(DeviceOps::id(device).type_id)
}

/// Whether a library of this name is in the process.
fn is_loaded(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(name))
}

fn install_after_choosing() {
    let device = TpuDevice::default();
    assert_eq!(device, TpuDevice::cpu(0));
    // The client of the choice has one device; nothing uses it, so it is made anew.
    TpuOptions::development().cpu_devices(3).install(&device).expect("the device was chosen and not used");
    assert_eq!(count(&device), 3);
    assert_eq!(sum(&device, 1.0), Ok(2.0));
    assert!(matches!(TpuOptions::default().install(&device), Err(TpuError::AlreadyRunning { .. })));
}

fn ask_without_loading() {
    for device in [TpuDevice::cpu(0), TpuDevice::tpu(0), TpuDevice::cuda(0)] {
        assert_eq!(burn_tpu::metrics(&device), Metrics::default());
        assert!(burn_tpu::program_keys(&device).is_empty());
        burn_tpu::freeze(&device);
        burn_tpu::unfreeze(&device);
        B::seed(&device, 7);
        B::memory_cleanup(&device);
    }
    assert!(!is_loaded("xla_cpu_pjrt") && !is_loaded("libtpu"), "asking loaded a plugin");
    let device = TpuDevice::cpu(0);
    burn_tpu::freeze(&device);
    TpuOptions::default().install(&device).expect("asking is no use");
    let refused = Tensor::<B, 1>::zeros([4], &device).exp().try_into_data().expect_err("frozen from its start");
    assert!(format!("{refused:?}").contains("frozen"), "{refused:?}");
    burn_tpu::unfreeze(&device);
    let draw = || {
        B::seed(&device, 7);
        Tensor::<B, 1>::random([4], burn::tensor::Distribution::Default, &device).into_data()
    };
    let drawn = Tensor::<B, 1>::random([4], burn::tensor::Distribution::Default, &device).into_data();
    assert_eq!(drawn, draw(), "the seed of before the start");
}

/// What the interpreter runs needs no plugin: neither to choose a device nor to wait for it.
fn small_programs_load_nothing() {
    let device = TpuDevice::default();
    assert_eq!((device, count(&device)), (TpuDevice::cpu(0), 1));
    assert_eq!(sum(&device, 1.0), Ok(2.0));
    B::sync(&device).expect("it ran");
    assert_eq!(burn_tpu::metrics(&device).interpreted + burn_tpu::metrics(&device).ops_at_once, 1);
    assert!(!is_loaded("xla_cpu_pjrt"), "a small program loaded the plugin");
    let x = Tensor::<B, 2>::ones([900, 900], &device);
    let product = x.clone().matmul(x).try_into_data().expect("it is compiled");
    assert_eq!(product.iter::<f32>().next(), Some(900.0));
    assert!(is_loaded("xla_cpu_pjrt"));
    assert_eq!(burn_tpu::metrics(&device).compiles, 1);
}

fn count_before_opening() {
    assert_eq!((count(&TpuDevice::cpu(0)), count(&TpuDevice::ndarray())), (1, 1));
    TpuOptions::default().cpu_devices(4).install(&TpuDevice::cpu(3)).expect("counting is no use");
    assert_eq!(count(&TpuDevice::cpu(0)), 4);
    assert_eq!(sum(&TpuDevice::cpu(3), 1.0), Ok(2.0));
}

fn differing_client_options() {
    let (first, second) = (TpuDevice::cpu(0), TpuDevice::cpu(1));
    TpuOptions::default().cpu_devices(2).install(&first).expect("first use");
    assert_eq!(sum(&first, 1.0), Ok(2.0));
    let error = TpuOptions::default().cpu_devices(4).install(&second).expect_err("the client has two");
    let text = error.to_string();
    assert!(matches!(error, TpuError::ClientOption { option: "cpu_devices", .. }), "{text}");
    for part in ["cpu:1", "cpu_devices is 4", "has 2", "fix: "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let error = TpuOptions::default().plugin("/other/plugin.so").install(&second).expect_err("another plugin");
    assert!(matches!(error, TpuError::ClientOption { option: "plugin", .. }), "{error}");
    TpuOptions::development().cpu_devices(2).install(&second).expect("the same value");
    assert_eq!(sum(&second, 3.0), Ok(4.0));
}

/// Prints warnings as a program with a `tracing` subscriber does.
fn listen_and(play: fn()) {
    tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    play();
}

/// Two programs with an addition each, which has to run on the host.
fn fall_back(policy: FallbackPolicy) {
    let device = TpuDevice::cpu(0);
    let options = TpuOptions::default().fallback(policy).host_ops(["stablehlo.add"]).interpret_from(0);
    options.install(&device).expect("first use");
    assert_eq!(sum(&device, 1.0), Ok(2.0));
    let twice = Tensor::<B, 2>::ones([2, 2], &device) + 1.0;
    assert_eq!(twice.into_data().iter::<f32>().sum::<f32>(), 8.0);
    assert_eq!(burn_tpu::metrics(&device).host_fallbacks, 2);
}

fn compile_for_a_slice() {
    let device = TpuDevice::topology("v5e:1x1").expect("a slice");
    let _sum = Tensor::<B, 1>::ones([4], &device) + 1.0;
    B::sync(&device).expect("it compiles");
}

/// Ends the process while a compile goes on in the background.
fn exit_during_a_compile() {
    let device = TpuDevice::cpu(0);
    let options = TpuOptions::default().disk_cache(false).interpret_from(0).compile_timeout(Duration::from_millis(1));
    options.install(&device).expect("first use");
    let start = Tensor::<B, 2>::random([64, 64], burn::tensor::Distribution::Default, &device);
    let end = (0..1500).fold(start.clone(), |x, _| x.matmul(start.clone()).tanh());
    let error = end.try_into_data().expect_err("it takes longer");
    assert!(format!("{error:?}").contains("is not compiled after"), "{error:?}");
}

/// Ends the process while products run, whose code the plugin's library makes at run time.
fn end_during_a_program() {
    let device = TpuDevice::cpu(0);
    let start = Tensor::<B, 2>::random([512, 512], burn::tensor::Distribution::Default, &device);
    let step = |x: Tensor<B, 2>| {
        let next = (0..20).fold(x, |x, _| x.matmul(start.clone()) * 0.05);
        device.mark_step();
        next
    };
    // Compiled and run once.
    B::sync(&device).expect("it runs");
    let mut x = step(start.clone());
    B::sync(&device).expect("it runs");
    for _ in 0..10 {
        x = step(x);
    }
    println!("PLAYED");
    std::process::exit(0)
}

#[test]
fn options_are_installed_on_the_default_device_after_it_was_chosen() {
    run_with_plugin("install");
}

#[test]
fn metrics_keys_freeze_and_seed_load_nothing_and_are_remembered() {
    run_with_plugin("ask");
}

#[test]
fn a_process_of_small_programs_never_loads_the_plugin() {
    let Some(plugin) = cpu_plugin() else { return };
    let cache = cache_with_plugin(|path| std::os::unix::fs::symlink(plugin, path).expect("a link"));
    let cache = cache.path().to_string_lossy().into_owned();
    let text = run("small", &[("BURN_TPU_CACHE_DIR", &cache), ("BURN_TPU_DISK_CACHE", "0")]);
    assert!(text.contains("PLAYED"), "{text}");
}

#[test]
fn devices_are_counted_before_one_is_opened() {
    run_with_plugin("count");
}

#[test]
fn a_second_device_with_other_client_options_is_refused() {
    run_with_plugin("conflict");
}

#[test]
fn allow_falls_back_silently_and_warn_says_each_op_once() {
    let (Some(allowed), Some(warned)) = (run_with_plugin("allow"), run_with_plugin("warn")) else { return };
    let warnings = |text: &str| text.matches("runs on the host").count();
    assert_eq!((warnings(&allowed), warnings(&warned)), (0, 1), "{allowed}\n{warned}");
    assert!(!warned.contains("burn-tpu: warning"), "the subscriber has said it: {warned}");
}

#[test]
fn a_program_without_a_subscriber_prints_what_costs_minutes_and_a_variable_silences_it() {
    let Some(plugin) = cpu_plugin() else { return };
    let plugin = ("PJRT_NAMES_AND_LIBRARY_PATHS", &*format!("cpu:{plugin}"));
    let (printed, silenced) = (run("unheard", &[plugin]), run("unheard", &[plugin, ("BURN_TPU_WARNINGS", "0")]));
    let lines = |text: &str| text.matches("burn-tpu: warning").count();
    assert_eq!((lines(&printed), lines(&silenced)), (1, 0), "{printed}\n{silenced}");
}

#[test]
fn what_is_compiled_for_a_slice_is_dumped() {
    let Some(libtpu) = libtpu() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().to_string_lossy().into_owned();
    run("slice", &[("TPU_LIBRARY_PATH", &libtpu), ("BURN_TPU_DUMP", &dump)]);
    let dumped = std::fs::read_dir(folder.path()).expect("it is there").flatten();
    assert!(dumped.map(|file| file.path()).any(|path| path.extension().is_some_and(|e| e == "mlir")));
}

/// `run` asserts that the process ends well.
#[test]
fn a_process_may_end_during_a_compile() {
    run_with_plugin("exit");
}

/// What the last steps compute is lost, and nothing else happens.
#[test]
fn a_process_may_end_while_programs_run() {
    (0..5).for_each(|_| drop(run_with_plugin("end")));
}
