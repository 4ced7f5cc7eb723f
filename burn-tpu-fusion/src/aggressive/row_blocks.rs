//! A product over many classes, and all that is computed from it row by row, in blocks of rows: the loss of a language
//! model.
//!
//! The logits of a large vocabulary are the largest values of a training step: 1.5 GiB of f32 for 8,192 tokens and 50,304
//! classes, and half of that for their gradient. A loss and its gradient need the logits of one row at a time, so this pass
//! computes them in a loop over blocks of rows, forward and backward in the same trip:
//!
//! ```text
//! z = x w                                for each block of rows b:
//! loss = logsumexp(z) - gather(z, t)         z = x[b] w
//! dz = (softmax(z) - one_hot(t)) * g         loss[b] = logsumexp(z) - gather(z, t[b])
//! dx = dz w^T                                dz = (softmax(z) - one_hot(t[b])) * g[b]
//! dw = x^T dz                                dx[b] = dz w^T;  dw += x[b]^T dz
//! ```
//!
//! It knows no loss by its name. It finds a product of [`Sizes::least`] elements or more, and what is computed from it row
//! by row ([`region`]). For that it follows from op to op where the rows of each value are ([`split`]). It writes the loop
//! ([`emit`], [`body`]).
//!
//! Legality. Each row is computed by the same ops from the same numbers; the logits of 16-bit factors are rounded to 16 bits
//! once, after bias and cap, as a layer of 16 bits rounds its results. A sum over all rows is a sum of the blocks' sums,
//! in f32 or wider, so its last bits can differ. The product, or a value of as many elements, is read by nothing outside the
//! region (a program that returns its logits is left as it is), and nothing that a trip reads depends on another trip: the
//! gradient of the loss is known before the loss.
//!
//! When it is no loss: it is for memory. Each block reads the weights again, and reads and writes the sums. Not on a mesh: a
//! block of rows that several devices have would be moved to one of them.
//!
//! Gain: `docs/decisions/0037-the-loss-in-blocks-of-rows.md`.

mod body;
mod emit;
mod region;
mod split;

use crate::{Pass, Rewritten};
use burn_tpu_graph::{GraphError, Program};
use region::Region;

/// The pass that computes a loss in blocks of rows. See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowBlocks {
    sizes: Sizes,
}

/// From which size on a product is computed in blocks, and how large these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// The fewest elements of a product.
    least: usize,
    /// The most elements of a block of it, if the rows can be divided into so many equal blocks.
    block: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { least: 1 << 28, block: 1 << 27 }
    }
}

impl RowBlocks {
    /// Creates the pass for products of `least` elements or more, with blocks of at most `block`, for tests with small
    /// programs.
    #[doc(hidden)]
    pub fn of(least: usize, block: usize) -> Self {
        Self { sizes: Sizes { least, block } }
    }
}

impl Pass for RowBlocks {
    fn name(&self) -> &'static str {
        "row_blocks"
    }

    fn run(&self, program: &Program) -> Result<Rewritten, GraphError> {
        let mut rewritten = Rewritten { program: program.clone(), count: 0 };
        if program.mesh().is_some() {
            return Ok(rewritten);
        }
        while let Some(region) = Region::find(&rewritten.program, self.sizes) {
            rewritten.program = emit::emit(&rewritten.program, &region)?;
            rewritten.count += 1;
        }
        Ok(rewritten)
    }
}

#[cfg(test)]
mod tests;
