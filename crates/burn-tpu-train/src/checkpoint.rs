//! What is saved: the parts of a run, by name.
//!
//! Owns the capture, which copies nothing. May not know where files are.

use crate::error::{CheckpointError, Result};
use crate::manifest::Random;
use crate::{tree, version};
use burn_tpu::{TpuDevice, TpuTensor};
use ciborium::Value;
use serde::{Deserialize, Serialize};

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Model,
    Optimizer,
    Scheduler,
    Value,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Model => "model",
            Kind::Optimizer => "optimizer",
            Kind::Scheduler => "scheduler",
            Kind::Value => "value",
        }
    }
}

/// A part of a checkpoint without its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckpointPart {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Everything that is no tensor.
    pub(crate) tree: Value,
}

/// The state of a run after a step, for [`Checkpointer::save`](crate::Checkpointer::save). Each part has a name, under
/// which [`Restored`](crate::Restored) returns it; parts with tensors are files of this name.
///
/// A part is captured when it is named here: it is what it was then, whatever the next steps do. Nothing is copied yet.
#[derive(Debug)]
#[must_use = "`Checkpointer::save` saves it"]
pub struct Checkpoint {
    pub(crate) step: u64,
    pub(crate) random: Vec<Random>,
    pub(crate) parts: Vec<(CheckpointPart, Vec<(String, TpuTensor)>)>,
    /// Why a part could not be captured.
    error: Option<CheckpointError>,
}

impl Checkpoint {
    /// Returns a checkpoint without parts, of the state after this many steps.
    pub fn new(step: u64) -> Self {
        Self { step, random: Vec::new(), parts: Vec::new(), error: None }
    }

    /// Adds a value of the program's own: the position in the data, the best loss so far.
    pub fn value<T: Serialize>(self, name: &str, value: &T) -> Self {
        let tree = tree::to_tree(name, value);
        self.with(name, Kind::Value, tree.map(|tree| (tree, Vec::new())))
    }

    /// Adds where a device is in its random numbers, so that dropout goes on with the draws that come next.
    pub fn random(mut self, device: &TpuDevice) -> Self {
        let (key, counter) = version::random_state(device);
        self.random.push(Random { device: device.to_string(), key, counter });
        self
    }

    pub(crate) fn with(mut self, name: &str, kind: Kind, taken: Result<(Value, Vec<(String, TpuTensor)>)>) -> Self {
        match taken.and_then(|taken| self.check(name).map(|()| taken)) {
            Ok((tree, tensors)) => self.parts.push((CheckpointPart { name: name.to_owned(), kind, tree }, tensors)),
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }

    fn check(&self, name: &str) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_new = self.parts.iter().all(|(part, _)| part.name != name);
        if is_new && !name.is_empty() && name.chars().all(is_plain) {
            return Ok(());
        }
        Err(CheckpointError::Name(name.to_owned()))
    }

    /// Ends the step on the devices of all tensors, so that every tensor has a value or is being computed.
    ///
    /// # Errors
    /// That of a part which could not be captured.
    pub(crate) fn captured(mut self) -> Result<Self> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut devices: Vec<TpuDevice> = Vec::new();
        for (_, tensor) in self.parts.iter().flat_map(|(_, tensors)| tensors) {
            let device = version::device_of(tensor);
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices.into_iter().for_each(|device| device.mark_step());
        Ok(self)
    }
}
