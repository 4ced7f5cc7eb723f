//! The smallest hand-written training loop: `cargo run --release --example custom_loop`.
//!
//! Model, loss, backward, optimizer. `TpuOptimizer` ends each step, whose ops are one program: compiled in the first steps,
//! found in the cache in all later ones.
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use burn::backend::Autodiff;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::Distribution;
use burn::tensor::activation::relu;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};

type B = Autodiff<Tpu>;

const STEPS: usize = 200;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        Self { hidden: LinearConfig::new(2, 64).init(device), output: LinearConfig::new(64, 1).init(device) }
    }

    /// Maps `[batch, 2]` to `[batch, 1]`.
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(relu(self.hidden.forward(x)))
    }
}

/// Returns random points in a square, and for each point its target: the product of its two coordinates.
fn samples<B: Backend>(count: usize, device: &B::Device) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let points = Tensor::random([count, 2], Distribution::Uniform(-1.0, 1.0), device);
    let products = points.clone().slice([0..count, 0..1]) * points.clone().slice([0..count, 1..2]);
    (points, products)
}

fn main() {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    let device = TpuDevice::default();
    B::seed(&device, 7);
    let mut model = Model::<B>::new(&device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());

    for step in 1..=STEPS {
        let (points, products) = samples::<B>(256, &device);
        let loss = MseLoss::new().forward(model.forward(points), products, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        if step % 20 == 0 {
            println!("step {step:>3}  loss {:.5}", loss.into_scalar());
        }
    }
    println!("\nmetrics of {device}\n{}", burn_tpu::metrics(&device));
}
