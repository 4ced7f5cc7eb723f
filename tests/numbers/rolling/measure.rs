//! Measurements of loops over time, run by hand.

use super::common::programs;
use super::recurrent::Layer;
use super::{loops, step_program};
use burn_tpu_fusion::Optimization;
use burn_tpu_graph::{Program, lower};
use burn_tpu_pjrt::{CompileOptions, TopologyDescription};
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

/// Returns the CPU seconds that libtpu needs to compile a program for a v5e.
fn compile_for_tpu(program: &Program) -> Option<f64> {
    let libtpu = programs::libtpu()?;
    let slice = TopologyDescription::new(libtpu, "v5e:1x1", &[]).expect("a slice's name");
    let lowered = programs::pjrt_program(&lower(program).expect("a program"));
    let before = cpu_seconds();
    slice.compile(&lowered, &CompileOptions::default()).expect("it compiles");
    Some(cpu_seconds() - before)
}

/// Prints what a training step costs. `ROLLING_STEPS=28,100` sets the numbers of time steps, and `ROLLING_OFF=1` leaves the
/// loops unrolled. A step of 400 needs `BURN_TPU_PROGRAM_CAP=0`, and `ROLLING_LAYER=gru` is another layer.
#[test]
#[ignore = "a measurement"]
fn compile_and_run_times() {
    let asked = |name| std::env::var(name).ok();
    let steps = asked("ROLLING_STEPS").unwrap_or_else(|| "28,100,200".into());
    let level = if asked("ROLLING_OFF").is_some() { Optimization::Off } else { Optimization::Balanced };
    let layer = if asked("ROLLING_LAYER").is_some_and(|layer| layer == "gru") { Layer::Gru } else { Layer::Lstm };
    let client = programs::client().expect("the CPU plugin");
    for steps in steps.split(',').map(|steps| steps.parse::<usize>().expect("a number")) {
        let unrolled = step_program(layer, [BATCH, steps, INPUTS], WIDTH, Optimization::Off);
        let start = Instant::now();
        let program = burn_tpu_fusion::Pipeline::new(level).run(unrolled.clone()).expect("a program").program;
        let rewrite = start.elapsed();
        let before = cpu_seconds();
        let compiled = programs::compile(&client, &program, &programs::cpu_options()).expect("it compiles");
        let compile = cpu_seconds() - before;
        let tpu = compile_for_tpu(&program).unwrap_or(f64::NAN);
        let slots = vec![u64::from(0.5f32.to_bits()); 10_000];
        let mut shortest = f64::INFINITY;
        for _ in 0..40 {
            let arguments = compiled.upload(&[], &slots);
            let start = Instant::now();
            let results = compiled.execute(&arguments).expect("it runs");
            results[0].to_host().expect("it runs");
            shortest = f64::min(shortest, 1e3 * start.elapsed().as_secs_f64());
        }
        eprintln!(
            "{layer:?} over {steps} steps, {level:?}: {} nodes of {}, loops {:?}; rewrite {rewrite:.1?}; \
             compile {compile:.1} CPU s, for v5e {tpu:.1}; run {shortest:.2} ms",
            program.graph().len(),
            unrolled.graph().len(),
            loops(&program)
        );
    }
}
