//! The types of GGUF's tensors, and their values as f32.
//!
//! The layouts of blocks are those of ggml's `ggml-common.h`; scales are f16 in little-endian order.

use super::few_bits::Quantized;
use crate::model::few_bits::Bits;
use half::{bf16, f16};

/// The type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Kind {
    /// Returns the type with this number in files.
    pub(crate) fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// Returns the elements and the bytes of a block.
    pub(crate) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// Returns the elements of whole blocks.
    pub(crate) fn values(self, bytes: &[u8]) -> Vec<f32> {
        let (elements, size) = self.block();
        let mut values = vec![0.0; bytes.len() / size * elements];
        for (block, values) in bytes.chunks_exact(size).zip(values.chunks_exact_mut(elements)) {
            self.block_values(block, values);
        }
        values
    }

    /// Returns whole blocks of a matrix with so many inputs in few bits, if those say the same numbers.
    pub(crate) fn quantized(self, bytes: &[u8], inputs: usize, bits: Bits) -> Option<Quantized> {
        let zero = match (self, bits) {
            (Self::Q8_0 | Self::Q5_0 | Self::Q4_0, Bits::Eight) | (Self::Q4_1, Bits::Four) => 0.0,
            (Self::Q4_0, Bits::Four) => 8.0,
            _ => return None,
        };
        let (elements, size) = self.block();
        let mut quantized = Quantized { bits, inputs, quants: Vec::new(), scales: Vec::new(), least: Vec::new() };
        for block in bytes.chunks_exact(size) {
            // The integers are the values of a block whose scale is one.
            let (mut unit, mut integers) = (block.to_vec(), vec![0.0; elements]);
            unit[..2].copy_from_slice(&f16::ONE.to_le_bytes());
            let scale = f16::from_le_bytes([block[0], block[1]]);
            quantized.scales.push(scale);
            if bits == Bits::Four {
                let mut least = f16::from_f32(-zero * scale.to_f32());
                if self == Self::Q4_1 {
                    least = f16::from_le_bytes([block[2], block[3]]);
                    unit[2..4].fill(0);
                }
                quantized.least.push(least);
            }
            self.block_values(&unit, &mut integers);
            quantized.quants.extend(integers.into_iter().map(|integer| (integer + zero) as i8 as u8));
        }
        Some(quantized)
    }

    fn block_values(self, block: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => values[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            Self::F16 => values[0] = half_at(block, 0),
            Self::Bf16 => values[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            Self::Q4_0 => {
                let scale = half_at(block, 0);
                nibbles(&block[2..], &[0; 4], values, |quant| scale * (quant as f32 - 8.0));
            }
            Self::Q4_1 => {
                let (scale, least) = (half_at(block, 0), half_at(block, 2));
                nibbles(&block[4..], &[0; 4], values, |quant| scale * quant as f32 + least);
            }
            Self::Q5_0 => {
                let scale = half_at(block, 0);
                nibbles(&block[6..], &block[2..6], values, |quant| scale * (quant as f32 - 16.0));
            }
            Self::Q5_1 => {
                let (scale, least) = (half_at(block, 0), half_at(block, 2));
                nibbles(&block[8..], &block[4..8], values, |quant| scale * quant as f32 + least);
            }
            Self::Q8_0 => {
                let scale = half_at(block, 0);
                values.iter_mut().zip(&block[2..]).for_each(|(value, quant)| *value = scale * f32::from(*quant as i8));
            }
            Self::Q4K => super_block(block, &block[16..144], None, values),
            Self::Q5K => super_block(block, &block[48..176], Some(&block[16..48]), values),
            Self::Q6K => six_bits(block, values),
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Elements `i` and `i + 16` are the low and the high half of byte `i`; bit `j` of `fifth` is above those of element
/// `j`.
fn nibbles(quants: &[u8], fifth: &[u8], values: &mut [f32], value: impl Fn(u8) -> f32) {
    let above = |element: usize| (fifth[element / 8] >> (element % 8) & 1) << 4;
    for (at, quant) in quants[..16].iter().enumerate() {
        values[at] = value(quant & 15 | above(at));
        values[at + 16] = value(quant >> 4 | above(at + 16));
    }
}

/// Eight groups of 32 elements, each with a scale and a minimum of 6 bits. Two groups share 32 bytes.
fn super_block(block: &[u8], quants: &[u8], fifth: Option<&[u8]>, values: &mut [f32]) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    for (group, values) in values.chunks_exact_mut(32).enumerate() {
        let (group_scale, group_least) = six_bit_pair(&block[4..16], group);
        let (scale, least) = (scale * f32::from(group_scale), least * f32::from(group_least));
        let quants = &quants[group / 2 * 32..][..32];
        for (at, value) in values.iter_mut().enumerate() {
            let low = quants[at] >> (group % 2 * 4) & 15;
            let high = fifth.map_or(0, |fifth| fifth[at] >> group & 1) << 4;
            *value = scale * f32::from(low | high) - least;
        }
    }
}

/// Returns the scale and the minimum of a group, 6 bits each, which 12 bytes hold for eight groups.
fn six_bit_pair(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let both = packed[group + 4];
    (both & 15 | packed[group - 4] >> 6 << 4, both >> 4 | packed[group] >> 6 << 4)
}

/// Sixteen groups of 16 elements with scales of 8 bits; elements have 4 low bits and 2 high ones.
fn six_bits(block: &[u8], values: &mut [f32]) {
    let (low, high, scales, scale) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (at, value) in values.iter_mut().enumerate() {
        let (part, within) = (at / 128, at % 128);
        let (row, column) = (within / 32, within % 32);
        let low = low[part * 64 + row % 2 * 32 + column] >> (row / 2 * 4) & 15;
        let high = high[part * 32 + column] >> (row * 2) & 3;
        let quant = (low | high << 4) as i8 - 32;
        *value = scale * f32::from(scales[at / 16] as i8) * f32::from(quant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block that begins with these numbers as f16, followed by bytes.
    fn block(halves: &[f32], bytes: &[u8]) -> Vec<u8> {
        let halves = halves.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes());
        halves.chain(bytes.iter().copied()).collect()
    }

    #[test]
    fn blocks_of_32_are_scaled_and_moved() {
        let mut quants = [0x53; 16];
        quants[1] = 0xf0;
        let four = Kind::Q4_0.values(&block(&[0.5], &quants));
        assert_eq!((four.len(), four[0], four[16], four[1], four[17]), (32, -2.5, -1.5, -4.0, 3.5));
        let four = Kind::Q4_1.values(&block(&[0.5, 10.0], &quants));
        assert_eq!([four[0], four[16], four[1], four[17]], [11.5, 12.5, 10.0, 17.5]);
        // The fifth bits of elements 1 and 16.
        let fifth = [2, 0, 1, 0];
        let five = Kind::Q5_0.values(&block(&[0.5], &[&fifth[..], &quants].concat()));
        assert_eq!([five[0], five[16], five[1], five[17]], [-6.5, 2.5, 0.0, -0.5]);
        let five = Kind::Q5_1.values(&block(&[0.5, 10.0], &[&fifth[..], &quants].concat()));
        assert_eq!([five[0], five[16], five[1], five[17]], [11.5, 20.5, 18.0, 17.5]);
        let mut eight = [0; 32];
        (eight[0], eight[31]) = (200, 100);
        let eight = Kind::Q8_0.values(&block(&[0.5], &eight));
        assert_eq!([eight[0], eight[1], eight[31]], [-28.0, 0.0, 50.0]);
    }

    /// Scales 1, 2, .. and minimums 8, 7, .. of eight groups, with 17 and 33 where six bits are needed.
    const SCALES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 33];
    const LEASTS: [u8; 8] = [8, 7, 6, 5, 4, 3, 17, 1];

    fn packed() -> [u8; 12] {
        let mut packed = [0; 12];
        for group in 0..4 {
            packed[group] = SCALES[group] | SCALES[group + 4] >> 4 << 6;
            packed[group + 4] = LEASTS[group] | LEASTS[group + 4] >> 4 << 6;
            packed[group + 8] = SCALES[group + 4] & 15 | LEASTS[group + 4] << 4;
        }
        packed
    }

    #[test]
    fn groups_of_super_blocks_have_scales_and_minimums_of_their_own() {
        let quants: Vec<u8> = (0..128).map(|at: u8| (at % 16) | ((at + 3) % 16) << 4).collect();
        let four = Kind::Q4K.values(&[block(&[0.5, 0.25], &packed()), quants.clone()].concat());
        let fifth: Vec<u8> = (0..32).map(|at| if at == 5 { 0b1000_0001 } else { 0 }).collect();
        let five = Kind::Q5K.values(&[block(&[0.5, 0.25], &packed()), fifth, quants.clone()].concat());
        assert_eq!((four.len(), five.len()), (256, 256));
        for at in 0..256 {
            let (group, within) = (at / 32, at % 32);
            let quant = quants[group / 2 * 32 + within] >> (group % 2 * 4) & 15;
            let (scale, least) = (0.5 * f32::from(SCALES[group]), 0.25 * f32::from(LEASTS[group]));
            assert_eq!(four[at], scale * f32::from(quant) - least, "{at}");
            let quant = if within == 5 && (group == 0 || group == 7) { quant + 16 } else { quant };
            assert_eq!(five[at], scale * f32::from(quant) - least, "{at}");
        }
    }

    #[test]
    fn six_bits_are_low_and_high_ones() {
        let expected: Vec<i8> = (0..256).map(|at| (at * 7 % 64) as i8 - 32).collect();
        let (mut low, mut high) = ([0u8; 128], [0u8; 64]);
        for (at, quant) in expected.iter().enumerate() {
            let (quant, part, row, column) = ((quant + 32) as u8, at / 128, at % 128 / 32, at % 32);
            low[part * 64 + row % 2 * 32 + column] |= (quant & 15) << (row / 2 * 4);
            high[part * 32 + column] |= quant >> 4 << (row * 2);
        }
        let scales: Vec<u8> = (0..16).map(|group| (group as i8 - 8) as u8).collect();
        let bytes = [&low[..], &high, &scales, &f16::from_f32(0.5).to_le_bytes()].concat();
        let values = Kind::Q6K.values(&bytes);
        for (at, value) in values.iter().enumerate() {
            assert_eq!(*value, 0.5 * f32::from((at / 16) as i8 - 8) * f32::from(expected[at]), "{at}");
        }
    }

    #[test]
    fn floats_are_themselves() {
        assert_eq!(Kind::F32.values(&1.5f32.to_le_bytes()), [1.5]);
        assert_eq!(Kind::F16.values(&block(&[-0.25], &[])), [-0.25]);
        assert_eq!(Kind::Bf16.values(&bf16::from_f32(3.0).to_le_bytes()), [3.0]);
        assert!(Kind::of(20).is_none());
    }
}
