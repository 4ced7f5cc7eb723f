//! Burn's bool ops. Bools are native on the device whatever type is requested; data in Burn's integer forms is converted at
//! the upload. The shape of what `argwhere` returns depends on the values, so it reads their count.

use super::host;
use super::options::resolved;
use crate::backend::{Tpu, TpuFloat, TpuInt};
use crate::dtype::{from_float, from_int, number};
use crate::{TpuDevice, TpuTensor, version};
use burn_backend::ops::BoolTensorOps;
use burn_backend::{ExecutionError, Scalar, TensorData};
use burn_std::{BoolDType, FloatDType, IntDType, Shape, Slice};
use burn_tpu_runtime::graph::DType;
use burn_tpu_runtime::graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_runtime::ops::arithmetic::{self, binary, compare, compare_scalar, unary};
use burn_tpu_runtime::ops::{data, index, movement, places, reduce};

impl<F: TpuFloat, I: TpuInt> BoolTensorOps<Self> for Tpu<F, I> {
    // Data and creation.

    fn bool_from_data(data: TensorData, device: &TpuDevice) -> TpuTensor {
        host::from_data("bool_from_data", data, device)
    }

    fn bool_into_data(tensor: TpuTensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        host::into_data(tensor)
    }

    fn bool_to_device(tensor: TpuTensor, device: &TpuDevice) -> TpuTensor {
        version::to_device(tensor, device)
    }

    fn bool_empty(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_empty", &shape, DType::Bool, 0, &device.0).into()
    }

    fn bool_zeros(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_zeros", &shape, DType::Bool, 0, &device.0).into()
    }

    fn bool_ones(shape: Shape, device: &TpuDevice, _dtype: BoolDType) -> TpuTensor {
        data::splat("bool_ones", &shape, DType::Bool, 1, &device.0).into()
    }

    fn bool_into_int(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_int(dtype)).into()
    }

    fn bool_into_float(tensor: TpuTensor, dtype: FloatDType) -> TpuTensor {
        arithmetic::cast(tensor.0, from_float(dtype)).into()
    }

    // Logic.

    fn bool_and(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_and", BinaryOp::And, lhs.0, rhs.0).into()
    }

    fn bool_or(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_or", BinaryOp::Or, lhs.0, rhs.0).into()
    }

    fn bool_xor(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_xor", BinaryOp::Xor, lhs.0, rhs.0).into()
    }

    fn bool_not_equal(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        binary("bool_not_equal", BinaryOp::Xor, lhs.0, rhs.0).into()
    }

    fn bool_not(tensor: TpuTensor) -> TpuTensor {
        unary("bool_not", UnaryOp::Not, tensor.0).into()
    }

    fn bool_equal(lhs: TpuTensor, rhs: TpuTensor) -> TpuTensor {
        compare("bool_equal", Direction::Eq, lhs.0, rhs.0).into()
    }

    fn bool_equal_elem(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        compare_scalar("bool_equal_elem", Direction::Eq, lhs.0, number(rhs)).into()
    }

    fn bool_not_equal_elem(lhs: TpuTensor, rhs: Scalar) -> TpuTensor {
        compare_scalar("bool_not_equal_elem", Direction::Ne, lhs.0, number(rhs)).into()
    }

    fn bool_any(tensor: TpuTensor) -> TpuTensor {
        reduce::any(tensor.0).into()
    }

    fn bool_any_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::any_dim(tensor.0, dim).into()
    }

    fn bool_all(tensor: TpuTensor) -> TpuTensor {
        reduce::all(tensor.0).into()
    }

    fn bool_all_dim(tensor: TpuTensor, dim: usize) -> TpuTensor {
        reduce::all_dim(tensor.0, dim).into()
    }

    // Movement.

    fn bool_reshape(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::reshape(tensor.0, &shape).into()
    }

    fn bool_transpose(tensor: TpuTensor) -> TpuTensor {
        movement::transpose(tensor.0).into()
    }

    fn bool_swap_dims(tensor: TpuTensor, dim1: usize, dim2: usize) -> TpuTensor {
        movement::swap_dims(tensor.0, dim1, dim2).into()
    }

    fn bool_permute(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::permute(tensor.0, axes).into()
    }

    fn bool_flip(tensor: TpuTensor, axes: &[usize]) -> TpuTensor {
        movement::flip(tensor.0, axes).into()
    }

    fn bool_expand(tensor: TpuTensor, shape: Shape) -> TpuTensor {
        movement::expand(tensor.0, &shape).into()
    }

    fn bool_repeat_dim(tensor: TpuTensor, dim: usize, times: usize) -> TpuTensor {
        movement::repeat_dim(tensor.0, dim, times).into()
    }

    fn bool_cat(tensors: Vec<TpuTensor>, dim: usize) -> TpuTensor {
        movement::cat(tensors.into_iter().map(Into::into).collect(), dim).into()
    }

    fn bool_slice(tensor: TpuTensor, slices: &[Slice]) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice(tensor.0, &slices).into()
    }

    fn bool_slice_assign(tensor: TpuTensor, slices: &[Slice], value: TpuTensor) -> TpuTensor {
        let slices = resolved(&tensor, slices);
        movement::slice_assign(tensor.0, &slices, value.0).into()
    }

    fn bool_unfold(tensor: TpuTensor, dim: usize, size: usize, step: usize) -> TpuTensor {
        movement::unfold(tensor.0, dim, size, step).into()
    }

    // Indexing and masks.

    fn bool_gather(dim: usize, tensor: TpuTensor, indices: TpuTensor) -> TpuTensor {
        index::gather(tensor.0, dim, indices.0).into()
    }

    fn bool_select(tensor: TpuTensor, dim: usize, indices: TpuTensor) -> TpuTensor {
        index::select(tensor.0, dim, indices.0).into()
    }

    fn bool_mask_where(tensor: TpuTensor, mask: TpuTensor, value: TpuTensor) -> TpuTensor {
        arithmetic::mask_where(tensor.0, mask.0, value.0).into()
    }

    async fn bool_argwhere(tensor: TpuTensor, dtype: IntDType) -> TpuTensor {
        places::argwhere(tensor.0, from_int(dtype)).into()
    }

    fn bool_mask_fill(tensor: TpuTensor, mask: TpuTensor, value: Scalar) -> TpuTensor {
        arithmetic::mask_fill(tensor.0, mask.0, number(value)).into()
    }

    version::bool_methods! {}
}
