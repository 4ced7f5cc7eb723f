//! Lines of text as token ids.

use anyhow::{Context, Result, anyhow, ensure};
use std::path::Path;
use tokenizers::{Tokenizer, TruncationDirection, TruncationParams};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// From 1.
    pub number: usize,
    /// Without white space at its ends; not empty.
    pub text: String,
}

/// The tokens of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// At least the two special tokens.
    pub ids: Vec<i32>,
    /// Whether the line was longer than the context, and its end is not in `ids`.
    pub truncated: bool,
}

/// Returns the lines of a file that are not empty.
pub fn lines(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the text `{}`", path.display()))?;
    let lines = text.lines().zip(1..).map(|(line, number)| Line { number, text: line.trim().to_owned() });
    let lines: Vec<_> = lines.filter(|line| !line.text.is_empty()).collect();
    ensure!(!lines.is_empty(), "`{}` has no line of text", path.display());
    Ok(lines)
}

/// A checkpoint's tokenizer.
pub struct Text {
    tokenizer: Tokenizer,
    context: usize,
}

impl Text {
    /// Reads `tokenizer.json`; `context` is the most tokens that a line may have. The file's own padding is not used.
    pub fn load(folder: &Path, context: usize) -> Result<Self> {
        let path = folder.join("tokenizer.json");
        let read = || format!("cannot read the tokenizer `{}`", path.display());
        let bytes = std::fs::read(&path).with_context(read)?;
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| anyhow!("{error}")).with_context(read)?;
        let truncation =
            TruncationParams { max_length: context, direction: TruncationDirection::Right, ..Default::default() };
        let truncated = tokenizer.with_padding(None).with_truncation(Some(truncation));
        truncated.map_err(|error| anyhow!("{error}")).with_context(read)?;
        Ok(Self { tokenizer, context })
    }

    /// Returns the tokens of each text.
    pub fn tokens<'a>(&self, texts: impl Iterator<Item = &'a str>) -> Result<Vec<Tokens>> {
        let texts: Vec<_> = texts.collect();
        let encodings = self.tokenizer.encode_batch_fast(texts, true);
        let encodings = encodings.map_err(|error| anyhow!("the text cannot be divided into tokens: {error}"))?;
        let tokens = encodings.iter().map(|encoding| Tokens {
            ids: encoding.get_ids().iter().map(|&id| id as i32).collect(),
            truncated: !encoding.get_overflowing().is_empty(),
        });
        Ok(tokens.collect())
    }

    /// Returns a note about the texts that were truncated, if there are some.
    pub fn note(&self, tokens: &[Tokens]) -> Option<String> {
        let truncated = tokens.iter().filter(|tokens| tokens.truncated).count();
        let lines = if truncated == 1 { "line is" } else { "lines are" };
        (truncated > 0).then(|| format!("{truncated} {lines} longer than {} tokens and truncated", self.context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A tokenizer of whole words, with the two special tokens of BERT and padding to 8 tokens.
    fn text(context: usize) -> Text {
        let folder = tempfile::tempdir().unwrap();
        let special = |id: u32, content: &str| {
            json!({"id": id, "content": content, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
        };
        let tokenizer = json!({
            "version": "1.0",
            "added_tokens": [special(0, "[PAD]"), special(1, "[CLS]"), special(2, "[SEP]"), special(3, "[UNK]")],
            "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"},
            "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "[PAD]"},
            "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
            "decoder": null,
            "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3,
                "red": 4, "green": 5, "blue": 6}}
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        Text::load(folder.path(), context).unwrap()
    }

    #[test]
    fn lines_become_tokens_without_padding() {
        let tokens = text(8).tokens(["red blue", "pink"].into_iter()).unwrap();
        assert_eq!(tokens[0], Tokens { ids: vec![1, 4, 6, 2], truncated: false });
        assert_eq!(tokens[1].ids, [1, 3, 2]);
    }

    #[test]
    fn a_long_line_is_truncated_with_one_note() {
        let text = text(4);
        let tokens = text.tokens(["red green", "red green blue", "blue green red green blue"].into_iter()).unwrap();
        assert_eq!(tokens[1], Tokens { ids: vec![1, 4, 5, 2], truncated: true });
        assert_eq!(text.note(&tokens).unwrap(), "2 lines are longer than 4 tokens and truncated");
        assert_eq!(text.note(&tokens[..2]).unwrap(), "1 line is longer than 4 tokens and truncated");
        assert_eq!(text.note(&tokens[..1]), None);
    }

    #[test]
    fn a_text_without_lines_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let error = |path: &Path| format!("{:#}", lines(path).unwrap_err());
        assert!(error(&path).contains("cannot read the text") && error(&path).contains("a.txt"), "{}", error(&path));
        std::fs::write(&path, " \n\t\n").unwrap();
        assert!(error(&path).contains("a.txt` has no line of text"), "{}", error(&path));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(error(&path).contains("cannot read the text"), "{}", error(&path));
        std::fs::write(&path, "\n one \n\ntwo").unwrap();
        let found: Vec<_> = lines(&path).unwrap().into_iter().map(|line| (line.number, line.text)).collect();
        assert_eq!(found, [(2, "one".to_owned()), (4, "two".to_owned())]);
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), "[1, 2").unwrap();
        let error = format!("{:#}", Text::load(folder.path(), 8).err().unwrap());
        assert!(error.contains("cannot read the tokenizer") && error.contains("tokenizer.json"), "{error}");
    }
}
