//! The first steps of a training on a mesh: the step is compiled once there too, and its values are where they were.

use crate::common;

use burn::backend::Autodiff;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, AdanConfig, Optimizer, SgdConfig};
use burn_tpu::{
    Fsdp, Mesh, PlacementRule, Platform, Replicate, Tpu, TpuDevice, TpuOptimizer, TpuOptions, metrics, place,
};
use burn_tpu_workspace::models::{Images, Mlp, train_step};

type F32 = Autodiff<Tpu<f32>>;

/// Returns a mesh of four CPU devices with the options of training; `None` without the plugin.
fn mesh(axis: &'static str) -> Option<TpuDevice> {
    common::has_cpu_plugin().then(|| {
        let mesh = TpuDevice::mesh(Mesh::new().axis(axis, 4).on(Platform::Cpu).devices(0..4));
        TpuOptions::training().disk_cache(false).cpu_devices(8).install(&mesh).ok();
        mesh
    })
}

/// Returns the compiles of the first four steps.
fn compiles(mut model: Mlp<F32>, mut optimizer: impl Optimizer<Mlp<F32>, F32>, device: &TpuDevice) -> u64 {
    let before = metrics(device).compiles;
    for step in 0..4 {
        let loss;
        (model, loss) = train_step(model, &mut optimizer, 1e-3, Images::synthetic(8, step, device));
        assert!(loss.into_scalar().is_finite());
    }
    metrics(device).compiles - before
}

#[test]
fn a_step_on_a_mesh_is_compiled_once() {
    let (Some(data), Some(fsdp)) = (mesh("data"), mesh("fsdp")) else { return };
    let _alone = common::alone();
    let split = Fsdp { axis: "fsdp", min_bytes: 256 };
    let placed = |device, rule: &dyn PlacementRule| place(Mlp::<F32>::new(device), &rule).unwrap();
    let adamw = || TpuOptimizer::new(AdamWConfig::new().init());
    let of_sgd = |dampening| {
        let momentum = MomentumConfig::new().with_dampening(dampening);
        TpuOptimizer::from(SgdConfig::new().with_momentum(Some(momentum)).build())
    };
    assert_eq!(compiles(placed(&data, &Replicate), adamw(), &data), 1, "AdamW");
    assert_eq!(compiles(placed(&fsdp, &split), adamw(), &fsdp), 1, "AdamW, split");
    assert_eq!(compiles(placed(&fsdp, &split), of_sgd(0.0), &fsdp), 1, "SGD with momentum");
    assert_eq!(compiles(placed(&fsdp, &split), of_sgd(0.1), &fsdp), 1, "SGD with dampening");
    assert_eq!(compiles(placed(&fsdp, &split), TpuOptimizer::new(AdanConfig::new().init()), &fsdp), 1, "Adan");
    // What is drawn in the first step is on every device, where `Replicate` puts it too.
    assert_eq!(compiles(Mlp::new(&data), adamw(), &data), 0, "nothing was placed");
}
