//! Repeated pieces become loops: a recording of equal time steps is rolled into the counted loop `Op::For`.
//!
//! A lazy backend records a loop over time unrolled, as one copy of its step per time step. XLA's compile time grows with
//! the square of a program's length, and its unrolled code is slower than a loop. This pass finds the copies:
//!
//! ```text
//! h1 = cell(slice(x, 0), h0)            h, ys = for t in 0..n { carries h, ys, w, x
//! y1 = dynamic_update_slice(y0, h1, 0)      h = cell(dynamic_slice(x, t), h)
//! h2 = cell(slice(x, 1), h1)        ->      ys = dynamic_update_slice(ys, h, t)
//! y2 = dynamic_update_slice(y1, h2, 1)  }
//! …
//! ```
//!
//! How it finds them:
//! 1. [`sequence`] removes duplicates and sets aside the leaves: inputs, constants, and what only moves their elements. The
//!    other nodes are the *members*, in the order of the recording.
//! 2. [`period`] finds ranges of members whose ops and types repeat with a period.
//! 3. [`piece`] compares the operands of consecutive copies. An operand is a member of the same copy or of the one before,
//!    the same value for all copies, an integer that grows by a constant, or what an earlier loop computed in the trip that
//!    belongs to this copy, in any order. The longest runs of copies for which that holds become loops.
//! 4. [`carries`] decides what a loop returns: the last value of a member, or a buffer with its value of each trip.
//! 5. [`emit`] writes the new program.
//!
//! # Why it is exact
//! A loop runs the same ops on the same operands in the same order, so each value has the same bits, whatever the operands
//! are. Nodes of the same op and operands are one node, whose bits are the same. A slice that moves begins at places that
//! all copies name, so no start is clamped, and an integer that grows is one that all copies name, so it does not wrap.
//! First and last copies that differ (a zero state, the first term of a sum) stay outside. Copies that read parameters of
//! their own, such as a transformer's layers, are not rolled: their operands follow no rule of step 3.
//!
//! Gain: `docs/decisions/0013-repeated-pieces-are-rolled.md`.

mod body;
mod carries;
mod emit;
mod period;
mod piece;
mod sequence;

use crate::{Pass, Rewritten};
use burn_tpu_graph::{GraphError, Program};
use piece::Loops;
use sequence::Sequence;

/// The least number of members that a loop replaces. A shorter repetition compiles in a second or two without a loop.
const MIN_MEMBERS: usize = 256;

/// The least number for a loop that reads what an earlier loop computed in each trip. Unrolled, each of these reads is a
/// slice of a buffer.
const MIN_SCANNING_MEMBERS: usize = MIN_MEMBERS / 8;

/// The least trip count. A loop of few trips saves little, and XLA fuses nothing across its trips.
const MIN_TRIPS: usize = 8;

/// The pass that rolls repeated pieces. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roll;

impl Pass for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut result = Rewritten { program: program.clone(), count: 0 };
        // Loops can be what repeats in turn.
        while let Some((program, loops)) = roll(&result.program)? {
            result = Rewritten { program, count: result.count + loops };
        }
        Ok(result)
    }
}

/// Returns the program with its repetitions as loops and the number of these, or `None` if nothing repeats.
fn roll(program: &Program) -> Result<Option<(Program, usize)>, GraphError> {
    if program.graph().len() < MIN_MEMBERS {
        return Ok(None);
    }
    let sequence = Sequence::new(program)?;
    let loops = Loops::find(&sequence);
    if loops.is_empty() {
        return Ok(None);
    }
    let rolled = emit::emit(&sequence, &loops)?;
    // A value of one trip that is read outside becomes a slice of a buffer. Many such values could outweigh the loops.
    let replaced: usize = loops.iter().map(|found| found.end() - found.start).sum();
    let is_shorter = rolled.graph().len() + replaced / 2 <= sequence.graph().len();
    Ok(is_shorter.then_some((rolled, loops.len())))
}

#[cfg(test)]
mod tests;
