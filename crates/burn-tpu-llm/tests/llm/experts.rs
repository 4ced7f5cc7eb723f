//! Mixtures of experts: all ways to compute them beside every expert for every token, files with experts, and meshes.

use crate::families::{TinyWeights, noise, reference_json};
use crate::gguf::{File, numbers};
use burn::backend::Autodiff;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::{DType, Tolerance};
use burn_flex::{Flex, FlexDevice};
use burn_tpu::fit::{Fit, FitReport, Verdict};
use burn_tpu::{Keep, Mesh, Platform, Tpu, TpuDevice, TpuOptions, place};
use burn_tpu_llm::model::Mixture;
use burn_tpu_llm::{Config, Decoder, Dispatch, Source};
use safetensors::tensor::SafeTensors;

const WIDTH: usize = 16;
/// Of `mixtral`.
const EXPERTS: usize = 4;

/// Gives parameters values that follow from their number.
struct Noise(usize);

impl<B: Backend> ModuleMapper<B> for Noise {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        self.0 += 1;
        let shape = param.lazy_shape();
        let values = noise(&format!("parameter {}", self.0), shape.num_elements());
        let tensor = Tensor::from_data(TensorData::new(values, shape), (&param.lazy_device(), DType::F32));
        Param::initialized(param.id, tensor.require_grad())
    }
}

fn mixture<B: Backend>(name: &str, device: &B::Device) -> Mixture<B> {
    let config = Config::from_hugging_face(&reference_json(name)["config"].to_string()).unwrap();
    let experts = config.experts.unwrap();
    assert_eq!(config.width, WIDTH);
    Mixture::new(&config, &experts, device).map(&mut Noise(0))
}

/// Rows of tokens whose experts a router is to choose.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Any(usize),
    /// All like one expert most, and all others equally.
    OneExpert(usize),
}

/// Returns what a mixture computes, and the gradients of its input, its router and a stack of weights.
fn results<B: burn::tensor::backend::AutodiffBackend>(
    mixture: &Mixture<B>,
    rows: Rows,
    dispatch: Dispatch,
    device: &B::Device,
) -> Vec<TensorData> {
    let mut mixture = mixture.clone().with_dispatch(dispatch);
    let (Rows::Any(count) | Rows::OneExpert(count)) = rows;
    let mut x = noise("x", count * WIDTH);
    if let Rows::OneExpert(_) = rows {
        x.iter_mut().for_each(|value| *value += 1.0);
        let [_, experts] = mixture.gate.weight.as_ref().unwrap().dims();
        let gate = (0..WIDTH * experts).map(|at| if at % experts == 2 { 0.3f32 } else { 0.0 }).collect();
        let gate = Tensor::from_data(TensorData::new(gate, [WIDTH, experts]), (device, DType::F32));
        mixture.gate.weight = Some(Param::from_tensor(gate));
    }
    let x = Tensor::<B, 3>::from_data(TensorData::new(x, [1, count, WIDTH]), (device, DType::F32)).require_grad();
    let y = mixture.forward(x.clone());
    let weights = Tensor::from_data(TensorData::new(noise("dy", count * WIDTH), [1, count, WIDTH]), device);
    let gradients = (y.clone() * weights).sum().backward();
    let gate = mixture.gate.weight.as_ref().unwrap().grad(&gradients).unwrap();
    let [up, down] = [&mixture.experts.up_proj, &mixture.experts.down_proj].map(|stack| stack.weight.as_ref().unwrap());
    vec![
        y.into_data(),
        x.grad(&gradients).unwrap().into_data(),
        gate.into_data(),
        up.grad(&gradients).unwrap().into_data(),
        down.grad(&gradients).unwrap().into_data(),
    ]
}

const ALL_ROWS: [Rows; 4] = [Rows::Any(1), Rows::Any(11), Rows::OneExpert(7), Rows::Any(64)];

fn assert_all_ways_agree<B: burn::tensor::backend::AutodiffBackend>(name: &str, all: &[Rows], device: &B::Device) {
    let mixture = mixture::<B>(name, device);
    for rows in all.iter().copied() {
        let expected = results(&mixture, rows, Dispatch::Every, device);
        let whole = Dispatch::Capacity { factor: 5.0, group: 0 };
        for dispatch in [Dispatch::Auto, Dispatch::Sorted { block: 1 }, Dispatch::Sorted { block: 8 }, whole] {
            let found = results(&mixture, rows, dispatch, device);
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let found: Vec<f32> = found.iter().collect();
                let far = found.iter().zip(expected.iter::<f32>()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(far < 1e-5, "{name}, {rows:?}, {dispatch:?}: result {at} differs by {far}");
            }
        }
    }
}

#[test]
fn all_ways_to_compute_the_chosen_experts_agree() {
    for name in ["mixtral", "qwen2-moe"] {
        assert_all_ways_agree::<Autodiff<Flex>>(name, &ALL_ROWS, &FlexDevice);
    }
    assert_all_ways_agree::<Autodiff<Tpu<f32>>>("qwen2-moe", &ALL_ROWS, &TpuDevice::ndarray());
    let Some((device, _alone)) = crate::cpu() else { return };
    assert_all_ways_agree::<Autodiff<Tpu<f32>>>("mixtral", &[Rows::OneExpert(7)], &device);
}

fn decoder<B: Backend>(name: &str, device: &B::Device) -> Decoder<B> {
    let source = TinyWeights::new(&reference_json(name)["config"]);
    Source::open(source.path()).unwrap().load(device).unwrap()
}

fn tokens<B: Backend>(rows: usize, length: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let tokens: Vec<i32> = (0..rows * length).map(|at| (at * at * 7 + at / 3) as i32 % 16).collect();
    Tensor::from_data(TensorData::new(tokens, [rows, length]), device)
}

/// The experts of tokens that have no place count 0, and the report says how many there are.
#[test]
fn choices_without_a_place_are_dropped_and_counted() {
    let mixture = mixture::<Autodiff<Flex>>("mixtral", &FlexDevice);
    let of = |dispatch| results(&mixture, Rows::OneExpert(8), dispatch, &FlexDevice)[0].to_vec::<f32>().unwrap();
    let (every, dropped) = (of(Dispatch::Every), of(Dispatch::Capacity { factor: 1.0, group: 0 }));
    // All have experts 2 and 0. Each has room for the first 8 * 2 / 4 tokens.
    for (row, (every, found)) in every.chunks(WIDTH).zip(dropped.chunks(WIDTH)).enumerate() {
        let far = every.iter().zip(found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(far < 1e-6, row < 4, "row {row} differs by {far}");
        assert_eq!(found.iter().all(|value| *value == 0.0), row >= 4, "{found:?}");
    }
    let model = decoder::<Flex>("mixtral", &FlexDevice);
    let report = |dispatch| {
        let model = model.clone().with_dispatch(dispatch);
        model.nats_and_routers(tokens(2, 13, &FlexDevice), None).1.dropped.into_scalar()
    };
    assert_eq!(report(Dispatch::Auto), 0.0);
    assert_eq!(report(Dispatch::Capacity { factor: 2.0, group: 4 }), 0.0);
    // One place for each of 4 experts, and 3 tokens with 2 choices.
    let dropped = report(Dispatch::Capacity { factor: 0.5, group: 3 });
    assert!((1.0 / 3.0..0.8).contains(&dropped), "{dropped}");
}

/// Both losses against their definitions in f64, where the router's input is known: attention adds nothing.
#[test]
fn what_routers_say_is_what_their_definitions_say() {
    let mut json = reference_json("mixtral")["config"].clone();
    json["num_hidden_layers"] = 1.into();
    let source = TinyWeights::new(&json);
    let mut model = Source::open(source.path()).unwrap().load::<Flex>(&FlexDevice).unwrap();
    let output = &mut model.layers[0].self_attn.o_proj.weight;
    *output = output.take().map(|weight| weight.map(|weight| weight.zeros_like()));
    let tokens = tokens::<Flex>(2, 10, &FlexDevice);
    let (nats, report) = model.nats_and_routers(tokens.clone(), None);
    let expected = model.nats(tokens.clone(), None).into_data();
    nats.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));

    let layer = &model.layers[0];
    let x = layer.post_attention_layernorm.forward(model.embed_tokens.forward(tokens.slice_dim(1, 0..9)));
    let burn_tpu_llm::model::Mlp::Mixture(mixture) = &layer.mlp else { panic!("no mixture") };
    let logits: Vec<f64> = mixture.gate.forward(x).into_data().iter::<f64>().collect();
    let (mut counts, mut likings, mut z) = ([0.0; EXPERTS], [0.0; EXPERTS], 0.0);
    for row in logits.chunks(EXPERTS) {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        z += sum.ln().powi(2) / 18.0;
        let mut order: Vec<_> = (0..EXPERTS).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        order[..2].iter().for_each(|expert| counts[*expert] += 1.0 / 18.0);
        row.iter().zip(&mut likings).for_each(|(logit, liking)| *liking += logit.exp() / sum / 18.0);
    }
    let balance: f64 = counts.iter().zip(&likings).map(|(count, liking)| count * liking * EXPERTS as f64).sum();
    for (found, expected) in [(report.balance, balance), (report.z, z)] {
        let found = f64::from(found.into_scalar());
        assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
    }
}

/// A model whose experts and tokens eight devices share.
fn shared_config() -> Config {
    let mut json = reference_json("mixtral")["config"].clone();
    json["num_local_experts"] = 8.into();
    Config::from_hugging_face(&json.to_string()).unwrap()
}

/// Returns the loss of each token, and all weights after a step of gradient descent. Routers that are zero like all experts
/// equally, so that all tokens have the first two.
fn step(dispatch: Dispatch, zero_routers: bool, device: &TpuDevice) -> Vec<TensorData> {
    type B = Autodiff<Tpu<f32>>;
    let config = shared_config();
    let mut model = config.init::<B>(device).unwrap().map(&mut Noise(0)).with_dispatch(dispatch);
    for layer in model.layers.iter_mut().filter(|_| zero_routers) {
        let burn_tpu_llm::model::Mlp::Mixture(mixture) = &mut layer.mlp else { panic!("no mixture") };
        let gate = &mut mixture.gate.weight;
        *gate = gate.take().map(|gate| gate.map(|weight| weight.zeros_like().require_grad()));
    }
    let model = place(model.into_loop(Keep::Nothing).unwrap(), &config.placement(None, None, Some("expert"))).unwrap();
    let (nats, routers) = model.nats_and_routers(tokens(8, 17, device), None).unwrap();
    let loss = nats.clone().mean() + routers.balance * 0.1 + routers.z * 0.1;
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    let mut results = vec![nats.into_data(), routers.dropped.into_data()];
    let optimizer = SgdConfig::new();
    let model = optimizer.init().step(1.0, model, gradients).into_decoder();
    struct Weights(Vec<TensorData>);
    impl ModuleVisitor<B> for Weights {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.push(param.val().into_data());
        }
    }
    let mut weights = Weights(Vec::new());
    model.visit(&mut weights);
    results.extend(weights.0);
    results
}

/// Returns a mesh of eight devices, which share tokens and experts.
fn eight() -> TpuDevice {
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).axis("expert", 4).on(Platform::Cpu));
    TpuOptions::training().cpu_devices(8).disk_cache(false).install(&mesh).ok();
    mesh
}

fn assert_close(found: &[TensorData], expected: &[TensorData], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let far = found.iter::<f32>().zip(expected.iter::<f32>()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-5, "{what}: result {at} differs by {far}");
    }
}

#[test]
fn eight_devices_that_share_tokens_and_experts_compute_what_one_does() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let mesh = eight();
    let rooms = Dispatch::Capacity { factor: 1.0, group: 8 };
    let sorted = Dispatch::Sorted { block: 8 };
    for (dispatch, zero_routers) in [(rooms, false), (sorted, false), (sorted, true)] {
        let [expected, found] = [device, mesh].map(|device| step(dispatch, zero_routers, &device));
        // Rooms drop some tokens.
        assert_eq!(expected[1].iter::<f32>().any(|dropped| dropped > 0.0), dispatch == rooms);
        assert_close(&found, &expected, &format!("{dispatch:?}, {zero_routers}"));
    }
}

#[test]
fn a_mesh_computes_the_chosen_experts_alone() {
    let Some((_, _alone)) = crate::cpu() else { return };
    let (mesh, host) = (eight(), TpuDevice::ndarray());
    let [of_mesh, of_host] = [mesh, host].map(|device| mixture::<Autodiff<Tpu<f32>>>("mixtral", &device));
    for rows in [Rows::Any(64), Rows::OneExpert(10), Rows::Any(7)] {
        let expected = results(&of_host, rows, Dispatch::Every, &host);
        assert_close(&results(&of_mesh, rows, Dispatch::Sorted { block: 1 }, &mesh), &expected, &format!("{rows:?}"));
    }
}

/// A TPU's program has a kernel for sorted rows, forward and backward, and adds no rows to each other.
#[test]
fn a_tpu_computes_sorted_rows_in_kernels() {
    type B = Autodiff<Tpu>;
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let fit = Fit::new().unwrap().slices(["v5e:1x1".parse().unwrap()]);
    let report = fit.run(
        |device| {
            let model = exchanged_config().init::<B>(device).unwrap();
            (model.with_dispatch(Dispatch::Sorted { block: 8 }), None)
        },
        |(model, _), device| {
            let tokens = TensorData::new(vec![0i32; 2 * 129], [2, 129]);
            let loss = model.nats(Tensor::from_data(tokens, device), None).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            (model, Some((loss, gradients)))
        },
    );
    let report = report.unwrap();
    // Three products of each of two layers, and their six gradients.
    assert_eq!(report.step.ops.get("graph.custom_call"), Some(&18), "{:?}", report.step.ops);
    assert!(matches!(report.slices[0].verdict, Verdict::Fits), "{:?}", report.slices[0].verdict);
}

fn exchanged_config() -> Config {
    let config = serde_json::json!({
        "model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256,
        "num_local_experts": 8, "num_experts_per_tok": 2,
    });
    Config::from_hugging_face(&config.to_string()).unwrap()
}

/// Returns the report of a training step on v5e:2x4 whose chips share tokens and experts.
fn shared_step(dispatch: Dispatch) -> FitReport {
    type B = Autodiff<Tpu>;
    let config = exchanged_config();
    let mesh = Mesh::new().axis("data", 2).axis("expert", 4);
    let fit = Fit::new().unwrap().slices(["v5e:2x4".parse().unwrap()]).mesh(mesh);
    let report = fit.run(
        |device| {
            let model = config.init::<B>(device).unwrap().with_dispatch(dispatch).into_loop(Keep::Nothing).unwrap();
            (place(model, &config.placement(None, None, Some("expert"))).unwrap(), None)
        },
        |(model, _), device| {
            let tokens = TensorData::new(vec![0i32; 8 * 129], [8, 129]);
            let loss = model.nats(Tensor::from_data(tokens, device), None).unwrap().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            (model, Some((loss, gradients)))
        },
    );
    report.unwrap()
}

/// Tokens go to their experts and back by all-to-all, and no chip gathers the experts of others.
#[test]
fn chips_exchange_tokens_and_keep_their_experts() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let report = shared_step(Dispatch::Capacity { factor: 1.0, group: 128 });
    let collectives = &report.slices[0].collectives;
    let exchanged: u64 = collectives
        .iter()
        .filter(|collective| collective.kind.contains("all-to-all"))
        .map(|collective| collective.operand_bytes)
        .sum();
    // Forward twice and backward once, to the experts and back, two layers; a device's choices are 2 x 128 x 256 in bf16.
    assert!(exchanged >= 12 * 2 * 128 * 256 * 2, "{collectives:?}");
}

/// Each chip has kernels for its own experts, and gathers tokens alone.
#[test]
fn chips_gather_tokens_and_compute_their_experts_in_kernels() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let report = shared_step(Dispatch::Auto);
    assert!(matches!(report.slices[0].verdict, Verdict::Fits), "{:?}", report.slices[0].verdict);
    let gathered =
        report.slices[0].collectives.iter().filter(|found| found.kind == "all-gather" && found.axes == ["expert"]);
    let gathered: u64 = gathered.map(|found| found.operand_bytes).sum();
    // Inputs forward and again, and gradients, of two layers: 128 tokens of 256 in bf16. The choices are some numbers for each
    // token; the weights of a chip's experts are 1.5 MiB a layer.
    let tokens = 2 * 3 * 128 * 256 * 2;
    assert!((tokens..tokens * 3 / 2).contains(&gathered), "{gathered} of {tokens}: {:?}", report.slices[0].collectives);
}

/// A file of a layer of experts in a type of ggml's, as stacks.
fn file(architecture: &str, kind: u32) -> File {
    let mut file = File::default();
    file.text("general.architecture", architecture);
    for (name, value) in [
        ("block_count", 1),
        ("context_length", 32),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 8),
        ("vocab_size", 8),
        ("expert_count", 3),
        ("expert_used_count", 2),
    ] {
        file.integer(&format!("{architecture}.{name}"), value);
    }
    file.real(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    file.real(&format!("{architecture}.rope.freq_base"), 10000.0);
    let mut tensors: Vec<(&str, Vec<u64>)> = vec![
        ("token_embd", vec![32, 8]),
        ("output_norm", vec![32]),
        ("blk.0.attn_norm", vec![32]),
        ("blk.0.attn_q", vec![32, 32]),
        ("blk.0.attn_k", vec![32, 16]),
        ("blk.0.attn_v", vec![32, 16]),
        ("blk.0.attn_output", vec![32, 32]),
        ("blk.0.ffn_norm", vec![32]),
        ("blk.0.ffn_gate_inp", vec![32, 3]),
        ("blk.0.ffn_gate_exps", vec![32, 64, 3]),
        ("blk.0.ffn_up_exps", vec![32, 64, 3]),
        ("blk.0.ffn_down_exps", vec![64, 32, 3]),
    ];
    if architecture == "qwen2moe" {
        file.integer("qwen2moe.expert_feed_forward_length", 64);
        file.integer("qwen2moe.expert_shared_feed_forward_length", 32);
        tensors.extend([
            ("blk.0.ffn_gate_inp_shexp", vec![32]),
            ("blk.0.ffn_gate_shexp", vec![32, 32]),
            ("blk.0.ffn_up_shexp", vec![32, 32]),
            ("blk.0.ffn_down_shexp", vec![32, 32]),
        ]);
    }
    for (index, (name, shape)) in tensors.iter().enumerate() {
        let count = shape.iter().product::<u64>() as usize;
        let name = format!("{name}.weight");
        if kind == Q8_0 && name.contains("_exps") {
            file.blocks(&name, shape, kind, (0..count / 32).flat_map(|block| q8_block(index + block)).collect());
        } else {
            file.floats(&name, shape, &numbers(index, count));
        }
    }
    for bias in ["q", "k", "v"].into_iter().filter(|_| architecture == "qwen2moe") {
        let count = if bias == "q" { 32 } else { 16 };
        file.floats(&format!("blk.0.attn_{bias}.bias"), &[count], &numbers(7, count as usize));
    }
    file
}

/// The number of ggml's type of blocks of 32 integers with a scale.
const Q8_0: u32 = 8;

/// A block whose scale is 1/64 and whose integers count from a number.
fn q8_block(number: usize) -> Vec<u8> {
    let scale = half::f16::from_f32(1.0 / 64.0).to_le_bytes();
    scale.into_iter().chain((0..32).map(|at| ((number * 5 + at * 3) % 64) as u8)).collect()
}

#[test]
fn files_of_gguf_have_their_experts_in_stacks() {
    for (architecture, kind) in [("llama", 0), ("llama", Q8_0), ("qwen2moe", 0)] {
        let (_folder, path) = file(architecture, kind).write();
        let source = Source::open(&path).unwrap();
        let experts = source.config().experts.unwrap();
        let shared = (architecture == "qwen2moe").then_some(32);
        assert_eq!((experts.count, experts.per_token, experts.feed_forward), (3, 2, 64));
        assert_eq!((experts.shared, experts.normalised), (shared, architecture == "llama"));
        let model = source.load::<Flex>(&FlexDevice).unwrap();
        let burn_tpu_llm::model::Mlp::Mixture(mixture) = &model.layers[0].mlp else { panic!("no mixture") };
        let up: Vec<f32> = mixture.experts.up_proj.weight.as_ref().unwrap().val().into_data().to_vec().unwrap();
        // `[experts, inputs, outputs]` here, a row of inputs for each output and expert in the file.
        let expected: Vec<f32> = match kind {
            0 => numbers(10, 3 * 64 * 32),
            _ => (0..3 * 64)
                .flat_map(|row| (0..32).map(move |at| ((50 + row * 5 + at * 3) % 64) as f32 / 64.0))
                .collect(),
        };
        for (at, expected) in expected.iter().enumerate() {
            let (expert, output, input) = (at / (64 * 32), at / 32 % 64, at % 32);
            assert_eq!(up[(expert * 32 + input) * 64 + output], *expected, "{architecture}, {kind}: {at}");
        }
        let tokens = || Tensor::<Flex, 2, Int>::from_data([[1, 5, 2, 7, 0]], &FlexDevice);
        let logits = model.forward(tokens());
        // As a folder of Hugging Face's.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), source.config().to_hugging_face().unwrap()).unwrap();
        burn_tpu_llm::save_weights(&model, &folder.path().join("model.safetensors")).unwrap();
        let again = Source::open(folder.path()).unwrap().load::<Flex>(&FlexDevice).unwrap();
        assert_eq!(again.forward(tokens()).into_data(), logits.clone().into_data());
        // In 8 bits, the numbers of the file.
        if kind == Q8_0 {
            let few = source.load_few_bits::<Flex>(burn_tpu_llm::Bits::Eight, &FlexDevice).unwrap();
            let burn_tpu_llm::model::Mlp::Mixture(mixture) = &few.layers[0].mlp else { panic!("no mixture") };
            assert_eq!(mixture.experts.down_proj.few_bits.len(), 3);
            let far = (few.forward(tokens()) - logits).abs().max().into_scalar();
            assert!(far < 0.05, "the other weights are rounded: {far}");
        }
    }
}

/// The names in a folder are those of each expert.
#[test]
fn folders_have_each_expert_for_itself() {
    for (name, part) in [("mixtral", "block_sparse_moe.experts.3.w2"), ("qwen3-moe", "mlp.experts.4.down_proj")] {
        let source = TinyWeights::new(&reference_json(name)["config"]);
        let path = source.path().join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        let model = Source::open(source.path()).unwrap().load::<Flex>(&FlexDevice).unwrap();
        let saved = source.path().join("again.safetensors");
        burn_tpu_llm::save_weights(&model, &saved).unwrap();
        let again = std::fs::read(&saved).unwrap();
        let [first, second] = [&bytes, &again].map(|bytes| SafeTensors::deserialize(bytes).unwrap());
        let weight = first.tensor(&format!("model.layers.1.{part}.weight")).unwrap();
        assert_eq!(weight.shape()[0], WIDTH, "{name}");
        assert_eq!(first.names().len(), second.names().len());
        for (name, view) in first.tensors() {
            let found = second.tensor(&name).unwrap();
            assert_eq!((found.shape(), found.data()), (view.shape(), view.data()), "{name}");
        }
    }
}
