//! The manifest of a checkpoint: what its files are, how large, and their checksums.
//!
//! Owns the format of `manifest.json`. The checksums find damage of a disk or of a transfer; they are no protection against
//! a person who changes files on purpose.

use crate::error::{CheckpointError, Damage, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The version of the format of checkpoints.
pub(crate) const VERSION: u64 = 1;

/// The bytes that are read at a time to verify a file.
const READ_BYTES: usize = 1 << 20;

/// The manifest's name in the folder of a checkpoint.
const NAME: &str = "manifest.json";

/// What a checkpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u64,
    /// The step after which it was saved.
    pub(crate) step: u64,
    /// The random state of each device.
    pub(crate) random: Vec<Random>,
    pub(crate) files: Vec<File>,
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
    pub(crate) bytes: u64,
    /// Its CRC-32 (IEEE), as eight hexadecimal digits.
    pub(crate) crc32: String,
}

/// The manifest as it is written: with a checksum of its own.
#[derive(Serialize, Deserialize)]
struct Sealed {
    #[serde(flatten)]
    manifest: Manifest,
    /// The CRC-32 of the manifest without this field, as compact JSON.
    crc32: String,
}

impl Manifest {
    /// Returns the text of the manifest with its checksum.
    pub(crate) fn to_json(&self) -> Result<String> {
        let sealed = Sealed { manifest: self.clone(), crc32: self.checksum()? };
        serde_json::to_string_pretty(&sealed).map_err(not_written)
    }

    fn checksum(&self) -> Result<String> {
        let text = serde_json::to_vec(self).map_err(not_written)?;
        Ok(hexadecimal(crc32fast::hash(&text)))
    }

    /// Reads the manifest of a checkpoint.
    ///
    /// # Errors
    /// [`CheckpointError::Version`] for another version; [`CheckpointError::Damaged`] if it is missing or not what was
    /// written.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let damaged = |reason: String| CheckpointError::Damaged(Damage { path: folder.to_path_buf(), reason });
        let text = fs::read_to_string(folder.join(NAME)).map_err(|error| damaged(format!("`{NAME}`: {error}")))?;
        let not_json = |error: serde_json::Error| damaged(format!("`{NAME}` is not what was written: {error}"));
        let value: serde_json::Value = serde_json::from_str(&text).map_err(not_json)?;
        let found = value.get("version").and_then(serde_json::Value::as_u64);
        if let Some(found) = found.filter(|&found| found != VERSION) {
            return Err(CheckpointError::Version { path: folder.to_path_buf(), found, known: VERSION });
        }
        let Sealed { manifest, crc32 } = serde_json::from_value(value).map_err(not_json)?;
        if manifest.checksum()? != crc32 {
            return Err(damaged(format!("`{NAME}` does not have its checksum")));
        }
        Ok(manifest)
    }

    /// Returns the manifest's name in the folder of a checkpoint.
    pub(crate) fn name() -> &'static str {
        NAME
    }
}

impl File {
    pub(crate) fn new(name: String, bytes: u64, crc32: u32) -> Self {
        Self { name, bytes, crc32: hexadecimal(crc32) }
    }

    /// Checks that the file is what was written; otherwise, says what is wrong.
    pub(crate) fn verify(&self, folder: &Path) -> Result<(), String> {
        let Self { name, bytes: expected, crc32 } = self;
        let failed = |error: io::Error| format!("`{name}`: {error}");
        let mut file = fs::File::open(folder.join(name)).map_err(failed)?;
        let found = file.metadata().map_err(failed)?.len();
        if found != *expected {
            return Err(format!("`{name}` has {found} bytes instead of {expected}"));
        }
        let (mut checksum, mut buffer) = (crc32fast::Hasher::new(), vec![0; READ_BYTES]);
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => checksum.update(&buffer[..read]),
            }
        }
        if hexadecimal(checksum.finalize()) != *crc32 {
            return Err(format!("`{name}` does not have its checksum: some of its bytes changed"));
        }
        Ok(())
    }
}

fn hexadecimal(crc32: u32) -> String {
    format!("{crc32:08x}")
}

fn not_written(error: serde_json::Error) -> CheckpointError {
    CheckpointError::Bug(format!("a manifest is not JSON: {error}"))
}
