//! Errors of a user's mistakes: the message names the op, the types of its operands and the rule, in less than a page. The
//! device, the trace and what was recorded earlier stay usable.
//!
//! The calls go to the backend's methods, below the checks of Burn's `Tensor`, so that every rule is this backend's own.

use crate::common;

use burn_backend::ops::*;
use burn_backend::quantization::{QuantLevel, QuantScheme, QuantValue};
use burn_backend::tensor::IndexingUpdateOp::Add;
use burn_backend::{BoolDType, FloatDType, IntDType, Shape, Slice, try_read_sync};
use burn_tpu::{Tpu, TpuDevice, TpuTensor, metrics};
use std::panic::{AssertUnwindSafe, catch_unwind};

type B = Tpu<f32>;

const F32: FloatDType = FloatDType::F32;
const I32: IntDType = IntDType::I32;
const BOOL: BoolDType = BoolDType::Native;

/// Creates tensors of ones on the device under test.
struct On(TpuDevice);

impl On {
    fn f(&self, dims: &[usize]) -> TpuTensor {
        B::float_ones(Shape::from(dims.to_vec()), &self.0, F32)
    }

    fn h(&self, dims: &[usize]) -> TpuTensor {
        B::float_ones(Shape::from(dims.to_vec()), &self.0, FloatDType::BF16)
    }

    fn g(&self, dims: &[usize]) -> TpuTensor {
        B::float_ones(Shape::from(dims.to_vec()), &self.0, FloatDType::F16)
    }

    fn i(&self, dims: &[usize]) -> TpuTensor {
        B::int_ones(Shape::from(dims.to_vec()), &self.0, I32)
    }

    fn b(&self, dims: &[usize]) -> TpuTensor {
        B::bool_ones(Shape::from(dims.to_vec()), &self.0, BOOL)
    }
}

/// The call, and the texts that its message must contain.
type Mistake = (fn(&On), &'static [&'static str]);

fn shape(dims: &[usize]) -> Shape {
    Shape::from(dims.to_vec())
}

#[rustfmt::skip]
const ELEMENTWISE: &[Mistake] = &[
    (|d| drop(B::float_add(d.f(&[3]), d.f(&[4]))), &["float_add", "f32[3]", "f32[4]", "dims must be equal or 1"]),
    (|d| drop(B::float_mul(d.h(&[3]), d.g(&[3]))), &["float_mul", "bf16[3]", "f16[3]", "element types must be equal"]),
    (|d| drop(B::float_greater(d.f(&[2, 3]), d.f(&[3, 2]), BOOL)), &["float_greater", "f32[2,3]", "f32[3,2]", "equal or 1"]),
    (|d| drop(B::float_powf(d.f(&[2]), d.f(&[3]))), &["float_powf", "f32[2]", "f32[3]", "equal or 1"]),
    (|d| drop(B::float_exp(d.i(&[2]))), &["float_exp", "i32[2]", "Float"]),
    (|d| drop(B::int_add(d.i(&[2]), d.f(&[2]))), &["int_add", "i32[2]", "f32[2]", "element types must be equal"]),
    (|d| drop(B::bitwise_and(d.f(&[2]), d.f(&[2]))), &["bitwise_and", "f32[2]", "takes Bits"]),
    (|d| drop(B::bool_and(d.b(&[2]), d.b(&[3]))), &["bool_and", "i1[2]", "i1[3]", "equal or 1"]),
    (|d| drop(B::float_mask_where(d.f(&[2]), d.b(&[3]), d.f(&[2]))), &["mask_where", "f32[2]", "i1[3]", "equal or 1"]),
    (|d| drop(B::float_mask_where(d.f(&[2]), d.i(&[2]), d.f(&[2]))), &["mask_where", "i32[2]", "predicate must be bool"]),
    (|d| drop(B::float_mask_fill(d.f(&[2, 3]), d.b(&[3, 2]), 0.0.into())), &["mask_fill", "f32[2,3]", "i1[3,2]"]),
    (|d| drop(B::float_cross(d.f(&[2, 4]), d.f(&[2, 4]), 1)), &["float_cross", "f32[2,4]", "dim 1", "size 3"]),
    (|d| drop(B::float_cross(d.f(&[2, 3]), d.f(&[2, 3]), 2)), &["float_cross", "f32[2,3]", "dim 2 is out of range for rank 2"]),
    (|d| drop(B::float_add(d.f(&[1]), B::float_ones(shape(&[1]), &TpuDevice::ndarray(), F32))), &["float_add", "cpu:", "ndarray"]),
];

#[rustfmt::skip]
const MOVEMENT: &[Mistake] = &[
    (|d| drop(B::float_reshape(d.f(&[2, 3]), shape(&[4]))), &["reshape", "f32[2,3]", "6 elements cannot take the dims [4]"]),
    (|d| drop(B::float_expand(d.f(&[2, 3]), shape(&[2, 4]))), &["expand", "f32[2,3]", "size 3 cannot be broadcast", "[2, 4]"]),
    (|d| drop(B::float_expand(d.f(&[2, 3]), shape(&[3]))), &["expand", "f32[2,3]", "more dims than [3]"]),
    (|d| drop(B::float_permute(d.f(&[2, 3]), &[0, 0])), &["permute", "f32[2,3]", "dim 0 is named twice in [0, 0]"]),
    (|d| drop(B::float_permute(d.f(&[2, 3]), &[0])), &["permute", "f32[2,3]", "permutation has 1 entries, expected 2"]),
    (|d| drop(B::float_swap_dims(d.f(&[2, 3]), 0, 2)), &["swap_dims", "f32[2,3]", "dim 2 is out of range for rank 2"]),
    (|d| drop(B::float_swap_dims(d.f(&[2, 3]), 5, 6)), &["swap_dims", "f32[2,3]", "out of range for rank 2"]),
    (|d| drop(B::float_transpose(d.f(&[3]))), &["transpose", "f32[3]", "at least two dims"]),
    (|d| drop(B::float_flip(d.f(&[2]), &[1])), &["flip", "f32[2]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::float_cat(vec![d.f(&[2, 3]), d.f(&[3, 4])], 0)), &["cat", "f32[2,3]", "f32[3,4]", "agree but along dim 0"]),
    (|d| drop(B::float_cat(vec![d.f(&[2]), d.h(&[2])], 0)), &["cat", "f32[2]", "bf16[2]", "agree"]),
    (|d| drop(B::float_cat(vec![d.f(&[2]), d.f(&[2])], 1)), &["cat", "f32[2]", "dim 1 is out of range for rank 1"]),
    (|_| drop(B::float_cat(vec![], 0)), &["cat", "at least one operand"]),
    (|d| drop(B::float_repeat_dim(d.f(&[2]), 1, 2)), &["repeat_dim", "f32[2]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::float_slice(d.f(&[2]), &[Slice::full(), Slice::full()])), &["slice", "f32[2]", "2 slices for rank 1"]),
    (|d| drop(B::float_slice_assign(d.f(&[4]), &[Slice::new(0, Some(2), 1)], d.f(&[3]))), &["slice_assign", "f32[4]", "f32[3]", "[2]"]),
    (|d| drop(B::float_unfold(d.f(&[4]), 1, 2, 1)), &["unfold", "f32[4]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::float_unfold(d.f(&[4]), 0, 2, 0)), &["unfold", "f32[4]", "step"]),
];

#[rustfmt::skip]
const INDEXING: &[Mistake] = &[
    (|d| drop(B::float_gather(1, d.f(&[2, 3]), d.i(&[2]))), &["gather", "f32[2,3]", "i32[2]", "dims but along dim 1"]),
    (|d| drop(B::float_gather(1, d.f(&[2, 3]), d.i(&[3, 3]))), &["gather", "f32[2,3]", "i32[3,3]", "dims but along dim 1"]),
    (|d| drop(B::float_gather(2, d.f(&[2, 3]), d.i(&[2, 3]))), &["gather", "f32[2,3]", "dim 2 is out of range for rank 2"]),
    (|d| drop(B::float_gather(0, d.f(&[2]), d.f(&[2]))), &["gather", "f32[2]", "integers, not f32"]),
    (|d| drop(B::float_scatter_add(0, d.f(&[4]), d.i(&[2]), d.f(&[3]))), &["scatter", "f32[4]", "i32[2]", "f32[3]", "do not match"]),
    (|d| drop(B::float_scatter_add(0, d.g(&[4]), d.i(&[2]), d.h(&[2]))), &["scatter", "bf16[2]", "updates must be f16"]),
    (|d| drop(B::float_select(d.f(&[2, 3]), 2, d.i(&[1]))), &["select", "f32[2,3]", "dim 2 is out of range for rank 2"]),
    (|d| drop(B::float_select(d.f(&[2, 3]), 0, d.i(&[1, 1]))), &["select", "f32[2,3]", "i32[1,1]", "indices of rank 1"]),
    (|d| drop(B::float_select(d.f(&[2]), 0, d.f(&[1]))), &["select", "f32[1]", "integers, not f32"]),
    (|d| drop(B::float_select_add(d.f(&[4, 2]), 0, d.i(&[2]), d.f(&[3, 2]))), &["select_assign", "f32[4,2]", "i32[2]", "f32[3,2]"]),
    (|d| drop(B::float_gather_nd(d.f(&[2, 3]), d.i(&[1, 3]))), &["gather_nd", "f32[2,3]", "i32[1,3]", "3"]),
    (|d| drop(B::float_scatter_nd(d.f(&[2, 3]), d.i(&[1, 1]), d.f(&[1, 4]), Add)), &["scatter_nd", "f32[2,3]", "f32[1,4]"]),
    (|d| drop(B::embedding(d.f(&[4, 2]), d.f(&[1, 1]))), &["embedding", "f32[4,2]", "integers, not f32"]),
];

#[rustfmt::skip]
const REDUCTIONS: &[Mistake] = &[
    (|d| drop(B::float_sum_dim(d.f(&[2, 3]), 2)), &["sum_dim", "f32[2,3]", "dim 2"]),
    (|d| drop(B::float_mean_dim(d.f(&[2, 3]), 2)), &["mean_dim", "f32[2,3]", "dim 2"]),
    (|d| drop(B::float_argmax(d.f(&[2]), 1, I32)), &["argmax", "f32[2]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::float_argmax(d.f(&[0]), 0, I32)), &["argmax", "f32[0]", "dim 0 is empty"]),
    (|d| drop(B::float_max(d.f(&[0]))), &["max", "f32[0]", "no elements"]),
    (|d| drop(B::int_mean(d.i(&[0]))), &["mean", "i32[0]", "no elements"]),
    (|d| drop(B::float_cumsum(d.f(&[2]), 1)), &["cumsum", "f32[2]", "dim 1"]),
    (|d| drop(B::float_sort(d.f(&[2]), 1, false)), &["sort", "f32[2]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::float_topk(d.f(&[2, 3]), 1, 4)), &["topk", "f32[2,3]", "4", "dim 1 of size 3"]),
    (|d| drop(B::float_argtopk(d.f(&[2, 3]), 1, 4, I32)), &["argtopk", "f32[2,3]", "4", "dim 1 of size 3"]),
    (|d| drop(B::softmax(d.f(&[2, 3]), 2)), &["softmax", "f32[2,3]", "dim 2 is out of range for rank 2"]),
    (|d| drop(B::float_matmul(d.f(&[2, 3]), d.f(&[4, 5]))), &["float_matmul", "f32[2,3]", "f32[4,5]", "size 3", "size 4"]),
    (|d| drop(B::float_matmul(d.f(&[2, 2, 3]), d.f(&[4, 3, 5]))), &["float_matmul", "f32[2,2,3]", "f32[4,3,5]", "size 2", "size 4"]),
    (|d| drop(B::int_matmul(d.i(&[2, 3]), d.i(&[3]))), &["int_matmul", "i32[2,3]", "i32[3]", "one rank"]),
    (|d| drop(B::float_matmul(d.g(&[2, 3]), d.h(&[3, 2]))), &["float_matmul", "f16[2,3]", "bf16[3,2]", "types must be equal"]),
];

fn conv(groups: usize) -> ConvOptions<2> {
    ConvOptions::new([1, 1], [0, 0], [1, 1], groups)
}

fn conv_transpose() -> ConvTransposeOptions<2> {
    ConvTransposeOptions::new([1, 1], [0, 0], [0, 0], [1, 1], 1)
}

fn deform() -> DeformConvOptions<2> {
    DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1)
}

fn resize() -> InterpolateOptions {
    InterpolateOptions::new(InterpolateMode::Bilinear)
}

#[rustfmt::skip]
const CONVOLUTIONS: &[Mistake] = &[
    (|d| drop(B::conv2d(d.f(&[1, 4, 5, 5]), d.f(&[2, 3, 3, 3]), None, conv(1))), &["conv2d", "f32[1,4,5,5]", "f32[2,3,3,3]", "4 input features are not 1 groups of 3"]),
    (|d| drop(B::conv2d(d.f(&[1, 4, 5, 5]), d.f(&[3, 2, 3, 3]), None, conv(2))), &["conv2d", "f32[1,4,5,5]", "f32[3,2,3,3]", "3 output features"]),
    (|d| drop(B::conv2d(d.f(&[4, 5, 5]), d.f(&[2, 4, 3, 3]), None, conv(1))), &["conv2d", "f32[4,5,5]", "[batch, channels, 2 spatial dims]"]),
    (|d| drop(B::conv2d(d.f(&[1, 1, 2, 2]), d.f(&[1, 1, 3, 3]), None, conv(1))), &["conv2d", "f32[1,1,2,2]", "f32[1,1,3,3]", "kernel does not fit"]),
    (|d| drop(B::conv2d(d.f(&[1, 1, 5, 5]), d.f(&[2, 1, 3, 3]), Some(d.f(&[3])), conv(1))), &["conv2d", "f32[1,1,5,5]", "f32[3]", "size 3"]),
    (|d| drop(B::conv1d(d.g(&[1, 1, 5]), d.h(&[1, 1, 3]), None, ConvOptions::new([1], [0], [1], 1))), &["conv1d", "bf16[1,1,3]", "types must be equal"]),
    (|d| drop(B::conv_transpose2d(d.f(&[1, 3, 4, 4]), d.f(&[2, 2, 3, 3]), None, conv_transpose())), &["conv_transpose2d", "f32[1,3,4,4]", "f32[2,2,3,3]", "3 input features"]),
    (|d| drop(B::conv_transpose2d(d.f(&[1, 2, 4, 4]), d.f(&[2, 2, 3]), None, conv_transpose())), &["conv_transpose2d", "f32[2,2,3]", "2 spatial dims"]),
    (|d| drop(B::deform_conv2d(d.f(&[1, 1, 4, 4]), d.f(&[1, 7, 2, 2]), d.f(&[1, 1, 3, 3]), None, None, deform())), &["deform_conv2d", "f32[1,7,2,2]", "[1, 18, 2, 2]"]),
    (|d| drop(B::deform_conv2d(d.f(&[1, 4, 4]), d.f(&[1, 18, 2, 2]), d.f(&[1, 1, 3, 3]), None, None, deform())), &["deform_conv2d", "f32[1,4,4]", "2 spatial dims"]),
    (|d| drop(B::conv2d_x_backward(d.f(&[1, 5, 5]), d.f(&[1, 1, 3, 3]), d.f(&[1, 1, 3, 3]), conv(1))), &["conv2d_x_backward", "f32[1,1,3,3]", "not [1, 5, 5]"]),
    (|d| drop(B::unfold4d(d.f(&[1, 1, 2, 2]), [3, 3], UnfoldOptions::new([1, 1], [0, 0], [1, 1]))), &["unfold4d", "f32[1,1,2,2]", "a window of [3, 3] does not fit"]),
    (|d| drop(B::linear(d.f(&[2, 3]), d.f(&[4, 5]), None)), &["linear", "f32[2,3]", "f32[4,5]", "size 3", "size 4"]),
    (|d| drop(B::linear(d.f(&[2, 3]), d.f(&[3, 5]), Some(d.f(&[4])))), &["linear", "f32[2,3]", "f32[4]", "size 4"]),
];

#[rustfmt::skip]
const MODULES: &[Mistake] = &[
    (|d| drop(B::max_pool2d(d.f(&[1, 1, 2, 2]), [3, 3], [1, 1], [0, 0], [1, 1], false)), &["max_pool2d", "f32[1,1,2,2]", "a window of [3, 3] does not fit"]),
    (|d| drop(B::max_pool2d(d.f(&[1, 2, 2]), [1, 1], [1, 1], [0, 0], [1, 1], false)), &["max_pool2d", "f32[1,2,2]", "2 spatial dims"]),
    (|d| drop(B::max_pool2d(d.f(&[1, 1, 2, 2]), [1, 1], [0, 0], [0, 0], [1, 1], false)), &["max_pool2d", "f32[1,1,2,2]", "stride [0, 0]"]),
    (|d| drop(B::max_pool2d_with_indices(d.f(&[1, 1, 2, 2]), [3, 3], [1, 1], [0, 0], [1, 1], false)), &["max_pool2d_with_indices", "f32[1,1,2,2]", "a window of [3, 3]"]),
    (|d| drop(B::avg_pool1d(d.f(&[1, 1, 2]), 3, 1, 0, true, false)), &["avg_pool1d", "f32[1,1,2]", "a window of [3] does not fit"]),
    (|d| drop(B::avg_pool2d(d.f(&[1, 1, 2, 2]), [0, 0], [1, 1], [0, 0], true, false)), &["avg_pool2d", "f32[1,1,2,2]", "a window of [0, 0]"]),
    (|d| drop(B::adaptive_avg_pool2d(d.f(&[1, 2, 2]), [1, 1])), &["adaptive_avg_pool2d", "f32[1,2,2]", "2 spatial dims"]),
    (|d| drop(B::interpolate(d.f(&[1, 2, 2]), [4, 4], resize())), &["interpolate", "f32[1,2,2]", "2 spatial dims"]),
    (|d| drop(B::interpolate(d.f(&[1, 1, 0, 2]), [4, 4], resize())), &["interpolate", "f32[1,1,0,2]", "no pixels"]),
    (|d| drop(B::interpolate(d.f(&[1, 1, 2, 2]), [0, 4], resize())), &["interpolate", "f32[1,1,2,2]", "[0, 4]"]),
    (|d| drop(B::attention(d.f(&[1, 1, 2, 4]), d.f(&[1, 1, 2, 3]), d.f(&[1, 1, 2, 3]), None, None, Default::default())), &["attention", "f32[1,1,2,4]", "f32[1,1,2,3]", "size 4", "size 3"]),
    (|d| drop(B::attention(d.f(&[2, 4]), d.f(&[2, 4]), d.f(&[2, 4]), None, None, Default::default())), &["attention", "f32[2,4]", "[batch, heads, sequence, width]"]),
    (|d| drop(B::layer_norm(d.f(&[2, 3]), d.f(&[4]), None, 1e-5)), &["layer_norm", "f32[2,3]", "f32[4]", "size 4"]),
    (|d| drop(B::ctc_loss(d.f(&[2, 3]), d.i(&[1, 1]), d.i(&[1]), d.i(&[1]), 0)), &["ctc_loss", "f32[2,3]", "i32[1,1]", "[time, batch, classes]"]),
    (|d| drop(B::ctc_loss(d.f(&[4, 2, 3]), d.i(&[2, 1]), d.i(&[2]), d.i(&[1]), 0)), &["ctc_loss", "f32[4,2,3]", "i32[1]", "of 2 samples"]),
    (|d| drop(B::ctc_loss(d.f(&[4, 1, 3]), d.i(&[1, 1]), d.i(&[1]), d.i(&[1]), 3)), &["ctc_loss", "f32[4,1,3]", "a blank below 3, not 3"]),
    (|d| drop(B::ctc_loss(d.f(&[0, 1, 3]), d.i(&[1, 1]), d.i(&[1]), d.i(&[1]), 0)), &["ctc_loss", "f32[0,1,3]", "a step or more"]),
    (|d| drop(B::avg_pool1d_backward(d.f(&[1, 4]), d.f(&[1, 1, 2]), 3, 1, 0, true, false)), &["avg_pool1d_backward", "f32[1,1,2]", "not [1, 4]"]),
    (|d| drop(B::rfft(d.f(&[4]), 1, None)), &["rfft", "f32[4]", "dim 1 is out of range for rank 1"]),
    (|d| drop(B::irfft(d.f(&[4]), d.f(&[3]), 0, None)), &["irfft", "f32[4]", "f32[3]", "same dims"]),
    (|d| drop(B::float_grid_sample_2d(d.f(&[1, 1, 2, 2]), d.f(&[1, 2, 2, 3]), GridSampleOptions::new(InterpolateMode::Bilinear))), &["grid_sample_2d", "f32[1,1,2,2]", "f32[1,2,2,3]", "[n, h_out, w_out, 2]"]),
    (|d| drop(B::float_grid_sample_2d(d.f(&[1, 1, 2, 2]), d.f(&[1, 2, 2, 2]), GridSampleOptions::new(InterpolateMode::Bicubic))), &["grid_sample_2d", "Bicubic is not supported"]),
    (|d| drop(B::quantize_dynamic(d.f(&[5]), &QuantScheme::default().with_level(QuantLevel::block([4])))), &["quantize_dynamic", "f32[5]", "5 elements"]),
    (|d| drop(B::quantize_dynamic(d.f(&[4]), &QuantScheme::default().with_value(QuantValue::E4M3))), &["quantize_dynamic", "E4M3", "must be Q8, Q4 or Q2"]),
];

/// Returns the text of the panic that `work` ends in, if it panics.
fn message(work: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
}

fn read(x: TpuTensor) -> Vec<f32> {
    let data = try_read_sync(B::float_into_data(x)).expect("nothing to wait for").expect("the program must run");
    data.iter::<f32>().collect()
}

/// Checks the message of a mistake and the state of the device after it.
fn check_mistake(on: &On, (mistake, parts): &Mistake) -> Result<(), String> {
    let before = B::float_add_scalar(on.f(&[2]), 1.0.into());
    let text = message(|| mistake(on)).ok_or("it did not panic")?;
    let missing: Vec<_> = parts.iter().filter(|&&part| !text.contains(part)).collect();
    let ours = text.starts_with("burn-tpu: ");
    let after = read(B::float_mul_scalar(before, 3.0.into()));
    match () {
        _ if !ours => Err(format!("not a message of this backend: {text:?}")),
        _ if !missing.is_empty() => Err(format!("{missing:?} is not in {text:?}")),
        _ if text.len() >= 1000 => Err(format!("{} characters: {text:?}", text.len())),
        _ if after != [6.0, 6.0] => Err(format!("after {text:?} the device computes {after:?}")),
        _ => Ok(()),
    }
}

#[test]
fn each_mistake_names_its_op_types_and_rule_and_leaves_the_device_usable() {
    let Some(device) = common::cpu() else { return };
    let on = On(device);
    let all = [ELEMENTWISE, MOVEMENT, INDEXING, REDUCTIONS, CONVOLUTIONS, MODULES];
    let wrong =
        |mistake: &Mistake| check_mistake(&on, mistake).err().map(|error| format!("{:?}: {error}", mistake.1[0]));
    let errors: Vec<_> = all.into_iter().flatten().filter_map(wrong).collect();
    assert!(errors.is_empty(), "{} wrong:\n{}", errors.len(), errors.join("\n"));
    assert_eq!(metrics(&device).host_fallbacks, 0);
}
