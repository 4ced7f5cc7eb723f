//! Programs whose number of rows varies: boxes of a detector, a replay buffer that fills, the last batch of an epoch.

use crate::learner;
use crate::numbers::Numbers;
use crate::programs::Options;
use crate::{SEED, weights};
use burn::data::dataloader::batcher::Batcher;
use burn::module::AutodiffModule;
use burn::nn::loss::{CrossEntropyLossConfig, MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn::tensor::backend::AutodiffBackend;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use burn_flex::{Flex, FlexDevice};

/// Boxes that overlap more than this are one.
const OVERLAP: f64 = 0.5;
/// The boxes that are kept of an image.
const KEPT: usize = 10;
/// Passes after which the suppression of boxes by suppressed boxes has settled.
const PASSES: usize = 6;

/// Suppresses overlapping boxes of so many images, whose number of boxes varies, and returns the scores and places of the
/// best that are left.
pub fn detect<B: Backend>(images: usize, device: &B::Device) -> Vec<f64> {
    let mut numbers = Numbers::new(SEED);
    let mut kept = Vec::new();
    for _ in 0..images {
        let count = numbers.within(KEPT + 2..300);
        let corners: Vec<f32> = (0..count)
            .flat_map(|_| {
                let [x, y] = [numbers.unit() * 50.0, numbers.unit() * 50.0];
                [x, y, x + 5.0 + 15.0 * numbers.unit(), y + 5.0 + 15.0 * numbers.unit()]
            })
            .collect();
        let scores: Vec<f32> = (0..count).map(|_| numbers.unit()).collect();
        let boxes = Tensor::<B, 2>::from_data(TensorData::new(corners, [count, 4]), device);
        let scores = Tensor::<B, 1>::from_data(TensorData::new(scores, [count]), device);
        let (best, places) = suppress(boxes, scores);
        kept.extend(best.into_data().iter::<f64>());
        kept.extend(places.into_data().iter::<f64>());
    }
    kept
}

/// Returns the scores and the places, in descending order of scores, of the best boxes that no better one overlaps.
fn suppress<B: Backend>(boxes: Tensor<B, 2>, scores: Tensor<B, 1>) -> (Tensor<B, 1>, Tensor<B, 1, Int>) {
    let [count, _] = boxes.dims();
    let (scores, order) = scores.sort_descending_with_indices(0);
    let boxes = boxes.select(0, order);
    let corner = |i: usize| boxes.clone().slice([0..count, i..i + 1]);
    let [left, top, right, bottom] = [corner(0), corner(1), corner(2), corner(3)];
    let areas = (right.clone() - left.clone()) * (bottom.clone() - top.clone());
    let shared = |low: Tensor<B, 2>, high: Tensor<B, 2>| {
        let (low, high) = (low.clone().max_pair(low.transpose()), high.clone().min_pair(high.transpose()));
        (high - low).clamp_min(0.0)
    };
    let shared = shared(left, right) * shared(top, bottom);
    let union = areas.clone() + areas.transpose() - shared.clone();
    // Row i, column j: box j, which has the better score, overlaps box i.
    let overlaps = (shared / union).greater_elem(OVERLAP).float().tril(-1);
    let mut kept = Tensor::<B, 2>::ones([count, 1], &scores.device());
    for _ in 0..PASSES {
        kept = overlaps.clone().matmul(kept).equal_elem(0.0).float();
    }
    (scores * kept.squeeze_dim::<1>(1)).topk_with_indices(KEPT, 0)
}

/// Two linear layers.
#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    input: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn new([inputs, hidden, outputs]: [usize; 3], device: &B::Device) -> Self {
        weights::same(
            Mlp::<Flex>::random([inputs, hidden, outputs], &FlexDevice),
            Self::random([inputs, hidden, outputs], device),
            device,
        )
    }

    fn random([inputs, hidden, outputs]: [usize; 3], device: &B::Device) -> Self {
        Self {
            input: LinearConfig::new(inputs, hidden).init(device),
            output: LinearConfig::new(hidden, outputs).init(device),
        }
    }

    /// Maps `[rows, inputs]` to `[rows, outputs]`.
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.output.forward(relu(self.input.forward(x)))
    }
}

const STATE: usize = 4;
const SAMPLED: usize = 32;

/// Trains on rows that are sampled from a replay buffer on the device, which grows by a row at each step and is normalised
/// as a whole. Returns the losses.
pub fn replay<B: AutodiffBackend>(steps: usize, device: &B::Device) -> Vec<f64> {
    let mut numbers = Numbers::new(SEED);
    let (mut model, mut optimizer) = (Mlp::<B>::new([STATE, 64, 1], device), AdamConfig::new().init());
    let mut buffer = Tensor::<B::InnerBackend, 2>::zeros([1, STATE + 1], device);
    let mut losses = Vec::new();
    for step in 0..steps {
        let row: [f32; STATE + 1] = std::array::from_fn(|_| numbers.signed());
        buffer = Tensor::cat(vec![buffer, Tensor::<_, 1>::from_floats(row, device).unsqueeze()], 0);
        let mean = buffer.clone().mean_dim(0);
        let deviation = (buffer.clone() - mean.clone()).powi_scalar(2).mean_dim(0).sqrt() + 1e-3;
        let places: Vec<i32> = (0..SAMPLED).map(|_| numbers.within(0..step + 2) as i32).collect();
        let places = Tensor::<B::InnerBackend, 1, Int>::from_ints(places.as_slice(), device);
        let rows = (buffer.clone().select(0, places) - mean) / deviation;
        let states = Tensor::<B, 2>::from_inner(rows.clone().slice([0..SAMPLED, 0..STATE]));
        let targets = Tensor::<B, 2>::from_inner(rows.slice([0..SAMPLED, STATE..STATE + 1]));
        let loss = MseLoss::new().forward(model.forward(states), targets, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        losses.push(loss.into_scalar().elem());
    }
    losses
}

const FEATURES: usize = 16;
const CLASSES: usize = 4;
const BATCH: usize = 128;

/// Features and a class.
#[derive(Clone, Debug)]
struct Row {
    features: [f32; FEATURES],
    class: usize,
}

#[derive(Clone)]
struct RowBatcher;

#[derive(Clone, Debug)]
struct RowBatch<B: Backend> {
    /// `[batch, features]`
    features: Tensor<B, 2>,
    /// `[batch]`
    classes: Tensor<B, 1, Int>,
}

impl<B: Backend> Batcher<B, Row, RowBatch<B>> for RowBatcher {
    fn batch(&self, rows: Vec<Row>, device: &B::Device) -> RowBatch<B> {
        let features: Vec<f32> = rows.iter().flat_map(|row| row.features).collect();
        let classes: Vec<i32> = rows.iter().map(|row| row.class as i32).collect();
        RowBatch {
            features: Tensor::from_data(TensorData::new(features, [rows.len(), FEATURES]), device),
            classes: Tensor::from_data(TensorData::new(classes, [rows.len()]), device),
        }
    }
}

impl<B: Backend> Mlp<B> {
    fn classify(&self, batch: RowBatch<B>) -> ClassificationOutput<B> {
        let logits = self.forward(batch.features);
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), batch.classes.clone());
        ClassificationOutput::new(loss, logits, batch.classes)
    }
}

impl<B: AutodiffBackend> TrainStep for Mlp<B> {
    type Input = RowBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: RowBatch<B>) -> TrainOutput<ClassificationOutput<B>> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<B: Backend> InferenceStep for Mlp<B> {
    type Input = RowBatch<B>;
    type Output = ClassificationOutput<B>;

    fn step(&self, batch: RowBatch<B>) -> ClassificationOutput<B> {
        self.classify(batch)
    }
}

fn rows(count: usize, seed: u64) -> Vec<Row> {
    let mut numbers = Numbers::new(seed);
    let row = |numbers: &mut Numbers| {
        let features: [f32; FEATURES] = std::array::from_fn(|_| numbers.signed());
        let class = usize::from(features[0] > 0.0) + 2 * usize::from(features[1] + features[2] > 0.0);
        Row { features, class }
    };
    (0..count).map(|_| row(&mut numbers)).collect()
}

/// Trains with Burn's Learner for one epoch of so many steps and a half-full batch, then counts the right answers of rows
/// whose last batch is smaller too. Returns the losses and that count.
pub fn learn_with_last_batch<B: AutodiffBackend>(steps: usize, options: &Options, device: &B::Device) -> Vec<f64> {
    let model = Mlp::<B>::new([FEATURES, 32, CLASSES], device);
    let train = learner::loader(RowBatcher, rows(steps * BATCH - BATCH / 4, SEED), BATCH, options.workers, device);
    let valid = learner::loader(RowBatcher, rows(3 * BATCH + 5, SEED + 1), BATCH, options.workers, device);
    let mut values = learner::classify::<B, _, _, _>(model.clone(), AdamConfig::new().init(), 1e-3, train, valid);
    let model = model.valid();
    let mut right = 0;
    for batch in rows(10_000, SEED + 2).chunks(BATCH) {
        let batch: RowBatch<B::InnerBackend> = RowBatcher.batch(batch.to_vec(), device);
        let answers = model.forward(batch.features).argmax(1).flatten::<1>(0, 1);
        right += answers.equal(batch.classes).int().sum().into_scalar().elem::<i64>();
    }
    values.push(right as f64);
    values
}
