//! Burn's bool ops. Bools are native on the device whatever type is asked for; data in Burn's integer forms is converted as
//! it comes in. Left to Burn's default: `argwhere`, whose result's shape depends on the values, so that a read cannot be
//! avoided.

use super::arithmetic::{self, binary, compare, compare_scalar, unary};
use super::{data, index, movement, reduce};
use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int};
use crate::{Tpu, TpuDevice, TpuTensor};
use burn_backend::ops::BoolTensorOps;
use burn_backend::{ExecutionError, Scalar, TensorData};
use burn_std::{BoolDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_graph::DType;
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, UnaryOp};

impl<F: TpuFloat, I: TpuInt> BoolTensorOps<Self> for Tpu<F, I> {
    // Data and creation.

    fn bool_from_data(data: TensorData, device: &TpuDevice) -> TpuTensor {
        data::from_data("bool_from_data", data, device)
    }

    async fn bool_into_data(tensor: TpuTensor) -> Result<TensorData, ExecutionError> {
        data::into_data(tensor).await
    }

    fn bool_device(tensor: &TpuTensor) -> TpuDevice {
        tensor.device()
    }

    fn bool_to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
        data::to_device(tensor, device)
    }

    fn bool_empty(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_empty", &shape, DType::Bool, 0, device)
    }

    fn bool_zeros(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_zeros", &shape, DType::Bool, 0, device)
    }

    fn bool_ones(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_ones", &shape, DType::Bool, 1, device)
    }

    fn bool_into_int(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        arithmetic::cast(tensor, from_int(dtype))
    }

    fn bool_into_float(tensor: TpuTensor, dtype: FloatDType) -> TpuTensor {
        arithmetic::cast(tensor, from_float(dtype))
    }

    // Logic.

    fn bool_and(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_and", BinaryOp::And, lhs, rhs)
    }

    fn bool_or(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_or", BinaryOp::Or, lhs, rhs)
    }

    fn bool_xor(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_xor", BinaryOp::Xor, lhs, rhs)
    }

    fn bool_not_equal(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_not_equal", BinaryOp::Xor, lhs, rhs)
    }

    fn bool_not(tensor: TpuTensor) -> TpuTensor {
        unary("bool_not", UnaryOp::Not, tensor)
    }

    fn bool_equal(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        compare("bool_equal", Direction::Eq, lhs, rhs)
    }

    fn bool_equal_elem(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        compare_scalar("bool_equal_elem", Direction::Eq, lhs, rhs)
    }

    fn bool_not_equal_elem(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        compare_scalar("bool_not_equal_elem", Direction::Ne, lhs, rhs)
    }

    fn bool_any(tensor: TpuTensor) -> TpuTensor {
        reduce::any(tensor)
    }

    fn bool_any_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::any_dim(tensor, dim)
    }

    fn bool_all(tensor: TpuTensor) -> TpuTensor {
        reduce::all(tensor)
    }

    fn bool_all_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::all_dim(tensor, dim)
    }

    // Movement.

    fn bool_reshape(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::reshape(tensor, shape)
    }

    fn bool_transpose(tensor: TpuTensor) -> TpuTensor {
        movement::transpose(tensor)
    }

    fn bool_swap_dims(tensor: TpuTensor, dim1: usize, dim2: usize) -> TpuTensor {
        movement::swap_dims(tensor, dim1, dim2)
    }

    fn bool_permute(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::permute(tensor, axes)
    }

    fn bool_flip(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::flip(tensor, axes)
    }

    fn bool_expand(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::expand(tensor, shape)
    }

    fn bool_repeat_dim(tensor: TpuTensor, dim: usize, times: usize) -> TpuTensor {
        movement::repeat_dim(tensor, dim, times)
    }

    fn bool_cat(tensors: Vec<TpuTensor>, dim: usize) -> TpuTensor {
        movement::cat(tensors, dim)
    }

    fn bool_slice(tensor: TpuTensor, slices: &[Slice]) -> TpuTensor {
        movement::slice(tensor, slices)
    }

    fn bool_slice_assign(tensor: TpuTensor, slices: &[Slice], value: TpuTensor) -> TpuTensor {
        movement::slice_assign(tensor, slices, value)
    }

    fn bool_unfold(tensor: TpuTensor, dim: usize, size: usize, step: usize) -> TpuTensor {
        movement::unfold(tensor, dim, size, step)
    }

    // Indexing and masks.

    fn bool_gather(dim: usize, tensor: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather(tensor, dim, indices)
    }

    fn bool_scatter_or(dim: usize, tensor: TpuTensor, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
        index::scatter(tensor, dim, indices, value, Combine::Or)
    }

    fn bool_select(tensor: TpuTensor, dim: usize, indices: TpuTensor) -> TpuTensor {
        index::select(tensor, dim, indices)
    }

    fn bool_select_or(tensor: TpuTensor, dim: usize, indices: TpuTensor, value: TpuTensor) -> TpuTensor {
        index::select_assign(tensor, dim, indices, value, Combine::Or)
    }

    fn bool_mask_where(tensor: TpuTensor, mask: TpuTensor, value: TpuTensor) -> TpuTensor {
        arithmetic::mask_where(tensor, mask, value)
    }

    fn bool_mask_fill(tensor: TpuTensor, mask: TpuTensor, value: Scalar) -> TpuTensor {
        arithmetic::mask_fill(tensor, mask, value)
    }
}
