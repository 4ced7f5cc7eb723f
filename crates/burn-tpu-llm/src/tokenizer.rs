//! Texts as tokens and back. The crate `tokenizers` does the work.

mod gguf;
mod stream;

pub use stream::TextStream;

use crate::error::{LlmError, Result};
use crate::weights::gguf::Gguf;
use std::path::Path;

/// Divides texts into tokens, and joins tokens to texts.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// [`LlmError::File`] and [`LlmError::Tokenizer`].
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(LlmError::file("read", path))?;
        Self::from_json(&text).map_err(|error| LlmError::format(path, format!("is no tokenizer: {error}")))
    }

    pub(crate) fn from_gguf(file: &Gguf) -> Result<Self> {
        Self::from_json(&gguf::tokenizer_json(file)?.to_string())
    }

    fn from_json(text: &str) -> Result<Self> {
        let inner =
            tokenizers::Tokenizer::from_bytes(text.as_bytes()).map_err(|error| failed("cannot be built", &error))?;
        Ok(Self { inner })
    }

    /// Returns the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`].
    pub fn to_json(&self) -> Result<String> {
        self.inner.to_string(false).map_err(|error| failed("cannot be written", &error))
    }

    /// Returns the tokens of a text, with those that the model expects around every text.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.tokens(text, true)
    }

    /// Returns the tokens of a text that a chat template made, which has the tokens around it already.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`].
    pub fn encode_templated(&self, text: &str) -> Result<Vec<u32>> {
        self.tokens(text, false)
    }

    /// Returns the tokens of a text that a chat template made, each with the byte at which it begins.
    pub(crate) fn encode_with_places(&self, text: &str) -> Result<Vec<(u32, usize)>> {
        let encoding = self.inner.encode(text, false).map_err(|error| failed("cannot divide the text", &error))?;
        let begins = encoding.get_offsets().iter().map(|(begin, _)| *begin);
        Ok(encoding.get_ids().iter().copied().zip(begins).collect())
    }

    fn tokens(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding =
            self.inner.encode_fast(text, special).map_err(|error| failed("cannot divide the text", &error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the text of tokens, without special ones; bytes that are no UTF-8 become the replacement character.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`].
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.inner.decode(tokens, true).map_err(|error| failed("cannot join the tokens", &error))
    }

    /// Returns the number of a token, by its name.
    pub fn token(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// Returns the name of a token, by its number.
    pub fn name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }
}

fn failed(what: &str, error: &tokenizers::Error) -> LlmError {
    LlmError::Tokenizer(format!("{what}: {error}"))
}
