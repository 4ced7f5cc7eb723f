//! Several processes that run one program: real ones, each with CPU devices of its own, since the CPU plugin belongs to one
//! process. What they share is the store: the number of each, their seeds, and the check that their programs are the same.

#![allow(clippy::print_stdout, reason = "a child process tells its parent what it found")]

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice, TpuError, TpuOptions, distributed};
use burn_tpu_pjrt::KeyValueStore;
use common::child;
use std::net::TcpListener;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

type B = Tpu<f32>;

/// Starts the test `child` of this binary as process `index` of `count`.
fn start(scenario: &str, index: usize, count: usize, store: &str, timeout_s: u32) -> Child {
    let mut command = child::command(module_path!(), scenario);
    command.env("BURN_TPU_PROCESS", format!("{index}/{count}")).env("BURN_TPU_STORE", store);
    command.env("BURN_TPU_STORE_TIMEOUT_S", timeout_s.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// Runs these processes of `count` at once, and returns what each printed. All must end well.
fn run_some(scenario: &str, indices: &[usize], count: usize, store: &str, timeout_s: u32) -> Vec<String> {
    let children: Vec<_> = indices.iter().map(|&index| start(scenario, index, count, store, timeout_s)).collect();
    let outputs: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().expect("it ran")).collect();
    let texts = outputs.into_iter().map(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario}: {text}");
        text
    });
    texts.collect()
}

/// Runs all processes, which share a store that is there already.
fn run(scenario: &str, count: usize) -> Vec<String> {
    let store = format!("redis://{}", distributed::serve("127.0.0.1:0").expect("a free port"));
    run_some(scenario, &(0..count).collect::<Vec<_>>(), count, &store, 300)
}

/// Returns an address of this host that nobody serves.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// Returns what follows a name on its line.
fn value<'t>(text: &'t str, name: &str) -> &'t str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name:?} in {text}")).trim()
}

/// Plays one process.
#[test]
fn child() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    let index = distributed::process_index().expect("the variables are valid");
    if scenario == "store" {
        return plugins_exchange(index);
    }
    let device = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu));
    TpuOptions::training().interpret_from(0).disk_cache(false).install(&device).expect("first use");
    match &*scenario {
        "agrees" => agrees(index, &device),
        "differs" => differs(index, &device),
        "waits" => waits(&device),
        "random" => {
            let x = Tensor::<B, 1>::random([4], Distribution::Default, &device);
            println!("drawn: {}", x.into_data());
        }
        other => panic!("{other}"),
    }
}

/// Does what a plugin does through its callbacks to make a communicator: one puts an id, the others wait for it.
fn plugins_exchange(index: usize) {
    let address = std::env::var("BURN_TPU_STORE").expect("it is set");
    if index == 0 {
        distributed::serve(&address).expect("the port is free");
    }
    let store = distributed::Store::connect(&address, Duration::from_secs(300)).expect("it is served");
    let store: &dyn KeyValueStore = &store;
    let key = |process: usize| [b"id\0", &[process as u8][..]].concat();
    store.put(&key(index), &[index as u8, 0, 255]).expect("it is put");
    let count = distributed::process_count().expect("valid");
    for process in 0..count {
        let id = store.get(&key(process), Duration::from_secs(300)).expect("the store answers");
        assert_eq!(id, Some(vec![process as u8, 0, 255]));
    }
    assert_eq!(store.try_get(&key(count)), Ok(None));
    println!("exchanged: {count}");
    // Process 0 serves the store: it ends last.
    store.put(&[b"left", &key(index)[..]].concat(), b"").expect("it is put");
    for process in (0..count).filter(|_| index == 0) {
        store.get(&[b"left", &key(process)[..]].concat(), Duration::from_secs(300)).expect("the store answers");
    }
}

fn agrees(index: usize, device: &TpuDevice) {
    assert_eq!(distributed::local_devices(Platform::Cpu).len(), 2);
    println!("part: {:?} of {}", distributed::part(10), distributed::process_count().expect("valid"));
    // From the third size on, all choose the same bucket.
    for size in 1..6 {
        // The values may differ.
        let x = Tensor::<B, 1>::full([2 * size], index as f32, device);
        let sum: f32 = (x.clone() + x).sum().into_scalar();
        assert_eq!(sum, (4 * size * index) as f32);
    }
    assert_eq!(device.metrics().bucket_runs, 3, "{}", device.metrics());
    // Each process has all devices of its mesh, so its rows are the batch.
    let rows = || TensorData::from([[1i64, 2], [3, 4]]);
    let batch: Tensor<Autodiff<B>, 2> = distributed::batch(rows(), device).expect("the rows split");
    let labels: Tensor<Autodiff<B>, 2, Int> = distributed::batch_int(rows(), device).expect("the rows split");
    assert_eq!((batch + labels.float()).into_data().to_vec::<f32>().expect("f32"), [2.0, 4.0, 6.0, 8.0]);
    assert!(matches!(distributed::batch::<B, 1>(rows(), device), Err(TpuError::Sharding { .. })));
    println!("programs: {}", device.metrics().compiles);
}

/// Two equal programs; a third which process 1 records with another op.
fn differs(index: usize, device: &TpuDevice) {
    for size in [2, 4] {
        Tensor::<B, 1>::ones([size], device).exp().into_data();
    }
    let x = Tensor::<B, 1>::ones([6], device).tanh();
    let y = if index == 1 { x.clone() * x.clone() } else { x.clone() + x.clone() };
    // The second read does not wait again.
    for _ in 0..2 {
        device.mark_step();
        match device.sync() {
            Err(error @ TpuError::Disagreement { .. }) => println!("error: {}", error.to_string().replace('\n', " ")),
            other => panic!("{other:?}"),
        }
    }
    assert!(y.try_into_data().is_err());
}

fn waits(device: &TpuDevice) {
    let error = device.sync().expect_err("a process is missing");
    let TpuError::MissingProcess { process, count, .. } = &error else { panic!("{error:?}") };
    println!("missing: {process} of {count}");
}

#[test]
fn processes_that_record_the_same_programs_run_them() {
    if !common::has_cpu_plugin() {
        return;
    }
    let texts = run("agrees", 2);
    assert_eq!(value(&texts[0], "part: "), "Ok(0..5) of 2");
    assert_eq!(value(&texts[1], "part: "), "Ok(5..10) of 2");
    assert_eq!(value(&texts[0], "programs: "), value(&texts[1], "programs: "));
}

#[test]
fn programs_that_differ_are_an_error_in_every_process_that_names_the_op() {
    if !common::has_cpu_plugin() {
        return;
    }
    for text in run("differs", 3) {
        let error = value(&text, "error: ");
        for part in
            ["process 0 and process 1", "program 2", "add", "multiply", "float_add", "float_mul", "distributed.rs:"]
        {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
        assert_eq!(text.matches("error: ").count(), 2, "{text}");
    }
}

#[test]
fn process_zero_serves_the_store_and_random_numbers_are_those_of_one_seed() {
    if !common::has_cpu_plugin() {
        return;
    }
    let texts = run_some("random", &[1, 0], 2, &free_address(), 300);
    assert_eq!(value(&texts[0], "drawn: "), value(&texts[1], "drawn: "));
}

#[test]
fn plugins_of_several_processes_exchange_values_through_the_store() {
    for text in run_some("store", &[2, 1, 0], 3, &free_address(), 300) {
        assert_eq!(value(&text, "exchanged: "), "3");
    }
}

#[test]
fn a_process_that_does_not_come_is_named() {
    if !common::has_cpu_plugin() {
        return;
    }
    // Process 0, which serves the store, is missing.
    let texts = run_some("waits", &[1], 2, &free_address(), 1);
    assert_eq!(value(&texts[0], "missing: "), "0 of 2");
}
