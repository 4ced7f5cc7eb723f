//! Arrays on the host: the interpreter's operands, blocks and values.

use crate::{ArrayType, Element};
use half::bf16;

/// An array on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    ty: ArrayType,
    pub(super) data: Data,
}

/// Elements, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// f32, and bf16 as the f32 that it is.
    Floats(Vec<f32>),
    /// i32, i8 and bool.
    Ints(Vec<i32>),
}

impl Array {
    /// Creates an array of f32, or of bf16 to which the values are rounded. Missing values are NaN.
    pub fn floats(element: Element, dims: &[usize], values: impl IntoIterator<Item = f32>) -> Self {
        let ty = ArrayType::new(element, dims);
        let mut values: Vec<f32> = values.into_iter().collect();
        values.resize(ty.elements(), f32::NAN);
        Self { ty: ty.with_element(Element::F32), data: Data::Floats(values) }.rounded(element)
    }

    /// Creates an array of i32 or i8. Missing values are the smallest integer.
    pub fn ints(element: Element, dims: &[usize], values: impl IntoIterator<Item = i32>) -> Self {
        let ty = ArrayType::new(element, dims);
        let mut values: Vec<i32> = values.into_iter().collect();
        values.resize(ty.elements(), i32::MIN);
        Self { ty, data: Data::Ints(values) }
    }

    /// Returns the type.
    pub fn ty(&self) -> &ArrayType {
        &self.ty
    }

    /// Returns the elements of an array of floats; none for integers.
    pub fn as_floats(&self) -> &[f32] {
        match &self.data {
            Data::Floats(values) => values,
            Data::Ints(_) => &[],
        }
    }

    /// Returns the elements of an array of integers; none for floats.
    pub fn as_ints(&self) -> &[i32] {
        match &self.data {
            Data::Floats(_) => &[],
            Data::Ints(values) => values,
        }
    }

    /// Returns an array of what nothing may rely on.
    pub(super) fn unknown(ty: ArrayType) -> Self {
        match ty.element.is_float() {
            true => Self::floats(ty.element, &ty.dims, []),
            false => Self::ints(ty.element, &ty.dims, []),
        }
    }

    pub(super) fn new(ty: ArrayType, data: Data) -> Self {
        Self { ty, data }
    }

    pub(super) fn scalar(value: i32) -> Self {
        Self::ints(Element::I32, &[], [value])
    }

    /// Returns the first element of an array of integers.
    pub(super) fn int(&self) -> i32 {
        self.as_ints().first().copied().unwrap_or_default()
    }

    /// Returns an element of an array of integers as a scalar.
    pub(super) fn element(&self, index: i32) -> Option<Self> {
        let index = usize::try_from(index).ok()?;
        self.as_ints().get(index).map(|&value| Self::scalar(value))
    }

    /// Returns floats in another element type.
    pub(super) fn rounded(mut self, element: Element) -> Self {
        self.ty.element = element;
        if let (Element::BF16, Data::Floats(values)) = (element, &mut self.data) {
            values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
        }
        self
    }

    /// Returns the same elements in other dims.
    pub(super) fn reshaped(mut self, ty: ArrayType) -> Self {
        self.ty.dims = ty.dims;
        self
    }

    /// Returns the block at an index that counts blocks.
    pub(super) fn block(&self, block: &[usize], index: &[i64]) -> Self {
        let places = places(&self.ty.dims, block, index);
        let data = match &self.data {
            Data::Floats(values) => Data::Floats(places.map(|place| values[place]).collect()),
            Data::Ints(values) => Data::Ints(places.map(|place| values[place]).collect()),
        };
        Self { ty: self.ty.with_dims(block), data }
    }

    /// Replaces the block at an index that counts blocks.
    pub(super) fn set_block(&mut self, block: &Array, index: &[i64]) {
        let places = places(&self.ty.dims, &block.ty.dims, index);
        match (&mut self.data, &block.data) {
            (Data::Floats(to), Data::Floats(from)) => places.zip(from).for_each(|(place, value)| to[place] = *value),
            (Data::Ints(to), Data::Ints(from)) => places.zip(from).for_each(|(place, value)| to[place] = *value),
            _ => {}
        }
    }
}

/// Returns where in an array the elements of a block are.
fn places(dims: &[usize], block: &[usize], index: &[i64]) -> impl Iterator<Item = usize> {
    let (dims, block, index) = (dims.to_vec(), block.to_vec(), index.to_vec());
    (0..block.iter().product()).map(move |mut element| {
        let (mut place, mut stride) = (0, 1);
        for dim in (0..dims.len()).rev() {
            let within = element % block[dim];
            element /= block[dim];
            place += stride * (index[dim] as usize * block[dim] + within);
            stride *= dims[dim];
        }
        place
    })
}
