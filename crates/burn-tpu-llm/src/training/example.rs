//! Texts and conversations as tokens, with those that are learned.

use crate::error::{LlmError, Result};
use crate::template::{ChatTemplate, Message};
use crate::tokenizer::Tokenizer;
use serde::Deserialize;
use std::path::Path;

/// A text to learn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Of each token, whether it is learned; the first never is, since nothing is before it.
    pub learned: Vec<bool>,
}

/// A line of a file of conversations.
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Message>,
}

impl Example {
    /// Divides a text into examples of `length + 1` tokens, all of which are learned. Each begins with the last token
    /// of the one before it.
    ///
    /// # Errors
    /// [`LlmError::Tokenizer`].
    pub fn of_text(tokenizer: &Tokenizer, text: &str, length: usize) -> Result<Vec<Self>> {
        let tokens = tokenizer.encode(text)?;
        let begins = (0..tokens.len().saturating_sub(1)).step_by(length.max(1));
        let piece = |begin: usize| {
            let tokens = tokens[begin..tokens.len().min(begin + length + 1)].to_vec();
            Self { learned: vec![true; tokens.len()], tokens }
        };
        Ok(begins.map(piece).collect())
    }

    /// Returns a conversation as tokens. Only the assistant's answers are learned, with the tokens that end them.
    ///
    /// # Errors
    /// [`LlmError::Template`] for what the template refuses, or if it does not show where the assistant speaks;
    /// [`LlmError::Tokenizer`].
    pub fn of_conversation(tokenizer: &Tokenizer, template: &ChatTemplate, messages: &[Message]) -> Result<Self> {
        let (text, answers) = template.render_whole(messages)?;
        let mut example = Self { tokens: Vec::new(), learned: Vec::new() };
        for (token, begin) in tokenizer.encode_with_places(&text)? {
            example.tokens.push(token);
            example.learned.push(answers.iter().any(|answer| answer.contains(&begin)));
        }
        Ok(example)
    }

    /// Reads a file of conversations: lines of JSON with `messages`, each with `role` and `content`.
    ///
    /// # Errors
    /// [`LlmError::File`]; [`LlmError::Format`], with the line; those of [`Example::of_conversation`].
    pub fn read_conversations(tokenizer: &Tokenizer, template: &ChatTemplate, path: &Path) -> Result<Vec<Self>> {
        let text = std::fs::read_to_string(path).map_err(LlmError::file("read", path))?;
        let mut examples = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |reason: String| LlmError::format(path, format!("has a line {} {reason}", index + 1));
            let conversation: Conversation = serde_json::from_str(line)
                .map_err(|error| wrong(format!("that is no conversation with `messages`: {error}")))?;
            let example = Self::of_conversation(tokenizer, template, &conversation.messages)?;
            if !example.learned.contains(&true) {
                return Err(wrong("in which no assistant speaks: there is nothing to learn".to_owned()));
            }
            examples.push(example);
        }
        Ok(examples)
    }
}
