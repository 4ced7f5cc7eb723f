//! Hugging Face's folders: `model.safetensors`, or the shards that `model.safetensors.index.json` names.

use super::{Tensors, fused};
use crate::config::Config;
use crate::error::{LlmError, Result};
use burn::tensor::{DType, TensorData};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where a tensor is, and what.
#[derive(Debug)]
struct Entry {
    /// Index into the files.
    file: usize,
    dtype: DType,
    shape: Vec<usize>,
    begin: u64,
    bytes: usize,
}

/// The tensors of a folder.
#[derive(Debug)]
pub(crate) struct Shards {
    files: Vec<(PathBuf, File)>,
    entries: BTreeMap<String, Entry>,
}

impl Shards {
    /// Opens the files of a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        Self::of_files(shard_paths(folder)?)
    }

    /// Reads the headers of files, and checks that their tensors are within them.
    pub(crate) fn of_files(paths: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut shards = Self { files: Vec::new(), entries: BTreeMap::new() };
        for path in paths {
            shards.add(path)?;
        }
        Ok(shards)
    }

    /// Divides the products that the files of a model have as one.
    pub(crate) fn divided(mut self, config: &Config) -> Self {
        let entries = std::mem::take(&mut self.entries).into_iter();
        self.entries = entries.flat_map(|(name, entry)| divided(name, entry, config)).collect();
        self
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        let file = File::open(&path).map_err(LlmError::file("open", &path))?;
        let length = file.metadata().map_err(LlmError::file("read", &path))?.len();
        let cut =
            || LlmError::format(&path, format!("is not a safetensors file, or not a whole one: it has {length} bytes"));
        let mut size = [0; 8];
        file.read_exact_at(&mut size, 0).map_err(|_| cut())?;
        let size = u64::from_le_bytes(size);
        if size > length.saturating_sub(8) {
            return Err(cut());
        }
        let mut header = vec![0; size as usize];
        file.read_exact_at(&mut header, 8).map_err(LlmError::file("read", &path))?;
        let metadata: Metadata = serde_json::from_slice(&header)
            .map_err(|error| LlmError::format(&path, format!("has a damaged header: {error}")))?;
        for (name, info) in metadata.tensors() {
            let entry = self.entry(info, 8 + size, length);
            let entry = entry.map_err(|reason| LlmError::format(&path, reason.replace("{}", &format!("`{name}`"))))?;
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(LlmError::format(&path, format!("has the tensor `{name}`, as another shard has")));
            }
        }
        self.files.push((path, file));
        Ok(())
    }

    /// Returns a tensor of the next file, whose tensors begin at `data`; the crate `safetensors` has compared its bytes
    /// with its shape. In the reason why it cannot be one, `{}` is its name.
    fn entry(&self, info: &TensorInfo, data: u64, length: u64) -> Result<Entry, String> {
        let (dtype, shape) = (info.dtype, info.shape.clone());
        let float = float(dtype)
            .ok_or_else(|| format!("has a tensor {{}} of type {dtype}; this crate reads F32, F16 and BF16"))?;
        let (begin, end) = info.data_offsets;
        let bytes = end - begin;
        let end = data.saturating_add(end as u64);
        if end > length {
            return Err(format!("is not whole: it has {length} bytes, and its tensor {{}} ends at byte {end}"));
        }
        Ok(Entry { file: self.files.len(), dtype: float, shape, begin: data + begin as u64, bytes })
    }
}

/// Returns the products that a tensor is, or the tensor as it is.
fn divided(name: String, entry: Entry, config: &Config) -> Vec<(String, Entry)> {
    let rows = entry.shape.first().copied().unwrap_or_default();
    let Some(parts) = fused::parts(&name, rows, config) else { return vec![(name, entry)] };
    let row = entry.bytes / rows.max(1);
    let part = |(name, rows): (String, Range<usize>)| {
        let shape = [&[rows.len()], &entry.shape[1..]].concat();
        (name, Entry { begin: entry.begin + (rows.start * row) as u64, bytes: rows.len() * row, shape, ..entry })
    };
    parts.into_iter().map(part).collect()
}

fn float(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// Returns the files of a folder: those that the index names, if there is one.
fn shard_paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let text = std::fs::read_to_string(&index).map_err(LlmError::file("read", &index))?;
    let names = serde_json::from_str::<serde_json::Value>(&text).ok();
    let names = names.as_ref().and_then(|index| index["weight_map"].as_object());
    let names = names.ok_or_else(|| LlmError::format(&index, "has no `weight_map` from tensors to files"))?;
    let files: BTreeSet<_> = names.values().filter_map(|file| file.as_str()).collect();
    Ok(files.into_iter().map(|file| folder.join(file)).collect())
}

impl Tensors for Shards {
    fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.entries.iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str) -> Result<TensorData> {
        let entry = self.entries.get(name).ok_or_else(|| LlmError::Weights {
            path: self.files.first().map(|(path, _)| path.clone()).unwrap_or_default(),
            problems: vec![format!("`{name}` is missing")],
        })?;
        let (path, file) = &self.files[entry.file];
        let mut bytes = vec![0; entry.bytes];
        file.read_exact_at(&mut bytes, entry.begin).map_err(LlmError::file("read", path))?;
        Ok(TensorData::from_bytes_vec(bytes, entry.shape.clone(), entry.dtype))
    }
}
