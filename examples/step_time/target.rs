//! The differences between the backends that a step can be timed on.

use burn::backend::Autodiff;
use burn::prelude::Backend;
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::{Metrics, Tpu, TpuDevice};
use std::marker::PhantomData;

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

/// burn-tpu with the given default float type.
pub struct OnTpu<F>(PhantomData<F>);

/// One of Burn's own backends, whose methods return after the op has run.
pub struct OnBurn<B>(PhantomData<B>);

impl<F> Target for OnTpu<F>
where
    Tpu<F>: Backend<Device = TpuDevice>,
{
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
