//! Tensors of a checkpoint: any region of one is read from the slices that have some of it, and no more bytes than
//! their checksums need.

use crate::error::{CheckpointError, Damage, Result};
use crate::manifest::{IndexedPart, IndexedTensor, Manifest, Slice, hexadecimal};
use crate::storage::{Draft, Retrying};
use crate::tensor_file::{self, describe};
use burn_core::tensor::DType;
use burn_tpu::distributed::Region;
use safetensors::Dtype;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most bytes that are read at once.
const READ_BYTES: u64 = 16 << 20;

/// The files of a checkpoint.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) path: PathBuf,
    pub(crate) storage: Arc<Retrying>,
    pub(crate) draft: Draft,
    pub(crate) manifest: Manifest,
    /// The bytes of tensors that were read.
    pub(crate) bytes_read: AtomicU64,
}

impl Files {
    pub(crate) fn damaged(&self, reason: impl Into<String>) -> CheckpointError {
        CheckpointError::Damaged(Damage { path: self.path.clone(), reason: reason.into() })
    }

    fn changed(&self, what: &str) -> CheckpointError {
        self.damaged(format!("{what}, does not have its checksum: some of its bytes changed"))
    }

    /// Checks that each file is there with its size; no byte of it is read.
    pub(crate) fn check_sizes(&self) -> Result<()> {
        for (place, file) in self.manifest.files.iter().enumerate() {
            let described = self.manifest.describe(place);
            let found = match self.storage.size(&self.draft, &file.name) {
                Ok(found) => found,
                Err(CheckpointError::File { source, .. }) if is_damage(&source) => {
                    return Err(self.damaged(format!("{described}: {source}{}", self.lost(place, 0))));
                }
                Err(error) => return Err(error),
            };
            if found != file.bytes {
                let lost = self.lost(place, found);
                return Err(self.damaged(format!("{described}, has {found} bytes instead of {}{lost}", file.bytes)));
            }
        }
        Ok(())
    }

    /// Names the tensors that a file has after its first bytes.
    fn lost(&self, file: usize, first: u64) -> String {
        let is_lost = |tensor: Dtype, slice: &Slice| slice.at + slice.bytes(tensor) > first;
        let lost = self.manifest.slices_in(file).filter(|(tensor, slice)| is_lost(tensor.dtype, slice));
        let mut lost: Vec<String> =
            lost.map(|(tensor, slice)| format!("`{}` {}", tensor.name, slice.region())).collect();
        let more = lost.len().saturating_sub(3);
        lost.truncate(3);
        match (lost.is_empty(), more) {
            (true, _) => String::new(),
            (_, 0) => format!(": what is lost is of {}", lost.join(", ")),
            _ => format!(": what is lost is of {} and {more} more", lost.join(", ")),
        }
    }

    /// Reads all of a file and checks it.
    pub(crate) fn verify(&self, place: usize) -> Result<()> {
        let (file, mut checksum) = (&self.manifest.files[place], crc32fast::Hasher::new());
        let mut at = 0;
        while at < file.bytes {
            let end = file.bytes.min(at + READ_BYTES);
            checksum.update(&self.read(place, at..end, || self.manifest.describe(place))?);
            at = end;
        }
        if hexadecimal(checksum.finalize()) == file.crc32 {
            return Ok(());
        }
        // Reading each slice finds the tensor.
        for (tensor, slice) in self.manifest.slices_in(place) {
            let blocks = 0..slice.bytes(tensor.dtype).div_ceil(slice.block);
            self.read_blocks(&tensor.name, tensor.dtype, slice, blocks)?;
        }
        Err(self.changed(&self.manifest.describe(place)))
    }

    /// Returns all of a file by its name.
    pub(crate) fn whole(&self, name: &str) -> Result<Vec<u8>> {
        let missing = || self.damaged(format!("`{name}` is not among its files"));
        let place = self.manifest.files.iter().position(|file| file.name == name).ok_or_else(missing)?;
        let bytes = self.read(place, 0..self.manifest.files[place].bytes, || self.manifest.describe(place))?;
        match hexadecimal(crc32fast::hash(&bytes)) == self.manifest.files[place].crc32 {
            true => Ok(bytes),
            false => Err(self.changed(&self.manifest.describe(place))),
        }
    }

    /// Verifies files of whole tensors, which have one checksum each, and makes the index of their headers.
    pub(crate) fn list_whole_tensors(&mut self) -> Result<()> {
        let mut parts = Vec::new();
        for place in 0..self.manifest.files.len() {
            self.verify(place)?;
            let Some(name) = self.manifest.files[place].name.strip_suffix(tensor_file::ENDING) else { continue };
            let described = self.manifest.describe(place);
            let first = self.read(place, 0..8, || described.clone())?;
            let length = first.try_into().map(tensor_file::header_bytes).unwrap_or_default();
            let header = self.read(place, 8..8 + length, || described.clone())?;
            let listed = tensor_file::list(&header);
            let listed =
                listed.map_err(|error| self.damaged(format!("{described}, is no file of tensors: {error}")))?;
            let indexed = |(name, dtype, shape, (at, end)): tensor_file::Listed| {
                let (start, sizes, block) = (vec![0; shape.len()], shape.clone(), (end - at).max(1));
                let slice = Slice { file: place, at, start, sizes, block, crc32: String::new() };
                IndexedTensor { name, dtype, shape, slices: vec![slice] }
            };
            parts.push(IndexedPart { name: name.to_owned(), tensors: listed.into_iter().map(indexed).collect() });
        }
        self.manifest.parts = parts;
        Ok(())
    }

    /// Reads a range of a file. `what` says of what, for errors.
    fn read(&self, file: usize, range: Range<u64>, what: impl Fn() -> String) -> Result<Vec<u8>> {
        let name = &self.manifest.files[file].name;
        self.storage.read(&self.draft, name, range).map_err(|error| match error {
            CheckpointError::File { source, .. } if is_damage(&source) => self.damaged(format!("{}: {source}", what())),
            CheckpointError::File { action, path, source } => {
                let source = io::Error::new(source.kind(), format!("{}: {source}", what()));
                CheckpointError::File { action, path, source }
            }
            error => error,
        })
    }

    /// Reads consecutive blocks of a slice and checks each.
    fn read_blocks(&self, name: &str, dtype: Dtype, slice: &Slice, blocks: Range<u64>) -> Result<Vec<u8>> {
        let end = slice.bytes(dtype).min(blocks.end * slice.block);
        let range = slice.at + blocks.start * slice.block..slice.at + end;
        let what = || format!("`{name}` {} in {}", slice.region(), self.manifest.describe(slice.file));
        let bytes = self.read(slice.file, range, what)?;
        self.bytes_read.fetch_add(bytes.len() as u64, Relaxed);
        for (block, bytes) in blocks.zip(bytes.chunks(slice.block as usize)) {
            let is_changed = slice.checksum(block).is_some_and(|sum| sum != hexadecimal(crc32fast::hash(bytes)));
            if is_changed {
                return Err(self.changed(&what()));
            }
        }
        Ok(bytes)
    }

    /// Copies what a slice has of a region to the bytes of that region, and returns the number of elements. The blocks
    /// are read that have some of them.
    fn copy(&self, name: &str, dtype: Dtype, slice: &Slice, to: &Region, bytes: &mut [u8]) -> Result<usize> {
        let element = dtype.bitsize() as u64 / 8;
        let mut runs: Vec<Run> = Vec::new();
        let copied = slice.region().runs(to, |from, to, length| {
            let [from, to, length] = [from, to, length].map(|elements| elements as u64 * element);
            runs.push(Run { from, to, length });
        });
        let mut left = &runs[..];
        for blocks in groups(slice.block, &runs) {
            let read = self.read_blocks(name, dtype, slice, blocks.clone())?;
            let begin = blocks.start * slice.block;
            let end = begin + read.len() as u64;
            // A run may go on in the next blocks.
            for &Run { from, to, length } in left.iter().take_while(|run| run.from < end) {
                let (first, last) = (from.max(begin), (from + length).min(end));
                let run = &read[(first - begin) as usize..(last - begin) as usize];
                bytes[(to + first - from) as usize..][..run.len()].copy_from_slice(run);
            }
            let done = left.iter().take_while(|run| run.from + run.length <= end).count();
            left = &left[done..];
        }
        Ok(copied)
    }
}

/// Bytes that follow each other in a slice and in what is read of it.
struct Run {
    from: u64,
    to: u64,
    length: u64,
}

/// Returns the blocks of a size that have bytes of these runs, which ascend: consecutive ones together, up to a limit.
fn groups(block: u64, runs: &[Run]) -> Vec<Range<u64>> {
    let most = (READ_BYTES / block).max(1);
    let mut groups: Vec<Range<u64>> = Vec::new();
    for run in runs {
        let begin = (run.from / block).max(groups.last().map_or(0, |last| last.end));
        for next in begin..(run.from + run.length).div_ceil(block) {
            match groups.last_mut() {
                Some(last) if last.end == next && next - last.start < most => last.end += 1,
                _ => groups.push(next..next + 1),
            }
        }
    }
    groups
}

/// Returns whether an error says that a file is not what was written.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// A tensor of a checkpoint, perhaps in another form than it was saved in.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// As it was saved.
    Saved { files: Arc<Files>, name: String, dtype: Dtype, slices: Arc<[Slice]> },
    /// One index of the first dim of another.
    Part { of: Box<StoredTensor>, index: usize },
    /// Others, along a new first dim.
    Stack(Vec<StoredTensor>),
}

impl StoredTensor {
    /// Returns the tensor that was saved under a name, of these slices.
    pub(crate) fn saved(
        files: &Arc<Files>,
        name: &str,
        types: (DType, Dtype),
        shape: &[usize],
        slices: &[Slice],
    ) -> Self {
        let (files, name, slices) = (Arc::clone(files), name.to_owned(), slices.into());
        Self { dtype: types.0, shape: shape.to_vec(), form: Form::Saved { files, name, dtype: types.1, slices } }
    }

    /// Returns the elements of a region, row-major.
    pub(crate) fn read(&self, region: &Region) -> Result<Vec<u8>> {
        match &self.form {
            Form::Saved { files, name, dtype, slices } => {
                let element = dtype.bitsize() / 8;
                let mut bytes = vec![0; region.elements() * element];
                let copied = slices.iter().map(|slice| files.copy(name, *dtype, slice, region, &mut bytes));
                if copied.sum::<Result<usize>>()? == region.elements() {
                    return Ok(bytes);
                }
                Err(files.damaged(format!("the slices of `{name}` are not all of {region}")))
            }
            Form::Part { of, index } => {
                let (mut start, mut sizes) = (vec![*index], vec![1]);
                start.extend(&region.start);
                sizes.extend(&region.sizes);
                of.read(&Region { start, sizes })
            }
            Form::Stack(parts) => {
                let inner = Region { start: region.start[1..].to_vec(), sizes: region.sizes[1..].to_vec() };
                let parts = &parts[region.start[0]..region.start[0] + region.sizes[0]];
                let read = parts.iter().map(|part| part.read(&inner)).collect::<Result<Vec<_>>>()?;
                Ok(read.concat())
            }
        }
    }

    /// Returns tensors of one type as one, `[tensors, ..]`; `None` if they differ, or there are none.
    pub(crate) fn stack(parts: Vec<Self>) -> Option<Self> {
        let first = parts.first()?;
        let (dtype, inner) = (first.dtype, first.shape.clone());
        let shape = std::iter::once(parts.len()).chain(inner.iter().copied()).collect();
        let is_like = |part: &Self| part.dtype == dtype && part.shape == inner;
        parts.iter().all(is_like).then(|| Self { dtype, shape, form: Form::Stack(parts) })
    }

    /// Returns a part of a tensor `[parts, ..]`; `None` if it has no such part.
    pub(crate) fn part(&self, index: usize) -> Option<Self> {
        let [parts, shape @ ..] = &self.shape[..] else { return None };
        let form = Form::Part { of: Box::new(self.clone()), index };
        (index < *parts).then(|| Self { dtype: self.dtype, shape: shape.to_vec(), form })
    }

    /// Describes the type, as in error messages.
    pub(crate) fn describe(&self) -> String {
        describe(self.dtype, &self.shape)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Checkpoints without models, for tests.

    use super::*;
    use crate::manifest::{File, VERSION};
    use crate::storage;
    use crate::tensor_file::{Piece, TensorFile, burn_dtype};
    use std::collections::HashMap;
    use tempfile::TempDir;

    pub(crate) fn elements(bytes: &[u8]) -> Vec<f32> {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    fn bytes(elements: &[f32]) -> Vec<u8> {
        elements.iter().flat_map(|element| element.to_le_bytes()).collect()
    }

    /// Saves tensors, each the regions of `split` in files of as many processes, and returns what was saved.
    pub(crate) fn saved_in(split: &[Vec<Region>], tensors: &[(&str, &[usize], &[f32])]) -> (TempDir, Arc<Files>) {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage::open(folder.path(), true).unwrap();
        let draft = Draft { entry: storage::entry(1), attempt: "a-0".to_owned() };
        let (mut files, mut slices) = (Vec::new(), vec![Vec::new(); tensors.len()]);
        let processes = split.len();
        for (process, regions) in split.iter().enumerate() {
            let piece = |place: usize, region: &Region| {
                let (name, shape, elements) = tensors[place];
                let taken = Region::whole(shape).take(&bytes(elements), region, 4);
                let (name, shape, region) = (name.to_owned(), shape.to_vec(), region.clone());
                Piece { place, name, dtype: Dtype::F32, shape, region, bytes: taken }
            };
            let all = (0..tensors.len()).flat_map(|place| match regions.is_empty() {
                true => vec![piece(place, &Region::whole(tensors[place].1))],
                false => regions.iter().map(|region| piece(place, region)).collect(),
            });
            let file = TensorFile::new(all.collect()).unwrap();
            let name = tensor_file::name("model", process, processes);
            storage.write(&draft, &name, &file.chunks()).unwrap();
            for (place, slice) in &file.slices {
                slices[*place].push(Slice { file: process, ..slice.clone() });
            }
            files.push(File { name, process, bytes: file.bytes, crc32: hexadecimal(file.crc32) });
        }
        let tensors = tensors.iter().zip(slices).map(|((name, shape, _), slices)| {
            let (name, shape) = ((*name).to_owned(), shape.to_vec());
            IndexedTensor { name, dtype: Dtype::F32, shape, slices }
        });
        let parts = vec![IndexedPart { name: "model".to_owned(), tensors: tensors.collect() }];
        let (step, attempt) = (1, None);
        let manifest = Manifest { version: VERSION, step, attempt, processes, random: Vec::new(), files, parts };
        let json = manifest.to_json().unwrap();
        storage.publish(&draft, &json).unwrap();
        let (path, manifest) = (folder.path().join(&draft.entry), Manifest::read(&json, folder.path()).unwrap());
        let files = Files { path, storage: Arc::new(storage), draft, manifest, bytes_read: AtomicU64::new(0) };
        (folder, Arc::new(files))
    }

    pub(crate) fn tensors(files: &Arc<Files>) -> HashMap<String, StoredTensor> {
        let tensors = files.manifest.parts.iter().flat_map(|part| &part.tensors);
        let tensor = |tensor: &IndexedTensor| {
            let types = (burn_dtype(tensor.dtype).unwrap(), tensor.dtype);
            (tensor.name.clone(), StoredTensor::saved(files, &tensor.name, types, &tensor.shape, &tensor.slices))
        };
        tensors.map(tensor).collect()
    }

    /// Saves whole tensors in one file, and returns them by name.
    pub(crate) fn saved(tensors: &[(&str, &[usize], &[f32])]) -> (TempDir, HashMap<String, StoredTensor>) {
        let (folder, files) = saved_in(&[Vec::new()], tensors);
        (folder, self::tensors(&files))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{elements, saved_in, tensors};
    use super::*;

    /// Returns the regions of a matrix that is split into rows and columns, one for each process.
    fn grid(dims: [usize; 2], rows: usize, columns: usize) -> Vec<Region> {
        let sizes = vec![dims[0] / rows, dims[1] / columns];
        let region = |process: usize| {
            let start = vec![process / columns * sizes[0], process % columns * sizes[1]];
            Region { start, sizes: sizes.clone() }
        };
        (0..rows * columns).map(region).collect()
    }

    #[test]
    fn each_process_reads_the_bytes_that_it_needs_whatever_the_mesh_was() {
        let dims = [128, 256];
        let values: Vec<f32> = (0..dims[0] * dims[1]).map(|value| value as f32).collect();
        let bytes = values.len() as u64 * 4;
        // By rows and by columns; in four, to two, eight and one.
        for written in [grid(dims, 4, 1), grid(dims, 1, 4), grid(dims, 2, 2)] {
            let split: Vec<Vec<Region>> = written.iter().map(|region| vec![region.clone()]).collect();
            let (_folder, files) = saved_in(&split, &[("weight", &dims, &values)]);
            let weight = &tensors(&files)["weight"];
            for read in [grid(dims, 2, 1), grid(dims, 8, 1), grid(dims, 1, 1), grid(dims, 4, 1), grid(dims, 4, 2)] {
                for region in &read {
                    let before = files.bytes_read.load(Relaxed);
                    let found = elements(&weight.read(region).unwrap());
                    let whole: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    assert_eq!(found, elements(&Region::whole(&dims).take(&whole, region, 4)), "{region}");
                    let (count, needed) = (files.bytes_read.load(Relaxed) - before, bytes / read.len() as u64);
                    // Rows are whole blocks here; of columns, the blocks of their rows are read.
                    let most = if region.sizes[1] < written[0].sizes[1] { 2 * needed } else { needed };
                    assert!(count >= needed && count <= most, "{count} of {needed} bytes of {region}");
                }
            }
        }
    }

    #[test]
    fn a_slice_that_is_larger_than_one_read_is_read_in_groups_of_blocks() {
        let run = |from, length| Run { from, to: 0, length };
        assert_eq!(groups(4096, &[run(0, 10), run(4000, 5000), run(20_000, 1)]), [0..3, 4..5]);
        let large = groups(1 << 20, &[run(1, 40 << 20)]);
        assert_eq!(large, [0..16, 16..32, 32..41]);
    }

    #[test]
    fn damage_names_the_tensor_the_file_and_the_process() {
        let dims = [64, 64];
        let values = vec![1.0; 64 * 64];
        let split: Vec<Vec<Region>> = grid(dims, 4, 1).into_iter().map(|region| vec![region]).collect();
        let (_folder, files) = saved_in(&split, &[("head.weight", &dims, &values)]);
        let path = files.path.join("model-2-of-4.safetensors");
        let original = std::fs::read(&path).unwrap();
        let read = |process: usize| tensors(&files)["head.weight"].read(&split[process][0]);
        let named = |error: CheckpointError| {
            let said = error.to_string();
            let parts = ["`head.weight` [32:48, 0:64]", "`model-2-of-4.safetensors`, which process 2 of 4 wrote"];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            said
        };
        let mut flipped = original.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        assert!(named(read(2).unwrap_err()).contains("does not have its checksum"));
        assert!(named(files.verify(2).unwrap_err()).contains("does not have its checksum"));
        assert!(files.check_sizes().is_ok() && read(1).is_ok(), "the others are whole");
        std::fs::write(&path, &original[..original.len() - 1]).unwrap();
        assert!(named(files.check_sizes().unwrap_err()).contains("bytes instead of"));
        named(read(2).unwrap_err());
        std::fs::remove_file(&path).unwrap();
        named(files.check_sizes().unwrap_err());
        named(read(2).unwrap_err());
        std::fs::write(&path, original).unwrap();
        assert!(read(2).is_ok() && files.check_sizes().is_ok());
    }
}
