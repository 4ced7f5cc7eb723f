//! Devices that compile and do not run: a whole training step for slices that are not attached, and typed errors for reads
//! and for slices that libtpu does not know. The process survives each error.

use crate::common;

use burn::backend::Autodiff;
use burn::nn::LinearConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions};
use common::{alone, counted};

type F32 = Autodiff<Tpu<f32>>;

/// Returns the slice's device; `None` if libtpu is missing and `BURN_TPU_REQUIRE_LIBTPU` does not forbid skipping.
fn slice(name: &str) -> Option<TpuDevice> {
    common::has_libtpu().then(|| TpuDevice::topology(name).expect("a slice's name"))
}

#[test]
fn a_training_step_compiles_for_a_slice_and_returns_shapes() {
    let Some(device) = slice("v5e:2x2") else { return };
    let _alone = alone();
    let mut model = LinearConfig::new(24, 8).init::<F32>(&device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
    let mut step = |model| {
        let x = Tensor::<F32, 2>::random([16, 24], Distribution::Default, &device);
        let loss = burn::nn::Linear::forward(&model, x).powf_scalar(2.0).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        (optimizer.step(1e-3, model, gradients), loss)
    };
    let mut loss = None;
    let mut compiles = Vec::new();
    for _ in 0..4 {
        let ((next, last), work) = counted(&device, || step(model.clone()));
        (model, loss) = (next, Some(last));
        compiles.push(work.compiles);
    }
    F32::sync(&device).expect("nothing failed");
    assert_eq!(compiles.last(), Some(&0), "later steps are found in the cache: {compiles:?}");
    assert_eq!(model.weight.dims(), [24, 8]);
    let error = loss.unwrap().try_into_data().expect_err("there is no value").to_string();
    assert!(error.contains("v5e:2x2 executes nothing") && error.contains("f32[1]"), "{error}");
}

#[test]
fn the_sizes_of_a_bucket_are_one_program_for_a_slice() {
    let Some(device) = slice("v6e:2x2") else { return };
    let _alone = alone();
    let weight = Tensor::<Tpu<f32>, 2>::ones([24, 8], &device);
    device.mark_step();
    let step = |rows: usize| {
        let x = Tensor::<Tpu<f32>, 2>::from_data(TensorData::zeros::<f32, _>([rows, 24]), &device);
        let mean = x.matmul(weight.clone()).tanh().mean();
        device.mark_step();
        drop(mean);
    };
    let compiles = [9, 12, 14, 11, 16].map(|rows| counted(&device, || step(rows)).1.compiles);
    assert_eq!(compiles, [1, 1, 1, 0, 0]);
}

#[test]
fn an_upload_keeps_only_its_shape_and_cannot_be_read_back() {
    let Some(device) = slice("v6e:1x1") else { return };
    let x = Tensor::<Tpu<f32>, 1>::from_data([1.0, 2.0, 3.0], &device);
    let error = x.clone().try_into_data().expect_err("there is no value").to_string();
    assert!(error.contains("v6e:1x1") && error.contains("f32[3]"), "{error}");
    let moved = x.to_device(&TpuDevice::ndarray());
    assert!(moved.try_into_data().expect_err("nor elsewhere").to_string().contains("executes nothing"));
}

/// A slice or an option that libtpu would abort on or does not know is an error with the reason, and the next device works.
#[test]
fn unknown_slices_and_options_are_errors_and_the_process_goes_on() {
    for name in ["", "v5e", "v8:2x2", "v5e:0x0", "v5e:99999x99999", "v5e:2x2x2"] {
        let error = TpuDevice::topology(name).expect_err(name);
        assert!(matches!(error, burn_tpu::TpuError::Topology { .. }), "{error}");
    }
    let Some(unknown) = slice("v5e:3x3") else { return };
    let error = Tpu::<f32>::sync(&unknown).expect_err("libtpu has no such slice").to_string();
    assert!(error.contains("v5e:3x3"), "{error}");

    let device = slice("v5e:1x1").unwrap();
    TpuOptions::default().compiler_flag("xla_tpu_no_such_option", "true").install(&device).expect("not in use");
    let sum = Tensor::<Tpu<f32>, 1>::ones([4], &device) + 1.0;
    let error = sum.try_into_data().expect_err("libtpu does not know the option").to_string();
    assert!(error.contains("xla_tpu_no_such_option"), "{error}");

    let device = slice("v5e:2x4").unwrap();
    let sum = Tensor::<Tpu<f32>, 1>::ones([4], &device) + 1.0;
    let error = sum.try_into_data().expect_err("there is no value").to_string();
    assert!(error.contains("executes nothing"), "{error}");
}
