//! A training step of every example model equals the one pinned in `golden/` for v5e, and compiles for every TPU generation
//! with the figures of `docs/tpu-programs.md`. `BURN_TPU_BLESS=1` accepts the current ones.

use crate::common;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use burn_tpu::fit::{Fit, FitReport, Verdict};
use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_workspace::models::{Cnn, GptConfig, Images, Mlp, Supervised, Tokens, adam, adamw, train_step};
use half::bf16;
use std::fmt::Write;
use std::path::PathBuf;

const BATCH: usize = 128;

fn step<F, M, O>(
    fit: &Fit,
    model: impl FnOnce(&TpuDevice) -> M,
    optimizer: O,
    batch: impl Fn(&TpuDevice) -> M::Batch,
) -> FitReport
where
    Tpu<F>: Backend<Device = TpuDevice>,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
    O: Optimizer<M, Autodiff<Tpu<F>>>,
{
    let build = |device: &TpuDevice| (model(device), optimizer, None);
    let report = fit.run(build, |(model, mut optimizer, _), device| {
        let (model, loss) = train_step(model, &mut optimizer, 1e-3, batch(device));
        (model, optimizer, Some(loss))
    });
    report.expect("the step computes something")
}

/// Returns the steps of the models of `examples/step_time`, by name and element type.
///
/// # Panics
/// If one does not settle, is more than one program or does not fit.
fn steps(fit: &Fit) -> Vec<(&'static str, FitReport)> {
    fn images<B: Backend<Device = TpuDevice>>(device: &TpuDevice) -> Images<B> {
        Images::synthetic(BATCH, 0, device)
    }
    let config = GptConfig::new();
    let steps = vec![
        ("mlp_f32", step::<f32, _, _>(fit, Mlp::new, adam(), images)),
        ("mlp_bf16", step::<bf16, _, _>(fit, Mlp::new, adam(), images)),
        ("cnn_bf16", step::<bf16, _, _>(fit, Cnn::new, adam(), images)),
        ("gpt_bf16", step::<bf16, _, _>(fit, |d| config.init(d), adamw(), |d| Tokens::synthetic(&config, 0, d))),
    ];
    for (name, report) in &steps {
        assert!(report.step.settled && report.step.programs == 1, "{name}: {:?}", report.step);
        for slice in &report.slices {
            assert_eq!(slice.verdict, Verdict::Fits, "{name} on {}", slice.topology);
        }
    }
    steps
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn is_blessed() -> bool {
    std::env::var("BURN_TPU_BLESS").is_ok_and(|value| value == "1")
}

#[test]
fn example_steps_equal_the_pinned_ones() {
    if !common::has_libtpu() {
        return;
    }
    let fit = Fit::new().unwrap().slices(["v5e:1x1".parse().unwrap()]);
    let changed = steps(&fit).into_iter().filter_map(|(name, report)| {
        let pinned = report.pinned(root().join(format!("tests/ahead_of_time/golden/{name}.txt")));
        Some(format!("{name}: {}", pinned.err()?))
    });
    let changed: Vec<_> = changed.collect();
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
#[ignore = "compiles for five generations: minutes"]
fn example_steps_compile_for_every_generation_with_the_documented_figures() {
    if !common::has_libtpu() {
        return;
    }
    let path = root().join("docs/tpu-programs.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let (table, by_hand) = written.split_at(written.find(BY_HAND).expect("the part that is written by hand"));
    let found = page(&steps(&Fit::new().unwrap()));
    if is_blessed() {
        std::fs::write(&path, found + by_hand).unwrap();
    } else {
        assert_eq!(found, table);
    }
}

/// Returns a page that describes the compiler's output for each step.
fn page(steps: &[(&str, FitReport)]) -> String {
    let mut page = String::from(HEAD);
    for (name, report) in steps {
        let (model, dtype) = name.split_once('_').expect("a model and an element type");
        for slice in &report.slices {
            let speed = slice.speed.expect("it compiled");
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let (peak, accessed) = (mib(slice.memory.peak_bytes), mib(speed.bytes_accessed));
            let (slice, fusions) = (&slice.topology, speed.fusions);
            let cycles = speed.estimated_cycles.expect("the compiler estimates them") as f64 / 1e3;
            let row = format!("| {model} | {dtype} | {slice} | {peak:.2} | {accessed:.2} | {fusions} | {cycles:.1} |");
            writeln!(page, "{row}").expect("writing to a string does not fail");
        }
    }
    page
}

/// Where the part of the page begins that stays as it is.
const BY_HAND: &str = "\n## Beside JAX";

const HEAD: &str = "# The example models, compiled by libtpu

One training step of each model, compiled ahead of time for one chip of each generation with the libtpu that `cargo xtask setup
tpu` pins. `BURN_TPU_BLESS=1 cargo test --workspace --test ahead_of_time -- --ignored documented_figures` writes this table again: its
diff shows the effect of a change. [fit](fit.md#fit) says what the compiler's estimate leaves out.

| model | dtype | slice | peak HBM, MiB | bytes accessed, MiB | fusions | estimated kcycles |
|---|---|---|---|---|---|---|
";
