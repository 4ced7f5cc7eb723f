//! Lengths that vary in layers that loop over time: recorded unrolled, they have other ops at each length, and still they
//! run as one program for each bucket of lengths.

use crate::common::{self, alone, cpu_with};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module};
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{BiLstm, BiLstmConfig, Linear, LinearConfig, Lstm, LstmConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{Tpu, TpuOptions, metrics};

type F32 = Autodiff<Tpu<f32>>;
type Theirs = Autodiff<Flex>;

const BATCH: usize = 3;
const FEATURES: usize = 4;
const HIDDEN: usize = 5;

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one in a test")]
enum Layer<B: Backend> {
    Lstm(Lstm<B>),
    Gru(Gru<B>),
    BothWays(BiLstm<B>),
}

/// A layer over time, and a linear layer on the mean of its states and on its last one.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    layer: Layer<B>,
    output: Linear<B>,
}

impl<B: Backend> Model<B> {
    fn new(name: &str, device: &B::Device) -> Self {
        let layer = match name {
            "lstm" => Layer::Lstm(LstmConfig::new(FEATURES, HIDDEN, true).init(device)),
            "gru" => Layer::Gru(GruConfig::new(FEATURES, HIDDEN, true).init(device)),
            _ => Layer::BothWays(BiLstmConfig::new(FEATURES, HIDDEN, true).init(device)),
        };
        let width = if let Layer::BothWays(_) = layer { 2 * HIDDEN } else { HIDDEN };
        Self { layer, output: LinearConfig::new(width, 2).init(device) }
    }

    /// Maps `[batch, time, features]` to a loss `[1]`.
    fn loss(&self, x: Tensor<B, 3>) -> Tensor<B, 1> {
        let [batch, time, _] = x.dims();
        let states = match &self.layer {
            Layer::Lstm(lstm) => lstm.forward(x, None).0,
            Layer::Gru(gru) => gru.forward(x, None),
            Layer::BothWays(lstm) => lstm.forward(x, None).0,
        };
        let [_, _, width] = states.dims();
        let last = states.clone().slice([0..batch, time - 1..time, 0..width]);
        let pooled = (states.mean_dim(1) + last).reshape([batch, width]);
        self.output.forward(pooled).powi_scalar(2).mean()
    }
}

/// Trains on batches of these lengths, from the weights of `record`. Returns the losses.
fn trained<B: AutodiffBackend>(name: &str, record: &[u8], lengths: &[usize], device: &B::Device) -> Vec<f32>
where
    Model<B>: AutodiffModule<B>,
{
    let bytes = BinBytesRecorder::<FullPrecisionSettings>::new().load(record.to_vec(), device).expect("a record");
    let mut model = Model::<B>::new(name, device).load_record(bytes);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for &time in lengths {
        let values: Vec<f32> = (0..BATCH * time * FEATURES).map(|i| (0.37 * (i + time) as f32).sin()).collect();
        let loss = model.loss(Tensor::from_data(TensorData::new(values, [BATCH, time, FEATURES]), device));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        losses.push(loss.into_data().iter::<f32>().next().expect("a loss"));
    }
    losses
}

#[test]
fn lengths_of_a_loop_over_time_train_in_one_program_for_each_bucket() {
    let options = TpuOptions::training().interpret_from(0).disk_cache(false);
    let Some(device) = cpu_with("lengths", options) else { return };
    let _alone = alone();
    // Three lengths tell the family; the others are of buckets of 32 and 64.
    let lengths = [20, 33, 27, 30, 23, 44, 21, 38, 20, 27];
    let layers = ["lstm", "gru", "both ways"];
    for &name in if common::is_long() { &layers[..] } else { &layers[..1] } {
        let model = Model::<Theirs>::new(name, &Default::default());
        let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
        let record = recorder.record(model.into_record(), ()).expect("a record");
        let before = metrics(&device);
        let ours = trained::<F32>(name, &record, &lengths, &device);
        let theirs = trained::<Theirs>(name, &record, &lengths, &Default::default());
        let after = metrics(&device);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert!((ours - theirs).abs() <= 1e-5, "{name}: {ours} for {theirs}");
        }
        let counts = (after.compiles - before.compiles, after.families - before.families);
        // The first step, which has no optimizer's state, two lengths, and two buckets.
        assert_eq!(counts, (5, 1), "{name}: {after}");
        assert_eq!(after.bucket_runs - before.bucket_runs, 6, "{name}: {after}");
    }
}
