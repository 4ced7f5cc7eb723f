//! Errors as a user sees them. Each scenario runs in a separate process, which must survive the error.
#![allow(clippy::print_stdout, reason = "a child process reports to its parent")]

use crate::common;

use burn::tensor::{Tensor, TensorData};
use burn_tpu::fit::Fit;
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use common::child::{self, cache_with_plugin, cpu_plugin, libtpu, scenario};

type B = Tpu<f32>;

fn run(scenario: &str, environment: &[(&str, &str)]) -> String {
    child::run(module_path!(), scenario, environment)
}

/// The scenarios; without one this test has nothing to do.
#[test]
fn child() {
    let Some(scenario) = scenario() else { return };
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
        "broken" => {
            read(TpuDevice::cpu(0));
            let x = Tensor::<B, 2>::ones([900, 900], &TpuDevice::cpu(0));
            println!("LARGE {:?}", x.clone().matmul(x).try_into_data().map(|data| data.shape));
            println!("SYNC {:?}", TpuDevice::cpu(0).sync());
        }
        "default" => {
            println!("DEVICE {}", TpuDevice::default());
            read(TpuDevice::default());
        }
        "dump" => {
            let device = TpuDevice::cpu(0);
            TpuOptions::default().dump("/proc/no-such-folder").install(&device).expect("first use");
            read(device);
        }
        "fit" => {
            let fit = Fit::new().expect("options");
            let step = |_, device: &TpuDevice| Some(Tensor::<B, 1>::ones([4], device) + 1.0);
            println!("{}", fit.run(|_| None, step).expect("a step"));
        }
        other => panic!("no scenario {other}"),
    }
    println!("ALIVE");
}

/// Compiles every program, however small.
const COMPILED: (&str, &str) = ("BURN_TPU_INTERPRET_FROM", "0");

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

/// Small programs do not need the plugin. What needs it says what is wrong, each time; nothing else runs it.
#[test]
fn a_broken_plugin_that_nobody_named_is_an_error_of_what_needs_it() {
    let cache = cache_with_plugin(|path| std::fs::write(path, "not a library").expect("written"));
    let cache = cache.path().to_string_lossy().into_owned();
    let text = run("broken", &[("BURN_TPU_CACHE_DIR", &cache)]);
    assert_all(
        &text,
        &["VALUE", "2.0, 3.0", "LARGE Err", "SYNC Err", "cpu:0 is not available", "cargo xtask setup cpu", &cache],
    );
    let text = run("default", &[("BURN_TPU_CACHE_DIR", &cache), COMPILED]);
    assert_all(&text, &["DEVICE cpu:0", "ERROR", "cpu:0 is not available", "cargo xtask setup cpu", &cache]);
}

/// What was asked for by name is never replaced by something else.
#[test]
fn a_named_file_that_is_no_plugin_is_never_replaced_by_ndarray() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "not a library").expect("written");
    for path in [file.path().to_string_lossy().into_owned(), "/no/such/plugin.so".into()] {
        let text = run("default", &[("BURN_TPU_PLUGIN", &path)]);
        assert_all(&text, &["ERROR", "is not available", &path]);
        assert!(!text.contains("DEVICE ndarray") && !text.contains("VALUE"), "{text}");
    }
}

/// libtpu is there and a TPU is not: to fetch libtpu would change nothing.
#[test]
fn a_machine_with_libtpu_and_no_tpu_is_told_so_and_what_works() {
    let Some(libtpu) = libtpu() else { return };
    let text = run("tpu", &[("TPU_LIBRARY_PATH", &libtpu)]);
    let parts = ["ERROR", "this machine has no TPU", "BURN_TPU_PLATFORM=cpu", "TpuDevice::topology", "burn_tpu::fit"];
    assert_all(&text, &parts);
}

#[test]
fn fit_without_libtpu_says_so_once() {
    let text = run("fit", &[("BURN_TPU_WARNINGS", "0")]);
    assert_all(&text, &["v4:1x1x1", "v5e:1x1", "cargo xtask setup tpu"]);
    assert_eq!(text.matches("looked at").count(), 1, "{text}");
    assert_eq!(text.matches("fix: ").count(), 1, "{text}");
}

#[test]
fn fit_dumps_what_it_compiles() {
    let folder = tempfile::tempdir().expect("a folder");
    run("fit", &[("BURN_TPU_DUMP", &folder.path().to_string_lossy())]);
    let dumped = std::fs::read_dir(folder.path()).expect("it is there").flatten();
    let texts: Vec<String> = dumped.map(|file| std::fs::read_to_string(file.path()).expect("a text")).collect();
    assert!(texts.len() == 1 && texts[0].contains("stablehlo"), "{texts:?}");
}

#[test]
fn a_denied_fallback_names_the_ops_and_the_fix() {
    let Some(plugin) = cpu_plugin() else { return };
    let environment = [
        ("BURN_TPU_PLUGIN", &*plugin),
        ("BURN_TPU_HOST_OPS", "stablehlo.add"),
        ("BURN_TPU_FALLBACK", "deny"),
        COMPILED,
    ];
    let text = run("cpu", &environment);
    assert_all(&text, &["ERROR", "cannot run stablehlo.add", "BURN_TPU_FALLBACK=warn"]);
}

#[test]
fn a_wrong_environment_variable_is_named_with_its_rule() {
    let text = run("cpu", &[("BURN_TPU_CACHE_ENTRIES", "many")]);
    assert_all(&text, &["ERROR", "BURN_TPU_CACHE_ENTRIES", "\"many\"", "is not a number from 1"]);
}

#[test]
fn a_device_that_the_plugin_lacks_is_named_with_their_number() {
    let Some(plugin) = cpu_plugin() else { return };
    let text = run("far", &[("BURN_TPU_PLUGIN", &plugin)]);
    assert_all(&text, &["ERROR", "cpu:9 is not available", "has 1 devices", "BURN_TPU_CPU_DEVICES"]);
}

#[test]
fn an_unwritable_dump_folder_is_an_error_with_its_path() {
    let Some(plugin) = cpu_plugin() else { return };
    let text = run("dump", &[("BURN_TPU_PLUGIN", &plugin), COMPILED]);
    assert_all(&text, &["ERROR", "the dump of a program /proc/no-such-folder"]);
}
