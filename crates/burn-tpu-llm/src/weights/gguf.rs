//! GGUF files ([specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)): metadata and tensors.
//!
//! No maintained crate reads them without a tensor library of its own, and the format is small.

use super::few_bits::{Quantized, reordered};
use super::quants::Kind;
use super::{Tensors, fused};
use crate::config::Config;
use crate::error::{LlmError, Result};
use crate::model::few_bits::Bits;
use burn::tensor::TensorData;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i64),
    Real(f64),
    Bool(bool),
    Text(String),
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn list(&self) -> Option<&[Value]> {
        if let Self::List(values) = self { Some(values) } else { None }
    }
}

/// Where a tensor is, and what.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    /// The slowest dimension first, unlike in the file.
    shape: Vec<usize>,
    /// From the beginning of the file.
    begin: u64,
    bytes: usize,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Gguf {
    path: PathBuf,
    file: File,
    pub(crate) metadata: BTreeMap<String, Value>,
    entries: BTreeMap<String, Entry>,
}

impl Gguf {
    /// Reads the header of a file, and checks that its tensors are within it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(LlmError::file("open", path))?;
        let length = file.metadata().map_err(LlmError::file("read", path))?.len();
        let mut reader = Reader { path, length, input: BufReader::new(&file) };
        let (metadata, entries) = reader.header()?;
        for (name, entry) in &entries {
            if entry.begin + entry.bytes as u64 > length {
                return Err(LlmError::format(
                    path,
                    format!(
                        "is not whole: it has {length} bytes, and its tensor `{name}` ends at byte {}",
                        entry.begin + entry.bytes as u64
                    ),
                ));
            }
        }
        drop(reader);
        Ok(Self { path: path.to_path_buf(), file, metadata, entries })
    }

    /// Returns the shape of a tensor under the file's name.
    pub(crate) fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.entries.get(name).map(|entry| entry.shape.clone())
    }

    /// Reads a tensor under the file's name, if there is one.
    pub(crate) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        Ok(Some(entry.kind.values(&self.bytes(entry)?)))
    }

    fn bytes(&self, entry: &Entry) -> Result<Vec<u8>> {
        let mut bytes = vec![0; entry.bytes];
        self.file.read_exact_at(&mut bytes, entry.begin).map_err(LlmError::file("read", &self.path))?;
        Ok(bytes)
    }
}

/// The tensors of a file as Hugging Face has them.
pub(crate) struct GgufTensors<'a> {
    file: &'a Gguf,
    config: &'a Config,
    /// By Hugging Face's name. A stack of experts is as many tensors.
    entries: BTreeMap<String, Entry>,
}

impl Tensors for GgufTensors<'_> {
    fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        self.entries.iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str) -> Result<TensorData> {
        let entry = self.entry(name)?;
        let shape = entry.shape.clone();
        let mut values = entry.kind.values(&self.file.bytes(entry)?);
        if self.has_pairs_beside_each_other(name) {
            let order = half_split(self.config.head);
            values = reordered(&values, shape[1..].iter().product(), order);
        }
        if self.config.norm_less_one && name.contains("norm.") {
            // Such files have what Hugging Face's have, plus one.
            values.iter_mut().for_each(|value| *value -= 1.0);
        }
        Ok(TensorData::new(values, shape))
    }

    fn read_few_bits(&self, name: &str, bits: Bits) -> Result<Quantized> {
        let entry = self.entry(name)?;
        let bytes = self.file.bytes(entry)?;
        let inputs = entry.shape[1];
        let quantized = entry.kind.quantized(&bytes, inputs, bits);
        let quantized = quantized.unwrap_or_else(|| Quantized::of(&entry.kind.values(&bytes), inputs, bits));
        let split = self.has_pairs_beside_each_other(name);
        Ok(if split { quantized.with_outputs(half_split(self.config.head)) } else { quantized })
    }
}

impl<'a> GgufTensors<'a> {
    pub(crate) fn new(file: &'a Gguf, config: &'a Config) -> Self {
        let tensors = file.entries.iter().filter(|(name, _)| *name != "rope_freqs.weight");
        let entries = tensors.flat_map(|(name, entry)| parts(name, entry));
        let entries = entries.map(|(name, entry)| (theirs_to_ours(&name, config), entry));
        let entries = entries.flat_map(|(name, entry)| divided(name, entry, config)).collect();
        Self { file, config, entries }
    }

    /// Returns where a tensor is, by Hugging Face's name.
    fn entry(&self, name: &str) -> Result<&Entry> {
        let missing = || LlmError::format(&self.file.path, format!("has no tensor `{name}`"));
        self.entries.get(name).ok_or_else(missing)
    }

    /// Returns whether the rows of a tensor are in another order than Hugging Face's.
    fn has_pairs_beside_each_other(&self, name: &str) -> bool {
        let architecture = self.file.metadata.get("general.architecture").and_then(Value::text);
        architecture == Some("llama") && (name.contains(".q_proj.") || name.contains(".k_proj."))
    }
}

/// Returns the tensors of a layer's experts, whose numbers their names have, or a tensor as it is.
fn parts(name: &str, entry: &Entry) -> Vec<(String, Entry)> {
    let mut entry = entry.clone();
    if name.ends_with("ffn_gate_inp_shexp.weight") && entry.shape.len() == 1 {
        // A matrix with one output.
        entry.shape.insert(0, 1);
    }
    let stack = name.split_once("_exps.").filter(|_| entry.shape.len() > 1 && entry.shape[0] > 0);
    let Some((before, last)) = stack else { return vec![(name.to_owned(), entry)] };
    let (count, shape) = (entry.shape[0], entry.shape[1..].to_vec());
    let bytes = entry.bytes / count;
    let part = |expert: usize| {
        let begin = entry.begin + (expert * bytes) as u64;
        (format!("{before}.{expert}.{last}"), Entry { kind: entry.kind, shape: shape.clone(), begin, bytes })
    };
    (0..count).map(part).collect()
}

/// Returns the products that a tensor under Hugging Face's name is, or the tensor as it is.
fn divided(name: String, entry: Entry, config: &Config) -> Vec<(String, Entry)> {
    let rows = entry.shape.first().copied().unwrap_or_default();
    // Phi's `ffn_up` has the gate first.
    let whole =
        if rows == 2 * config.feed_forward { name.replace(".up_proj.", ".gate_up_proj.") } else { name.clone() };
    let Some(parts) = fused::parts(&whole, rows, config) else { return vec![(name, entry)] };
    let row = entry.bytes / rows.max(1);
    let part = |(name, rows): (String, Range<usize>)| {
        let shape = [&[rows.len()], &entry.shape[1..]].concat();
        let begin = entry.begin + (rows.start * row) as u64;
        (name, Entry { kind: entry.kind, shape, begin, bytes: rows.len() * row })
    };
    parts.into_iter().map(part).collect()
}

/// Returns where a row of heads of this size was before: files of the architecture `llama` have the elements of a pair
/// beside each other, and Hugging Face's have them half a head apart.
fn half_split(head: usize) -> impl Fn(usize) -> usize {
    move |row| {
        let (first, within) = (row - row % head, row % head);
        let half = head.div_ceil(2);
        first + if within < half { 2 * within } else { 2 * (within - half) + 1 }
    }
}

/// Returns Hugging Face's name of a tensor; the file's own if it has none.
fn theirs_to_ours(name: &str, config: &Config) -> String {
    let whole = match name {
        "token_embd.weight" => Some("model.embed_tokens.weight"),
        "output_norm.weight" => Some("model.norm.weight"),
        "output.weight" => Some("lm_head.weight"),
        _ => None,
    };
    if let Some(whole) = whole {
        return whole.to_owned();
    }
    let parts: Vec<_> = name.split('.').collect();
    let (layer, part, expert, last) = match parts.as_slice() {
        ["blk", layer, part, last] => (layer, part, None, last),
        ["blk", layer, part, expert, last] => (layer, part, Some(expert), last),
        _ => return name.to_owned(),
    };
    let part = match *part {
        "attn_norm" => "input_layernorm",
        "attn_qkv" => "self_attn.qkv_proj",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" if config.post_norms => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        "ffn_gate_inp" => "mlp.gate",
        "ffn_gate_inp_shexp" => "mlp.shared_expert_gate",
        "ffn_gate_shexp" => "mlp.shared_expert.gate_proj",
        "ffn_up_shexp" => "mlp.shared_expert.up_proj",
        "ffn_down_shexp" => "mlp.shared_expert.down_proj",
        _ => return name.to_owned(),
    };
    let part = match expert {
        Some(expert) => part.replace("mlp.", &format!("mlp.experts.{expert}.")),
        None => part.to_owned(),
    };
    let part = config.family.named(part.split('.'));
    format!("model.layers.{layer}.{part}.{last}")
}

/// Reads a header.
struct Reader<'a, R> {
    path: &'a Path,
    /// Bytes of the file: no count in it can be larger.
    length: u64,
    input: R,
}

type Header = (BTreeMap<String, Value>, BTreeMap<String, Entry>);

impl<R: Read + Seek> Reader<'_, R> {
    fn header(&mut self) -> Result<Header> {
        if &self.array::<4>()? != b"GGUF" {
            return Err(self.error("is no GGUF file: it does not begin with `GGUF`"));
        }
        let version = u32::from_le_bytes(self.array()?);
        if !(2..=3).contains(&version) {
            return Err(self.error(format!("has GGUF version {version}; this crate reads versions 2 and 3")));
        }
        let (tensors, fields) = (self.count()?, self.count()?);
        let mut metadata = BTreeMap::new();
        for _ in 0..fields {
            let name = self.text()?;
            let kind = u32::from_le_bytes(self.array()?);
            metadata.insert(name, self.value(kind)?);
        }
        let mut entries = BTreeMap::new();
        for _ in 0..tensors {
            let (name, entry) = self.entry()?;
            entries.insert(name, entry);
        }
        let alignment =
            metadata.get("general.alignment").and_then(Value::number).map_or(32, |bytes| bytes as u64).max(1);
        let position = self.input.stream_position().map_err(LlmError::file("read", self.path))?;
        let data = position.next_multiple_of(alignment);
        entries.values_mut().for_each(|entry| entry.begin = entry.begin.saturating_add(data));
        Ok((metadata, entries))
    }

    fn entry(&mut self) -> Result<(String, Entry)> {
        let name = self.text()?;
        let rank = u32::from_le_bytes(self.array()?);
        if rank > 4 {
            return Err(self.error(format!("has a tensor `{name}` of {rank} dimensions")));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            shape.insert(0, u64::from_le_bytes(self.array()?) as usize);
        }
        let number = u32::from_le_bytes(self.array()?);
        let begin = u64::from_le_bytes(self.array()?);
        let known = "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K";
        let unknown = || format!("has a tensor `{name}` of ggml's type {number}; this crate reads {known}");
        let kind = Kind::of(number).ok_or_else(|| self.error(unknown()))?;
        let (elements, bytes) = kind.block();
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        let whole = count.filter(|_| shape.last().is_none_or(|row| row.is_multiple_of(elements)));
        let wrong = || format!("has a tensor `{name}` {shape:?}, whose rows are no whole blocks of {kind:?}");
        let count = whole.ok_or_else(|| self.error(wrong()))?;
        Ok((name, Entry { kind, shape, begin, bytes: count / elements * bytes }))
    }

    fn value(&mut self, kind: u32) -> Result<Value> {
        Ok(match kind {
            0 => Value::Integer(self.array::<1>()?[0].into()),
            1 => Value::Integer(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Integer(u32::from_le_bytes(self.array()?).into()),
            5 => Value::Integer(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Real(f32::from_le_bytes(self.array()?).into()),
            7 => Value::Bool(self.array::<1>()?[0] != 0),
            8 => Value::Text(self.text()?),
            9 => {
                let kind = u32::from_le_bytes(self.array()?);
                if kind == 9 {
                    return Err(self.error("has a list of lists in its metadata"));
                }
                let count = self.count()?;
                Value::List((0..count).map(|_| self.value(kind)).collect::<Result<_>>()?)
            }
            10 => Value::Integer(u64::from_le_bytes(self.array()?) as i64),
            11 => Value::Integer(i64::from_le_bytes(self.array()?)),
            12 => Value::Real(f64::from_le_bytes(self.array()?)),
            _ => return Err(self.error(format!("has a value of the unknown type {kind} in its metadata"))),
        })
    }

    fn text(&mut self) -> Result<String> {
        let mut bytes = vec![0; self.count()? as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.error("has text in its metadata that is no UTF-8"))
    }

    fn count(&mut self) -> Result<u64> {
        let count = u64::from_le_bytes(self.array()?);
        if count > self.length {
            return Err(
                self.error(format!("is damaged: its header counts {count} of something in {} bytes", self.length))
            );
        }
        Ok(count)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.input.read_exact(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.error(format!("is not whole: it has {} bytes, and its header goes on", self.length)))
            }
            result => result.map_err(LlmError::file("read", self.path)),
        }
    }

    fn error(&self, reason: impl Into<String>) -> LlmError {
        LlmError::format(self.path, reason)
    }
}
