//! The loss of connectionist temporal classification: Burn's composition of ops, in f32 for 16-bit floats, since each step
//! over time adds to the logarithms of the step before. Its steps are unrolled into the program.

use crate::backend::{TpuFloat, TpuInt};
use crate::ops::{arithmetic, broken_rule};
use crate::trace::record;
use crate::{Tpu, TpuTensor};
use burn_backend::ops::ctc::ctc_loss_default;

/// Log-probabilities `[time, batch, classes]`, targets `[batch, labels]`, lengths of both `[batch]`; a loss `[batch]`.
pub(super) fn ctc_loss<F: TpuFloat, I: TpuInt>(
    log_probs: &TpuTensor,
    targets: TpuTensor,
    input_lengths: TpuTensor,
    target_lengths: TpuTensor,
    blank: usize,
) -> TpuTensor {
    let dtype = log_probs.element();
    let wide = record("ctc_loss", [log_probs, &targets, &input_lengths, &target_lengths], |r, nodes| {
        if nodes.map(|node| r.rank(node)) != [3, 2, 1, 1] {
            let rule = "takes [time, batch, classes], targets [batch, labels] and lengths [batch] of both";
            return Err(broken_rule(r, "gather", &nodes, rule));
        }
        r.convert(nodes[0], dtype.accumulator())
    });
    let loss = ctc_loss_default::<Tpu<F, I>>(wide, targets, input_lengths, target_lengths, blank);
    arithmetic::cast(loss, dtype)
}
