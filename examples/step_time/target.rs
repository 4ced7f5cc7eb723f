//! The differences between the backends that a step can be timed on.

use anyhow::Result;
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::prelude::{Backend, Tensor};
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::{DeviceAdamW, Metrics, Tpu, TpuDevice, TpuFloat, compile_step};
use burn_tpu_workspace::models::Supervised;
use std::marker::PhantomData;

/// A training step: takes a batch, and returns its loss.
pub type Step<B, Batch> = Box<dyn FnMut(Batch) -> Result<Tensor<<B as AutodiffBackend>::InnerBackend, 1>>>;

/// A backend and how to end a step on it.
pub trait Target {
    /// The backend's device type.
    type Device: Clone;
    /// The backend of the model.
    type Backend: AutodiffBackend<Device = Self::Device>;

    /// Ends a step without waiting for it.
    fn end_step(device: &Self::Device);

    /// Returns the device's metrics, if it counts them.
    fn metrics(device: &Self::Device) -> Option<Metrics>;
}

/// A backend on which the training step of a model may be compiled.
pub trait Compiles<M: Supervised<Self::Backend>>: Target {
    /// Returns the compiled training step, if the backend compiles functions.
    fn compiled(model: M, optimizer: DeviceAdamW, rate: f64) -> Option<Step<Self::Backend, M::Batch>>;
}

/// A model's batch without autodiff.
type Inner<B, M> = <<M as Supervised<B>>::Batch as AutodiffModule<B>>::InnerModule;

/// burn-tpu with the given default float type.
pub struct OnTpu<F>(PhantomData<F>);

/// One of Burn's own backends, whose methods return after the op has run.
pub struct OnBurn<B>(PhantomData<B>);

impl<F: TpuFloat> Target for OnTpu<F> {
    type Device = TpuDevice;
    type Backend = Autodiff<Tpu<F>>;

    fn end_step(device: &TpuDevice) {
        burn_tpu::mark_step(device);
    }

    fn metrics(device: &TpuDevice) -> Option<Metrics> {
        Some(burn_tpu::metrics(device))
    }
}

impl<B: Backend> Target for OnBurn<B> {
    type Device = B::Device;
    type Backend = Autodiff<B>;

    fn end_step(_: &B::Device) {}

    fn metrics(_: &B::Device) -> Option<Metrics> {
        None
    }
}

impl<F: TpuFloat, M> Compiles<M> for OnTpu<F>
where
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>> + 'static,
    M::Batch: AutodiffModule<Autodiff<Tpu<F>>> + 'static,
{
    fn compiled(model: M, optimizer: DeviceAdamW, rate: f64) -> Option<Step<Autodiff<Tpu<F>>, M::Batch>> {
        let mut training = compile_step(model, optimizer, |model: &M, batch: Inner<Autodiff<Tpu<F>>, M>| {
            let loss = model.loss(M::Batch::from_inner(batch));
            (loss.clone(), loss.inner())
        });
        Some(Box::new(move |batch: M::Batch| Ok(training.run(rate, batch.valid())?)))
    }
}

impl<B: Backend, M: Supervised<Autodiff<B>>> Compiles<M> for OnBurn<B> {
    fn compiled(_: M, _: DeviceAdamW, _: f64) -> Option<Step<Autodiff<B>, M::Batch>> {
        None
    }
}
