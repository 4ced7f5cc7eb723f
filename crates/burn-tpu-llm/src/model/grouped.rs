//! Products of rows that are sorted by expert, as TPUs have a kernel for them.
//!
//! XLA has an op for such products, `ragged_dot`, which libtpu compiles to a kernel that reads each expert's matrix once for
//! its rows. Burn has no such op, so it is a custom op, whose plain form is products of blocks ([`Layout`]). Its
//! gradients are two more. On a mesh, every chip calls them for its group of rows and its experts. The rows after those of the
//! last expert have any result; the kernel does not write them.
//!
//! Owns: the ops. May not know: the router.

use super::blocks::Layout;
use super::division::{Division, Split};
use super::on_tpu::{Op, is_native, on_tpu, parts_of, together};
use burn::prelude::*;
use burn::tensor::{DType, IndexingUpdateOp};
use burn_tpu::{CustomForm, CustomOp, CustomOpBackend, Tpu, custom_op};
use std::sync::LazyLock;

type Rows = Tensor<Tpu<f32>, 4>;
type Stack = Tensor<Tpu<f32>, 3>;
type Numbers = Tensor<Tpu<f32>, 3, Int>;

/// The rows of a block of the plain forms.
const BLOCK: usize = 128;

/// `[groups, parts, rows, inputs]`, `[experts, inputs, outputs]` and the number of each expert's rows, `[groups, parts, experts of
/// a part]`, to `[groups, parts, rows, outputs]`.
static PRODUCT: LazyLock<CustomOp<(Rows, Stack, Numbers), Rows>> = LazyLock::new(|| {
    let form = |(x, weight, sizes): &(Rows, Stack, Numbers)| {
        let ([.., rows, inputs], [experts, _, outputs]) = (x.dims(), weight.dims());
        let types = [vec![rows, inputs], vec![experts, inputs, outputs], vec![rows, outputs]];
        Ok(ragged_dot(x, sizes, types, "[1], rhs_contracting_dimensions = [1]", ", rhs_group_dimensions = [0]"))
    };
    custom_op("grouped_product", form, |(x, weight, sizes)| in_blocks(x, weight, sizes))
        .with_gradient(|(x, weight, sizes), _, dy| {
            let dx = TRANSPOSED.call::<Tpu<f32>>((dy.clone(), weight.clone(), sizes.clone()));
            let dx = dx.unwrap_or_else(|_| in_blocks(dy.clone(), weight.swap_dims(1, 2), sizes.clone()));
            let dw = OUTER.call::<Tpu<f32>>((x.clone(), dy.clone(), sizes.clone()));
            let dw = dw.unwrap_or_else(|_| outer_in_blocks(x, dy, sizes.clone()));
            (dx, dw.sum_dim(0).squeeze_dim(0), sizes)
        })
        .with_partition(|mesh, _| {
            Some(Division::partition(mesh, &[Split::Parts(4), Split::Experts, Split::Parts(3)], &[Split::Parts(4)]))
        })
});

/// The same with the transposed matrices.
static TRANSPOSED: LazyLock<CustomOp<(Rows, Stack, Numbers), Rows>> = LazyLock::new(|| {
    let form = |(x, weight, sizes): &(Rows, Stack, Numbers)| {
        let ([.., rows, outputs], [experts, inputs, _]) = (x.dims(), weight.dims());
        let types = [vec![rows, outputs], vec![experts, inputs, outputs], vec![rows, inputs]];
        Ok(ragged_dot(x, sizes, types, "[1], rhs_contracting_dimensions = [2]", ", rhs_group_dimensions = [0]"))
    };
    custom_op("grouped_product", form, |(x, weight, sizes)| in_blocks(x, weight.swap_dims(1, 2), sizes)).with_partition(
        |mesh, _| {
            Some(Division::partition(mesh, &[Split::Parts(4), Split::Experts, Split::Parts(3)], &[Split::Parts(4)]))
        },
    )
});

/// The sum over each expert's rows of `[groups, parts, rows, inputs]` times `[groups, parts, rows, outputs]`, in each group:
/// `[groups, experts, inputs, outputs]`.
static OUTER: LazyLock<CustomOp<(Rows, Rows, Numbers), Rows>> = LazyLock::new(|| {
    let form = |(x, y, sizes): &(Rows, Rows, Numbers)| {
        let ([.., rows, inputs], [.., outputs], [.., experts]) = (x.dims(), y.dims(), sizes.dims());
        let types = [vec![rows, inputs], vec![rows, outputs], vec![experts, inputs, outputs]];
        Ok(ragged_dot(x, sizes, types, "[0], rhs_contracting_dimensions = [0]", ""))
    };
    custom_op("grouped_product", form, |(x, y, sizes)| outer_in_blocks(x, y, sizes)).with_partition(|mesh, _| {
        Some(Division::partition(mesh, &[Split::Parts(4), Split::Parts(4), Split::Parts(3)], &[Split::Parts(4)]))
    })
});

/// Returns the product of sorted rows `[groups, parts, rows, inputs]` with the matrices of their experts, `[experts, inputs,
/// outputs]`, which have so many rows each: `[groups, parts, rows, outputs]`. `None` on a backend whose tensors are not those of
/// a TPU.
pub(super) fn product<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 3>,
    sizes: Tensor<B, 3, Int>,
) -> Option<Tensor<B, 4>> {
    struct Product;
    impl Op for Product {
        type Operands<B: Backend> = (Tensor<B, 4>, Tensor<B, 3>, Tensor<B, 3, Int>);
        type Results<B: Backend> = Tensor<B, 4>;

        fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> burn_tpu::Result<Tensor<B, 4>> {
            PRODUCT.call::<B>(operands)
        }
    }
    on_tpu::<Product, B>((x, weight, sizes))
}

/// Returns the form of a product of groups of `x` for one group and part, which `of` and `groups` say. `types` are those of its
/// operands and its result. XLA's compiler for processors does not have it.
fn ragged_dot(x: &Rows, sizes: &Numbers, types: [Vec<usize>; 3], of: &str, groups: &str) -> CustomForm {
    let [own_groups, own_parts, experts] = sizes.dims();
    if !is_native::<Tpu<f32>>(&x.device()) || own_groups * own_parts > 1 {
        return CustomForm::Plain;
    }
    let element = match x.dtype() {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    };
    let tensor = |dims: &[usize]| {
        let dims: String = dims.iter().map(|dim| format!("{dim}x")).collect();
        format!("tensor<{dims}{element}>")
    };
    // The rows of one part, and the experts of one group.
    let outside = |dims: &[usize], is_stack: bool| match (dims.len(), is_stack) {
        (2, _) => tensor(&[&[1, 1], dims].concat()),
        (_, true) => tensor(&[&[1], dims].concat()),
        (_, false) => tensor(dims),
    };
    let [x, y, z] = types.each_ref().map(|dims| tensor(dims));
    let [outer_x, outer_y] = [&types[0], &types[1]].map(|dims| outside(dims, false));
    let outer_z = outside(&types[2], true);
    let sizes = format!("tensor<{experts}xi32>");
    let numbers = format!("#chlo.ragged_dot<lhs_contracting_dimensions = {of}, lhs_ragged_dimensions = [0]{groups}>");
    let precision = "precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>]";
    CustomForm::stablehlo(format!(
        "func.func @main(%x: {outer_x}, %y: {outer_y}, %sizes: tensor<1x1x{experts}xi32>) -> {outer_z} {{\n\
         %0 = stablehlo.reshape %x : ({outer_x}) -> {x}\n\
         %1 = stablehlo.reshape %y : ({outer_y}) -> {y}\n\
         %2 = stablehlo.reshape %sizes : (tensor<1x1x{experts}xi32>) -> {sizes}\n\
         %3 = \"chlo.ragged_dot\"(%0, %1, %2) <{{{precision}, ragged_dot_dimension_numbers = {numbers}}}> : \
         ({x}, {y}, {sizes}) -> {z}\n\
         %4 = stablehlo.reshape %3 : ({z}) -> {outer_z}\nreturn %4 : {outer_z}\n}}"
    ))
}

/// The plain form of a product: each block of rows with the matrix of its expert, in one part after another.
fn in_blocks(x: Rows, weight: Stack, sizes: Numbers) -> Rows {
    let ([groups, parts, rows, inputs], [_, _, outputs], [_, _, own]) = (x.dims(), weight.dims(), sizes.dims());
    let all = parts_of::<_, _, 4, 2>(x).into_iter().zip(parts_of::<_, _, 3, 1>(sizes)).enumerate();
    let products = all.map(|(at, (x, sizes))| {
        let first = at % parts * own;
        let layout = Layout::new(sizes, rows, BLOCK);
        let [blocks] = layout.experts.dims();
        let x = x.select(0, layout.sources).reshape([blocks, BLOCK, inputs]);
        let y = x.matmul(weight.clone().slice_dim(0, first..first + own).select(0, layout.experts));
        y.reshape([blocks * BLOCK, outputs]).select(0, layout.places)
    });
    together(products.collect(), [groups, parts, rows, outputs])
}

/// The plain form of the gradient of matrices.
fn outer_in_blocks(x: Rows, y: Rows, sizes: Numbers) -> Rows {
    let ([groups, parts, rows, inputs], [.., outputs], [_, _, own]) = (x.dims(), y.dims(), sizes.dims());
    let rows_of = |x: Rows| parts_of::<_, _, 4, 2>(x).into_iter();
    let all = rows_of(x).zip(rows_of(y)).zip(parts_of::<_, _, 3, 1>(sizes));
    let sums = all.map(|((x, y), sizes)| {
        let layout = Layout::new(sizes, rows, BLOCK);
        let [blocks] = layout.experts.dims();
        let [x, y] = [(x, inputs), (y, outputs)].map(|(x, width)| {
            let x = x.select(0, layout.sources.clone());
            x.reshape([blocks, BLOCK, width])
        });
        let is_empty = layout.is_filled.bool_not().reshape([blocks, BLOCK, 1]).expand(x.dims());
        let products = x.mask_fill(is_empty, 0.0).swap_dims(1, 2).matmul(y);
        let zeros = Stack::zeros([own, inputs, outputs], (&products.device(), products.dtype()));
        zeros.select_assign(0, layout.experts, products, IndexingUpdateOp::Add)
    });
    together(sums.collect(), [groups, parts * own, inputs, outputs])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::Autodiff;
    use burn::tensor::{Distribution, Tolerance};
    use burn_tpu::TpuDevice;

    type B = Autodiff<Tpu<f32>>;

    /// Returns the result of a product or of one row after another, and the gradients of both factors.
    fn results(sizes: &[i32], is_grouped: bool, device: &TpuDevice) -> [TensorData; 3] {
        let experts = sizes.len();
        let rows: usize = sizes.iter().map(|size| *size as usize).sum();
        Tpu::<f32>::seed(device, 5);
        let x = Tensor::<B, 2>::random([rows, 3], Distribution::Default, device).require_grad();
        let weight = Tensor::<B, 3>::random([experts, 3, 4], Distribution::Default, device).require_grad();
        let y = if is_grouped {
            let sizes = Tensor::<B, 1, Int>::from_data(sizes, device).unsqueeze();
            product(x.clone().unsqueeze(), weight.clone(), sizes).unwrap().reshape([rows, 4])
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
}
