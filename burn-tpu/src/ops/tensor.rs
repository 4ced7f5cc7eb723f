//! Burn's float ops. Every defaulted method is overridden except the autodiff hooks (`detach`, `require_grad`), which have
//! no meaning here. The requested bool type is ignored: bools are native.

use super::host;
use super::options::{grid_sample_options, pair, plain_distribution, resolved, scatter_mode};
use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int, number};
use crate::version::{self, IndexingUpdateOp};
use crate::{TpuDevice, TpuTensor};
use burn_backend::ops::{FloatTensorOps, GridSampleOptions};
use burn_backend::{Distribution, ExecutionError, Scalar, TensorData};
use burn_std::{BoolDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_runtime::graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_runtime::ops::arithmetic::{self, binary, binary_scalar, compare, compare_scalar, composed, unary};
use burn_tpu_runtime::ops::{data, grid_sample, index, matmul, movement, random, reduce, sort};

impl<F: TpuFloat, I: TpuInt> FloatTensorOps<Self> for Tpu<F, I> {
    // Data and creation.

    fn float_from_data(data: TensorData, device: &TpuDevice) -> TpuTensor {
        host::from_data("float_from_data", data, device)
    }

    fn float_into_data(tensor: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        host::into_data(tensor)
    }

    fn float_to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
        version::to_device(tensor, device)
    }

    /// Returns zeros: XLA has no uninitialised memory.
    fn float_empty(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_empty", &shape, from_float(dtype), 0, &device.0).into()
    }

    fn float_zeros(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_zeros", &shape, from_float(dtype), 0, &device.0).into()
    }

    fn float_ones(shape: Shape, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::splat("float_ones", &shape, from_float(dtype), 1, &device.0).into()
    }

    fn float_full(shape: Shape, value: Scalar, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        data::full("float_full", &shape, number(value), from_float(dtype), &device.0).into()
    }

    fn float_random(shape: Shape, distribution: Distribution, device: &TpuDevice, dtype: FloatDType) -> TpuTensor {
        random::floats(&shape, plain_distribution(distribution), from_float(dtype), &device.0).into()
    }

    fn float_cast(tensor: TpuTensor, dtype: FloatDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_float(dtype)).into()
    }

    fn float_into_int(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_int(dtype)).into()
    }

    // Arithmetic.

    fn float_add(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_add", BinaryOp::Add, lhs.0, rhs.0).into()
    }

    fn float_add_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_add_scalar", BinaryOp::Add, lhs.0, number(rhs)).into()
    }

    fn float_sub(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_sub", BinaryOp::Sub, lhs.0, rhs.0).into()
    }

    fn float_sub_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_sub_scalar", BinaryOp::Sub, lhs.0, number(rhs)).into()
    }

    fn float_mul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_mul", BinaryOp::Mul, lhs.0, rhs.0).into()
    }

    fn float_mul_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_mul_scalar", BinaryOp::Mul, lhs.0, number(rhs)).into()
    }

    fn float_div(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_div", BinaryOp::Div, lhs.0, rhs.0).into()
    }

    fn float_div_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        binary_scalar("float_div_scalar", BinaryOp::Div, lhs.0, number(rhs)).into()
    }

    fn float_remainder(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::remainder(lhs.0, rhs.0).into()
    }

    fn float_remainder_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::remainder_scalar(lhs.0, number(rhs)).into()
    }

    fn float_matmul(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        matmul::matmul("float_matmul", lhs.0, rhs.0).into()
    }

    fn float_neg(tensor: TpuTensor) -> TpuTensor {
        unary("float_neg", UnaryOp::Neg, tensor.0).into()
    }

    fn float_abs(tensor: TpuTensor) -> TpuTensor {
        arithmetic::abs(tensor.0).into()
    }

    fn float_sign(tensor: TpuTensor) -> TpuTensor {
        arithmetic::sign(tensor.0).into()
    }

    fn float_clamp(tensor: TpuTensor, min: Scalar, max: Scalar) -> TpuTensor {
        arithmetic::clamp(tensor.0, number(min), number(max)).into()
    }

    fn float_clamp_min(tensor: TpuTensor, min: Scalar) -> TpuTensor {
        binary_scalar("float_clamp_min", BinaryOp::Max, tensor.0, number(min)).into()
    }

    fn float_clamp_max(tensor: TpuTensor, max: Scalar) -> TpuTensor {
        binary_scalar("float_clamp_max", BinaryOp::Min, tensor.0, number(max)).into()
    }

    fn float_recip(tensor: TpuTensor) -> TpuTensor {
        arithmetic::recip(tensor.0).into()
    }

    fn float_cross(lhs: TpuTensor, rhs: TpuTensor, dim: usize) -> TpuTensor {
        matmul::cross(lhs.0, rhs.0, dim).into()
    }

    fn float_powf(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::power("float_powf", lhs.0, rhs.0).into()
    }

    fn float_powi(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        arithmetic::power("float_powi", lhs.0, rhs.0).into()
    }

    fn float_powf_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powf_scalar", lhs.0, number(rhs)).into()
    }

    fn float_powf_scalar_impl(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powf_scalar", lhs.0, number(rhs)).into()
    }

    fn float_powi_scalar(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powi_scalar", lhs.0, number(rhs)).into()
    }

    fn float_powi_scalar_impl(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        arithmetic::power_scalar("float_powi_scalar", lhs.0, number(rhs)).into()
    }

    // Functions of one operand.

    fn float_exp(tensor: TpuTensor) -> TpuTensor {
        unary("float_exp", UnaryOp::Exp, tensor.0).into()
    }

    fn float_log(tensor: TpuTensor) -> TpuTensor {
        unary("float_log", UnaryOp::Log, tensor.0).into()
    }

    fn float_log1p(tensor: TpuTensor) -> TpuTensor {
        composed("float_log1p", UnaryOp::Log1p, tensor.0).into()
    }

    fn float_sqrt(tensor: TpuTensor) -> TpuTensor {
        unary("float_sqrt", UnaryOp::Sqrt, tensor.0).into()
    }

    fn float_cos(tensor: TpuTensor) -> TpuTensor {
        unary("float_cos", UnaryOp::Cos, tensor.0).into()
    }

    fn float_sin(tensor: TpuTensor) -> TpuTensor {
        unary("float_sin", UnaryOp::Sin, tensor.0).into()
    }

    fn float_tan(tensor: TpuTensor) -> TpuTensor {
        composed("float_tan", UnaryOp::Tan, tensor.0).into()
    }

    fn float_cosh(tensor: TpuTensor) -> TpuTensor {
        composed("float_cosh", UnaryOp::Cosh, tensor.0).into()
    }

    fn float_sinh(tensor: TpuTensor) -> TpuTensor {
        composed("float_sinh", UnaryOp::Sinh, tensor.0).into()
    }

    fn float_tanh(tensor: TpuTensor) -> TpuTensor {
        unary("float_tanh", UnaryOp::Tanh, tensor.0).into()
    }

    fn float_acos(tensor: TpuTensor) -> TpuTensor {
        composed("float_acos", UnaryOp::Acos, tensor.0).into()
    }

    fn float_acosh(tensor: TpuTensor) -> TpuTensor {
        composed("float_acosh", UnaryOp::Acosh, tensor.0).into()
    }

    fn float_asin(tensor: TpuTensor) -> TpuTensor {
        composed("float_asin", UnaryOp::Asin, tensor.0).into()
    }

    fn float_asinh(tensor: TpuTensor) -> TpuTensor {
        composed("float_asinh", UnaryOp::Asinh, tensor.0).into()
    }

    fn float_atan(tensor: TpuTensor) -> TpuTensor {
        unary("float_atan", UnaryOp::Atan, tensor.0).into()
    }

    fn float_atanh(tensor: TpuTensor) -> TpuTensor {
        composed("float_atanh", UnaryOp::Atanh, tensor.0).into()
    }

    fn float_erf(tensor: TpuTensor) -> TpuTensor {
        unary("float_erf", UnaryOp::Erf, tensor.0).into()
    }

    fn float_round(tensor: TpuTensor) -> TpuTensor {
        unary("float_round", UnaryOp::RoundNearestEven, tensor.0).into()
    }

    fn float_floor(tensor: TpuTensor) -> TpuTensor {
        unary("float_floor", UnaryOp::Floor, tensor.0).into()
    }

    fn float_ceil(tensor: TpuTensor) -> TpuTensor {
        unary("float_ceil", UnaryOp::Ceil, tensor.0).into()
    }

    fn float_trunc(tensor: TpuTensor) -> TpuTensor {
        arithmetic::trunc(tensor.0).into()
    }

    fn float_atan2(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("float_atan2", BinaryOp::Atan2, lhs.0, rhs.0).into()
    }

    // Comparisons.

    fn float_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_equal", Direction::Eq, lhs.0, rhs.0).into()
    }

    fn float_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_equal_elem", Direction::Eq, lhs.0, number(rhs)).into()
    }

    fn float_not_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_not_equal", Direction::Ne, lhs.0, rhs.0).into()
    }

    fn float_not_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_not_equal_elem", Direction::Ne, lhs.0, number(rhs)).into()
    }

    fn float_greater(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_greater", Direction::Gt, lhs.0, rhs.0).into()
    }

    fn float_greater_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_greater_elem", Direction::Gt, lhs.0, number(rhs)).into()
    }

    fn float_greater_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_greater_equal", Direction::Ge, lhs.0, rhs.0).into()
    }

    fn float_greater_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_greater_equal_elem", Direction::Ge, lhs.0, number(rhs)).into()
    }

    fn float_lower(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_lower", Direction::Lt, lhs.0, rhs.0).into()
    }

    fn float_lower_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_lower_elem", Direction::Lt, lhs.0, number(rhs)).into()
    }

    fn float_lower_equal(lhs: TpuTensor, rhs: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        compare("float_lower_equal", Direction::Le, lhs.0, rhs.0).into()
    }

    fn float_lower_equal_elem(lhs: TpuTensor, rhs: Scalar, _dtype: BoolDType) -> TpuTensor {
        compare_scalar("float_lower_equal_elem", Direction::Le, lhs.0, number(rhs)).into()
    }

    fn float_is_nan(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        arithmetic::is_nan(tensor.0).into()
    }

    fn float_is_inf(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        arithmetic::is_inf(tensor.0).into()
    }

    // Movement.

    fn float_reshape(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::reshape(tensor.0, &shape).into()
    }

    fn float_transpose(tensor: TpuTensor) -> TpuTensor {
        movement::transpose(tensor.0).into()
    }

    fn float_swap_dims(tensor: TpuTensor, dim1: usize, dim2: usize) -> TpuTensor {
        movement::swap_dims(tensor.0, dim1, dim2).into()
    }

    fn float_permute(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::permute(tensor.0, axes).into()
    }

    fn float_flip(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::flip(tensor.0, axes).into()
    }

    fn float_expand(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::expand(tensor.0, &shape).into()
    }

    fn float_repeat_dim(tensor: TpuTensor, dim: usize, times: usize) -> TpuTensor {
        movement::repeat_dim(tensor.0, dim, times).into()
    }

    fn float_cat(tensors: Vec<TpuTensor>, dim: usize) -> TpuTensor {
        movement::cat(tensors.into_iter().map(Into::into).collect(), dim).into()
    }

    fn float_slice(tensor: TpuTensor, slices: &[Slice]) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice(tensor.0, &slices).into()
    }

    fn float_slice_assign(tensor: TpuTensor, slices: &[Slice], value: TpuTensor) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice_assign(tensor.0, &slices, value.0).into()
    }

    fn float_unfold(tensor: TpuTensor, dim: usize, size: usize, step: usize) -> TpuTensor {
        movement::unfold(tensor.0, dim, size, step).into()
    }

    // Indexing and masks.

    fn float_gather(dim: usize, tensor: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather(tensor.0, dim, indices.0).into()
    }

    fn float_select(tensor: TpuTensor, dim: usize, indices: TpuTensor) -> TpuTensor {
        index::select(tensor.0, dim, indices.0).into()
    }

    fn float_gather_nd(data: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather_nd(data.0, indices.0).into()
    }

    fn float_scatter_nd(
        data: TpuTensor,
        indices: TpuTensor,
        values: TpuTensor,
        reduction: IndexingUpdateOp,
    ) -> TpuTensor {
        index::scatter_nd(data.0, indices.0, values.0, scatter_mode(reduction)).into()
    }

    fn float_mask_where(tensor: TpuTensor, mask: TpuTensor, value: TpuTensor) -> TpuTensor {
        arithmetic::mask_where(tensor.0, mask.0, value.0).into()
    }

    fn float_mask_fill(tensor: TpuTensor, mask: TpuTensor, value: Scalar) -> TpuTensor {
        arithmetic::mask_fill(tensor.0, mask.0, number(value)).into()
    }

    fn float_grid_sample_2d(tensor: TpuTensor, grid: TpuTensor, options: GridSampleOptions) -> TpuTensor {
        grid_sample::grid_sample_2d(tensor.0, grid.0, grid_sample_options(options)).into()
    }

    // Reductions and scans.

    fn float_sum(tensor: TpuTensor) -> TpuTensor {
        reduce::sum(tensor.0).into()
    }

    fn float_sum_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::sum_dim(tensor.0, dim).into()
    }

    fn float_prod(tensor: TpuTensor) -> TpuTensor {
        reduce::prod(tensor.0).into()
    }

    fn float_prod_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::prod_dim(tensor.0, dim).into()
    }

    fn float_mean(tensor: TpuTensor) -> TpuTensor {
        reduce::mean(tensor.0).into()
    }

    fn float_mean_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::mean_dim(tensor.0, dim).into()
    }

    fn float_max(tensor: TpuTensor) -> TpuTensor {
        reduce::max(tensor.0).into()
    }

    fn float_max_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_dim(tensor.0, dim).into()
    }

    fn float_min(tensor: TpuTensor) -> TpuTensor {
        reduce::min(tensor.0).into()
    }

    fn float_min_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::min_dim(tensor.0, dim).into()
    }

    fn float_max_abs(tensor: TpuTensor) -> TpuTensor {
        reduce::max_abs(tensor.0).into()
    }

    fn float_max_abs_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::max_abs_dim(tensor.0, dim).into()
    }

    fn float_max_dim_with_indices(tensor: TpuTensor, dim: usize, dtype: IntDType) -> (TpuTensor, TpuTensor) {
        pair(reduce::max_dim_with_indices(tensor.0, dim, from_int(dtype)))
    }

    fn float_min_dim_with_indices(tensor: TpuTensor, dim: usize, dtype: IntDType) -> (TpuTensor, TpuTensor) {
        pair(reduce::min_dim_with_indices(tensor.0, dim, from_int(dtype)))
    }

    fn float_argmax(tensor: TpuTensor, dim: usize, dtype: IntDType) -> TpuTensor {
        reduce::argmax(tensor.0, dim, from_int(dtype)).into()
    }

    fn float_argmin(tensor: TpuTensor, dim: usize, dtype: IntDType) -> TpuTensor {
        reduce::argmin(tensor.0, dim, from_int(dtype)).into()
    }

    fn float_any(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::any(tensor.0).into()
    }

    fn float_any_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::any_dim(tensor.0, dim).into()
    }

    fn float_all(tensor: TpuTensor, _dtype: BoolDType) -> TpuTensor {
        reduce::all(tensor.0).into()
    }

    fn float_all_dim(tensor: TpuTensor, dim: usize, _dtype: BoolDType) -> TpuTensor {
        reduce::all_dim(tensor.0, dim).into()
    }

    fn float_cumsum(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumsum(tensor.0, dim).into()
    }

    fn float_cumprod(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cumprod(tensor.0, dim).into()
    }

    fn float_cummin(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummin(tensor.0, dim).into()
    }

    fn float_cummax(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::cummax(tensor.0, dim).into()
    }

    // Order.

    fn float_sort(tensor: TpuTensor, dim: usize, descending: bool) -> TpuTensor {
        sort::sort(tensor.0, dim, descending).into()
    }

    fn float_sort_with_indices(
        tensor: TpuTensor,
        dim: usize,
        descending: bool,
        dtype: IntDType,
    ) -> (TpuTensor, TpuTensor) {
        pair(sort::sort_with_indices(tensor.0, dim, descending, from_int(dtype)))
    }

    fn float_argsort(tensor: TpuTensor, dim: usize, descending: bool, dtype: IntDType) -> TpuTensor {
        sort::argsort(tensor.0, dim, descending, from_int(dtype)).into()
    }

    fn float_topk(tensor: TpuTensor, dim: usize, k: usize) -> TpuTensor {
        sort::topk(tensor.0, dim, k).into()
    }

    fn float_argtopk(tensor: TpuTensor, dim: usize, k: usize, dtype: IntDType) -> TpuTensor {
        sort::argtopk(tensor.0, dim, k, from_int(dtype)).into()
    }

    version::float_methods! {}
}
