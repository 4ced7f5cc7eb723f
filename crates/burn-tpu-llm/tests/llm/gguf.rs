//! GGUF files that these tests write: their weights, their tokenizers, and what is wrong with some.

use burn_flex::{Flex, FlexDevice};
use burn_tpu_llm::{Source, TextStream, Tokenizer};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file in the making.
#[derive(Clone, Default)]
pub struct File {
    fields: Vec<(String, Vec<u8>)>,
    /// Name, shape with the fastest dimension first, ggml's type, and the bytes.
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat()
}

impl File {
    fn put(&mut self, name: &str, kind: u32, value: &[u8]) {
        self.fields.push((name.to_owned(), [&kind.to_le_bytes(), value].concat()));
    }

    pub fn integer(&mut self, name: &str, value: u32) {
        self.put(name, 4, &value.to_le_bytes());
    }

    pub fn real(&mut self, name: &str, value: f32) {
        self.put(name, 6, &value.to_le_bytes());
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.put(name, 7, &[value.into()]);
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.put(name, 8, &text(value));
    }

    fn list(&mut self, name: &str, kind: u32, values: &[Vec<u8>]) {
        let head = [&kind.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.put(name, 9, &[head, values.concat()].concat());
    }

    fn texts(&mut self, name: &str, values: &[&str]) {
        self.list(name, 8, &values.iter().map(|value| text(value)).collect::<Vec<_>>());
    }

    /// Adds a tensor of f32; the fastest dimension is the first.
    pub fn floats(&mut self, name: &str, shape: &[u64], values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.tensors.push((name.to_owned(), shape.to_vec(), 0, bytes));
    }

    /// Adds a tensor of one of ggml's types, by its number.
    pub fn blocks(&mut self, name: &str, shape: &[u64], kind: u32, blocks: Vec<u8>) {
        self.tensors.push((name.to_owned(), shape.to_vec(), kind, blocks));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.fields.len() as u64).to_le_bytes());
        for (name, value) in &self.fields {
            bytes.extend(text(name));
            bytes.extend(value);
        }
        let mut data = Vec::new();
        for (name, shape, kind, elements) in &self.tensors {
            bytes.extend(text(name));
            bytes.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
            bytes.extend(kind.to_le_bytes());
            bytes.extend((data.len() as u64).to_le_bytes());
            data.extend(elements);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes.extend(data);
        bytes
    }

    pub fn write(&self) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        (folder, path)
    }
}

/// Returns numbers that are not round and do not repeat soon.
pub fn numbers(begin: usize, count: usize) -> Vec<f32> {
    (begin..begin + count).map(|at| ((at * 37 % 101) as f32 - 50.0) / 100.0).collect()
}

/// A model of one layer of 32, with two heads of 8.
fn model() -> File {
    let shapes: [(&str, &[u64]); 5] = [
        ("blk.0.attn_q", &[32, 32]),
        ("blk.0.attn_k", &[32, 16]),
        ("blk.0.attn_v", &[32, 16]),
        ("blk.0.ffn_gate", &[32, 32]),
        ("blk.0.ffn_up", &[32, 32]),
    ];
    model_of("llama", &shapes)
}

/// The same of an architecture that has these products.
fn model_of(architecture: &str, products: &[(&str, &[u64])]) -> File {
    let mut file = File::default();
    file.text("general.architecture", architecture);
    for (name, value) in [
        ("block_count", 1),
        ("context_length", 32),
        ("embedding_length", 32),
        ("feed_forward_length", 32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", 8),
        ("vocab_size", 8),
    ] {
        file.integer(&format!("{architecture}.{name}"), value);
    }
    file.real(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    file.real(&format!("{architecture}.rope.freq_base"), 10000.0);
    let shapes: [(&str, &[u64]); 6] = [
        ("token_embd", &[32, 8]),
        ("output_norm", &[32]),
        ("blk.0.attn_norm", &[32]),
        ("blk.0.attn_output", &[32, 32]),
        ("blk.0.ffn_norm", &[32]),
        ("blk.0.ffn_down", &[32, 32]),
    ];
    for (index, (name, shape)) in products.iter().chain(&shapes).enumerate() {
        file.floats(&format!("{name}.weight"), shape, &numbers(index, shape.iter().product::<u64>() as usize));
    }
    file
}

fn error(path: &Path) -> String {
    let result = Source::open(path).and_then(|source| source.load::<Flex>(&FlexDevice));
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn rows_of_queries_and_keys_are_half_split() {
    let file = model();
    let (_folder, path) = file.write();
    let model = Source::open(&path).unwrap().load::<Flex>(&FlexDevice).unwrap();
    // Row `r` of the file is row `order[r % 8]` of its head here.
    let order = [0, 4, 1, 5, 2, 6, 3, 7];
    let (expected, found) =
        (numbers(0, 32 * 32), model.layers[0].self_attn.q_proj.weight.as_ref().unwrap().val().into_data());
    let found: Vec<f32> = found.to_vec().unwrap();
    for row in 0..32 {
        let here = row / 8 * 8 + order[row % 8];
        for column in 0..32 {
            // [inputs, outputs] here, [outputs, inputs] in the file.
            assert_eq!(found[column * 32 + here], expected[row * 32 + column], "row {row}");
        }
    }
    let value = model.layers[0].self_attn.v_proj.weight.as_ref().unwrap().val();
    let value: Vec<f32> = value.transpose().into_data().to_vec().unwrap();
    assert_eq!(value, numbers(2, 32 * 16));
}

#[test]
fn products_that_a_file_has_as_one_are_divided() {
    let file = model_of("phi3", &[("blk.0.attn_qkv", &[32, 64]), ("blk.0.ffn_up", &[32, 64])]);
    let (_folder, path) = file.write();
    let model = Source::open(&path).unwrap().load::<Flex>(&FlexDevice).unwrap();
    let (attention, mlp) = (&model.layers[0].self_attn, &model.layers[0].mlp);
    let burn_tpu_llm::model::Mlp::Dense(mlp) = mlp else { panic!("a mixture") };
    let rows = |projections: &[&burn_tpu_llm::model::Projection<Flex>]| -> Vec<f32> {
        let weights = projections.iter().map(|projection| projection.weight.as_ref().unwrap().val().transpose());
        weights.flat_map(|weight| weight.into_data().to_vec::<f32>().unwrap()).collect()
    };
    assert_eq!(rows(&[&attention.q_proj, &attention.k_proj, &attention.v_proj]), numbers(0, 32 * 64));
    assert_eq!(rows(&[&mlp.gate_proj, &mlp.up_proj]), numbers(1, 32 * 64));
}

#[test]
fn files_that_are_wrong_say_how() {
    assert!(error(&model().write().1.with_file_name("none.gguf")).contains("none.gguf"));
    let with = |change: &dyn Fn(&mut File)| {
        let mut file = model();
        change(&mut file);
        let (_folder, path) = file.write();
        error(&path)
    };
    assert_eq!(with(&|_| {}), "");
    let message = with(&|file| file.text("general.architecture", "mamba"));
    assert!(message.contains("the architecture `mamba`; this crate runs llama"), "{message}");
    let message = with(&|file| file.integer("llama.parallel_residual", 8));
    assert!(
        message.contains("the field `llama.parallel_residual`: Integer(8), which this crate does not know"),
        "{message}"
    );
    let message = with(&|file| drop(file.tensors.remove(1)));
    assert!(message.contains("`model.layers.0.self_attn.k_proj.weight` [16, 32] is missing"), "{message}");
    let message = with(&|file| file.floats("blk.0.attn_sinks.weight", &[4], &[0.0; 4]));
    assert!(message.contains("`blk.0.attn_sinks.weight` is in the file and not in the model"), "{message}");
    let message = with(&|file| file.tensors[0].2 = 20);
    assert!(message.contains("a tensor `blk.0.attn_q.weight` of ggml's type 20; this crate reads F32"), "{message}");
    let message = with(&|file| file.tensors[0].1 = vec![16, 64]);
    assert!(message.contains("q_proj.weight` has shape [64, 16] instead of [32, 32]"), "{message}");

    let whole = model().bytes();
    let (_folder, path) = model().write();
    std::fs::write(&path, &whole[..whole.len() - 40]).unwrap();
    assert!(
        error(&path).contains("is not whole") && error(&path).contains("blk.0.ffn_down.weight"),
        "{}",
        error(&path)
    );
    std::fs::write(&path, &whole[..60]).unwrap();
    assert!(error(&path).contains("is not whole: it has 60 bytes, and its header goes on"), "{}", error(&path));
    std::fs::write(&path, b"PK").unwrap();
    assert!(error(&path).contains("is not whole"), "{}", error(&path));
    std::fs::write(&path, b"PK and so on").unwrap();
    assert!(error(&path).contains("is no GGUF file"), "{}", error(&path));
}

/// A tokenizer of bytes, with two merges and a token that is no text.
pub fn bytes_tokenizer() -> Tokenizer {
    let mut file = model();
    let bytes: Vec<String> = byte_names();
    let mut tokens: Vec<&str> = bytes.iter().map(String::as_str).collect();
    tokens.extend(["he", "llo", "ll", "<|end|>"]);
    let kinds: Vec<_> = tokens.iter().map(|token| if *token == "<|end|>" { 3i32 } else { 1 }).collect();
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "smollm");
    file.texts("tokenizer.ggml.tokens", &tokens);
    file.list(
        "tokenizer.ggml.token_type",
        5,
        &kinds.iter().map(|kind| kind.to_le_bytes().to_vec()).collect::<Vec<_>>(),
    );
    file.texts("tokenizer.ggml.merges", &["h e", "l l", "ll o"]);
    file.integer("tokenizer.ggml.eos_token_id", 259);
    file.integer("tokenizer.ggml.bos_token_id", 259);
    file.flag("tokenizer.ggml.add_bos_token", true);
    let (_folder, path) = file.write();
    let source = Source::open(&path).unwrap();
    let tokenizer = source.tokenizer().unwrap();
    assert_eq!(source.end_tokens(&tokenizer).unwrap(), [259]);
    assert!(source.template().unwrap_err().to_string().contains("trained to chat"));
    tokenizer
}

/// Returns the characters that stand for the 256 bytes: printable ones for themselves, the rest from 256 on.
fn byte_names() -> Vec<String> {
    let mut next = 256;
    let name = |byte: u32| match byte {
        33..=126 | 161..=172 | 174..=255 => byte,
        _ => {
            next += 1;
            next - 1
        }
    };
    (0..256).map(name).map(|code| char::from_u32(code).unwrap().to_string()).collect()
}

#[test]
fn texts_come_back_from_their_tokens() {
    let tokenizer = bytes_tokenizer();
    assert_eq!(tokenizer.encode("hello").unwrap(), [259, 256, 257]);
    assert_eq!(tokenizer.encode_templated("<|end|>hell").unwrap(), [259, 256, 258]);
    for text in ["Zürich: 🦀 2026!", "  two\n\n lines\t", ""] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
    }
    let json = tokenizer.to_json().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json).unwrap();
    let again = Tokenizer::from_file(&path).unwrap();
    assert_eq!(again.encode("hello 🦀").unwrap(), tokenizer.encode("hello 🦀").unwrap());
    std::fs::write(&path, "{}").unwrap();
    assert!(Tokenizer::from_file(&path).unwrap_err().to_string().contains("tokenizer.json` is no tokenizer"));
}

#[test]
fn text_appears_in_whole_characters_and_ends_before_a_stop_string() {
    let tokenizer = bytes_tokenizer();
    let pieces = |text: &str, stops: &[&str]| {
        let mut stream = TextStream::new(&tokenizer, stops.iter().map(ToString::to_string).collect());
        let mut pieces = Vec::new();
        for token in tokenizer.encode_templated(text).unwrap() {
            pieces.push(stream.push(token).unwrap());
            if stream.stopped() {
                break;
            }
        }
        pieces.push(stream.finish().unwrap());
        pieces
    };
    assert_eq!(pieces("ü🦀!", &[]), ["", "ü", "", "", "", "🦀", "!", ""]);
    assert_eq!(pieces("one. two", &[". t", "zzz"]).concat(), "one");
    assert_eq!(pieces("a.b.", &[". "]), ["a", "", ".b", "", "."]);
    // What never becomes a character appears as the sign for that.
    let mut stream = TextStream::new(&tokenizer, Vec::new());
    assert_eq!(stream.push(0xc3).unwrap() + &stream.finish().unwrap(), "\u{fffd}");
}

#[test]
fn sentence_pieces_are_merged_by_their_scores() {
    let mut file = model();
    let tokens = ["<unk>", "<s>", "</s>", "\u{2581}", "a", "b", "ab", "\u{2581}a", "<0xC3>", "<0xBC>"];
    let kinds = [2, 3, 3, 1, 1, 1, 1, 1, 6, 6];
    let scores = [0.0, 0.0, 0.0, -3.0, -4.0, -5.0, -2.0, -1.0, 0.0, 0.0f32];
    file.text("tokenizer.ggml.model", "llama");
    file.texts("tokenizer.ggml.tokens", &tokens);
    file.list("tokenizer.ggml.token_type", 5, &kinds.map(|kind: i32| kind.to_le_bytes().to_vec()));
    file.list("tokenizer.ggml.scores", 6, &scores.map(|score| score.to_le_bytes().to_vec()));
    file.integer("tokenizer.ggml.bos_token_id", 1);
    file.integer("tokenizer.ggml.unknown_token_id", 0);
    let (_folder, path) = file.write();
    let tokenizer = Source::open(&path).unwrap().tokenizer().unwrap();
    // "▁a" has a higher score than "ab".
    assert_eq!(tokenizer.encode("ab ba").unwrap(), [1, 7, 5, 3, 5, 4]);
    assert_eq!(tokenizer.encode("\u{fc}").unwrap(), [1, 3, 8, 9]);
    for text in ["ab ba", "\u{fc}a"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()).unwrap(), text);
    }
}

#[test]
fn other_tokenizers_are_refused_by_name() {
    let with = |model: &str, pre: &str| {
        let mut file = self::model();
        file.text("tokenizer.ggml.model", model);
        file.text("tokenizer.ggml.pre", pre);
        file.texts("tokenizer.ggml.tokens", &["a"]);
        file.texts("tokenizer.ggml.merges", &[]);
        let (_folder, path) = file.write();
        Source::open(&path).unwrap().tokenizer().unwrap_err().to_string()
    };
    assert!(with("t5", "").contains("the unknown model Some(\"t5\"); known are gpt2 and llama"));
    assert!(with("gpt2", "tekken").contains("divides texts as `tekken` does"));
}
