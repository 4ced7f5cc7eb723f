//! Contexts that are split over chips: the losses and gradients of one chip, and what is sent.

use crate::families::{TinyWeights, reference_json};
use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Tolerance;
use burn::tensor::backend::AutodiffBackend;
use burn_tpu::fit::{Collective, Fit};
use burn_tpu::{Fsdp, Keep, Mesh, Platform, Tpu, TpuDevice, TpuFloat, place};
use burn_tpu_llm::model::{Context, ContextForm, RING};
use burn_tpu_llm::{Config, Decoder, LlmError, Source};
use half::bf16;

type B<F = f32> = Autodiff<Tpu<F>>;

type Tokens<F> = Tensor<B<F>, 2, Int>;

/// Two rows of 17 tokens, of which the second may have two texts.
fn rows<F: TpuFloat>(shared: bool, device: &TpuDevice) -> (Tokens<F>, Option<Tokens<F>>) {
    let tokens: Vec<i32> = (0..34).map(|i| (i * 7 + i * i) % 11).collect();
    let starts = [vec![0; 16], [vec![0; 6], vec![6; 10]].concat()].concat();
    let tensor = |values: Vec<i32>, width| Tensor::from_data(TensorData::new(values, [2, width]), device);
    (tensor(tokens, 17), shared.then(|| tensor(starts, 16)))
}

/// The losses of a model's tokens, and the gradients of its weights in their order.
#[derive(Debug, PartialEq)]
struct Found {
    losses: TensorData,
    gradients: Vec<TensorData>,
}

impl Found {
    fn new<F: TpuFloat>(model: &impl Module<B<F>>, losses: Tensor<B<F>, 2>) -> Self {
        struct All<'g, F: TpuFloat>(&'g mut <B<F> as AutodiffBackend>::Gradients, Vec<TensorData>);
        impl<F: TpuFloat> ModuleVisitor<B<F>> for All<'_, F> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B<F>, D>>) {
                self.1.extend(param.grad_remove(self.0).map(|gradient| gradient.into_data().convert::<f32>()));
            }
        }
        // Each token has a weight of its own, so that their order matters.
        let weights = Tensor::arange(1..17, &losses.device()).float().unsqueeze::<2>().div_scalar(16);
        let mut gradients = (losses.clone() * weights).sum().backward();
        let mut all = All(&mut gradients, Vec::new());
        model.visit(&mut all);
        assert!(all.1.len() > 10);
        Self { losses: losses.into_data(), gradients: all.1 }
    }

    /// What one chip computes without a context.
    fn plain<F: TpuFloat>(model: &Decoder<B<F>>, shared: bool) -> Self {
        let (tokens, starts) = rows(shared, &model.device());
        Self::new(model, model.nats(tokens, starts))
    }

    fn over<F: TpuFloat>(model: &Decoder<B<F>>, shared: bool, context: &Context<B<F>>) -> Self {
        let (tokens, starts) = rows(shared, &model.device());
        Self::new(model, model.nats_over(tokens, starts, context).unwrap())
    }

    /// The distance from other gradients over their length.
    fn distance(&self, other: &Self) -> f64 {
        let (mut apart, mut length) = (0.0, 0.0);
        for (one, other) in self.gradients.iter().zip(&other.gradients) {
            for (one, other) in one.iter::<f64>().zip(other.iter::<f64>()) {
                apart += (one - other).powi(2);
                length += other.powi(2);
            }
        }
        (apart / length).sqrt()
    }

    fn assert_near(&self, other: &Self) {
        let near = |a: &TensorData, b: &TensorData| a.assert_approx_eq::<f32>(b, Tolerance::absolute(1e-5));
        near(&self.losses, &other.losses);
        assert_eq!(self.gradients.len(), other.gradients.len());
        self.gradients.iter().zip(&other.gradients).for_each(|(one, other)| near(one, other));
    }
}

fn model<F: TpuFloat>(family: &str, device: &TpuDevice) -> Decoder<B<F>> {
    let files = TinyWeights::new(&reference_json(family)["config"]);
    Source::open(files.path()).unwrap().load(device).unwrap()
}

#[test]
fn a_ring_has_the_losses_and_gradients_of_plain_attention() {
    let device = TpuDevice::ndarray();
    let ring = Context::new(&device, "context", ContextForm::Ring).unwrap();
    // Windows, a cap of scores, norms of heads; one head of keys.
    for (family, parts, shared) in [
        ("llama-3.1", 1, true),
        ("llama-3.1", 4, false),
        ("gemma2", 2, true),
        ("gemma3", 4, true),
        ("llama-one-key-head", 2, false),
    ] {
        let model = model::<f32>(family, &device);
        let found = Found::over(&model, shared, &ring.clone().with_parts(parts));
        found.assert_near(&Found::plain(&model, shared));
    }
}

#[test]
fn what_a_loop_keeps_of_a_ring_changes_no_gradient() {
    let device = TpuDevice::ndarray();
    let context = Context::new(&device, "context", ContextForm::Ring).unwrap().with_parts(4);
    let [computed, kept] = [Keep::Nothing, Keep::Names(vec![RING])].map(|keep| {
        let model = model::<f32>("llama-3.1", &device).into_loop(keep).unwrap();
        let (tokens, starts) = rows(true, &device);
        Found::new(&model, model.nats_over(tokens, starts, &context).unwrap())
    });
    kept.assert_near(&computed);
}

/// The blocks of a ring are added in f32.
#[test]
fn a_ring_in_bf16_is_as_far_from_f32_as_plain_attention_is() {
    let device = TpuDevice::ndarray();
    let ring = Context::new(&device, "context", ContextForm::Ring).unwrap();
    let mut apart = Vec::new();
    for (family, parts) in [("llama-3.1", 4), ("qwen3", 2), ("gemma3", 4), ("llama-one-key-head", 2)] {
        let expected = Found::plain(&model::<f32>(family, &device), false);
        let model = model::<bf16>(family, &device);
        let context = ring.clone().with_parts(parts);
        let found = [Found::plain(&model, false), Found::over(&model, false, &context)];
        apart.push(found.map(|found| found.distance(&expected)));
    }
    let [plain, ring] = [0, 1].map(|form| apart.iter().map(|distances| distances[form]).sum::<f64>());
    assert!(plain > 1e-3 && ring < 1.25 * plain, "plain and ring: {apart:?}");
}

#[test]
fn a_context_that_chips_split_has_the_losses_and_gradients_of_one_chip() {
    let Some((one, _alone)) = crate::cpu() else { return };
    let expected = Found::plain(&model::<f32>("llama-3.1", &one), true);
    let both = || Mesh::new().axis("fsdp", 2).axis("context", 2);
    for (mesh, weights, heads, form) in [
        (both(), "fsdp+context", None, ContextForm::Gathered),
        (both().axis("tensor", 2), "fsdp+context", Some("tensor"), ContextForm::Ring),
        (Mesh::new().axis("context", 4), "context", None, ContextForm::Ring),
    ] {
        let device = TpuDevice::mesh(mesh.on(Platform::Cpu));
        crate::options().install(&device).ok();
        let model = place(model::<f32>("llama-3.1", &device), &Fsdp { axis: weights, min_bytes: 0 }).unwrap();
        let context = Context::new(&device, "context", form).unwrap().with_heads(heads);
        Found::over(&model, true, &context).assert_near(&expected);
    }
}

#[test]
fn lengths_that_do_not_divide_are_refused_with_the_next_that_does() {
    let device = TpuDevice::ndarray();
    let model = model::<f32>("llama-3.1", &device);
    let refused = |form, parts| {
        let context = Context::new(&device, "context", form).unwrap().with_parts(parts);
        let (tokens, _) = rows::<f32>(false, &device);
        let error = model.nats_over(tokens, None, &context).unwrap_err();
        assert!(matches!(error, LlmError::Context { .. }));
        error.to_string()
    };
    let error = refused(ContextForm::Ring, 3);
    assert!(error.contains("16 tokens does not divide into 6 equal blocks, as the axis `context`"), "{error}");
    assert!(error.contains("the next length that does is 18"), "{error}");
    assert!(refused(ContextForm::Gathered, 5).contains("into 5 equal blocks"));
}

/// Weights are on every chip here, so that all that is sent is of tokens: keys and values go round, and are never together.
#[test]
fn a_ring_sends_keys_and_values_from_chip_to_chip() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    // Forward, forward again and backward; what is kept is not computed again.
    for (keep, rounds) in [(Keep::Nothing, 3), (Keep::Names(vec![RING]), 2)] {
        let collectives = sent_in_a_step(keep);
        let given =
            |kind: &str| -> u64 { collectives.iter().filter(|of| of.kind == kind).map(|of| of.operand_bytes).sum() };
        // Of keys and values of 256 tokens in bf16 for each layer and round, and once of their gradients in f32. Keys and
        // values may be sent home too, where nobody reads them, and small values beside them.
        let (layers, held) = (3, 256 * 2 * 2 * 64);
        let sent = |trips: u64| layers * (trips * rounds * 2 * held + 4 * 4 * held);
        assert!((sent(3)..sent(4) + held).contains(&given("collective-permute")), "{collectives:?}");
        assert!(given("all-gather") < held && given("all-to-all") < held, "{collectives:?}");
    }
}

/// Returns what the chips of `context=4` send in a training step of a ring, with weights on every chip.
fn sent_in_a_step(keep: Keep) -> Vec<Collective> {
    type B = Autodiff<Tpu>;
    let config = serde_json::json!({
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 1024,
    });
    let config = Config::from_hugging_face(&config.to_string()).unwrap();
    let fit = Fit::new().unwrap().slices(["v5e:2x2".parse().unwrap()]).mesh(Mesh::new().axis("context", 4));
    let report = fit.run(
        |device| (config.init::<B>(device).unwrap().into_loop(keep).unwrap(), None),
        |(model, _), device| {
            let context = Context::new(device, "context", ContextForm::Ring).unwrap();
            let tokens = Tensor::from_data(TensorData::new(vec![0i32; 1025], [1, 1025]), device);
            let loss = model.nats_over(tokens, None, &context).unwrap().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            (model, Some((loss, gradients)))
        },
    );
    report.unwrap().slices.remove(0).collectives
}
