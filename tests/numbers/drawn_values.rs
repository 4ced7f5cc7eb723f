//! Programs that draw random values and choose among them, which XLA's CPU compiler needs help with.

use crate::common;

use burn::tensor::{Distribution, Tensor, Tolerance, activation};
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice};

/// Compares the softmax and the places of the largest of drawn values with those of the same values from the host. XLA's
/// CPU compiler never came back from the first: see `crates/burn-tpu-graph/src/lower/separate.rs`.
fn softmax_of_drawn_values(device: &TpuDevice) {
    let drawn = Tensor::<Tpu<f32>, 2>::random([16, 24], Distribution::Uniform(-2.0, 2.0), device);
    let (softmax, places) = (activation::softmax(drawn.clone(), 1), drawn.clone().argmax(1));
    let (softmax, places, drawn) = (softmax.into_data(), places.into_data(), drawn.into_data());
    let given = Tensor::<Tpu<f32>, 2>::from_data(drawn, device);
    softmax.assert_approx_eq::<f32>(&activation::softmax(given.clone(), 1).into_data(), Tolerance::absolute(1e-6));
    assert_eq!(places, given.argmax(1).into_data());
}

#[test]
fn maxima_of_drawn_values_compile() {
    let Some(device) = common::device() else { return };
    softmax_of_drawn_values(&device);
}

#[test]
fn maxima_of_drawn_values_compile_on_a_mesh() {
    if common::cpu().is_none() {
        return;
    }
    softmax_of_drawn_values(&TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu)));
}
