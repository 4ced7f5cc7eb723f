//! A model whose blocks are a loop trains as one whose blocks are a `Vec`: with dropout, on one device and on a mesh, and
//! from a checkpoint of the other form. State of the blocks stays split.

use crate::common;
use crate::looped::LoopedGpt;
use crate::shapes::sharding;
use crate::training::devices;

use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::LinearConfig;
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, Tolerance};
use burn_tpu::{
    CompiledStep, DeviceAdamW, Fsdp, Keep, Layers, LayersBackend, Mesh, Patterns, PlacementRule, Replicate, Tpu,
    TpuDevice, compile_step, place, shard,
};
use burn_tpu_train::{Checkpoint, Checkpointer};
use burn_tpu_workspace::models::{Block, Gpt, GptConfig, Supervised, Tokens, tensor_parallel_weights};
use std::ops::Range;
use std::path::Path;

type I = Tpu<f32>;
type B = Autodiff<I>;

/// The steps of a run, which saves a checkpoint in the middle.
const STEPS: usize = 50;
const MIDDLE: usize = STEPS / 2;

/// The model of [`LoopedGpt`], whose blocks run one after another.
#[derive(Module, Debug)]
struct Unrolled<B: Backend> {
    ends: Gpt<B>,
    blocks: Vec<Block<B>>,
}

impl<B: LayersBackend> Unrolled<B> {
    /// Draws the weights that [`LoopedGpt::init`] draws.
    fn init(config: &GptConfig, device: &B::Device) -> Self {
        let blocks = Layers::init(config.layers, |_| config.block(device)).unwrap().into_blocks();
        Self { ends: config.clone().with_layers(0).init(device), blocks }
    }
}

impl<B: Backend> Supervised<B> for Unrolled<B> {
    type Batch = Tokens<B>;

    fn loss(&self, batch: Tokens<B>) -> Tensor<B, 1> {
        self.ends.loss_around(batch, |x, mask| self.blocks.iter().fold(x, |x, block| block.forward(x, mask.clone())))
    }
}

/// A device with the rule that places a model on it.
struct Place<'a> {
    device: TpuDevice,
    rule: &'a dyn PlacementRule,
}

type Step<M> = CompiledStep<B, M, Tokens<I>, Tensor<I, 1>>;

impl Place<'_> {
    fn step<M>(&self, model: impl FnOnce(&TpuDevice) -> M) -> Step<M>
    where
        M: Supervised<B, Batch = Tokens<B>> + AutodiffModule<B> + 'static,
    {
        B::seed(&self.device, 7);
        let model = place(model(&self.device), &self.rule).unwrap();
        let optimizer = DeviceAdamW::new().with_weight_decay(0.1).with_decay_of(|_, dims| dims.len() > 1);
        compile_step(model, optimizer, |model: &M, batch: Tokens<I>| {
            let loss = model.loss(AutodiffModule::<B>::from_inner(batch));
            (loss.clone(), loss.inner())
        })
    }

    fn losses<M>(&self, steps: Range<usize>, training: &mut Step<M>) -> Vec<f32>
    where
        M: AutodiffModule<B> + 'static,
    {
        let step = |step| training.run(1e-3, Tokens::synthetic(&config(), step, &self.device)).unwrap();
        let losses: Vec<_> = steps.map(step).collect();
        losses.into_iter().map(|loss| loss.into_scalar()).collect()
    }

    /// Returns all losses of a run that saves a checkpoint in the middle.
    fn train<M>(&self, training: &mut Step<M>, folder: &Path) -> Vec<f32>
    where
        M: AutodiffModule<B> + 'static,
    {
        B::seed(&self.device, 11);
        let mut losses = self.losses(0..MIDDLE, training);
        let mut checkpoints = Checkpointer::open(folder).unwrap();
        let save = Checkpoint::new(MIDDLE as u64).model("model", &training.model());
        checkpoints.save(save.compiled_step("state", training).random(&self.device)).unwrap();
        checkpoints.wait().unwrap();
        losses.extend(self.losses(MIDDLE..STEPS, training));
        losses
    }

    /// Returns the losses of a run that goes on from a checkpoint.
    fn resume<M>(&self, training: &mut Step<M>, folder: &Path) -> Vec<f32>
    where
        M: AutodiffModule<B> + 'static,
    {
        let saved = Checkpointer::open(folder).unwrap().restore().unwrap().unwrap();
        saved.compiled_step("model", "state", training).unwrap();
        saved.random(&self.device).unwrap();
        self.losses(MIDDLE..STEPS, training)
    }

    /// Trains both forms, resumes each from the other's checkpoint, and returns the losses of the `Vec`.
    fn check(&self, name: &str) -> Vec<f32> {
        let config = config();
        let mut unrolled = self.step(|device| Unrolled::init(&config, device));
        let mut looped = self.step(|device| LoopedGpt::init(&config, Keep::Nothing, device));
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [expected, found] =
            [self.train(&mut unrolled, folders[0].path()), self.train(&mut looped, folders[1].path())];
        assert!(expected[STEPS - 1] < 0.9 * expected[0], "{name}: {expected:?}");
        same(&format!("{name}, a loop"), &found, &expected);
        // Both are at the last step now, so a checkpoint that is not read is another loss.
        let [found, again] =
            [self.resume(&mut looped, folders[0].path()), self.resume(&mut unrolled, folders[1].path())];
        same(&format!("{name}, a loop after a Vec"), &found, &expected[MIDDLE..]);
        same(&format!("{name}, a Vec after a loop"), &again, &expected[MIDDLE..]);
        expected
    }
}

/// Checks that two runs have the same losses but for rounding: each differs by at most 1e-6 of itself.
fn same(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = (found - expected).abs() / expected.abs();
        assert!(difference <= 1e-6, "{name}, loss {step}: {found} instead of {expected}, {difference:e}");
    }
}

fn config() -> GptConfig {
    let config = GptConfig::new().with_layers(2).with_width(16).with_heads(2).with_feed_forward(32).with_sequence(8);
    config.with_vocabulary(24).with_batch(8).with_dropout(0.1)
}

#[test]
fn a_loop_has_the_losses_of_a_vec_and_goes_on_from_its_checkpoint() {
    let mesh = Mesh::new().axis("data", 2).axis("fsdp", 2).axis("tensor", 2);
    let Some((one, [mesh])) = devices(4, [mesh]) else { return };
    let _alone = common::alone();
    let expected = Place { device: one, rule: &Replicate }.check("one device");
    let split = tensor_parallel_weights("tensor", Some("fsdp"))
        .into_iter()
        .fold(Patterns::new(), |rule, (path, dims)| rule.add(path, dims));
    let rule = split.otherwise(Fsdp { axis: "fsdp", min_bytes: 0 });
    let found = Place { device: mesh, rule: &rule }.check("mesh");
    same("mesh and one device", &found, &expected);
}

/// A cache that is split over the batch stays split, and has the values of one device.
#[test]
fn the_state_of_layers_stays_where_it_is() {
    let Some((one, [mesh])) = devices(4, [Mesh::new().axis("data", 8)]) else { return };
    let _alone = common::alone();
    let run = |device: &TpuDevice| {
        let weights = Tensor::<I, 2>::from_data([[0.5, -0.25], [0.125, 1.0]], device);
        let mut linear = LinearConfig::new(2, 2).with_bias(false).init::<I>(device);
        linear.weight = Param::from_tensor(weights);
        let layers = Layers::new(vec![linear; 3]).unwrap();
        let mut x = Tensor::<I, 3>::from_data([[[1.0, 2.0]]], device).repeat_dim(0, 8);
        let mut cache = Tensor::<I, 4>::zeros([3, 8, 4, 2], device);
        if *device == mesh {
            cache = shard(cache, [None, Some("data"), None, None]);
        }
        device.mark_step();
        let before = sharding(&cache);
        for position in 0..3 {
            let written = layers.forward_with_state(x, cache, |layer, x, cache: Tensor<I, 3>| {
                let cache = cache.slice_assign([0..8, position..position + 1], x.clone());
                (layer.forward(x) + cache.clone().mean_dim(1), cache)
            });
            (x, cache) = written.unwrap();
            device.mark_step();
            assert_eq!(sharding(&cache), before);
        }
        (x.into_data(), cache.into_data())
    };
    let (found, expected) = (run(&mesh), run(&one));
    found.0.assert_approx_eq::<f32>(&expected.0, Tolerance::absolute(1e-5));
    found.1.assert_approx_eq::<f32>(&expected.1, Tolerance::absolute(1e-5));
}
