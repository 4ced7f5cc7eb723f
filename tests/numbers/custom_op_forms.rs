//! Custom ops in the interpreter, which runs plain forms: gradients, kinds of operands, and every mistake that is refused.

use burn::backend::Autodiff;
use burn::tensor::{Bool, Distribution, Int, Tensor, TensorData, Tolerance, activation};
use burn_tpu::kernels::{Element, KernelError, kernels};
use burn_tpu::{CustomForm, CustomOp, Tpu, TpuDevice, TpuError, custom_op};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

type B = Tpu<f32>;
type A = Autodiff<B>;
type Matrix = Tensor<B, 2>;

fn device() -> TpuDevice {
    TpuDevice::ndarray()
}

fn random<const D: usize>(dims: [usize; D]) -> Tensor<B, D> {
    Tensor::random(dims, Distribution::Uniform(-2.0, 2.0), &device())
}

fn close(found: TensorData, expected: TensorData) {
    found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(1e-5, 1e-5));
}

fn softmax() -> CustomOp<Matrix, Matrix> {
    custom_op(
        "softmax",
        |x: &Matrix| {
            let [rows, columns] = x.dims();
            Ok(kernels::softmax(Element::F32, rows, columns)?.into())
        },
        |x: Matrix| activation::softmax(x, 1),
    )
}

/// Scales rows and counts them: operands of two kinds, and results of all three.
type Scaled = (Matrix, Tensor<B, 1>, Tensor<B, 1, Int>, Tensor<B, 1, Bool>);

/// Rows, their scales and their counts.
type Rows = (Matrix, Tensor<B, 1>, Tensor<B, 1, Int>);

fn scaled() -> CustomOp<Rows, Scaled> {
    let plain = |(x, scales, counts): Rows| {
        let y = x.clone() * scales.unsqueeze_dim::<2>(1);
        let sums = (x.square() * 0.5).sum_dim(1).squeeze_dim(1);
        (y, sums, counts.clone() + 1, counts.greater_elem(2))
    };
    let text = |_: &Rows| {
        Ok(CustomForm::stablehlo(
            "func.func @scaled(%x: tensor<3x2xf32>, %s: tensor<3xf32>, %n: tensor<3xi32>)
                -> (tensor<3x2xf32>, tensor<3xf32>, tensor<3xi32>, tensor<3xi1>) {}",
        ))
    };
    custom_op("scaled", text, plain)
}

#[test]
fn the_plain_form_runs_on_ndarray() {
    let (op, x) = (softmax(), random([8, 16]));
    close(op.call(x.clone()).unwrap().into_data(), activation::softmax(x, 1).into_data());
    let (x, scales) = (random([3, 2]), random([3]));
    let counts = Tensor::<B, 1, Int>::from_ints([1, 2, 3], &device());
    let (y, sums, more, many) = scaled().call((x.clone(), scales.clone(), counts)).unwrap();
    close(y.into_data(), (x.clone() * scales.unsqueeze_dim::<2>(1)).into_data());
    close(sums.into_data(), (x.square().sum_dim(1).squeeze_dim::<1>(1) * 0.5).into_data());
    assert_eq!(more.into_data().iter::<i32>().collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(many.into_data().iter::<bool>().collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn gradients_are_those_of_the_plain_form() {
    let op = softmax().with_gradient(|_, y, dy| {
        let product = y.clone() * dy;
        product.clone() - y * product.sum_dim(1)
    });
    let weights = Tensor::<A, 2>::from_inner(random([8, 16]));
    let gradient = |softmax: &dyn Fn(Tensor<A, 2>) -> Tensor<A, 2>, x: &Matrix| {
        let x = Tensor::<A, 2>::from_inner(x.clone()).require_grad();
        let gradients = (softmax(x.clone()) * weights.clone()).sum().backward();
        x.grad(&gradients).unwrap().into_data()
    };
    let x = random([8, 16]);
    close(gradient(&|x| op.call(x).unwrap(), &x), gradient(&|x| activation::softmax(x, 1), &x));
}

/// Two float results have one node of Burn's graph; an operand may require no gradient.
#[test]
fn gradients_of_several_results_arrive_together() {
    let op = scaled().with_gradient(|(x, scales, counts), (_, _, more, _), (dy, dsums, dmore, _)| {
        assert_eq!(dmore.into_data(), more.into_data());
        let dx = dy.clone() * scales.unsqueeze_dim::<2>(1) + x.clone() * dsums.unsqueeze_dim::<2>(1);
        let dscales = (dy * x).sum_dim(1).squeeze_dim(1);
        (dx, dscales, counts)
    });
    let (x, scales) = (random([3, 2]), random([3]));
    for both in [true, false] {
        let counts = || Tensor::<A, 1, Int>::from_ints([1, 2, 3], &device());
        let given = || {
            let x = Tensor::<A, 2>::from_inner(x.clone()).require_grad();
            let scales = Tensor::<A, 1>::from_inner(scales.clone());
            (x, if both { scales.require_grad() } else { scales })
        };
        let loss = |y: Tensor<A, 2>, sums: Tensor<A, 1>| y.square().sum() + sums.exp().sum();
        let (own_x, own_scales) = given();
        let (y, sums, _, many) = op.call((own_x.clone(), own_scales.clone(), counts())).unwrap();
        assert_eq!(many.into_data().iter::<bool>().collect::<Vec<_>>(), [false, false, true]);
        let own = loss(y, sums).backward();
        let (plain_x, plain_scales) = given();
        let y = plain_x.clone() * plain_scales.clone().unsqueeze_dim::<2>(1);
        let sums = (plain_x.clone().square() * 0.5).sum_dim(1).squeeze_dim(1);
        let plain = loss(y, sums).backward();
        close(own_x.grad(&own).unwrap().into_data(), plain_x.grad(&plain).unwrap().into_data());
        let of_scales = [own_scales.grad(&own), plain_scales.grad(&plain)].map(|x| x.map(Tensor::into_data));
        let [Some(found), Some(expected)] = of_scales else { return assert!(!both) };
        close(found, expected);
    }
}

#[test]
fn a_form_is_made_once_for_each_set_of_types() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let op: CustomOp<Matrix, Matrix> = custom_op(
        "softmax",
        move |x: &Matrix| {
            counted.fetch_add(1, Relaxed);
            let [rows, columns] = x.dims();
            Ok(kernels::softmax(Element::F32, rows, columns)?.into())
        },
        |x: Matrix| activation::softmax(x, 1),
    );
    for rows in [8, 8, 16, 8, 16] {
        let sum = op.call(random([rows, 8])).unwrap().sum().into_scalar();
        assert!((sum - rows as f32).abs() < 1e-4);
    }
    assert_eq!(made.load(Relaxed), 2);
}

fn reason<T>(result: Result<T, TpuError>, name: &str, part: &str) {
    match result {
        Err(TpuError::CustomOp { name: found, reason }) => {
            assert!(found == name && reason.contains(part), "{found}: {reason}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{name} was not refused: {part}"),
    }
}

/// An op of one matrix with this form, whose plain form is the identity.
fn of_form(form: impl Fn() -> Result<CustomForm, KernelError> + Send + Sync + 'static) -> CustomOp<Matrix, Matrix> {
    custom_op("mine", move |_: &Matrix| form(), |x: Matrix| x)
}

#[test]
fn forms_that_do_not_fit_are_refused() {
    let kernel = |rows| of_form(move || Ok(kernels::softmax(Element::F32, rows, 8)?.into()));
    assert!(kernel(8).call(random([8, 8])).is_ok());
    let part = "the kernel takes (f32[16,8]), and it is called with (f32[8,8])";
    reason(kernel(16).call(random([8, 8])), "mine", part);
    reason(kernel(8).call(random([8, 8]).cast(burn::tensor::DType::BF16)), "mine", "called with (bf16[8,8])");
    reason(
        of_form(|| Ok(kernels::softmax(Element::I32, 8, 8)?.into())).call(random([8, 8])),
        "mine",
        "softmax takes no i32",
    );
    let text = |text: &'static str| of_form(move || Ok(CustomForm::stablehlo(text)));
    let function = "func.func @f(%x: tensor<8x8xf32>) -> tensor<8xf32> {}";
    reason(text(function).call(random([8, 8])), "mine", "the function returns (f32[8]), the plain form (f32[8,8])");
    reason(text("stablehlo.add").call(random([8, 8])), "mine", "its StableHLO text: expected `func.func");
    assert!(of_form(|| Ok(CustomForm::Plain)).call(random([8, 8])).is_ok());
}

#[test]
fn a_plain_form_is_a_function_of_its_operands() {
    let op = |plain: fn(Matrix) -> Matrix| {
        custom_op("mine", |_: &Matrix| Ok(kernels::softmax(Element::F32, 8, 8)?.into()), plain)
    };
    let call = |plain: fn(Matrix) -> Matrix| op(plain).call(random([8, 8]));
    reason(call(|x| x.clone() * x.sum().into_scalar()), "mine", "its plain form");
    reason(call(|x| x.clone() * x.random_like(Distribution::Default)), "mine", "draws random numbers");
    reason(call(|x| x.sum_dim(1)), "mine", "the plain form (f32[8,1])");
    reason(call(|x| x + Matrix::from_floats([[1.0; 8]; 8], &device())), "mine", "of host data");
    // Numbers are constants, and a slice is static.
    let made = call(|x| {
        let first = x.clone().slice([2..3, 0..8]) * 0.25;
        x.clone() + first + Tensor::<B, 1, Int>::arange(0..8, &x.device()).float().unsqueeze::<2>()
    });
    assert_eq!(made.unwrap().dims(), [8, 8]);
    let outside = (random([8, 8]) * 2.0).exp();
    let captured = custom_op(
        "mine",
        |_: &Matrix| Ok(kernels::softmax(Element::F32, 8, 8)?.into()),
        move |x: Matrix| x + outside.clone(),
    );
    reason(captured.call(random([8, 8])), "mine", "no operand");
}

#[test]
fn an_op_without_a_gradient_is_not_differentiated_silently() {
    let x = Tensor::<A, 2>::from_inner(random([8, 8]));
    assert!(softmax().call(x.clone()).is_ok());
    reason(softmax().call(x.clone().require_grad()), "softmax", "has none");
    let scores = softmax().call(x.clone().detach()).unwrap();
    assert!((scores.sum().into_scalar() - 8.0).abs() < 1e-4);
}
