//! Byte-pair encoding: training, storing, and what a token is in bytes. The crate `tokenizers` does the work.

use anyhow::{Context, Result, anyhow, ensure};
use std::path::Path;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

/// The token between documents.
const END: &str = "<|end|>";

/// The 256 bytes and the end of a document: every text can be written in these.
pub const LEAST_VOCAB: usize = 257;

/// A tokenizer whose tokens are runs of bytes, as GPT-2's.
pub struct Bpe {
    tokenizer: Tokenizer,
    end: u32,
}

impl Bpe {
    /// Trains a tokenizer of at most `vocab` tokens; of little text, it has fewer.
    pub fn train(documents: &[impl AsRef<str> + Sync], vocab: usize) -> Result<Self> {
        ensure!(vocab >= LEAST_VOCAB, "--vocab must be at least {LEAST_VOCAB}: the bytes, and the end of a document");
        let mut tokenizer = Tokenizer::new(BPE::default());
        // Without a space before the first word, so that a text is its bytes and nothing else.
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab)
            .show_progress(false)
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .special_tokens(vec![AddedToken::from(END, true)]);
        let mut trainer = TrainerWrapper::BpeTrainer(trainer.build());
        let texts = documents.iter().map(AsRef::as_ref);
        tokenizer.train(&mut trainer, texts).map_err(|error| anyhow!("cannot train the tokenizer: {error}"))?;
        Self::of(tokenizer)
    }

    /// Loads what [`Bpe::save`] wrote.
    pub fn load(path: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::from_file(path).map_err(|error| anyhow!("{error}"));
        let named = || format!("`{}` is not a tokenizer that `gpt train` stored", path.display());
        tokenizer.and_then(Self::of).with_context(named)
    }

    fn of(tokenizer: Tokenizer) -> Result<Self> {
        let end = tokenizer.token_to_id(END).with_context(|| format!("it has no token `{END}`"))?;
        Ok(Self { tokenizer, end })
    }

    /// Stores the tokenizer as JSON.
    pub fn save(&self, path: &Path) -> Result<()> {
        let json = self.tokenizer.to_string(false).map_err(|error| anyhow!("cannot write the tokenizer: {error}"))?;
        std::fs::write(path, json).with_context(|| format!("cannot write the tokenizer to `{}`", path.display()))
    }

    /// Returns the number of tokens.
    pub fn vocab(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// Returns the token between documents.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Returns the tokens of a text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| anyhow!("cannot encode: {error}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the tokens of all documents, each followed by [`Bpe::end`].
    pub fn pack(&self, documents: &[String]) -> Result<Vec<u32>> {
        let texts: Vec<&str> = documents.iter().map(String::as_str).collect();
        let encodings = self.tokenizer.encode_batch_fast(texts, false);
        let encodings = encodings.map_err(|error| anyhow!("cannot encode: {error}"))?;
        Ok(encodings.iter().flat_map(|encoding| encoding.get_ids().iter().copied().chain([self.end])).collect())
    }

    /// Returns the text of tokens; bytes that are no UTF-8 become the replacement character.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(|error| anyhow!("cannot decode: {error}"))
    }

    /// Returns the number of bytes of each token: the end of a document has none.
    pub fn token_bytes(&self) -> Vec<usize> {
        // In byte-level encoding, a character of a token's name is a byte of the text.
        let bytes = |token| self.tokenizer.id_to_token(token).map_or(0, |name| name.chars().count());
        (0..self.vocab() as u32).map(|token| if token == self.end { 0 } else { bytes(token) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "the kernel the kernel\tnaïve — the 語 kernels\n\n  the end\n";

    #[test]
    fn a_text_comes_back_from_its_tokens_and_from_a_stored_tokenizer() {
        let bpe = Bpe::train(&[TEXT.repeat(4)], 300).unwrap();
        let tokens = bpe.encode(TEXT).unwrap();
        assert!(tokens.len() < TEXT.len(), "pairs are merged");
        assert_eq!(bpe.decode(&tokens).unwrap(), TEXT);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        bpe.save(&path).unwrap();
        let stored = Bpe::load(&path).unwrap();
        assert_eq!((stored.encode(TEXT).unwrap(), stored.end(), stored.vocab()), (tokens, bpe.end(), bpe.vocab()));
        // Text that training did not see, down to single bytes.
        let other = "Zürich: 🦀!";
        assert_eq!(stored.decode(&stored.encode(other).unwrap()).unwrap(), other);
    }

    #[test]
    fn tokens_have_as_many_bytes_as_their_text() {
        let bpe = Bpe::train(&[TEXT.repeat(4)], 300).unwrap();
        let bytes = bpe.token_bytes();
        let tokens = bpe.pack(&[TEXT.to_owned(), "語".to_owned()]).unwrap();
        assert_eq!(tokens.iter().filter(|token| **token == bpe.end()).count(), 2);
        let counted: usize = tokens.iter().map(|token| bytes[*token as usize]).sum();
        assert_eq!(counted, TEXT.len() + "語".len());
    }

    #[test]
    fn too_small_a_vocabulary_and_a_broken_file_are_errors() {
        assert!(Bpe::train(&["text"], 100).err().unwrap().to_string().contains("at least 257"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, "{}").unwrap();
        assert!(Bpe::load(&path).err().unwrap().to_string().contains("is not a tokenizer"));
    }
}
