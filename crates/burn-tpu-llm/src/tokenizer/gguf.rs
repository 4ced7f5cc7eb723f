//! The tokenizer of a GGUF file, as a `tokenizer.json`.

use crate::error::{LlmError, Result};
use crate::weights::gguf::{Gguf, Value};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;

/// A space in SentencePiece's tokens.
const SPACE: &str = "\u{2581}";
/// The parts of a text that Llama 3's merges stay within; `{digits}` is how many digits may be together.
const WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{digits}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The types of tokens.
const NORMAL: i64 = 1;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// The tokenizer's part of the metadata.
struct Vocabulary<'a> {
    file: &'a Gguf,
    tokens: Vec<&'a str>,
    types: Vec<i64>,
}

/// Returns the tokenizer of a file.
pub(super) fn tokenizer_json(file: &Gguf) -> Result<Json> {
    let tokens = file.metadata.get("tokenizer.ggml.tokens").and_then(Value::list);
    let tokens = tokens.ok_or_else(|| wrong("is not in the file: it has no `tokenizer.ggml.tokens`"))?;
    let types = file.metadata.get("tokenizer.ggml.token_type").and_then(Value::list).unwrap_or_default();
    let types = types.iter().map(|kind| kind.number().map_or(NORMAL, |kind| kind as i64));
    let tokens: Vec<_> = tokens.iter().filter_map(Value::text).collect();
    let mut types: Vec<_> = types.collect();
    types.resize(tokens.len(), NORMAL);
    let vocabulary = Vocabulary { file, tokens, types };
    match vocabulary.text("model") {
        Some("gpt2") => vocabulary.bytes(),
        Some("llama") => vocabulary.pieces(),
        found => Err(wrong(&format!("has the unknown model {found:?}; known are gpt2 and llama"))),
    }
}

impl<'a> Vocabulary<'a> {
    /// Returns a tokenizer whose tokens are runs of bytes.
    fn bytes(&self) -> Result<Json> {
        let merges = self.get("merges").and_then(Value::list).ok_or_else(|| wrong("has no `tokenizer.ggml.merges`"))?;
        let merges: Vec<_> = merges.iter().filter_map(Value::text).filter_map(|merge| merge.split_once(' ')).collect();
        let bytes = |regex: bool| {
            let kind = "ByteLevel";
            json!({"type": kind, "add_prefix_space": false, "trim_offsets": true, "use_regex": regex})
        };
        let words = |digits| {
            let regex = WORDS.replace("{digits}", digits);
            let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
            json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
        };
        let pre = self.text("pre").unwrap_or("default");
        let (parts, normalizer) = match pre {
            "gpt-2" => (bytes(true), Json::Null),
            "smollm" => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                (json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]}), Json::Null)
            }
            "llama-bpe" | "llama3" | "llama-v3" => (words("{1,3}"), Json::Null),
            "qwen2" => (words(""), json!({"type": "NFC"})),
            found => {
                return Err(wrong(&format!(
                    "divides texts as `{found}` does, which this crate does not know; a folder with `tokenizer.json` works"
                )));
            }
        };
        let whole = pre.starts_with("llama");
        Ok(self.json(json!({"merges": merges, "ignore_merges": whole}), normalizer, parts, bytes(true)))
    }

    /// Returns a tokenizer of SentencePiece's kind: the pair is merged first whose token has the highest score.
    fn pieces(&self) -> Result<Json> {
        let scores = self.get("scores").and_then(Value::list).ok_or_else(|| wrong("has no `tokenizer.ggml.scores`"))?;
        let scores: Vec<_> = scores.iter().map(|score| score.number().unwrap_or(0.0)).collect();
        let prefix = self.flag("add_space_prefix").unwrap_or(true);
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let mut normalizers = vec![replace(" ", SPACE)];
        let mut decoders = vec![replace(SPACE, " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"})];
        if prefix {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": SPACE}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        let unknown = self.token("unknown").map(|(_, name)| name);
        let model =
            json!({"merges": self.merges(&scores), "byte_fallback": true, "fuse_unk": true, "unk_token": unknown});
        let normalizer = json!({"type": "Sequence", "normalizers": normalizers});
        Ok(self.json(model, normalizer, Json::Null, json!({"type": "Sequence", "decoders": decoders})))
    }

    /// Returns the pairs of tokens that are a token together, in the order in which they are merged.
    fn merges(&self, scores: &[f64]) -> Vec<(&'a str, &'a str)> {
        let numbers: HashMap<_, _> = self.tokens.iter().zip(0..).map(|(token, number)| (*token, number)).collect();
        let mut merges: Vec<(f64, usize, usize, &str, &str)> = Vec::new();
        for (number, token) in self.tokens.iter().enumerate().filter(|(number, _)| self.types[*number] == NORMAL) {
            let begin = merges.len();
            for (at, _) in token.char_indices().skip(1) {
                let (left, right) = token.split_at(at);
                if numbers.contains_key(left) && numbers.contains_key(right) {
                    let score = scores.get(number).copied().unwrap_or(0.0);
                    merges.push((score, left.chars().count(), right.chars().count(), left, right));
                }
            }
            merges[begin..].sort_by_key(|(.., left, right)| (numbers[left] as usize, numbers[right]));
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((b.1, b.2).cmp(&(a.1, a.2))));
        merges.into_iter().map(|(.., left, right)| (left, right)).collect()
    }

    /// Returns the whole file around a model of byte-pair encoding.
    fn json(&self, model: Json, normalizer: Json, parts: Json, decoder: Json) -> Json {
        let vocab: Map<_, _> =
            self.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
        let mut whole = json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab});
        for (name, value) in model.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": self.added(),
            "normalizer": normalizer, "pre_tokenizer": parts, "post_processor": self.around(), "decoder": decoder,
            "model": whole})
    }

    fn added(&self) -> Vec<Json> {
        let named = self.tokens.iter().zip(&self.types).enumerate();
        let named = named.filter(|(_, (_, kind))| **kind == CONTROL || **kind == USER_DEFINED);
        let token = |(id, (name, kind)): (usize, (&&str, &i64))| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": *kind == CONTROL})
        };
        named.map(token).collect()
    }

    /// Returns what puts the tokens around a text that the model expects.
    fn around(&self) -> Json {
        // Without a word about it, SentencePiece's models begin with a token, and others do not.
        let begin = self.flag("add_bos_token").unwrap_or(self.text("model") == Some("llama"));
        let end = self.flag("add_eos_token").unwrap_or(false);
        let begin = self.token("bos").filter(|_| begin);
        let end = self.token("eos").filter(|_| end);
        let special = |(_, name): &(u32, &str)| json!({"SpecialToken": {"id": name, "type_id": 0}});
        let mut single: Vec<_> = begin.iter().map(special).collect();
        single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
        single.extend(end.iter().map(special));
        let mut tokens = Map::new();
        for (id, name) in begin.iter().chain(&end) {
            tokens.insert((*name).to_owned(), json!({"id": name, "ids": [id], "tokens": [name]}));
        }
        let pair = [json!({"Sequence": {"id": "A", "type_id": 0}}), json!({"Sequence": {"id": "B", "type_id": 1}})];
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.file.metadata.get(&format!("tokenizer.ggml.{name}"))
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::text)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        if let Some(Value::Bool(flag)) = self.get(name) { Some(*flag) } else { None }
    }

    fn token(&self, role: &str) -> Option<(u32, &'a str)> {
        let id = self.get(&format!("{role}_token_id"))?.number()? as u32;
        Some((id, self.tokens.get(id as usize)?))
    }
}

fn wrong(reason: &str) -> LlmError {
    LlmError::Tokenizer(reason.to_owned())
}
