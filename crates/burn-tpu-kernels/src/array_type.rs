//! Types: what an element is, and how many of them an array, a block or a vector has.

use std::fmt;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the usual name of its type")]
pub enum Element {
    /// The result of a comparison. Values have it, arrays do not.
    Bool,
    I8,
    I32,
    BF16,
    F32,
}

impl Element {
    /// Returns the size in memory, in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Element::Bool | Element::I8 => 1,
            Element::BF16 => 2,
            Element::I32 | Element::F32 => 4,
        }
    }

    /// Returns the name in MLIR text.
    pub const fn name(self) -> &'static str {
        match self {
            Element::Bool => "i1",
            Element::I8 => "i8",
            Element::I32 => "i32",
            Element::BF16 => "bf16",
            Element::F32 => "f32",
        }
    }

    /// Returns whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Element::BF16 | Element::F32)
    }
}

/// The type of an array, a block of it, or a value. A value without dims is a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// The element type.
    pub element: Element,
    /// The sizes, the fastest last.
    pub dims: Vec<usize>,
}

impl ArrayType {
    /// Creates a type.
    pub fn new(element: Element, dims: impl Into<Vec<usize>>) -> Self {
        Self { element, dims: dims.into() }
    }

    /// Returns the type of a scalar.
    pub fn scalar(element: Element) -> Self {
        Self::new(element, [])
    }

    /// Returns whether the type has no dims.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns the dense size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.elements() * self.element.size_bytes()
    }

    /// Returns the size in VMEM, in bytes: rows of 128 lanes, in tiles of 8 rows of 32 bits (fewer for small blocks).
    pub fn tiled_bytes(&self) -> usize {
        let (rank, packing) = (self.dims.len(), 4 / self.element.size_bytes());
        let from_last = |place: usize| if place < rank { self.dims[rank - 1 - place] } else { 1 };
        let tile = (8 * packing).min(from_last(1).next_power_of_two().max(packing));
        let outer: usize = self.dims.iter().take(rank.saturating_sub(2)).product();
        outer * from_last(1).next_multiple_of(tile) * from_last(0).next_multiple_of(128) * self.element.size_bytes()
    }

    /// Returns the type that a kernel's body sees: without leading dims of one, down to a matrix.
    pub(crate) fn matrix(&self) -> Self {
        let leading = self.dims.iter().take(self.dims.len().saturating_sub(2)).take_while(|&&dim| dim == 1).count();
        Self::new(self.element, &self.dims[leading..])
    }

    pub(crate) fn with_dims(&self, dims: impl Into<Vec<usize>>) -> Self {
        Self::new(self.element, dims)
    }

    pub(crate) fn with_element(&self, element: Element) -> Self {
        Self::new(element, self.dims.clone())
    }
}

impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.element.name(), self.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_whole_tiles_of_vmem() {
        let tiled = |element, dims: &[usize]| ArrayType::new(element, dims).tiled_bytes();
        assert_eq!(tiled(Element::F32, &[1, 1, 512, 64]), 512 * 128 * 4);
        assert_eq!(tiled(Element::BF16, &[500, 128]), 512 * 128 * 2);
        assert_eq!(tiled(Element::I8, &[33, 1]), 64 * 128);
        assert_eq!(tiled(Element::F32, &[1, 1, 1, 512]), 512 * 4);
        assert_eq!(tiled(Element::F32, &[512, 1]), 512 * 128 * 4);
    }

    #[test]
    fn a_body_sees_a_matrix() {
        let matrix = |dims: &[usize]| ArrayType::new(Element::F32, dims).matrix().dims;
        assert_eq!(matrix(&[1, 1, 8, 64]), [8, 64]);
        assert_eq!(matrix(&[1, 1, 1, 64]), [1, 64]);
        assert_eq!(matrix(&[2, 1, 8, 64]), [2, 1, 8, 64]);
        assert_eq!(matrix(&[7]), [7]);
    }
}
