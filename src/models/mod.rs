//! The models that examples, tests and benches use: plain Burn code, generic over the backend.
//!
//! Owns: the models, their losses, their optimizers, and batches that are the same numbers on every backend.
//! May not know: `burn-tpu`.
//!
//! | model | layers | optimizer |
//! |---|---|---|
//! | [`Mlp`] | 784-512-256-10, ReLU | Adam |
//! | [`Cnn`] | conv 3x3 1-32 and 32-64, max pool 2, linear 9216-128-10, ReLU | Adam |
//! | [`ResNet`] | ResNet-20: 19 convolutions with batch norm, linear 64-10 | Adam |
//! | [`ResNet50`], [`Vit`], [`ConvNext`] | classifiers of photographs in the sizes of their papers | Adam, AdamW |
//! | [`Gpt`] | pre-norm transformer of any size, see [`GptConfig`] | AdamW, decay 0.01 |
//! | [`Bert`] | sentence encoder of any size, see [`BertConfig`] | none: its weights come from a file |

mod bert;
mod cnn;
mod gpt;
mod images;
mod mlp;
mod noise;
mod normed;
mod resnet;
mod tensor_parallel;
mod vision;

pub use bert::{Bert, BertConfig};
pub use cnn::Cnn;
pub use gpt::{Block, Gpt, GptConfig, Tokens};
pub use images::{CLASSES, Images, PIXELS, SIDE};
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use tensor_parallel::{TENSOR_PARALLEL_BIASES, tensor_parallel_weights};
pub use vision::{ConvNext, ConvNextConfig, Photos, ResNet50, ResNet50Config, Vit, VitConfig};

use burn::module::AutodiffModule;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::{Adam, AdamConfig, AdamW, AdamWConfig, GradientsParams, LearningRate, Optimizer};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;

/// A model that can be trained on batches of its own type.
pub trait Supervised<B: Backend>: Module<B> {
    /// The inputs and their targets.
    type Batch: Clone + Send;

    /// Returns the mean cross-entropy of a batch in nats, `[1]`, in f32 whatever the type of the weights.
    fn loss(&self, batch: Self::Batch) -> Tensor<B, 1>;
}

/// Runs one step of training: forward, backward, update. Returns the new model and the loss before the update, `[1]`.
///
/// On a lazy backend, the ops of the step have only been recorded when this returns. Wrap the optimizer
/// in `burn_tpu::TpuOptimizer`, which ends the step, or call `burn_tpu::mark_step`.
pub fn train_step<B, M, O>(model: M, optimizer: &mut O, rate: LearningRate, batch: M::Batch) -> (M, Tensor<B, 1>)
where
    B: AutodiffBackend,
    M: Supervised<B> + AutodiffModule<B>,
    O: Optimizer<M, B>,
{
    let loss = model.loss(batch);
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    (optimizer.step(rate, model, gradients), loss)
}

/// Returns the optimizer of [`Mlp`], [`Cnn`] and [`ResNet`], with Burn's defaults.
pub fn adam<B: AutodiffBackend, M: AutodiffModule<B>>() -> OptimizerAdaptor<Adam, M, B> {
    AdamConfig::new().init()
}

/// Returns the optimizer of [`Gpt`]: weight decay 0.01, otherwise Burn's defaults.
pub fn adamw<B: AutodiffBackend, M: AutodiffModule<B>>() -> OptimizerAdaptor<AdamW, M, B> {
    AdamWConfig::new().with_weight_decay(0.01).init()
}

/// Returns the mean cross-entropy of logits `[samples, classes]` in f32 and targets `[samples]`.
fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::Autodiff;
    use burn_flex::Flex;

    type Cpu = Autodiff<Flex>;

    /// Trains on one batch and returns the first and the last loss.
    fn train<M, O>(mut model: M, mut optimizer: O, steps: usize, rate: f64, batch: M::Batch) -> (f32, f32)
    where
        M: Supervised<Cpu> + AutodiffModule<Cpu>,
        O: Optimizer<M, Cpu>,
    {
        let mut losses = Vec::new();
        for _ in 0..steps {
            let (trained, loss) = train_step(model, &mut optimizer, rate, batch.clone());
            model = trained;
            losses.push(loss.into_scalar());
        }
        (losses[0], losses[steps - 1])
    }

    #[test]
    fn every_model_learns_a_batch() {
        let device = Default::default();
        Cpu::seed(&device, 1);
        let uniform = (CLASSES as f32).ln();
        let (first, last) = train(Mlp::new(&device), adam(), 10, 1e-3, Images::synthetic(16, 0, &device));
        assert!((first - uniform).abs() < 1.0 && last < 0.5 * first, "mlp: {first} to {last}");
        let (first, last) = train(Cnn::new(&device), adam(), 5, 1e-3, Images::synthetic(4, 0, &device));
        assert!((first - uniform).abs() < 1.0 && last < 0.7 * first, "cnn: {first} to {last}");
        let (first, last) = train(ResNet::new(&device), adam(), 5, 1e-2, Images::synthetic(8, 0, &device));
        assert!((first - uniform).abs() < 1.5 && last < 0.7 * first, "resnet: {first} to {last}");
        let config = small();
        let batch = Tokens::synthetic(&config, 0, &device);
        let (first, last) = train(config.init(&device), adamw(), 10, 1e-2, batch);
        assert!((first - 13f32.ln()).abs() < 1.0 && last < 0.7 * first, "gpt: {first} to {last}");
    }

    #[test]
    fn every_classifier_of_photographs_learns_a_batch() {
        let device = Default::default();
        Cpu::seed(&device, 1);
        let uniform = 4f32.ln();
        let photos = |batch| Photos::synthetic(batch, 32, 4, 0, &device);
        let resnet = ResNet50Config::new().with_depths(vec![1, 1]).with_width(4).with_classes(4);
        let (first, last) = train(resnet.init(&device), adam(), 8, 1e-2, photos(8));
        assert!((first - uniform).abs() < 1.5 && last < 0.7 * first, "resnet: {first} to {last}");
        let vit = VitConfig::new().with_layers(2).with_width(16).with_heads(2).with_feed_forward(32);
        let vit = vit.with_patch(8).with_side(32).with_classes(4);
        let (first, last) = train(vit.init(&device), adamw(), 10, 1e-2, photos(8));
        assert!((first - uniform).abs() < 1.0 && last < 0.7 * first, "vit: {first} to {last}");
        let convnext = ConvNextConfig::new().with_depths(vec![1, 1]).with_width(8).with_classes(4);
        let (first, last) = train(convnext.init(&device), adamw(), 10, 1e-2, photos(8));
        assert!((first - uniform).abs() < 1.0 && last < 0.7 * first, "convnext: {first} to {last}");
    }

    fn small() -> GptConfig {
        let config = GptConfig::new().with_layers(2).with_width(16).with_heads(2).with_feed_forward(32);
        config.with_sequence(8).with_batch(3).with_vocabulary(13)
    }

    #[test]
    fn a_gpt_has_as_many_parameters_as_its_shapes_say() {
        let config = GptConfig::new();
        let GptConfig { layers, width, feed_forward, sequence, vocabulary, .. } = config;
        let attention = 4 * (width * width + width);
        let feed_forward = 2 * width * feed_forward + width + feed_forward;
        let block = attention + feed_forward + 4 * width;
        let edges = (vocabulary + sequence) * width + 2 * width + width * vocabulary + vocabulary;
        let model: Gpt<Flex> = config.init(&Default::default());
        assert_eq!(model.num_params(), layers * block + edges);
    }

    /// A prediction depends only on its token and the tokens before it.
    #[test]
    fn a_gpt_does_not_look_ahead() {
        let device = Default::default();
        let model: Gpt<Flex> = small().init(&device);
        let logits = |last: i32| {
            let tokens = Tensor::from_data([[1, 2, 3, 4, 5, 6, 7, last]], &device);
            model.forward(tokens).reshape([8, 13])
        };
        let (a, b) = (logits(1), logits(2));
        let before = |logits: &Tensor<Flex, 2>| logits.clone().slice(0..7).into_data();
        assert_eq!(before(&a), before(&b));
        assert_ne!(a.into_data(), b.into_data());
    }

    #[test]
    fn batches_are_the_same_every_time_and_differ_from_step_to_step() {
        let device = Default::default();
        let images = |step| Images::<Flex>::synthetic(4, step, &device).images.into_data();
        assert_eq!(images(1), images(1));
        assert_ne!(images(1), images(2));
        let tokens = |step| Tokens::<Flex>::synthetic(&small(), step, &device);
        let batch = tokens(3);
        assert_eq!(batch.inputs.dims(), [3, 8]);
        let next = batch.inputs.into_data().iter::<i64>().collect::<Vec<_>>();
        let wanted = batch.targets.into_data().iter::<i64>().collect::<Vec<_>>();
        assert_eq!(next[1..8], wanted[..7], "the target is the next token");
        assert!(wanted.iter().all(|token| (0..13).contains(token)));
    }
}
