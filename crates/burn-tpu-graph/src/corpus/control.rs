//! Test cases for loops.

use super::{Cases, MOVED, Recorder};
use crate::op::{BinaryOp, Combine, UnaryOp};
use crate::{Builder, DType, NodeId, Result};

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for dtype in MOVED {
        // One carry that is negated in each trip: three trips equal one.
        cases.add(format!("loop/single/{dtype}"), |r| {
            let x = r.parameter(dtype, &[4])?;
            Ok(r.graph.for_loop(3, [x], |g, _, [x]| Ok([g.reverse(x, &[0])?]))?.into())
        })?;
    }
    for trips in [0, 1, 6] {
        cases.add(format!("loop/rows/{trips}"), |r| rows(r, trips))?;
    }
    for count in [-1i64, 0, 2, 9] {
        cases.add(format!("loop/at_most/{count}"), |r| at_most(r, count))?;
    }
    cases.add("loop/nested", nested)?;
    cases.add("loop/empty", |r| {
        let x = r.parameter(DType::F32, &[0, 3])?;
        Ok(r.graph.for_loop(2, [x], |g, _, [x]| Ok([g.unary(UnaryOp::Exp, x)?]))?.into())
    })
}

/// Running sums of the rows, each written over its row; one carry that passes through unchanged, and one that nothing reads.
fn rows(r: &mut Recorder, trips: usize) -> Result<Vec<NodeId>> {
    let (x, scale) = (r.parameter(DType::F32, &[6, 5])?, r.slot(DType::F32)?);
    let (sum, unread) = (r.graph.splat(DType::F32, &[5], 0.0)?, r.parameter(DType::I32, &[2])?);
    let last = r.graph.for_loop(trips, [x, scale, sum, unread], |g, trip, [x, scale, sum, _]| {
        let zero = g.scalar(DType::I32, 0i64)?;
        let row = g.dynamic_slice(x, &[trip, zero], &[1, 5])?;
        let row = g.reshape(row, &[5])?;
        let scaled = g.binary(BinaryOp::Mul, row, scale)?;
        let sum = g.binary(BinaryOp::Add, sum, scaled)?;
        let update = g.reshape(sum, &[1, 5])?;
        let x = g.dynamic_update_slice(x, update, &[trip, zero])?;
        Ok([x, scale, sum, g.splat(DType::I32, &[2], 7i64)?])
    })?;
    Ok(last.into())
}

/// As many trips as a scalar says, at most 5. Each doubles a value and adds its number to another.
fn at_most(r: &mut Recorder, count: i64) -> Result<Vec<NodeId>> {
    let (x, sum) = (r.parameter(DType::F32, &[2])?, r.graph.scalar(DType::I32, 0i64)?);
    // A slot is positive.
    let (slot, more) = (r.slot(DType::I32)?, r.graph.scalar(DType::I32, count)?);
    let nothing = r.graph.binary_const(BinaryOp::Mul, slot, 0i64)?;
    let count = r.graph.binary(BinaryOp::Add, nothing, more)?;
    let last = r.graph.for_loop_at_most((count, 5), [x, sum], |g, trip, [x, sum]| {
        Ok([g.binary(BinaryOp::Add, x, x)?, g.binary(BinaryOp::Add, sum, trip)?])
    })?;
    Ok(last.into())
}

/// A loop inside a loop, around an op with a region. Each outer trip adds the sum of the inner trips' counters.
fn nested(r: &mut Recorder) -> Result<Vec<NodeId>> {
    let (x, count) = (r.parameter(DType::F32, &[3, 4])?, r.graph.scalar(DType::I32, 0i64)?);
    let outer = r.graph.for_loop(2, [x, count], |g, _, [x, count]| {
        let [x, count] = g.for_loop(3, [x, count], |g, trip, [x, count]| {
            let largest = g.reduce(Combine::Max, x, &[1])?;
            let largest = g.broadcast_in_dim(largest, &[3, 4], &[0])?;
            Ok([g.binary(BinaryOp::Sub, x, largest)?, g.binary(BinaryOp::Add, count, trip)?])
        })?;
        Ok([g.unary(UnaryOp::Tanh, x)?, count])
    })?;
    Ok(outer.into())
}
