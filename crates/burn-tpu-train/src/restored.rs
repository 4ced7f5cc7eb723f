//! A checkpoint that was read: its parts, for the models, optimizers and schedules of a new process.

use crate::checkpoint::{CheckpointPart, Kind};
use crate::error::{CheckpointError, Damage, Differences, Result};
use crate::manifest::{Manifest, Random};
use crate::parameters::Parameter;
use crate::tensor_file::{self, StoredTensor, describe};
use crate::{layer_forms, tree, version};
use burn_tpu::{TpuDevice, TpuTensor};
use ciborium::Value;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The file with everything that is no tensor: parts with their kinds, as CBOR.
pub(crate) const STATE: &str = "state.cbor";

/// A checkpoint, read and found intact. Its methods load each part into what the program has built anew; the names are those
/// that [`Checkpoint`](crate::Checkpoint) gave them.
///
/// Tensors are read from the files when they are loaded, one at a time.
#[derive(Debug)]
pub struct Restored {
    path: PathBuf,
    manifest: Manifest,
    parts: Vec<CheckpointPart>,
    is_partial: bool,
}

impl Restored {
    /// Reads one checkpoint: a folder `step-…`. No lock is needed, so that it may be of a run that is going on.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if it is not what was written, [`CheckpointError::Version`] for another format.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let manifest = Manifest::read(&path)?;
        let damaged = |reason: String| CheckpointError::Damaged(Damage { path: path.clone(), reason });
        let named = |name: &str| path.file_name().is_some_and(|found| found.to_string_lossy() == name);
        let name = crate::folder::name(manifest.step);
        if !named(&name) {
            return Err(damaged(format!("it is `{name}` by its manifest: the folder was renamed")));
        }
        for file in &manifest.files {
            file.verify(&path).map_err(damaged)?;
        }
        let state = fs::read(path.join(STATE)).map_err(|error| damaged(format!("`{STATE}`: {error}")))?;
        let parts = ciborium::from_reader(&state[..]).map_err(|error| damaged(format!("`{STATE}`: {error}")))?;
        Ok(Self { path, manifest, parts, is_partial: false })
    }

    /// Takes the tensors that fit and leaves the others as they are, with a warning that lists the differences. Without
    /// this, any difference is an error.
    pub fn partial(self) -> Self {
        Self { is_partial: true, ..self }
    }

    /// Returns the number of steps that were taken when it was saved.
    pub fn step(&self) -> u64 {
        self.manifest.step
    }

    /// Returns the checkpoint's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a part's tensors for those that are expected, on the device of each.
    pub(crate) fn matching(&self, part: &str, expected: Vec<(String, TpuTensor)>) -> Result<Vec<(String, TpuTensor)>> {
        let mut found = self.tensors(part)?;
        let shapes: Vec<_> = expected.iter().map(|(name, like)| (name.clone(), version::type_of(like).1)).collect();
        layer_forms::adapt(&mut found, &shapes);
        let mut differences = Differences::default();
        let mut fitting = Vec::with_capacity(expected.len());
        for (name, like) in expected {
            match found.remove(&name) {
                None => differences.missing.push(name),
                Some(saved) if (saved.dtype, saved.shape.clone()) == version::type_of(&like) => {
                    fitting.push((name, like, saved));
                }
                Some(saved) => {
                    differences.different.push(format!(
                        "{name} ({} instead of {})",
                        saved.describe(),
                        described(&like)
                    ));
                }
            }
        }
        differences.unexpected = found.into_keys().collect();
        self.accept(part, differences)?;
        let uploaded =
            |(name, like, saved): (String, TpuTensor, StoredTensor)| Ok((name, like.with_data(saved.data()?)?));
        fitting.into_iter().map(uploaded).collect()
    }

    /// Returns a value of the program's own.
    ///
    /// # Errors
    /// [`CheckpointError::Record`] for a value of another type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        tree::from_tree(name, &self.part(name, Kind::Value)?.tree)
    }

    /// Sets the device's random numbers to where they were. Call it after the models are loaded: a new model draws its
    /// first weights.
    ///
    /// # Errors
    /// [`CheckpointError::NoPart`] if the checkpoint has the random numbers of several devices, and not of this one.
    pub fn random(&self, device: &TpuDevice) -> Result<()> {
        let saved = &self.manifest.random;
        let (name, same) = (device.to_string(), saved.iter().find(|random| random.device == device.to_string()));
        let only = saved.first().filter(|_| saved.len() == 1);
        let Some(&Random { key, counter, .. }) = same.or(only) else {
            let known = saved.iter().map(|random| random.device.clone()).collect();
            return Err(CheckpointError::NoPart { path: self.path.clone(), kind: "random state", part: name, known });
        };
        version::set_random_state(device, (key, counter));
        Ok(())
    }

    pub(crate) fn part(&self, name: &str, kind: Kind) -> Result<&CheckpointPart> {
        let of_kind = || self.parts.iter().filter(|part| part.kind == kind);
        of_kind().find(|part| part.name == name).ok_or_else(|| CheckpointError::NoPart {
            path: self.path.clone(),
            kind: kind.name(),
            part: name.to_owned(),
            known: of_kind().map(|part| part.name.clone()).collect(),
        })
    }

    /// Returns the tensors of a part by name.
    pub(crate) fn tensors(&self, name: &str) -> Result<HashMap<String, StoredTensor>> {
        let file = format!("{name}{}", tensor_file::ENDING);
        if self.manifest.files.iter().all(|known| known.name != file) {
            return Ok(HashMap::new());
        }
        tensor_file::read(&self.path.join(&file)).map_err(|reason| {
            let reason = format!("`{file}` is not a file of tensors: {reason}");
            CheckpointError::Damaged(Damage { path: self.path.clone(), reason })
        })
    }

    /// Refuses differences, unless what fits is enough.
    pub(crate) fn accept(&self, name: &str, mut differences: Differences) -> Result<()> {
        let Differences { missing, unexpected, different } = &mut differences;
        [missing, unexpected, different].into_iter().for_each(|names| names.sort_unstable());
        if differences.is_empty() {
            return Ok(());
        }
        if self.is_partial {
            tracing::warn!(path = %self.path.display(), "the part `{name}` is loaded in part{differences}");
            return Ok(());
        }
        let (path, part) = (self.path.clone(), name.to_owned());
        Err(CheckpointError::Mismatch { path, part, differences: Box::new(differences) })
    }
}

/// Returns how the state of an optimizer differs from what the parameters of a model can have.
pub(crate) fn differences_of_state(
    tree: &Value,
    found: &HashMap<String, StoredTensor>,
    parameters: &HashMap<&str, &Parameter>,
) -> Differences {
    let mut differences = Differences::default();
    tree::each_tensor(tree, None, &mut |tensor, path| {
        let Some(path) = path else { return };
        match (found.get(tensor), parameters.get(path)) {
            (None, _) => differences.missing.push(tensor.to_owned()),
            (_, None) => differences.unexpected.push(tensor.to_owned()),
            (Some(saved), Some(parameter)) if !has_shape_of(saved, parameter) => {
                let (saved, of) = (saved.describe(), described(&parameter.tensor));
                differences.different.push(format!("{tensor} ({saved}, of {of})"));
            }
            _ => {}
        }
    });
    differences
}

pub(crate) fn has_shape_of(saved: &StoredTensor, parameter: &Parameter) -> bool {
    saved.shape == version::type_of(&parameter.tensor).1
}

/// Describes the type of a tensor, as in error messages.
fn described(tensor: &TpuTensor) -> String {
    let (dtype, shape) = version::type_of(tensor);
    describe(dtype, &shape)
}
