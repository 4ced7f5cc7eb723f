//! Adapters: what a layer computes, PEFT's files, merging, and where gradients are.

use crate::families::{TinyWeights, noise, reference_json};
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::Linear;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::Tolerance;
use burn_flex::{Flex, FlexDevice};
use burn_tpu_llm::model::{Lora, Projection};
use burn_tpu_llm::{Config, Decoder, LoraConfig, Source, save_weights};
use safetensors::tensor::SafeTensors;
use serde_json::Value;
use std::path::Path;

type Trained = Autodiff<Flex>;

fn config() -> Config {
    let json = serde_json::json!({
        "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64,
    });
    Config::from_hugging_face(&json.to_string()).unwrap()
}

fn lora(targets: &[&str]) -> LoraConfig {
    LoraConfig { rank: 3, alpha: 6.0, targets: targets.iter().map(ToString::to_string).collect(), dropout: 0.0 }
}

fn tokens() -> Tensor<Trained, 2, Int> {
    Tensor::from_data([[3, 1, 4, 1, 5, 9, 2, 6], [5, 35, 8, 9, 7, 9, 32, 3]], &FlexDevice)
}

fn model() -> Decoder<Trained> {
    Trained::seed(&FlexDevice, 3);
    config().init(&FlexDevice).unwrap()
}

/// Gives zeros random values: the second matrix of a new adapter.
struct Stir;

impl<B: Backend> ModuleMapper<B> for Stir {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|value| {
            let is_zero = value.clone().abs().max().into_scalar().elem::<f32>() == 0.0;
            let (shape, device, is_trained) = (value.shape(), value.device(), value.is_require_grad());
            let noise = Tensor::random(shape, burn::tensor::Distribution::Uniform(-0.1, 0.1), &device);
            if is_zero { noise.set_require_grad(is_trained) } else { value }
        })
    }
}

/// Gives parameters values that follow from their number: what is drawn depends on the other tests, and so does how it is
/// rounded.
struct Fixed(usize);

impl<B: Backend> ModuleMapper<B> for Fixed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        param.map(|value| {
            let (shape, device, is_trained) = (value.shape(), value.device(), value.is_require_grad());
            let values = noise(&format!("parameter {}", self.0), shape.num_elements());
            let values = Tensor::from_data(TensorData::new(values, shape), &device) * 0.2;
            values.detach().set_require_grad(is_trained)
        })
    }
}

fn assert_close<B: Backend, const D: usize>(found: Tensor<B, D>, expected: Tensor<B, D>, most: f32) {
    found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(most));
}

/// Returns a matrix of a reference, `[rows, columns]`.
fn matrix(rows: &Value) -> Tensor<Flex, 2> {
    let rows: Vec<Vec<f32>> = serde_json::from_value(rows.clone()).unwrap();
    let (shape, values) = ([rows.len(), rows[0].len()], rows.concat());
    Tensor::from_data(TensorData::new(values, shape), &FlexDevice)
}

#[test]
fn a_layer_and_its_gradients_are_those_of_the_definition() {
    let json = reference_json("lora-layer");
    let [inputs, outputs, rank, rows] =
        ["inputs", "outputs", "rank", "rows"].map(|name| json[name].as_u64().unwrap() as usize);
    let noise = |name: &str, shape: [usize; 2]| {
        let values = noise(name, shape[0] * shape[1]);
        Tensor::<Trained, 2>::from_data(TensorData::new(values, shape), &FlexDevice)
    };
    let linear = |weight: Tensor<Trained, 2>| Linear { weight: Param::from_tensor(weight.transpose()), bias: None };
    let mut layer = Projection::<Trained>::new(inputs, outputs, true, &FlexDevice);
    layer.weight = Some(Param::from_tensor(noise("weight", [outputs, inputs]).transpose()));
    layer.bias = Some(Param::from_tensor(noise("bias", [1, outputs]).squeeze_dim(0)));
    let alpha = json["alpha"].as_f64().unwrap();
    let mut lora = Lora::new(inputs, outputs, rank, alpha, 0.0, &FlexDevice);
    lora.a = linear(noise("a", [rank, inputs]));
    lora.b = linear(noise("b", [outputs, rank]));
    layer.lora = Some(lora);

    let x = noise("x", [rows, inputs]).require_grad();
    let output = layer.forward(x.clone().unsqueeze()).squeeze_dim::<2>(0);
    assert_close(output.clone().inner(), matrix(&json["output"]), 1e-6);
    let gradients = (output * noise("weights", [rows, outputs])).sum().backward();
    let lora = layer.lora.unwrap();
    assert_close(x.grad(&gradients).unwrap(), matrix(&json["gradient_x"]), 1e-6);
    for (linear, name) in [(&lora.a, "gradient_a"), (&lora.b, "gradient_b")] {
        assert_close(linear.weight.grad(&gradients).unwrap().transpose(), matrix(&json[name]), 1e-6);
    }
}

#[test]
fn a_new_adapter_changes_nothing_and_a_merged_one_is_in_the_weights() {
    let model = model();
    let without = model.forward(tokens());
    let adapted = model.with_lora(&LoraConfig { rank: 3, ..LoraConfig::default() }).unwrap();
    assert_eq!(adapted.forward(tokens()).into_data(), without.into_data());

    let adapted = adapted.map(&mut Fixed(0));
    let before = adapted.clone().without_lora().forward(tokens());
    let with = adapted.forward(tokens());
    let difference = (with.clone() - before.clone()).abs().max().into_scalar();
    assert!(difference > 1e-4, "the adapter changes logits by {difference}");
    let merged = adapted.merge_lora();
    assert_close(merged.forward(tokens()), with.clone(), 1e-6);
    assert_close(merged.clone().merge_lora().forward(tokens()), with.clone(), 1e-6);
    assert_close(merged.clone().without_lora().forward(tokens()), with.clone(), 1e-6);
    let unmerged = merged.unmerge_lora();
    assert_close(unmerged.forward(tokens()), with, 1e-6);
    assert_close(unmerged.without_lora().forward(tokens()), before, 1e-6);
}

#[test]
fn only_training_drops_inputs_of_the_adapter() {
    let lora = LoraConfig { dropout: 0.5, ..lora(&["v_proj"]) };
    let model = model().with_lora(&lora).unwrap().map(&mut Stir);
    let [first, second] = [(); 2].map(|()| model.forward(tokens()).into_data());
    assert_ne!(first, second);
    let valid = model.valid();
    let [first, second] = [(); 2].map(|()| valid.forward(tokens().inner()).into_data());
    assert_eq!(first, second);
}

/// Lists the parameters with gradients and those without.
struct Gradients(GradientsParams, Vec<String>, [usize; 2]);

impl ModuleVisitor<Trained> for Gradients {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.1.push(name.to_owned());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.1.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Trained, D>>) {
        let (path, has_one) = (self.1.join("."), self.0.get::<Flex, D>(param.id).is_some());
        assert_eq!(has_one, path.contains(".lora."), "{path}");
        self.2[usize::from(has_one)] += 1;
    }
}

#[test]
fn only_the_adapter_has_gradients() {
    let model = model().with_lora(&lora(&["q_proj", "down_proj", "lm_head"])).unwrap().map(&mut Stir);
    // As a compiled step takes it apart and puts it together.
    let model = Decoder::<Trained>::from_inner(model.valid());
    let gradients = GradientsParams::from_grads(model.loss(tokens()).backward(), &model);
    let mut gradients = Gradients(gradients, Vec::new(), [0; 2]);
    model.visit(&mut gradients);
    // An embedding, 9 parameters of each of two layers, a norm and a head; two matrices of each of five products.
    assert_eq!(gradients.2, [21, 10]);
}

fn shapes(path: &Path) -> Vec<(String, Vec<usize>)> {
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut shapes: Vec<_> = tensors.iter().map(|(name, view)| (name.to_owned(), view.shape().to_vec())).collect();
    shapes.sort();
    shapes
}

#[test]
fn the_files_are_pefts_and_come_back() {
    let adapted = model().with_lora(&lora(&["q_proj", "layers.1.mlp.down_proj", "lm_head"])).unwrap().map(&mut Stir);
    let folder = tempfile::tempdir().unwrap();
    adapted.save_lora(folder.path()).unwrap();
    let expected = [
        ("lm_head.lora_A.weight", [3, 16]),
        ("lm_head.lora_B.weight", [40, 3]),
        ("model.layers.0.self_attn.q_proj.lora_A.weight", [3, 16]),
        ("model.layers.0.self_attn.q_proj.lora_B.weight", [16, 3]),
        ("model.layers.1.mlp.down_proj.lora_A.weight", [3, 24]),
        ("model.layers.1.mlp.down_proj.lora_B.weight", [16, 3]),
        ("model.layers.1.self_attn.q_proj.lora_A.weight", [3, 16]),
        ("model.layers.1.self_attn.q_proj.lora_B.weight", [16, 3]),
    ];
    let expected = expected.map(|(name, shape)| (format!("base_model.model.{name}"), shape.to_vec()));
    assert_eq!(shapes(&folder.path().join("adapter_model.safetensors")), expected);
    let json = std::fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["r"], &json["peft_type"], &json["bias"]), (&3.into(), &"LORA".into(), &"none".into()));

    let again = model().load_lora(folder.path()).unwrap();
    assert_eq!(again.lora(), adapted.lora());
    assert_eq!(again.forward(tokens()).into_data(), adapted.forward(tokens()).into_data());

    // The weights alone would lose it.
    let weights = folder.path().join("model.safetensors");
    let error = save_weights(&adapted, &weights).unwrap_err().to_string();
    assert_eq!(error, "the adapter is not in the weights: merge or remove it, or save it apart");
    save_weights(&adapted.merge_lora(), &weights).unwrap();
    save_weights(&model(), &folder.path().join("plain.safetensors")).unwrap();
    assert_eq!(shapes(&weights), shapes(&folder.path().join("plain.safetensors")));
}

#[test]
fn experts_have_adapters_under_the_names_of_their_family() {
    let files = TinyWeights::new(&reference_json("mixtral")["config"]);
    let model = Source::open(files.path()).unwrap().load::<Trained>(&FlexDevice).unwrap();
    let folder = tempfile::tempdir().unwrap();
    model.with_lora(&lora(&["q_proj", "w2"])).unwrap().save_lora(folder.path()).unwrap();
    let shapes = shapes(&folder.path().join("adapter_model.safetensors"));
    // Two matrices for each of two layers' query and four experts.
    assert_eq!(shapes.len(), 20);
    let name = "base_model.model.model.layers.1.block_sparse_moe.experts.3.w2.lora_A.weight".to_owned();
    assert!(shapes.contains(&(name, vec![3, 24])), "{shapes:?}");
}

#[test]
fn adapters_that_do_not_fit_are_errors() {
    let with = |targets: &[&str]| model().with_lora(&lora(targets)).err().unwrap().to_string();
    let message = with(&["q_proj", "query"]);
    assert!(message.starts_with("the adapter changes `query`, which is none of the model's products"), "{message}");
    assert!(message.contains("from `model.layers.0.self_attn.q_proj` to `lm_head`"), "{message}");
    assert!(with(&[]).contains("names no products"));
    let adapted = model().with_lora(&lora(&["q_proj"])).unwrap();
    assert!(model().save_lora(Path::new("nowhere")).unwrap_err().to_string().contains("the decoder has none"));
    let folder = tempfile::tempdir().unwrap();
    adapted.save_lora(folder.path()).unwrap();
    assert!(adapted.load_lora(folder.path()).err().unwrap().to_string().contains("is a second one"));

    let path = folder.path().join("adapter_config.json");
    let change = |field: &str, value: Value| {
        let mut json: Value = serde_json::from_str(&lora(&["q_proj"]).to_peft()).unwrap();
        json[field] = value;
        std::fs::write(&path, json.to_string()).unwrap();
        model().load_lora(folder.path()).err().unwrap().to_string()
    };
    let message = change("r", 4.into());
    let part = "`base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight` has shape [3, 16] instead of [4, 16]";
    assert!(message.contains(part), "{message}");
    let message = change("target_modules", serde_json::json!(["v_proj"]));
    assert!(
        message.contains("v_proj.lora_A.weight` [3, 16] is missing") && message.contains("and 4 more"),
        "{message}"
    );
    assert!(change("use_dora", true.into()).contains("the field `use_dora`: true"));
}
