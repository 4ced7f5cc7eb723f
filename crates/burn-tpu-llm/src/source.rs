//! A model's files: a GGUF file, or a folder as Hugging Face has it.

use crate::config::Config;
use crate::error::{LlmError, Result};
use crate::model::{Bits, Decoder};
use crate::template::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::weights::gguf::{Gguf, GgufTensors, Value as Meta};
use crate::weights::safetensors::Shards;
use crate::weights::{self, Part, Tensors, write_text};
use burn::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names of tokens that end an answer, where GGUF's metadata name only one.
const ENDS: [&str; 5] = ["<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|endoftext|>"];

/// The files of a model, of which only headers have been read.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    config: Config,
    files: Files,
}

#[derive(Debug)]
enum Files {
    Gguf(Gguf),
    Folder(Shards),
}

impl Config {
    /// Reads a `config.json`, that of a folder, or the metadata of a GGUF file. There need be no weights in the folder.
    ///
    /// # Errors
    /// [`LlmError::File`], [`LlmError::Format`] and [`LlmError::Config`].
    pub fn open(path: &Path) -> Result<Self> {
        let json = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
        if json.extension().is_none_or(|end| end != "json") {
            return Self::from_gguf(&Gguf::open(path)?);
        }
        Self::from_hugging_face(&std::fs::read_to_string(&json).map_err(LlmError::file("read", &json))?)
    }
}

impl Source {
    /// Opens a GGUF file, or a folder with `config.json`, `tokenizer.json` and safetensors.
    ///
    /// # Errors
    /// [`LlmError::File`], [`LlmError::Format`] and [`LlmError::Config`].
    pub fn open(path: &Path) -> Result<Self> {
        let (config, files) = if path.is_dir() {
            let config = Config::open(path)?;
            let shards = Shards::open(path)?.divided(&config);
            (config, Files::Folder(shards))
        } else {
            let file = Gguf::open(path)?;
            (Config::from_gguf(&file)?, Files::Gguf(file))
        };
        Ok(Self { path: path.to_path_buf(), config, files })
    }

    /// Returns what the model computes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Loads the weights, in the float type of the backend.
    ///
    /// # Errors
    /// [`LlmError::Weights`] for tensors that are missing, misshapen or too many, with their names; [`LlmError::File`].
    pub fn load<B: Backend>(&self, device: &B::Device) -> Result<Decoder<B>> {
        self.load_into(self.config.init(device)?)
    }

    /// Loads the weights of products and tables in few bits, as [`Decoder::with_few_bits`] says. What a GGUF file has
    /// in Q8_0, Q5_0 or Q4_0 keeps its numbers in 8 bits, and what it has in Q4_0 or Q4_1 keeps them in 4. All else is
    /// rounded, each block of 32 inputs for itself.
    ///
    /// # Errors
    /// Those of [`Source::load`].
    pub fn load_few_bits<B: Backend>(&self, bits: Bits, device: &B::Device) -> Result<Decoder<B>> {
        self.load_into(self.config.init(device)?.with_few_bits(bits))
    }

    fn load_into<B: Backend>(&self, decoder: Decoder<B>) -> Result<Decoder<B>> {
        match &self.files {
            Files::Gguf(file) => self.load_from(decoder, &GgufTensors::new(file, &self.config)),
            Files::Folder(shards) => self.load_from(decoder, shards),
        }
    }

    fn load_from<B: Backend>(&self, decoder: Decoder<B>, tensors: &dyn Tensors) -> Result<Decoder<B>> {
        weights::load(decoder, Part::Model, tensors, &self.path)
    }

    /// Returns the tokenizer.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`], [`LlmError::File`] and [`LlmError::Format`].
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        match &self.files {
            Files::Gguf(file) => Tokenizer::from_gguf(file),
            Files::Folder(_) => Tokenizer::from_file(&self.path.join("tokenizer.json")),
        }
    }

    /// Returns the chat template.
    ///
    /// # Errors
    /// [`LlmError::Template`] if there is none, or if it is no template.
    pub fn template(&self) -> Result<ChatTemplate> {
        let (source, [begin, end]) = match &self.files {
            Files::Gguf(file) => {
                let source = file.metadata.get("tokenizer.chat_template").and_then(Meta::text).map(str::to_owned);
                (source, ["bos", "eos"].map(|role| gguf_name(file, role)))
            }
            Files::Folder(_) => {
                let config = self.json("tokenizer_config.json")?.unwrap_or_default();
                let beside = std::fs::read_to_string(self.path.join("chat_template.jinja")).ok();
                let name = |role| text_of(&config[role]).unwrap_or_default();
                (beside.or(text_of(&config["chat_template"])), [name("bos_token"), name("eos_token")])
            }
        };
        let missing = || format!("is not in `{}`: is this a model that was trained to chat?", self.path.display());
        ChatTemplate::new(&source.ok_or_else(|| LlmError::Template(missing()))?, &begin, &end)
    }

    /// Returns the tokens that end an answer.
    ///
    /// # Errors
    /// [`LlmError::File`] and [`LlmError::Format`] for files that cannot be read.
    pub fn end_tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let mut ends = BTreeSet::new();
        match &self.files {
            Files::Gguf(file) => {
                let ids = ["eos", "eot"].map(|role| file.metadata.get(&format!("tokenizer.ggml.{role}_token_id")));
                ends.extend(ids.into_iter().flatten().filter_map(Meta::number).map(|id| id as u32));
                ends.extend(ENDS.iter().filter_map(|name| tokenizer.token(name)));
            }
            Files::Folder(_) => {
                for file in ["generation_config.json", "config.json"] {
                    let ids = self.json(file)?.map(|json| json["eos_token_id"].clone()).unwrap_or_default();
                    let ids = if ids.is_array() { ids } else { json!([ids]) };
                    ends.extend(ids.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32));
                }
            }
        }
        Ok(ends.into_iter().collect())
    }

    /// Writes a folder as Hugging Face has it: the weights of `model`, which has this source's configuration, its
    /// configuration, tokenizer and chat template.
    ///
    /// # Errors
    /// [`LlmError::File`], [`LlmError::Device`], [`LlmError::Config`] for what `config.json` has no field for, and
    /// [`LlmError::Adapter`] for an adapter that is not merged.
    pub fn save<B: Backend>(&self, model: &Decoder<B>, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(LlmError::file("make", folder))?;
        let write = |name: &str, text: String| write_text(&folder.join(name), &text);
        let tokenizer = self.tokenizer()?;
        write("config.json", model.config().to_hugging_face()?)?;
        write("tokenizer.json", tokenizer.to_json()?)?;
        write("generation_config.json", json!({"eos_token_id": self.end_tokens(&tokenizer)?}).to_string())?;
        if let Ok(template) = self.template() {
            write("tokenizer_config.json", template.to_json())?;
        }
        weights::save_weights(model, &folder.join("model.safetensors"))
    }

    /// Reads a file of a folder; `None` if there is none.
    fn json(&self, name: &str) -> Result<Option<Value>> {
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).map_err(LlmError::file("read", &path))?;
        let json = serde_json::from_str(&text);
        json.map(Some).map_err(|error| LlmError::format(&path, format!("is no JSON: {error}")))
    }
}

/// Returns the text of a value; of an object, that in its field `content`, as tokens may be written.
fn text_of(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

fn gguf_name(file: &Gguf, role: &str) -> String {
    let id = file.metadata.get(&format!("tokenizer.ggml.{role}_token_id")).and_then(Meta::number);
    let names = file.metadata.get("tokenizer.ggml.tokens").and_then(Meta::list);
    let name = names.zip(id).and_then(|(names, id)| names.get(id as usize)).and_then(Meta::text);
    name.unwrap_or_default().to_owned()
}
