//! Shapes and tensor types. All dims are static: a shape is data, never a value of the program.

use crate::DType;
use smallvec::SmallVec;

/// Dims, axes, strides: a short list of sizes that lives inline up to rank 4.
pub type Dims = SmallVec<[usize; 4]>;

/// Element type and dims of one value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first. Empty for a scalar.
    pub dims: Dims,
}

/// By hand: a copy of the sizes, where `SmallVec`'s own clone goes one by one.
impl Clone for TensorType {
    fn clone(&self) -> Self {
        Self::new(self.dtype, &self.dims)
    }
}

impl TensorType {
    /// A type from its parts.
    pub fn new(dtype: DType, dims: impl AsRef<[usize]>) -> Self {
        Self { dtype, dims: Dims::from_slice(dims.as_ref()) }
    }

    /// A rank-0 type.
    pub fn scalar(dtype: DType) -> Self {
        Self { dtype, dims: Dims::new() }
    }

    /// The number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The number of elements; the verifier has bounded it, so it cannot overflow.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes of the row-major value.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }

    /// The same dims with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self::new(dtype, &self.dims)
    }
}

impl std::fmt::Display for TensorType {
    /// `f32[128,784]`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.dims.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}
