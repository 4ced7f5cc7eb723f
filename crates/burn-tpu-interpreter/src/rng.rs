//! XLA's `THREE_FRY` bit generator, bit for bit: Threefry 2x32 with 20 rounds, key and counter of 64 bits.
//!
//! The layout follows XLA's expander (`xla/hlo/builder/lib/prng.cc`): a 64-bit number takes one block; 32-bit numbers
//! split one dim into halves, and the two words of a block are neighbours along it.

use super::buffer::Element;
use super::error::Result;
use super::tensor::HostTensor;
use burn_tpu_graph::{DType, Dims, TensorType};

/// Returns the next state and bits of type `ty`, from the state `[key, counter]`.
pub(super) fn rng_bit_generator(state: &HostTensor, ty: &TensorType) -> Result<[HostTensor; 2]> {
    let state = state.elements::<u64>()?;
    let &[key, counter] = &*state else { return Err("the state must be a key and a counter".into()) };
    let (blocks, bits) = match ty.dtype {
        DType::U64 => draw(ty, ty.elements(), |i| word64(block(key, counter.wrapping_add(i as u64)))),
        DType::U32 => draw32(key, counter, ty),
        other => return Err(format!("cannot draw {other}").into()),
    };
    let next = HostTensor::new(&[2], vec![key, counter.wrapping_add(blocks as u64)]);
    Ok([next, bits])
}

fn draw<T: Element>(ty: &TensorType, blocks: usize, word: impl Fn(usize) -> T) -> (usize, HostTensor) {
    (blocks, HostTensor::new(&ty.dims, (0..ty.elements()).map(word).collect()))
}

fn draw32(key: u64, counter: u64, ty: &TensorType) -> (usize, HostTensor) {
    let Some(split) = split_dim(&ty.dims) else { return draw(ty, 1, |_| block(key, counter)[0]) };
    let (size, half) = (ty.dims[split], ty.dims[split].div_ceil(2));
    let inner: usize = ty.dims[split + 1..].iter().product();
    let blocks: usize = ty.dims[..split].iter().product::<usize>() * half * inner;
    let words: Vec<[u32; 2]> = (0..blocks as u64).map(|i| block(key, counter.wrapping_add(i))).collect();
    // Element [outer, i, inner] is word i % 2 of block [outer, i / 2, inner].
    let word = |element: usize| {
        let (outer, i, within) = (element / (size * inner), element / inner % size, element % inner);
        words[(outer * half + i / 2) * inner + within][i % 2]
    };
    draw(ty, blocks, word)
}

/// Returns the first even dim; if there is none, the first of the largest.
fn split_dim(dims: &Dims) -> Option<usize> {
    let even = dims.iter().position(|size| size % 2 == 0);
    even.or_else(|| (0..dims.len()).rev().max_by_key(|&d| dims[d]))
}

fn word64([low, high]: [u32; 2]) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// One block of Threefry 2x32-20 (Salmon et al., 2011).
fn block(key: u64, counter: u64) -> [u32; 2] {
    const PARITY: u32 = 0x1BD1_1BDA;
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let (low, high) = (key as u32, (key >> 32) as u32);
    let keys = [low, high, PARITY ^ low ^ high];
    let mut x = (counter as u32).wrapping_add(keys[0]);
    let mut y = ((counter >> 32) as u32).wrapping_add(keys[1]);
    for group in 0..5 {
        for rotation in ROTATIONS[group % 2] {
            x = x.wrapping_add(y);
            y = y.rotate_left(rotation) ^ x;
        }
        x = x.wrapping_add(keys[(group + 1) % 3]);
        y = y.wrapping_add(keys[(group + 2) % 3]).wrapping_add(group as u32 + 1);
    }
    [x, y]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{tensor, values};
    use super::*;

    fn draw(key: u64, counter: u64, dtype: DType, dims: &[usize]) -> ([u64; 2], HostTensor) {
        let state = tensor(&[2], &[key, counter]);
        let [next, bits] = rng_bit_generator(&state, &TensorType::new(dtype, dims)).unwrap();
        (values::<u64>(&next).try_into().unwrap(), bits)
    }

    fn draw_u32(key: u64, counter: u64, dims: &[usize]) -> ([u64; 2], Vec<u32>) {
        let (next, bits) = draw(key, counter, DType::U32, dims);
        (next, values(&bits))
    }

    const KEY: u64 = 0x1234_5678_9abc_def0;

    // All vectors below come from XLA's CPU client (jax 0.10.2).
    #[test]
    fn words_of_a_block_are_neighbours() {
        let drawn = draw_u32(42, 7, &[4]);
        assert_eq!(drawn, ([42, 9], vec![0x9d838665, 0xcceb7411, 0x1546f0b3, 0x677f2006]));
    }

    #[test]
    fn an_odd_size_drops_a_word() {
        assert_eq!(draw_u32(42, 7, &[3]), ([42, 9], vec![0x9d838665, 0xcceb7411, 0x1546f0b3]));
    }

    #[test]
    fn the_largest_odd_dim_is_split_and_the_counter_wraps() {
        let expected = [
            0x3c3b507a, 0x7093e72c, 0xa4317ba7, 0x21f1aaca, 0x5eff803d, 0x394bdefc, 0x64dfd0ae, 0x523f5786, 0x4028dd8d,
            0x553d0168, 0x1f390015, 0xf9d09cb9, 0x81171b02, 0x41fa7d1c, 0x8393e486,
        ];
        assert_eq!(draw_u32(KEY, u64::MAX - 1, &[3, 5]), ([KEY, 7], expected.to_vec()));
    }

    #[test]
    fn the_first_even_dim_is_split() {
        let expected = [
            0x9d838665, 0xcceb7411, 0x1546f0b3, 0x677f2006, 0xfbb22ba6, 0x3c3fd877, 0x2193f28b, 0xf2dde175, 0x26f37c79,
            0xbddcf77b, 0x9f83204b, 0x3574c115,
        ];
        assert_eq!(draw_u32(42, 7, &[3, 4]), ([42, 13], expected.to_vec()));
    }

    #[test]
    fn a_scalar_takes_a_block() {
        assert_eq!(draw_u32(42, 7, &[]), ([42, 8], vec![0x9d838665]));
    }

    #[test]
    fn sixty_four_bits_take_a_block_each() {
        let (next, bits) = draw(KEY, u64::MAX - 1, DType::U64, &[3]);
        assert_eq!(next, [KEY, 1]);
        assert_eq!(values::<u64>(&bits), [0x7093e72c3c3b507a, 0x21f1aacaa4317ba7, 0x4ce380f95eff803d]);
        assert_eq!(values::<u64>(&draw(42, 7, DType::U64, &[]).1), [0xcceb74119d838665]);
    }

    #[test]
    fn an_empty_draw_keeps_the_counter() {
        assert_eq!(draw_u32(42, 7, &[0, 3]), ([42, 7], vec![]));
        assert_eq!(draw_u32(42, 7, &[3, 0]), ([42, 7], vec![]));
    }
}
