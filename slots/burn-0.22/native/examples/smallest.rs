//! The program of the repository's README for Burn 0.22 and 0.23.

use burn::nn::{LinearConfig, loss::MseLoss, loss::Reduction};
use burn::optim::{AdamConfig, GradientsParams};
use burn::{prelude::*, tensor::Distribution};
use burn_tpu::{TpuDevice, TpuOptimizer};

fn main() {
    let tpu = TpuDevice::default(); // the best present: TPU, CUDA, CPU plugin, interpreter
    let device = Device::from(tpu).autodiff();
    let mut model = LinearConfig::new(8, 1).init(&device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().build()); // one program per step
    for step in 1..=200 {
        let x = Tensor::<2>::random([64, 8], Distribution::Default, &device);
        let loss = MseLoss::new().forward(model.forward(x.clone()), x.sum_dim(1), Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients); // ends the step: forward, backward and update are one program
        if step % 50 == 0 {
            println!("step {step}: loss {:.4}", loss.into_scalar::<f32>());
        }
    }
    println!("{}", tpu.metrics()); // compiles, cache hits, transfers, …
}
