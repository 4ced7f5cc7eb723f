//! The watchdog: what it says of a program that runs, of one that is compiled, and of a process that does not come.

#![allow(clippy::print_stdout, reason = "a child process tells its parent what it found")]

use crate::common;

use burn::tensor::{Distribution, Tensor};
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice, TpuOptions, WaitFor, distributed};
use burn_tpu_train::{Hang, Watchdog, WatchdogOptions};
use common::{alone, child, cpu, has_cpu_plugin};
use std::process::Output;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

type B = Tpu<f32>;

/// So short that every step is reported, again and again.
const SHORT: Duration = Duration::from_millis(2);

/// The exit code of a child process whose watchdog said what is looked for.
const FOUND: i32 = 3;

/// Returns a watchdog that passes on all that it says.
fn watch(device: &TpuDevice) -> (Watchdog, Receiver<Hang>) {
    let (send, hangs) = channel();
    let options = WatchdogOptions::new(device).limit(SHORT).on_hang(move |hang| send.send(hang.clone()).unwrap_or(()));
    (options.start().expect("a thread"), hangs)
}

/// Takes steps until the watchdog says something that is looked for.
fn until(device: &TpuDevice, is_found: impl Fn(&Hang) -> bool, mut step: impl FnMut(usize)) -> Hang {
    let (watchdog, hangs) = watch(device);
    for number in 1.. {
        watchdog.step(number as u64);
        step(number);
        if let Some(found) = hangs.try_iter().find(&is_found) {
            assert!(found.time >= SHORT && found.step <= number as u64, "{found}");
            return found;
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn a_program_that_takes_long_is_named_with_what_reads_it() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let x = Tensor::<B, 2>::random([256, 256], Distribution::Default, &device);
    let waits_for_read = |hang: &Hang| hang.activity.waits.iter().any(|wait| wait.what == WaitFor::Read);
    let is_found = |hang: &Hang| waits_for_read(hang) && !hang.activity.programs.is_empty();
    let hang = until(&device, is_found, |_| {
        let product = (0..100).fold(x.clone(), |product, _| product.matmul(x.clone()) / 256.0);
        product.into_data();
    });
    let text = hang.to_string();
    assert!(text.contains(&format!("is its limit\n{device}: ")), "{text}");
    for part in ["in flight", "oldest: program ", "float_matmul", "s ago", "for a value that is read"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(device.activity().waits.is_empty(), "{}", device.activity());
}

#[test]
fn a_program_that_is_compiled_is_named() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let compiles = |hang: &Hang| hang.activity.waits.iter().any(|wait| matches!(wait.what, WaitFor::Compile { .. }));
    // Each step is another program.
    let hang = until(&device, compiles, |step| {
        let x = Tensor::<B, 2>::ones([8, 8], &device);
        (0..50 + step).fold(x.clone(), |y, _| y.matmul(x.clone()).tanh()).into_data();
    });
    assert!(hang.to_string().contains("for the compiler: program "), "{hang}");
}

#[test]
fn a_thread_that_waits_for_nothing_is_not_the_devices_fault() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    device.sync().expect("it runs");
    let hang = until(&device, |_| true, |_| std::thread::sleep(SHORT));
    let text = hang.to_string();
    assert!(text.contains("no program in flight") && text.contains("busy, such as with loading data"), "{text}");
}

#[test]
fn a_pause_and_the_end_are_no_steps() {
    let device = TpuDevice::ndarray();
    let (watchdog, hangs) = watch(&device);
    watchdog.step(1);
    hangs.recv().expect("a step is reported");
    watchdog.pause();
    let of_pause = hangs.try_iter().all(|hang| hang.step == 1);
    assert!(of_pause);
    watchdog.step(2);
    assert!(hangs.iter().any(|hang| hang.step == 2));
    drop(watchdog);
    // The thread ends, and with it the channel.
    assert!(hangs.iter().all(|hang| hang.step == 2));
}

/// Plays a process that hangs.
#[test]
fn child() {
    match std::env::var("SCENARIO").as_deref() {
        Ok("alone") => hangs_alone(),
        Ok("waits") => waits_for_another(),
        _ => {}
    }
}

fn hangs_alone() -> ! {
    let options = WatchdogOptions::new(&TpuDevice::ndarray()).limit(SHORT).ends_process(true);
    let watchdog = options.on_hang(|hang| println!("\nhang: {hang}")).start().expect("a thread");
    watchdog.step(12);
    loop {
        std::thread::park();
    }
}

/// Ends once the watchdog names the process that is waited for.
fn waits_for_another() {
    let device = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu));
    let is_found = |hang: &Hang| hang.activity.waits.iter().any(|wait| matches!(wait.what, WaitFor::Process { .. }));
    let said = move |hang: &Hang| {
        if is_found(hang) {
            println!("\nhang: {}", hang.to_string().replace('\n', " | "));
            std::process::exit(FOUND);
        }
    };
    let watchdog = WatchdogOptions::new(&device).limit(SHORT).on_hang(said).start().expect("a thread");
    watchdog.step(12);
    TpuOptions::training().interpret_from(0).disk_cache(false).install(&device).expect("first use");
    Tensor::<B, 1>::ones([2], &device).exp().into_data();
}

fn run(scenario: &str, process: &str, store: &str) -> Output {
    let mut command = child::command(module_path!(), scenario);
    if !process.is_empty() {
        command.env("BURN_TPU_PROCESS", process).env("BURN_TPU_STORE", store);
    }
    command.output().expect("it runs")
}

#[test]
fn a_process_that_hangs_is_ended_with_a_code_of_its_own() {
    let output = run("alone", "", "");
    assert_eq!(output.status.code(), Some(i32::from(Watchdog::EXIT_CODE)), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("hang: step 12 has taken "), "{text}");
}

/// Process 1 never comes: process 0 waits for it before the first launch. Process 0 never comes: process 1 has no seed.
#[test]
fn a_process_that_others_wait_for_is_named() {
    if !has_cpu_plugin() {
        return;
    }
    for (present, missing) in [(0, 1), (1, 0)] {
        let store = format!("redis://{}", distributed::serve("127.0.0.1:0").expect("a free port"));
        let output = run("waits", &format!("{present}/2"), &store);
        assert_eq!(output.status.code(), Some(FOUND), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        for part in ["mesh(data=2 on cpu): ", &format!("s for process {missing} ("), "see what the others say"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}
