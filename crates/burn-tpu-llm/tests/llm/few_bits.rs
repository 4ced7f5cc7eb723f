//! Weights of 8 and 4 bits, beside the same numbers as floats.

use crate::gguf::{File, numbers};
use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::prelude::*;
use burn::tensor::{DType, Tolerance};
use burn_flex::{Flex, FlexDevice};
use burn_tpu::fit::Fit;
use burn_tpu::{DeviceAdamW, Keep, Mesh, Platform, Tpu, TpuDevice, compile_step, place};
use burn_tpu_llm::model::LanguageModel;
use burn_tpu_llm::training::Batch;
use burn_tpu_llm::{Bits, Config, Decoder, LlmError, LoraConfig, Source, save_weights};
use half::f16;

/// The number of ggml's type, and the bytes of a block of it.
const Q4_0: (u32, usize) = (2, 18);
const Q4_1: (u32, usize) = (3, 20);
const Q5_0: (u32, usize) = (6, 22);
const Q8_0: (u32, usize) = (8, 34);

/// The products of a layer, with their inputs and outputs.
const PRODUCTS: [(&str, [u64; 2]); 7] = [
    ("attn_q", [64, 64]),
    ("attn_k", [64, 32]),
    ("attn_v", [64, 32]),
    ("attn_output", [64, 64]),
    ("ffn_gate", [64, 128]),
    ("ffn_up", [64, 128]),
    ("ffn_down", [128, 64]),
];

/// Blocks whose scales, least values and integers differ.
fn blocks((kind, size): (u32, usize), count: usize, begin: usize) -> Vec<u8> {
    let mut blocks = Vec::new();
    for block in 0..count {
        let number = (begin + block) % 23;
        blocks.extend(f16::from_f32(0.004 + 0.0005 * number as f32).to_le_bytes());
        let mut left = size - 2;
        if kind == Q4_1.0 {
            blocks.extend(f16::from_f32(-0.05 + 0.001 * number as f32).to_le_bytes());
            left -= 2;
        }
        // An i8 of 255 is -1.
        blocks.extend((0..left).map(|at| ((begin + block * 7 + at * at * 31) % 256) as u8));
    }
    blocks
}

/// A model of one layer of 64 with its products in these types, in turns.
fn file(kinds: &[(u32, usize)]) -> File {
    file_of(1, kinds)
}

/// The same of so many layers.
fn file_of(layers: usize, kinds: &[(u32, usize)]) -> File {
    let mut file = File::default();
    file.text("general.architecture", "llama");
    for (name, value) in [
        ("block_count", layers as u32),
        ("context_length", 32),
        ("embedding_length", 64),
        ("feed_forward_length", 128),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 16),
        ("vocab_size", 24),
    ] {
        file.integer(&format!("llama.{name}"), value);
    }
    file.real("llama.attention.layer_norm_rms_epsilon", 1e-5);
    file.real("llama.rope.freq_base", 10000.0);
    file.floats("output_norm.weight", &[64], &numbers(3, 64));
    file.blocks("token_embd.weight", &[64, 24], Q8_0.0, blocks(Q8_0, 2 * 24, 5));
    for layer in 0..layers {
        for norm in ["attn_norm", "ffn_norm"] {
            file.floats(&format!("blk.{layer}.{norm}.weight"), &[64], &numbers(3, 64));
        }
        for (at, (name, [inputs, outputs])) in PRODUCTS.into_iter().enumerate() {
            let kind = kinds[at % kinds.len()];
            let blocks = blocks(kind, inputs as usize / 32 * outputs as usize, 3 * layer + at);
            file.blocks(&format!("blk.{layer}.{name}.weight"), &[inputs, outputs], kind.0, blocks);
        }
    }
    file
}

/// Returns the logits of ten tokens in some texts: of many, there are more rows than are multiplied block by block.
fn logits<B: Backend>(model: &Decoder<B>, texts: usize) -> TensorData {
    let tokens = Tensor::<B, 1, Int>::from_data([3, 1, 4, 1, 5, 9, 2, 6, 23, 0], &model.device());
    model.forward(tokens.unsqueeze::<2>().repeat_dim(0, texts)).into_data()
}

#[test]
fn a_file_keeps_its_numbers_in_few_bits() {
    for (bits, kinds) in [(Bits::Four, &[Q4_1, Q4_0][..]), (Bits::Eight, &[Q8_0, Q5_0, Q4_0])] {
        let (_folder, path) = file(kinds).write();
        let source = Source::open(&path).unwrap();
        let whole = source.load::<Flex>(&FlexDevice).unwrap();
        let near = |found: [TensorData; 2]| {
            for (found, texts) in found.iter().zip([1, 4]) {
                found.assert_approx_eq::<f32>(&logits(&whole, texts), Tolerance::absolute(1e-5));
            }
        };
        let model = source.load_few_bits::<Flex>(bits, &FlexDevice).unwrap();
        assert!(model.has_few_bits() && model.layers[0].self_attn.q_proj.weight.is_none());
        let found = model.layers[0].self_attn.q_proj.few_bits.as_ref().unwrap();
        let rows = if bits == Bits::Four { 32 } else { 64 };
        assert_eq!((found.bits(), found.quants.val().dims()), (bits, [rows / 32, 32, 64]));
        near([1, 4].map(|texts| logits(&model, texts)));
        let on = |device: &TpuDevice| {
            let model = source.load_few_bits::<Tpu<f32>>(bits, device).unwrap();
            near([1, 4].map(|texts| logits(&model, texts)));
        };
        on(&TpuDevice::ndarray());
        let Some((device, _alone)) = crate::cpu() else { continue };
        on(&device);
    }
}

/// Of 64 inputs, the integers of 4 bits are one row of blocks, which no axis divides: it stays whole.
#[test]
fn a_mesh_that_splits_few_bits_computes_what_one_device_does() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let mesh = TpuDevice::mesh(Mesh::new().axis("fsdp", 2).axis("tensor", 2).on(Platform::Cpu));
    crate::options().install(&mesh).ok();
    for (bits, kinds) in [(Bits::Four, &[Q4_1][..]), (Bits::Eight, &[Q8_0])] {
        let (_folder, path) = file(kinds).write();
        let source = Source::open(&path).unwrap();
        let one = source.load_few_bits::<Tpu<f32>>(bits, &device).unwrap();
        let many = source.load_few_bits::<Tpu<f32>>(bits, &mesh).unwrap();
        let rule = one.config().placement(Some("tensor"), Some("fsdp"), None);
        let many = place(many, &rule).unwrap();
        for texts in [1, 4] {
            logits(&many, texts).assert_approx_eq::<f32>(&logits(&one, texts), Tolerance::absolute(1e-5));
        }
    }
}

/// Each of eight chips has an eighth of the weights, and they are not gathered: chips exchange activations alone. In 4 bits
/// they exchange more, since the inputs of a byte are half of all inputs apart.
#[test]
fn a_decode_step_over_chips_splits_weights_in_few_bits() {
    if burn_tpu_pjrt::testing::libtpu().is_none() {
        return;
    }
    let config = serde_json::json!({
        "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 2048, "max_position_embeddings": 128,
    });
    let config = Config::from_hugging_face(&config.to_string()).unwrap();
    for (bits, bits_with_scales, most_given) in [(Bits::Eight, 8.5, 0.25), (Bits::Four, 5.0, 0.4)] {
        let fit = Fit::new().unwrap().slices(["v5e:2x4".parse().unwrap()]).mesh(Mesh::new().axis("tensor", 8));
        let report = fit.run(
            |device| {
                let model = config.init::<Tpu>(device).unwrap().with_few_bits(bits);
                let model = place(model, &config.placement(Some("tensor"), None, None)).unwrap();
                (model, Tensor::<Tpu, 2, Int>::zeros([8, 1], device))
            },
            |(model, tokens), _| {
                let next = model.forward(tokens).argmax(2).squeeze_dim(2);
                (model, next)
            },
        );
        let slice = &report.unwrap().slices[0];
        let expected = config.num_params() as f64 * bits_with_scales / 8.0 / 8.0;
        let found = slice.memory.argument_bytes as f64;
        assert!((0.9..1.3).contains(&(found / expected)), "{bits:?}: {found} bytes of arguments, not {expected}");
        let given: u64 = slice.collectives.iter().map(|collective| collective.operand_bytes).sum();
        assert!((given as f64) < expected * most_given, "{bits:?}: {:?}", slice.collectives);
    }
}

#[test]
fn other_numbers_are_rounded_and_more_bits_round_less() {
    let (_folder, path) = file(&[Q5_0]).write();
    let source = Source::open(&path).unwrap();
    let of = |model: Decoder<Flex>| logits(&model, 1).to_vec::<f32>().unwrap();
    let exact = of(source.load(&FlexDevice).unwrap());
    let largest = exact.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let error = |bits| {
        let found = of(source.load_few_bits(bits, &FlexDevice).unwrap());
        found.iter().zip(&exact).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / largest
    };
    // Q5_0 is kept in 8 bits.
    let [four, eight] = [Bits::Four, Bits::Eight].map(error);
    assert!(four > 1e-4 && four < 0.2, "{four}");
    assert!(eight < 1e-5, "{eight}");
}

#[test]
fn weights_in_few_bits_are_not_saved_and_a_width_without_blocks_has_floats() {
    let (_folder, path) = file(&[Q4_1]).write();
    let model = Source::open(&path).unwrap().load_few_bits::<Flex>(Bits::Four, &FlexDevice).unwrap();
    assert!(matches!(save_weights(&model, &path.with_extension("out")), Err(LlmError::FewBits(_))));
    let tiny = crate::families::TinyWeights::new(&crate::families::reference_json("llama-3.1")["config"]);
    let model = Source::open(tiny.path()).unwrap().load_few_bits::<Flex>(Bits::Four, &FlexDevice).unwrap();
    let attention = &model.layers[0].self_attn;
    assert!(attention.q_proj.weight.is_some() && attention.q_proj.few_bits.is_none(), "16 inputs");
}

type Trained = Autodiff<Tpu<f32>>;

/// Low enough that a rounding stays one.
const RATE: f64 = 1e-3;

/// Trains an adapter, and returns the losses, and the bytes of the optimizer's state.
fn losses<M>(model: M, device: &TpuDevice) -> (Vec<f32>, usize)
where
    M: LanguageModel<Trained> + AutodiffModule<Trained> + 'static,
{
    let optimizer = DeviceAdamW::new().with_gradient_norm(1.0);
    let mut step = compile_step(model, optimizer, |model: &M, batch: Batch<Tpu<f32>>| {
        let loss = Batch::from_inner(batch).loss(model).unwrap();
        (loss.clone(), loss.inner())
    });
    let mut losses = Vec::new();
    for number in 0..12 {
        let tokens: Vec<i32> = (0..22).map(|at| (at * at + number % 3) % 24).collect();
        let batch = Batch {
            tokens: Tensor::from_data(TensorData::new(tokens, [2, 11]), device),
            weights: Tensor::ones([2, 10], (device, DType::F32)),
            starts: None,
        };
        losses.push(step.run(RATE, batch).unwrap().into_scalar());
    }
    let state = step.optimizer_state();
    (losses, state.len())
}

#[test]
fn an_adapter_of_few_bits_learns_what_one_of_the_same_numbers_does() {
    let Some((device, _alone)) = crate::cpu() else { return };
    for (bits, kinds) in [(Bits::Four, &[Q4_1, Q4_0][..]), (Bits::Eight, &[Q8_0])] {
        let (folder, path) = file_of(2, kinds).write();
        let source = Source::open(&path).unwrap();
        Tpu::<f32>::seed(&device, 7);
        let whole = source.load::<Trained>(&device).unwrap();
        let whole = whole.with_lora(&LoraConfig { rank: 4, ..LoraConfig::default() }).unwrap();
        whole.save_lora(folder.path()).unwrap();
        let few = source.load_few_bits::<Trained>(bits, &device).unwrap().load_lora(folder.path()).unwrap();
        let (expected, of_whole) = losses(whole, &device);
        assert!(expected[9] < expected[0] - 0.01, "{expected:?}");
        // One of the two as a loop: what differs between them is not what a loop does.
        let found = match bits {
            Bits::Four => losses(few.into_loop(Keep::Nothing).unwrap(), &device).0,
            Bits::Eight => {
                let (found, of_few) = losses(few, &device);
                assert_eq!(of_few, of_whole, "the adapter's moments alone");
                found
            }
        };
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        }
    }
}
