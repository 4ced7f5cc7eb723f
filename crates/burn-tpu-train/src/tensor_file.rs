//! Files of tensors, in the safetensors format: a header as JSON, then the elements.
//!
//! Owns the order of the tensors in a file, the checksum, and that a file is on the disk. The header's form and its checks
//! are those of the crate `safetensors`.

use crate::error::{CheckpointError, Result};
use crate::manifest;
use crate::version;
use burn_core::tensor::{BoolStore, DType, TensorData};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The ending of the names of these files.
pub(crate) const ENDING: &str = ".safetensors";

/// The multiple of bytes at which the elements begin.
const ALIGNMENT: usize = 8;

/// Returns the type's name in a file; `None` if it has none.
pub(crate) fn dtype(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool(_) => Dtype::BOOL,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::F32 | DType::Flex32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::QFloat(_) => return None,
    })
}

/// Returns Burn's name of a file's type; `None` if Burn has none.
fn burn_dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool(BoolStore::Native),
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::BF16 => DType::BF16,
        Dtype::F16 => DType::F16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        _ => return None,
    })
}

/// Writes tensors to a new file and waits until it is on the disk.
pub(crate) fn write(folder: &Path, name: String, mut tensors: Vec<(String, TensorData)>) -> Result<manifest::File> {
    // Wide types first, so that every tensor begins at a multiple of its element's size.
    let size = |data: &TensorData| version::dtype(data).size();
    tensors.sort_by(|(a, x), (b, y)| size(y).cmp(&size(x)).then_with(|| a.cmp(b)));
    let header = header(&tensors)?;
    let elements = tensors.iter().map(|(_, data)| version::bytes(data));
    write_all(folder, name, [&header[..]].into_iter().chain(elements))
}

/// Writes pieces to a new file and waits until it is on the disk.
pub(crate) fn write_all<'p>(
    folder: &Path,
    name: String,
    pieces: impl Iterator<Item = &'p [u8]>,
) -> Result<manifest::File> {
    let path = folder.join(&name);
    let failed = || CheckpointError::file("write", &path);
    let mut file = File::create_new(&path).map_err(failed())?;
    let (mut bytes, mut checksum) = (0, crc32fast::Hasher::new());
    for piece in pieces {
        file.write_all(piece).map_err(failed())?;
        checksum.update(piece);
        bytes += piece.len() as u64;
    }
    file.sync_all().map_err(failed())?;
    Ok(manifest::File::new(name, bytes, checksum.finalize()))
}

/// Returns what precedes the elements: the length of the header, and the header.
fn header(tensors: &[(String, TensorData)]) -> Result<Vec<u8>> {
    let mut end = 0;
    let info = |(name, data): &(String, TensorData)| {
        let found = version::dtype(data);
        let dtype = dtype(found).ok_or_else(|| no_dtype(name, found))?;
        let begin = end;
        end += version::bytes(data).len();
        Ok((name.clone(), TensorInfo { dtype, shape: version::shape(data).to_vec(), data_offsets: (begin, end) }))
    };
    let infos: Vec<_> = tensors.iter().map(info).collect::<Result<_>>()?;
    let bug = |error: String| CheckpointError::Bug(format!("a file of tensors has no header: {error}"));
    let metadata = Metadata::new(None, infos).map_err(|error| bug(error.to_string()))?;
    let mut json = serde_json::to_vec(&metadata).map_err(|error| bug(error.to_string()))?;
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    Ok(header)
}

/// Returns the error of a tensor whose type files do not have.
pub(crate) fn no_dtype(name: &str, dtype: DType) -> CheckpointError {
    CheckpointError::DType { name: name.to_owned(), dtype: format!("{dtype:?}") }
}

/// Returns what tensors a file has, by name; otherwise, says what is wrong with it. No element is read.
pub(crate) fn read(path: &Path) -> Result<HashMap<String, StoredTensor>, String> {
    let described = |error: std::io::Error| error.to_string();
    let mut file = File::open(path).map_err(described)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(described)?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(described)?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| error.to_string())?;
    let begin = 8 + length;
    let found = |(name, info): (String, &TensorInfo)| {
        let dtype = burn_dtype(info.dtype).ok_or_else(|| format!("`{name}` has the type {}", info.dtype))?;
        let (from, to) = info.data_offsets;
        let (shape, begin) = (info.shape.clone(), begin + from as u64);
        let elements = vec![(begin, (to - from) as u64)];
        Ok((name, StoredTensor { dtype, shape, path: path.to_path_buf(), elements }))
    };
    metadata.tensors().into_iter().map(found).collect()
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(crate) struct StoredTensor {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    path: PathBuf,
    /// Where its elements are in the file, in order: the first byte of each part, and the number of bytes.
    elements: Vec<(u64, u64)>,
}

impl StoredTensor {
    /// Reads the tensor.
    pub(crate) fn data(&self) -> Result<TensorData> {
        let bytes: u64 = self.elements.iter().map(|(_, bytes)| bytes).sum();
        let mut elements = vec![0; bytes as usize];
        let read = |mut file: File| {
            let mut left = &mut elements[..];
            for &(begin, bytes) in &self.elements {
                let (part, rest) = left.split_at_mut(bytes as usize);
                file.seek(SeekFrom::Start(begin))?;
                file.read_exact(part)?;
                left = rest;
            }
            Ok(())
        };
        File::open(&self.path).and_then(read).map_err(CheckpointError::file("read", &self.path))?;
        Ok(TensorData::from_bytes_vec(elements, self.shape.clone(), self.dtype))
    }

    /// Returns tensors of one type and of one file as one, `[tensors, ..]`; `None` if they differ, or there are none.
    pub(crate) fn stack(parts: &[Self]) -> Option<Self> {
        let first = parts.first()?;
        let is_like = |part: &Self| (part.dtype, &part.shape, &part.path) == (first.dtype, &first.shape, &first.path);
        let shape = std::iter::once(parts.len()).chain(first.shape.iter().copied()).collect();
        let elements = parts.iter().flat_map(|part| part.elements.iter().copied()).collect();
        parts.iter().all(is_like).then(|| Self { dtype: first.dtype, shape, path: first.path.clone(), elements })
    }

    /// Returns a part of a tensor `[parts, ..]`; `None` if it has no such part.
    pub(crate) fn part(&self, index: usize) -> Option<Self> {
        let ([(begin, bytes)], [parts, shape @ ..]) = (&self.elements[..], &self.shape[..]) else { return None };
        let bytes = bytes / (*parts as u64).max(1);
        let (shape, elements) = (shape.to_vec(), vec![(begin + index as u64 * bytes, bytes)]);
        (index < *parts).then(|| Self { dtype: self.dtype, shape, path: self.path.clone(), elements })
    }

    /// Describes the type, as in error messages.
    pub(crate) fn describe(&self) -> String {
        describe(self.dtype, &self.shape)
    }
}

/// Describes the type of a tensor.
pub(crate) fn describe(dtype: DType, shape: &[usize]) -> String {
    match self::dtype(dtype) {
        Some(dtype) => format!("{dtype} {shape:?}"),
        None => format!("{dtype:?} {shape:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = vec![
            ("a.bools".to_owned(), TensorData::from([true, false, true])),
            ("b.floats".to_owned(), TensorData::from([[1.5f32, -0.0], [f32::NAN, 4.0]])),
            ("c.halves".to_owned(), TensorData::from([1.0f32, 2.0]).convert_dtype(DType::BF16)),
            ("d.nothing".to_owned(), TensorData::new(Vec::<i64>::new(), [0, 3])),
        ];
        let file = write(folder.path(), "x.safetensors".to_owned(), tensors.clone()).unwrap();
        file.verify(folder.path()).unwrap();
        let path = folder.path().join("x.safetensors");
        let found = read(&path).unwrap();
        for (name, expected) in &tensors {
            let data = found[name].data().unwrap();
            let parts = |data| (version::dtype(data), version::shape(data).to_vec(), version::bytes(data).to_vec());
            assert_eq!(parts(&data), parts(expected), "{name}");
        }
        assert_eq!(found.len(), tensors.len());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(file.verify(folder.path()).unwrap_err().contains("bytes instead of"));
    }
}
