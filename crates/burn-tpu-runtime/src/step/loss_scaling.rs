//! Dynamic loss scaling for gradients in f16, without a read on the host.
//!
//! Owns: the scale, the test for gradients that are not finite, and when the scale changes. Who skips the update is the
//! optimizer.

use super::arithmetic::{and, broadcast, chosen, compared, mul, not, or, plus, scalar, times};
use super::constant;
use crate::ops::{arithmetic, data, reduce};
use crate::{Device, Result, Tensor};
use burn_tpu_graph::DType;
use burn_tpu_graph::op::Direction;

/// The bounds of a scale: it and its reciprocal are finite f32 numbers.
const BOUNDS: [f32; 2] = [f32::MIN_POSITIVE, 1.0e36];

/// How a loss scale changes: the defaults are those of PyTorch's `GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    first: f32,
    growth: f32,
    backoff: f32,
    interval: u32,
}

impl Default for LossScaling {
    fn default() -> Self {
        Self { first: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

/// What a step with a loss scale has instead of its gradients.
pub struct Unscaled {
    /// The gradients divided by the scale, in f32.
    pub gradients: Vec<Option<Tensor>>,
    /// Whether all of them are finite, `[1]`, bool.
    pub finite: Tensor,
    /// The scale and the number of finite steps since it changed, after the step: `[1]` each, in f32.
    pub next: [Tensor; 2],
}

impl LossScaling {
    /// Returns the defaults: the scale begins at 65536, doubles after 2000 finite steps in a row, and is halved by a
    /// step that is not finite.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the first scale. A power of two rounds nothing.
    pub fn with_first(self, first: f32) -> Self {
        Self { first, ..self }
    }

    /// Sets the factor of the scale after `interval` finite steps in a row.
    pub fn with_growth(self, growth: f32, interval: u32) -> Self {
        Self { growth, interval, ..self }
    }

    /// Sets the factor of the scale after a step that is not finite.
    pub fn with_backoff(self, backoff: f32) -> Self {
        Self { backoff, ..self }
    }

    /// Returns the scale and the number of finite steps since it changed, before the first step: `[1]` each, in f32.
    #[doc(hidden)]
    pub fn start(&self, device: &Device) -> [Tensor; 2] {
        self.resumed(self.first, 0.0, device)
    }

    /// Returns a saved scale and its count as the tensors of [`LossScaling::start`].
    #[doc(hidden)]
    pub fn resumed(&self, scale: f32, steps: f32, device: &Device) -> [Tensor; 2] {
        [scale, steps].map(|number| constant(number, device))
    }

    /// Reads a scale and its count. Waits for the last step.
    ///
    /// # Errors
    /// Those of the steps so far.
    #[doc(hidden)]
    pub fn numbers(tensors: [&Tensor; 2]) -> Result<[f32; 2]> {
        let number = |tensor: &Tensor| {
            let bytes = data::into_bytes(tensor)?;
            Ok(bytes.first_chunk().map_or(0.0, |bytes| f32::from_le_bytes(*bytes)))
        };
        Ok([number(tensors[0])?, number(tensors[1])?])
    }

    /// Divides the gradients of a scaled loss by the scale. `numbers` are the scale and its count before the step.
    #[doc(hidden)]
    pub fn unscaled(&self, gradients: Vec<Option<Tensor>>, numbers: [Tensor; 2]) -> Unscaled {
        let scale = &numbers[0];
        let factor = arithmetic::recip(scale.clone());
        let mut finite: Option<Tensor> = None;
        let mut unscale = |gradient: Tensor| {
            let gradient = arithmetic::cast(gradient, DType::F32);
            // False also for NaN.
            let below = compared(arithmetic::abs(gradient.clone()), Direction::Lt, f32::INFINITY);
            let all = reduce::all(below);
            finite = Some(match finite.take() {
                Some(others) => and(others, all),
                None => all,
            });
            let factor = broadcast(&factor, gradient.dims().len());
            mul(gradient, factor)
        };
        let gradients = gradients.into_iter().map(|gradient| gradient.map(&mut unscale)).collect();
        // Without any gradient, nothing is infinite.
        let finite = finite.unwrap_or_else(|| compared(scale.clone(), Direction::Gt, 0.0));
        let next = self.after(numbers, finite.clone());
        Unscaled { gradients, finite, next }
    }

    /// Returns the scale and the number of finite steps after a step.
    fn after(&self, [scale, steps]: [Tensor; 2], finite: Tensor) -> [Tensor; 2] {
        let steps = plus(steps, 1.0);
        let grows = compared(steps.clone(), Direction::Ge, self.interval as f32);
        let grown = chosen(&grows, times(scale.clone(), self.growth), scale.clone());
        let scale = chosen(&finite, grown, times(scale, self.backoff));
        let starts_again = or(grows, not(finite));
        let [low, high] = BOUNDS.map(scalar);
        [arithmetic::clamp(scale, low, high), arithmetic::mask_fill(steps, starts_again, scalar(0.0))]
    }
}
