//! The manifest of a checkpoint: its files, and the index that says which bytes of which file are which slice of which
//! tensor, with their checksums.
//!
//! Owns the format of `manifest.json`. The checksums find damage of a disk or of a transfer; they are no protection
//! against a person who changes files on purpose.

use crate::error::{CheckpointError, Damage, Result};
use crate::storage::MANIFEST;
use burn_tpu::distributed::Region;
use safetensors::Dtype;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the format of checkpoints.
pub(crate) const VERSION: u64 = 2;

/// The first version: files of whole tensors, written by one process, with a checksum for each file.
const WHOLE_FILES: u64 = 1;

/// The sizes of a block, which has a checksum of its own: slices have as many blocks as is useful, within these limits.
const BLOCK_BYTES: [u64; 2] = [4 << 10, 1 << 20];
const BLOCKS: u64 = 64;

/// What a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u64,
    /// The step after which it was saved.
    pub(crate) step: u64,
    /// The try to save it, where it is a part of the files' names: in an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<String>,
    /// The number of processes that wrote it.
    pub(crate) processes: usize,
    /// The random state of each device.
    pub(crate) random: Vec<Random>,
    pub(crate) files: Vec<File>,
    pub(crate) parts: Vec<IndexedPart>,
}

/// The random state of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Random {
    pub(crate) device: String,
    pub(crate) key: u64,
    pub(crate) counter: u64,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) name: String,
    /// The process that wrote it.
    pub(crate) process: usize,
    pub(crate) bytes: u64,
    /// Its CRC-32 (IEEE), as eight hexadecimal digits.
    pub(crate) crc32: String,
}

/// The tensors of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedPart {
    pub(crate) name: String,
    pub(crate) tensors: Vec<IndexedTensor>,
}

/// A tensor, and where its slices are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) slices: Vec<Slice>,
}

/// A slice of a tensor, whose elements are in a file, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slice {
    /// The place of the file among those of the manifest.
    pub(crate) file: usize,
    /// Its first byte in the file.
    pub(crate) at: u64,
    /// Its first index and its size in each dim of the tensor.
    pub(crate) start: Vec<usize>,
    pub(crate) sizes: Vec<usize>,
    /// The bytes of a block; the last one may have fewer.
    pub(crate) block: u64,
    /// The CRC-32 of each block, as eight hexadecimal digits each; empty in version 1.
    pub(crate) crc32: String,
}

/// A file with a checksum of its own: the CRC-32 of what it is without that field, as compact JSON.
#[derive(Serialize, Deserialize)]
struct Sealed<M> {
    #[serde(flatten)]
    manifest: M,
    crc32: String,
}

/// The manifest of version 1.
#[derive(Serialize, Deserialize)]
struct WholeFiles {
    version: u64,
    step: u64,
    random: Vec<Random>,
    files: Vec<WholeFile>,
}

#[derive(Serialize, Deserialize)]
struct WholeFile {
    name: String,
    bytes: u64,
    crc32: String,
}

impl Manifest {
    /// Returns the bytes of the manifest with its checksum.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        let sealed = Sealed { manifest: self, crc32: checksum(self)? };
        serde_json::to_vec(&sealed).map_err(not_written)
    }

    /// Reads the manifest of the checkpoint at a path. That of version 1 has no index yet.
    ///
    /// # Errors
    /// [`CheckpointError::Version`] for another version; [`CheckpointError::Damaged`] if it is not what was written, or
    /// its index contradicts itself.
    pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Self> {
        let damaged = |reason: String| CheckpointError::Damaged(Damage { path: path.to_path_buf(), reason });
        let not_json = |error: serde_json::Error| damaged(format!("`{MANIFEST}` is not what was written: {error}"));
        /// What all versions have.
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u64>,
        }
        let manifest = match serde_json::from_slice::<Versioned>(bytes).map_err(not_json)?.version {
            Some(found) if ![WHOLE_FILES, VERSION].contains(&found) => {
                return Err(CheckpointError::Version { path: path.to_path_buf(), found, known: VERSION });
            }
            Some(WHOLE_FILES) => opened::<WholeFiles>(bytes).map(Self::from),
            _ => opened::<Self>(bytes),
        };
        let manifest = manifest.map_err(damaged)?;
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// Returns whether its files have whole tensors, which their own headers list.
    pub(crate) fn has_whole_files(&self) -> bool {
        self.version == WHOLE_FILES
    }

    /// Names a file, and who wrote it, as in error messages.
    pub(crate) fn describe(&self, file: usize) -> String {
        let Some(File { name, process, .. }) = self.files.get(file) else { return format!("file {file}") };
        format!("`{name}`, which process {process} of {} wrote", self.processes)
    }

    /// Returns every tensor with its slices in a file.
    pub(crate) fn slices_in(&self, file: usize) -> impl Iterator<Item = (&IndexedTensor, &Slice)> {
        let tensors = self.parts.iter().flat_map(|part| &part.tensors);
        let slices = tensors.flat_map(|tensor| tensor.slices.iter().map(move |slice| (tensor, slice)));
        slices.filter(move |(_, slice)| slice.file == file)
    }

    /// Checks that the slices of each tensor are within it and within their files, and are all of it.
    fn check(&self) -> Result<(), String> {
        for tensor in self.parts.iter().flat_map(|part| &part.tensors) {
            let whole = Region::whole(&tensor.shape);
            let mut elements = 0;
            for slice in &tensor.slices {
                let (region, file) = (slice.region(), self.describe(slice.file));
                let place = format!("`{MANIFEST}`: the slice {region} of `{}` in {file}", tensor.name);
                if slice.start.len() != slice.sizes.len() || !whole.contains(&region) {
                    return Err(format!("{place}, is outside of its shape {:?}", tensor.shape));
                }
                let end = slice.at.checked_add(slice.bytes(tensor.dtype));
                let is_in_file = self.files.get(slice.file).zip(end).is_some_and(|(file, end)| end <= file.bytes);
                if !is_in_file || slice.block == 0 {
                    return Err(format!("{place}, is not within the file"));
                }
                elements += region.elements();
            }
            if elements != whole.elements() {
                return Err(format!(
                    "`{MANIFEST}`: the slices of `{}` have {elements} elements, and its shape {:?} has {}",
                    tensor.name,
                    tensor.shape,
                    whole.elements()
                ));
            }
        }
        Ok(())
    }
}

impl From<WholeFiles> for Manifest {
    fn from(WholeFiles { version, step, random, files }: WholeFiles) -> Self {
        let file = |WholeFile { name, bytes, crc32 }| File { name, process: 0, bytes, crc32 };
        let files = files.into_iter().map(file).collect();
        Self { version, step, attempt: None, processes: 1, random, files, parts: Vec::new() }
    }
}

/// Returns what a sealed text is, if its checksum is right.
fn opened<M: DeserializeOwned + Serialize>(bytes: &[u8]) -> Result<M, String> {
    let not_json = |error: serde_json::Error| format!("`{MANIFEST}` is not what was written: {error}");
    let Sealed { manifest, crc32 } = serde_json::from_slice::<Sealed<M>>(bytes).map_err(not_json)?;
    match checksum(&manifest).map_err(|error| error.to_string())? == crc32 {
        true => Ok(manifest),
        false => Err(format!("`{MANIFEST}` does not have its checksum")),
    }
}

fn checksum(manifest: &impl Serialize) -> Result<String> {
    let text = serde_json::to_vec(manifest).map_err(not_written)?;
    Ok(hexadecimal(crc32fast::hash(&text)))
}

impl Slice {
    pub(crate) fn region(&self) -> Region {
        Region { start: self.start.clone(), sizes: self.sizes.clone() }
    }

    /// Returns the number of bytes of a slice whose elements have this type.
    pub(crate) fn bytes(&self, dtype: Dtype) -> u64 {
        self.sizes.iter().product::<usize>() as u64 * dtype.bitsize() as u64 / 8
    }

    /// Returns the checksum of a block; `None` if it has none.
    pub(crate) fn checksum(&self, block: u64) -> Option<&str> {
        let at = block as usize * 8;
        self.crc32.get(at..at + 8)
    }
}

/// Returns the size of the blocks of a slice of this many bytes.
pub(crate) fn block_bytes(slice: u64) -> u64 {
    let [least, most] = BLOCK_BYTES;
    slice.div_ceil(BLOCKS).next_multiple_of(least).clamp(least, most)
}

/// Returns a checksum as the manifest has it.
pub(crate) fn hexadecimal(crc32: u32) -> String {
    format!("{crc32:08x}")
}

fn not_written(error: serde_json::Error) -> CheckpointError {
    CheckpointError::Bug(format!("a manifest is not JSON: {error}"))
}

#[cfg(test)]
pub(crate) mod testing {
    //! The first version.

    use super::*;

    /// Returns the manifest of version 1 of these files.
    pub(crate) fn first_version(step: u64, files: &[(&str, &[u8])]) -> Vec<u8> {
        let file = |(name, bytes): &(&str, &[u8])| WholeFile {
            name: (*name).to_owned(),
            bytes: bytes.len() as u64,
            crc32: hexadecimal(crc32fast::hash(bytes)),
        };
        let manifest =
            WholeFiles { version: WHOLE_FILES, step, random: Vec::new(), files: files.iter().map(file).collect() };
        let crc32 = checksum(&manifest).unwrap();
        serde_json::to_vec_pretty(&Sealed { manifest, crc32 }).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let slice = |file, start: [usize; 2], sizes: [usize; 2]| {
            let (start, sizes) = (start.to_vec(), sizes.to_vec());
            Slice { file, at: 8, start, sizes, block: 4096, crc32: "00000000".to_owned() }
        };
        let file = |process: usize| {
            let name = format!("model-{process}-of-2.safetensors");
            File { name, process, bytes: 40, crc32: String::new() }
        };
        let slices = vec![slice(0, [0, 0], [2, 4]), slice(1, [2, 0], [2, 4])];
        let tensor = IndexedTensor { name: "head.weight".into(), dtype: Dtype::F32, shape: vec![4, 4], slices };
        Manifest {
            version: VERSION,
            step: 3,
            attempt: None,
            processes: 2,
            random: vec![Random { device: "cpu:0".into(), key: u64::MAX, counter: 1 }],
            files: vec![file(0), file(1)],
            parts: vec![IndexedPart { name: "model".into(), tensors: vec![tensor] }],
        }
    }

    fn read(manifest: &Manifest) -> Result<Manifest, String> {
        let bytes = manifest.to_json().unwrap();
        Manifest::read(&bytes, Path::new("run/step-00000003")).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&manifest()), Ok(manifest()));
    }

    #[test]
    fn an_index_that_contradicts_itself_is_an_error_with_tensor_file_and_process() {
        type Change = fn(&mut IndexedTensor);
        let changes: [(Change, &[&str]); 5] = [
            (
                |tensor| tensor.shape = vec![3, 4],
                &["the slice [2:4, 0:4]", "of 2 wrote, is outside of its shape [3, 4]"],
            ),
            (|tensor| tensor.shape = vec![5, 4], &["slices of `head.weight` have 16 elements", "[5, 4] has 20"]),
            (|tensor| tensor.shape = vec![16], &["is outside of its shape [16]"]),
            (
                |tensor| tensor.slices[1].at = 9,
                &["`model-1-of-2.safetensors`, which process 1", "is not within the file"],
            ),
            (|tensor| tensor.slices[1].file = 7, &["file 7, is not within the file"]),
        ];
        for (change, parts) in changes {
            let mut changed = manifest();
            change(&mut changed.parts[0].tensors[0]);
            let error = read(&changed).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)) && error.contains("head.weight"), "{error}");
        }
        // Not by a person: without the checksum of the change.
        let mut bytes = manifest().to_json().unwrap();
        let at = bytes.windows(6).position(|window| window == b"[4,4],").unwrap();
        bytes[at + 1] = b'5';
        let error = Manifest::read(&bytes, Path::new("x")).unwrap_err().to_string();
        assert!(error.contains("does not have its checksum"), "{error}");
    }

    #[test]
    fn a_slice_has_blocks_within_limits() {
        assert_eq!([0, 1, 4096, 300_000, 1 << 30].map(block_bytes), [4096, 4096, 4096, 8192, 1 << 20]);
    }
}
