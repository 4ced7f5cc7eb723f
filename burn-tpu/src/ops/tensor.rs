//! Burn's float ops. Every defaulted method is overridden but the autodiff hooks (`detach`, `require_grad`), which have no
//! meaning here. The requested bool type is not looked at: bools are native.

use super::arithmetic::{self, binary, binary_scalar, compare, compare_scalar, composed, unary};
use super::{data, grid_sample, index, matmul, movement, random, reduce, sort};
use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int};
use crate::{Tpu, TpuDevice, TpuTensor};
use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::tensor::IndexingUpdateOp;
use burn_backend::{Distribution, ExecutionError, Scalar, TensorData};
use burn_std::{BoolDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp};

impl<F: TpuFloat, I: TpuInt> FloatTensorOps<Self> for Tpu<F, I> {
    // Data and creation.

    fn float_from_data(data: TensorData, device: &TpuDevice) -> TpuTensor {
        data::from_data("float_from_data", data, device)
    }

    async fn float_into_data(tensor: TpuTensor) -> Result<TensorData, ExecutionError> {
        data::into_data(tensor).await
    }

    fn float_device(tensor: &TpuTensor) -> TpuDevice {
        tensor.device()
    }

    fn float_to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
        data::to_device(tensor, device)
    }

    /// Zeros: XLA has no memory without a value.
    fn float_empty(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_empty", &shape, from_float(dtype), 0, device)
    }

    fn float_zeros(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_zeros", &shape, from_float(dtype), 0, device)
    }

    fn float_ones(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_ones", &shape, from_float(dtype), 1, device)
    }

    fn float_full(shape: Shape, value: Scalar, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::full("float_full", &shape, value, from_float(dtype), device)
    }

    fn float_random(shape: Shape, distribution: Distribution, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        random::floats(shape, distribution, from_float(dtype), device)
    }

    fn float_cast(tensor: TpuTensor, dtype: FloatDType) -> TpuTensor {
        arithmetic::cast(tensor, from_float(dtype))
    }

    fn float_into_int(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        arithmetic::cast(tensor, from_int(dtype))
    }

    // Arithmetic.

    fn float_add(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_add", BinaryOp::Add, lhs, rhs)
    }

    fn float_add_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_add_scalar", BinaryOp::Add, lhs, rhs)
    }

    fn float_sub(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_sub", BinaryOp::Sub, lhs, rhs)
    }

    fn float_sub_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_sub_scalar", BinaryOp::Sub, lhs, rhs)
    }

    fn float_mul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_mul", BinaryOp::Mul, lhs, rhs)
    }

    fn float_mul_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_mul_scalar", BinaryOp::Mul, lhs, rhs)
    }

    fn float_div(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_div", BinaryOp::Div, lhs, rhs)
    }

    fn float_div_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_div_scalar", BinaryOp::Div, lhs, rhs)
    }

    fn float_remainder(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::remainder(lhs, rhs)
    }

    fn float_remainder_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::remainder_scalar(lhs, rhs)
    }

    fn float_matmul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        matmul::matmul("float_matmul", lhs, rhs)
    }

    fn float_neg(tensor: TpuTensor) -> TpuTensor {
        unary("float_neg", UnaryOp::Neg, tensor)
    }

    fn float_abs(tensor: TpuTensor) -> TpuTensor {
        arithmetic::abs(tensor)
    }

    fn float_sign(tensor: TpuTensor) -> TpuTensor {
        arithmetic::sign(tensor)
    }

    fn float_clamp(tensor: TpuTensor, min: Scalar, max: Scalar) -> TpuTensor {
        arithmetic::clamp(tensor, min, max)
    }

    fn float_clamp_min(tensor: TpuTensor, min: Scalar) -> TpuTensor {
        binary_scalar("float_clamp_min", BinaryOp::Max, tensor, min)
    }

    fn float_clamp_max(tensor: TpuTensor, max: Scalar) -> TpuTensor {
        binary_scalar("float_clamp_max", BinaryOp::Min, tensor, max)
    }

    fn float_recip(tensor: TpuTensor) -> TpuTensor {
        arithmetic::recip(tensor)
    }

    fn float_cross(lhs: TpuTensor, rhs: TpuTensor, dim: usize) -> TpuTensor {
        matmul::cross(lhs, rhs, dim)
    }

    fn float_powf(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::power("float_powf", lhs, rhs)
    }

    fn float_powi(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::power("float_powi", lhs, rhs)
    }

    fn float_powf_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powf_scalar", lhs, rhs)
    }

    fn float_powf_scalar_impl(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powf_scalar", lhs, rhs)
    }

    fn float_powi_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powi_scalar", lhs, rhs)
    }

    fn float_powi_scalar_impl(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powi_scalar", lhs, rhs)
    }

    // Functions of one operand.

    fn float_exp(tensor: TpuTensor) -> TpuTensor {
        unary("float_exp", UnaryOp::Exp, tensor)
    }

    fn float_log(tensor: TpuTensor) -> TpuTensor {
        unary("float_log", UnaryOp::Log, tensor)
    }

    fn float_log1p(tensor: TpuTensor) -> TpuTensor {
        composed("float_log1p", UnaryOp::Log1p, tensor)
    }

    fn float_sqrt(tensor: TpuTensor) -> TpuTensor {
        unary("float_sqrt", UnaryOp::Sqrt, tensor)
    }

    fn float_cos(tensor: TpuTensor) -> TpuTensor {
        unary("float_cos", UnaryOp::Cos, tensor)
    }

    fn float_sin(tensor: TpuTensor) -> TpuTensor {
        unary("float_sin", UnaryOp::Sin, tensor)
    }

    fn float_tan(tensor: TpuTensor) -> TpuTensor {
        composed("float_tan", UnaryOp::Tan, tensor)
    }

    fn float_cosh(tensor: TpuTensor) -> TpuTensor {
        composed("float_cosh", UnaryOp::Cosh, tensor)
    }

    fn float_sinh(tensor: TpuTensor) -> TpuTensor {
        composed("float_sinh", UnaryOp::Sinh, tensor)
    }

    fn float_tanh(tensor: TpuTensor) -> TpuTensor {
        unary("float_tanh", UnaryOp::Tanh, tensor)
    }

    fn float_acos(tensor: TpuTensor) -> TpuTensor {
        composed("float_acos", UnaryOp::Acos, tensor)
    }

    fn float_acosh(tensor: TpuTensor) -> TpuTensor {
        composed("float_acosh", UnaryOp::Acosh, tensor)
    }

    fn float_asin(tensor: TpuTensor) -> TpuTensor {
        composed("float_asin", UnaryOp::Asin, tensor)
    }

    fn float_asinh(tensor: TpuTensor) -> TpuTensor {
        composed("float_asinh", UnaryOp::Asinh, tensor)
    }

    fn float_atan(tensor: TpuTensor) -> TpuTensor {
        unary("float_atan", UnaryOp::Atan, tensor)
    }

    fn float_atanh(tensor: TpuTensor) -> TpuTensor {
        composed("float_atanh", UnaryOp::Atanh, tensor)
    }

    fn float_erf(tensor: TpuTensor) -> TpuTensor {
        unary("float_erf", UnaryOp::Erf, tensor)
    }

    fn float_round(tensor: TpuTensor) -> TpuTensor {
        unary("float_round", UnaryOp::RoundNearestEven, tensor)
    }

    fn float_floor(tensor: TpuTensor) -> TpuTensor {
        unary("float_floor", UnaryOp::Floor, tensor)
    }

    fn float_ceil(tensor: TpuTensor) -> TpuTensor {
        unary("float_ceil", UnaryOp::Ceil, tensor)
    }

    fn float_trunc(tensor: TpuTensor) -> TpuTensor {
        arithmetic::trunc(tensor)
    }

    fn float_atan2(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_atan2", BinaryOp::Atan2, lhs, rhs)
    }

    // Comparisons.

    fn float_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_equal", Direction::Eq, lhs, rhs)
    }

    fn float_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_equal_elem", Direction::Eq, lhs, rhs)
    }

    fn float_not_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_not_equal", Direction::Ne, lhs, rhs)
    }

    fn float_not_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_not_equal_elem", Direction::Ne, lhs, rhs)
    }

    fn float_greater(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_greater", Direction::Gt, lhs, rhs)
    }

    fn float_greater_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_greater_elem", Direction::Gt, lhs, rhs)
    }

    fn float_greater_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_greater_equal", Direction::Ge, lhs, rhs)
    }

    fn float_greater_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_greater_equal_elem", Direction::Ge, lhs, rhs)
    }

    fn float_lower(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_lower", Direction::Lt, lhs, rhs)
    }

    fn float_lower_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_lower_elem", Direction::Lt, lhs, rhs)
    }

    fn float_lower_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_lower_equal", Direction::Le, lhs, rhs)
    }

    fn float_lower_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_lower_equal_elem", Direction::Le, lhs, rhs)
    }

    fn float_is_nan(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        arithmetic::is_nan(tensor)
    }

    fn float_is_inf(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        arithmetic::is_inf(tensor)
    }

    // Movement.

    fn float_reshape(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::reshape(tensor, shape)
    }

    fn float_transpose(tensor: TpuTensor) -> TpuTensor {
        movement::transpose(tensor)
    }

    fn float_swap_dims(tensor: TpuTensor, dim1: usize, dim2: usize) -> TpuTensor {
        movement::swap_dims(tensor, dim1, dim2)
    }

    fn float_permute(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::permute(tensor, axes)
    }

    fn float_flip(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::flip(tensor, axes)
    }

    fn float_expand(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::expand(tensor, shape)
    }

    fn float_repeat_dim(tensor: TpuTensor, dim: usize, times: usize) -> TpuTensor {
        movement::repeat_dim(tensor, dim, times)
    }

    fn float_cat(tensors: Vec<TpuTensor>, dim: usize) -> TpuTensor {
        movement::cat(tensors, dim)
    }

    fn float_slice(tensor: TpuTensor, slices: &[Slice]) -> TpuTensor {
        movement::slice(tensor, slices)
    }

    fn float_slice_assign(tensor: TpuTensor, slices: &[Slice], value: TpuTensor) -> TpuTensor {
        movement::slice_assign(tensor, slices, value)
    }

    fn float_unfold(tensor: TpuTensor, dim: usize, size: usize, step: usize) -> TpuTensor {
        movement::unfold(tensor, dim, size, step)
    }

    // Indexing and masks.

    fn float_gather(dim: usize, tensor: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather(tensor, dim, indices)
    }

    fn float_scatter_add(dim: usize, tensor: TpuTensor, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
        index::scatter(tensor, dim, indices, value, Combine::Sum)
    }

    fn float_select(tensor: TpuTensor, dim: usize, indices: TpuTensor) -> TpuTensor {
        index::select(tensor, dim, indices)
    }

    fn float_select_add(tensor: TpuTensor, dim: usize, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
        index::select_assign(tensor, dim, indices, value, Combine::Sum)
    }

    fn float_gather_nd(data: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather_nd(data, indices)
    }

    fn float_scatter_nd(
        data: TpuTensor,
        indices: TpuTensor,
        values: TpuTensor,
        reduction: IndexingUpdateOp,
    ) -> TpuTensor {
        index::scatter_nd(data, indices, values, reduction)
    }

    fn float_mask_where(tensor: TpuTensor, mask: TpuTensor, value: TpuTensor) -> TpuTensor {
        arithmetic::mask_where(tensor, mask, value)
    }

    fn float_mask_fill(tensor: TpuTensor, mask: TpuTensor, value: Scalar) -> TpuTensor {
        arithmetic::mask_fill(tensor, mask, value)
    }

    fn float_grid_sample_2d(tensor: TpuTensor, grid: TpuTensor, options: GridSampleOptions) -> TpuTensor {
        grid_sample::grid_sample_2d(tensor, grid, options)
    }

    // Reductions and scans.

    fn float_sum(tensor: TpuTensor) -> TpuTensor {
        reduce::sum(tensor)
    }

    fn float_sum_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::sum_dim(tensor, dim)
    }

    fn float_prod(tensor: TpuTensor) -> TpuTensor {
        reduce::prod(tensor)
    }

    fn float_prod_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::prod_dim(tensor, dim)
    }

    fn float_mean(tensor: TpuTensor) -> TpuTensor {
        reduce::mean(tensor)
    }

    fn float_mean_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::mean_dim(tensor, dim)
    }

    fn float_max(tensor: TpuTensor) -> TpuTensor {
        reduce::max(tensor)
    }

    fn float_max_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_dim(tensor, dim)
    }

    fn float_min(tensor: TpuTensor) -> TpuTensor {
        reduce::min(tensor)
    }

    fn float_min_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::min_dim(tensor, dim)
    }

    fn float_max_abs(tensor: TpuTensor) -> TpuTensor {
        reduce::max_abs(tensor)
    }

    fn float_max_abs_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_abs_dim(tensor, dim)
    }

    fn float_max_dim_with_indices(tensor: TpuTensor, dim: usize, dtype: IntDType) -> (TpuTensor, TpuTensor) {
        reduce::max_dim_with_indices(tensor, dim, from_int(dtype))
    }

    fn float_min_dim_with_indices(tensor: TpuTensor, dim: usize, dtype: IntDType) -> (TpuTensor, TpuTensor) {
        reduce::min_dim_with_indices(tensor, dim, from_int(dtype))
    }

    fn float_argmax(tensor: TpuTensor, dim: usize, dtype: IntDType) -> TpuTensor {
        reduce::argmax(tensor, dim, from_int(dtype))
    }

    fn float_argmin(tensor: TpuTensor, dim: usize, dtype: IntDType) -> TpuTensor {
        reduce::argmin(tensor, dim, from_int(dtype))
    }

    fn float_any(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::any(tensor)
    }

    fn float_any_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::any_dim(tensor, dim)
    }

    fn float_all(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::all(tensor)
    }

    fn float_all_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::all_dim(tensor, dim)
    }

    fn float_cumsum(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumsum(tensor, dim)
    }

    fn float_cumprod(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumprod(tensor, dim)
    }

    fn float_cummin(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummin(tensor, dim)
    }

    fn float_cummax(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummax(tensor, dim)
    }

    // Order.

    fn float_sort(tensor: TpuTensor, dim: usize, descending: bool) -> TpuTensor {
        sort::sort(tensor, dim, descending)
    }

    fn float_sort_with_indices(
        tensor: TpuTensor,
        dim: usize,
        descending: bool,
        dtype: IntDType,
    ) -> (TpuTensor, TpuTensor) {
        sort::sort_with_indices(tensor, dim, descending, from_int(dtype))
    }

    fn float_argsort(tensor: TpuTensor, dim: usize, descending: bool, dtype: IntDType) -> TpuTensor {
        sort::argsort(tensor, dim, descending, from_int(dtype))
    }

    fn float_topk(tensor: TpuTensor, dim: usize, k: usize) -> TpuTensor {
        sort::topk(tensor, dim, k)
    }

    fn float_argtopk(tensor: TpuTensor, dim: usize, k: usize, dtype: IntDType) -> TpuTensor {
        sort::argtopk(tensor, dim, k, from_int(dtype))
    }
}
