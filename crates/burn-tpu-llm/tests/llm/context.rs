//! Contexts that are split over chips: the losses and gradients of one chip, and what is sent.

use crate::families::{TinyWeights, reference_json};
use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Tolerance;
use burn_tpu::{Keep, Mesh, Platform, Tpu, TpuDevice, TpuOptions, place};
use burn_tpu_llm::model::{Context, ContextForm};
use burn_tpu_llm::{Config, Decoder, Source};

type B = Autodiff<Tpu<f32>>;

const FORMS: [ContextForm; 2] = [ContextForm::Gathered, ContextForm::Ring];

/// Two rows of 17 tokens, of which the second has two texts.
fn rows(device: &TpuDevice) -> (Tensor<B, 2, Int>, Tensor<B, 2, Int>) {
    let tokens: Vec<i32> = (0..34).map(|i| (i * 7 + i * i) % 11).collect();
    let starts = [vec![0; 16], [vec![0; 6], vec![6; 10]].concat()].concat();
    let tensor = |values: Vec<i32>, width| Tensor::from_data(TensorData::new(values, [2, width]), device);
    (tensor(tokens, 17), tensor(starts, 16))
}

/// The gradients of a model's weights by their order.
struct All<'g>(&'g mut <B as burn::tensor::backend::AutodiffBackend>::Gradients, Vec<TensorData>);

impl ModuleVisitor<B> for All<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.1.extend(param.grad_remove(self.0).map(Tensor::into_data));
    }
}

fn gradients(model: &impl Module<B>, nats: &Tensor<B, 2>) -> Vec<TensorData> {
    let weights = Tensor::arange(1..17, &nats.device()).float().unsqueeze::<2>().div_scalar(16);
    let mut gradients = (nats.clone() * weights).sum().backward();
    let mut all = All(&mut gradients, Vec::new());
    model.visit(&mut all);
    all.1
}

/// Compares what a context gives with what one chip gives.
fn assert_equal(model: &Decoder<B>, on: &Decoder<B>, contexts: &[Context<B>], name: &str) {
    let (tokens, starts) = rows(&model.device());
    for starts in [None, Some(starts)] {
        let expected = model.nats(tokens.clone(), starts.clone());
        let wanted = gradients(model, &expected);
        assert!(wanted.len() > 10);
        for context in contexts {
            let [tokens, starts] = [Some(tokens.clone()), starts.clone()].map(|x| {
                x.map(|x| Tensor::<B, 2, Int>::from_data(x.into_data(), &on.device()))
            });
            let found = on.nats_over(tokens.unwrap(), starts, context).unwrap();
            let near = |a: &TensorData, b: &TensorData| a.assert_approx_eq::<f32>(b, Tolerance::absolute(1e-5));
            near(&found.to_data(), &expected.to_data());
            let found = gradients(on, &found);
            assert_eq!(found.len(), wanted.len(), "{name}");
            found.iter().zip(&wanted).for_each(|(found, wanted)| near(found, wanted));
        }
    }
}

#[test]
fn a_ring_has_the_losses_and_gradients_of_plain_attention() {
    let device = TpuDevice::ndarray();
    // Windows, a cap of scores, norms of heads; one head of keys.
    for family in ["llama-3.1", "gemma2", "gemma3", "llama-one-key-head"] {
        let files = TinyWeights::new(&reference_json(family)["config"]);
        let model = Source::open(files.path()).unwrap().load::<B>(&device).unwrap();
        let context = |parts| Context::new(&device, "context", ContextForm::Ring).unwrap().with_parts(parts);
        assert_equal(&model, &model, &[1, 2, 4].map(context), family);
    }
}
