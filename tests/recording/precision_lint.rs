//! The lint for 16-bit floats: what loses precision is warned of once, with its line, and good code is not.

use crate::common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer, SgdConfig};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{DType, Distribution, Tensor, bf16};
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer, TpuOptions, autocast, mark_step};
use common::{alone, warnings};

type Narrow = Autodiff<Tpu<bf16>>;

/// Returns a device of this name, with all that development checks.
fn device(name: &str) -> Option<TpuDevice> {
    common::cpu_with(name, TpuOptions::development())
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: AutodiffBackend> Model<B> {
    fn new(device: &B::Device) -> Self {
        let model =
            Self { hidden: LinearConfig::new(64, 96).init(device), output: LinearConfig::new(96, 4).init(device) };
        model.num_params();
        model
    }

    /// The mean of squares, computed in this type.
    fn loss(&self, x: Tensor<B, 2>, dtype: DType) -> Tensor<B, 1> {
        self.output.forward(self.hidden.forward(x).tanh()).cast(dtype).powi_scalar(2).mean()
    }
}

fn batch<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    Tensor::random([16, 64], Distribution::Default, device)
}

/// Returns the warnings of some work and of the checks after it.
fn warned(device: &TpuDevice, work: impl FnOnce()) -> String {
    device.sync().expect("nothing from before");
    warnings(|| {
        work();
        device.sync().expect("finite numbers");
    })
}

/// Checks that a text has a warning once, at a line.
#[track_caller]
fn assert_once(text: &str, kind: &str, line: u32) {
    let found: Vec<&str> = text.lines().filter(|found| found.contains(kind)).collect();
    let place = format!("(tests/recording/precision_lint.rs:{line} ");
    assert!(found.len() == 1 && found[0].contains(&place), "not one {kind:?} at {place} in {text}");
}

#[test]
fn a_weight_without_a_master_and_a_loss_in_bf16_are_named() {
    let Some(device) = device("bf16") else { return };
    let _alone = alone();
    let (mut backward, mut step) = (0, 0);
    let text = warned(&device, || {
        let mut model = Model::<Narrow>::new(&device);
        let mut optimizer = SgdConfig::new().init();
        for _ in 0..4 {
            let loss = model.loss(batch(&device), DType::BF16);
            let gradients = loss.backward();
            backward = line!() - 1;
            let gradients = GradientsParams::from_grads(gradients, &model);
            model = optimizer.step(0.1, model, gradients);
            step = line!() - 1;
            mark_step(&device);
        }
    });
    assert_once(&text, "a loss in 16 bits: its type is bf16", backward);
    // All weights are updated at one line, so one of them is named.
    assert_once(&text, "a 16-bit weight without a master copy: bf16[", step);
    assert!(!text.contains("a long sum"), "{text}");
}

#[test]
fn masters_autocast_and_f32_losses_are_fine() {
    let (Some(narrow), Some(wide)) = (device("bf16"), device("f32")) else { return };
    let _alone = alone();
    let text = warned(&narrow, || {
        let mut model = Model::<Narrow>::new(&narrow);
        let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
        for _ in 0..4 {
            let gradients = model.loss(batch(&narrow), DType::F32).backward();
            model = optimizer.step(1e-3, model.clone(), GradientsParams::from_grads(gradients, &model));
        }
    });
    assert_eq!(text, "", "master weights");
    let text = warned(&wide, || {
        type Wide = Autodiff<Tpu<f32>>;
        let mut model = Model::<Wide>::new(&wide);
        let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
        for _ in 0..4 {
            let gradients = autocast(&model).loss(batch(&wide), DType::F32).backward();
            model = optimizer.step(1e-3, model.clone(), GradientsParams::from_grads(gradients, &model));
        }
    });
    assert_eq!(text, "", "autocast");
}

/// Half a last place of 1 in bf16 is 2^-8: adding less than that changes nothing.
#[test]
fn updates_that_are_lost_are_counted() {
    let Some(device) = device("bf16") else { return };
    let _alone = alone();
    type B = Tpu<bf16>;
    let mut line = 0;
    let mut run = |change: f32, steps: usize| {
        warned(&device, || {
            let mut average = Tensor::<B, 1>::ones([1000], &device);
            for _ in 0..steps {
                let change = Tensor::<B, 1>::full([1000], change, &device);
                average = average + change;
                line = line!() - 1;
                mark_step(&device);
            }
        })
    };
    assert_eq!(run(0.25, 4), "", "no update is lost");
    let text = run(1e-3, 4);
    let share =
        "an update that is lost to rounding: 100 % of the 1000 elements of bf16[1000] that change stay as they are";
    assert_once(&text, share, line);
}

#[test]
fn a_sum_of_many_terms_is_named() {
    let Some(device) = device("bf16") else { return };
    let _alone = alone();
    type B = Tpu<bf16>;
    let mut line = 0;
    let mut sum = |terms: usize| {
        warned(&device, || {
            let x = batch::<B>(&device);
            let mut sum = x.clone();
            for _ in 0..terms {
                sum = sum + x.clone();
                line = line!() - 1;
            }
            mark_step(&device);
        })
    };
    assert_eq!(sum(200), "");
    let text = sum(300);
    assert_once(&text, "a long sum in 16 bits: 300 terms are added one by one in bf16", line);
    let text = warned(&device, || drop(batch::<B>(&device).repeat_dim(0, 100).sum_dim(0).into_data()));
    assert_eq!(text, "", "a sum runs in f32 inside");
}
