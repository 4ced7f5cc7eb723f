//! Writes a checkpoint: every process its shares, and process 0 the manifest once all have written.
//!
//! Runs on a thread of its own. It first copies the process's shares to the host, so that the run has the memory of its
//! devices back, and then writes them. A failure in one process is the error of all, and nothing is published.

use crate::checkpoint::{Checkpoint, CheckpointPart};
use crate::error::{CheckpointError, Result};
use crate::manifest::{File, IndexedPart, IndexedTensor, Manifest, Random, Slice, VERSION, hexadecimal};
use crate::restored::STATE;
use crate::retention::Retention;
use crate::shares::{self, Share};
use crate::storage::{Draft, Retrying};
use crate::tensor_file::{self, Piece, TensorFile, dtype, no_dtype};
use crate::version;
use burn_tpu::TpuTensor;
use burn_tpu::distributed::{Exchange, Region};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What begins the message of a process that failed, and the answer to it.
const FAILED: &str = "failed ";

/// The tensors of at most so many bytes are compared that all processes have, up to a number of bytes in all.
const COMPARED_BYTES: usize = 64 << 10;
const ALL_COMPARED_BYTES: usize = 1 << 20;

/// The saving of one checkpoint, in one process.
pub(crate) struct Saving {
    pub(crate) storage: Arc<Retrying>,
    /// `None` in a process that is alone.
    pub(crate) exchange: Option<Arc<Exchange>>,
    pub(crate) process: usize,
    pub(crate) processes: usize,
    pub(crate) draft: Draft,
    pub(crate) retention: Retention,
}

/// What a process wrote.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Of the outline, which is the same in all processes.
    outline: u32,
    /// The CRC-32 of small tensors that all processes have, with their places.
    samples: Vec<(usize, u32)>,
    files: Vec<File>,
    /// The slices in them, with the places of their tensors; the files are counted from 0 in each process.
    slices: Vec<(usize, Slice)>,
}

/// A tensor without its value.
struct Named {
    part: usize,
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
}

/// What all processes know of a checkpoint.
struct Outline {
    step: u64,
    random: Vec<Random>,
    parts: Vec<CheckpointPart>,
    tensors: Vec<Named>,
}

impl Outline {
    /// Returns a checksum of what decides where each slice is.
    fn checksum(&self) -> u32 {
        let mut checksum = crc32fast::Hasher::new();
        for Named { part, name, dtype, shape } in &self.tensors {
            checksum.update(format!("{} {name} {dtype} {shape:?}\n", self.parts[*part].name).as_bytes());
        }
        checksum.finalize()
    }
}

impl Saving {
    /// Saves a checkpoint.
    ///
    /// # Errors
    /// Why this process or another one could not write its part, or process 0 not publish it; of the checkpoint nothing
    /// is left then.
    pub(crate) fn run(self, checkpoint: Checkpoint) -> Result<()> {
        let _span = tracing::info_span!("checkpoint", step = checkpoint.step).entered();
        let (outline, tensors) = outline(checkpoint)?;
        let own = self.write(&outline, tensors);
        let saved = match &self.exchange {
            None => own.and_then(|own| self.publish(&outline, vec![own])),
            Some(exchange) => self.agree(exchange, &outline, own),
        };
        if saved.is_err() && self.process == 0 {
            self.storage.discard(&self.draft);
        }
        saved
    }

    /// Writes this process's files.
    fn write(&self, outline: &Outline, tensors: Vec<TpuTensor>) -> Result<Written> {
        let samples = if self.processes > 1 { samples(outline, &tensors, self.processes)? } else { Vec::new() };
        let mut written = Written { outline: outline.checksum(), samples, files: Vec::new(), slices: Vec::new() };
        for (part, pieces) in copied(outline, tensors, self.process)? {
            let file = TensorFile::new(pieces)?;
            let name = tensor_file::name(&outline.parts[part].name, self.process, self.processes);
            self.storage.write(&self.draft, &name, &file.chunks())?;
            let place = written.files.len();
            written
                .slices
                .extend(file.slices.into_iter().map(|(tensor, slice)| (tensor, Slice { file: place, ..slice })));
            written.files.push(self.file(name, file.bytes, file.crc32));
        }
        if self.process == 0 {
            let mut bytes = Vec::new();
            let encoded = ciborium::into_writer(&outline.parts, &mut bytes);
            encoded.map_err(|error| CheckpointError::Bug(format!("the state is not CBOR: {error}")))?;
            self.storage.write(&self.draft, STATE, &[&bytes])?;
            written.files.push(self.file(STATE.to_owned(), bytes.len() as u64, crc32fast::hash(&bytes)));
        }
        Ok(written)
    }

    fn file(&self, name: String, bytes: u64, crc32: u32) -> File {
        File { name, process: self.process, bytes, crc32: hexadecimal(crc32) }
    }

    /// Tells the other processes how the own part went; process 0 publishes what all have written.
    fn agree(&self, exchange: &Exchange, outline: &Outline, own: Result<Written>) -> Result<()> {
        let message = own
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|written| serde_json::to_string(written).map_err(|error| error.to_string()));
        let message = message.unwrap_or_else(|error| format!("{FAILED}{error}"));
        let what = |process| self.describe(outline, process);
        let mut published = Ok(());
        let answer = exchange.round(&message, what, |messages| {
            let all = messages.iter().enumerate().map(|(process, text)| self.unpack(outline, process, text));
            let all = all.collect::<Result<Vec<_>>>().and_then(|all| self.compare(outline, &all).map(|()| all));
            published = all.and_then(|all| self.publish(outline, all));
            match &published {
                Ok(()) => String::new(),
                Err(CheckpointError::Process { process, error, .. }) => format!("{FAILED}{process} {error}"),
                Err(error) => format!("{FAILED}0 {error}"),
            }
        });
        // Its own error says the most.
        own.map(drop)?;
        published?;
        let answer = answer?;
        let failed = answer.strip_prefix(FAILED).and_then(|failed| failed.split_once(' '));
        failed.map_or(Ok(()), |(process, error)| Err(self.failed(process.parse().unwrap_or(0), error)))
    }

    /// Returns what a process wrote, from its message.
    fn unpack(&self, outline: &Outline, process: usize, message: &str) -> Result<Written> {
        if let Some(error) = message.strip_prefix(FAILED) {
            return Err(self.failed(process, error));
        }
        let written = serde_json::from_str::<Written>(message);
        let written = written.map_err(|error| self.failed(process, &format!("its message is not one: {error}")))?;
        match written.outline == outline.checksum() {
            true => Ok(written),
            false => {
                Err(self.failed(process, "its checkpoint has other tensors, or of other types, than that of process 0"))
            }
        }
    }

    /// Checks that processes which have the same tensors have the same values: what they write is one checkpoint.
    fn compare(&self, outline: &Outline, written: &[Written]) -> Result<()> {
        for (process, own) in written.iter().enumerate() {
            let differs = written[0].samples.iter().zip(&own.samples).find(|(first, own)| first != own);
            let Some((&(place, _), _)) = differs else { continue };
            let error = format!(
                "its `{}` has other values than that of process 0: processes that train apart need a folder each",
                outline.tensors[place].name
            );
            return Err(self.failed(process, &error));
        }
        Ok(())
    }

    fn failed(&self, process: usize, error: &str) -> CheckpointError {
        CheckpointError::Process { process, count: self.processes, error: error.to_owned() }
    }

    /// Says what a process writes, for warnings and errors.
    fn describe(&self, outline: &Outline, process: usize) -> String {
        let is_used = |part: &usize| outline.tensors.iter().any(|tensor| tensor.part == *part);
        let files = (0..outline.parts.len()).filter(is_used).map(|part| {
            let name = tensor_file::name(&outline.parts[part].name, process, self.processes);
            format!("`{name}`")
        });
        let files: Vec<String> = files.collect();
        format!("its part of the checkpoint `{}` ({})", self.draft.entry, files.join(", "))
    }

    /// Publishes what all processes have written, and removes the checkpoints that do not stay.
    fn publish(&self, outline: &Outline, written: Vec<Written>) -> Result<()> {
        let attempt = self.storage.keeps_attempts().then(|| self.draft.attempt.clone());
        let manifest = manifest(outline, attempt, written);
        for file in &manifest.files {
            // Each process sees one folder, or else the checkpoint would have holes.
            let found = self.storage.draft_size(&self.draft, &file.name);
            let found = found.map_or_else(|error| error.to_string(), |bytes| format!("it has {bytes} bytes"));
            if found != format!("it has {} bytes", file.bytes) {
                let error = format!(
                    "`{}` of {} bytes, which it wrote to `{}`, is not what process 0 sees there ({found}): all \
                     processes have to write to one folder",
                    file.name,
                    file.bytes,
                    self.storage.root().display()
                );
                return Err(self.failed(file.process, &error));
            }
        }
        let json = manifest.to_json()?;
        // What is not a whole checkpoint must not become one.
        Manifest::read(&json, self.storage.root())?;
        self.storage.publish(&self.draft, &json)?;
        for outdated in self.retention.outdated(&self.storage.steps()?, outline.step) {
            self.storage.remove(outdated)?;
        }
        Ok(())
    }
}

/// Takes a checkpoint apart into its tensors and what all processes know of it.
fn outline(checkpoint: Checkpoint) -> Result<(Outline, Vec<TpuTensor>)> {
    let Checkpoint { step, random, parts, .. } = checkpoint;
    let mut outline = Outline { step, random, parts: Vec::new(), tensors: Vec::new() };
    let mut all = Vec::new();
    for (part, mut tensors) in parts {
        // Burn's maps have another order in each process.
        tensors.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for (name, tensor) in tensors {
            let (place, (of_burn, shape)) = (outline.parts.len(), version::type_of(&tensor));
            let dtype = dtype(of_burn).ok_or_else(|| no_dtype(&name, of_burn))?;
            outline.tensors.push(Named { part: place, name, dtype, shape });
            all.push(tensor);
        }
        outline.parts.push(part);
    }
    Ok((outline, all))
}

/// Returns the checksums of small tensors that all processes have, with their places.
fn samples(outline: &Outline, tensors: &[TpuTensor], processes: usize) -> Result<Vec<(usize, u32)>> {
    let (mut samples, mut left) = (Vec::new(), ALL_COMPARED_BYTES);
    for (place, (tensor, named)) in tensors.iter().zip(&outline.tensors).enumerate() {
        let bytes = named.shape.iter().product::<usize>() * named.dtype.bitsize() / 8;
        let parts = tensor.parts()?;
        let is_common = parts.len() == 1 && parts[0].processes.len() == processes;
        if bytes > COMPARED_BYTES.min(left) || !is_common {
            continue;
        }
        left -= bytes;
        let value = tensor.parts_to_bytes(&[Region::whole(&named.shape)])?.pop().unwrap_or_default();
        samples.push((place, crc32fast::hash(&value)));
    }
    Ok(samples)
}

/// Copies what a process writes to the host, by part. The device's memory of each tensor is free as soon as it is
/// copied, unless the run still uses it.
fn copied(outline: &Outline, tensors: Vec<TpuTensor>, process: usize) -> Result<BTreeMap<usize, Vec<Piece>>> {
    let planned = tensors.iter().zip(&outline.tensors);
    let planned = planned
        .map(|(tensor, named)| Ok(shares::Tensor { element: named.dtype.bitsize() / 8, parts: tensor.parts()? }));
    let planned = planned.collect::<Result<Vec<_>>>()?;
    let mut shares = shares::of(process, &planned).into_iter().peekable();
    let mut pieces: BTreeMap<usize, Vec<Piece>> = BTreeMap::new();
    for (place, (tensor, named)) in tensors.into_iter().zip(&outline.tensors).enumerate() {
        while let Some(first) = shares.next_if(|share| share.tensor == place) {
            let whole = tensor.parts_to_bytes(std::slice::from_ref(&first.part))?.pop().unwrap_or_default();
            let part = first.part.clone();
            let piece = |region: Region, bytes: Vec<u8>| {
                let (name, shape) = (named.name.clone(), named.shape.clone());
                Piece { place, name, dtype: named.dtype, shape, region, bytes }
            };
            let of_part = pieces.entry(named.part).or_default();
            if first.region == part {
                of_part.push(piece(first.region, whole));
                continue;
            }
            let is_of_part = |share: &Share| share.tensor == place && share.part == part;
            let others = std::iter::from_fn(|| shares.next_if(is_of_part));
            for share in [first].into_iter().chain(others) {
                let bytes = part.take(&whole, &share.region, planned[place].element);
                of_part.push(piece(share.region, bytes));
            }
        }
    }
    Ok(pieces)
}

/// Returns the manifest of what the processes wrote.
fn manifest(outline: &Outline, attempt: Option<String>, written: Vec<Written>) -> Manifest {
    let processes = written.len();
    let (mut files, mut slices) = (Vec::new(), BTreeMap::<usize, Vec<Slice>>::new());
    for own in written {
        for (tensor, slice) in own.slices {
            slices.entry(tensor).or_default().push(Slice { file: slice.file + files.len(), ..slice });
        }
        files.extend(own.files);
    }
    let part = |(place, part): (usize, &CheckpointPart)| {
        let tensors = outline.tensors.iter().enumerate().filter(|(_, tensor)| tensor.part == place);
        let indexed = tensors.map(|(tensor, named)| IndexedTensor {
            name: named.name.clone(),
            dtype: named.dtype,
            shape: named.shape.clone(),
            slices: slices.get(&tensor).cloned().unwrap_or_default(),
        });
        IndexedPart { name: part.name.clone(), tensors: indexed.collect() }
    };
    let (step, random) = (outline.step, outline.random.clone());
    let parts = outline.parts.iter().enumerate().map(part).collect();
    Manifest { version: VERSION, step, attempt, processes, random, files, parts }
}
