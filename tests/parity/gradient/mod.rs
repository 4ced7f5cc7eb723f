//! Gradients through `Autodiff<Tpu<f32>>` compared with those through `Autodiff<NdArray<f32>>`, for the ops that autodiff
//! differentiates. Each result is multiplied by weights before it is summed, so that the gradients of its elements differ.

mod elementwise;
mod moves;

use crate::case::Values;
use crate::ctc;
use crate::feed::Feed;
use crate::harness::Row;
use crate::strategies::*;
use crate::version::Autodiff;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, Backend, TensorMetadata};
use proptest::prelude::*;

pub fn rows() -> Vec<Row> {
    [elementwise::rows(), moves::rows(), ctc::gradients()].into_iter().flatten().collect()
}

pub type Graded<B> = FloatTensor<Autodiff<B>>;

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    /// Adds the gradients of `f` with respect to the first `N` operands.
    pub fn grad<const N: usize>(&mut self, f: impl FnOnce(&Self, [Graded<B>; N]) -> Graded<B>) {
        self.grad_of(std::array::from_fn(|k| k), f);
    }

    /// Adds the gradients of `f` with respect to these operands.
    fn grad_of<const N: usize>(&mut self, leaves: [usize; N], f: impl FnOnce(&Self, [Graded<B>; N]) -> Graded<B>) {
        let leaf = |k| Autodiff::<B>::float_set_require_grad(Autodiff::<B>::from_inner(self.x(k)), true);
        let leaves = leaves.map(leaf);
        let y = f(self, leaves.clone());
        let weights = self.eighths(&y.shape().to_vec());
        let weighted = Autodiff::<B>::float_mul(y, Autodiff::<B>::from_inner(weights));
        let gradients = Autodiff::<B>::backward(Autodiff::<B>::float_sum(weighted));
        for leaf in &leaves {
            self.float(Autodiff::<B>::grad(leaf, &gradients).expect("a gradient for each leaf"));
        }
    }
}

/// Odd sixteenths from -4 to 4: no zeros, no kinks, no ties with an eighth.
fn smooth() -> Gen<f64> {
    (-32..32i32).prop_map(|n| f64::from(2 * n + 1) / 16.0).sboxed()
}

/// Odd sixteenths above 0.
fn positive() -> Gen<f64> {
    (0..32i32).prop_map(|n| f64::from(2 * n + 1) / 16.0).sboxed()
}

/// Odd thirty-seconds within (-1, 1).
fn inside() -> Gen<f64> {
    (-15..15i32).prop_map(|n| f64::from(2 * n + 1) / 32.0).sboxed()
}

fn of(value: Gen<f64>) -> Cases<()> {
    single(one_shaped(value, full_shape(1), Just(())))
}

/// Values that are all distinct, so that orders and extremes are unique.
fn distinct() -> Cases<usize> {
    let cases = one_dim(smooth(), full_shape(1)).prop_map(|mut case| {
        if let Values::Float(values) = &mut case.operands[0].values {
            let count = values.len();
            values.iter_mut().enumerate().for_each(|(k, v)| *v = *v / 64.0 + ((k * 7919) % count) as f64);
        }
        case
    });
    single(cases.sboxed())
}

fn along() -> Cases<usize> {
    single(one_dim(smooth(), full_shape(1)))
}

fn pair(x: Gen<f64>, y: Gen<f64>) -> Cases<()> {
    single(two_shaped(x, y, full_shape(1)))
}

/// Two operands of the same dims: burn-ndarray's gradients of some ops do not broadcast.
fn alike(x: Gen<f64>, y: Gen<f64>) -> Cases<()> {
    only(pair(x, y), "the same dims", |case| case.operands[0].dims == case.operands[1].dims)
}

/// The cases in f32, without scalars: autodiff's broadcasts begin at rank 1, as Burn's tensors do.
fn ranked<A: Clone + std::fmt::Debug + 'static>(cases: Cases<A>) -> Cases<A> {
    only(single(cases), "at least one dim", |case| !case.operands[0].dims.is_empty())
}
