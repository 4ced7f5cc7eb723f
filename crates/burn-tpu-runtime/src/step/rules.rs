//! The rules of optimizers: what a step takes from a tensor of parameters, and what it keeps of it.
//!
//! Owns: the formulas, and the state of each. May not know: masters, weight decay, scales of gradients, and where a
//! parameter is. All is f32.

use super::arithmetic::{add, at_least, broadcast, div, mul, neg, plus, sign, sqrt, times};
use super::eight_bits::Code;
use super::optimizer::Numbers;
use crate::Tensor;
use crate::ops::matmul::matmul;
use crate::ops::movement::{reshape, transpose};
use crate::ops::reduce::{mean_dim, sum_dim};

/// What is added to squares of gradients ([Shazeer and Stern](https://arxiv.org/abs/1804.04235), epsilon 1).
const LEAST_SQUARE: f32 = 1e-30;
/// The least size that a step is a share of (epsilon 2 there).
const LEAST_SIZE: f32 = 1e-3;
/// The coefficients of the iteration that orthogonalises ([Jordan et al.](https://kellerjordan.github.io/posts/muon/)).
const QUINTIC: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Its steps.
const ITERATIONS: usize = 5;

/// What is done with one tensor of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// [Loshchilov and Hutter](https://arxiv.org/abs/1711.05101).
    AdamW,
    /// The same, with moments of 8 bits ([Dettmers et al.](https://arxiv.org/abs/2110.02861)).
    AdamW8Bits,
    /// [Chen et al.](https://arxiv.org/abs/2302.06675)
    Lion,
    /// [Shazeer and Stern](https://arxiv.org/abs/1804.04235), without momentum.
    Adafactor,
    /// [Jordan et al.](https://kellerjordan.github.io/posts/muon/), with the size of AdamW's steps ([Liu et
    /// al.](https://arxiv.org/abs/2502.16982)).
    Muon,
}

/// The numbers of the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) betas: [f32; 2],
    pub(super) epsilon: f32,
    pub(super) momentum: f32,
}

impl Rule {
    /// Returns the names of what is kept of a tensor with these dims, of which the first `layers` are stacked layers.
    pub(super) fn fields(self, dims: &[usize], layers: usize) -> &'static [&'static str] {
        match self {
            Self::AdamW => &["moment_1", "moment_2"],
            Self::AdamW8Bits => &["moment_1", "moment_1_scales", "moment_2", "moment_2_scales"],
            Self::Lion | Self::Muon => &["moment_1"],
            Self::Adafactor if dims.len() >= layers + 2 => &["row_moment_2", "column_moment_2"],
            Self::Adafactor => &["moment_2"],
        }
    }

    /// Returns whether each element is updated by itself, so that tensors can share one.
    pub(super) fn is_elementwise(self) -> bool {
        matches!(self, Self::AdamW | Self::Lion)
    }

    /// Returns the state before the first step, all zeros.
    pub(super) fn start(self, parameter: &Tensor, layers: usize) -> Vec<Tensor> {
        // Made of the parameter, so that they are split over a mesh as it is.
        let zeros = || times(parameter.clone(), 0.0);
        let rank = parameter.dims().len();
        match self {
            Self::AdamW => vec![zeros(), zeros()],
            Self::AdamW8Bits => {
                [Code::Signed, Code::Unsigned].into_iter().flat_map(|code| code.encode(zeros())).collect()
            }
            Self::Lion | Self::Muon => vec![zeros()],
            Self::Adafactor if rank >= layers + 2 => vec![mean_dim(zeros(), rank - 1), mean_dim(zeros(), rank - 2)],
            Self::Adafactor => vec![zeros()],
        }
    }

    /// Returns what a rate of 1 takes from a parameter, and the next state.
    pub(super) fn step(
        self,
        settings: &Settings,
        parameter: &Tensor,
        layers: usize,
        gradient: Tensor,
        state: &[Tensor],
        numbers: &Numbers,
    ) -> (Tensor, Vec<Tensor>) {
        match (self, state) {
            (Self::AdamW, [first, second]) => {
                let moments = [first, second].map(Tensor::clone);
                let (change, moments) = adam(settings, gradient, moments, numbers);
                (change, moments.into())
            }
            (Self::AdamW8Bits, [first, first_scales, second, second_scales]) => {
                let dims = gradient.dims().to_vec();
                let moments = [
                    Code::Signed.decode(first, first_scales, &dims),
                    Code::Unsigned.decode(second, second_scales, &dims),
                ];
                let (change, [first, second]) = adam(settings, gradient, moments, numbers);
                (change, [Code::Signed.encode(first), Code::Unsigned.encode(second)].concat())
            }
            (Self::Lion, [moment]) => {
                let [look, keep] = settings.betas;
                let change = sign(mixed(moment.clone(), look, gradient.clone()));
                (change, vec![mixed(moment.clone(), keep, gradient)])
            }
            (Self::Adafactor, state) => adafactor(parameter, layers, gradient, state, numbers),
            (Self::Muon, [moment]) => muon(settings, gradient, moment),
            // A state of another length is none of this rule's.
            (_, state) => (times(gradient, 0.0), state.to_vec()),
        }
    }
}

/// Returns `beta * moment + (1 - beta) * new`.
fn mixed(moment: Tensor, beta: f32, new: Tensor) -> Tensor {
    add(times(moment, beta), times(new, 1.0 - beta))
}

fn adam(settings: &Settings, gradient: Tensor, moments: [Tensor; 2], numbers: &Numbers) -> (Tensor, [Tensor; 2]) {
    let [first, second] = moments;
    let first = mixed(first, settings.betas[0], gradient.clone());
    let second = mixed(second, settings.betas[1], mul(gradient.clone(), gradient));
    let rank = first.dims().len();
    let corrected = |moment: &Tensor, at: usize| match numbers.factors.get(at) {
        Some(correction) => div(moment.clone(), broadcast(correction, rank)),
        None => moment.clone(),
    };
    let root = sqrt(corrected(&second, 1));
    let change = div(corrected(&first, 0), plus(root, settings.epsilon));
    (change, [first, second])
}

fn adafactor(
    parameter: &Tensor,
    layers: usize,
    gradient: Tensor,
    state: &[Tensor],
    numbers: &Numbers,
) -> (Tensor, Vec<Tensor>) {
    let rank = gradient.dims().len();
    let squares = plus(mul(gradient.clone(), gradient.clone()), LEAST_SQUARE);
    // 1 - t^-0.8 of the mean stays, so the first step forgets the zeros.
    let new = numbers.factors.first().map(|share| broadcast(share, rank));
    let averaged = |old: &Tensor, squares: Tensor| match &new {
        Some(new) => add(mul(old.clone(), plus(neg(new.clone()), 1.0)), mul(squares, new.clone())),
        None => squares,
    };
    let (second, state) = match state {
        [rows, columns] => {
            let rows = averaged(rows, mean_dim(squares.clone(), rank - 1));
            let columns = averaged(columns, mean_dim(squares, rank - 2));
            let shares = div(rows.clone(), mean_dim(rows.clone(), rank - 2));
            (mul(shares, columns.clone()), vec![rows, columns])
        }
        [whole, ..] => {
            let whole = averaged(whole, squares);
            (whole.clone(), vec![whole])
        }
        [] => (squares, vec![]),
    };
    let update = div(gradient, sqrt(second));
    // No larger than 1 in the mean, and a share of the parameter's own size.
    let update = div(update.clone(), at_least(size(update, layers), 1.0));
    (mul(update, at_least(size(parameter.clone(), layers), LEAST_SIZE)), state)
}

/// Returns the root mean square of the elements of each layer, dims of size 1.
fn size(x: Tensor, layers: usize) -> Tensor {
    let rank = x.dims().len();
    sqrt((layers..rank).fold(mul(x.clone(), x), mean_dim))
}

fn muon(settings: &Settings, gradient: Tensor, moment: &Tensor) -> (Tensor, Vec<Tensor>) {
    let moment = add(times(moment.clone(), settings.momentum), gradient.clone());
    // Nesterov's: where the next step would look.
    let look = add(times(moment.clone(), settings.momentum), gradient);
    let rank = look.dims().len();
    let (rows, columns) = (look.dims()[rank - 2], look.dims()[rank - 1]);
    let is_tall = rows > columns;
    let mut x = if is_tall { transpose(look) } else { look };
    let squares = sum_dim(sum_dim(mul(x.clone(), x.clone()), rank - 1), rank - 2);
    x = div(x, plus(sqrt(squares), 1e-7));
    let product = |x: &Tensor, y: &Tensor| matmul("optimizer", x.clone(), y.clone());
    let [linear, cubic, quintic] = QUINTIC;
    for _ in 0..ITERATIONS {
        let square = product(&x, &transpose(x.clone()));
        let more = add(times(square.clone(), cubic), times(product(&square, &square), quintic));
        x = add(times(x.clone(), linear), product(&more, &x));
    }
    let x = if is_tall { transpose(x) } else { x };
    (times(x, 0.2 * (rows.max(columns) as f32).sqrt()), vec![moment])
}

/// Returns `[..]` as one dim.
pub(super) fn flat(x: Tensor) -> Tensor {
    let count = x.dims().iter().product();
    reshape(x, &[count])
}
