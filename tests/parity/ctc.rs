//! The loss of connectionist temporal classification and its gradient, compared with Burn's composition of other ops on
//! burn-ndarray, which autodiff differentiates there.

use crate::case::{Operand, Values};
use crate::compare::Class::Contraction;
use crate::feed::Feed;
use crate::harness::{Ours, Row, law, row};
use crate::run;
use crate::strategies::*;
use crate::version::{Autodiff, TpuDevice};
use burn_backend::ops::{ActivationOps, FloatTensorOps, ModuleOps};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Backend, IntDType};
use proptest::prelude::*;

/// The attributes of a batch. Its targets repeat labels; their lengths go from zero to the longest that fits.
#[derive(Clone, Copy, Debug)]
struct Batch {
    samples: usize,
    classes: usize,
    labels: usize,
    /// The number of steps of the longest input.
    steps: usize,
    blank: usize,
    /// An offset from which the lengths of a sample's input and target are derived.
    shift: usize,
}

/// Whether all inputs are long enough for their labels with a blank around each, or have any length.
#[derive(Clone, Copy, PartialEq)]
enum Inputs {
    Fitting,
    Any,
}

fn batches(inputs: Inputs) -> Cases<Batch> {
    let attr = (1..=3usize, 2..=4usize, 0..=3usize, 0..=3usize, 0..=3usize, 0..=5usize).prop_map(
        move |(samples, classes, labels, spare, blank, shift)| {
            let least = if inputs == Inputs::Fitting { 2 * labels + 1 } else { 1 };
            Batch { samples, classes, labels, steps: least + spare, blank: blank % classes, shift }
        },
    );
    let cases = (types(), pool(moderate()), attr).prop_map(|(types, values, batch)| {
        let scores = operand(types, &[batch.steps, batch.samples, batch.classes], &values);
        case(types, vec![untied(scores)], batch)
    });
    single(cases.sboxed())
}

/// Returns scores for which no two alignments are equally likely: with ties the composition's gradient is that of only one
/// of them, since it takes the larger of two numbers.
fn untied(mut scores: Operand) -> Operand {
    if let Values::Float(values) = &mut scores.values {
        values.iter_mut().enumerate().for_each(|(k, value)| *value += (1.3 * k as f64).sin() / 5.0);
    }
    scores
}

impl Batch {
    /// Returns a length up to the batch's number of labels.
    fn target_length(&self, sample: usize) -> usize {
        (sample + self.shift) % (self.labels + 1)
    }

    /// Returns the number of steps: two per label and one in a batch that fits; otherwise any number, also zero.
    fn input_length(&self, sample: usize) -> usize {
        let least = if self.steps > 2 * self.labels { (2 * self.target_length(sample) + 1).min(self.steps) } else { 0 };
        least + (2 * sample + self.shift) % (self.steps - least + 1)
    }

    /// Returns one of two labels, which alternate, each twice.
    fn label(&self, place: usize) -> usize {
        (self.blank + 1 + place / 2 % (self.classes - 1)) % self.classes
    }
}

impl<B: Backend> Feed<'_, B, Batch> {
    fn whole(&self, values: impl Iterator<Item = usize>, dims: &[usize]) -> IntTensor<B> {
        let values: Vec<_> = values.map(|v| v as i128).collect();
        self.load_int_as(self.int_type_for(IntDType::I32), &values, dims)
    }

    /// Returns the targets, and the lengths of inputs and targets.
    fn labels(&self) -> [IntTensor<B>; 3] {
        let (batch, samples) = (self.attr, self.attr.samples);
        let targets = self.whole((0..samples * batch.labels).map(|k| batch.label(k)), &[samples, batch.labels]);
        let inputs = self.whole((0..samples).map(|sample| batch.input_length(sample)), &[samples]);
        [targets, inputs, self.whole((0..samples).map(|sample| batch.target_length(sample)), &[samples])]
    }

    fn loss<D: Backend<IntTensorPrimitive = IntTensor<B>>>(&self, log_probs: FloatTensor<D>) -> FloatTensor<D> {
        let [targets, inputs, lengths] = self.labels();
        D::ctc_loss(log_probs, targets, inputs, lengths, self.attr.blank)
    }

    /// Returns the log-probabilities of `x`.
    fn log_probs(&self) -> FloatTensor<B> {
        B::log_softmax(self.x(0), 2)
    }

    /// Adds the gradient with respect to the log-probabilities, computed by `by` from one with respect to the loss.
    fn gradient(&mut self, by: fn(&Self, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>) {
        let grad = self.eighths(&[self.attr.samples]);
        let gradient = by(self, self.log_probs(), grad);
        self.float(gradient);
    }
}

/// Returns the gradient that autodiff computes.
fn derived<B: Backend>(t: &Feed<'_, B, Batch>, log_probs: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let log_probs = Autodiff::<B>::float_set_require_grad(Autodiff::<B>::from_inner(log_probs), true);
    let loss = t.loss::<Autodiff<B>>(log_probs.clone());
    let weighted = Autodiff::<B>::float_mul(loss, Autodiff::<B>::from_inner(grad));
    let gradients = Autodiff::<B>::backward(Autodiff::<B>::float_sum(weighted));
    Autodiff::<B>::grad(&log_probs, &gradients).expect("a gradient")
}

fn native(t: &Feed<'_, Ours, Batch>, log_probs: FloatTensor<Ours>, grad: FloatTensor<Ours>) -> FloatTensor<Ours> {
    let [targets, inputs, lengths] = t.labels();
    Ours::ctc_loss_backward(log_probs, targets, inputs, lengths, grad, t.attr.blank)
}

#[rustfmt::skip]
pub fn rows() -> Vec<Row> {
    vec![
        row("ctc_loss", Contraction, batches(Inputs::Fitting), run!(|t| t.float(t.loss::<B>(t.log_probs())))),
        // Most of these have no alignment, and therefore an infinite loss.
        row("ctc_loss", Contraction, batches(Inputs::Any), run!(|t| t.float(t.loss::<B>(t.log_probs())))),
        row("ctc_loss_backward", Contraction, batches(Inputs::Fitting), run!(
            |t| t.gradient(native), = |t| t.gradient(derived)
        )),
        law("has_ctc_loss_backward", backend_has_the_gradient),
    ]
}

#[rustfmt::skip]
pub fn gradients() -> Vec<Row> {
    vec![row("ctc_loss", Contraction, batches(Inputs::Fitting), run!(|t| t.grad(|t, [x]| {
        t.loss::<Autodiff<B>>(Autodiff::<B>::log_softmax(x, 2))
    })))]
}

/// Checks that the backend has the op itself: autodiff calls `ctc_loss_backward` only then.
fn backend_has_the_gradient(_: TpuDevice) {
    assert!(Ours::has_ctc_loss_backward());
}
