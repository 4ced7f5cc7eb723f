//! Contractions.

use super::{accepts, refuses};
use burn_tpu_graph::op::{ConvAttrs, ConvDims, DotAttrs};
use burn_tpu_graph::{DType, Dims, Op};

fn dot(batch: [&[usize]; 2], contract: [&[usize]; 2], result: DType) -> Op {
    Op::DotGeneral(Box::new(DotAttrs::new(batch, contract, result)))
}

#[test]
fn dots_have_batch_and_contracted_dims() {
    let plain = || dot([&[], &[]], [&[1], &[0]], DType::F32);
    accepts(plain(), "f32[2,3] f32[3,4]", "f32[2,4]");
    accepts(plain(), "f32[2,0] f32[0,4]", "f32[2,4]");
    accepts(plain(), "f32[0,1] f32[1,1]", "f32[0,1]");
    let batched = || dot([&[0], &[1]], [&[2], &[0]], DType::F32);
    accepts(batched(), "f32[5,2,3] f32[3,5,4]", "f32[5,2,4]");
    accepts(dot([&[], &[]], [&[0], &[0]], DType::F32), "f32[3] f32[3]", "f32[]");
    accepts(dot([&[], &[]], [&[], &[]], DType::F32), "f32[] f32[2]", "f32[2]");
    refuses(plain(), "f32[2,3] f32[2,4]", "lhs dim 1 of size 3 does not match rhs dim 0 of size 2");
    refuses(plain(), "f32[3] f32[3]", "out of range");
    refuses(dot([&[0], &[]], [&[1], &[0]], DType::F32), "f32[2,3] f32[3,4]", "rhs_batch has 0 entries");
    refuses(dot([&[], &[]], [&[1], &[]], DType::F32), "f32[2,3] f32[3,4]", "rhs_contract has 0 entries");
    refuses(dot([&[1], &[0]], [&[1], &[0]], DType::F32), "f32[2,3] f32[3,4]", "named twice");
}

#[test]
fn dots_accumulate_in_their_result_type() {
    let to = |result| dot([&[], &[]], [&[0], &[0]], result);
    accepts(to(DType::F32), "bf16[3] bf16[3]", "f32[]");
    accepts(to(DType::BF16), "bf16[3] bf16[3]", "bf16[]");
    accepts(to(DType::I32), "i8[3] i8[3]", "i32[]");
    accepts(to(DType::I64), "i32[3] i32[3]", "i64[]");
    refuses(to(DType::F64), "f32[3] f32[3]", "cannot have a f64");
    refuses(to(DType::F16), "bf16[3] bf16[3]", "cannot have a f16");
    refuses(to(DType::I8), "i32[3] i32[3]", "cannot have a i8");
    refuses(to(DType::Bool), "i1[3] i1[3]", "cannot have a i1");
    refuses(to(DType::F32), "f32[3] bf16[3]", "element types must be equal");
}

/// Channels first, stride 1, no padding, no dilation, one group.
fn conv(spatial: usize) -> ConvAttrs {
    let dims = || ConvDims { batch: 0, feature: 1, spatial: (2..2 + spatial).collect() };
    ConvAttrs {
        strides: Dims::from_elem(1, spatial),
        padding: std::iter::repeat_n((0, 0), spatial).collect(),
        lhs_dilation: Dims::from_elem(1, spatial),
        rhs_dilation: Dims::from_elem(1, spatial),
        input: dims(),
        kernel: dims(),
        output: dims(),
        feature_groups: 1,
        batch_groups: 1,
        result: DType::F32,
        precision: burn_tpu_graph::op::Precision::Default,
    }
}

fn op(change: impl FnOnce(&mut ConvAttrs)) -> Op {
    let mut attrs = conv(1);
    change(&mut attrs);
    Op::Convolution(Box::new(attrs))
}

#[test]
fn convolutions_have_a_size_per_spatial_dim() {
    accepts(op(|_| ()), "f32[2,3,5] f32[4,3,2]", "f32[2,4,4]");
    accepts(op(|a| a.strides[0] = 2), "f32[2,3,5] f32[4,3,2]", "f32[2,4,2]");
    accepts(op(|a| a.padding[0] = (1, 2)), "bf16[2,3,5] bf16[4,3,2]", "f32[2,4,7]");
    accepts(op(|a| a.padding[0] = (-1, 0)), "f32[2,3,5] f32[4,3,2]", "f32[2,4,3]");
    accepts(op(|a| a.lhs_dilation[0] = 2), "f32[2,3,5] f32[4,3,2]", "f32[2,4,8]");
    accepts(op(|a| a.rhs_dilation[0] = 3), "f32[2,3,5] f32[4,3,2]", "f32[2,4,2]");
    accepts(op(|_| ()), "f32[2,3,5] f32[4,3,9]", "f32[2,4,0]");
    accepts(op(|_| ()), "f32[0,3,5] f32[4,3,1]", "f32[0,4,5]");
    accepts(Op::Convolution(Box::new(conv(0))), "f32[2,3] f32[4,3]", "f32[2,4]");
    refuses(op(|a| a.strides[0] = 0), "f32[2,3,5] f32[4,3,2]", "at least 1");
    refuses(op(|a| a.padding[0] = (-9, 0)), "f32[2,3,5] f32[4,3,2]", "crops more");
    refuses(op(|a| a.lhs_dilation[0] = usize::MAX), "f32[2,3,5] f32[4,3,2]", "overflows");
    refuses(op(|a| a.strides.push(1)), "f32[2,3,5] f32[4,3,2]", "strides has 2 entries");
    refuses(op(|a| a.input.spatial.clear()), "f32[2,3,5] f32[4,3,2]", "input dims has 2 entries");
    refuses(op(|a| a.kernel.feature = 0), "f32[2,3,5] f32[4,3,2]", "named twice");
    refuses(op(|_| ()), "f32[2,3,5] f32[4,3]", "kernel's dims");
}

#[test]
fn convolutions_divide_features_and_batch_into_groups() {
    accepts(op(|a| a.feature_groups = 2), "f32[2,4,5] f32[6,2,2]", "f32[2,6,4]");
    accepts(op(|a| a.batch_groups = 2), "f32[4,3,5] f32[6,3,2]", "f32[2,6,4]");
    refuses(op(|_| ()), "f32[2,4,5] f32[6,2,2]", "4 input features are not 1 groups of 2");
    refuses(op(|a| a.feature_groups = 2), "f32[2,4,5] f32[5,2,2]", "do not divide");
    refuses(op(|a| a.batch_groups = 2), "f32[3,3,5] f32[6,3,2]", "do not divide");
    refuses(op(|a| a.feature_groups = 0), "f32[2,4,5] f32[6,2,2]", "at least 1");
    refuses(op(|a| (a.feature_groups, a.batch_groups) = (2, 2)), "f32[2,4,5] f32[6,2,2]", "only one above 1");
    refuses(op(|a| a.result = DType::BF16), "f32[2,3,5] f32[4,3,2]", "cannot have a bf16");
}
