//! The server for Burn 0.21 with Burn's own client: values, programs, tokens, threads.
#![cfg(feature = "burn-0-21")]

use burn::backend::Autodiff;
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::Backend;
use burn::tensor::{Int, Tensor, TensorData};
use burn_remote_0_21::{RemoteBackend, RemoteDevice};
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use burn_tpu_serve::access::{Token, listen};
use burn_tpu_serve::burn_0_21::Server;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Served = Tpu<f32, i32>;

const GRACE: Duration = Duration::from_secs(10);

/// Serves the device to one test at a time: they count its programs.
fn serve(token: Option<&str>) -> (MutexGuard<'static, ()>, Server<Served>, String) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Every program is run as one, and counts.
    TpuOptions::default().interpret_from(0).install(&TpuDevice::ndarray()).ok();
    let listener = listen("127.0.0.1", 0, None).unwrap();
    let token = token.map(|text| Token::new(text).unwrap());
    let path = token.as_ref().map(|token| format!("/{}", token.text())).unwrap_or_default();
    let server = Server::start(listener, TpuDevice::ndarray(), token).unwrap();
    let url = format!("ws://{}{path}", server.address());
    (alone, server, url)
}

/// Losses of a few steps of a linear model, whose values are the same for every backend.
fn train<B: Backend>(device: &B::Device, steps: usize) -> Vec<f32>
where
    Autodiff<B>: Backend<Device = B::Device>,
{
    let weights = |n: usize| (0..n).map(|i| (i as f32 * 0.37).sin() * 0.3).collect::<Vec<_>>();
    let mut model: Linear<Autodiff<B>> = LinearConfig::new(6, 3).with_bias(false).init(device);
    model.weight = Param::from_data(TensorData::new(weights(18), [6, 3]), device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let x = (0..24).map(|i| ((i + step) as f32 * 0.61).cos()).collect::<Vec<_>>();
        let x = Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(x, [4, 6]), device);
        let loss = model.forward(x).powi_scalar(2).mean();
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model, grads);
        losses.extend(loss.into_data().to_vec::<f32>().unwrap());
    }
    drop(model.into_record());
    losses
}

#[test]
fn a_model_trains_as_it_does_here_in_one_program_a_step() {
    let (_alone, server, url) = serve(None);
    let here = train::<Served>(&TpuDevice::ndarray(), 6);
    let device = RemoteDevice::new(&url);
    let before = TpuDevice::ndarray().metrics();
    let there = train::<RemoteBackend>(&device, 3);
    let third = TpuDevice::ndarray().metrics();
    assert_eq!(there, here[..3]);
    let more = train::<RemoteBackend>(&device, 6);
    let last = TpuDevice::ndarray().metrics();
    assert_eq!(more, here);
    let programs = |from: &burn_tpu::Metrics, to: &burn_tpu::Metrics| to.executions - from.executions;
    assert!((6..=2 * 6).contains(&programs(&third, &last)), "{} programs in 6 steps\n{last}", programs(&third, &last));
    assert_eq!(last.compiles, third.compiles, "the same steps compiled again\n{last}");
    assert_eq!((before.host_fallbacks, last.host_fallbacks), (0, 0));
    assert!(server.stop(GRACE));
}

#[test]
fn every_kind_of_element_goes_both_ways() {
    let (_alone, server, url) = serve(Some("0123456789abcdef"));
    let device = RemoteDevice::new(&url);
    let ints = Tensor::<RemoteBackend, 1, Int>::from_data([3, -4, 5], &device);
    let bools = ints.clone().greater_elem(0);
    assert_eq!(bools.clone().into_data().iter::<bool>().collect::<Vec<_>>(), [true, false, true]);
    let masked = ints.mask_fill(bools, 7);
    assert_eq!(masked.into_data().iter::<i64>().collect::<Vec<_>>(), [7, -4, 7]);
    let halves = Tensor::<RemoteBackend, 1>::from_data([1.5f32, -2.25], &device).cast(burn::tensor::DType::BF16);
    assert_eq!(halves.into_data().iter::<f32>().collect::<Vec<_>>(), [1.5, -2.25]);
    device_syncs(&device);
    assert!(server.stop(GRACE));
}

fn device_syncs(device: &RemoteDevice) {
    RemoteBackend::sync(device).unwrap();
}

#[test]
fn threads_of_a_client_share_its_tensors() {
    let (_alone, server, url) = serve(None);
    let device = RemoteDevice::new(&url);
    let shared = Tensor::<RemoteBackend, 1>::from_data([1.0f32, 2.0, 3.0], &device);
    let sums = std::thread::scope(|scope| {
        let threads = [1.0f32, 2.0, 3.0].map(|factor| {
            let shared = shared.clone();
            scope.spawn(move || (0..5).map(|_| (shared.clone() * factor).sum().into_scalar()).sum::<f32>())
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(sums, [30.0, 60.0, 90.0]);
    assert!(server.stop(GRACE));
}
