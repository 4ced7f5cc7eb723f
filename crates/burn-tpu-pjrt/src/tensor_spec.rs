//! An element type with dimensions: the type of a buffer or of a program's parameter. Every value is valid.

use std::fmt;

use crate::element_type::ElementType;
use crate::error::{PjrtError, Result};

/// The largest accepted rank: twice the largest in any plugin's own tests, so that a layout never needs the heap.
pub const MAX_RANK: usize = 32;

/// `[31, 30, .., 1, 0]`: its last n entries are the minor-to-major order of a row-major array of rank n.
const MINOR_TO_MAJOR: [i64; MAX_RANK] = {
    let mut order = [0; MAX_RANK];
    let mut position = 0;
    while position < MAX_RANK {
        order[position] = (MAX_RANK - 1 - position) as i64;
        position += 1;
    }
    order
};

/// The element type and the dimensions of an array.
///
/// A value of this type has been checked: its size in bytes fits an `isize`. Plugins abort the process on a shape whose
/// product overflows, so only this type is ever passed to them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    element_type: ElementType,
    dims: Box<[i64]>,
    byte_len: usize,
}

impl TensorSpec {
    /// Creates a spec after checking the shape.
    ///
    /// # Errors
    /// [`PjrtError::Shape`] if the rank is above [`MAX_RANK`], or a dimension or the size in bytes is above `isize::MAX`.
    /// Dimensions of size 0 are left out of the product: `[0, 2^62, 2^62]` is refused too, since XLA multiplies in any
    /// order.
    pub fn new(element_type: ElementType, dims: impl AsRef<[usize]>) -> Result<TensorSpec> {
        let dims = dims.as_ref();
        let refuse = |reason| PjrtError::Shape { element_type, dims: dims.to_vec(), reason };
        if dims.len() > MAX_RANK {
            return Err(refuse("the rank is above 32"));
        }
        let bytes =
            dims.iter().filter(|&&dim| dim != 0).try_fold(element_type.byte_size(), |n, &dim| n.checked_mul(dim));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(refuse("its size in bytes overflows"));
        }
        let byte_len = if dims.contains(&0) { 0 } else { bytes.unwrap_or(0) };
        Ok(TensorSpec { element_type, dims: dims.iter().map(|&dim| dim as i64).collect(), byte_len })
    }

    /// Creates a spec from the C API's signed dimensions, where a negative one means "not known".
    pub(crate) fn from_raw(element_type: ElementType, dims: &[i64]) -> Result<TensorSpec> {
        let unsigned: Vec<usize> = dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(usize::MAX)).collect();
        TensorSpec::new(element_type, unsigned)
    }

    /// Returns the element type.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the dimensions, major first; none is negative.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Returns the number of elements.
    pub fn element_count(&self) -> usize {
        self.byte_len / self.element_type.byte_size()
    }

    /// Returns the size of the dense row-major array on the host, in bytes.
    pub fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Returns the layout that every transfer uses: row-major, as the C API writes it.
    pub(crate) fn minor_to_major(&self) -> &'static [i64] {
        &MINOR_TO_MAJOR[MAX_RANK - self.dims.len()..]
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element_type, self.dims)
    }
}

impl fmt::Debug for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_scalars_empty_and_usual_arrays() {
        let bytes = |dims: &[usize]| TensorSpec::new(ElementType::F32, dims).unwrap().byte_len();
        assert_eq!([bytes(&[]), bytes(&[0]), bytes(&[3, 0, 2]), bytes(&[2, 3])], [4, 0, 0, 24]);
        assert_eq!(TensorSpec::new(ElementType::C128, [3]).unwrap().element_count(), 3);
    }

    #[test]
    fn overflowing_shapes_are_refused_even_when_a_dimension_is_zero() {
        let huge: [&[usize]; 5] = [
            &[usize::MAX],
            &[1 << 32, 1 << 32],
            &[1 << 40, 1 << 22],
            &[0, 1 << 32, 1 << 32],
            &[isize::MAX as usize, 1],
        ];
        for dims in huge {
            let error = TensorSpec::new(ElementType::F32, dims).unwrap_err();
            assert!(matches!(error, PjrtError::Shape { .. }), "{dims:?}: {error}");
        }
        assert!(TensorSpec::new(ElementType::S8, [1; MAX_RANK + 1]).is_err());
        assert!(TensorSpec::from_raw(ElementType::F32, &[-1]).is_err());
    }

    #[test]
    fn row_major_order_counts_down() {
        let order = |rank| TensorSpec::new(ElementType::S8, vec![1; rank]).unwrap().minor_to_major();
        assert_eq!(order(0), &[] as &[i64]);
        assert_eq!(order(3), &[2, 1, 0]);
        assert_eq!(order(MAX_RANK).first(), Some(&31));
    }

    #[test]
    fn text_names_type_and_dims() {
        assert_eq!(TensorSpec::new(ElementType::BF16, [2, 3]).unwrap().to_string(), "bf16[2, 3]");
    }
}
