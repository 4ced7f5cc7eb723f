//! Where rows are moved: the order of choices, and rows at places that are known.
//!
//! Custom ops, so that every chip of a mesh orders and moves what it has. Their plain forms are their only ones. The gradient
//! of gathered rows is gathered too: each row comes from a known place.

use super::blocks::Order;
use super::division::{Division, Split};
use super::on_tpu::{Op, on_tpu, parts_of, together};
use burn::prelude::*;
use burn_tpu::{CustomForm, CustomOp, CustomOpBackend, Tpu, custom_op};
use std::sync::LazyLock;

type Rows = Tensor<Tpu<f32>, 4>;
type Numbers<const D: usize> = Tensor<Tpu<f32>, D, Int>;

/// What [`order`] returns.
pub(super) type Ordered<B> = (Tensor<B, 3, Int>, Tensor<B, 4, Int>, Tensor<B, 4, Int>, Tensor<B, 3, Int>);

type OrderOp = CustomOp<(Numbers<4>, Numbers<1>), Ordered<Tpu<f32>>>;

static ORDER: LazyLock<OrderOp> = LazyLock::new(|| {
    let form = |_: &(Numbers<4>, Numbers<1>)| Ok(CustomForm::Plain);
    custom_op("order_of_choices", form, |(chosen, numbers): (Numbers<4>, Numbers<1>)| {
        let ([groups, parts, tokens, experts], [most]) = (chosen.dims(), numbers.dims());
        let orders = parts_of(chosen).into_iter().map(|chosen| Order::new(chosen, numbers.clone()));
        let (mut sizes, mut of_choices, mut places, mut choices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for order in orders {
            sizes.push(order.sizes);
            of_choices.push(order.experts);
            places.push(order.places);
            choices.push(order.choices);
        }
        (
            together(sizes, [groups, parts, experts]),
            together(of_choices, [groups, parts, most, tokens]),
            together(places, [groups, parts, most, tokens]),
            together(choices, [groups, parts, tokens * most]),
        )
    })
    .with_partition(|mesh, _| {
        let results = [Split::Parts(3), Split::Parts(4), Split::Parts(4), Split::Parts(3)];
        Some(Division::partition(mesh, &[Split::Parts(4), Split::Whole], &results))
    })
});

/// Rows `[groups, parts, n, width]` at places `[groups, parts, m]`, of which -1 is a row of zeros: `[groups, parts, m, width]`.
/// The third operand, `[groups, parts, k, n]`, has for each of the `n` rows `k` places in the result that have it; -1 is none.
static TAKEN: LazyLock<CustomOp<(Rows, Numbers<3>, Numbers<4>), Rows>> = LazyLock::new(|| {
    let form = |_: &(Rows, Numbers<3>, Numbers<4>)| Ok(CustomForm::Plain);
    custom_op("taken_rows", form, |(x, places, _)| rows_at(x, places))
        .with_gradient(|(_, places, back), _, dy| {
            let dx = SUMMED.call::<Tpu<f32>>((dy.clone(), back.clone()));
            (dx.unwrap_or_else(|_| sums_at(dy, back.clone())), places, back)
        })
        .with_partition(|mesh, _| {
            Some(Division::partition(mesh, &[Split::Parts(4), Split::Parts(3), Split::Parts(4)], &[Split::Parts(4)]))
        })
});

/// The sums of rows `[groups, parts, m, width]` at places `[groups, parts, k, n]`: `[groups, parts, n, width]`.
static SUMMED: LazyLock<CustomOp<(Rows, Numbers<4>), Rows>> = LazyLock::new(|| {
    let form = |_: &(Rows, Numbers<4>)| Ok(CustomForm::Plain);
    custom_op("summed_rows", form, |(x, places)| sums_at(x, places)).with_partition(|mesh, _| {
        Some(Division::partition(mesh, &[Split::Parts(4), Split::Parts(4)], &[Split::Parts(4)]))
    })
});

/// The plain form of taken rows.
fn rows_at(x: Rows, places: Numbers<3>) -> Rows {
    let ([groups, parts, _, width], [_, _, count]) = (x.dims(), places.dims());
    let all = parts_of::<_, _, 4, 2>(x).into_iter().zip(parts_of::<_, _, 3, 1>(places));
    let taken = all.map(|(x, places)| {
        let is_none = places.clone().lower_elem(0).unsqueeze_dim::<2>(1).expand([count, width]);
        x.select(0, places.clamp_min(0)).mask_fill(is_none, 0.0)
    });
    together(taken.collect(), [groups, parts, count, width])
}

/// The plain form of summed rows.
fn sums_at(x: Rows, places: Numbers<4>) -> Rows {
    let ([groups, parts, each, rows], width) = (places.dims(), x.dims()[3]);
    let taken = rows_at(x, places.reshape([groups, parts, each * rows]));
    taken.reshape([groups, parts, each, rows, width]).sum_dim(2).squeeze_dim(2)
}

/// Returns the order of choices, which are 1 in `[groups, parts, tokens, experts]`, in each part: what [`Order::new`] does.
/// `None` on a backend whose tensors are not those of a TPU.
pub(super) fn order<B: Backend>(chosen: Tensor<B, 4, Int>, numbers: Tensor<B, 1, Int>) -> Option<Ordered<B>> {
    struct InOrder;
    impl Op for InOrder {
        type Operands<B: Backend> = (Tensor<B, 4, Int>, Tensor<B, 1, Int>);
        type Results<B: Backend> = Ordered<B>;

        fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> burn_tpu::Result<Ordered<B>> {
            ORDER.call::<B>(operands)
        }
    }
    on_tpu::<InOrder, B>((chosen, numbers))
}

/// Returns rows `[groups, parts, n, width]` at places `[groups, parts, m]`, of which -1 is a row of zeros. `back`, `[groups,
/// parts, k, n]`, has for each of the `n` rows `k` rows of the result that have it; -1 is none. `None` as [`order`].
pub(super) fn taken<B: Backend>(
    x: Tensor<B, 4>,
    places: Tensor<B, 3, Int>,
    back: Tensor<B, 4, Int>,
) -> Option<Tensor<B, 4>> {
    struct Taken;
    impl Op for Taken {
        type Operands<B: Backend> = (Tensor<B, 4>, Tensor<B, 3, Int>, Tensor<B, 4, Int>);
        type Results<B: Backend> = Tensor<B, 4>;

        fn call<B: CustomOpBackend>(operands: Self::Operands<B>) -> burn_tpu::Result<Tensor<B, 4>> {
            TAKEN.call::<B>(operands)
        }
    }
    on_tpu::<Taken, B>((x, places, back))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::Autodiff;
    use burn_tpu::TpuDevice;

    type B = Autodiff<Tpu<f32>>;

    #[test]
    fn the_gradient_of_taken_rows_is_taken_from_where_they_are() {
        let device = TpuDevice::ndarray();
        let x = Tensor::<B, 4>::from_data([[[[1.0, 2.0], [3.0, 4.0]]]], &device).require_grad();
        let places = Tensor::from_data([[[1, 0, 0, -1]]], &device);
        let back = Tensor::from_data([[[[1, 0], [2, -1]]]], &device);
        let y = taken(x.clone(), places, back).unwrap();
        let weights = Tensor::from_data([[[[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0]]]], &device);
        let gradients = (y.clone() * weights).sum().backward();
        y.into_data().assert_eq(&TensorData::from([[[[3.0, 4.0], [1.0, 2.0], [1.0, 2.0], [0.0, 0.0f32]]]]), true);
        x.grad(&gradients).unwrap().into_data().assert_eq(&TensorData::from([[[[6.0, 60.0], [1.0, 10.0f32]]]]), true);
    }

    #[test]
    fn only_backends_of_tpus_have_them() {
        type F = burn_flex::Flex;
        let device = burn_flex::FlexDevice;
        let x = Tensor::<F, 4>::zeros([1, 1, 1, 1], &device);
        let places = Tensor::<F, 3, Int>::zeros([1, 1, 1], &device);
        assert!(taken(x, places.clone(), places.unsqueeze_dim(2)).is_none());
        assert!(!super::super::on_tpu::has_ops::<F>() && super::super::on_tpu::has_ops::<B>());
    }
}
