//! RMSNorm, `x / sqrt(mean(x^2) + epsilon) * weight` by rows, as two custom ops: one is a kernel on TPUs, the other is
//! StableHLO on every platform. They share the plain form and the gradient.

use burn::tensor::Tensor;
use burn_tpu::kernels::{Axis, Element, Index, Kernel, KernelBuilder, KernelError, Reduction, Unary, Window};
use burn_tpu::{CustomForm, CustomOp, CustomOpBackend, Result, Tpu, custom_op};
use std::sync::LazyLock;

pub const EPSILON: f32 = 1e-5;

type Matrix = Tensor<Tpu<f32>, 2>;

/// `x [rows, columns]` and `weight [1, columns]`.
type Operands = (Matrix, Matrix);

/// An op is made once, so that what it records for some shapes is found again.
static AS_KERNEL: LazyLock<CustomOp<Operands, Matrix>> = LazyLock::new(|| {
    let form = |(x, _): &Operands| {
        let [rows, columns] = x.dims();
        Ok(kernel(rows, columns)?.into())
    };
    custom_op("rms_norm", form, plain).with_gradient(gradient)
});

static AS_STABLEHLO: LazyLock<CustomOp<Operands, Matrix>> = LazyLock::new(|| {
    let form = |(x, _): &Operands| {
        let [rows, columns] = x.dims();
        Ok(CustomForm::stablehlo(stablehlo(rows, columns)))
    };
    custom_op("rms_norm_stablehlo", form, plain).with_gradient(gradient)
});

/// What a TPU is given.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Kernel,
    StableHlo,
}

/// Returns the RMSNorm of f32 rows, on `Tpu` or on its autodiff.
pub fn rms_norm<B: CustomOpBackend>(x: Tensor<B, 2>, weight: Tensor<B, 1>, form: Form) -> Result<Tensor<B, 2>> {
    let op = match form {
        Form::Kernel => &AS_KERNEL,
        Form::StableHlo => &AS_STABLEHLO,
    };
    op.call((x, weight.unsqueeze()))
}

/// With Burn's ops: what other platforms run, and what both forms must compute.
fn plain((x, weight): Operands) -> Matrix {
    let root = (x.clone().square().mean_dim(1) + EPSILON).sqrt();
    x / root * weight
}

/// With `r = 1 / sqrt(mean(x^2) + epsilon)` and `g = dy * weight`: `dx = r g - x r^3 mean(g x)`, and the weight's gradient is
/// the sum of `dy x r` over the rows.
fn gradient((x, weight): Operands, _y: Matrix, dy: Matrix) -> Operands {
    let r = (x.clone().square().mean_dim(1) + EPSILON).sqrt().recip();
    let scaled = dy.clone() * weight;
    let along = (scaled.clone() * x.clone()).mean_dim(1);
    let dx = scaled * r.clone() - x.clone() * r.clone().powi_scalar(3) * along;
    (dx, (dy * x * r).sum_dim(0))
}

/// Blocks of rows go through vector memory: a row is read once and written once.
fn kernel(rows: usize, columns: usize) -> Result<Kernel, KernelError> {
    // A block is a multiple of 8 rows, or all of them.
    let block = [256, 64, 8].into_iter().find(|block| rows.is_multiple_of(*block)).unwrap_or(rows);
    let mut k = KernelBuilder::new("rms_norm", &[Axis::parallel(rows / block)]);
    let window = || Window::whole(Element::F32, &[rows, columns]).block(&[block, columns], [Index::grid(0), 0.into()]);
    let (x, weight) = (k.operand(window()), k.operand(Window::whole(Element::F32, &[1, columns])));
    let y = k.result(window());

    let (x, weight) = (k.load(x)?, k.load(weight)?);
    let square = k.mul(x, x)?;
    let sum = k.reduce(Reduction::Sum, square, 1)?; // [block, 1]
    let (share, epsilon, power) = (k.float(1.0 / columns as f32), k.float(EPSILON), k.float(-0.5));
    let mean = k.mul(sum, share)?;
    let mean = k.add(mean, epsilon)?;
    // 1 / sqrt(mean), with the functions that kernels have.
    let log = k.unary(Unary::Log, mean)?;
    let log = k.mul(log, power)?;
    let r = k.exp(log)?;
    let scaled = k.mul(x, r)?;
    let scaled = k.mul(scaled, weight)?;
    k.store(y, scaled)?;
    k.build()
}

fn stablehlo(rows: usize, columns: usize) -> String {
    let (x, w, r) =
        (format!("tensor<{rows}x{columns}xf32>"), format!("tensor<1x{columns}xf32>"), format!("tensor<{rows}xf32>"));
    format!(
        "func.func @rms_norm(%x: {x}, %w: {w}) -> {x} {{
            %zero = stablehlo.constant dense<0.0> : tensor<f32>
            %share = stablehlo.constant dense<{:.12}> : {r}
            %epsilon = stablehlo.constant dense<{EPSILON:.12}> : {r}
            %square = stablehlo.multiply %x, %x : {x}
            %sum = stablehlo.reduce(%square init: %zero) applies stablehlo.add across dimensions = [1]
                : ({x}, tensor<f32>) -> {r}
            %mean = stablehlo.multiply %sum, %share : {r}
            %moved = stablehlo.add %mean, %epsilon : {r}
            %r = stablehlo.rsqrt %moved : {r}
            %rs = stablehlo.broadcast_in_dim %r, dims = [0] : ({r}) -> {x}
            %ws = stablehlo.broadcast_in_dim %w, dims = [0, 1] : ({w}) -> {x}
            %scaled = stablehlo.multiply %x, %rs : {x}
            %y = stablehlo.multiply %scaled, %ws : {x}
            return %y : {x}
        }}",
        1.0 / columns as f32,
    )
}

/// Runs the kernel on the host and returns its largest difference from the definition.
pub fn kernel_error(rows: usize, columns: usize) -> Result<f64, KernelError> {
    use burn_tpu::kernels::{Array, interpret};
    let value = |place: usize| (place * 37 % 101) as f32 / 50.0 - 1.0;
    let x = Array::floats(Element::F32, &[rows, columns], (0..rows * columns).map(value));
    let weight = Array::floats(Element::F32, &[1, columns], (0..columns).map(|place| value(place + 3)));
    let y = interpret(&kernel(rows, columns)?, &[x.clone(), weight.clone()])?.remove(0);
    let rows = x.as_floats().chunks(columns).zip(y.as_floats().chunks(columns));
    Ok(rows.fold(0.0, |worst, (x, y)| {
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / columns as f64;
        let r = (mean + f64::from(EPSILON)).sqrt().recip();
        let values = x.iter().zip(weight.as_floats()).map(|(&x, &weight)| f64::from(x) * r * f64::from(weight));
        values.zip(y).fold(worst, |worst: f64, (expected, &y)| worst.max((expected - f64::from(y)).abs()))
    }))
}
