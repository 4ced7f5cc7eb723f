//! Text as it comes, in whole characters.

use super::Tokenizer;
use crate::error::Result;

/// Joins tokens to text one by one. A character whose bytes are several tokens appears with the last of them, and what may
/// be the beginning of a stop string is held back until it is known.
#[derive(Debug)]
pub struct TextStream<'t> {
    tokenizer: &'t Tokenizer,
    tokens: Vec<u32>,
    /// The first token of the window that is decoded, and the first whose text has not appeared. A token's text may depend
    /// on the one before it, such as a space at the beginning.
    begin: usize,
    unread: usize,
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl<'t> TextStream<'t> {
    /// Begins a text that ends before any of the stop strings.
    pub fn new(tokenizer: &'t Tokenizer, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { tokenizer, tokens: Vec::new(), begin: 0, unread: 0, stops, held: String::new(), stopped: false }
    }

    /// Adds a token, and returns the text that appears with it.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`](crate::LlmError::Tokenizer).
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let (new, whole) = self.new_text()?;
        if !whole || self.stopped {
            return Ok(String::new());
        }
        (self.begin, self.unread) = (self.unread, self.tokens.len());
        self.held.push_str(&new);
        Ok(self.released())
    }

    /// Ends the text, and returns what was held back.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`](crate::LlmError::Tokenizer).
    pub fn finish(mut self) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        let (new, _) = self.new_text()?;
        self.held.push_str(&new);
        let shown = self.released();
        Ok(if self.stopped { shown } else { shown + &self.held })
    }

    /// Returns whether a stop string has come.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the text of the tokens that have not appeared, and whether its last character is whole.
    fn new_text(&self) -> Result<(String, bool)> {
        let before = self.tokenizer.decode(&self.tokens[self.begin..self.unread])?;
        let all = self.tokenizer.decode(&self.tokens[self.begin..])?;
        let whole = !all.ends_with(char::REPLACEMENT_CHARACTER);
        Ok((all.strip_prefix(&before).unwrap_or_default().to_owned(), whole))
    }

    /// Takes what can be shown of the text that is held.
    fn released(&mut self) -> String {
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop)).min();
        if let Some(at) = found {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let is_begin = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        let at = self.held.char_indices().map(|(at, _)| at).find(is_begin).unwrap_or(self.held.len());
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }
}
