//! Helpers for the unit tests of the families: tensors of the interpreter from literals, and their values.

use super::data;
use crate::{Device, Platform, Tensor};
use burn_tpu_graph::{DType, Number, TensorType};
use half::{bf16, f16};

/// A Rust type with its element type and its conversion to a number.
pub(crate) trait Element: Copy {
    const DTYPE: DType;
    fn number(self) -> Number;
}

macro_rules! elements {
    ($($ty:ident: $dtype:ident $number:ident,)*) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn number(self) -> Number {
                Number::$number(self.into())
            }
        })*
    };
}

elements! {
    bool: Bool Bool,
    i8: I8 Int,
    i32: I32 Int,
    i64: I64 Int,
    u8: U8 UInt,
    f32: F32 Float,
    f64: F64 Float,
}

/// Returns a tensor of row-major values.
pub(crate) fn tensor<E: Element>(values: impl IntoIterator<Item = E>, dims: &[usize]) -> Tensor {
    from_numbers(E::DTYPE, values.into_iter().map(E::number), dims)
}

/// Returns a tensor of row-major values in the given element type.
pub(crate) fn tensor_of(dtype: DType, values: &[f64], dims: &[usize]) -> Tensor {
    from_numbers(dtype, values.iter().copied().map(Number::Float), dims)
}

fn from_numbers(dtype: DType, numbers: impl Iterator<Item = Number>, dims: &[usize]) -> Tensor {
    let size = dtype.size_bytes();
    let bytes: Vec<u8> = numbers.flat_map(|number| number.bits(dtype).to_le_bytes().into_iter().take(size)).collect();
    data::from_bytes("test", TensorType::new(dtype, dims), bytes, &Device::ndarray())
}

/// Returns the values, row-major, as f64.
pub(crate) fn values(x: Tensor) -> Vec<f64> {
    let bytes = data::into_bytes(&x).expect("the program runs");
    let value = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(bits);
        match x.element() {
            DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits as f64,
            DType::I8 => f64::from(bits as i8),
            DType::I16 => f64::from(bits as i16),
            DType::I32 => f64::from(bits as i32),
            DType::I64 => bits as i64 as f64,
            DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
            DType::F16 => f16::from_bits(bits as u16).to_f64(),
            DType::F32 | DType::C64 => f64::from(f32::from_bits(bits as u32)),
            DType::F64 => f64::from_bits(bits),
        }
    };
    bytes.chunks(x.element().size_bytes()).map(value).collect()
}

/// Returns the values as bools.
pub(crate) fn truths(x: Tensor) -> Vec<bool> {
    values(x).into_iter().map(|value| value != 0.0).collect()
}

/// Returns the interpreter's device, and the CPU plugin's if the plugin is there.
pub(crate) fn devices() -> Vec<Device> {
    let cpu = burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu).map(|_| Device::new(Platform::Cpu, 0));
    std::iter::once(Device::ndarray()).chain(cpu).collect()
}
