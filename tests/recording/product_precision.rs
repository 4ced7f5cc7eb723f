//! The precision of products: that of the device, of a scope, and what is given to which ops.

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Precision, Tpu, TpuDevice, TpuOptions, compile, metrics, with_precision};
use burn_tpu_graph::{Program, lower};
use burn_tpu_runtime::testing::recorded;
use std::sync::Arc;

type Matrix = Tensor<Tpu<f32>, 2>;

/// Returns the StableHLO text of what a step records on an f32 matrix.
fn text(step: impl Fn(Matrix) -> Matrix) -> String {
    let build = |&device: &burn_tpu_runtime::Device| Matrix::ones([4, 4], &device.into());
    let programs: Vec<Arc<Program>> = recorded(build, |x, _| step(x)).expect("a step");
    programs.iter().map(|program| lower(program).expect("a program").text).collect()
}

fn count(text: &str, precision: &str) -> usize {
    text.matches(&format!("precision_config = [#stablehlo<precision {precision}>")).count()
}

#[test]
fn a_scope_gives_its_products_a_precision() {
    let _alone = common::alone();
    let product = |x: Matrix| x.clone().matmul(x);
    let plain = text(product);
    assert!(!plain.contains("precision_config"), "{plain}");
    for (precision, name) in [(Precision::High, "HIGH"), (Precision::Highest, "HIGHEST")] {
        let found = text(|x| with_precision(precision, || product(x)));
        assert_eq!(count(&found, name), 1, "{found}");
    }
    let nested = text(|x| {
        with_precision(Precision::Highest, || {
            let inner = with_precision(Precision::Default, || product(x));
            with_precision(Precision::High, || inner.clone().matmul(product(inner)))
        })
    });
    assert_eq!((count(&nested, "HIGH"), count(&nested, "HIGHEST")), (2, 0), "{nested}");
    let before = text(|x| {
        let product = product(x);
        with_precision(Precision::Highest, || product.exp())
    });
    assert!(!before.contains("precision_config"), "{before}");
}

#[test]
fn convolutions_and_gradients_have_it_and_16_bit_products_do_not() {
    let _alone = common::alone();
    let convolved = text(|x| {
        let image = x.clone().reshape([1, 1, 4, 4]);
        let kernel = x.slice([0..3, 0..3]).reshape([1, 1, 3, 3]);
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        with_precision(Precision::Highest, || conv2d(image, kernel, None, options)).reshape([4, 4])
    });
    assert_eq!(count(&convolved, "HIGHEST"), 1, "{convolved}");
    let gradient = |x: Matrix, all: bool| {
        let x = Tensor::<Autodiff<Tpu<f32>>, 2>::from_inner(x).require_grad();
        let loss = || with_precision(Precision::Highest, || x.clone().matmul(x.clone())).sum();
        let grads = match all {
            true => with_precision(Precision::Highest, || loss().backward()),
            false => loss().backward(),
        };
        x.grad(&grads).expect("the loss depends on x")
    };
    assert_eq!(
        count(&text(|x| gradient(x, false)), "HIGHEST"),
        0,
        "the loss is not held, so its product is not computed"
    );
    assert_eq!(count(&text(|x| gradient(x, true)), "HIGHEST"), 2);
    let narrow = text(|x| with_precision(Precision::Highest, || x.clone().cast(burn::tensor::DType::BF16).matmul(x)));
    assert!(!narrow.contains("precision_config"), "{narrow}");
}

#[test]
fn a_panic_ends_a_scope() {
    let _alone = common::alone();
    let panicked = std::panic::catch_unwind(|| with_precision(Precision::Highest, || panic!("as a test")));
    assert!(panicked.is_err());
    assert!(!text(|x| x.clone().matmul(x)).contains("precision_config"));
}

fn product_on(device: &TpuDevice) -> Vec<f32> {
    let x = Matrix::from_data(TensorData::from([[1.0009765f32, 2.0], [-0.3333333, 4.0000005]]), device);
    x.clone().matmul(x).into_data().to_vec().expect("f32")
}

/// CPUs multiply exactly at each setting; a program has another identity at each.
#[test]
fn the_cpu_plugin_computes_the_same_at_each_precision() {
    let _alone = common::alone();
    let options = || common::development().interpret_from(0);
    let Some(plain) = common::cpu_with("plain", options()) else { return };
    let expected = product_on(&plain);
    for (name, precision) in [("high", Precision::High), ("highest", Precision::Highest)] {
        let device = common::cpu_with(name, options().precision(precision)).expect("a plugin");
        assert_eq!(product_on(&device), expected, "{name}");
        assert_ne!(device.program_keys(), plain.program_keys(), "{name}");
    }
    assert_eq!(
        product_on(&common::interpreter_with("highest", TpuOptions::training().precision(Precision::Highest))),
        expected
    );
    let before = metrics(&plain).compiles;
    assert_eq!(with_precision(Precision::Highest, || product_on(&plain)), expected);
    assert_eq!(metrics(&plain).compiles, before + 1);
}

#[test]
fn a_compiled_function_is_recorded_for_each_scope() {
    let _alone = common::alone();
    let Some(device) = common::cpu_with("functions", common::development()) else { return };
    let square = compile(|x: Matrix| x.clone().matmul(x));
    let call = || {
        let result = square.call(Matrix::ones([2, 2], &device)).expect("a call");
        result.into_data().to_vec::<f32>().expect("f32")
    };
    let first = call();
    let compiles = metrics(&device).compiles;
    assert_eq!(with_precision(Precision::Highest, call), first);
    assert_eq!(metrics(&device).compiles, compiles + 1);
    call();
    assert_eq!(metrics(&device).compiles, compiles + 1);
}
