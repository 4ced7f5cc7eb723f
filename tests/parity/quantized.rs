//! Quantized tensors of 8 bits with one scale. Values are eighths from -4 to 4, which a scale of 1/8 represents exactly. A
//! result that an op quantizes again may differ by a step of its scale.

use crate::compare::Class::{Contraction, Exact, Quantized};
use crate::feed::Feed;
use crate::harness::{Row, row};
use crate::index::{gathers, selects};
use crate::matmul::products;
use crate::movement::*;
use crate::reduce::{Over, some_dim, sorts};
use crate::run;
use crate::strategies::*;
use crate::version;
use burn_backend::ops::QTensorOps;
use burn_backend::quantization::QuantValue;
use burn_backend::tensor::QuantizedTensor;
use burn_backend::{Backend, BoolDType, FloatDType, IntDType, Scalar, Shape, TensorData, TensorPrimitive, read_sync};
use proptest::prelude::*;
use proptest::sample::select;

const NATIVE: BoolDType = BoolDType::Native;
const SCALE: f64 = 0.125;

impl<B: Backend, A: Clone> Feed<'_, B, A> {
    /// Returns an operand, quantized without loss.
    pub fn q(&self, operand: usize) -> QuantizedTensor<B> {
        let scales = self.load_as(FloatDType::F32, &[SCALE], &[1]);
        B::quantize(self.x(operand), &version::scheme::<B>(), version::parameters(scales))
    }

    /// Returns a quantized operand, for ops that take both kinds.
    fn mixed(&self, operand: usize) -> TensorPrimitive<B> {
        TensorPrimitive::QFloat(self.q(operand))
    }

    /// Returns the first operand as quantized data.
    fn q_data(&self) -> TensorData {
        let values: Vec<i8> = self.floats(0).into_iter().map(|v| (v / SCALE) as i8).collect();
        version::quantized(values, self.dims(0), version::scheme::<B>(), SCALE as f32)
    }

    /// Adds a quantized result.
    pub fn quantized(&mut self, x: QuantizedTensor<B>) {
        self.float(B::dequantize(x, FloatDType::F32));
    }

    /// Adds a result of either kind.
    fn either(&mut self, x: TensorPrimitive<B>) {
        match x {
            TensorPrimitive::Float(x) => self.float(x),
            TensorPrimitive::QFloat(x) => self.quantized(x),
        }
    }
}

pub fn numbers() -> Cases<()> {
    single(one_shaped(moderate(), full_shape(1), Just(())))
}

fn along() -> Cases<usize> {
    single(some_dim(moderate()))
}

fn pairs() -> Cases<()> {
    single(two_shaped(moderate(), moderate(), full_shape(1)))
}

fn float(value: f64) -> Scalar {
    Scalar::Float(value)
}

/// Numbers that lose digits when quantized, and a scheme.
fn schemes() -> Cases<(bool, QuantValue)> {
    let value = (-100..=100i32).prop_map(|n| f64::from(n) / 7.0).sboxed();
    let schemes = (any::<bool>(), select(vec![QuantValue::Q8S, QuantValue::Q8F]));
    let cases = one_shaped(value, full_shape(1), schemes).prop_map(|mut case| {
        let last = case.operands[0].dims.len() - 1;
        case.operands[0] = case.operands[0].resized(last, 8);
        case
    });
    single(cases.sboxed())
}

pub fn rows() -> Vec<Row> {
    [storage(), moves(), arithmetic(), functions(), reductions(), extremes(), order()].into_iter().flatten().collect()
}

#[rustfmt::skip]
fn storage() -> Vec<Row> {
    vec![
        row("q_from_data", Exact, numbers(), run!(|t| t.quantized(B::q_from_data(t.q_data(), &t.device)))),
        row("q_into_data", Exact, numbers(), run!(|t| {
            let data = read_sync(B::q_into_data(t.q(0))).expect("a read");
            let wanted = t.q_data();
            assert_eq!((version::shape(&data), data.as_bytes()), (version::shape(&wanted), wanted.as_bytes()));
            t.quantized(B::q_from_data(data, &t.device));
        })),
        row("quantize", Exact, numbers(), run!(|t| t.quantized(t.q(0)))),
        row("dequantize", Exact, numbers(), run!(|t| t.quantized(t.q(0)))),
        row("quantize_dynamic", Quantized, schemes(), run!(|t| {
            let scheme = version::scheme::<B>().with_value(t.attr.1);
            let scheme = if t.attr.0 { version::in_blocks(scheme, 8) } else { scheme };
            t.quantized(B::quantize_dynamic(t.x(0), &scheme));
        })),
        row("q_to_device", Exact, numbers(), run!(|t| t.quantized(B::q_to_device(t.q(0), &t.device)))),
        row("q_detach", Exact, numbers(), run!(|t| t.quantized(B::q_detach(t.q(0))))),
        row("q_set_require_grad", Exact, numbers(), run!(|t| t.quantized(B::q_set_require_grad(t.q(0), true)))),
        row("q_is_require_grad", Exact, numbers(), run!(|t| {
            assert!(!B::q_is_require_grad(&t.q(0)));
            t.quantized(t.q(0));
        })),
    ]
}

#[rustfmt::skip]
fn moves() -> Vec<Row> {
    let any = moderate;
    vec![
        row("q_reshape", Exact, single(reshapes(any())), run!(|t| {
            t.quantized(B::q_reshape(t.q(0), Shape::from(t.attr.clone())));
        })),
        row("q_expand", Exact, single(expansions(any())), run!(|t| {
            t.quantized(B::q_expand(t.q(0), Shape::from(t.attr.clone())));
        })),
        row("q_transpose", Exact, single(one_shaped(any(), full_shape(2), Just(()))), run!(|t| {
            t.quantized(B::q_transpose(t.q(0)));
        })),
        row("q_swap_dims", Exact, single(two_dims(any())), run!(|t| {
            t.quantized(B::q_swap_dims(t.q(0), t.attr[0], t.attr[1]));
        })),
        row("q_permute", Exact, single(permutations(any())), run!(|t| t.quantized(B::q_permute(t.q(0), &t.attr)))),
        row("q_flip", Exact, single(flips(any())), run!(|t| t.quantized(B::q_flip(t.q(0), &t.attr)))),
        row("q_select", Exact, single(selects(any())), run!(|t| {
            t.quantized(B::q_select(t.q(0), t.attr, t.at(1)));
        })),
        row("q_slice", Exact, single(slices(any())), run!(|t| t.quantized(B::q_slice(t.q(0), &t.attr)))),
        row("q_gather", Exact, single(gathers(any())), run!(|t| {
            t.quantized(B::q_gather(t.attr, t.q(0), t.at(1)));
        })),
        row("q_repeat_dim", Quantized, single(full(repeats(any()))), run!(|t| {
            t.quantized(B::q_repeat_dim(t.q(0), t.attr[0], t.attr[1]));
        })),
        row("q_cat", Quantized, single(full(joints(any()))), run!(|t| {
            let operands = (0..t.count()).map(|n| t.q(n)).collect();
            t.quantized(B::q_cat(operands, t.attr));
        })),
    ]
}

#[rustfmt::skip]
fn arithmetic() -> Vec<Row> {
    vec![
        row("q_add", Contraction, pairs(), run!(|t| t.either(B::q_add(t.q(0), t.q(1))))),
        row("q_sub", Contraction, pairs(), run!(|t| t.either(B::q_sub(t.q(0), t.q(1))))),
        row("q_mul", Contraction, pairs(), run!(|t| t.either(B::q_mul(t.q(0), t.q(1))))),
        row("q_div", Contraction, pairs(), run!(|t| t.either(B::q_div(t.q(0), t.q(1))))),
        row("q_add_scalar", Contraction, numbers(), run!(|t| t.either(B::q_add_scalar(t.q(0), float(1.5))))),
        row("q_sub_scalar", Contraction, numbers(), run!(|t| t.either(B::q_sub_scalar(t.q(0), float(1.5))))),
        row("q_mul_scalar", Contraction, numbers(), run!(|t| t.either(B::q_mul_scalar(t.q(0), float(1.5))))),
        row("q_div_scalar", Contraction, numbers(), run!(|t| t.either(B::q_div_scalar(t.q(0), float(1.5))))),
        row("q_clamp", Contraction, numbers(), run!(|t| t.either(B::q_clamp(t.q(0), float(-1.0), float(1.5))))),
        row("q_clamp_min", Contraction, numbers(), run!(|t| t.either(B::q_clamp_min(t.q(0), float(-1.0))))),
        row("q_clamp_max", Contraction, numbers(), run!(|t| t.either(B::q_clamp_max(t.q(0), float(1.5))))),
        row("q_neg", Contraction, numbers(), run!(|t| t.either(B::q_neg(t.q(0))))),
        row("q_abs", Quantized, numbers(), run!(|t| t.quantized(B::q_abs(t.q(0))))),
        row("q_recip", Contraction, numbers(), run!(|t| t.either(B::q_recip(t.q(0))))),
        row("q_powf", Contraction, pairs(), run!(
            |t| t.either(B::q_powf(t.q(0), t.q(1))),
            = |u| u.map2(f64::powf)
        )),
        row("q_powi", Contraction, single(two_shaped(moderate(), digits(), full_shape(1))), run!(
            |t| t.either(B::q_powi(t.q(0), t.at(1))),
            = |u| u.map2(f64::powf)
        )),
        row("q_powf_scalar", Contraction, numbers(), run!(|t| t.either(B::q_powf_scalar(t.q(0), float(1.5))))),
        row("q_powi_scalar", Contraction, numbers(), run!(|t| t.either(B::q_powi_scalar(t.q(0), Scalar::Int(3))))),
        row("q_matmul", Contraction, single(products(moderate())), run!(|t| {
            t.either(B::q_matmul(t.mixed(0), t.mixed(1)));
        })),
    ]
}

#[rustfmt::skip]
fn functions() -> Vec<Row> {
    vec![
        row("q_exp", Contraction, numbers(), run!(|t| t.either(B::q_exp(t.q(0))))),
        row("q_log", Contraction, numbers(), run!(|t| t.either(B::q_log(t.q(0))))),
        row("q_log1p", Contraction, numbers(), run!(|t| t.either(B::q_log1p(t.q(0))))),
        row("q_sqrt", Contraction, numbers(), run!(|t| t.either(B::q_sqrt(t.q(0))))),
        row("q_cos", Contraction, numbers(), run!(|t| t.either(B::q_cos(t.q(0))))),
        row("q_sin", Contraction, numbers(), run!(|t| t.either(B::q_sin(t.q(0))))),
        row("q_tan", Contraction, numbers(), run!(|t| t.either(B::q_tan(t.q(0))))),
        row("q_cosh", Contraction, numbers(), run!(|t| t.either(B::q_cosh(t.q(0))))),
        row("q_sinh", Contraction, numbers(), run!(|t| t.either(B::q_sinh(t.q(0))))),
        row("q_tanh", Contraction, numbers(), run!(|t| t.either(B::q_tanh(t.q(0))))),
        row("q_erf", Contraction, numbers(), run!(|t| t.either(B::q_erf(t.q(0))))),
    ]
}

#[rustfmt::skip]
fn reductions() -> Vec<Row> {
    vec![
        row("q_sum", Contraction, numbers(), run!(|t| t.either(B::q_sum(t.q(0))))),
        row("q_sum_dim", Contraction, along(), run!(|t| t.either(B::q_sum_dim(t.q(0), t.attr)))),
        row("q_mean", Contraction, numbers(), run!(|t| t.either(B::q_mean(t.q(0))))),
        row("q_mean_dim", Contraction, along(), run!(|t| t.either(B::q_mean_dim(t.q(0), t.attr)))),
        // A vector of at most 5 elements: products of more eighths are not exact in f32.
        row("q_prod", Contraction, single(one_shaped(moderate(), vector(), Just(()))), run!(
            |t| t.either(B::q_prod(t.q(0))),
            = |u| u.float(u.load(&[u.floats(0).iter().product()], &[1]))
        )),
        row("q_prod_dim", Contraction, along(), run!(|t| t.either(B::q_prod_dim(t.q(0), t.attr)))),
        row("q_cumsum", Contraction, along(), run!(|t| t.either(B::q_cumsum(t.q(0), t.attr)))),
        row("q_cumprod", Contraction, along(), run!(|t| t.either(B::q_cumprod(t.q(0), t.attr)))),
        row("q_cummin", Contraction, along(), run!(|t| t.either(B::q_cummin(t.q(0), t.attr)))),
        row("q_cummax", Contraction, along(), run!(|t| t.either(B::q_cummax(t.q(0), t.attr)))),
        row("q_any", Exact, numbers(), run!(|t| t.bool(B::q_any(t.q(0), NATIVE)))),
        row("q_all", Exact, numbers(), run!(|t| t.bool(B::q_all(t.q(0), NATIVE)))),
        row("q_any_dim", Exact, along(), run!(|t| t.bool(B::q_any_dim(t.q(0), t.attr, NATIVE)))),
        row("q_all_dim", Exact, along(), run!(|t| t.bool(B::q_all_dim(t.q(0), t.attr, NATIVE)))),
    ]
}

fn vector() -> Gen<Vec<usize>> {
    (1..=5usize).prop_map(|size| vec![size]).sboxed()
}

#[rustfmt::skip]
fn extremes() -> Vec<Row> {
    vec![
        row("q_max", Quantized, numbers(), run!(|t| t.quantized(B::q_max(t.q(0))))),
        row("q_min", Quantized, numbers(), run!(|t| t.quantized(B::q_min(t.q(0))))),
        row("q_max_dim", Quantized, along(), run!(|t| t.quantized(B::q_max_dim(t.q(0), t.attr)))),
        row("q_min_dim", Quantized, along(), run!(|t| t.quantized(B::q_min_dim(t.q(0), t.attr)))),
        row("q_max_abs", Quantized, numbers(), run!(|t| t.quantized(B::q_max_abs(t.q(0))))),
        row("q_max_abs_dim", Quantized, along(), run!(|t| t.quantized(B::q_max_abs_dim(t.q(0), t.attr)))),
        row("q_argmax", Exact, along(), run!(
            |t| t.int_as(IntDType::I32, B::q_argmax(t.q(0), t.attr, IntDType::I32)),
            = |u| u.law_place(IntDType::I32, u.attr, true)
        )),
        row("q_argmin", Exact, along(), run!(
            |t| t.int_as(IntDType::I64, B::q_argmin(t.q(0), t.attr, IntDType::I64)),
            = |u| u.law_place(IntDType::I64, u.attr, false)
        )),
        row("q_max_dim_with_indices", Quantized, along(), run!(
            |t| {
                let (x, at) = B::q_max_dim_with_indices(t.q(0), t.attr, IntDType::I32);
                t.quantized(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_extreme(Over::Dim(u.attr), true);
                u.law_place(IntDType::I32, u.attr, true);
            }
        )),
        row("q_min_dim_with_indices", Quantized, along(), run!(
            |t| {
                let (x, at) = B::q_min_dim_with_indices(t.q(0), t.attr, IntDType::I32);
                t.quantized(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_extreme(Over::Dim(u.attr), false);
                u.law_place(IntDType::I32, u.attr, false);
            }
        )),
    ]
}

#[rustfmt::skip]
fn order() -> Vec<Row> {
    let any = || single(sorts(moderate()));
    vec![
        row("q_sort", Quantized, any(), run!(
            |t| t.quantized(B::q_sort(t.q(0), t.attr.0, t.attr.1)),
            = |u| u.law_sorted(u.attr.0, u.attr.1, usize::MAX)
        )),
        row("q_sort_with_indices", Quantized, any(), run!(
            |t| {
                let (x, at) = B::q_sort_with_indices(t.q(0), t.attr.0, t.attr.1, IntDType::I32);
                t.quantized(x);
                t.int_as(IntDType::I32, at);
            },
            = |u| {
                u.law_sorted(u.attr.0, u.attr.1, usize::MAX);
                u.law_sorted_places(IntDType::I32, u.attr.0, u.attr.1, usize::MAX);
            }
        )),
        row("q_argsort", Exact, any(), run!(
            |t| t.int_as(IntDType::I64, B::q_argsort(t.q(0), t.attr.0, t.attr.1, IntDType::I64)),
            = |u| u.law_sorted_places(IntDType::I64, u.attr.0, u.attr.1, usize::MAX)
        )),
        row("q_topk", Quantized, any(), run!(
            |t| t.quantized(B::q_topk(t.q(0), t.attr.0, t.attr.2)),
            = |u| u.law_sorted(u.attr.0, true, u.attr.2)
        )),
        row("q_argtopk", Exact, any(), run!(
            |t| t.int_as(IntDType::I32, B::q_argtopk(t.q(0), t.attr.0, t.attr.2, IntDType::I32)),
            = |u| u.law_sorted_places(IntDType::I32, u.attr.0, true, u.attr.2)
        )),
    ]
}
