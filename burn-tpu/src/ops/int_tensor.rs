//! Burn's integer ops. Every defaulted method is overridden. Arithmetic wraps, division truncates, and the result of a
//! division by zero depends on the device.

use super::host;
use super::options::{pair, plain_distribution, resolved, scatter_mode};
use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int, number};
use crate::version::{self, IndexingUpdateOp};
use crate::{TpuDevice, TpuTensor};
use burn_backend::ops::IntTensorOps;
use burn_backend::{Distribution, ExecutionError, Scalar, TensorData};
use burn_std::{BoolDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_runtime::graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_runtime::ops::arithmetic::{self, binary, binary_scalar, compare, compare_scalar, unary};
use burn_tpu_runtime::ops::reduce::position_type;
use burn_tpu_runtime::ops::{data, index, matmul, movement, random, reduce, sort};
use std::ops::Range;

impl<F: TpuFloat, I: TpuInt> IntTensorOps<Self> for Tpu<F, I> {
    // Data and creation.

    fn int_from_data(data: TensorData, device: &TpuDevice) -> TpuTensor {
        host::from_data("int_from_data", data, device)
    }

    fn int_into_data(tensor: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        host::into_data(tensor)
    }

    fn int_to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
        version::to_device(tensor, device)
    }

    /// Returns zeros: XLA has no uninitialised memory.
    fn int_empty(shape: Shape, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::splat("int_empty", &shape, from_int(dtype), 0, &device.0).into()
    }

    fn int_zeros(shape: Shape, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::splat("int_zeros", &shape, from_int(dtype), 0, &device.0).into()
    }

    fn int_ones(shape: Shape, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::splat("int_ones", &shape, from_int(dtype), 1, &device.0).into()
    }

    fn int_full(shape: Shape, value: Scalar, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::full("int_full", &shape, number(value), from_int(dtype), &device.0).into()
    }

    fn int_random(shape: Shape, distribution: Distribution, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        random::ints(&shape, plain_distribution(distribution), from_int(dtype), &device.0).into()
    }

    fn int_arange(range: Range<i64>, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::arange(range, None, from_int(dtype), &device.0).into()
    }

    fn int_arange_step(range: Range<i64>, step: usize, device: &TpuDevice, dtype: IntDType) -> TpuTensor {
        data::arange(range, Some(step), from_int(dtype), &device.0).into()
    }

    fn int_cast(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_int(dtype)).into()
    }

    fn int_into_float(tensor: TpuTensor, dtype: FloatDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_float(dtype)).into()
    }

    // Arithmetic.

    fn int_add(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("int_add", BinaryOp::Add, lhs.0, rhs.0).into()
    }

    fn int_add_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("int_add_scalar", BinaryOp::Add, lhs.0, number(rhs)).into()
    }

    fn int_sub(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("int_sub", BinaryOp::Sub, lhs.0, rhs.0).into()
    }

    fn int_sub_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("int_sub_scalar", BinaryOp::Sub, lhs.0, number(rhs)).into()
    }

    fn int_mul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("int_mul", BinaryOp::Mul, lhs.0, rhs.0).into()
    }

    fn int_mul_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("int_mul_scalar", BinaryOp::Mul, lhs.0, number(rhs)).into()
    }

    fn int_div(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("int_div", BinaryOp::Div, lhs.0, rhs.0).into()
    }

    fn int_div_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("int_div_scalar", BinaryOp::Div, lhs.0, number(rhs)).into()
    }

    fn int_remainder(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::remainder(lhs.0, rhs.0).into()
    }

    fn int_remainder_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::remainder_scalar(lhs.0, number(rhs)).into()
    }

    fn int_matmul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        matmul::matmul("int_matmul", lhs.0, rhs.0).into()
    }

    fn int_neg(tensor: TpuTensor) -> TpuTensor {
        unary("int_neg", UnaryOp::Neg, tensor.0).into()
    }

    fn int_abs(tensor: TpuTensor) -> TpuTensor {
        arithmetic::abs(tensor.0).into()
    }

    fn int_sign(tensor: TpuTensor) -> TpuTensor {
        arithmetic::sign(tensor.0).into()
    }

    fn int_clamp(tensor: TpuTensor, min: Scalar, max: Scalar) -> TpuTensor {
        arithmetic::clamp(tensor.0, number(min), number(max)).into()
    }

    fn int_clamp_min(tensor: TpuTensor, min: Scalar) -> TpuTensor {
        binary_scalar("int_clamp_min", BinaryOp::Max, tensor.0, number(min)).into()
    }

    fn int_clamp_max(tensor: TpuTensor, max: Scalar) -> TpuTensor {
        binary_scalar("int_clamp_max", BinaryOp::Min, tensor.0, number(max)).into()
    }

    fn int_powi(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::power("int_powi", lhs.0, rhs.0).into()
    }

    fn int_powi_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("int_powi_scalar", lhs.0, number(rhs)).into()
    }

    fn int_powi_scalar_impl(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("int_powi_scalar", lhs.0, number(rhs)).into()
    }

    // Bits.

    fn bitwise_and(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bitwise_and", BinaryOp::And, lhs.0, rhs.0).into()
    }

    fn bitwise_and_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("bitwise_and_scalar", BinaryOp::And, lhs.0, number(rhs)).into()
    }

    fn bitwise_or(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bitwise_or", BinaryOp::Or, lhs.0, rhs.0).into()
    }

    fn bitwise_or_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("bitwise_or_scalar", BinaryOp::Or, lhs.0, number(rhs)).into()
    }

    fn bitwise_xor(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bitwise_xor", BinaryOp::Xor, lhs.0, rhs.0).into()
    }

    fn bitwise_xor_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("bitwise_xor_scalar", BinaryOp::Xor, lhs.0, number(rhs)).into()
    }

    fn bitwise_left_shift(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bitwise_left_shift", BinaryOp::ShiftLeft, lhs.0, rhs.0).into()
    }

    fn bitwise_left_shift_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("bitwise_left_shift_scalar", BinaryOp::ShiftLeft, lhs.0, number(rhs)).into()
    }

    fn bitwise_right_shift(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::shift_right(lhs.0, rhs.0).into()
    }

    fn bitwise_right_shift_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::shift_right_scalar(lhs.0, number(rhs)).into()
    }

    fn bitwise_not(tensor: TpuTensor) -> TpuTensor {
        unary("bitwise_not", UnaryOp::Not, tensor.0).into()
    }

    // Comparisons.

    fn int_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_equal", Direction::Eq, lhs.0, rhs.0).into()
    }

    fn int_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_equal_elem", Direction::Eq, lhs.0, number(rhs)).into()
    }

    fn int_not_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_not_equal", Direction::Ne, lhs.0, rhs.0).into()
    }

    fn int_not_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_not_equal_elem", Direction::Ne, lhs.0, number(rhs)).into()
    }

    fn int_greater(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_greater", Direction::Gt, lhs.0, rhs.0).into()
    }

    fn int_greater_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_greater_elem", Direction::Gt, lhs.0, number(rhs)).into()
    }

    fn int_greater_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_greater_equal", Direction::Ge, lhs.0, rhs.0).into()
    }

    fn int_greater_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_greater_equal_elem", Direction::Ge, lhs.0, number(rhs)).into()
    }

    fn int_lower(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_lower", Direction::Lt, lhs.0, rhs.0).into()
    }

    fn int_lower_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_lower_elem", Direction::Lt, lhs.0, number(rhs)).into()
    }

    fn int_lower_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("int_lower_equal", Direction::Le, lhs.0, rhs.0).into()
    }

    fn int_lower_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("int_lower_equal_elem", Direction::Le, lhs.0, number(rhs)).into()
    }

    // Movement.

    fn int_reshape(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::reshape(tensor.0, &shape).into()
    }

    fn int_transpose(tensor: TpuTensor) -> TpuTensor {
        movement::transpose(tensor.0).into()
    }

    fn int_swap_dims(tensor: TpuTensor, dim1: usize, dim2: usize) -> TpuTensor {
        movement::swap_dims(tensor.0, dim1, dim2).into()
    }

    fn int_permute(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::permute(tensor.0, axes).into()
    }

    fn int_flip(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::flip(tensor.0, axes).into()
    }

    fn int_expand(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::expand(tensor.0, &shape).into()
    }

    fn int_repeat_dim(tensor: TpuTensor, dim: usize, times: usize) -> TpuTensor {
        movement::repeat_dim(tensor.0, dim, times).into()
    }

    fn int_cat(tensors: Vec<TpuTensor>, dim: usize) -> TpuTensor {
        movement::cat(tensors.into_iter().map(Into::into).collect(), dim).into()
    }

    fn int_slice(tensor: TpuTensor, slices: &[Slice]) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice(tensor.0, &slices).into()
    }

    fn int_slice_assign(tensor: TpuTensor, slices: &[Slice], value: TpuTensor) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice_assign(tensor.0, &slices, value.0).into()
    }

    fn int_unfold(tensor: TpuTensor, dim: usize, size: usize, step: usize) -> TpuTensor {
        movement::unfold(tensor.0, dim, size, step).into()
    }

    // Indexing and masks.

    fn int_gather(dim: usize, tensor: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather(tensor.0, dim, indices.0).into()
    }

    fn int_select(tensor: TpuTensor, dim: usize, indices: TpuTensor) -> TpuTensor {
        index::select(tensor.0, dim, indices.0).into()
    }

    fn int_gather_nd(data: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather_nd(data.0, indices.0).into()
    }

    fn int_scatter_nd(
        data: TpuTensor,
        indices: TpuTensor,
        values: TpuTensor,
        reduction: IndexingUpdateOp,
    ) -> TpuTensor {
        index::scatter_nd(data.0, indices.0, values.0, scatter_mode(reduction)).into()
    }

    fn int_mask_where(tensor: TpuTensor, mask: TpuTensor, value: TpuTensor) -> TpuTensor {
        arithmetic::mask_where(tensor.0, mask.0, value.0).into()
    }

    fn int_mask_fill(tensor: TpuTensor, mask: TpuTensor, value: Scalar) -> TpuTensor {
        arithmetic::mask_fill(tensor.0, mask.0, number(value)).into()
    }

    // Reductions and scans.

    fn int_sum(tensor: TpuTensor) -> TpuTensor {
        reduce::sum(tensor.0).into()
    }

    fn int_sum_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::sum_dim(tensor.0, dim).into()
    }

    fn int_prod(tensor: TpuTensor) -> TpuTensor {
        reduce::prod(tensor.0).into()
    }

    fn int_prod_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::prod_dim(tensor.0, dim).into()
    }

    fn int_mean(tensor: TpuTensor) -> TpuTensor {
        reduce::mean(tensor.0).into()
    }

    fn int_mean_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::mean_dim(tensor.0, dim).into()
    }

    fn int_max(tensor: TpuTensor) -> TpuTensor {
        reduce::max(tensor.0).into()
    }

    fn int_max_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_dim(tensor.0, dim).into()
    }

    fn int_min(tensor: TpuTensor) -> TpuTensor {
        reduce::min(tensor.0).into()
    }

    fn int_min_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::min_dim(tensor.0, dim).into()
    }

    fn int_max_abs(tensor: TpuTensor) -> TpuTensor {
        reduce::max_abs(tensor.0).into()
    }

    fn int_max_abs_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_abs_dim(tensor.0, dim).into()
    }

    fn int_max_dim_with_indices(tensor: TpuTensor, dim: usize) -> (TpuTensor, TpuTensor) {
        let index = position_type(&tensor.0);
        pair(reduce::max_dim_with_indices(tensor.0, dim, index))
    }

    fn int_min_dim_with_indices(tensor: TpuTensor, dim: usize) -> (TpuTensor, TpuTensor) {
        let index = position_type(&tensor.0);
        pair(reduce::min_dim_with_indices(tensor.0, dim, index))
    }

    fn int_argmax(tensor: TpuTensor, dim: usize) -> TpuTensor {
        let index = position_type(&tensor.0);
        reduce::argmax(tensor.0, dim, index).into()
    }

    fn int_argmin(tensor: TpuTensor, dim: usize) -> TpuTensor {
        let index = position_type(&tensor.0);
        reduce::argmin(tensor.0, dim, index).into()
    }

    fn int_any(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::any(tensor.0).into()
    }

    fn int_any_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::any_dim(tensor.0, dim).into()
    }

    fn int_all(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::all(tensor.0).into()
    }

    fn int_all_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::all_dim(tensor.0, dim).into()
    }

    fn int_cumsum(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumsum(tensor.0, dim).into()
    }

    fn int_cumprod(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumprod(tensor.0, dim).into()
    }

    fn int_cummin(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummin(tensor.0, dim).into()
    }

    fn int_cummax(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummax(tensor.0, dim).into()
    }

    // Order.

    fn int_sort(tensor: TpuTensor, dim: usize, descending: bool) -> TpuTensor {
        sort::sort(tensor.0, dim, descending).into()
    }

    fn int_sort_with_indices(tensor: TpuTensor, dim: usize, descending: bool) -> (TpuTensor, TpuTensor) {
        let index = position_type(&tensor.0);
        pair(sort::sort_with_indices(tensor.0, dim, descending, index))
    }

    fn int_argsort(tensor: TpuTensor, dim: usize, descending: bool) -> TpuTensor {
        let index = position_type(&tensor.0);
        sort::argsort(tensor.0, dim, descending, index).into()
    }

    fn int_topk(tensor: TpuTensor, dim: usize, k: usize) -> TpuTensor {
        sort::topk(tensor.0, dim, k).into()
    }

    fn int_argtopk(tensor: TpuTensor, dim: usize, k: usize) -> TpuTensor {
        let index = position_type(&tensor.0);
        sort::argtopk(tensor.0, dim, k, index).into()
    }

    version::int_methods! {}
}
