//! Tiny decoders of each family against references in NumPy, which `benches/llm/reference.py` wrote.

use burn::prelude::*;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Keep, Tpu, TpuDevice};
use burn_tpu_llm::{Cache, Config, Source, save_weights};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use tempfile::TempDir;

const FAMILIES: [&str; 14] = [
    "llama",
    "llama-biases",
    "llama-one-key-head",
    "llama-linear",
    "llama-3.1",
    "llama-yarn",
    "mistral",
    "qwen2",
    "qwen3",
    "mixtral",
    "qwen2-moe",
    "qwen3-moe",
    "gemma2",
    "gemma3",
];

/// A model in Hugging Face's form, its input, and what comes out.
struct Reference {
    folder: TinyWeights,
    tokens: Vec<i32>,
    /// Of each position, one after another.
    logits: Vec<f32>,
}

/// Returns the weights of a name: SplitMix64 from its FNV-1a hash, in `[-0.5, 0.5)`.
pub fn noise(name: &str, count: usize) -> Vec<f32> {
    let hash = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let number = |at: u64| {
        let mut x = seed.wrapping_add((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count as u64).map(number).collect()
}

/// Returns the weights of this name. A router's weights give two experts the same score.
fn weights(name: &str, count: usize, width: usize) -> Vec<f32> {
    let mut values = noise(name, count);
    if name.ends_with(".gate.weight") {
        values.copy_within(width..2 * width, 2 * width);
    }
    values
}

/// The folder of a model in Hugging Face's form, with the weights that the references have.
pub struct TinyWeights(TempDir);

impl TinyWeights {
    /// Writes the model of a `config.json`.
    pub fn new(config: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let config = Config::from_hugging_face(&config.to_string()).unwrap();
        let path = folder.path().join("model.safetensors");
        save_weights(&config.init::<Flex>(&FlexDevice).unwrap(), &path).unwrap();
        replace_weights(&path, |name, count| weights(name, count, config.width));
        Self(folder)
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Gives the tensors of a file the values that a function returns for a name and a number of elements.
pub fn replace_weights(path: &Path, values: impl Fn(&str, usize) -> Vec<f32>) {
    let bytes = std::fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, view)| {
            let values = values(name, view.shape().iter().product());
            (name.to_owned(), view.shape().to_vec(), values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let views: HashMap<_, _> = data
        .iter()
        .map(|(name, shape, bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    safetensors::serialize_to_file(views, None, path).unwrap();
}

/// Returns what a reference says.
pub fn reference_json(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/references").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn reference(name: &str) -> Reference {
    let json = reference_json(name);
    let rows = json["logits"].as_array().unwrap().iter();
    Reference {
        folder: TinyWeights::new(&json["config"]),
        tokens: serde_json::from_value(json["tokens"].clone()).unwrap(),
        logits: rows.flat_map(|row| row.as_array().unwrap()).map(|logit| logit.as_f64().unwrap() as f32).collect(),
    }
}

impl Reference {
    fn assert_close<B: Backend>(&self, name: &str, logits: Tensor<B, 3>) {
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        assert_eq!(logits.len(), self.logits.len());
        let most = logits.iter().zip(&self.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 1e-5, "{name} differs by {most}");
    }

    fn tokens<B: Backend>(&self, part: std::ops::Range<usize>, device: &B::Device) -> Tensor<B, 2, Int> {
        Tensor::<B, 1, Int>::from_data(&self.tokens[part], device).unsqueeze()
    }

    /// Checks the whole sequence at once, and in pieces with a cache that is longer than it.
    fn check<B: Backend>(&self, name: &str, device: &B::Device) {
        let model = Source::open(self.folder.path()).unwrap().load::<B>(device).unwrap();
        let length = self.tokens.len();
        self.assert_close(name, model.forward(self.tokens::<B>(0..length, device)));
        let mut cache = Cache::new(model.config(), 1, 20, model.dtype(), device);
        let mut pieces = Vec::new();
        for piece in [0..6, 6..7, 7..8, 8..length] {
            let hidden = model.extend(self.tokens::<B>(piece, device), &mut cache);
            pieces.push(model.logits(hidden));
        }
        self.assert_close(name, Tensor::cat(pieces, 1));
    }
}

#[test]
fn each_family_computes_what_its_definition_says() {
    for name in FAMILIES {
        reference(name).check::<Flex>(name, &FlexDevice);
    }
}

#[test]
fn the_tpu_backend_computes_the_same() {
    let Some((device, _alone)) = crate::cpu() else { return };
    // Those that have the most parts between them.
    for name in ["llama-biases", "qwen2-moe", "gemma3"] {
        reference(name).check::<Tpu<f32>>(name, &device);
    }
}

/// The layers as a loop, with a cache: a family whose trips are a layer each, and one with more layers than whole trips.
#[test]
fn a_loop_over_the_layers_continues_texts() {
    let device = TpuDevice::ndarray();
    for name in ["llama-biases", "gemma2", "gemma3"] {
        let reference = reference(name);
        let model = Source::open(reference.folder.path()).unwrap().load::<Tpu<f32>>(&device).unwrap();
        let model = model.into_loop(Keep::Nothing).unwrap();
        let mut cache = model.cache(1, 20, &device);
        let mut pieces = Vec::new();
        for piece in [0..6, 6..7, 7..8, 8..reference.tokens.len()] {
            let hidden = model.extend(reference.tokens(piece, &device), &mut cache).unwrap();
            pieces.push(model.logits(hidden));
        }
        reference.assert_close(name, Tensor::cat(pieces, 1));
    }
}

#[test]
fn a_saved_model_is_the_same() {
    for name in ["llama-yarn", "qwen2", "mixtral", "qwen2-moe", "gemma3"] {
        let reference = reference(name);
        let source = Source::open(reference.folder.path()).unwrap();
        let model = source.load::<Flex>(&FlexDevice).unwrap();
        let saved = tempfile::tempdir().unwrap();
        std::fs::write(saved.path().join("config.json"), source.config().to_hugging_face().unwrap()).unwrap();
        save_weights(&model, &saved.path().join("model.safetensors")).unwrap();
        let again = Source::open(saved.path()).unwrap();
        assert_eq!(again.config(), source.config(), "{name}");
        let tokens = || reference.tokens::<Flex>(0..reference.tokens.len(), &FlexDevice);
        let [first, second] = [model, again.load::<Flex>(&FlexDevice).unwrap()].map(|model| model.forward(tokens()));
        first.into_data().assert_approx_eq::<f32>(&second.into_data(), burn::tensor::Tolerance::absolute(1e-6));
    }
}

/// Phi is Mistral whose files have products that read the same as one.
#[test]
fn phi_has_products_of_mistral_as_one() {
    let reference = reference("mistral");
    let folder = reference.folder.path();
    change_config(folder, |json| {
        json["model_type"] = "phi3".into();
        for (field, value) in [("partial_rotary_factor", 1.0), ("embd_pdrop", 0.0), ("resid_pdrop", 0.0)] {
            json[field] = value.into();
        }
        json["original_max_position_embeddings"] = 64.into();
        json["rope_scaling"] = Value::Null;
    });
    let path = folder.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut fused: std::collections::BTreeMap<String, (usize, Vec<u8>)> = Default::default();
    let mut whole = Vec::new();
    let places = [("q_proj", "qkv_proj"), ("k_proj", "qkv_proj"), ("v_proj", "qkv_proj")];
    for (part, one) in places.into_iter().chain([("gate_proj", "gate_up_proj"), ("up_proj", "gate_up_proj")]) {
        for (name, view) in tensors.iter().filter(|(name, _)| name.contains(&format!(".{part}."))) {
            let (rows, data) = fused.entry(name.replace(part, one)).or_default();
            *rows += view.shape()[0];
            data.extend_from_slice(view.data());
        }
    }
    let is_part =
        |name: &str| ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"].iter().any(|part| name.contains(part));
    whole.extend(tensors.iter().filter(|(name, _)| !is_part(name)).map(|(name, view)| (name.to_owned(), view)));
    for (name, (rows, data)) in &fused {
        let columns = data.len() / 4 / rows;
        whole.push((name.clone(), TensorView::new(Dtype::F32, vec![*rows, columns], data).unwrap()));
    }
    safetensors::serialize_to_file(whole, None, &path).unwrap();
    reference.check::<Flex>("phi3", &FlexDevice);
    change_config(folder, |json| json["partial_rotary_factor"] = 0.75.into());
    let error = Source::open(folder).unwrap_err().to_string();
    assert!(error.contains("`partial_rotary_factor`: 0.75 instead of 1"), "{error}");
}

/// Returns the error of the model of a reference after a change of its folder.
fn error(name: &str, change: impl FnOnce(&Path)) -> String {
    let reference = reference(name);
    change(reference.folder.path());
    let result = Source::open(reference.folder.path()).and_then(|source| source.load::<Flex>(&FlexDevice));
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

fn change_config(folder: &Path, change: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

#[test]
fn a_field_that_is_not_known_is_named_and_one_that_changes_nothing_is_not() {
    let with = |field: &str, value: Value| error("llama", |folder| change_config(folder, |json| json[field] = value));
    let message = with("residual_multiplier", 0.22.into());
    assert!(message.contains("the field `residual_multiplier`: 0.22, which this crate does not know"), "{message}");
    for (field, value) in [("torch_dtype", "bfloat16".into()), ("new_thing", false.into()), ("_name", "x".into())] {
        assert_eq!(with(field, value), "");
    }
    let message = with("model_type", "mamba".into());
    assert!(message.contains("`model_type` `mamba`; this crate runs llama"), "{message}");
    let message = with("rope_scaling", serde_json::json!({"rope_type": "longrope"}));
    assert!(message.contains("longrope") && message.contains("known are"), "{message}");
    assert!(with("num_key_value_heads", 3.into()).contains("4 heads of queries, no multiple of its 3 of keys"));
    let with_experts =
        |field: &str, value: Value| error("qwen3-moe", |folder| change_config(folder, |json| json[field] = value));
    assert!(with_experts("num_experts_per_tok", 6.into()).contains("has experts that are none"));
    assert!(
        with_experts("mlp_only_layers", serde_json::json!([1])).contains("[1] instead of []: every layer has experts")
    );
    assert!(with_experts("decoder_sparse_step", 2.into()).contains("2 instead of 1: every layer has experts"));
    assert!(with("vocab_size", Value::Null).contains("has no field `vocab_size`"));
    assert!(with("hidden_size", "wide".into()).contains("has `hidden_size`: \"wide\" instead of a positive integer"));
}

#[test]
fn tensors_that_do_not_fit_are_named_with_what_was_expected() {
    let with = |field: &str, value: Value| error("llama", |folder| change_config(folder, |json| json[field] = value));
    let message = with("intermediate_size", 20.into());
    let part = "`model.layers.0.mlp.gate_proj.weight` has shape [24, 16] instead of [20, 16]";
    assert!(message.contains(part) && message.contains("and 2 more"), "{message}");
    let message = with("num_hidden_layers", 3.into());
    assert!(message.contains("`model.layers.2.self_attn.q_proj.weight` [32, 16] is missing"), "{message}");
    let message = with("num_hidden_layers", 1.into());
    assert!(
        message.contains("`model.layers.1.input_layernorm.weight` is in the file and not in the model"),
        "{message}"
    );
}

#[test]
fn files_that_are_cut_or_are_no_tensors_are_named() {
    let weights = |folder: &Path| folder.join("model.safetensors");
    let message = error("llama", |folder| {
        let bytes = std::fs::read(weights(folder)).unwrap();
        std::fs::write(weights(folder), &bytes[..bytes.len() - 1]).unwrap();
    });
    assert!(message.contains("model.safetensors` is not whole") && message.contains("its tensor `"), "{message}");
    for bytes in [&b"These are not tensors, but a sentence."[..], b""] {
        let message = error("llama", |folder| std::fs::write(weights(folder), bytes).unwrap());
        assert!(message.contains("model.safetensors` is not a safetensors file, or not a whole one"), "{message}");
    }
    let message = error("llama", |folder| {
        let header = r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 8]].concat();
        std::fs::write(weights(folder), bytes).unwrap();
    });
    assert!(message.contains("model.safetensors` has a damaged header: invalid shape"), "{message}");
    let message = error("llama", |folder| std::fs::remove_file(weights(folder)).unwrap());
    assert!(message.contains("cannot open") && message.contains("model.safetensors"), "{message}");
    let message = error("llama", |folder| std::fs::write(folder.join("config.json"), "{").unwrap());
    assert!(message.contains("is no JSON"), "{message}");
}

#[test]
fn shards_are_one_model() {
    let reference = reference("llama");
    let folder = reference.folder.path();
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for half in 0..2 {
        let file = format!("model-{half}.safetensors");
        let part: Vec<_> = tensors.iter().enumerate().filter(|(at, _)| at % 2 == half).map(|(_, view)| view).collect();
        part.iter().for_each(|(name, _)| drop(map.insert((*name).to_owned(), file.clone().into())));
        safetensors::serialize_to_file(part, None, &folder.join(file)).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
    reference.check::<Flex>("shards", &FlexDevice);
}
