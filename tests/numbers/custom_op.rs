//! Custom ops: StableHLO text on the CPU plugin beside its plain form, kernels compiled ahead of time, errors that name the
//! op.

use crate::common;

use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor, TensorData, Tolerance, activation};
use burn_tpu::fit::Fit;
use burn_tpu::kernels::{Element, kernels};
use burn_tpu::{
    CustomForm, CustomOp, CustomPartition, Generation, Mesh, Platform, Tpu, TpuDevice, TpuError, TpuOptions, compile,
    custom_op, program_keys,
};
use common::{cases, counted};
use proptest::prelude::*;

type B = Tpu<f32>;
type Matrix = Tensor<B, 2>;
type Vector = Tensor<B, 1>;

const EPSILON: f32 = 1e-5;

/// `x / sqrt(mean(x^2) + epsilon) * weight`, by rows.
fn rms_norm_text(rows: usize, columns: usize, epsilon: f32) -> String {
    format!(
        "func.func @rms_norm(%x: tensor<{rows}x{columns}xf32>, %w: tensor<{columns}xf32>) -> tensor<{rows}x{columns}xf32> {{
            %zero = stablehlo.constant dense<0.0> : tensor<f32>
            %n = stablehlo.constant dense<{columns}.0> : tensor<{rows}xf32>
            %e = stablehlo.constant dense<{epsilon:.12}> : tensor<{rows}xf32>
            %square = stablehlo.multiply %x, %x : tensor<{rows}x{columns}xf32>
            %sum = stablehlo.reduce(%square init: %zero) applies stablehlo.add across dimensions = [1]
                : (tensor<{rows}x{columns}xf32>, tensor<f32>) -> tensor<{rows}xf32>
            %mean = stablehlo.divide %sum, %n : tensor<{rows}xf32>
            %moved = stablehlo.add %mean, %e : tensor<{rows}xf32>
            %r = stablehlo.rsqrt %moved : tensor<{rows}xf32>
            %rs = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<{rows}xf32>) -> tensor<{rows}x{columns}xf32>
            %ws = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<{columns}xf32>) -> tensor<{rows}x{columns}xf32>
            %scaled = stablehlo.multiply %x, %rs : tensor<{rows}x{columns}xf32>
            %y = stablehlo.multiply %scaled, %ws : tensor<{rows}x{columns}xf32>
            return %y : tensor<{rows}x{columns}xf32>
        }}"
    )
}

fn plain_rms_norm((x, weight): (Matrix, Vector)) -> Matrix {
    let root = (x.clone().square().mean_dim(1) + EPSILON).sqrt();
    x / root * weight.unsqueeze()
}

fn rms_norm(epsilon: f32) -> CustomOp<(Matrix, Vector), Matrix> {
    let text = move |(x, _): &(Matrix, Vector)| {
        let [rows, columns] = x.dims();
        Ok(CustomForm::stablehlo(rms_norm_text(rows, columns, epsilon)))
    };
    custom_op("rms_norm", text, plain_rms_norm)
}

fn softmax() -> CustomOp<Matrix, Matrix> {
    let kernel = |x: &Matrix| {
        let [rows, columns] = x.dims();
        Ok(kernels::softmax(Element::F32, rows, columns)?.into())
    };
    custom_op("softmax", kernel, |x| activation::softmax(x, 1))
}

/// A product with weights of 8 bits, which are an integer tensor.
fn int8_matmul() -> CustomOp<(Matrix, Tensor<B, 2, Int>, Matrix), Matrix> {
    custom_op(
        "int8_matmul",
        |(x, weights, _): &(Matrix, Tensor<B, 2, Int>, Matrix)| {
            let ([rows, depth], [_, columns]) = (x.dims(), weights.dims());
            Ok(kernels::int8_matmul(Element::F32, rows, depth, columns)?.into())
        },
        |(x, weights, scales)| x.matmul(weights.float().cast(DType::F32)) * scales,
    )
}

/// Returns values from -2 to 2. They are host data, so that programs are those of the ops alone.
fn values<const D: usize>(dims: [usize; D], device: &TpuDevice) -> Tensor<B, D> {
    let value = |place: usize| (place * 37 % 101) as f32 / 25.0 - 2.0;
    let values: Vec<f32> = (0..dims.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

fn close(found: TensorData, expected: &TensorData) {
    found.assert_approx_eq::<f32>(expected, Tolerance::rel_abs(1e-5, 1e-5));
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn text_computes_on_the_cpu_plugin_what_its_plain_form_does(rows in 1usize..9, columns in 1usize..40) {
        if let Some(device) = common::cpu() {
            let (x, weight) = (values([rows, columns], &device), values([columns], &device));
            let found = rms_norm(EPSILON).call((x.clone(), weight.clone())).unwrap().try_into_data().unwrap();
            close(found, &plain_rms_norm((x, weight)).into_data());
        }
    }
}

#[test]
fn kernels_run_their_plain_forms_on_the_cpu_plugin_and_on_a_mesh() {
    let Some(device) = common::cpu() else { return };
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices([1, 0]));
    common::development().interpret_from(0).install(&mesh).unwrap();
    for device in [device, mesh] {
        let x = values([16, 24], &device);
        let y = softmax().call(x.clone()).unwrap().try_into_data().unwrap();
        close(y, &activation::softmax(x.clone(), 1).into_data());
        let y =
            rms_norm(EPSILON).call((x.clone(), values([24], &device).ones_like())).unwrap().try_into_data().unwrap();
        close(y, &plain_rms_norm((x.clone(), values([24], &device).ones_like())).into_data());
        let weights: Vec<i8> = (0..24 * 8).map(|place| (place * 37 % 255 - 127) as i8).collect();
        let weights = Tensor::<B, 2, Int>::from_data(TensorData::new(weights, [24, 8]), (&device, DType::I8));
        let scales = values([1, 8], &device) * 0.01;
        let y = int8_matmul().call((x.clone(), weights.clone(), scales.clone())).unwrap().try_into_data().unwrap();
        close(y, &(x.matmul(weights.float().cast(DType::F32)) * scales).into_data());
    }
}

/// Every device of a mesh runs the text, or the plain form of a kernel, for its rows.
#[test]
fn a_mesh_divides_an_op_as_its_partition_says() {
    let Some(_) = common::cpu() else { return };
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).axis("rest", 1).on(Platform::Cpu).devices([0, 1]));
    common::development().interpret_from(0).install(&mesh).unwrap();
    let of_rows = |axis: &'static str| {
        rms_norm(EPSILON).with_partition(move |_, _| {
            let rows = [Some(axis), None];
            Some(CustomPartition::new().operand(&rows).operand(&[None]).result(&rows))
        })
    };
    let (x, weight) = (values([6, 24], &mesh), values([24], &mesh));
    let expected = plain_rms_norm((x.clone(), weight.clone())).into_data();
    let call = |op: CustomOp<(Matrix, Vector), Matrix>, x: &Matrix| op.call((x.clone(), weight.clone()));
    close(call(of_rows("data"), &x).unwrap().into_data(), &expected);
    close(call(rms_norm(EPSILON).with_partition(|_, _| None), &x).unwrap().into_data(), &expected);
    // A mean of a part is none of the whole.
    let columns = softmax().with_partition(|_, _| {
        let columns = [None, Some("data")];
        Some(CustomPartition::new().operand(&columns).result(&columns))
    });
    let halves = [0..12, 12..24].map(|half| activation::softmax(x.clone().slice_dim(1, half), 1));
    close(columns.call(x.clone()).unwrap().into_data(), &Tensor::cat(halves.to_vec(), 1).into_data());
    let error = call(of_rows("data"), &values([5, 24], &mesh)).unwrap_err().to_string();
    assert!(error.contains("custom op `rms_norm`") && error.contains("2 equal parts"), "{error}");
    let error = call(of_rows("model"), &x).unwrap_err();
    assert!(matches!(error, TpuError::Mesh { .. }), "{error}");
}

#[test]
fn the_text_is_part_of_the_programs_identity() {
    // A device that no other test here uses, since compiles are counted.
    let Some(device) = common::bf16_device() else { return };
    let (x, weight) = (values([4, 16], &device), values([16], &device));
    let run = |op: &CustomOp<(Matrix, Vector), Matrix>| {
        op.call((x.clone(), weight.clone())).unwrap().try_into_data().unwrap()
    };
    let (one, other) = (rms_norm(EPSILON), rms_norm(0.5));
    let before = program_keys(&device);
    let keys = || program_keys(&device).into_iter().filter(|key| !before.contains(key)).count();
    let first = counted(&device, || run(&one));
    assert_eq!((first.1.compiles, keys()), (1, 1));
    // The same op, and another object with the same text.
    assert_eq!(counted(&device, || run(&one)).1.compiles, 0);
    assert_eq!(counted(&device, || run(&rms_norm(EPSILON))).1.compiles, 0);
    let second = counted(&device, || run(&other));
    assert_eq!((second.1.compiles, keys()), (1, 2));
    // What runs is the text, not the plain form.
    assert_ne!(first.0.to_vec::<f32>().unwrap(), second.0.to_vec::<f32>().unwrap());
}

#[test]
fn the_error_of_text_that_does_not_compile_names_the_op() {
    let Some(device) = common::device() else { return };
    let text = "func.func @f(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
        %y = stablehlo.no_such_op %x : tensor<2x2xf32>
        return %y : tensor<2x2xf32>
    }";
    let op = custom_op("broken", move |_: &Matrix| Ok(CustomForm::stablehlo(text)), |x: Matrix| x.exp());
    let y = op.call(values([2, 2], &device)).unwrap();
    let error = (y + 1.0).try_into_data().expect_err("the text is wrong").to_string();
    assert!(error.contains("custom op `broken`") && error.contains("no_such_op"), "{error}");
    // The device goes on.
    close(
        softmax().call(values([2, 2], &device).zeros_like()).unwrap().into_data(),
        &TensorData::from([[0.5f32; 2]; 2]),
    );
}

#[test]
fn gradients_and_compiled_functions_run_on_the_cpu_plugin() {
    let Some(device) = common::device() else { return };
    type A = Autodiff<B>;
    let op = softmax().with_gradient(|_, y, dy| {
        let product = y.clone() * dy;
        product.clone() - y * product.sum_dim(1)
    });
    let x = values([6, 10], &device);
    let gradient = |softmax: &dyn Fn(Tensor<A, 2>) -> Tensor<A, 2>| {
        let x = Tensor::<A, 2>::from_inner(x.clone()).require_grad();
        let gradients = softmax(x.clone()).powf_scalar(3.0).sum().backward();
        x.grad(&gradients).unwrap().into_data()
    };
    close(gradient(&|x| op.call(x).unwrap()), &gradient(&|x| activation::softmax(x, 1)));
    let inner = op.clone();
    let twice = compile(move |x: Matrix| inner.call(inner.call(x).unwrap()).unwrap());
    let expected = activation::softmax(activation::softmax(x.clone(), 1), 1).into_data();
    for _ in 0..2 {
        close(twice.call(x.clone()).unwrap().into_data(), &expected);
    }
}

/// Returns the text of the programs that a slice's device compiles.
fn compiled_text(slice: &str, options: TpuOptions, work: impl FnOnce(&TpuDevice)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let device = TpuDevice::topology(slice).unwrap();
    options.dump(folder.path()).install(&device).expect("not in use");
    work(&device);
    let files =
        std::fs::read_dir(folder.path()).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    files.collect()
}

/// Reads a value of a slice's device: it has none, but its program compiles.
fn compiles(x: Matrix) {
    let error = x.try_into_data().expect_err("there is no value").to_string();
    assert!(error.contains("executes nothing"), "{error}");
}

fn use_kernels(device: &TpuDevice) {
    let x = values([512, 256], device);
    let y = softmax().call(x).unwrap();
    let weights = Tensor::<B, 2, Int>::zeros([256, 128], (device, DType::I8));
    compiles(int8_matmul().call((y, weights, values([1, 128], device))).unwrap());
}

#[test]
fn kernels_compile_ahead_of_time() {
    if !common::has_libtpu() {
        return;
    }
    for slice in ["v5e:1x1", "v6e:1x1"] {
        let text = compiled_text(slice, TpuOptions::training(), use_kernels);
        assert_eq!(text.matches("tpu_custom_call").count(), 2, "{slice}");
        assert!(text.contains("loc(\"softmax\")") && text.contains("loc(\"int8_matmul\")"), "{slice}");
    }
    let text = compiled_text("v5e:2x2", TpuOptions::training().kernels(false), use_kernels);
    assert!(!text.contains("tpu_custom_call") && text.contains("@softmax_"));
    let text = compiled_text("v6e:2x2", TpuOptions::training(), |device| {
        let op = rms_norm(EPSILON);
        compiles(op.call((values([64, 128], device), values([128], device))).unwrap());
    });
    assert!(text.contains("func.func private @rms_norm_"));
}

/// Each chip's kernel is for its rows, and it is counted once.
#[test]
fn a_mesh_runs_a_kernel_for_the_parts_of_its_chips() {
    if !common::has_libtpu() {
        return;
    }
    let fit = Fit::new().unwrap().slices(["v5e:2x2".parse().unwrap()]).mesh(Mesh::new().axis("data", 4));
    let op = softmax().with_partition(|_, _| {
        let rows = [Some("data"), None];
        Some(CustomPartition::new().operand(&rows).result(&rows))
    });
    let report = fit.run(|device| values([8192, 1024], device), |x, _| op.call(x).unwrap()).unwrap();
    let [slice] = &report.slices[..] else { panic!("{report:?}") };
    assert!(slice.fits() && slice.collectives.is_empty(), "{slice:?}");
    let kernel = slice.costliest.iter().find(|entry| entry.instruction == "kernel softmax").expect("it is listed");
    assert_eq!((kernel.runs, kernel.shape.as_str()), (1, "f32[2048,1024]"));
}

/// The v4 has no products of 8 bits.
#[test]
fn the_error_of_a_kernel_that_libtpu_refuses_names_the_op() {
    use burn_tpu::kernels::{Axis, KernelBuilder, Window};
    if !common::has_libtpu() {
        return;
    }
    let kernel = |_: &Tensor<B, 2, Int>| {
        let mut k = KernelBuilder::new("squared", &[Axis::parallel(1)]);
        let x = k.operand(Window::whole(Element::I8, &[256, 256]));
        let y = k.result(Window::whole(Element::I32, &[256, 256]));
        let value = k.load(x)?;
        let product = k.matmul(value, value)?;
        k.store(y, product)?;
        Ok(k.build()?.into())
    };
    let plain = |x: Tensor<B, 2, Int>| {
        let x = x.cast(DType::I32);
        x.clone().matmul(x)
    };
    let op: CustomOp<Tensor<B, 2, Int>, Tensor<B, 2, Int>> = custom_op("my_square", kernel, plain);
    let device = TpuDevice::topology("v4:1x1x1").unwrap();
    let x = Tensor::<B, 2, Int>::zeros([256, 256], (&device, DType::I8));
    let error = op.call(x).unwrap().try_into_data().expect_err("v4 cannot").to_string();
    assert!(error.contains("custom op `my_square`") && error.contains("Unsupported matmul"), "{error}");
}

#[test]
fn a_fit_counts_a_kernel_by_its_own_estimate() {
    if !common::has_libtpu() {
        return;
    }
    let (rows, columns) = (8192, 1024);
    let run = |kernels: bool| {
        let fit = Fit::new().unwrap().slices([Generation::V5e.chip()]);
        let form = move |x: &Matrix| {
            let [rows, columns] = x.dims();
            Ok(if kernels { kernels::softmax(Element::F32, rows, columns)?.into() } else { CustomForm::Plain })
        };
        let op: CustomOp<Matrix, Matrix> = custom_op("my_softmax", form, |x| activation::softmax(x, 1));
        let build = |device: &TpuDevice| values([rows, columns], device);
        fit.run(build, |x, _| op.call(x).unwrap()).unwrap()
    };
    let (with, without) = (run(true), run(false));
    assert_eq!(with.step.transcendentals, without.step.transcendentals, "what is computed is the same");
    let [slice] = &with.slices[..] else { panic!("{with:?}") };
    assert!(slice.fits(), "{slice:?}");
    let kernel = slice.costliest.iter().find(|entry| entry.op == "my_softmax").expect("the kernel is listed");
    assert_eq!((kernel.instruction.as_str(), kernel.runs), ("kernel my_softmax", 1));
    // Two copies of the matrix at the peak bandwidth and 1.5 GHz.
    let bound = (2 * 4 * rows * columns) as f64 / 819e9 * 1.5e9;
    assert!((kernel.cycles as f64 / bound - 1.0).abs() < 0.01, "{} {bound}", kernel.cycles);
    assert!(slice.speed.unwrap().estimated_cycles.unwrap() >= kernel.cycles);
    assert!(without.slices[0].costliest.iter().all(|entry| entry.op != "my_softmax"));
}
