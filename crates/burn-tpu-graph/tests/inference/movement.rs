//! Ops that move, repeat, drop or transform whole dims.

use super::{accepts, refuses, ty};
use burn_tpu_graph::op::{FftKind, PadAttrs, SliceAttrs};
use burn_tpu_graph::{DType, Dims, Op, TensorType};

fn dims(sizes: &[usize]) -> Dims {
    Dims::from_slice(sizes)
}

#[test]
fn iota_counts_along_a_dim_of_numbers() {
    let iota = |text: &str, dim| Op::Iota { ty: ty(text), dim };
    accepts(iota("i32[2,0]", 1), "", "i32[2,0]");
    accepts(iota("bf16[1]", 0), "", "bf16[1]");
    refuses(iota("i32[]", 0), "", "out of range");
    refuses(iota("i1[2]", 0), "", "not i1");
}

#[test]
fn broadcast_in_dim_repeats_ones_and_new_dims() {
    let broadcast = |to: &[usize], mapping: &[usize]| Op::BroadcastInDim { dims: dims(to), mapping: dims(mapping) };
    accepts(broadcast(&[2, 3], &[]), "f32[]", "f32[2,3]");
    accepts(broadcast(&[4, 2, 3], &[1, 2]), "f32[2,1]", "f32[4,2,3]");
    accepts(broadcast(&[0, 3], &[0, 1]), "f32[1,3]", "f32[0,3]");
    refuses(broadcast(&[2, 3], &[0]), "f32[2,3]", "the mapping has 1 entries");
    refuses(broadcast(&[2, 3], &[1]), "f32[2]", "size 2 cannot be broadcast");
    refuses(broadcast(&[2, 3], &[0]), "f32[0]", "size 0 cannot be broadcast");
    refuses(broadcast(&[3, 2], &[1, 0]), "f32[2,3]", "must increase");
    refuses(broadcast(&[2, 2], &[0, 0]), "f32[2,2]", "named twice");
    refuses(broadcast(&[2], &[1]), "f32[2]", "out of range");
}

#[test]
fn reshape_keeps_the_number_of_elements() {
    let reshape = |to: &[usize]| Op::Reshape { dims: dims(to) };
    accepts(reshape(&[]), "f32[1,1]", "f32[]");
    accepts(reshape(&[1, 6]), "f32[2,3]", "f32[1,6]");
    accepts(reshape(&[7, 0]), "f32[0]", "f32[7,0]");
    refuses(reshape(&[]), "f32[0]", "0 elements cannot take");
    refuses(reshape(&[5]), "f32[2,3]", "6 elements cannot take");
    refuses(reshape(&[usize::MAX, usize::MAX]), "f32[1]", "1 elements cannot take");
    refuses(reshape(&[0, usize::MAX]), "f32[0]", "larger than");
}

#[test]
fn transpose_and_reverse_name_each_dim_once() {
    let transpose = |p: &[usize]| Op::Transpose { permutation: dims(p) };
    accepts(transpose(&[2, 0, 1]), "i8[2,0,4]", "i8[4,2,0]");
    accepts(transpose(&[]), "f32[]", "f32[]");
    refuses(transpose(&[0]), "f32[2,3]", "permutation has 1 entries");
    refuses(transpose(&[0, 0]), "f32[2,3]", "named twice");
    refuses(transpose(&[0, 2]), "f32[2,3]", "out of range");
    let reverse = |d: &[usize]| Op::Reverse { dims: dims(d) };
    accepts(reverse(&[1, 0]), "i1[0,3]", "i1[0,3]");
    refuses(reverse(&[1, 1]), "f32[2,3]", "named twice");
    refuses(reverse(&[0]), "f32[]", "out of range");
}

#[test]
fn slices_are_in_range() {
    let slice = |start: &[usize], limit: &[usize], stride: &[usize]| {
        Op::Slice(Box::new(SliceAttrs { start: dims(start), limit: dims(limit), stride: dims(stride) }))
    };
    accepts(slice(&[1, 0], &[4, 3], &[2, 1]), "f32[5,3]", "f32[2,3]");
    accepts(slice(&[2], &[2], &[1]), "f32[2]", "f32[0]");
    accepts(slice(&[0], &[0], &[3]), "f32[0]", "f32[0]");
    accepts(slice(&[], &[], &[]), "f32[]", "f32[]");
    accepts(slice(&[0], &[5], &[9]), "f32[5]", "f32[1]");
    refuses(slice(&[0], &[6], &[1]), "f32[5]", "is out of range for size 5");
    refuses(slice(&[3], &[2], &[1]), "f32[5]", "is out of range for size 5");
    refuses(slice(&[0], &[5], &[0]), "f32[5]", "is out of range for size 5");
    refuses(slice(&[0, 0], &[5], &[1]), "f32[5]", "start has 2 entries");
    refuses(slice(&[0], &[5], &[]), "f32[5]", "stride has 0 entries");
}

#[test]
fn pads_add_and_crop() {
    let pad = |low: &[isize], high: &[isize], interior: &[usize]| {
        Op::Pad(Box::new(PadAttrs { low: low.into(), high: high.into(), interior: dims(interior) }))
    };
    accepts(pad(&[1], &[2], &[3]), "f32[4] f32[]", "f32[16]");
    accepts(pad(&[-1, 0], &[-1, 0], &[0, 5]), "i1[2,1] i1[]", "i1[0,1]");
    accepts(pad(&[2], &[0], &[9]), "f32[0] f32[]", "f32[2]");
    accepts(pad(&[], &[], &[]), "f32[] f32[]", "f32[]");
    refuses(pad(&[-3], &[0], &[0]), "f32[2] f32[]", "negative size");
    refuses(pad(&[0], &[0], &[0]), "f32[2] f32[1]", "must be f32[]");
    refuses(pad(&[0], &[0], &[0]), "f32[2] bf16[]", "must be f32[]");
    refuses(pad(&[0], &[0], &[usize::MAX]), "f32[3] f32[]", "overflows");
    refuses(pad(&[0, 0], &[0], &[0]), "f32[2] f32[]", "low has 2 entries");
}

#[test]
fn concatenation_joins_along_one_dim() {
    let concatenate = |dim| Op::Concatenate { dim };
    accepts(concatenate(1), "f32[2,3] f32[2,0] f32[2,1]", "f32[2,4]");
    accepts(concatenate(0), "i1[0]", "i1[0]");
    refuses(concatenate(0), "f32[] f32[]", "out of range");
    refuses(concatenate(0), "f32[2,3] f32[2,1]", "agree but along dim 0");
    refuses(concatenate(0), "f32[2] f64[2]", "agree but along");
    refuses(concatenate(0), "f32[2] f32[2,1]", "agree but along");
}

#[test]
fn transforms_check_the_last_dim_against_their_length() {
    let fft = |kind, length| Op::Fft { kind, length };
    accepts(fft(FftKind::Rfft, 6), "f32[2,6]", "complex<f32>[2,4]");
    accepts(fft(FftKind::Rfft, 7), "f32[0,7]", "complex<f32>[0,4]");
    accepts(fft(FftKind::Irfft, 6), "complex<f32>[4]", "f32[6]");
    accepts(fft(FftKind::Fft, 1), "complex<f32>[1]", "complex<f32>[1]");
    accepts(fft(FftKind::Ifft, 5), "complex<f32>[5]", "complex<f32>[5]");
    refuses(fft(FftKind::Rfft, 6), "f32[5]", "last dim of 6");
    refuses(fft(FftKind::Rfft, 6), "f64[6]", "takes f32 with");
    refuses(fft(FftKind::Fft, 0), "complex<f32>[0]", "of length 0");
    refuses(fft(FftKind::Fft, 1), "complex<f32>[]", "needs a dim");
}

#[test]
fn random_bits_come_from_a_state_of_two_words() {
    let rng = |dtype| Op::RngBitGenerator { ty: TensorType::new(dtype, [0, 3]) };
    accepts(rng(DType::U32), "ui64[2]", "ui64[2] ui32[0,3]");
    accepts(rng(DType::U64), "ui64[2]", "ui64[2] ui64[0,3]");
    refuses(rng(DType::F32), "ui64[2]", "draws ui32 or ui64");
    refuses(rng(DType::U32), "ui64[3]", "must be ui64[2]");
    refuses(rng(DType::U32), "i64[2]", "must be ui64[2]");
}
