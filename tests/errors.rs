//! Errors as a user sees them. Each scenario runs in a separate process, which must survive the error.
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use std::process::Command;

type B = Tpu<f32>;

/// Runs a scenario of [`child`] in a process with these environment variables and returns its output.
fn run(scenario: &str, environment: &[(&str, &str)]) -> String {
    let empty = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "child", "--nocapture"]).env("SCENARIO", scenario);
    // A machine without plugins: no cache, no home, no Python.
    for variable in
        ["VIRTUAL_ENV", "CONDA_PREFIX", "PJRT_NAMES_AND_LIBRARY_PATHS", "TPU_LIBRARY_PATH", "BURN_TPU_PLUGIN"]
    {
        command.env_remove(variable);
    }
    command.env("BURN_TPU_CACHE_DIR", empty.path()).env("HOME", empty.path()).env("PATH", "");
    command.envs(environment.iter().copied());
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {text}");
    text
}

/// The scenarios; does nothing unless the environment names one.
#[test]
fn child() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    let read = |device: TpuDevice| {
        let x = Tensor::<B, 1>::from_data(TensorData::from([1.0f32, 2.0]), &device) + 1.0;
        match x.try_into_data() {
            Ok(data) => println!("VALUE {data}"),
            Err(error) => println!("ERROR {error:?}"),
        }
    };
    match scenario.as_str() {
        "cpu" => read(TpuDevice::cpu(0)),
        "tpu" => read(TpuDevice::tpu(0)),
        "far" => read(TpuDevice::cpu(9)),
        "default" => {
            println!("DEVICE {}", TpuDevice::default());
            read(TpuDevice::default());
        }
        "dump" => {
            let device = TpuDevice::cpu(0);
            TpuOptions::default().dump("/proc/no-such-folder").install(&device).expect("first use");
            read(device);
        }
        other => panic!("no scenario {other}"),
    }
    println!("ALIVE");
}

fn assert_all(text: &str, parts: &[&str]) {
    for part in parts.iter().chain(&["ALIVE"]) {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn a_missing_plugin_is_an_error_that_names_the_fix() {
    let text = run("cpu", &[]);
    assert_all(&text, &["ERROR", "cpu:0 is not available", "cargo xtask setup cpu"]);
}

#[test]
fn without_any_plugin_the_default_device_is_ndarray_and_works() {
    let text = run("default", &[]);
    assert_all(&text, &["DEVICE ndarray:0", "VALUE", "2.0, 3.0"]);
}

#[test]
fn a_missing_tpu_is_an_error_at_once() {
    let text = run("tpu", &[]);
    assert_all(&text, &["ERROR", "tpu:0 is not available", "cargo xtask setup tpu"]);
}

#[test]
fn an_error_names_a_file_that_is_no_plugin() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "not a library").expect("written");
    let path = file.path().to_string_lossy().into_owned();
    let text = run("cpu", &[("BURN_TPU_PLUGIN", &path)]);
    assert_all(&text, &["ERROR", &path]);
}

#[test]
fn a_denied_fallback_names_the_ops_and_the_fix() {
    let Some(plugin) = plugin() else { return };
    let environment =
        [("BURN_TPU_PLUGIN", &*plugin), ("BURN_TPU_HOST_OPS", "stablehlo.add"), ("BURN_TPU_FALLBACK", "deny")];
    let text = run("cpu", &environment);
    assert_all(&text, &["ERROR", "cannot run stablehlo.add", "BURN_TPU_FALLBACK=warn"]);
}

#[test]
fn a_wrong_environment_variable_is_named_with_its_rule() {
    let text = run("cpu", &[("BURN_TPU_CACHE_ENTRIES", "many")]);
    assert_all(&text, &["ERROR", "BURN_TPU_CACHE_ENTRIES", "\"many\"", "is not a number from 1"]);
}

#[test]
fn a_missing_device_is_named_with_the_number_of_devices() {
    let Some(plugin) = plugin() else { return };
    let text = run("far", &[("BURN_TPU_PLUGIN", &plugin)]);
    assert_all(&text, &["ERROR", "cpu:9 is not available", "has 1 devices", "BURN_TPU_CPU_DEVICES"]);
}

#[test]
fn an_unwritable_dump_folder_is_an_error_with_its_path() {
    let Some(plugin) = plugin() else { return };
    let text = run("dump", &[("BURN_TPU_PLUGIN", &plugin)]);
    assert_all(&text, &["ERROR", "the dump of a program /proc/no-such-folder"]);
}

/// Returns the path of the CPU plugin.
fn plugin() -> Option<String> {
    let found = burn_tpu_pjrt::discovery::find(burn_tpu_pjrt::PluginKind::Cpu, None);
    if found.is_err() && std::env::var("BURN_TPU_REQUIRE_PLUGIN").is_ok_and(|v| v == "1") {
        panic!("the CPU plugin is missing: run `cargo xtask setup cpu`");
    }
    found.ok().map(|found| found.path.to_string_lossy().into_owned())
}
