//! Training: losses beside JAX's, what of a conversation is learned, and texts that share a row.

use crate::families::{TinyWeights, noise, reference_json};
use crate::gguf::bytes_tokenizer;
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::GradientsParams;
use burn::prelude::*;
use burn::tensor::{DType, Tolerance};
use burn_flex::{Flex, FlexDevice};
use burn_tpu::fit::Fit;
use burn_tpu::{DeviceAdamW, Keep, Mesh, Platform, Tpu, TpuDevice, compile_step, place};
use burn_tpu_llm::model::{Context, ContextForm, LanguageModel};
use burn_tpu_llm::training::{Batch, Example, Rows};
use burn_tpu_llm::{ChatTemplate, Config, LoraConfig, Source};
use serde_json::Value;

type Device = Tpu<f32>;

/// Returns a matrix of a reference in a type of element.
fn rows<T: serde::de::DeserializeOwned>(rows: &Value) -> Vec<T> {
    let rows: Vec<Vec<T>> = serde_json::from_value(rows.clone()).unwrap();
    rows.into_iter().flatten().collect()
}

fn batch(step: &Value, device: &TpuDevice) -> Batch<Device> {
    let size = step["tokens"].as_array().unwrap().len();
    let (tokens, starts) = (rows::<i32>(&step["tokens"]), rows::<i32>(&step["starts"]));
    let (weights, length) = (rows::<f32>(&step["weights"]), starts.len() / size);
    Batch {
        tokens: Tensor::from_data(TensorData::new(tokens, [size, length + 1]), device),
        weights: Tensor::from_data(TensorData::new(weights, [size, length]), (device, DType::F32)),
        starts: Some(Tensor::from_data(TensorData::new(starts, [size, length]), device)),
    }
}

/// Trains as the reference does, with tokens that chips split if there is a context, and compares each loss.
fn assert_losses<M>(model: M, json: &Value, expected: &str, context: Option<Context<Autodiff<Device>>>)
where
    M: LanguageModel<Autodiff<Device>> + AutodiffModule<Autodiff<Device>> + 'static,
{
    let device = model.devices().remove(0);
    let number = |name: &str| json[name].as_f64().unwrap();
    let optimizer = DeviceAdamW::new().with_epsilon(1e-8).with_gradient_norm(number("norm") as f32);
    let optimizer = optimizer.with_weight_decay(number("weight_decay") as f32);
    let mut step = compile_step(model, optimizer, move |model: &M, batch: Batch<Device>| {
        let batch = Batch::from_inner(batch);
        let loss = match &context {
            Some(context) => batch.loss_over(model, context).unwrap(),
            None => batch.loss(model).unwrap(),
        };
        (loss.clone(), loss.inner())
    });
    let steps = json["steps"].as_array().unwrap();
    assert!(steps.len() >= 10);
    for (number, (batch_json, expected)) in steps.iter().zip(json[expected].as_array().unwrap()).enumerate() {
        let loss = step.run(json["rate"].as_f64().unwrap(), batch(batch_json, &device)).unwrap();
        let (loss, expected) = (f64::from(loss.into_scalar()), expected.as_f64().unwrap());
        assert!((loss - expected).abs() < 1e-5, "step {number}: {loss} instead of {expected}");
    }
}

#[test]
fn training_has_the_losses_of_jax() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let json = reference_json("finetune");
    let files = TinyWeights::new(&json["config"]);
    let source = Source::open(files.path()).unwrap();
    let load = || source.load::<Autodiff<Device>>(&device).unwrap();
    assert_losses(load(), &json, "full_losses", None);
    assert_losses(load().into_loop(Keep::Products).unwrap(), &json, "full_losses", None);

    let lora = LoraConfig {
        rank: json["rank"].as_u64().unwrap() as usize,
        alpha: json["alpha"].as_f64().unwrap(),
        ..LoraConfig::default()
    };
    let folder = tempfile::tempdir().unwrap();
    load().with_lora(&lora).unwrap().save_lora(folder.path()).unwrap();
    let begin = |name: &str, count| if name.contains("lora_A") { noise(name, count) } else { vec![0.0; count] };
    crate::families::replace_weights(&folder.path().join("adapter_model.safetensors"), begin);
    let adapted = || load().load_lora(folder.path()).unwrap();
    assert_losses(adapted(), &json, "adapter_losses", None);
    assert_losses(adapted().into_loop(Keep::Nothing).unwrap(), &json, "adapter_losses", None);
}

#[test]
fn training_on_a_mesh_has_the_losses_of_jax() {
    let Some((_, _alone)) = crate::cpu() else { return };
    let device = TpuDevice::mesh(Mesh::new().axis("fsdp", 2).axis("context", 2).on(Platform::Cpu));
    crate::options().install(&device).ok();
    let json = reference_json("finetune");
    let files = TinyWeights::new(&json["config"]);
    let source = Source::open(files.path()).unwrap();
    let model = source.load(&device).unwrap();
    let model = place(model, &source.config().placement(None, Some("fsdp+context"), None)).unwrap();
    let context = Context::new(&device, "context", ContextForm::Gathered).unwrap();
    assert_losses(model, &json, "full_losses", Some(context));
}

/// The loop has the layers whose windows differ in one trip, and what is left of Gemma 3's after it.
#[test]
fn layers_as_a_loop_have_the_loss_and_the_gradients_of_layers_one_by_one() {
    type B = Autodiff<Device>;
    for family in ["llama-3.1", "gemma2", "gemma3", "qwen3-moe"] {
        let device = TpuDevice::ndarray();
        let json = reference_json(family);
        let source = TinyWeights::new(&json["config"]);
        let model = Source::open(source.path()).unwrap().load::<B>(&device).unwrap();
        assert_eq!(model.config().num_params(), model.num_params(), "{family}");
        let tokens = Tensor::<B, 2, Int>::from_data([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]], &device);
        let starts = Tensor::from_data([[0, 0, 0, 3, 3, 3, 3], [0; 7]], &device);
        let looped = model.clone().into_loop(Keep::Products).unwrap();
        assert_eq!(looped.num_params(), model.num_params(), "{family}");
        let expected = model.nats(tokens.clone(), Some(starts.clone()));
        let found = looped.nats(tokens, Some(starts)).unwrap();
        let near = |a: TensorData, b: TensorData| a.assert_approx_eq::<f32>(&b, Tolerance::absolute(2e-5));
        near(found.to_data(), expected.to_data());
        let mut wanted = expected.sum().backward();
        let mut gradients = found.sum().backward();
        let of_layers = looped.into_decoder();
        let wanted = model.embed_tokens.weight.as_ref().unwrap().grad_remove(&mut wanted).unwrap();
        let gradient = of_layers.embed_tokens.weight.as_ref().unwrap().grad_remove(&mut gradients).unwrap();
        near(gradient.into_data(), wanted.into_data());
        assert_eq!(of_layers.layers.len(), model.layers.len(), "{family}");
    }
}

/// Heads of queries that share their keys do not hide attention from the rewrites: both of its products are computed in
/// blocks of queries, forward and backward.
#[test]
fn attention_is_computed_in_blocks_of_queries_in_training() {
    type B = Autodiff<Tpu>;
    let config = Config {
        context: 1024,
        ..Config::from_hugging_face(&reference_json("llama-3.1")["config"].to_string()).unwrap()
    };
    let fit = Fit::new().unwrap().slices([]);
    let report = fit.run(
        |device| (config.init::<B>(device).unwrap().into_loop(Keep::Nothing).unwrap(), None),
        |(model, _), device| {
            let loss = model.nats(Tensor::zeros([1, 1025], device), None).unwrap().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            (model, Some((loss, gradients)))
        },
    );
    assert_eq!(report.unwrap().step.rewrites.get("query_blocks"), Some(&2));
}

/// The batch is what is split in the loop. If the partitioner split the sums of each product instead, as it does if
/// nobody says that a carry is a batch, the devices would exchange activations: five times the bytes.
#[test]
fn an_adapter_trains_on_a_mesh_with_its_batch_split() {
    type B = Autodiff<Tpu>;
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let config = serde_json::json!({
        "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 128,
    });
    let config = Config::from_hugging_face(&config.to_string()).unwrap();
    let fit = Fit::new().unwrap().slices(["v5e:2x2".parse().unwrap()]).mesh(Mesh::new().axis("fsdp", 4));
    let report = fit.run(
        |device| {
            let model = config.init::<B>(device).unwrap().with_lora(&LoraConfig { rank: 8, ..LoraConfig::default() });
            let model = model.unwrap().into_loop(Keep::Nothing).unwrap();
            (place(model, &config.placement(None, Some("fsdp"), None)).unwrap(), None)
        },
        |(model, _), device| {
            let tokens = TensorData::new(vec![0i32; 4 * 129], [4, 129]);
            let loss = model.nats(Tensor::from_data(tokens, device), None).unwrap().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            (model, Some((loss, gradients)))
        },
    );
    let collectives = &report.unwrap().slices[0].collectives;
    let given: u64 = collectives.iter().map(|collective| collective.operand_bytes).sum();
    assert!((1..4 << 20).contains(&given), "{collectives:?}");
}

#[test]
fn texts_in_one_row_have_the_losses_that_they_have_alone() {
    let json = reference_json("gemma3");
    let files = TinyWeights::new(&json["config"]);
    let model = Source::open(files.path()).unwrap().load::<Flex>(&FlexDevice).unwrap();
    let example = |tokens: &[u32]| Example { tokens: tokens.to_vec(), learned: vec![true; tokens.len()] };
    let texts = [[3, 1, 4, 1, 5].as_slice(), &[9, 2, 6, 5, 3, 5, 8]].map(example);
    let nats = |examples: &[Example], length: usize| {
        let rows = Rows::new(examples, length);
        assert_eq!(rows.rows().len(), 1);
        rows.batch::<Flex>(&[0], &FlexDevice).nats(&model).unwrap()
    };
    let together = nats(&texts, 13);
    let alone = nats(&texts[..1], 4) + nats(&texts[1..], 9);
    together.into_data().assert_approx_eq::<f32>(&alone.into_data(), Tolerance::absolute(1e-5));
}

#[test]
fn of_a_conversation_the_assistants_part_is_learned() {
    let tokenizer = bytes_tokenizer();
    let source = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|end|>\n{% endfor %}\
                  {% if add_generation_prompt %}a:{% endif %}";
    let template = ChatTemplate::new(source, "", "").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.jsonl");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let message = |role: &str, content: &str| serde_json::json!({"role": role, "content": content});
    let line = |messages: &[Value]| serde_json::json!({"messages": messages, "id": 3}).to_string();
    let both = line(&[message("user", "hé?"), message("assistant", "ü, hello."), message("user", "x")]);
    write(&format!("{both}\n\n"));
    let examples = Example::read_conversations(&tokenizer, &template, &path).unwrap();
    let learned = examples[0].tokens.iter().zip(&examples[0].learned).filter(|(_, learned)| **learned);
    let learned: Vec<u32> = learned.map(|(token, _)| *token).collect();
    assert_eq!(learned, [tokenizer.encode_templated("ü, hello.").unwrap(), vec![259]].concat());
    assert_eq!(tokenizer.decode(&examples[0].tokens).unwrap(), "u:hé?\na:ü, hello.\nu:x\n");
    let bytes = Rows::new(&examples, 64).learned_bytes(&tokenizer).unwrap();
    assert_eq!(bytes, "ü, hello.".len());

    let error = |text: &str| {
        write(text);
        Example::read_conversations(&tokenizer, &template, &path).unwrap_err().to_string()
    };
    let silent = line(&[message("user", "x")]);
    assert!(error(&format!("{both}\n{silent}")).contains("has a line 2 in which no assistant speaks"));
    let message = error("\n{\"text\": \"x\"}");
    assert!(message.contains("has a line 2 that is no conversation with `messages`"), "{message}");
}

#[test]
fn a_text_is_divided_so_that_each_token_is_predicted_once() {
    let tokenizer = bytes_tokenizer();
    let examples = Example::of_text(&tokenizer, "abcdefgh", 3).unwrap();
    let texts: Vec<_> = examples.iter().map(|example| tokenizer.decode(&example.tokens).unwrap()).collect();
    // The first token is one that begins every text.
    assert_eq!(texts, ["abc", "cdef", "fgh"]);
    let rows = Rows::new(&examples, 3);
    assert_eq!(rows.learned_bytes(&tokenizer).unwrap(), 8);
    assert!(rows.batch::<Flex>(&[0, 2], &FlexDevice).starts.is_none());
}
