//! What `check_numerics` costs on good steps: steps of a GPT on two devices of the CPU plugin, in turns with the option and
//! without. It prints medians and their ratio, and on Linux the ratio of the processor time, which other processes on
//! the machine change less.
//!
//!     cargo bench --bench numerics
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use burn::backend::Autodiff;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions};
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use std::time::{Duration, Instant};

type B = Autodiff<Tpu<f32>>;

const ROUNDS: usize = 25;

fn main() {
    let [without, with] = [0, 1].map(TpuDevice::cpu);
    for (device, checked) in [(without, false), (with, true)] {
        TpuOptions::training().cpu_devices(2).check_numerics(checked).install(&device).expect("the first use");
    }
    for batch in [16, 32] {
        compare(batch, without, with);
    }
    with.sync().expect("all steps are good");
}

/// Prints what the checks cost in steps of a batch.
fn compare(batch: usize, without: TpuDevice, with: TpuDevice) {
    let [mut plain, mut checked] = [without, with].map(|device| turns(batch, device));
    let (mut base, mut cost, mut ratios, mut ticks) = (Vec::new(), Vec::new(), Vec::new(), [0.0; 2]);
    for _ in 0..ROUNDS {
        let begin = processor_ticks();
        let a = plain();
        let middle = processor_ticks();
        let b = checked();
        ticks = [ticks[0] + middle - begin, ticks[1] + processor_ticks() - middle];
        ratios.push(b.as_secs_f64() / a.as_secs_f64());
        base.push(a);
        cost.push(b);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let (base, cost) = (median(&mut base), median(&mut cost));
    println!("batch {batch}");
    println!("without                {:>9.3} ms", base.as_secs_f64() * 1e3);
    println!("with check_numerics    {:>9.3} ms", cost.as_secs_f64() * 1e3);
    println!("ratio of the medians   {:>9.3}", cost.as_secs_f64() / base.as_secs_f64());
    let quarter = |of: usize| ratios[ratios.len() * of / 4];
    println!("ratio by turn          {:>9.3} ({:.3} to {:.3})", quarter(2), quarter(1), quarter(3));
    println!("ratio of the CPU time  {:>9.3}", ticks[1] / ticks[0]);
}

/// Returns the processor time of this process in ticks of the system; 0 where `/proc` is not there.
fn processor_ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
}

/// Returns what runs a step on a device, and its time.
fn turns(batch: usize, device: TpuDevice) -> impl FnMut() -> Duration {
    let config = GptConfig::new().with_batch(batch);
    let mut model = Some(config.init::<B>(&device));
    let mut optimizer = TpuOptimizer::new(adamw());
    let mut number = 0;
    let mut step = move || {
        let batch = Tokens::synthetic(&config, number, &device);
        number += 1;
        let begin = Instant::now();
        let (next, _) = train_step::<B, Gpt<B>, _>(model.take().expect("a model"), &mut optimizer, 1e-3, batch);
        model = Some(next);
        device.sync().expect("the step runs");
        begin.elapsed()
    };
    (0..4).for_each(|_| {
        step();
    });
    step
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
