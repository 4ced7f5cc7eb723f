//! Padding of a dimension that varies, so that data of many lengths compile a few programs.
//!
//! Padding happens on the host, where a batch is made: on the device it would be a program per length, which is what it is
//! to avoid.

use crate::version::{dtype, shape};
use burn_backend::{Element, TensorData};
use burn_std::DType;

/// Why [`Buckets`] cannot be made, or cannot pad some data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// There are no sizes, or one of them is zero.
    #[error("buckets need at least one size and none that is zero, not {sizes:?}")]
    Sizes {
        /// The sizes given, ascending.
        sizes: Vec<usize>,
    },
    /// A dimension is larger than every bucket.
    #[error("size {size} is larger than the largest bucket of {sizes:?}")]
    TooLarge {
        /// The dimension's size.
        size: usize,
        /// The sizes of the buckets, ascending.
        sizes: Vec<usize>,
    },
    /// The data do not have the dimension that is to be padded.
    #[error("data of shape {shape:?} have no dim {dim} to pad")]
    NoDim {
        /// The dimension asked for.
        dim: usize,
        /// The shape of the data.
        shape: Vec<usize>,
    },
    /// Quantized data cannot be padded: their values share scales.
    #[error("quantized data cannot be padded; pad them before they are quantized")]
    Quantized,
}

/// The sizes that a dimension is padded to: the smallest one that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Ascending, at least one, none zero.
    sizes: Vec<usize>,
}

impl Buckets {
    /// Buckets of these sizes, in any order.
    ///
    /// # Errors
    /// [`BucketsError::Sizes`] if there are none, or one is zero.
    pub fn new(sizes: impl IntoIterator<Item = usize>) -> Result<Self, BucketsError> {
        let mut sizes: Vec<usize> = sizes.into_iter().collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.first().is_none_or(|&least| least == 0) {
            return Err(BucketsError::Sizes { sizes });
        }
        Ok(Self { sizes })
    }

    /// Buckets of `least`, twice that, and so on; the last one is `most`. At most half of a batch is padding, above `least`.
    ///
    /// # Errors
    /// As [`Buckets::new`].
    pub fn doubling(least: usize, most: usize) -> Result<Self, BucketsError> {
        let doubled = std::iter::successors(Some(least), |size| size.checked_mul(2).filter(|_| *size > 0));
        Self::new(doubled.take_while(|&size| size < most).chain([most]))
    }

    /// The sizes, ascending.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Returns the bucket of a dimension of size `len`: the smallest that holds it.
    ///
    /// # Errors
    /// [`BucketsError::TooLarge`] if it is larger than the largest bucket.
    pub fn size(&self, len: usize) -> Result<usize, BucketsError> {
        let fits = self.sizes.get(self.sizes.partition_point(|&size| size < len)).copied();
        fits.ok_or_else(|| BucketsError::TooLarge { size: len, sizes: self.sizes.clone() })
    }

    /// Returns host data with dim `dim` padded to its bucket, `fill` after the last element, and the mask `bool[bucket]`,
    /// which is true where the data were.
    ///
    /// # Errors
    /// As [`Buckets::size`]; [`BucketsError::NoDim`] if the data have no such dim; [`BucketsError::Quantized`].
    pub fn pad(
        &self,
        data: TensorData,
        dim: usize,
        fill: impl Element,
    ) -> Result<(TensorData, TensorData), BucketsError> {
        if matches!(dtype(&data), DType::QFloat(_)) {
            return Err(BucketsError::Quantized);
        }
        let Some(&len) = shape(&data).get(dim) else {
            return Err(BucketsError::NoDim { dim, shape: shape(&data).to_vec() });
        };
        let size = self.size(len)?;
        let mask: Vec<bool> = (0..size).map(|i| i < len).collect();
        let padded = if size == len { data } else { grow(&data, dim, size, fill) };
        Ok((padded, TensorData::new(mask, [size])))
    }
}

/// Data with `size` elements along `dim`, the new ones after the old.
fn grow(data: &TensorData, dim: usize, size: usize, fill: impl Element) -> TensorData {
    let mut dims = shape(data).to_vec();
    let element = TensorData::from([fill]).convert_dtype(dtype(data));
    let row = dims[dim + 1..].iter().product::<usize>();
    let gap = element.as_bytes().repeat((size - dims[dim]) * row);
    let block_bytes = dims[dim] * row * element.as_bytes().len();
    let blocks = dims[..dim].iter().product::<usize>();
    let parts = (0..blocks).flat_map(|i| [&data.as_bytes()[i * block_bytes..(i + 1) * block_bytes], &gap]);
    let bytes = parts.collect::<Vec<_>>().concat();
    dims[dim] = size;
    TensorData::from_bytes_vec(bytes, dims, dtype(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_and_sorted() {
        assert_eq!(Buckets::new([8, 2, 8]).unwrap().sizes(), [2, 8]);
        assert_eq!(Buckets::doubling(16, 100).unwrap().sizes(), [16, 32, 64, 100]);
        assert!(Buckets::new([]).is_err() && Buckets::new([0, 4]).is_err() && Buckets::doubling(0, 4).is_err());
        let buckets = Buckets::new([4, 8]).unwrap();
        assert_eq!([0, 1, 4, 5, 8].map(|len| buckets.size(len).unwrap()), [4, 4, 4, 8, 8]);
        let error = buckets.size(9).unwrap_err();
        assert_eq!(error, BucketsError::TooLarge { size: 9, sizes: vec![4, 8] });
        assert_eq!(error.to_string(), "size 9 is larger than the largest bucket of [4, 8]");
    }

    #[test]
    fn any_dim_of_any_dtype_is_padded_behind_its_end() {
        let buckets = Buckets::new([3, 4]).unwrap();
        let data = TensorData::new(vec![1i64, 2, 3, 4], [2, 2]);
        let (rows, mask) = buckets.pad(data.clone(), 0, -1).unwrap();
        assert_eq!(rows, TensorData::new(vec![1i64, 2, 3, 4, -1, -1], [3, 2]));
        assert_eq!(mask, TensorData::new(vec![true, true, false], [3]));
        let (columns, _) = buckets.pad(data, 1, -1).unwrap();
        assert_eq!(columns, TensorData::new(vec![1i64, 2, -1, 3, 4, -1], [2, 3]));
        let floats = TensorData::new(vec![1.0f32; 3], [3]);
        assert_eq!(buckets.pad(floats.clone(), 0, 0).unwrap().0, floats, "a full bucket is left alone");
        assert_eq!(buckets.pad(floats, 1, 0), Err(BucketsError::NoDim { dim: 1, shape: vec![3] }));
    }
}
