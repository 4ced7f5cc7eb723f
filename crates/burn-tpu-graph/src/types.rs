//! Shapes and tensor types. All dims are static: a shape is never a run-time value of the program.

use crate::DType;
use smallvec::SmallVec;

/// Dims, axes or strides: a list of sizes that is stored inline up to rank 4.
pub type Dims = SmallVec<[usize; 4]>;

/// Element type and dims of one value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first. Empty for a scalar.
    pub dims: Dims,
}

/// Written by hand to copy the sizes as a slice; `SmallVec`'s own clone copies them one by one.
impl Clone for TensorType {
    fn clone(&self) -> Self {
        Self::new(self.dtype, &self.dims)
    }
}

impl TensorType {
    /// Creates a type.
    pub fn new(dtype: DType, dims: impl AsRef<[usize]>) -> Self {
        Self { dtype, dims: Dims::from_slice(dims.as_ref()) }
    }

    /// Creates a rank-0 type.
    pub fn scalar(dtype: DType) -> Self {
        Self { dtype, dims: Dims::new() }
    }

    /// Returns the number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements. It cannot overflow, since the verifier limits the size in bytes.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the size of the row-major value in bytes.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size_bytes()
    }

    /// Returns the same dims with another element type.
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Self::new(dtype, &self.dims)
    }
}

impl std::fmt::Display for TensorType {
    /// Writes `f32[128,784]`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, dim) in self.dims.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}
