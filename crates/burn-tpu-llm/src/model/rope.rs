//! Rotary position embedding, of the half-split form: the pairs of a head are its elements `i` and `i + head / 2`.

use crate::config::{Rope, Scaling};
use burn::prelude::*;
use burn::tensor::{DType, FloatDType};
use std::f64::consts::PI;

/// The cosines and sines of some positions.
#[derive(Clone, Debug)]
pub(crate) struct Rotation<B: Backend> {
    /// `[1 or batch, 1, positions, head]`, f32
    cos: Tensor<B, 4>,
    /// `[1 or batch, 1, positions, head]`, f32; the first half is negative.
    sin: Tensor<B, 4>,
}

impl<B: Backend> Rotation<B> {
    /// Returns the rotation of positions `[1 or batch, length]`.
    pub(crate) fn new(rope: &Rope, head: usize, positions: Tensor<B, 2, Int>) -> Self {
        let device = positions.device();
        let (frequencies, scale) = frequencies(rope, head);
        let frequencies = Tensor::<B, 1>::from_data(frequencies.as_slice(), (&device, DType::F32));
        let positions = positions.cast(FloatDType::F32);
        let angles = positions.unsqueeze_dim::<3>(2) * frequencies.unsqueeze::<3>();
        let (cos, sin) = (angles.clone().cos() * scale, angles.sin() * scale);
        Self {
            cos: Tensor::cat(vec![cos.clone(), cos], 2).unsqueeze_dim(1),
            sin: Tensor::cat(vec![sin.clone().neg(), sin], 2).unsqueeze_dim(1),
        }
    }

    /// Rotates queries or keys `[batch, heads, positions, head]`, in f32 whatever their type.
    pub(crate) fn apply(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let (dtype, half) = (x.dtype(), x.dims()[3] / 2);
        let x = x.cast(DType::F32);
        let [first, second] = [x.clone().slice_dim(3, 0..half), x.clone().slice_dim(3, half..2 * half)];
        let swapped = Tensor::cat(vec![second, first], 3);
        (x * self.cos.clone() + swapped * self.sin.clone()).cast(dtype)
    }
}

/// Returns the frequencies of the pairs of a head, and what the rotated vectors are multiplied by.
fn frequencies(rope: &Rope, head: usize) -> (Vec<f32>, f64) {
    let mut frequencies = Vec::with_capacity(head / 2);
    for pair in 0..head / 2 {
        let frequency = rope.theta.powf(-2.0 * pair as f64 / head as f64);
        frequencies.push(rope.stretched(frequency, pair, head) as f32);
    }
    let scale = if let Scaling::Yarn { attention, .. } = rope.scaling { attention } else { 1.0 };
    (frequencies, scale)
}

impl Rope {
    /// Returns what a frequency becomes for longer texts.
    fn stretched(&self, frequency: f64, pair: usize, head: usize) -> f64 {
        match &self.scaling {
            Scaling::None => frequency,
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Factors(factors) => frequency / f64::from(factors[pair]),
            Scaling::Llama3 { factor, low, high, original } => {
                let waves = original * frequency / (2.0 * PI);
                let smooth = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (smooth + (1.0 - smooth) / factor)
            }
            Scaling::Yarn { factor, original, fast, slow, .. } => {
                // The pair, a real number, that makes so many rotations over the original context.
                let pair_of =
                    |rotations: f64| head as f64 * (original / (rotations * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
                let first = pair_of(*fast).floor().max(0.0);
                let last = pair_of(*slow).ceil().min(head as f64 - 1.0).max(first + 0.001);
                let low = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                frequency * (low / factor + 1.0 - low)
            }
        }
    }
}
