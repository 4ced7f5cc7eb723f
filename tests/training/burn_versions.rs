//! Checkpoints of other versions of Burn. The model and its batches are those of `slots/burn-0.22/train/tests`.

use crate::common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::{FloatDType, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
use burn_tpu_train::{Checkpoint, Checkpointer, Restored};
use common::alone;
use std::path::Path;

type B = Autodiff<Tpu>;

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    norm: BatchNorm<B>,
    output: Linear<B>,
}

impl Model<B> {
    fn new(device: &TpuDevice) -> Self {
        Self {
            hidden: LinearConfig::new(6, 5).init(device),
            norm: BatchNormConfig::new(5).init(device),
            output: LinearConfig::new(5, 2).init(device),
        }
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let hidden = self.norm.forward(self.hidden.forward(x.clone()));
        (self.output.forward(hidden) - x.slice([0..8, 0..2])).cast(FloatDType::F32).powi_scalar(2).mean()
    }
}

fn adamw() -> impl Optimizer<Model<B>, B> {
    TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.1).init())
}

/// Trains for some steps and returns their losses.
fn train(
    model: &mut Model<B>,
    optimizer: &mut impl Optimizer<Model<B>, B>,
    steps: std::ops::Range<usize>,
    device: &TpuDevice,
) -> Vec<f32> {
    let losses = steps.map(|step| {
        let values: Vec<f32> = (0..48).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.2 - 1.0).collect();
        let loss = model.loss(Tensor::from_data(TensorData::new(values, [8, 6]), device));
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        *model = optimizer.step(0.05, model.clone(), gradients);
        loss.into_data().iter::<f32>().next().expect("a loss")
    });
    losses.collect()
}

/// The checkpoint was written on Burn 0.22, and has the losses of the next steps there.
#[test]
fn a_checkpoint_of_burn_0_22_goes_on_here() {
    let Some(device) = common::bf16_device() else { return };
    let _alone = alone();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/training/of-burn-0.22/step-00000003");
    let restored = Restored::read(path).expect("it is intact");
    let mut model = restored.model("model", Model::new(&device)).expect("it is this model");
    let mut optimizer = restored.optimizer("optimizer", adamw(), &model).expect("it is this optimizer");
    let expected: Vec<f32> = restored.value("next").expect("the losses");
    let losses = train(&mut model, &mut optimizer, 3..6, &device);
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-2 * b.abs();
    assert!(losses.len() == 3 && losses.iter().zip(&expected).all(near), "{losses:?} {expected:?}");
}

/// Writes what the test of Burn 0.22 reads.
#[test]
#[ignore = "it writes a file of another test: run it when the format changes"]
fn write_a_checkpoint_for_burn_0_22() {
    let Some(device) = common::bf16_device() else { return };
    let _alone = alone();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("slots/burn-0.22/train/tests/of-burn-0.21");
    let (mut model, mut optimizer) = (Model::new(&device), adamw());
    train(&mut model, &mut optimizer, 0..3, &device);
    let mut checkpoints = Checkpointer::open(folder).expect("a folder");
    let checkpoint = || Checkpoint::new(3).model("model", &model).optimizer("optimizer", &optimizer, &model);
    checkpoints.save(checkpoint()).expect("it is saved");
    checkpoints.wait().expect("it is saved");
    // The losses of the next steps, of a run that goes on from the checkpoint.
    let restored = checkpoints.restore().expect("it is intact").expect("it is there");
    let mut again = restored.model("model", Model::new(&device)).expect("it is this model");
    let mut of_it = restored.optimizer("optimizer", adamw(), &again).expect("it is this optimizer");
    let next = train(&mut again, &mut of_it, 3..6, &device);
    checkpoints.save(checkpoint().value("next", &next)).expect("it is saved");
    checkpoints.wait().expect("it is saved");
}
