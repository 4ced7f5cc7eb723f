//! Text as it comes: one text without a prefix, several texts in whole lines, each with the number of its prompt.

use crate::tokenizer::Bpe;
use anyhow::Result;
use std::io::Write;

/// The texts of a batch while they grow.
pub struct Streams<'a, W> {
    tokenizer: &'a Bpe,
    out: W,
    texts: Vec<Text>,
}

/// One text.
struct Text {
    tokens: Vec<u32>,
    /// The prompt and what was written, up to the last whole character.
    text: String,
    /// Bytes of `text` that were printed.
    printed: usize,
    /// Bytes of `text` before the first token.
    prompt: usize,
    ended: bool,
}

impl<'a, W: Write> Streams<'a, W> {
    /// Begins texts with their prompts, printed to `out`.
    pub fn new(tokenizer: &'a Bpe, prompts: &[String], out: W) -> Result<Self> {
        let text = |prompt: &String| {
            let (tokens, text) = (Vec::new(), prompt.clone());
            Text { tokens, text, printed: 0, prompt: prompt.len(), ended: false }
        };
        let mut streams = Self { tokenizer, out, texts: prompts.iter().map(text).collect() };
        streams.print(false)?;
        Ok(streams)
    }

    /// Adds a token to each text and prints what is whole. Returns whether any text goes on.
    pub fn push(&mut self, tokens: &[u32]) -> Result<bool> {
        let running = self.texts.iter_mut().zip(tokens).filter(|(text, _)| !text.ended);
        for (text, token) in running {
            text.ended = *token == self.tokenizer.end();
            if !text.ended {
                text.tokens.push(*token);
                let written = self.tokenizer.decode(&text.tokens)?;
                // A character may be several tokens: its bytes are shown when they are all there.
                text.text.truncate(text.prompt);
                text.text.push_str(written.trim_end_matches(char::REPLACEMENT_CHARACTER));
            }
        }
        self.print(false)?;
        Ok(self.texts.iter().any(|text| !text.ended))
    }

    /// Prints the ends of the texts.
    pub fn finish(mut self) -> Result<()> {
        self.print(true)
    }

    fn print(&mut self, all: bool) -> Result<()> {
        let alone = self.texts.len() == 1;
        for (index, text) in self.texts.iter_mut().enumerate() {
            let new = text.text.get(text.printed..).unwrap_or_default();
            if alone {
                write!(self.out, "{new}")?;
                text.printed = text.text.len().max(text.printed);
                continue;
            }
            let whole = if all { new.len() } else { new.rfind('\n').map_or(0, |end| end + 1) };
            for line in new[..whole].lines() {
                writeln!(self.out, "[{}] {line}", index + 1)?;
            }
            text.printed += whole;
        }
        if alone && all {
            writeln!(self.out)?;
        }
        self.out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(prompts: &[&str], rows: &[&[u32]], bpe: &Bpe) -> (String, Vec<bool>) {
        let mut out = Vec::new();
        let prompts: Vec<String> = prompts.iter().map(ToString::to_string).collect();
        let mut streams = Streams::new(bpe, &prompts, &mut out).unwrap();
        let running = rows.iter().map(|tokens| streams.push(tokens).unwrap()).collect();
        streams.finish().unwrap();
        (String::from_utf8(out).unwrap(), running)
    }

    #[test]
    fn one_text_is_printed_character_by_character() {
        let bpe = Bpe::train(&["no pairs"], 257).unwrap();
        let bytes = bpe.encode("ä!").unwrap();
        assert_eq!(bytes.len(), 3, "a character of two tokens");
        let rows: Vec<&[u32]> = bytes.chunks(1).collect();
        assert_eq!(printed(&["x"], &rows, &bpe), ("xä!\n".to_owned(), vec![true; 3]));
    }

    #[test]
    fn several_texts_are_printed_line_by_line_up_to_their_ends() {
        let bpe = Bpe::train(&["no pairs"], 257).unwrap();
        let token = |text: &str| bpe.encode(text).unwrap()[0];
        let rows = [[token("a"), token("b")], [token("\n"), bpe.end()], [bpe.end(), token("c")]];
        let rows: Vec<&[u32]> = rows.iter().map(|row| &row[..]).collect();
        let (text, running) = printed(&["1", "2"], &rows, &bpe);
        assert_eq!((text.as_str(), running), ("[1] 1a\n[2] 2b\n", vec![true, true, false]));
    }
}
