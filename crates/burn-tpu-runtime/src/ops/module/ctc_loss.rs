//! The loss of connectionist temporal classification and its gradient: loops over time on log-probabilities of at least
//! f32.
//!
//! Dims used throughout: t time steps, n samples, c classes, and s = 2 labels + 1 states. The states are a target's
//! labels with a blank before, between and after them. An alignment is in one state at each step. It stays in the
//! state, moves to the next one, or skips a blank between two different labels. States after the end of a sample's
//! target are not connected to its own states.
//!
//! As in Burn's composition of other ops, a sample has at least one step, and the gradient is that of the loss with
//! respect to `log_probs` alone. (Other frameworks give the gradient after it has passed back through a preceding
//! `log_softmax`.) There are two differences from Burn's composition. A sample without any valid alignment has an
//! infinite loss and a gradient of zeros. Equally likely alignments all contribute to the gradient, while autodiff
//! selects one of two equal numbers as the larger.

use crate::Tensor;
use crate::ops::broken_rule;
use crate::trace::record;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, GatherAttrs, ScatterAttrs, ScatterMode, UnaryOp};
use burn_tpu_graph::{Builder, DType, Dims, NodeId, Result};

/// Computes the loss `[n]` of log-probabilities `[t, n, c]`, targets `[n, labels]`, and the lengths of both, `[n]`
/// each.
pub fn ctc_loss(operands: [&Tensor; 4], blank: usize) -> Tensor {
    record("ctc_loss", operands, |r, nodes| {
        let lattice = Lattice::new(r, nodes, blank)?;
        let (_, last) = lattice.forward(r)?;
        let likelihood = lattice.likelihood(r, last)?;
        let loss = r.unary(UnaryOp::Neg, likelihood)?;
        let loss = r.reshape(loss, &[lattice.n])?;
        r.convert(loss, operands[0].element())
    })
}

/// Computes the gradient `[t, n, c]` with respect to the log-probabilities. The last operand is the gradient of the
/// loss, `[n]`.
pub fn ctc_loss_backward(operands: [&Tensor; 5], blank: usize) -> Tensor {
    record("ctc_loss_backward", operands, |r, [log_probs, targets, input_lengths, target_lengths, grad]| {
        let lattice = Lattice::new(r, [log_probs, targets, input_lengths, target_lengths], blank)?;
        let posterior = lattice.posterior(r)?;
        let by_class = lattice.add_to_classes(r, posterior)?;
        let grad = r.convert(grad, lattice.dtype)?;
        let weight = r.unary(UnaryOp::Neg, grad)?;
        let weight = r.broadcast_in_dim(weight, &[lattice.t, lattice.n, lattice.c], &[1])?;
        let grad = r.binary(BinaryOp::Mul, by_class, weight)?;
        r.convert(grad, operands[0].element())
    })
}

/// The states of every sample's target, and their scores at each step.
struct Lattice {
    dtype: DType,
    t: usize,
    n: usize,
    c: usize,
    s: usize,
    /// The class of each state, `i32[n, s]`.
    labels: NodeId,
    /// The log-probability of each state's class, `[t, n, s]`.
    scores: NodeId,
    /// Whether the state can be entered from the state two before it, `i1[n, s]`.
    skips: NodeId,
    /// The number of steps of each sample, `i32[n, 1]`.
    steps: NodeId,
    /// The states in which an alignment may end, `i1[n, s]`: the last blank, and the last label if there is one.
    ends: [NodeId; 2],
}

impl Lattice {
    fn new<B: Builder>(g: &mut B, nodes: [NodeId; 4], blank: usize) -> Result<Self> {
        let [t, n, c, labels] = sizes(g, &nodes, blank)?;
        let [log_probs, targets, input_lengths, target_lengths] = nodes;
        let (dtype, s) = (g.dtype(log_probs).accumulator(), 2 * labels + 1);
        let log_probs = g.convert(log_probs, dtype)?;
        let column = |g: &mut B, lengths| {
            let lengths = g.convert(lengths, DType::I32)?;
            g.reshape(lengths, &[n, 1])
        };
        let (steps, target_lengths) = (column(g, input_lengths)?, column(g, target_lengths)?);
        let labels = between_blanks(g, targets, blank)?;
        Ok(Self {
            dtype,
            t,
            n,
            c,
            s,
            labels,
            scores: scores(g, log_probs, labels)?,
            skips: skips(g, labels, blank)?,
            steps: g.binary_const(BinaryOp::Max, steps, 1i64)?,
            ends: ends(g, target_lengths, s)?,
        })
    }

    /// Returns the log-probabilities of all paths to each state: at each step, `[t, n, s]`, and at a sample's last
    /// step, `[n, s]`.
    fn forward(&self, g: &mut impl Builder) -> Result<(NodeId, NodeId)> {
        // All paths start in state 0 before the first step, so they are in state 0 or 1 at the first step.
        let state = g.iota(DType::I32, &[self.n, self.s], 1)?;
        let first = g.compare_const(Direction::Eq, state, 0i64)?;
        let certain = g.splat(self.dtype, &[self.n, self.s], 0.0)?;
        let start = where_true(g, first, certain)?;
        let all = g.splat(self.dtype, &[self.t, self.n, self.s], 0.0)?;
        let carries = [start, all, self.scores, self.skips, self.steps];
        let [last, all, ..] = g.for_loop(self.t, carries, |g, t, [alpha, all, scores, skips, steps]| {
            let next = shifted(g, alpha, 1)?;
            let second = shifted(g, alpha, 2)?;
            let second = where_true(g, skips, second)?;
            let reached = log_add(g, alpha, next)?;
            let reached = log_add(g, reached, second)?;
            let score = row(g, scores, t)?;
            let reached = g.binary(BinaryOp::Add, reached, score)?;
            let runs = g.compare(Direction::Lt, t, steps)?;
            let alpha = g.select(runs, reached, alpha)?;
            Ok([alpha, with_row(g, all, alpha, t)?, scores, skips, steps])
        })?;
        Ok((all, last))
    }

    /// Returns the log-probability of each sample's target, `[n, 1]`.
    fn likelihood(&self, g: &mut impl Builder, last: NodeId) -> Result<NodeId> {
        let mut at = |end| {
            let found = where_true(g, end, last)?;
            let found = g.reduce(Combine::Max, found, &[1])?;
            g.reshape(found, &[self.n, 1])
        };
        let (blank, label) = (at(self.ends[0])?, at(self.ends[1])?);
        log_add(g, blank, label)
    }

    /// Returns the probability of each state at each step given the target, `[t, n, s]`. It is 0 after a sample's last
    /// step.
    fn posterior(&self, g: &mut impl Builder) -> Result<NodeId> {
        let (all, last) = self.forward(g)?;
        let likelihood = self.likelihood(g, last)?;
        // Without a valid alignment no state has one either, so its probability is exp(-inf) for any likelihood.
        let fits = g.compare_const(Direction::Ne, likelihood, f64::NEG_INFINITY)?;
        let anything = g.splat_like(likelihood, 0.0)?;
        let likelihood = g.select(fits, likelihood, anything)?;
        let end = g.binary(BinaryOp::Or, self.ends[0], self.ends[1])?;
        let certain = g.splat(self.dtype, &[self.n, self.s], 0.0)?;
        let end = where_true(g, end, certain)?;
        let carries = [end, all, self.scores, self.skips, self.steps, likelihood];
        let last_step = self.t as i64 - 1;
        // The loop runs backward in time. `beta` is the log-probability of all paths from a state to the end. Each row
        // of `all` is read and then overwritten.
        let [_, posterior, ..] = g.for_loop(self.t, carries, |g, trip, carries| {
            let [beta, all, scores, skips, steps, likelihood] = carries;
            let t = g.scalar(DType::I32, last_step)?;
            let t = g.binary(BinaryOp::Sub, t, trip)?;
            let runs = g.compare(Direction::Lt, t, steps)?;
            let alpha = row(g, all, t)?;
            let through = g.binary(BinaryOp::Add, alpha, beta)?;
            let given = g.binary(BinaryOp::Sub, through, likelihood)?;
            let posterior = g.unary(UnaryOp::Exp, given)?;
            let zero = g.splat_like(posterior, 0.0)?;
            let posterior = g.select(runs, posterior, zero)?;
            let score = row(g, scores, t)?;
            let here = g.binary(BinaryOp::Add, beta, score)?;
            let next = shifted(g, here, -1)?;
            let second = where_true(g, skips, here)?;
            let second = shifted(g, second, -2)?;
            let before = log_add(g, here, next)?;
            let before = log_add(g, before, second)?;
            let beta = g.select(runs, before, beta)?;
            Ok([beta, with_row(g, all, posterior, t)?, scores, skips, steps, likelihood])
        })?;
        Ok(posterior)
    }

    /// Sums over the states of a class: `[t, n, s]` to `[t, n, c]`.
    fn add_to_classes(&self, g: &mut impl Builder, values: NodeId) -> Result<NodeId> {
        let none = g.splat(self.dtype, &[self.t, self.n, self.c], 0.0)?;
        let attrs = ScatterAttrs {
            update_window_dims: Dims::from_slice(&[0]),
            inserted_window_dims: Dims::from_slice(&[2]),
            input_batching_dims: Dims::from_slice(&[1]),
            scatter_indices_batching_dims: Dims::from_slice(&[0]),
            scatter_dims_to_operand_dims: Dims::from_slice(&[2]),
            index_vector_dim: 2,
            mode: ScatterMode::Combine(Combine::Sum),
        };
        let labels = g.reshape(self.labels, &[self.n, self.s, 1])?;
        g.scatter(none, labels, values, attrs)
    }
}

/// Returns t, n, c and the length of the longest target, and rejects operands whose sizes do not match.
fn sizes(g: &impl Builder, nodes: &[NodeId; 4], blank: usize) -> Result<[usize; 4]> {
    let rejected = |rule: String| Err(broken_rule(g, "graph.for", nodes, rule));
    let dims = nodes.map(|node| g.dims(node));
    let ([t, n, c], [batch, labels], [inputs], [targets]) = (&dims[0][..], &dims[1][..], &dims[2][..], &dims[3][..])
    else {
        return rejected("takes [time, batch, classes], targets [batch, labels] and lengths [batch] of both".into());
    };
    if [batch, inputs, targets].iter().any(|&size| size != n) {
        return rejected(format!("the targets and both lengths must be of {n} samples"));
    }
    if *t == 0 || blank >= *c {
        return rejected(format!("takes a step or more, and a blank below {c}, not {blank}"));
    }
    Ok([*t, *n, *c, *labels])
}

/// Returns `[blank, label, blank, label, …, blank]` for each row, as i32.
fn between_blanks(g: &mut impl Builder, targets: NodeId, blank: usize) -> Result<NodeId> {
    let targets = g.convert(targets, DType::I32)?;
    let blank = g.scalar(DType::I32, blank as i64)?;
    let after = isize::from(g.dims(targets)[1] > 0);
    g.pad(targets, blank, &[0, 1], &[0, after], &[0, 1])
}

/// Returns the log-probability of each state's class at each step.
fn scores(g: &mut impl Builder, log_probs: NodeId, labels: NodeId) -> Result<NodeId> {
    let (t, dims) = (g.dims(log_probs)[0], g.dims(labels));
    let attrs = GatherAttrs {
        offset_dims: Dims::from_slice(&[0]),
        collapsed_slice_dims: Dims::from_slice(&[2]),
        operand_batching_dims: Dims::from_slice(&[1]),
        start_indices_batching_dims: Dims::from_slice(&[0]),
        start_index_map: Dims::from_slice(&[2]),
        index_vector_dim: 2,
        slice_sizes: Dims::from_slice(&[t, 1, 1]),
    };
    let labels = g.reshape(labels, &[dims[0], dims[1], 1])?;
    g.gather(log_probs, labels, attrs)
}

/// Returns whether a state holds a label that differs from the label two states before. (State 1 has no state two
/// before it.)
fn skips(g: &mut impl Builder, labels: NodeId, blank: usize) -> Result<NodeId> {
    let label = g.compare_const(Direction::Ne, labels, blank as i64)?;
    let fill = g.scalar(DType::I32, blank as i64)?;
    let before = g.pad(labels, fill, &[0, 2], &[0, -2], &[0, 0])?;
    let differs = g.compare(Direction::Ne, labels, before)?;
    g.binary(BinaryOp::And, label, differs)
}

/// Returns the states 2l and 2l - 1 of targets with l labels (`[n, 1]`).
fn ends(g: &mut impl Builder, target_lengths: NodeId, s: usize) -> Result<[NodeId; 2]> {
    let state = g.iota(DType::I32, &[1, s], 1)?;
    let blank = g.binary_const(BinaryOp::Mul, target_lengths, 2i64)?;
    let label = g.binary_const(BinaryOp::Sub, blank, 1i64)?;
    Ok([g.compare(Direction::Eq, state, blank)?, g.compare(Direction::Eq, state, label)?])
}

/// Returns `x` where the predicate is true, else -inf, the logarithm of 0.
fn where_true(g: &mut impl Builder, predicate: NodeId, x: NodeId) -> Result<NodeId> {
    let log_zero = g.splat_like(x, f64::NEG_INFINITY)?;
    g.select(predicate, x, log_zero)
}

/// Returns each row moved forward by `by` states (backward if negative), filled with -inf.
fn shifted(g: &mut impl Builder, x: NodeId, by: isize) -> Result<NodeId> {
    let log_zero = g.scalar(g.dtype(x), f64::NEG_INFINITY)?;
    let states = g.dims(x)[1] as isize;
    let by = by.clamp(-states, states);
    g.pad(x, log_zero, &[0, by], &[0, -by], &[0, 0])
}

/// Returns log(e^a + e^b). If both are -inf, the difference is NaN, and the sum is -inf.
fn log_add(g: &mut impl Builder, a: NodeId, b: NodeId) -> Result<NodeId> {
    let (high, low) = (g.binary(BinaryOp::Max, a, b)?, g.binary(BinaryOp::Min, a, b)?);
    let ratio = g.binary(BinaryOp::Sub, low, high)?;
    let ratio = g.unary(UnaryOp::Exp, ratio)?;
    let more = g.unary(UnaryOp::Log1p, ratio)?;
    let sum = g.binary(BinaryOp::Add, high, more)?;
    let both_zero = g.compare_const(Direction::Eq, high, f64::NEG_INFINITY)?;
    g.select(both_zero, high, sum)
}

/// Returns `x[t]` of `[t, n, s]`.
fn row(g: &mut impl Builder, x: NodeId, t: NodeId) -> Result<NodeId> {
    let (zero, dims) = (g.scalar(DType::I32, 0i64)?, g.dims(x));
    let row = g.dynamic_slice(x, &[t, zero, zero], &[1, dims[1], dims[2]])?;
    g.reshape(row, &dims[1..])
}

/// Returns `x` with `x[t] = row`.
fn with_row(g: &mut impl Builder, x: NodeId, row: NodeId, t: NodeId) -> Result<NodeId> {
    let (zero, dims) = (g.scalar(DType::I32, 0i64)?, g.dims(x));
    let row = g.reshape(row, &[1, dims[1], dims[2]])?;
    g.dynamic_update_slice(x, row, &[t, zero, zero])
}
