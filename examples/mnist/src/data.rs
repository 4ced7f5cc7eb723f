//! The MNIST files as bytes: reading and checking the IDX format.
//!
//! Images stay `u8` on the host (47 MB for the training set); `batch` converts the few that a step needs to tensors.
//! The format is a big-endian header (magic number, one length per dimension) followed by plain bytes.

use burn_tpu_workspace::models::{CLASSES, PIXELS};
use std::fmt;
use std::path::{Path, PathBuf};

/// One image and its digit.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Row-major; 0 is the background.
    pub pixels: [u8; PIXELS],
    /// 0 to 9.
    pub label: u8,
}

/// One of the two halves of MNIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// 60,000 images.
    Train,
    /// 10,000 images.
    Test,
}

impl Split {
    fn files(self) -> [&'static str; 2] {
        match self {
            Split::Train => ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"],
            Split::Test => ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"],
        }
    }

    /// Returns the number of images in the published files.
    pub fn len(self) -> usize {
        match self {
            Split::Train => 60_000,
            Split::Test => 10_000,
        }
    }
}

/// An invalid file.
#[derive(Debug)]
pub struct DataError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Missing,
    Unreadable(std::io::Error),
    Header { bytes: usize, needed: usize },
    Magic { found: u32, expected: u32 },
    Dimensions { found: Vec<usize>, expected: Vec<usize> },
    Size { found: usize, expected: usize },
    Label { index: usize, found: u8 },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the MNIST file `{}` ", self.path.display())?;
        match &self.problem {
            Problem::Missing => write!(f, "is missing")?,
            Problem::Unreadable(error) => write!(f, "cannot be read: {error}")?,
            Problem::Header { bytes, needed } => {
                write!(f, "is too short for an IDX header: {bytes} bytes instead of at least {needed}")?
            }
            Problem::Magic { found: 0x1f8b_0800..=0x1f8b_08ff, .. } => {
                write!(f, "is gzip-compressed: unpack it first with `gunzip`")?
            }
            Problem::Magic { found, expected } => {
                write!(f, "is not the expected IDX file: magic number {found:#010x} instead of {expected:#010x}")?
            }
            Problem::Dimensions { found, expected } => write!(f, "has dimensions {found:?} instead of {expected:?}")?,
            Problem::Size { found, expected } if found < expected => {
                write!(f, "is truncated: {found} bytes instead of {expected}")?
            }
            Problem::Size { found, expected } => {
                write!(f, "has {} bytes too many ({found} instead of {expected})", found - expected)?
            }
            Problem::Label { index, found } => {
                write!(f, "has the label {found} at position {index}, which is not a digit")?
            }
        }
        write!(f, "; `cargo xtask data` downloads the files to the cache folder, `--data DIR` selects another folder")
    }
}

impl std::error::Error for DataError {}

/// Reads both files of a split and checks them.
pub fn load(folder: &Path, split: Split) -> Result<Vec<Item>, DataError> {
    load_sized(folder, split, split.len())
}

fn load_sized(folder: &Path, split: Split, count: usize) -> Result<Vec<Item>, DataError> {
    let [images, labels] = split.files().map(|name| folder.join(name));
    let pixels = read_idx(&images, &[count, 28, 28])?;
    let digits = read_idx(&labels, &[count])?;
    if let Some(index) = digits.iter().position(|label| usize::from(*label) >= CLASSES) {
        return Err(DataError { path: labels, problem: Problem::Label { index, found: digits[index] } });
    }
    let rows = pixels.as_chunks::<PIXELS>().0;
    Ok(rows.iter().zip(digits).map(|(pixels, label)| Item { pixels: *pixels, label }).collect())
}

/// Returns the bytes after the header of an IDX file of unsigned bytes with exactly these dimensions.
fn read_idx(path: &Path, dimensions: &[usize]) -> Result<Vec<u8>, DataError> {
    let fail = |problem| DataError { path: path.to_path_buf(), problem };
    let mut bytes = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => fail(Problem::Missing),
        _ => fail(Problem::Unreadable(error)),
    })?;
    let header = 4 * (1 + dimensions.len());
    if bytes.len() < header {
        return Err(fail(Problem::Header { bytes: bytes.len(), needed: header }));
    }
    let words: Vec<u32> = bytes[..header].as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    // Two zero bytes, 0x08 for unsigned bytes, the number of dimensions.
    let expected = 0x0800 + dimensions.len() as u32;
    if words[0] != expected {
        return Err(fail(Problem::Magic { found: words[0], expected }));
    }
    let found: Vec<usize> = words[1..].iter().map(|length| *length as usize).collect();
    if found != dimensions {
        return Err(fail(Problem::Dimensions { found, expected: dimensions.to_vec() }));
    }
    let size = header + dimensions.iter().product::<usize>();
    if bytes.len() != size {
        return Err(fail(Problem::Size { found: bytes.len(), expected: size }));
    }
    bytes.drain(..header);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idx(magic: u32, dimensions: &[u32], bytes: usize) -> Vec<u8> {
        let words = std::iter::once(&magic).chain(dimensions);
        words.flat_map(|word| word.to_be_bytes()).chain(std::iter::repeat_n(7, bytes)).collect()
    }

    /// Creates a folder with a two-image training set whose image and label files have these bytes.
    fn folder(images: &[u8], labels: &[u8]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let [images_name, labels_name] = Split::Train.files();
        std::fs::write(folder.path().join(images_name), images).unwrap();
        std::fs::write(folder.path().join(labels_name), labels).unwrap();
        folder
    }

    fn error(images: &[u8], labels: &[u8]) -> String {
        let folder = folder(images, labels);
        load_sized(folder.path(), Split::Train, 2).unwrap_err().to_string()
    }

    fn good_images() -> Vec<u8> {
        idx(0x0803, &[2, 28, 28], 2 * PIXELS)
    }

    fn good_labels() -> Vec<u8> {
        idx(0x0801, &[2], 2)
    }

    #[test]
    fn complete_files_load() {
        let folder = folder(&good_images(), &good_labels());
        let items = load_sized(folder.path(), Split::Train, 2).unwrap();
        assert_eq!(items, vec![Item { pixels: [7; PIXELS], label: 7 }; 2]);
    }

    #[test]
    fn the_error_of_a_missing_file_names_it_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let message = load(folder.path(), Split::Test).unwrap_err().to_string();
        for part in ["t10k-images-idx3-ubyte", "is missing", "cargo xtask data", "--data DIR"] {
            assert!(message.contains(part), "`{part}` missing in: {message}");
        }
    }

    #[test]
    fn the_error_of_a_wrong_magic_number_shows_the_right_one() {
        let message = error(&idx(0x0801, &[2, 28, 28], 2 * PIXELS), &good_labels());
        assert!(message.contains("0x00000801 instead of 0x00000803"), "{message}");
        let message = error(&[&[0x1f, 0x8b, 8, 0][..], &[0; 100]].concat(), &good_labels());
        assert!(message.contains("gunzip"), "{message}");
    }

    #[test]
    fn the_error_of_a_truncated_file_shows_the_right_length() {
        let images = good_images();
        let message = error(&images[..images.len() - 1], &good_labels());
        assert!(message.contains("truncated: 1583 bytes instead of 1584"), "{message}");
        assert!(error(&images[..9], &good_labels()).contains("too short for an IDX header"));
        assert!(error(&[&images[..], &[0]].concat(), &good_labels()).contains("1 bytes too many"));
    }

    #[test]
    fn a_wrong_count_or_label_is_an_error() {
        let message = error(&idx(0x0803, &[3, 28, 28], 3 * PIXELS), &good_labels());
        assert!(message.contains("dimensions [3, 28, 28] instead of [2, 28, 28]"), "{message}");
        let mut labels = good_labels();
        *labels.last_mut().unwrap() = 10;
        assert!(error(&good_images(), &labels).contains("label 10 at position 1"));
    }
}
