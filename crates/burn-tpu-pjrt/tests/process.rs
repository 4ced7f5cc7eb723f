//! What a process does to its plugins: it forks, and it exits while a compile is under way.
#![cfg(unix)]

mod common;

use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, ExecuteOptions, Fault, PjrtError, Plugin, Program, Result,
    TopologyDescription,
};
use common::*;
use std::os::unix::process::ExitStatusExt;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs `work` in a forked child, in which only the calling thread exists; returns how the child ended.
fn forked(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child calls `work` and `_exit`. No other thread of this process allocates at this moment.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: it takes a number. A child that waits for a lost thread ends by this signal.
        unsafe { libc::alarm(20) };
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: it takes a number and does not return.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is written during the call only.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

fn is_refused<T>(result: Result<T>) -> bool {
    match result {
        Err(error @ PjrtError::Forked { .. }) => error.fault() == Fault::User && error.to_string().contains("fork"),
        _ => false,
    }
}

#[test]
fn a_forked_child_is_refused_the_clients_of_its_parent() {
    const TEST: &str = "a_forked_child_is_refused_the_clients_of_its_parent";
    if !is_child() {
        return passes_in_child(TEST, &[]);
    }
    let Some(client) = cpu_client(1) else { return };
    let device = client.device(0).unwrap();
    let adder = client.compile(&add_program(2), &CompileOptions::default()).unwrap();
    let x = upload(&device, &[1.0, 2.0]);
    let status = forked(|| {
        let refused = [
            is_refused(Buffer::from_host(&device, f32s(&[1]), &[0; 4])),
            is_refused(client.compile(&add_program(3), &CompileOptions::default())),
            is_refused(adder.execute_single(&[&x, &x], &ExecuteOptions::default())),
            is_refused(x.to_host()),
            is_refused(Client::new(client.plugin(), &ClientOptions::cpu(1).unwrap())),
            is_refused(Plugin::load(client.plugin().path())),
        ];
        refused.into_iter().all(|refused| refused)
    });
    assert_eq!(status, 0, "the child was refused everything and lived on");
    // What the child does not own stays the parent's.
    let keep = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    assert_eq!(read(&adder.execute_single(&[&x, &x], &keep).unwrap()[0]), [2.0, 4.0]);
    // An exit of the child runs every handler, and does not wait for threads that it does not have.
    let exit = || {
        // SAFETY: it takes a number; the handlers of this process are the test's, the plugin's and ours.
        unsafe { libc::exit(0) }
    };
    assert_eq!(forked(exit), 0);
    // Handles that a child drops are the parent's: nothing is freed, and nothing ends badly.
    assert_eq!(
        forked(move || {
            drop((x, adder, device, client));
            true
        }),
        0
    );
}

#[test]
fn a_child_that_was_forked_earlier_loads_a_plugin_of_its_own() {
    const TEST: &str = "a_child_that_was_forked_earlier_loads_a_plugin_of_its_own";
    if !is_child() {
        return passes_in_child(TEST, &[]);
    }
    let status = forked(|| {
        let Some(client) = cpu_client(1) else { return true };
        read(&upload(&client.device(0).unwrap(), &[5.0])) == [5.0]
    });
    assert_eq!(status, 0);
}

/// A program that takes seconds to compile.
fn slow_program() -> Program {
    let ty = "tensor<64x64xf32>";
    let mut text = format!("func.func @main(%v0: {ty}) -> {ty} {{\n");
    for i in 0..4000 {
        text += &format!("  %d{i} = stablehlo.dot %v{i}, %v0 : ({ty}, {ty}) -> {ty}\n");
        text += &format!("  %v{} = stablehlo.tanh %d{i} : {ty}\n", i + 1);
    }
    text += &format!("  return %v4000 : {ty}\n}}");
    Program::stablehlo(text, [f32s(&[64, 64])]).unwrap()
}

const DESTRUCTORS_RAN: &str = "the exit went as far as what is older than the plugin";

/// Registers a handler of the exit before any plugin is loaded: it runs after the destructors of the plugin's objects.
#[allow(clippy::print_stderr, reason = "a child reports to its parent")]
fn tell_when_destructors_ran() {
    extern "C" fn tell() {
        eprintln!("{DESTRUCTORS_RAN}");
        // What a compiler that goes on without its objects needs to crash.
        std::thread::sleep(Duration::from_millis(500));
    }
    // SAFETY: the handler is a function of this program and does not panic.
    assert_eq!(unsafe { libc::atexit(tell) }, 0);
}

/// Starts `compile` on a thread, and ends the process with status 7 while it runs.
fn exit_during(compile: impl FnOnce() + Send + 'static) -> ! {
    let (started, start) = channel();
    let (ended, end) = channel::<()>();
    std::thread::spawn(move || {
        started.send(()).unwrap();
        compile();
        drop(ended);
    });
    start.recv().unwrap();
    let still = end.recv_timeout(Duration::from_millis(300));
    assert_eq!(still, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "the compile is under way");
    std::process::exit(7)
}

fn ends_well(test: &str) {
    for _ in 0..3 {
        let output = in_child(test, &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("skipped") {
            return;
        }
        assert_eq!((output.status.code(), output.status.signal()), (Some(7), None), "{text}");
        assert!(!text.contains(DESTRUCTORS_RAN), "{text}");
    }
}

#[test]
fn exiting_while_the_cpu_plugin_compiles_ends_the_process_well() {
    if !is_child() {
        return ends_well("exiting_while_the_cpu_plugin_compiles_ends_the_process_well");
    }
    tell_when_destructors_ran();
    let Some(client) = cpu_client(1) else { return };
    exit_during(move || drop(client.compile(&slow_program(), &CompileOptions::default())))
}

/// As without a compile: every handler runs.
#[test]
fn exiting_after_a_compile_runs_every_handler() {
    const TEST: &str = "exiting_after_a_compile_runs_every_handler";
    if is_child() {
        tell_when_destructors_ran();
        let Some(client) = cpu_client(1) else { return };
        drop(client.compile(&add_program(2), &CompileOptions::default()));
        std::process::exit(7);
    }
    let output = in_child(TEST, &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("skipped") || (text.contains(DESTRUCTORS_RAN) && output.status.code() == Some(7)), "{text}");
}

#[test]
fn exiting_while_libtpu_compiles_ends_the_process_well() {
    if !is_child() {
        return ends_well("exiting_while_libtpu_compiles_ends_the_process_well");
    }
    tell_when_destructors_ran();
    let Some(libtpu) = libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    exit_during(move || drop(topology.compile(&slow_program(), &CompileOptions::default())))
}
