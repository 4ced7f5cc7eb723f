//! Leaves and element-wise ops.

use super::{accepts, refuses, ty};
use burn_tpu_graph::op::{BinaryOp, Direction, UnaryOp};
use burn_tpu_graph::{DType, Literal, LiteralData, Op, TensorType};

#[test]
fn parameters_and_slots_are_real_and_bounded() {
    let parameter = |text: &str| Op::Parameter { index: 0, ty: ty(text) };
    accepts(parameter("f32[]"), "", "f32[]");
    accepts(parameter("i1[0,1]"), "", "i1[0,1]");
    refuses(parameter("complex<f32>[2]"), "", "complex");
    refuses(parameter("f32[17592186044417]"), "", "larger than");
    refuses(parameter("f32[18446744073709551615,18446744073709551615]"), "", "larger than");
    accepts(Op::Slot { index: 0, dtype: DType::BF16 }, "", "bf16[]");
    refuses(Op::Slot { index: 0, dtype: DType::C64 }, "", "complex");
    accepts(Op::Offset { index: 0, dtype: DType::I32 }, "", "i32[]");
    refuses(Op::Offset { index: 0, dtype: DType::F32 }, "", "an offset must be an integer");
}

#[test]
fn constants_have_as_many_bytes_as_their_type() {
    let dense = |text: &str, bytes: usize| Op::Constant(Literal::dense(ty(text), vec![0; bytes]));
    accepts(dense("i16[2,3]", 12), "", "i16[2,3]");
    accepts(dense("i16[0,3]", 0), "", "i16[0,3]");
    accepts(dense("f64[]", 8), "", "f64[]");
    refuses(dense("i16[2,3]", 6), "", "takes 12 bytes, got 6");
    refuses(dense("complex<f32>[]", 8), "", "two real ones");
    let splat = |dtype: DType, bits: u64| {
        Op::Constant(Literal { ty: TensorType::new(dtype, [2]), data: LiteralData::Splat(bits) })
    };
    accepts(splat(DType::U64, u64::MAX), "", "ui64[2]");
    accepts(splat(DType::Bool, 1), "", "i1[2]");
    refuses(splat(DType::Bool, 2), "", "does not fit i1");
    refuses(splat(DType::BF16, 0x10000), "", "does not fit bf16");
}

#[test]
fn unary_ops_take_their_class_and_keep_the_type() {
    for &op in UnaryOp::ALL {
        for dtype in DType::ALL {
            let operand = format!("{dtype}[2,0,1]");
            match op.class().contains(dtype) {
                true => accepts(op, &operand, &operand),
                false => refuses(op, &operand, "elements, not"),
            }
        }
    }
    accepts(UnaryOp::Exp, "f32[]", "f32[]");
    accepts(Op::IsFinite, "bf16[3,1]", "i1[3,1]");
    refuses(Op::IsFinite, "i32[3]", "takes Float elements");
}

#[test]
fn binary_ops_take_two_of_one_type() {
    for &op in BinaryOp::ALL {
        for dtype in DType::ALL {
            let operands = format!("{dtype}[0,1] {dtype}[0,1]");
            match op.class().contains(dtype) {
                true => accepts(op, &operands, &format!("{dtype}[0,1]")),
                false => refuses(op, &operands, "elements, not"),
            }
        }
    }
    refuses(BinaryOp::Add, "f32[2] f32[1]", "dims must be equal");
    refuses(BinaryOp::Add, "f32[] f32[1]", "dims must be equal");
    refuses(BinaryOp::Add, "f32[2] bf16[2]", "element types must be equal");
}

#[test]
fn comparisons_choices_and_bounds() {
    accepts(Op::Compare(Direction::Lt), "bf16[2] bf16[2]", "i1[2]");
    accepts(Op::Compare(Direction::Eq), "i1[] i1[]", "i1[]");
    refuses(Op::Compare(Direction::Lt), "f32[2] f32[3]", "dims must be equal");
    refuses(Op::Compare(Direction::Lt), "complex<f32>[2] complex<f32>[2]", "takes Any elements");
    accepts(Op::Select, "i1[2] f32[2] f32[2]", "f32[2]");
    accepts(Op::Select, "i1[0] i1[0] i1[0]", "i1[0]");
    refuses(Op::Select, "i32[2] f32[2] f32[2]", "predicate must be bool");
    refuses(Op::Select, "i1[] f32[2] f32[2]", "predicate's dims");
    refuses(Op::Select, "i1[2] f32[2] f64[2]", "element types");
    accepts(Op::Clamp, "f32[2] f32[2] f32[2]", "f32[2]");
    refuses(Op::Clamp, "f32[] f32[2] f32[]", "dims must be equal");
    refuses(Op::Clamp, "i1[2] i1[2] i1[2]", "takes Numeric");
}

#[test]
fn conversions() {
    accepts(Op::Convert { dtype: DType::Bool }, "f32[2]", "i1[2]");
    accepts(Op::Convert { dtype: DType::F64 }, "i1[]", "f64[]");
    refuses(Op::Convert { dtype: DType::C64 }, "f32[2]", "takes Any");
    accepts(Op::BitcastConvert { dtype: DType::U32 }, "f32[0]", "ui32[0]");
    accepts(Op::BitcastConvert { dtype: DType::BF16 }, "f16[2]", "bf16[2]");
    refuses(Op::BitcastConvert { dtype: DType::U16 }, "f32[2]", "differ in width");
    refuses(Op::BitcastConvert { dtype: DType::U8 }, "i1[2]", "takes Numeric");
    refuses(Op::BitcastConvert { dtype: DType::C64 }, "f64[2]", "takes Numeric");
}

#[test]
fn complex_values_come_from_two_f32() {
    accepts(Op::Complex, "f32[2] f32[2]", "complex<f32>[2]");
    refuses(Op::Complex, "f64[2] f64[2]", "parts must be f32");
    refuses(Op::Complex, "f32[2] f32[3]", "dims must be equal");
    accepts(Op::Real, "complex<f32>[2]", "f32[2]");
    accepts(Op::Imag, "complex<f32>[]", "f32[]");
    refuses(Op::Real, "f32[2]", "must be complex");
    accepts(Op::OptimizationBarrier, "i1[0]", "i1[0]");
}

#[test]
fn a_sharding_has_a_list_of_axes_for_each_dim() {
    let constraint = |rank| Op::ShardingConstraint(burn_tpu_graph::Sharding::first_dim(rank, &[0]));
    accepts(constraint(2), "f32[3,4]", "f32[3,4]");
    refuses(constraint(2), "f32[3]", "the sharding [{0}, {}] is not one of rank 1");
}
