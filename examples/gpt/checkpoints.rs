//! What a run saves beside its model and optimizer, so that it goes on when it is started again. The position in the text is
//! the number of steps: every batch is chosen by its number.

use crate::report::HeldOut;
use crate::train::Options;
use anyhow::{Context, Result};
use burn_tpu_train::Checkpointer;
use serde::{Deserialize, Serialize};

/// What was measured so far.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The loss of each step.
    pub losses: Vec<f64>,
    pub held_out: Vec<HeldOut>,
}

/// Opens the folder of checkpoints, if the run saves some.
pub fn open(options: &Options) -> Result<Option<Checkpointer>> {
    if options.checkpoint_every == 0 {
        return Ok(None);
    }
    let opened = Checkpointer::open(options.out.join("checkpoints"));
    opened.map(Some).with_context(|| format!("a run in `{}` cannot save checkpoints", options.out.display()))
}
