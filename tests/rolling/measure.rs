//! Measurements of loops over time, run by hand.

use super::common::programs;
use super::recurrent::Layer;
use super::{loops, step_program};
use burn_tpu_fusion::Level;
use std::time::Instant;

/// `[batch, steps, inputs]` without the steps, and the width, of the same layer in JAX.
const BATCH: usize = 32;
const INPUTS: usize = 28;
const WIDTH: usize = 64;

/// Returns the seconds that all threads of this process have run.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

/// Prints what a training step costs. `ROLLING_STEPS=28,100` sets the numbers of time steps, `ROLLING_OFF=1` leaves the loops
/// unrolled. A step of 400 needs `BURN_TPU_TRACE_CAP=100000`.
#[test]
#[ignore = "a measurement"]
fn compile_and_run_times() {
    let asked = |name| std::env::var(name).ok();
    let steps = asked("ROLLING_STEPS").unwrap_or_else(|| "28,100,200".into());
    let level = if asked("ROLLING_OFF").is_some() { Level::Off } else { Level::Full };
    let client = programs::client().expect("the CPU plugin");
    for steps in steps.split(',').map(|steps| steps.parse::<usize>().expect("a number")) {
        let unrolled = step_program(Layer::Lstm, [BATCH, steps, INPUTS], WIDTH, Level::Off);
        let start = Instant::now();
        let program = burn_tpu_fusion::optimize(unrolled.clone(), level).expect("a program");
        let rewrite = start.elapsed();
        let before = cpu_seconds();
        let compiled = programs::compile(&client, &program, &programs::cpu_options()).expect("it compiles");
        let compile = cpu_seconds() - before;
        let slots = vec![u64::from(0.5f32.to_bits()); 10_000];
        let mut shortest = f64::INFINITY;
        let before = cpu_seconds();
        let runs = 40;
        for _ in 0..runs {
            let start = Instant::now();
            compiled.run(&[], &slots).expect("it runs");
            shortest = f64::min(shortest, 1e3 * start.elapsed().as_secs_f64());
        }
        let cpu = 1e3 * (cpu_seconds() - before) / f64::from(runs);
        eprintln!(
            "LSTM over {steps} steps, {level:?}: {} nodes of {}, loops {:?}; rewrite {rewrite:.1?}; compile {compile:.1} CPU s; \
             run {shortest:.2} ms, {cpu:.2} CPU ms",
            program.graph().len(),
            unrolled.graph().len(),
            loops(&program)
        );
    }
}
