//! CTranslate2's `model.bin`: named arrays of numbers, of which weights may be rounded to 16 or 8 bits.
//!
//! All numbers are little-endian. A string is its length with a final zero byte (u16), its bytes, and that byte. The file is
//! a version (u32), the kind of model (string) and its revision (u32); then a count (u32) of arrays, each with its name, its
//! rank (u8), its sizes (u32 each), a type (u8), the length in bytes (u32) and the bytes; then a count of second names, each
//! with the array that it names. Source: `ModelSpec._serialize` in CTranslate2's `model_spec.py`.

use anyhow::{Context, Result, bail, ensure};
use burn::tensor::TensorData;
use half::{bf16, f16};
use std::collections::HashMap;
use std::path::Path;

/// The version of files that this reader knows: all since CTranslate2 3.0 have it.
const VERSION: u32 = 6;

/// A file in memory.
#[derive(Debug)]
pub struct Ct2File {
    kind: String,
    arrays: HashMap<String, Array>,
    /// Second names, and the arrays that they name.
    aliases: HashMap<String, String>,
}

#[derive(Debug)]
struct Array {
    sizes: Vec<usize>,
    dtype: Dtype,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dtype {
    F32,
    I8,
    I16,
    I32,
    F16,
    Bf16,
}

impl Ct2File {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self> {
        let read = || format!("cannot read the weights `{}`", path.display());
        let bytes = std::fs::read(path).with_context(read)?;
        Self::parse(&bytes).with_context(read)
    }

    /// Reads the bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let version = reader.u32().context("this is no file of CTranslate2")?;
        ensure!(version == VERSION, "this is no file of CTranslate2, or one of version {version} instead of {VERSION}");
        let kind = reader.string().context("the kind of model")?;
        let _revision = reader.u32().context("the model's revision")?;
        let count = reader.u32().context("the number of arrays")?;
        let mut arrays = HashMap::new();
        for index in 1..=count {
            let name = reader.string().with_context(|| format!("the name of array {index} of {count}"))?;
            let array = reader.array().with_context(|| format!("`{name}`, array {index} of {count}"))?;
            arrays.insert(name, array);
        }
        let mut aliases = HashMap::new();
        for _ in 0..reader.u32().context("the number of second names")? {
            let alias = reader.string().context("a second name")?;
            let name = reader.string().with_context(|| format!("what `{alias}` stands for"))?;
            aliases.insert(alias, name);
        }
        Ok(Self { kind, arrays, aliases })
    }

    /// Returns the kind of model, such as `WhisperSpec`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns whether there is an array of this name.
    pub fn has(&self, name: &str) -> bool {
        self.array(name).is_ok()
    }

    /// Returns an array's sizes, which must be as many as asked for.
    pub fn sizes<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        let sizes = &self.array(name)?.sizes;
        sizes.as_slice().try_into().ok().with_context(|| format!("`{name}` has sizes {sizes:?} instead of {D} of them"))
    }

    /// Returns an integer.
    pub fn integer(&self, name: &str) -> Result<usize> {
        let array = self.array(name)?;
        let known = matches!(array.dtype, Dtype::I8 | Dtype::I16 | Dtype::I32) && array.sizes.is_empty();
        ensure!(known, "`{name}` is not an integer");
        let value = array.numbers()[0];
        ensure!(value >= 0.0, "`{name}` is {value}, less than 0");
        Ok(value as usize)
    }

    /// Returns an array in f32. What was rounded to integers is divided by its scale: one number for all, or one for each
    /// row, in the array `NAME_scale`.
    pub fn floats(&self, name: &str) -> Result<TensorData> {
        let array = self.array(name)?;
        let mut numbers = array.numbers();
        if matches!(array.dtype, Dtype::I8 | Dtype::I16 | Dtype::I32) {
            let scales = self.array(&format!("{name}_scale"))?.numbers();
            let rows = scales.len();
            ensure!(
                rows == 1 || array.sizes.first() == Some(&rows),
                "`{name}` has sizes {:?}, and `{name}_scale` has {rows} numbers",
                array.sizes
            );
            let row = numbers.len() / rows.max(1);
            for (index, number) in numbers.iter_mut().enumerate() {
                *number /= scales[index / row];
            }
        }
        Ok(TensorData::new(numbers, array.sizes.clone()))
    }

    fn array(&self, name: &str) -> Result<&Array> {
        let target = self.aliases.get(name).map_or(name, String::as_str);
        self.arrays.get(target).with_context(|| format!("there is no `{name}`"))
    }
}

impl Array {
    /// Returns the numbers as they are in the file, without scales.
    fn numbers(&self) -> Vec<f32> {
        match self.dtype {
            Dtype::F32 => self.map(f32::from_le_bytes),
            Dtype::I8 => self.map(|bytes| i8::from_le_bytes(bytes).into()),
            Dtype::I16 => self.map(|bytes| i16::from_le_bytes(bytes).into()),
            Dtype::I32 => self.map(|bytes| i32::from_le_bytes(bytes) as f32),
            Dtype::F16 => self.map(|bytes| f16::from_le_bytes(bytes).into()),
            Dtype::Bf16 => self.map(|bytes| bf16::from_le_bytes(bytes).into()),
        }
    }

    fn map<const N: usize>(&self, number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        self.bytes.as_chunks().0.iter().map(|bytes| number(*bytes)).collect()
    }
}

impl Dtype {
    fn new(id: u8) -> Result<Self> {
        Ok(match id {
            0 => Self::F32,
            1 => Self::I8,
            2 => Self::I16,
            3 => Self::I32,
            4 => Self::F16,
            5 => Self::Bf16,
            _ => bail!("its type has the unknown number {id}"),
        })
    }

    /// Returns the bytes of a number.
    fn width(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }
}

/// The bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let left = self.0.len();
        let taken = self.0.split_off(..count);
        taken.with_context(|| format!("the file ends too early: {left} of {count} bytes are left"))
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into()?)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.number()?))
    }

    fn string(&mut self) -> Result<String> {
        let length = u16::from_le_bytes(self.number()?);
        let [text @ .., 0] = self.bytes(length.into())? else { bail!("a string does not end with a zero byte") };
        Ok(str::from_utf8(text)?.to_owned())
    }

    /// Reads what follows an array's name.
    fn array(&mut self) -> Result<Array> {
        let [rank] = self.number()?;
        let sizes = (0..rank).map(|_| Ok(self.u32()? as usize)).collect::<Result<Vec<_>>>()?;
        let [id] = self.number()?;
        let dtype = Dtype::new(id)?;
        let length = self.u32()? as usize;
        let expected = sizes.iter().try_fold(dtype.width(), |product, size| product.checked_mul(*size));
        ensure!(expected == Some(length), "it has {length} bytes, which are not those of sizes {sizes:?} as {dtype:?}");
        Ok(Array { sizes, dtype, bytes: self.bytes(length)?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Writer;

    fn small() -> Writer {
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        let mut file = Writer::default();
        file.array("f32", &[2], 0, &bytes(&[1.5, -2.0]));
        file.array("i8", &[2, 2], 1, &[10, 246, 4, 127]);
        file.array("i8_scale", &[2], 0, &bytes(&[10.0, 2.0]));
        file.array("i16", &[2], 2, &[0, 4, 0, 252]);
        file.array("i16_scale", &[], 0, &bytes(&[1024.0]));
        file.array("f16", &[1], 4, &f16::from_f32(0.375).to_le_bytes());
        file.array("bf16", &[1], 5, &bf16::from_f32(-3.0).to_le_bytes());
        file.array("six", &[], 2, &[6, 0]);
        file
    }

    fn error(result: Result<impl Sized>) -> String {
        format!("{:#}", result.err().expect("an error"))
    }

    #[test]
    fn numbers_of_every_type_are_read_as_f32() {
        let file = Ct2File::parse(&small().finish("Spec", &[("again", "f16")])).unwrap();
        let floats = |name: &str| file.floats(name).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(file.kind(), "Spec");
        assert_eq!(floats("f32"), [1.5, -2.0]);
        assert_eq!(floats("i8"), [1.0, -1.0, 2.0, 63.5]);
        assert_eq!(floats("i16"), [1.0, -1.0]);
        assert_eq!((floats("f16"), floats("again")), (vec![0.375], vec![0.375]));
        assert_eq!(floats("bf16"), [-3.0]);
        assert_eq!(file.integer("six").unwrap(), 6);
        assert_eq!(file.sizes("i8").unwrap(), [2, 2]);
    }

    #[test]
    fn a_file_that_ends_anywhere_is_an_error_that_names_the_array() {
        let whole = small().finish("Spec", &[("again", "f16")]);
        for length in 0..whole.len() {
            Ct2File::parse(&whole[..length]).expect_err("a part of a file");
        }
        let mut file = Writer::default();
        file.array("weight", &[100], 1, &[0; 100]);
        let whole = file.finish("Spec", &[]);
        let message = error(Ct2File::parse(&whole[..whole.len() - 34]));
        assert!(
            message.contains("`weight`, array 1 of 1") && message.contains("70 of 100 bytes are left"),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        assert!(error(Ct2File::parse(b"GGUF and so on")).contains("no file of CTranslate2"));
        let array = |sizes: &[usize], dtype, bytes: &[u8]| {
            let mut file = Writer::default();
            file.array("weight", sizes, dtype, bytes);
            Ct2File::parse(&file.finish("Spec", &[]))
        };
        let message = error(array(&[1], 9, &[0]));
        assert!(message.contains("`weight`") && message.contains("unknown number 9"), "{message}");
        let message = error(array(&[3], 4, &[0; 4]));
        assert!(
            message.contains("`weight`") && message.contains("4 bytes") && message.contains("[3] as F16"),
            "{message}"
        );
        assert!(error(array(&[u32::MAX as usize; 3], 4, &[0; 4])).contains("`weight`"));
    }

    #[test]
    fn what_an_array_is_not_is_named() {
        let file = Ct2File::parse(&small().finish("Spec", &[])).unwrap();
        assert!(error(file.floats("f64")).contains("there is no `f64`"));
        assert!(error(file.floats("six")).contains("there is no `six_scale`"));
        assert!(error(file.integer("f32")).contains("`f32` is not an integer"));
        assert!(error(file.sizes::<3>("i8")).contains("`i8` has sizes [2, 2] instead of 3 of them"));
        let mut file = Writer::default();
        file.array("i8", &[2], 1, &[1, 2]);
        file.array("i8_scale", &[3], 0, &[0; 12]);
        let file = Ct2File::parse(&file.finish("Spec", &[])).unwrap();
        assert!(error(file.floats("i8")).contains("`i8_scale` has 3 numbers"));
    }
}
