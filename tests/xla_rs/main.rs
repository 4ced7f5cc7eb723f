//! The engine on the crate `xla`: every op kind with every element type, a model that trains as on the CPU plugin, and what
//! the engine refuses. `cargo xtask test --only xla-rs` runs this.

#[path = "../common/mod.rs"]
mod common;

use burn::tensor::{Tensor, TensorData};
use burn_tpu::{FallbackPolicy, Platform, Tpu, TpuDevice, TpuOptions};
use burn_tpu_graph::corpus::{self, Case};
use burn_tpu_graph::{Program, TensorType};
use burn_tpu_runtime::ExternalEngine;
use burn_tpu_xla::{XlaRsEngine, XlaRsProgram, support};
use common::programs;

/// Returns the device. All tests of the process share it, with host fallback denied.
fn device() -> TpuDevice {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let device = TpuDevice::xla_rs(0);
    ONCE.call_once(|| TpuOptions::default().fallback(FallbackPolicy::Deny).interpret_from(0).install(&device).unwrap());
    device
}

/// Runs a compiled program without the backend.
fn run(
    engine: &XlaRsEngine,
    (program, compiled): (&Program, &XlaRsProgram),
    parameters: &[Vec<u8>],
    slots: &[u64],
) -> Vec<Vec<u8>> {
    let upload = |(index, ty): (u32, &TensorType)| engine.upload(ty, &parameters[index as usize]).unwrap();
    let arguments: Vec<_> = program.parameters().map(upload).collect();
    let results = engine.run(compiled, &arguments.iter().collect::<Vec<_>>(), slots).unwrap();
    results.iter().zip(program.output_types()).map(|(value, ty)| engine.download(ty, value).unwrap()).collect()
}

#[test]
fn every_kind_of_the_corpus_is_in_the_table() {
    for Case { name, program } in corpus::cases().unwrap() {
        for node in program.graph().nodes() {
            assert!(support::of(node.op.mnemonic()).is_some(), "{name}: {} would run on the host", node.op.mnemonic());
        }
    }
}

#[test]
fn the_interpreter_agrees_with_the_engine_on_the_corpus() {
    let engine = XlaRsEngine::open(0).unwrap();
    let mut report = String::new();
    for (family, members) in corpus::by_family(corpus::cases().unwrap()) {
        let program = corpus::merge(&members).unwrap();
        let compiled = engine.compile(&program).unwrap();
        let each = |parameters: &[Vec<u8>], slots: &[u64]| run(&engine, (&program, &compiled), parameters, slots);
        report += &programs::differences(&family, &members, &program, each);
    }
    assert!(report.is_empty(), "{report}");
}

/// XLA's CPU compiler may pack a weight once for each address (decision 20), and a weight that a step replaces may get the
/// address of the one before.
#[test]
fn a_weight_is_read_anew_at_every_step() {
    let device = device();
    let ramp = |rows: usize, columns: usize, scale: f32| {
        let values: Vec<f32> = (0..rows * columns).map(|i| (i % 13) as f32 * scale).collect();
        Tensor::<Tpu<f32>, 2>::from_data(TensorData::new(values, [rows, columns]), &device)
    };
    let (x, mut weight) = (ramp(128, 768, 0.01), ramp(768, 192, 0.02));
    let step = |_| {
        let loss = x.clone().matmul(weight.clone()).mean();
        weight = weight.clone() * 0.5;
        device.mark_step();
        loss.into_scalar()
    };
    let losses: Vec<f32> = (0..8).map(step).collect();
    for (step, loss) in losses.iter().enumerate() {
        let expected = losses[0] * 0.5f32.powi(step as i32);
        assert!((loss - expected).abs() < 1e-3 * expected, "step {step}: {losses:?}");
    }
}

#[test]
fn nan_is_the_extreme_value() {
    let device = device();
    for values in [[1.0, f32::NAN, 3.0, 2.0], [f32::NAN, 1.0, 2.0, 3.0], [3.0, 2.0, 1.0, f32::NAN]] {
        let x = Tensor::<Tpu<f32>, 1>::from_floats(values, &device);
        assert!(x.clone().max().into_scalar().is_nan() && x.min().into_scalar().is_nan(), "{values:?}");
    }
}

#[test]
fn the_device_has_its_name_and_says_what_it_runs_on() {
    let device = device();
    assert_eq!((device.to_string().as_str(), Platform::XlaRs.device_count()), ("xla-rs:0", 1));
    assert_eq!("xla-rs".parse::<Platform>().unwrap(), Platform::XlaRs);
    let x = Tensor::<Tpu<f32>, 1>::from_floats([1.0, 2.0], &device);
    assert_eq!((x * 3.0).into_data().to_vec::<f32>().unwrap(), [3.0, 6.0]);
    assert_eq!(device.metrics().host_fallbacks, 0);
}

#[test]
fn a_second_device_and_a_mesh_are_typed_errors() {
    let second = TpuDevice::xla_rs(1);
    let error = second.sync().unwrap_err();
    assert!(error.to_string().contains("TpuDevice::xla_rs(0)"), "{error}");
    let mesh = TpuDevice::mesh(burn_tpu::Mesh::new().axis("data", 2).on(Platform::XlaRs));
    assert!(matches!(mesh.sync(), Err(burn_tpu::TpuError::Mesh { .. })));
}
