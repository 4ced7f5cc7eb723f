//! A program of Burn 0.22, and of 0.23, that knows no burn-tpu, with what burn-train, burn-signal, burn-linalg,
//! burn-vision and burn-store ask of a backend. Values are those that the definitions give. Without a plugin it runs in
//! the interpreter.

use burn::linalg;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::signal::{irfft, rfft};
use burn::tensor::Bool;
use burn::tensor::activation::gelu;
use burn::vision::{ConnectedComponents, Connectivity, Nms, NmsOptions};

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} for {expected}");
    }
}

#[test]
fn the_default_device_is_one_of_burn_tpu() {
    let device = Device::default();
    assert!(format!("{device:?}").contains("TpuDevice"), "{device:?}");
    let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
    assert_eq!(values(x.clone().matmul(x)), [7.0, 10.0, 15.0, 22.0]);
}

#[derive(Module, Debug)]
struct Model {
    hidden: Linear,
    output: Linear,
}

impl Model {
    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let target = x.clone().sum_dim(1);
        (self.output.forward(gelu(self.hidden.forward(x))) - target).powi_scalar(2).mean()
    }
}

#[test]
fn a_model_trains() {
    let device = Device::default().autodiff();
    device.seed(7);
    let mut model =
        Model { hidden: LinearConfig::new(4, 16).init(&device), output: LinearConfig::new(16, 1).init(&device) };
    let mut optimizer = AdamConfig::new().init();
    let numbers: Vec<f32> = (0..128).map(|i| (0.7 * i as f32).sin()).collect();
    let x = Tensor::<1>::from_floats(numbers.as_slice(), &device).reshape([32, 4]);
    let mut losses = Vec::new();
    for _ in 0..60 {
        let loss = model.loss(x.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(3e-2, model, gradients);
        losses.push(loss.into_scalar::<f32>());
    }
    assert!(losses[59] < 0.02 * losses[0], "{losses:?}");
}

#[test]
fn a_record_is_saved_and_loaded() {
    let device = Device::default();
    let [saved, other] = [(); 2].map(|()| LinearConfig::new(3, 2).init(&device));
    let x = Tensor::<2>::from_data([[1.0, -2.0, 0.5]], &device);
    let expected = values(saved.forward(x.clone()));
    let loaded = other.load_record(saved.into_record());
    assert_eq!(values(loaded.forward(x)), expected);
}

#[test]
fn a_signal_is_transformed_and_back() {
    let signal = [1.0, 2.0, 0.0, -1.0];
    let (real, imaginary) = rfft(Tensor::<1>::from_floats(signal, &Device::default()), 0, None);
    assert_close(&values(real.clone()), &[2.0, 1.0, 0.0]);
    assert_close(&values(imaginary.clone()), &[0.0, -3.0, 0.0]);
    assert_close(&values(irfft(real, imaginary, 0, Some(4))), &signal);
}

#[test]
fn a_matrix_is_taken_apart() {
    let matrix = Tensor::<2>::from_data([[4.0, 3.0], [6.0, 3.0]], &Device::default());
    let (permutation, lower, upper) = linalg::lu::<2, 1>(matrix.clone());
    assert_close(&values(upper.clone()), &[6.0, 3.0, 0.0, 1.0]);
    assert_close(&values(permutation.matmul(lower).matmul(upper)), &values(matrix));
}

#[test]
fn boxes_and_regions_are_found() {
    let device = Device::default();
    let boxes = [[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]];
    let boxes = Tensor::<2>::from_data(boxes, &device);
    let kept = boxes.nms(Tensor::<1>::from_floats([0.9, 0.8, 0.7], &device), NmsOptions::default());
    assert_eq!(kept.into_data().iter::<i64>().collect::<Vec<_>>(), [0, 2]);
    let image = [[true, false, true], [true, false, false], [false, false, true]];
    let image = Tensor::<2, Bool>::from_data(image, &device);
    let regions = image.connected_components(Connectivity::Four).into_data().iter::<i64>().collect::<Vec<_>>();
    assert_eq!(regions.iter().max(), Some(&3), "{regions:?}");
}
