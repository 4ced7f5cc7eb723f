//! A checkpoint that was read: its parts, for the models, optimizers and schedules of a new process.

use crate::by_path::Parameter;
use crate::checkpoint::{CheckpointPart, Kind};
use crate::error::{CheckpointError, Damage, Differences, Result};
use crate::manifest::{IndexedTensor, Manifest, Random};
use crate::storage::{self, Draft, MANIFEST, Retrying};
use crate::stored_tensor::{Files, StoredTensor};
use crate::tensor_file::{burn_dtype, describe};
use crate::{layer_forms, tree, version};
use burn_tpu::distributed::{self, Region};
use burn_tpu::{TpuDevice, TpuTensor};
use ciborium::Value;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The file with everything that is no tensor: parts with their kinds, as CBOR.
pub(crate) const STATE: &str = "state.cbor";

/// A checkpoint, read and found intact. Its methods load each part into what the program has built anew; the names are
/// those that [`Checkpoint`](crate::Checkpoint) gave them.
///
/// Tensors are read from the files when they are loaded, one at a time. Each process reads what its devices need, and
/// the checksums of that are compared.
#[derive(Debug)]
pub struct Restored {
    path: PathBuf,
    files: Arc<Files>,
    parts: Vec<CheckpointPart>,
    is_partial: bool,
}

impl Restored {
    /// Reads one checkpoint: a folder `step-…`, or with the features `s3` and `gs` its URL. No lock is needed, so that
    /// it may be of a run that is going on.
    ///
    /// Of the tensors, the sizes of the files are compared here, and the bytes when they are loaded.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if it is not what was written, [`CheckpointError::Version`] for another format.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (folder, entry) = path.parent().zip(path.file_name()).unwrap_or((path, OsStr::new("")));
        Self::open(Arc::new(storage::open(folder, false)?), &entry.to_string_lossy())
    }

    /// Reads the checkpoint of an entry.
    pub(crate) fn open(storage: Arc<Retrying>, entry: &str) -> Result<Self> {
        let path = storage.root().join(entry);
        let damaged = |reason: String| CheckpointError::Damaged(Damage { path: path.clone(), reason });
        let bytes = storage.manifest(entry).map_err(|error| damaged(format!("`{MANIFEST}`: {error}")))?;
        let manifest = Manifest::read(&bytes, &path)?;
        let name = storage::entry(manifest.step);
        if entry != name {
            return Err(damaged(format!("it is `{name}` by its manifest: the folder was renamed")));
        }
        let draft = Draft { entry: entry.to_owned(), attempt: manifest.attempt.clone().unwrap_or_default() };
        let mut files = Files { path: path.clone(), storage, draft, manifest, bytes_read: AtomicU64::new(0) };
        files.check_sizes()?;
        if files.manifest.has_whole_files() {
            files.list_whole_tensors()?;
        }
        let state = files.whole(STATE)?;
        let parts = ciborium::from_reader(&state[..]).map_err(|error| damaged(format!("`{STATE}`: {error}")))?;
        Ok(Self { path, files: Arc::new(files), parts, is_partial: false })
    }

    /// Reads every byte of the checkpoint and checks it; of several processes, each calls this for its part of the
    /// files.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] with the tensor, the file and the process that wrote it.
    pub fn verify(&self) -> Result<()> {
        let (process, processes) = (distributed::process_index()?, distributed::process_count()?);
        let own = (0..self.files.manifest.files.len()).filter(|place| place % processes == process);
        own.into_iter().try_for_each(|place| self.files.verify(place))
    }

    /// Returns the bytes of tensors that this process has loaded so far: those of the regions that its devices need,
    /// and what their checksums need beside them.
    pub fn bytes_read(&self) -> u64 {
        self.files.bytes_read.load(Relaxed)
    }

    /// Takes the tensors that fit and leaves the others as they are, with a warning that lists the differences. Without
    /// this, any difference is an error.
    pub fn partial(self) -> Self {
        Self { is_partial: true, ..self }
    }

    /// Returns the number of steps that were taken when it was saved.
    pub fn step(&self) -> u64 {
        self.files.manifest.step
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
        let uploaded = |(name, like, saved): (String, TpuTensor, StoredTensor)| Ok((name, loaded(&saved, &like)?));
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
        let saved = &self.files.manifest.random;
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
        let Some(part) = self.files.manifest.parts.iter().find(|part| part.name == name) else {
            return Ok(HashMap::new());
        };
        let tensor = |IndexedTensor { name, dtype, shape, slices }: &IndexedTensor| {
            let unknown = || self.files.damaged(format!("`{name}` has the type {dtype}, which Burn has not"));
            let types = (burn_dtype(*dtype).ok_or_else(unknown)?, *dtype);
            Ok((name.clone(), StoredTensor::saved(&self.files, name, types, shape, slices)))
        };
        part.tensors.iter().map(tensor).collect()
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

/// Puts a tensor on the device of another one, split as that is: reads what this process needs of it.
pub(crate) fn loaded(saved: &StoredTensor, like: &TpuTensor) -> Result<TpuTensor> {
    let regions = like.regions_for(saved.dtype, &saved.shape)?;
    let read = match Region::around(&regions) {
        // Those of the devices here are a region themselves: no block is read for more than one of them.
        Some(all) if regions.len() > 1 && all.elements() == regions.iter().map(Region::elements).sum::<usize>() => {
            let bytes = saved.read(&all)?;
            let part = |region: Region| {
                let taken = all.take(&bytes, &region, saved.dtype.size());
                (region, taken)
            };
            regions.into_iter().map(part).collect()
        }
        _ => {
            let read = regions.into_iter().map(|region| saved.read(&region).map(|bytes| (region, bytes)));
            read.collect::<Result<_>>()?
        }
    };
    Ok(like.with_regions(saved.dtype, &saved.shape, read)?)
}

pub(crate) fn has_shape_of(saved: &StoredTensor, parameter: &Parameter) -> bool {
    saved.shape == version::type_of(&parameter.tensor).1
}

/// Describes the type of a tensor, as in error messages.
fn described(tensor: &TpuTensor) -> String {
    let (dtype, shape) = version::type_of(tensor);
    describe(dtype, &shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::testing::first_version;
    use burn::nn::{Linear, LinearConfig};
    use burn_tpu::Tpu;
    use safetensors::tensor::{Dtype, TensorView};
    use std::fs;

    #[test]
    fn a_checkpoint_of_the_first_version_loads_and_its_damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step-00000007");
        let weight: Vec<u8> = (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect();
        let view = TensorView::new(Dtype::F32, vec![2, 3], &weight).unwrap();
        let model = safetensors::serialize([("weight", view)], None).unwrap();
        let part = |name: &str, kind, tree| CheckpointPart { name: name.to_owned(), kind, tree };
        let parts = [part("model", Kind::Model, Value::Null), part("best", Kind::Value, Value::from(3))];
        let mut state = Vec::new();
        ciborium::into_writer(&parts.to_vec(), &mut state).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("model.safetensors"), &model).unwrap();
        fs::write(path.join(STATE), &state).unwrap();
        fs::write(path.join(MANIFEST), first_version(7, &[("model.safetensors", &model), (STATE, &state)])).unwrap();

        let saved = Restored::read(&path).unwrap();
        assert_eq!((saved.step(), saved.value::<i32>("best").unwrap()), (7, 3));
        let device = TpuDevice::ndarray();
        let model: Linear<Tpu<f32>> = LinearConfig::new(2, 3).with_bias(false).init(&device);
        let weight = saved.model("model", model).unwrap().weight.val().into_data();
        assert_eq!(weight.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);

        let mut bytes = fs::read(path.join("model.safetensors")).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(path.join("model.safetensors"), bytes).unwrap();
        let said = Restored::read(&path).unwrap_err().to_string();
        assert!(said.contains("`model.safetensors`, which process 0 of 1 wrote, does not have its checksum"), "{said}");
    }
}
