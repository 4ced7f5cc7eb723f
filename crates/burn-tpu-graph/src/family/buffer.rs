//! Values in larger buffers, on the host: their elements are at the first indices of each axis.

use crate::TensorType;
use std::ops::Range;

/// Copies the elements of a row-major value between its own bytes and those of a larger one, whose first indices it has:
/// `copy` takes the places of a run of elements in both.
fn each_run(ty: &TensorType, larger: &TensorType, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
    let size = ty.dtype.size_bytes();
    if ty.elements() == 0 {
        return;
    }
    // The axes from `whole` on are as large in both, so their elements are one run with an axis before them.
    let rank = ty.dims.len();
    let whole = (0..rank).rev().take_while(|&axis| ty.dims[axis] == larger.dims[axis]).last().unwrap_or(rank);
    let outer = whole.saturating_sub(1);
    let run = ty.dims[outer..].iter().product::<usize>() * size;
    let step = larger.dims[outer..].iter().product::<usize>() * size;
    let mut index = vec![0; outer];
    for number in 0..ty.dims[..outer].iter().product() {
        let mut place = 0;
        for (axis, &at) in index.iter().enumerate() {
            place = place * larger.dims[axis] + at;
        }
        copy(number * run..(number + 1) * run, place * step..place * step + run);
        for axis in (0..outer).rev() {
            index[axis] += 1;
            if index[axis] < ty.dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Returns the bytes of a larger value, which has these elements at the first indices of each axis, and zeros elsewhere.
///
/// # Panics
/// If the value does not fit.
pub fn in_buffer(bytes: &[u8], ty: &TensorType, larger: &TensorType) -> Vec<u8> {
    let mut padded = vec![0; larger.bytes()];
    each_run(ty, larger, |own, place| padded[place].copy_from_slice(&bytes[own]));
    padded
}

/// Returns the bytes of a value whose elements are at the first indices of a larger one.
///
/// # Panics
/// If it is not larger.
pub fn out_of_buffer(bytes: &[u8], ty: &TensorType, larger: &TensorType) -> Vec<u8> {
    let mut part = vec![0; ty.bytes()];
    each_run(ty, larger, |own, place| part[own].copy_from_slice(&bytes[place]));
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn a_value_makes_the_round_trip_through_a_larger_buffer() {
        let sizes: [(&[usize], &[usize]); 6] = [
            (&[3], &[8]),
            (&[2, 3, 2], &[4, 3, 2]),
            (&[2, 3, 2], &[2, 5, 2]),
            (&[2, 3, 2], &[4, 5, 4]),
            (&[2, 0], &[2, 8]),
            (&[2, 2], &[2, 2]),
        ];
        for (dims, larger) in sizes {
            let [ty, larger] = [dims, larger].map(|dims| TensorType::new(DType::U16, dims));
            let bytes: Vec<u8> = (1..=ty.bytes() as u8).collect();
            let padded = in_buffer(&bytes, &ty, &larger);
            assert_eq!(padded.iter().filter(|&&byte| byte != 0).count(), bytes.len());
            assert_eq!(out_of_buffer(&padded, &ty, &larger), bytes, "{ty} in {larger}");
        }
        let [ty, larger] = [[2, 2], [3, 4]].map(|dims| TensorType::new(DType::U8, dims));
        assert_eq!(in_buffer(&[1, 2, 3, 4], &ty, &larger), [1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0]);
    }
}
