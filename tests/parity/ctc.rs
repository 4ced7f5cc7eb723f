//! The loss of connectionist temporal classification and its gradient through autodiff: Burn composes both of other
//! ops.

use crate::compare::Class::Contraction;
use crate::feed::Feed;
use crate::harness::{Ours, Row, law, row};
use crate::run;
use crate::strategies::*;
use burn::backend::Autodiff;
use burn_backend::ops::ModuleOps;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{Backend, IntDType};
use burn_tpu::TpuDevice;
use proptest::prelude::*;

/// Samples, classes, the longest target. The longest input has a blank around each label and one to spare.
type Sizes = [usize; 3];

fn sizes() -> Cases<Sizes> {
    let attr = [1..=2usize, 2..=3usize, 1..=2usize];
    let cases = (types(), pool(moderate()), attr).prop_map(|(types, values, [n, c, s])| {
        case(types, vec![operand(types, &[2 * s + 2, n, c], &values)], [n, c, s])
    });
    single(cases.sboxed())
}

impl<B: Backend> Feed<'_, B, Sizes> {
    fn whole(&self, values: impl Iterator<Item = usize>, dims: &[usize]) -> IntTensor<B> {
        let values: Vec<_> = values.map(|v| v as i128).collect();
        self.load_int_as(self.int_type_for(IntDType::I32), &values, dims)
    }

    /// The loss of log-probabilities `[t, n, c]`; the blank is class 0.
    fn loss<D: Backend<IntTensorPrimitive = IntTensor<B>>>(&self, scores: FloatTensor<D>) -> FloatTensor<D> {
        let [n, c, s] = self.attr;
        let targets = self.whole((0..n * s).map(|k| 1 + k % (c - 1)), &[n, s]);
        let inputs = self.whole((0..n).map(|k| 2 * s + 2 - k), &[n]);
        let lengths = self.whole((0..n).map(|k| (s - k % 2).max(1)), &[n]);
        D::ctc_loss(D::log_softmax(scores, 2), targets, inputs, lengths, 0)
    }
}

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        row("ctc_loss", Contraction, sizes(), run!(|t| t.float(t.loss::<B>(t.x(0))))),
        law("has_ctc_loss_backward", none_of_its_own),
        law("ctc_loss_backward", none_of_its_own),
    ]
}

#[rustfmt::skip]
pub fn gradients() -> Vec<Row> {
    vec![row("ctc_loss", Contraction, sizes(), run!(|t| t.grad(|t, [x]| t.loss::<Autodiff<B>>(x))))]
}

/// Autodiff calls `ctc_loss_backward` only where a backend says that it has one.
fn none_of_its_own(_: TpuDevice) {
    assert!(!Ours::has_ctc_loss_backward());
}
