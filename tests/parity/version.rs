//! What the rows need to know of Burn's version, here 0.21, and the rows of methods that only this version has.
//!
//! `crates/burn-tpu-0-22/tests/parity/version.rs` is the same for Burn 0.22: all other files of this folder are compiled
//! against both versions.

use crate::compare::Class::{Contraction, Exact};
use crate::harness::{Row, row};
use crate::index::{gathers, selects};
use crate::quantized::numbers;
use crate::run;
use crate::strategies::*;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps, QTensorOps};
use burn_backend::quantization::{QuantLevel, QuantScheme, QuantizationParametersPrimitive};
use burn_backend::tensor::{FloatTensor, IntTensor, QuantizedTensor};
use burn_backend::{Backend, DType, QTensorPrimitive, Shape, TensorData};

pub use burn::backend::Autodiff;
pub use burn_tpu::TpuDevice;

/// The backend under test.
pub type Ours = burn_tpu::Tpu<f32>;
/// The oracle.
pub type Cpu = burn_ndarray::NdArray<f32, i32>;

/// The number of cases of each row, if the user names none.
pub const CASES: usize = 64;

/// Returns the device under test, if its plugin is there.
pub fn device() -> Option<TpuDevice> {
    crate::common::device()
}

pub fn shape(data: &TensorData) -> Shape {
    data.shape.clone()
}

pub fn dtype(data: &TensorData) -> DType {
    data.dtype
}

/// Returns the scheme of 8 bits with one scale.
pub fn scheme<B: Backend>() -> QuantScheme {
    <QuantizedTensor<B> as QTensorPrimitive>::default_scheme()
}

/// Returns the scheme with a scale for each block of so many values.
pub fn in_blocks(scheme: QuantScheme, size: u8) -> QuantScheme {
    scheme.with_level(QuantLevel::block([size]))
}

pub fn parameters<B: Backend>(scales: FloatTensor<B>) -> QuantizationParametersPrimitive<B> {
    QuantizationParametersPrimitive { scales }
}

pub fn quantized(values: Vec<i8>, dims: &[usize], scheme: QuantScheme, scale: f32) -> TensorData {
    TensorData::quantized(values, dims.to_vec(), scheme, &[scale])
}

pub fn scatter_add<B: Backend>(
    dim: usize,
    x: FloatTensor<B>,
    at: IntTensor<B>,
    values: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_scatter_add(dim, x, at, values)
}

pub fn select_add<B: Backend>(
    x: FloatTensor<B>,
    dim: usize,
    at: IntTensor<B>,
    values: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_select_add(x, dim, at, values)
}

pub fn rows() -> Vec<Row> {
    [own(), crate::until_0_22::rows()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn own() -> Vec<Row> {
    vec![
        row("float_device", Exact, one(any_float()), run!(|t| {
            let x = t.x(0);
            assert_eq!(B::float_device(&x), t.device);
            t.float(x);
        })),
        row("int_device", Exact, one(any_whole()), run!(|t| {
            let x = t.i(0);
            assert_eq!(B::int_device(&x), t.device);
            t.int(x);
        })),
        row(
            "bool_device",
            Exact,
            one(any_bool()),
            run!(|t| {
                let x = t.b(0);
                assert_eq!(B::bool_device(&x), t.device);
                t.bool(x);
            }),
        ),
        row("q_device", Exact, numbers(), run!(|t| {
            assert_eq!(B::q_device(&t.q(0)), t.device);
            t.quantized(t.q(0));
        })),
        row("float_scatter_add", Contraction, gathers(summable()), run!(|t| {
            t.float(B::float_scatter_add(t.attr, t.x(0), t.at(1), t.x(2)));
        })),
        row("float_select_add", Contraction, selects(summable()), run!(|t| {
            t.float(B::float_select_add(t.x(0), t.attr, t.at(1), t.x(2)));
        })),
        row("int_scatter_add", Exact, gathers(below_31_bits()), run!(|t| {
            t.int(B::int_scatter_add(t.attr, t.i(0), t.at(1), t.i(2)));
        })),
        row("int_select_add", Exact, selects(below_31_bits()), run!(|t| {
            t.int(B::int_select_add(t.i(0), t.attr, t.at(1), t.i(2)));
        })),
    ]
}
