//! A mesh of eight CPU devices is one device to a program: the same losses as on one, one program and one launch per step,
//! all of the state donated.

mod common;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::tensor::backend::Backend;
use burn_tpu::{Fsdp, Mesh, Metrics, PlacementRule, Replicate, Tpu, TpuDevice, TpuOptimizer, TpuOptions, place, program_keys};
use burn_tpu_workspace::models::{Cnn, GptConfig, Images, Mlp, Supervised, Tokens, adam, adamw, train_step};

const BATCH: usize = 16;

/// Returns one of eight CPU devices and meshes of all of them; `None` without the plugin.
fn devices<const N: usize>(meshes: [Mesh; N]) -> Option<(TpuDevice, [TpuDevice; N])> {
    common::has_cpu_plugin().then(|| {
        let options = || TpuOptions::development().cpu_devices(8).interpret_from(0);
        let one = TpuDevice::cpu(0);
        options().install(&one).ok();
        let meshes = meshes.map(|mesh| TpuDevice::mesh(mesh.on(burn_tpu::Platform::Cpu)));
        meshes.iter().for_each(|mesh| {
            options().install(mesh).ok();
        });
        (one, meshes)
    })
}

fn data() -> Mesh {
    Mesh::new().axis("data", 8)
}

fn data_model() -> Mesh {
    Mesh::new().axis("data", 2).axis("model", 4)
}

/// What a run of training did.
struct Run {
    losses: Vec<f32>,
    /// The counters after each step.
    metrics: Vec<Metrics>,
    keys: usize,
}

impl Run {
    /// Checks the losses against those of one device, and that steps are one program and one launch each.
    fn check(&self, name: &str, one: &[f32], tolerance: f32) {
        for (step, (&found, &expected)) in self.losses.iter().zip(one).enumerate() {
            let difference = (found - expected).abs() / expected.abs().max(1.0);
            assert!(difference <= tolerance, "{name}, step {step}: {found} instead of {expected}");
        }
        let settled = &self.metrics[2];
        for (earlier, later) in self.metrics[2..].iter().zip(&self.metrics[3..]) {
            assert_eq!(later.executions - earlier.executions, 1, "{name}: a step is one launch");
        }
        let last = self.metrics.last().unwrap();
        assert_eq!(last.compiles, settled.compiles, "{name}: nothing compiles after the third step");
        assert_eq!(last.host_fallbacks, 0, "{name}");
    }
}

/// Trains on batches that `batch` makes, and reads the losses at the end.
fn train<F, M, O>(
    device: &TpuDevice,
    steps: usize,
    model: impl FnOnce(&TpuDevice) -> M,
    optimizer: O,
    batch: impl Fn(usize, &TpuDevice) -> M::Batch,
) -> Run
where
    Tpu<F>: Backend<Device = TpuDevice>,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
    O: Optimizer<M, Autodiff<Tpu<F>>>,
{
    Tpu::<F>::seed(device, 7);
    let mut model = model(device);
    device.mark_step();
    let mut optimizer = optimizer;
    let (mut losses, mut metrics) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let (next, loss) = train_step(model, &mut optimizer, 1e-3, batch(step, device));
        model = next;
        losses.push(loss);
        metrics.push(device.metrics());
    }
    let losses = losses.into_iter().map(|loss| loss.into_data().convert::<f32>().to_vec::<f32>().unwrap()[0]).collect();
    Run { losses, metrics, keys: program_keys(device).len() }
}

/// Trains one model on one device and on every mesh with its rule, and compares.
macro_rules! compare {
    ($element:ty, $name:literal, $tolerance:expr, $steps:expr, $init:expr, $optimizer:expr, $batch:expr) => {{
        let Some((one, [data, fsdp, model, both])) = devices([
            self::data(),
            Mesh::new().axis("fsdp", 8),
            data_model(),
            Mesh::new().axis("data", 2).axis("fsdp", 4),
        ]) else {
            return;
        };
        let _alone = common::alone();
        let expected = train::<$element, _, _>(&one, $steps, $init, $optimizer, $batch);
        let run = |name: &str, device: &TpuDevice, rule: &dyn PlacementRule| {
            let init = |device: &TpuDevice| place($init(device), &rule).unwrap();
            let before = device.metrics();
            let run = train::<$element, _, _>(device, $steps, init, $optimizer, $batch);
            run.check(&format!("{} {name}", $name), &expected.losses, $tolerance);
            let after = device.metrics();
            eprintln!("{} {name}: compiles {} args {} temp {}", $name, after.compiles - before.compiles,
                after.argument_bytes - before.argument_bytes, after.temporary_bytes - before.temporary_bytes);
        };
        run("data 8", &data, &Replicate);
        run("fsdp 8", &fsdp, &Fsdp { axis: "fsdp", min_bytes: 1024 });
        run("data 2 fsdp 4", &both, &Fsdp { axis: "fsdp", min_bytes: 1024 });
        run("data 2 model 4", &model, &Fsdp { axis: "model", min_bytes: 1024 });
    }};
}

#[test]
fn an_mlp_trains_as_on_one_device() {
    let batch = |step, device: &TpuDevice| Images::synthetic(BATCH, step, device);
    compare!(f32, "mlp", 1e-5, 50, |device: &TpuDevice| Mlp::new(device), TpuOptimizer::new(adam()), batch);
}

#[test]
fn a_cnn_trains_as_on_one_device() {
    let batch = |step, device: &TpuDevice| Images::synthetic(BATCH, step, device);
    compare!(f32, "cnn", 1e-5, 8, |device: &TpuDevice| Cnn::new(device), TpuOptimizer::new(adam()), batch);
}

fn small_gpt() -> GptConfig {
    GptConfig { layers: 2, width: 64, heads: 4, feed_forward: 128, sequence: 32, batch: 16, vocabulary: 256 }
}

#[test]
fn a_gpt_trains_as_on_one_device() {
    let config = small_gpt();
    let batch = |step, device: &TpuDevice| Tokens::synthetic(&config, step, device);
    compare!(f32, "gpt", 1e-5, 50, |device: &TpuDevice| config.init(device), TpuOptimizer::new(adamw()), batch);
}

#[test]
fn a_gpt_in_bf16_trains_nearly_as_on_one_device() {
    let config = small_gpt();
    let batch = |step, device: &TpuDevice| Tokens::synthetic(&config, step, device);
    compare!(half::bf16, "gpt bf16", 2e-2, 50, |device: &TpuDevice| config.init(device), TpuOptimizer::new(adamw()), batch);
}
