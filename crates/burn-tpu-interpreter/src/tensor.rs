//! [`HostTensor`]: a value on the host, and views of it that copy nothing.
//!
//! A tensor is a flat buffer viewed through an offset and strides, so broadcasts, transposes, slices and most
//! reshapes copy no element. Invariant: every position that dims and strides reach is in the buffer.

use super::buffer::{Buffer, Element, Flat, dispatch};
use super::error::Result;
use super::walk::{Strides, View, map, row_major};
use burn_tpu_graph::{DType, Dims, TensorType};
use std::borrow::Cow;
use std::sync::Arc;

/// A value on the host. Clones share the elements.
#[derive(Debug)]
pub struct HostTensor {
    ty: TensorType,
    offset: usize,
    strides: Strides,
    buffer: Buffer,
    /// Whether it is known that no element is a subnormal number.
    flushed: bool,
}

/// Written by hand to copy the strides as a slice; `SmallVec`'s own clone copies them one by one.
impl Clone for HostTensor {
    fn clone(&self) -> Self {
        let Self { ty, offset, strides, buffer, flushed } = self;
        let strides = Strides::from_slice(strides);
        Self { ty: ty.clone(), offset: *offset, strides, buffer: buffer.clone(), flushed: *flushed }
    }
}

impl HostTensor {
    /// Creates a value from row-major little-endian bytes, bools one byte each. Missing bytes read as zero.
    pub fn from_bytes(ty: TensorType, bytes: impl AsRef<[u8]>) -> Self {
        let elements = ty.elements();
        let buffer = dispatch!(ty.dtype, T => {
            let mut data = <T as Element>::read(bytes.as_ref());
            data.resize(elements, T::default());
            T::wrap(Arc::new(data))
        });
        let strides = row_major(&ty.dims);
        Self { ty, offset: 0, strides, buffer, flushed: false }
    }

    /// Returns the row-major little-endian bytes, bools one byte each.
    pub fn to_bytes(&self) -> Vec<u8> {
        dispatch!(self.ty.dtype, T => self.elements::<T>().map(|data| T::write(&data)).unwrap_or_default())
    }

    /// Returns element type and dims.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    pub(super) fn dtype(&self) -> DType {
        self.ty.dtype
    }

    pub(super) fn dims(&self) -> &Dims {
        &self.ty.dims
    }

    pub(super) fn strides(&self) -> &Strides {
        &self.strides
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Returns whether no element is a subnormal number, as far as it is known.
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed
    }

    /// Remembers that no element is a subnormal number. Views of the value know it too.
    pub(super) fn set_flushed(&mut self) {
        self.flushed = true;
    }

    /// Creates a value from row-major elements.
    pub(super) fn new<T: Element>(dims: &[usize], elements: Vec<T>) -> Self {
        Self::strided(dims, row_major(dims), Arc::new(elements))
    }

    /// Creates a value whose elements start at the first one of the array and are `strides` apart.
    pub(super) fn strided<T: Element>(dims: &[usize], strides: Strides, elements: Flat<T>) -> Self {
        Self { ty: TensorType::new(T::DTYPE, dims), offset: 0, strides, buffer: T::wrap(elements), flushed: false }
    }

    /// Returns a view of the same buffer with other dims, offset and strides.
    pub(super) fn viewed(self, dims: Dims, offset: usize, strides: Strides) -> Self {
        Self { ty: TensorType { dtype: self.ty.dtype, dims }, offset, strides, ..self }
    }

    /// Returns a view of the elements, which must be of type `T`.
    pub(super) fn view<T: Element>(&self) -> Result<View<'_, T>> {
        Ok(View { data: self.flat::<T>()?, offset: self.offset, strides: &self.strides })
    }

    fn flat<T: Element>(&self) -> Result<&Flat<T>> {
        T::unwrap(&self.buffer).ok_or_else(|| format!("holds {}, not {}", self.buffer.dtype(), T::DTYPE).into())
    }

    /// Returns whether the elements are row-major and without gaps, at any offset.
    pub(super) fn is_row_major(&self) -> bool {
        let mut step = 1;
        for (&size, &stride) in self.ty.dims.iter().zip(&self.strides).rev() {
            if size != 1 && stride != step {
                return self.ty.elements() == 0;
            }
            step *= size as isize;
        }
        true
    }

    /// Returns whether the value is its whole buffer, row-major.
    pub(super) fn is_dense(&self) -> bool {
        self.offset == 0 && self.buffer.len() == self.ty.elements() && self.is_row_major()
    }

    /// Returns whether the value is only a part of its buffer.
    pub(super) fn is_small_part(&self) -> bool {
        self.buffer.len() > self.ty.elements()
    }

    /// Returns the number of elements of the value's buffer.
    pub(super) fn buffer_len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns whether others have the value's buffer too.
    pub(super) fn has_other_owners(&self) -> bool {
        dispatch!(self.ty.dtype, T => self.flat::<T>().is_ok_and(|flat| Arc::strong_count(flat) > 1))
    }

    /// Returns the row-major elements, borrowed if they are stored in that order.
    pub(super) fn elements<T: Element>(&self) -> Result<Cow<'_, [T]>> {
        let view = self.view::<T>()?;
        let count = self.ty.elements();
        if self.is_row_major() && view.data.len() >= self.offset + count {
            return Ok(Cow::Borrowed(&view.data[self.offset..self.offset + count]));
        }
        Ok(Cow::Owned(map(&self.ty.dims, view, |v| v)))
    }

    /// Returns the same value as the whole of its buffer, row-major.
    pub(super) fn into_dense(self) -> Result<Self> {
        if self.is_dense() {
            return Ok(self);
        }
        let dense = dispatch!(self.ty.dtype, T => Self::new(&self.ty.dims, self.elements::<T>()?.into_owned()));
        Ok(Self { flushed: self.flushed, ..dense })
    }

    /// Returns the row-major elements without other owners: the value's own if it is dense and has no other owner,
    /// else a copy.
    pub(super) fn into_owned<T: Element>(self) -> Result<Flat<T>> {
        if self.is_dense() && Arc::strong_count(self.flat::<T>()?) == 1 {
            return T::take(self.buffer).ok_or_else(|| "has changed its type".into());
        }
        Ok(Arc::new(self.elements::<T>()?.into_owned()))
    }

    /// Returns the dims and the row-major elements, to be written in place, of a value that is dense and has no other owner.
    pub(super) fn owned_mut<T: Element>(&mut self) -> Option<(&[usize], &mut [T])> {
        if !self.is_dense() {
            return None;
        }
        let elements = Arc::get_mut(T::unwrap_mut(&mut self.buffer)?)?;
        self.flushed = false;
        Some((&self.ty.dims, elements))
    }

    /// Returns whether [`HostTensor::into_owned`] copies nothing.
    pub(super) fn is_owned<T: Element>(&self) -> bool {
        self.is_dense() && self.flat::<T>().is_ok_and(|flat| Arc::strong_count(flat) == 1)
    }

    /// Returns the flat array of the value's row-major elements, shared.
    pub(super) fn to_flat<T: Element>(&self) -> Result<Flat<T>> {
        if self.is_dense() { self.flat::<T>().cloned() } else { Ok(Arc::new(self.elements::<T>()?.into_owned())) }
    }

    /// Returns the value of a rank-0 (or one-element) tensor.
    pub(super) fn item<T: Element>(&self) -> Result<T> {
        let first = self.view::<T>()?.data.get(self.offset).copied();
        first.ok_or_else(|| "holds no element".into())
    }
}
