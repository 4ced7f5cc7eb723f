//! Moments of 8 bits: blocks of 2,048 elements, each with a scale, in the dynamic type of [Dettmers et
//! al.](https://arxiv.org/abs/2110.02861), section 1.3 and 2.
//!
//! A magnitude is a share of its block's largest. The type has seven decades from 1e-6 to 1; each has twice as many
//! values as the one below it, at the middles of equal ranges from a tenth of the decade to all of it. Beside these
//! there are 0 and 1. So the nearest value is found by arithmetic, without a table.

use super::arithmetic::{add, at_least, at_most, compared, div, mul, neg, plus, sub, times};
use super::rules::flat;
use crate::Tensor;
use crate::ops::arithmetic::{abs, cast, mask_fill, mask_where, unary};
use crate::ops::movement::{Slice, cat, reshape, slice};
use crate::ops::{data, reduce};
use burn_tpu_graph::op::{Direction, UnaryOp};
use burn_tpu_graph::{DType, Number};

/// The elements that share a scale.
const BLOCK: usize = 2048;
const DECADES: i32 = 7;

/// How a byte is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Code {
    /// -127 to 128, plus 127; 128 is 1, which has no negative.
    Signed,
    /// 0 to 255, where 255 is 1.
    Unsigned,
}

/// A decade of each element: where its numbers begin, how many there are, and its upper end.
struct Decade {
    first: Tensor,
    count: Tensor,
    end: Tensor,
}

impl Code {
    /// Returns the numbers of values in a decade, and the number of its first one.
    fn decade(self, at: i32) -> (f32, f32) {
        let least = match self {
            Self::Signed => 1.0,
            Self::Unsigned => 2.0,
        };
        let count = least * 2f32.powi(at);
        (count, count - least + 1.0)
    }

    /// Returns the smallest magnitude that is nearer to a decade's first value than to what is below it.
    fn begin(self, at: i32) -> f32 {
        let (count, _) = self.decade(at);
        let first = 10f64.powi(at - DECADES + 1) * (0.1 + 0.45 / f64::from(count));
        let below = match at {
            0 => 0.0,
            _ => 10f64.powi(at - DECADES) * (1.0 - 0.45 / f64::from(self.decade(at - 1).0)),
        };
        ((first + below) / 2.0) as f32
    }

    /// The number of 1.
    fn one(self) -> f32 {
        let (count, first) = self.decade(DECADES - 1);
        first + count
    }

    /// Returns the decade of each element: the last one whose `begin` it is not below.
    fn decades(self, x: &Tensor, begin: impl Fn(i32) -> f32) -> Decade {
        let (count, first) = self.decade(0);
        let fill = |number: f32| plus(times(x.clone(), 0.0), number);
        let mut decade = Decade { first: fill(first), count: fill(count), end: fill(10f32.powi(1 - DECADES)) };
        for at in 1..DECADES {
            let (count, first) = self.decade(at);
            let is_above = compared(x.clone(), Direction::Ge, begin(at));
            let set = |old: Tensor, number: f32| mask_fill(old, is_above.clone(), Number::Float(f64::from(number)));
            decade.first = set(decade.first, first);
            decade.count = set(decade.count, count);
            decade.end = set(decade.end, 10f32.powi(at + 1 - DECADES));
        }
        decade
    }

    /// Returns bytes `[blocks, 2048]` and scales `[blocks, 1]` in f32.
    pub(super) fn encode(self, x: Tensor) -> Vec<Tensor> {
        let x = blocks(x);
        let scales = reduce::max_abs_dim(x.clone(), 1);
        // A block of zeros has zeros whatever it is divided by.
        let share = div(x.clone(), at_least(scales.clone(), f32::MIN_POSITIVE));
        let size = abs(share.clone());
        let Decade { first, count, end } = self.decades(&size, |at| self.begin(at));
        let place = mul(plus(times(div(size.clone(), end), 1.0 / 0.9), -0.1 / 0.9), count.clone());
        let place = at_least(unary("optimizer", UnaryOp::Floor, place), 0.0);
        let number = add(first, minimum(place, plus(count, -1.0)));
        let none = compared(size.clone(), Direction::Lt, self.begin(0));
        let number = mask_fill(number, none, Number::Float(0.0));
        let (last, _) = self.decade(DECADES - 1);
        let to_one = (2.0 - 0.45 / last) / 2.0;
        let number = match self {
            Self::Unsigned => {
                let is_one = compared(size, Direction::Ge, to_one);
                mask_fill(number, is_one, Number::Float(f64::from(self.one())))
            }
            Self::Signed => {
                let is_one = compared(share.clone(), Direction::Ge, to_one);
                let is_negative = compared(share, Direction::Lt, 0.0);
                let number = mask_where(number.clone(), is_negative, neg(number));
                plus(mask_fill(number, is_one, Number::Float(f64::from(self.one()))), 127.0)
            }
        };
        vec![cast(number, DType::U8), scales]
    }

    /// Returns the numbers, with these dims.
    pub(super) fn decode(self, bytes: &Tensor, scales: &Tensor, dims: &[usize]) -> Tensor {
        let byte = cast(bytes.clone(), DType::F32);
        let number = match self {
            Self::Signed => plus(byte, -127.0),
            Self::Unsigned => byte,
        };
        let size = abs(number.clone());
        let Decade { first, count, end } = self.decades(&size, |at| self.decade(at).1);
        let place = div(plus(sub(size.clone(), first), 0.5), count);
        let value = mul(plus(times(place, 0.9), 0.1), end);
        let value = mask_fill(value, compared(size.clone(), Direction::Lt, 0.5), Number::Float(0.0));
        let value = mask_fill(value, compared(size, Direction::Ge, self.one()), Number::Float(1.0));
        let is_negative = compared(number, Direction::Lt, 0.0);
        let value = mul(mask_where(value.clone(), is_negative, neg(value)), scales.clone());
        let count: usize = dims.iter().product();
        reshape(slice(flat(value), &[Slice { range: 0..count, step: 1 }]), dims)
    }
}

/// Divides the elements into blocks, `[blocks, 2048]`; zeros follow the last one.
fn blocks(x: Tensor) -> Tensor {
    let flat = flat(x);
    let count = flat.dims()[0];
    let missing = count.next_multiple_of(BLOCK) - count;
    let filled = match missing {
        0 => flat,
        _ => {
            let zeros = data::splat("optimizer", &[missing], DType::F32, 0, &flat.device());
            cat(vec![flat, zeros], 0)
        }
    };
    reshape(filled, &[count.div_ceil(BLOCK), BLOCK])
}

fn minimum(x: Tensor, y: Tensor) -> Tensor {
    let over = at_most(sub(y, x.clone()), 0.0);
    add(x, over)
}
