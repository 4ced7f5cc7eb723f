//! Custom ops in programs of Burn 0.22 and 0.23: forms, gradients, several results, and what is refused. It needs the CPU
//! plugin.

use burn::prelude::*;
use burn::tensor::{TensorData, Tolerance, activation};
use burn_tpu::kernels::{Element, kernels};
use burn_tpu::{CustomForm, CustomOp, Platform, TpuDevice, TpuError, TpuOptions, compile, custom_op};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Matrix = Tensor<2>;

/// The CPU device, which one test at a time has, since a device has one number of compiles. `None` without the plugin.
fn device() -> Option<(MutexGuard<'static, ()>, TpuDevice)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if TpuDevice::default().platform() == Platform::NdArray {
        return None;
    }
    let device = TpuDevice::cpu(0);
    // The first test sets it up.
    let _ = TpuOptions::development().disk_cache(false).interpret_from(0).install(&device);
    Some((alone, device))
}

fn values<const D: usize>(dims: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = (0..dims.iter().product()).map(|place| (place * 37 % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

fn close(found: TensorData, expected: &TensorData) {
    found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-5, 1e-5));
}

/// Twice the operand, by StableHLO text. Its plain form is wrong on purpose: three times.
fn doubled() -> CustomOp<Matrix, Matrix> {
    let form = |x: &Matrix| {
        let [rows, columns] = x.dims();
        let ty = format!("tensor<{rows}x{columns}xf32>");
        let text = format!(
            "func.func @double(%x: {ty}) -> {ty} {{
                %y = stablehlo.add %x, %x : {ty}
                return %y : {ty}
            }}"
        );
        Ok(CustomForm::stablehlo(text))
    };
    custom_op("doubled", form, |x| x * 3.0)
}

fn softmax() -> CustomOp<Matrix, Matrix> {
    let kernel = |x: &Matrix| {
        let [rows, columns] = x.dims();
        Ok(kernels::softmax(Element::F32, rows, columns)?.into())
    };
    custom_op("softmax", kernel, |x| activation::softmax(x, 1)).with_gradient(|_, y, dy| {
        let product = y.clone() * dy;
        product.clone() - y * product.sum_dim(1)
    })
}

#[test]
fn the_text_is_what_the_plugin_runs_and_the_plain_form_what_the_interpreter_runs() {
    let Some((_alone, tpu)) = device() else { return };
    for (device, factor) in [(Device::from(tpu), 2.0), (Device::from(TpuDevice::ndarray()), 3.0)] {
        let x = values([4, 6], &device);
        close(doubled().call(x.clone()).unwrap().into_data(), &(x * factor).into_data());
    }
}

#[test]
fn a_gradient_is_that_of_the_plain_form_with_either_strategy() {
    let Some((_alone, tpu)) = device() else { return };
    let plain = Device::from(tpu);
    let op = softmax();
    for device in [plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing()] {
        let gradient = |softmax: &dyn Fn(Matrix) -> Matrix| {
            let x = values([6, 10], &device).require_grad();
            let gradients = softmax(x.clone()).powi_scalar(3).sum().backward();
            x.grad(&gradients).unwrap().into_data()
        };
        close(gradient(&|x| op.call(x).unwrap()), &gradient(&|x| activation::softmax(x, 1)));
    }
    // A constant of the program, without autodiff, beside a parameter with it.
    let scaled = custom_op("scaled", |_: &(Matrix, Matrix)| Ok(CustomForm::Plain), |(x, by)| x * by)
        .with_gradient(|(x, by), _, dy| (dy.clone() * by, dy * x));
    let x = values([2, 3], &plain.clone().autodiff()).require_grad();
    let y = scaled.call((x.clone(), values([2, 3], &plain))).unwrap();
    let gradients = y.sum().backward();
    close(x.grad(&gradients).unwrap().into_data(), &values([2, 3], &plain).into_data());
}

#[test]
fn several_results_of_several_kinds_have_one_node() {
    let Some((_alone, tpu)) = device() else { return };
    let device = Device::from(tpu).autodiff();
    type Results = (Matrix, Tensor<1>, Tensor<2, Int>);
    let op: CustomOp<[Matrix; 2], Results> = custom_op(
        "parts",
        |_| Ok(CustomForm::Plain),
        |[x, y]: [Matrix; 2]| (x.clone() * y.clone(), (x.clone() + y).sum(), x.argmax(1)),
    )
    .with_gradient(|[x, y], _, (product, sum, _): Results| {
        let sum: Matrix = sum.unsqueeze();
        [product.clone() * y.clone() + sum.clone(), product * x + sum]
    });
    let operands = || [values([3, 4], &device).require_grad(), (values([3, 4], &device) + 1.0).detach().require_grad()];
    let loss = |(product, sum, _): Results| (product.powi_scalar(2).sum() + sum.powi_scalar(2)) * 0.1;
    let (of_op, of_ops) = (operands(), operands());
    let results = op.call(of_op.clone()).unwrap();
    assert_eq!(results.2.clone().into_data(), of_op[0].clone().argmax(1).into_data());
    let [x, y] = of_ops.clone();
    let plain = (x.clone() * y.clone(), (x.clone() + y).sum(), x.argmax(1));
    let (found, expected) = (loss(results).backward(), loss(plain).backward());
    for (of_op, of_ops) in of_op.iter().zip(&of_ops) {
        close(of_op.grad(&found).unwrap().into_data(), &of_ops.grad(&expected).unwrap().into_data());
    }
}

#[test]
fn a_compiled_function_has_the_op() {
    let Some((_alone, tpu)) = device() else { return };
    let op = softmax();
    let inner = op.clone();
    let twice = compile(move |x: Matrix| inner.call(inner.call(x).unwrap()).unwrap());
    let x = values([6, 10], &Device::from(tpu));
    let expected = activation::softmax(activation::softmax(x.clone(), 1), 1).into_data();
    let before = tpu.metrics().compiles;
    for _ in 0..3 {
        close(twice.call(x.clone()).unwrap().into_data(), &expected);
    }
    assert_eq!(tpu.metrics().compiles - before, 1);
}

#[test]
fn errors_name_the_op_and_the_rule() {
    let Some((_alone, tpu)) = device() else { return };
    let device = Device::from(tpu);
    let refused = |error: TpuError, rule: &str| {
        let error = error.to_string();
        assert!(error.contains("custom op") && error.contains(rule), "{error}");
    };
    // No gradient.
    let x = values([2, 2], &device.clone().autodiff()).require_grad();
    refused(doubled().call(x).unwrap_err(), "requires a gradient");
    // Two devices.
    let sum = custom_op("sum", |_: &[Matrix; 2]| Ok(CustomForm::Plain), |[x, y]: [Matrix; 2]| x + y);
    let elsewhere = values([2, 2], &Device::from(TpuDevice::ndarray()));
    refused(sum.call([values([2, 2], &device), elsewhere]).unwrap_err(), "its operands are on");
    // A plain form that reads.
    let reads = custom_op(
        "reads",
        |_: &Matrix| Ok(CustomForm::Plain),
        |x: Matrix| {
            let _ = x.clone().try_into_data();
            x
        },
    );
    refused(reads.call(values([2, 2], &device)).unwrap_err(), "reads");
}

#[test]
#[should_panic(expected = "the gradient of an operand")]
fn a_gradient_of_other_dims_is_refused() {
    let device = Device::from(TpuDevice::ndarray()).autodiff();
    let op = custom_op("halved", |_: &Matrix| Ok(CustomForm::Plain), |x: Matrix| x * 0.5)
        .with_gradient(|_, _, dy| dy.sum_dim(0));
    let x = values([2, 3], &device).require_grad();
    op.call(x).unwrap().sum().backward();
}
