//! Files of tensors, in the safetensors format: a header as JSON, then the elements.
//!
//! Owns the names of the files, the order of the slices in them, and their checksums. The header's form and its checks
//! are those of the crate `safetensors`.

use crate::error::{CheckpointError, Result};
use crate::manifest::{self, Slice, block_bytes};
use burn_core::tensor::{BoolStore, DType};
use burn_tpu::distributed::Region;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

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
pub(crate) fn burn_dtype(dtype: Dtype) -> Option<DType> {
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

/// Returns the name of a process's file with the tensors of a part.
pub(crate) fn name(part: &str, process: usize, processes: usize) -> String {
    match processes {
        1 => format!("{part}{ENDING}"),
        _ => format!("{part}-{process}-of-{processes}{ENDING}"),
    }
}

/// A slice of a tensor on the host.
pub(crate) struct Piece {
    /// The place of the tensor among those of the checkpoint.
    pub(crate) place: usize,
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) region: Region,
    pub(crate) bytes: Vec<u8>,
}

impl Piece {
    /// Returns the name in the file: the tensor's, or with the slice that it is: `head.weight[0:8, 0:32]`.
    fn name(&self) -> String {
        match self.region == Region::whole(&self.shape) {
            true => self.name.clone(),
            false => format!("{}{}", self.name, self.region),
        }
    }
}

/// A file of tensors that is to be written.
pub(crate) struct TensorFile {
    header: Vec<u8>,
    pieces: Vec<Piece>,
    /// Where each is, with the place of its tensor. The number of the file is not known yet.
    pub(crate) slices: Vec<(usize, Slice)>,
    pub(crate) bytes: u64,
    pub(crate) crc32: u32,
}

impl TensorFile {
    /// Lays out a file of these slices.
    pub(crate) fn new(mut pieces: Vec<Piece>) -> Result<Self> {
        // Wide types first, so that every tensor begins at a multiple of its element's size.
        pieces.sort_by(|a, b| {
            let by_name = || a.name.cmp(&b.name).then_with(|| a.region.cmp(&b.region));
            b.dtype.bitsize().cmp(&a.dtype.bitsize()).then_with(by_name)
        });
        let header = header(&pieces)?;
        let mut all = crc32fast::Hasher::new();
        all.update(&header);
        let (mut at, mut slices) = (header.len() as u64, Vec::with_capacity(pieces.len()));
        for Piece { place, region, bytes, .. } in &pieces {
            let block = block_bytes(bytes.len() as u64);
            let mut crc32 = String::new();
            for block in bytes.chunks(block as usize) {
                let mut checksum = crc32fast::Hasher::new();
                checksum.update(block);
                all.combine(&checksum);
                crc32 += &manifest::hexadecimal(checksum.finalize());
            }
            let (start, sizes) = (region.start.clone(), region.sizes.clone());
            slices.push((*place, Slice { file: 0, at, start, sizes, block, crc32 }));
            at += bytes.len() as u64;
        }
        Ok(Self { header, pieces, slices, bytes: at, crc32: all.finalize() })
    }

    /// Returns the file's bytes, in order.
    pub(crate) fn chunks(&self) -> Vec<&[u8]> {
        let elements = self.pieces.iter().map(|piece| &piece.bytes[..]);
        [&self.header[..]].into_iter().chain(elements).collect()
    }
}

/// Returns what precedes the elements: the length of the header, and the header.
fn header(pieces: &[Piece]) -> Result<Vec<u8>> {
    let mut end = 0;
    let info = |piece: &Piece| {
        let begin = end;
        end += piece.bytes.len();
        let (dtype, shape) = (piece.dtype, piece.region.sizes.clone());
        (piece.name(), TensorInfo { dtype, shape, data_offsets: (begin, end) })
    };
    let infos: Vec<_> = pieces.iter().map(info).collect();
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

/// Returns the number of bytes of a file's header, which its first eight bytes say.
pub(crate) fn header_bytes(first: [u8; 8]) -> u64 {
    u64::from_le_bytes(first)
}

/// A tensor of a file of whole tensors: its name, its type, its dims, and where its elements begin and end.
pub(crate) type Listed = (String, Dtype, Vec<usize>, (u64, u64));

/// Returns the tensors that a header lists, of a file of whole tensors; otherwise, says what is wrong with it.
pub(crate) fn list(header: &[u8]) -> Result<Vec<Listed>, String> {
    let metadata: Metadata = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let begin = 8 + header.len() as u64;
    let listed = |(name, info): (String, &TensorInfo)| {
        let (from, to) = info.data_offsets;
        (name, info.dtype, info.shape.clone(), (begin + from as u64, begin + to as u64))
    };
    Ok(metadata.tensors().into_iter().map(listed).collect::<Vec<_>>())
}

/// Describes the type of a tensor, as in error messages.
pub(crate) fn describe(dtype: DType, shape: &[usize]) -> String {
    match self::dtype(dtype) {
        Some(dtype) => format!("{dtype} {shape:?}"),
        None => format!("{dtype:?} {shape:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn piece(name: &str, dtype: Dtype, shape: &[usize], region: Region, bytes: Vec<u8>) -> Piece {
        Piece { place: 7, name: name.to_owned(), dtype, shape: shape.to_vec(), region, bytes }
    }

    #[test]
    fn any_reader_of_safetensors_opens_a_file() {
        let rows = Region { start: vec![2, 0], sizes: vec![1, 2] };
        let file = TensorFile::new(vec![
            piece("a.bools", Dtype::BOOL, &[3], Region::whole(&[3]), vec![1, 0, 1]),
            piece("b.floats", Dtype::F32, &[4, 2], rows, (1..9).collect()),
            piece("c.nothing", Dtype::I64, &[0, 3], Region::whole(&[0, 3]), Vec::new()),
        ]);
        let file = file.unwrap();
        let bytes = file.chunks().concat();
        assert_eq!((bytes.len() as u64, crc32fast::hash(&bytes)), (file.bytes, file.crc32));
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.tensor("b.floats[2:3, 0:2]").unwrap().data(), (1..9).collect::<Vec<u8>>());
        assert_eq!(read.tensor("a.bools").unwrap().shape(), [3]);
        assert_eq!(read.tensor("c.nothing").unwrap().shape(), [0, 3]);
        // The index says the same.
        let (place, slice) = &file.slices[1];
        assert_eq!((*place, slice.bytes(Dtype::F32)), (7, 8));
        assert_eq!(&bytes[slice.at as usize..][..8], (1..9).collect::<Vec<u8>>());
        assert_eq!(slice.checksum(0), Some(&*manifest::hexadecimal(crc32fast::hash(&[1, 2, 3, 4, 5, 6, 7, 8]))));
        assert_eq!(slice.checksum(1), None);
        let length = header_bytes(bytes[..8].try_into().unwrap());
        let listed = list(&bytes[8..8 + length as usize]).unwrap();
        let floats = listed.iter().find(|(name, ..)| name.starts_with("b.floats")).unwrap();
        assert_eq!(floats.3, (slice.at, slice.at + 8));
    }
}
