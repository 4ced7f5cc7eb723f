//! What a decoder learns from: texts and conversations as tokens, in rows of one length.
//!
//! Owns: which tokens are learned, how examples share rows, and the loss of a batch. May not know: optimizers and
//! loops, which are those of any Burn model.

mod batch;
mod example;
mod rows;

pub use batch::{Batch, RouterLoss};
pub use example::Example;
pub use rows::{Row, Rows};
