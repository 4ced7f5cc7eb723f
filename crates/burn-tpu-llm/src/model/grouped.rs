//! Products of rows that are sorted by expert, as TPUs have a kernel for them.
//!
//! XLA has an op for such products, `ragged_dot`, which libtpu compiles to a kernel that reads each expert's matrix once for
//! its rows. Burn has no such op, so it is a custom op, whose plain form is products of blocks ([`Layout`]). Its
//! gradients are two more, and those of gathered rows are gathered too: each row comes from a known place.
//!
//! Owns: the ops and on which backends they are. May not know: the router.

use super::blocks::Layout;
use burn::backend::Autodiff;
use burn::prelude::*;
use burn::tensor::{DType, IndexingUpdateOp};
use burn_tpu::{CustomForm, CustomOp, CustomOpBackend, Platform, Tpu, TpuDevice, custom_op};
use half::bf16;
use std::any::Any;
use std::sync::LazyLock;

type Rows = Tensor<Tpu<f32>, 2>;
type Stack = Tensor<Tpu<f32>, 3>;
type Numbers = Tensor<Tpu<f32>, 1, Int>;

/// The rows of a block of the plain forms.
const BLOCK: usize = 128;

/// `[rows, inputs]`, `[experts, inputs, outputs]` and the number of each expert's rows, `[experts]`, to `[rows, outputs]`.
static PRODUCT: LazyLock<CustomOp<(Rows, Stack, Numbers), Rows>> = LazyLock::new(|| {
    let form = |(x, weight, _): &(Rows, Stack, Numbers)| {
        let ([rows, inputs], [experts, _, outputs]) = (x.dims(), weight.dims());
        let types = [vec![rows, inputs], vec![experts, inputs, outputs], vec![rows, outputs]];
        Ok(ragged_dot(x, types, experts, "[1], rhs_contracting_dimensions = [1]", ", rhs_group_dimensions = [0]"))
    };
    custom_op("grouped_product", form, |(x, weight, sizes)| in_blocks(x, weight, sizes)).with_gradient(
        |(x, weight, sizes), _, dy| {
            let dx = TRANSPOSED.call::<Tpu<f32>>((dy.clone(), weight.clone(), sizes.clone()));
            let dx = dx.unwrap_or_else(|_| in_blocks(dy.clone(), weight.swap_dims(1, 2), sizes.clone()));
            let dw = OUTER.call::<Tpu<f32>>((x.clone(), dy.clone(), sizes.clone()));
            let dw = dw.unwrap_or_else(|_| outer_in_blocks(x, dy, sizes.clone()));
            (dx, dw, sizes)
        },
    )
});

/// The same with the transposed matrices.
static TRANSPOSED: LazyLock<CustomOp<(Rows, Stack, Numbers), Rows>> = LazyLock::new(|| {
    let form = |(x, weight, _): &(Rows, Stack, Numbers)| {
        let ([rows, outputs], [experts, inputs, _]) = (x.dims(), weight.dims());
        let types = [vec![rows, outputs], vec![experts, inputs, outputs], vec![rows, inputs]];
        Ok(ragged_dot(x, types, experts, "[1], rhs_contracting_dimensions = [2]", ", rhs_group_dimensions = [0]"))
    };
    custom_op("grouped_product", form, |(x, weight, sizes)| in_blocks(x, weight.swap_dims(1, 2), sizes))
});

/// The sum over each expert's rows of `[rows, inputs]` times `[rows, outputs]`: `[experts, inputs, outputs]`.
static OUTER: LazyLock<CustomOp<(Rows, Rows, Numbers), Stack>> = LazyLock::new(|| {
    let form = |(x, y, sizes): &(Rows, Rows, Numbers)| {
        let ([rows, inputs], [_, outputs], [experts]) = (x.dims(), y.dims(), sizes.dims());
        let types = [vec![rows, inputs], vec![rows, outputs], vec![experts, inputs, outputs]];
        Ok(ragged_dot(x, types, experts, "[0], rhs_contracting_dimensions = [0]", ""))
    };
    custom_op("grouped_product", form, |(x, y, sizes)| outer_in_blocks(x, y, sizes))
});

/// Rows `[n, width]` at places `[m]`, `[m, width]`. The third operand has for each of the `n` rows the places in the result
/// that have it, as many for each.
static TAKEN: LazyLock<CustomOp<(Rows, Numbers, Numbers), Rows>> = LazyLock::new(|| {
    let form = |_: &(Rows, Numbers, Numbers)| Ok(CustomForm::Plain);
    custom_op("taken_rows", form, |(x, places, _): (Rows, Numbers, Numbers)| x.select(0, places)).with_gradient(
        |(x, places, back), _, dy| {
            let ([rows, width], [all]) = (x.dims(), back.dims());
            let dx = dy.select(0, back.clone()).reshape([rows, all / rows, width]).sum_dim(1).squeeze_dim(1);
            (dx, places, back)
        },
    )
});

/// Returns whether a device is a TPU, alone.
pub(super) fn is_native<B: Backend>(device: &B::Device) -> bool {
    let device: &dyn Any = device;
    let is_tpu = |device: &&TpuDevice| matches!(device.platform(), Platform::Tpu | Platform::Topology);
    device.downcast_ref::<TpuDevice>().filter(is_tpu).is_some_and(|device| device.as_mesh().is_none())
}

/// An op of this module.
trait Op {
    type Operands<B: Backend>: 'static;

    fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> Option<Tensor<B, 2>>;
}

/// Returns the product of sorted rows `[rows, inputs]` with the matrices of their experts, `[experts, inputs, outputs]`,
/// which have so many rows each: `[rows, outputs]`. `None` on a backend whose tensors are not those of a TPU.
pub(super) fn product<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 3>,
    sizes: Tensor<B, 1, Int>,
) -> Option<Tensor<B, 2>> {
    struct Product;
    impl Op for Product {
        type Operands<B: Backend> = (Tensor<B, 2>, Tensor<B, 3>, Tensor<B, 1, Int>);

        fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> Option<Tensor<B, 2>> {
            PRODUCT.call::<B>(operands).ok()
        }
    }
    on_tpu::<Product, B>((x, weight, sizes))
}

/// Returns rows of `[n, width]` at places `[m]`. `back` has for each of the `n` rows the rows of the result that have it, as
/// many for each. `None` as [`product`].
pub(super) fn taken<B: Backend>(
    x: Tensor<B, 2>,
    places: Tensor<B, 1, Int>,
    back: Tensor<B, 1, Int>,
) -> Option<Tensor<B, 2>> {
    struct Taken;
    impl Op for Taken {
        type Operands<B: Backend> = (Tensor<B, 2>, Tensor<B, 1, Int>, Tensor<B, 1, Int>);

        fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> Option<Tensor<B, 2>> {
            TAKEN.call::<B>(operands).ok()
        }
    }
    on_tpu::<Taken, B>((x, places, back))
}

/// Calls an op, if a backend is one of those that run on TPUs. Decoders are generic over any backend, and custom ops are not.
fn on_tpu<O: Op, B: Backend>(operands: O::Operands<B>) -> Option<Tensor<B, 2>> {
    let operands: Box<dyn Any> = Box::new(operands);
    let result = attempt::<O, Tpu<f32>>(operands)
        .or_else(attempt::<O, Tpu<bf16>>)
        .or_else(attempt::<O, Autodiff<Tpu<f32>>>)
        .or_else(attempt::<O, Autodiff<Tpu<bf16>>>);
    *result.ok()?.downcast::<Option<Tensor<B, 2>>>().ok()?
}

/// Calls an op on operands of a backend; returns them if they are of another.
fn attempt<O: Op, T: CustomOpBackend>(operands: Box<dyn Any>) -> Result<Box<dyn Any>, Box<dyn Any>> {
    operands.downcast::<O::Operands<T>>().map(|operands| Box::new(O::call::<T>(*operands)) as Box<dyn Any>)
}

/// Returns the form of a product of groups of `x`, which `of` and `groups` say. `types` are those of its operands and its
/// result. XLA's compiler for processors does not have it.
fn ragged_dot(x: &Rows, types: [Vec<usize>; 3], experts: usize, of: &str, groups: &str) -> CustomForm {
    if !is_native::<Tpu<f32>>(&x.device()) {
        return CustomForm::Plain;
    }
    let element = match x.dtype() {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    };
    let [x, y, result] = types.map(|dims| {
        let dims: String = dims.iter().map(|dim| format!("{dim}x")).collect();
        format!("tensor<{dims}{element}>")
    });
    let sizes = format!("tensor<{experts}xi32>");
    let numbers = format!("#chlo.ragged_dot<lhs_contracting_dimensions = {of}, lhs_ragged_dimensions = [0]{groups}>");
    let precision = "precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>]";
    CustomForm::stablehlo(format!(
        "func.func @main(%x: {x}, %y: {y}, %sizes: {sizes}) -> {result} {{\n\
         %z = \"chlo.ragged_dot\"(%x, %y, %sizes) <{{{precision}, ragged_dot_dimension_numbers = {numbers}}}> : \
         ({x}, {y}, {sizes}) -> {result}\nreturn %z : {result}\n}}"
    ))
}

/// The plain form of a product: each block of rows with the matrix of its expert.
fn in_blocks(x: Rows, weight: Stack, sizes: Numbers) -> Rows {
    let ([rows, inputs], outputs) = (x.dims(), weight.dims()[2]);
    let layout = Layout::new(sizes, rows, BLOCK);
    let [blocks] = layout.experts.dims();
    let x = x.select(0, layout.sources).reshape([blocks, BLOCK, inputs]);
    let y = x.matmul(weight.select(0, layout.experts));
    y.reshape([blocks * BLOCK, outputs]).select(0, layout.places)
}

/// The plain form of the gradient of matrices.
fn outer_in_blocks(x: Rows, y: Rows, sizes: Numbers) -> Stack {
    let (rows, [experts]) = (x.dims()[0], sizes.dims());
    let layout = Layout::new(sizes, rows, BLOCK);
    let [blocks] = layout.experts.dims();
    let [x, y] = [x, y].map(|x| {
        let width = x.dims()[1];
        x.select(0, layout.sources.clone()).reshape([blocks, BLOCK, width])
    });
    let is_empty = layout.is_filled.bool_not().reshape([blocks, BLOCK, 1]).expand(x.dims());
    let products = x.mask_fill(is_empty, 0.0).swap_dims(1, 2).matmul(y);
    let [_, inputs, outputs] = products.dims();
    let zeros = Stack::zeros([experts, inputs, outputs], (&products.device(), products.dtype()));
    zeros.select_assign(0, layout.experts, products, IndexingUpdateOp::Add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Distribution, Tolerance};

    type B = Autodiff<Tpu<f32>>;

    /// Returns the result of a product or of one row after another, and the gradients of both factors.
    fn results(sizes: &[i32], is_grouped: bool, device: &TpuDevice) -> [TensorData; 3] {
        let experts = sizes.len();
        let rows: usize = sizes.iter().map(|size| *size as usize).sum();
        Tpu::<f32>::seed(device, 5);
        let x = Tensor::<B, 2>::random([rows, 3], Distribution::Default, device).require_grad();
        let weight = Tensor::<B, 3>::random([experts, 3, 4], Distribution::Default, device).require_grad();
        let y = if is_grouped {
            product(x.clone(), weight.clone(), Tensor::from_data(sizes, device)).unwrap()
        } else {
            let mut begin = 0;
            let parts = sizes.iter().enumerate().filter(|(_, size)| **size > 0).map(|(expert, size)| {
                let part = x.clone().slice_dim(0, begin..begin + *size as usize);
                begin += *size as usize;
                part.matmul(weight.clone().slice_dim(0, expert..expert + 1).squeeze_dim(0))
            });
            Tensor::cat(parts.collect(), 0)
        };
        let weights = Tensor::random([rows, 4], Distribution::Default, device);
        let gradients = (y.clone() * weights).sum().backward();
        [y.into_data(), x.grad(&gradients).unwrap().into_data(), weight.grad(&gradients).unwrap().into_data()]
    }

    /// The plain forms, in the interpreter and through the CPU plugin.
    #[test]
    fn grouped_products_are_products_of_groups() {
        let cpu = burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu).map(|_| TpuDevice::cpu(0));
        for device in [TpuDevice::ndarray()].into_iter().chain(cpu) {
            for sizes in [&[2, 0, 140, 5][..], &[0, 7], &[3, 0, 0]] {
                let [found, expected] = [true, false].map(|is_grouped| results(sizes, is_grouped, &device));
                for (found, expected) in found.iter().zip(&expected) {
                    found.assert_approx_eq::<f32>(expected, Tolerance::absolute(1e-5));
                }
            }
        }
    }

    #[test]
    fn the_gradient_of_taken_rows_is_taken_from_where_they_are() {
        let device = TpuDevice::ndarray();
        let x = Tensor::<B, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device).require_grad();
        let [places, back] = [[1, 0, 0, 1], [1, 2, 0, 3]].map(|places| Tensor::from_data(places, &device));
        let y = taken(x.clone(), places, back).unwrap();
        let weights = Tensor::from_data([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]], &device);
        let gradients = (y.clone() * weights).sum().backward();
        y.into_data().assert_eq(&TensorData::from([[3.0, 4.0], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0f32]]), true);
        x.grad(&gradients).unwrap().into_data().assert_eq(&TensorData::from([[6.0, 60.0], [9.0, 90.0f32]]), true);
    }

    #[test]
    fn only_backends_of_tpus_have_them() {
        type F = burn_flex::Flex;
        let x = Tensor::<F, 2>::zeros([1, 1], &burn_flex::FlexDevice);
        let places = Tensor::<F, 1, Int>::zeros([1], &burn_flex::FlexDevice);
        assert!(taken(x, places.clone(), places).is_none());
        assert!(!is_native::<F>(&burn_flex::FlexDevice) && !is_native::<B>(&TpuDevice::ndarray()));
    }
}
