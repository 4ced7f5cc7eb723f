//! A custom op in a crate outside of burn-tpu: values and gradients beside those of Burn's own RMSNorm, on the best available
//! platform, and the kernel compiled for a TPU v5e that is not attached.
//!
//! `cargo run --manifest-path examples/custom-op/Cargo.toml`
#![allow(clippy::print_stdout, reason = "an example talks to its user")]

mod rms_norm;

use burn::backend::Autodiff;
use burn::nn::RmsNormConfig;
use burn::tensor::{Distribution, Tensor, Tolerance};
use burn_tpu::fit::{Fit, Verdict};
use burn_tpu::{Generation, Tpu, TpuDevice, TpuError, metrics};
use rms_norm::{EPSILON, Form, rms_norm};

type A = Autodiff<Tpu<f32>>;

const ROWS: usize = 512;
const COLUMNS: usize = 384;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = TpuDevice::default();
    for form in [Form::Kernel, Form::StableHlo] {
        compare(form, &device)?;
        println!("{form:?}: values and gradients are those of burn::nn::RmsNorm on {device}");
    }
    assert_eq!(metrics(&device).host_fallbacks, 0);
    let error = rms_norm::kernel_error(64, COLUMNS)?;
    assert!(error < 1e-5, "{error}");
    println!("the kernel, interpreted: {error:.1e} from the definition");
    compile_for_v5e()
}

/// Compares with Burn's RMSNorm.
fn compare(form: Form, device: &TpuDevice) -> Result<(), TpuError> {
    let random = |dims: [usize; 2]| Tensor::<A, 2>::random(dims, Distribution::Uniform(-2.0, 2.0), device);
    let norm = RmsNormConfig::new(COLUMNS).with_epsilon(f64::from(EPSILON)).init::<A>(device);
    let (x, direction) = (random([ROWS, COLUMNS]).detach(), random([ROWS, COLUMNS]));
    let [own_x, burn_x] = [x.clone().require_grad(), x.require_grad()];

    let own = rms_norm(own_x.clone(), norm.gamma.val(), form)?;
    let own_gradients = (own.clone() * direction.clone()).sum().backward();
    let burn = norm.forward(burn_x.clone());
    let burn_gradients = (burn.clone() * direction).sum().backward();

    let close = |own: burn::tensor::TensorData, burn: burn::tensor::TensorData| {
        own.assert_approx_eq::<f32>(&burn, Tolerance::rel_abs(1e-4, 1e-4));
    };
    close(own.into_data(), burn.into_data());
    let of_x = [own_x.grad(&own_gradients), burn_x.grad(&burn_gradients)];
    let weight = norm.gamma.val();
    let of_weight = [weight.grad(&own_gradients), weight.grad(&burn_gradients)];
    let [Some(own_x), Some(burn_x)] = of_x else { panic!("x has gradients") };
    let [Some(own_weight), Some(burn_weight)] = of_weight else { panic!("the weight has gradients") };
    close(own_x.into_data(), burn_x.into_data());
    close(own_weight.into_data(), burn_weight.into_data());
    Ok(())
}

/// Compiles forward and backward for a v5e, and prints what the kernel costs there.
fn compile_for_v5e() -> Result<(), Box<dyn std::error::Error>> {
    let build = |device: &TpuDevice| {
        let x = Tensor::<A, 2>::random([8192, 1024], Distribution::Default, device);
        (x, Tensor::<A, 1>::ones([1024], device), None)
    };
    let step = |(x, weight, _): (Tensor<A, 2>, Tensor<A, 1>, Option<_>), _: &TpuDevice| {
        let (own_x, own_weight) = (x.clone().require_grad(), weight.clone().require_grad());
        let y = rms_norm(own_x.clone(), own_weight.clone(), Form::Kernel).expect("its forms agree");
        let gradients = y.clone().square().sum().backward();
        (x, weight, Some((y, own_x.grad(&gradients), own_weight.grad(&gradients))))
    };
    let report = Fit::new()?.slices([Generation::V5e.chip()]).run(build, step)?;
    let slice = &report.slices[0];
    match &slice.verdict {
        Verdict::Fits => {}
        // There is no libtpu here, which a machine of developers need not have.
        Verdict::Failed { message } if std::env::var_os("BURN_TPU_REQUIRE_LIBTPU").is_none() => {
            println!("not compiled for v5e: {message}");
            return Ok(());
        }
        other => panic!("{other:?}"),
    }
    let kernel = slice.costliest.iter().find(|entry| entry.op == "rms_norm").expect("the step runs the kernel");
    println!("v5e: {} of {} takes {} cycles at the roofline", kernel.instruction, kernel.shape, kernel.cycles);
    Ok(())
}
