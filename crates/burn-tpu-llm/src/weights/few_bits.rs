//! Matrices in few bits on their way from a file to the device.

use super::load::turned;
use crate::model::few_bits::{BLOCK, Bits};
use burn::tensor::TensorData;
use half::f16;

/// A matrix in few bits as files have it: a row of inputs for each output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantized {
    pub(crate) bits: Bits,
    pub(crate) inputs: usize,
    /// `[outputs, inputs]`; of 8 bits, `i8` as bytes.
    pub(crate) quants: Vec<u8>,
    /// `[outputs, inputs / 32]`
    pub(crate) scales: Vec<f16>,
    /// `[outputs, inputs / 32]`, or none with 8 bits.
    pub(crate) least: Vec<f16>,
}

impl Quantized {
    /// Quantizes numbers `[outputs, inputs]`, each block for itself: to the nearest multiples of a scale.
    pub(crate) fn of(values: &[f32], inputs: usize, bits: Bits) -> Self {
        let mut quantized = Self { bits, inputs, quants: Vec::new(), scales: Vec::new(), least: Vec::new() };
        for block in values.chunks_exact(BLOCK) {
            quantized.add(block);
        }
        quantized
    }

    fn add(&mut self, block: &[f32]) {
        let (low, high) = block.iter().fold((0f32, 0f32), |(low, high), value| (low.min(*value), high.max(*value)));
        let (least, width) = match self.bits {
            Bits::Eight => (0.0, high.max(-low) / 127.0),
            Bits::Four => (low, (high - low) / 15.0),
        };
        // What the device computes with is what was rounded to f16.
        let [scale, least] = [width, least].map(f16::from_f32);
        let (width, from) = (scale.to_f32(), least.to_f32());
        let steps = |value: f32| if width == 0.0 { 0.0 } else { ((value - from) / width).round() };
        match self.bits {
            Bits::Eight => self.quants.extend(block.iter().map(|value| steps(*value).clamp(-127.0, 127.0) as i8 as u8)),
            Bits::Four => {
                self.quants.extend(block.iter().map(|value| steps(*value).clamp(0.0, 15.0) as u8));
                self.least.push(least);
            }
        }
        self.scales.push(scale);
    }

    /// Reorders the outputs: `order(output)` is where the new one was.
    pub(crate) fn with_outputs(self, order: impl Fn(usize) -> usize) -> Self {
        let blocks = self.inputs / BLOCK;
        let (quants, scales) = (reordered(&self.quants, self.inputs, &order), reordered(&self.scales, blocks, &order));
        Self { quants, scales, least: reordered(&self.least, blocks, &order), ..self }
    }

    /// Returns the data of [`FewBits::quants`].
    pub(crate) fn quants(&self) -> TensorData {
        let turned = turned(&self.quants, self.inputs);
        let outputs = turned.len() / self.inputs;
        match self.bits {
            Bits::Eight => {
                let signed: Vec<i8> = turned.into_iter().map(|quant| quant as i8).collect();
                TensorData::new(signed, [self.inputs / BLOCK, BLOCK, outputs])
            }
            Bits::Four => {
                let (low, high) = turned.split_at(turned.len() / 2);
                let packed: Vec<u8> = low.iter().zip(high).map(|(low, high)| low | high << 4).collect();
                TensorData::new(packed, [self.inputs / BLOCK / 2, BLOCK, outputs])
            }
        }
    }

    /// Returns the data of [`FewBits::scales`].
    pub(crate) fn scales(&self) -> TensorData {
        self.of_blocks(&self.scales)
    }

    /// Returns the data of [`FewBits::least`].
    pub(crate) fn least(&self) -> TensorData {
        self.of_blocks(&self.least)
    }

    fn of_blocks(&self, values: &[f16]) -> TensorData {
        let blocks = self.inputs / BLOCK;
        TensorData::new(turned(values, blocks), [blocks, values.len() / blocks])
    }
}

/// Reorders rows of a width: `order(row)` is where the new one was.
pub(super) fn reordered<E: Copy>(values: &[E], width: usize, order: impl Fn(usize) -> usize) -> Vec<E> {
    let rows = values.len() / width;
    (0..rows).flat_map(|row| values[order(row) * width..][..width].iter().copied()).collect()
}
