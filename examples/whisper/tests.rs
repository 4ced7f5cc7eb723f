//! A small Whisper of made-up weights: what CTranslate2 computes with its file, and what burn-flex and the CPU plugin do.

use crate::ct2::Ct2File;
use crate::model::Whisper;
use crate::transcribe::Transcriber;
use crate::weights;
use burn::prelude::*;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Tpu, TpuDevice, TpuOptions};
use std::process::Command;

const MELS: usize = 4;
const FRAMES: usize = 12;
const WIDTH: usize = 8;
const INNER: usize = 16;
const VOCABULARY: usize = 20;
const LENGTH: usize = 10;
/// What stands before a text.
const PROMPT: [i32; 2] = [1, 2];

/// What CTranslate2 4.8.5 computes with the file and the spectrogram of these tests: the first vector that the encoder
/// finds, and the tokens that greedy decoding writes.
const ENCODED: [f32; WIDTH] =
    [-0.26750106, -0.25912732, -0.01733026, -0.06228691, 0.5051884, 0.4284484, -0.70559597, -0.14807904];
const TOKENS: [i32; 5] = [6, 9, 4, 12, 6];

/// Writes files as CTranslate2 does.
#[derive(Default)]
pub struct Writer {
    arrays: Vec<u8>,
    count: u32,
}

impl Writer {
    /// Adds an array; `dtype` is its type's number.
    pub fn array(&mut self, name: &str, sizes: &[usize], dtype: u8, bytes: &[u8]) {
        self.arrays.extend(string(name));
        self.arrays.push(sizes.len() as u8);
        sizes.iter().for_each(|size| self.arrays.extend((*size as u32).to_le_bytes()));
        self.arrays.push(dtype);
        self.arrays.extend((bytes.len() as u32).to_le_bytes());
        self.arrays.extend(bytes);
        self.count += 1;
    }

    /// Returns the file with its second names.
    pub fn finish(self, kind: &str, aliases: &[(&str, &str)]) -> Vec<u8> {
        let mut file = [6_u32.to_le_bytes().to_vec(), string(kind), 3_u32.to_le_bytes().to_vec()].concat();
        file.extend(self.count.to_le_bytes());
        file.extend(self.arrays);
        file.extend((aliases.len() as u32).to_le_bytes());
        aliases.iter().for_each(|(alias, name)| file.extend([string(alias), string(name)].concat()));
        file
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16 + 1).to_le_bytes(), text.as_bytes(), &[0]].concat()
}

/// Draws multiples of 1/64 between -1/2 and 1/2, which every type of float has.
struct Draw(u32);

impl Draw {
    fn numbers(&mut self, count: usize) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((self.0 >> 16) % 65) as f32 / 64.0 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }
}

/// Returns the small model's arrays: names and sizes.
fn arrays() -> Vec<(String, Vec<usize>)> {
    let mut arrays = Vec::new();
    let mut add = |name: String, sizes: &[usize]| arrays.push((name, sizes.to_vec()));
    let mut layer = |name: String, rows: usize, columns: usize| {
        add(format!("{name}/weight"), &[rows, columns]);
        add(format!("{name}/bias"), &[rows]);
    };
    let layers = ["encoder", "decoder"].map(|half| (0..2).map(move |index| format!("{half}/layer_{index}")));
    for name in layers.into_iter().flatten() {
        layer(format!("{name}/self_attention/linear_0"), 3 * WIDTH, WIDTH);
        layer(format!("{name}/self_attention/linear_1"), WIDTH, WIDTH);
        if name.starts_with("decoder") {
            layer(format!("{name}/attention/linear_0"), WIDTH, WIDTH);
            layer(format!("{name}/attention/linear_1"), 2 * WIDTH, WIDTH);
            layer(format!("{name}/attention/linear_2"), WIDTH, WIDTH);
        }
        layer(format!("{name}/ffn/linear_0"), INNER, WIDTH);
        layer(format!("{name}/ffn/linear_1"), WIDTH, INNER);
    }
    let norms: Vec<String> =
        arrays.iter().filter_map(|(name, _)| name.strip_suffix("/linear_0/weight")).map(Into::into).collect();
    for name in norms.into_iter().chain(["encoder".to_owned(), "decoder".to_owned()]) {
        arrays.push((format!("{name}/layer_norm/gamma"), vec![WIDTH]));
        arrays.push((format!("{name}/layer_norm/beta"), vec![WIDTH]));
    }
    let others: [(&str, &[usize]); 7] = [
        ("encoder/conv1/weight", &[WIDTH, MELS, 3]),
        ("encoder/conv1/bias", &[WIDTH]),
        ("encoder/conv2/weight", &[WIDTH, WIDTH, 3]),
        ("encoder/conv2/bias", &[WIDTH]),
        ("encoder/position_encodings/encodings", &[FRAMES / 2, WIDTH]),
        ("decoder/position_encodings/encodings", &[LENGTH, WIDTH]),
        ("decoder/embeddings/weight", &[VOCABULARY, WIDTH]),
    ];
    arrays.extend(others.map(|(name, sizes)| (name.to_owned(), sizes.to_vec())));
    arrays
}

/// Returns the small model's file without the arrays of which `keep` is false.
fn file(keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let (mut file, mut draw) = (Writer::default(), Draw(386));
    for (name, sizes) in arrays() {
        let numbers = draw.numbers(sizes.iter().product());
        if keep(&name) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| half::f16::from_f32(*number).to_le_bytes()).collect();
            file.array(&name, &sizes, 4, &bytes);
        }
    }
    // What else CTranslate2 asks for: exact GELU, and layer norm before each part.
    let integers: [(&str, u8, &[u8]); 6] = [
        ("encoder/num_heads", 2, &[2, 0]),
        ("decoder/num_heads", 2, &[2, 0]),
        ("decoder/activation", 1, &[3]),
        ("decoder/pre_norm", 1, &[1]),
        ("decoder/scale_embeddings", 1, &[0]),
        ("decoder/start_from_zero_embedding", 1, &[0]),
    ];
    integers
        .iter()
        .filter(|(name, ..)| keep(name))
        .for_each(|(name, dtype, bytes)| file.array(name, &[], *dtype, bytes));
    file.finish("WhisperSpec", &[("decoder/projection/weight", "decoder/embeddings/weight")])
}

fn model<B: Backend>(device: &B::Device) -> Whisper<B> {
    weights::load(&Ct2File::parse(&file(|_| true)).unwrap(), device).unwrap()
}

/// Returns what the encoder finds in a made-up spectrogram, and the tokens of a greedy text.
fn run<B: Backend>(model: &Whisper<B>, device: &B::Device) -> (Vec<f32>, Vec<i32>) {
    let mel = TensorData::new(Draw(3).numbers(MELS * FRAMES), [1, MELS, FRAMES]);
    let encoded = model.encoder.forward(Tensor::from_data(mel, device));
    let (mut cache, mut tokens) = (model.decoder.begin(&encoded), PROMPT.to_vec());
    for position in 0..PROMPT.len() + TOKENS.len() - 1 {
        let token = Tensor::from_data([[tokens[position]]], device);
        let logits;
        (logits, cache) = model.decoder.forward(token, position, cache);
        if position + 1 == tokens.len() {
            tokens.push(logits.argmax(1).into_scalar().elem());
        }
    }
    (encoded.into_data().to_vec().unwrap(), tokens.split_off(PROMPT.len()))
}

/// Returns the largest difference of two lists.
pub fn farthest(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max)
}

#[test]
fn a_small_whisper_computes_what_ctranslate2_does() {
    let model = model::<Flex>(&FlexDevice);
    let (encoded, tokens) = run(&model, &FlexDevice);
    let far = farthest(&encoded[..WIDTH], &ENCODED);
    assert!(far < 1e-5, "differs by {far}: {:?}", &encoded[..WIDTH]);
    assert_eq!(tokens, TOKENS);
}

#[test]
fn the_tpu_backend_computes_what_burn_flex_does_and_compiles_nothing_for_a_second_text() {
    if burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu).is_none() {
        return;
    }
    let device = TpuDevice::cpu(0);
    TpuOptions::inference().disk_cache(false).install(&device).unwrap();
    let ours = model::<Tpu<f32>>(&device);
    let (encoded, tokens) = run(&ours, &device);
    let first = device.metrics();
    assert_eq!(run(&ours, &device), (encoded.clone(), tokens.clone()));
    let second = device.metrics();
    assert_eq!((first.interpreted, second.compiles, second.host_fallbacks), (0, first.compiles, 0));

    let (expected, others) = run(&model::<Flex>(&FlexDevice), &FlexDevice);
    let far = farthest(&encoded, &expected);
    assert!(far < 1e-5, "differs by {far}");
    assert_eq!(tokens, others);
}

#[test]
fn a_weight_that_is_missing_or_has_other_sizes_is_named() {
    let error = |bytes: &[u8]| {
        let model = weights::load::<Flex>(&Ct2File::parse(bytes).unwrap(), &FlexDevice);
        model.expect_err("an error").to_string()
    };
    for name in ["encoder/conv1/bias", "decoder/layer_1/attention/linear_1/weight", "decoder/num_heads"] {
        assert_eq!(error(&file(|kept| kept != name)), format!("there is no `{name}`"));
    }
    let mut other = Writer::default();
    other.array("encoder/conv1/weight", &[WIDTH, MELS, 3], 1, &[0; WIDTH * MELS * 3]);
    other.array("encoder/num_heads", &[], 1, &[3]);
    assert_eq!(error(&other.finish("WhisperSpec", &[])), "`encoder/num_heads` is 3, which does not divide 8");
    let mut other = Writer::default();
    other.array("encoder/conv1/weight", &[WIDTH, MELS, 5], 1, &[0; WIDTH * MELS * 5]);
    other.array("encoder/num_heads", &[], 1, &[2]);
    let message = error(&other.finish("WhisperSpec", &[]));
    assert_eq!(message, "`encoder/conv1/weight` has sizes [8, 4, 5] instead of [8, 4, 3]");
    assert!(error(&Writer::default().finish("TransformerSpec", &[])).contains("kind `TransformerSpec`"));
}

/// Speaks a sentence, and returns its sound at 16 kHz.
fn spoken(sentence: &str) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let done = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    done(Command::new("espeak-ng").args(["-v", "en-us", "-s", "150", "-w"]).arg(path("a.wav")).arg(sentence));
    done(Command::new("sox").args(["-D"]).arg(path("a.wav")).args(["-r", "16000"]).arg(path("b.wav")));
    crate::audio::read(&path("b.wav")).unwrap()
}

fn heard<B: Backend>(sound: &[f32], device: &B::Device) -> (String, Vec<u32>) {
    let folder = burn_tpu_pjrt::discovery::cache_dir().expect("a cache folder").join("whisper");
    let transcript = Transcriber::<B>::load(&folder, device).unwrap().transcribe(sound).unwrap();
    (transcript.text, transcript.ids)
}

#[test]
#[ignore = "needs Whisper's files, espeak-ng and sox"]
fn whisper_hears_what_is_said() {
    const SENTENCE: &str = "Could you please tell me how to get to the nearest railway station?";
    let sound = spoken(SENTENCE);
    let (text, ids) = heard::<Tpu<f32>>(&sound, &TpuDevice::cpu(0));
    assert_eq!(text, SENTENCE);
    assert_eq!(heard::<Flex>(&sound, &FlexDevice).1, ids);
}
