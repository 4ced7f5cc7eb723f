//! The loop that writes: a prompt is read in chunks of one size, then each token is a step.
//!
//! Both are the same program at every position, since the cache has a fixed size and only the position moves.

use crate::error::{LlmError, Result};
use crate::model::{Cache, Decoder};
use crate::sampler::{Choice, Sampler, Sampling};
use burn::prelude::*;

/// The tokens of a prompt that are read at once.
const CHUNK: usize = 64;
/// The most tokens of an answer, if nobody says.
const TOKENS: usize = 256;

/// How an answer is written.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// The most tokens.
    pub tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tokens that end the answer, and are no part of it.
    pub end_tokens: Vec<u32>,
    /// Whether tokens come with the logarithm of their probability.
    pub log_probabilities: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { tokens: TOKENS, sampling: Sampling::default(), end_tokens: Vec::new(), log_probabilities: false }
    }
}

/// A token of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// The logarithm of the probability that the model gave it, if it was asked for.
    pub log_probability: Option<f32>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model wrote a token that ends answers.
    Token(u32),
    /// The answer has as many tokens as were asked for.
    Tokens,
    /// The context is full.
    Context,
}

/// A text that a model reads and continues. What it has read stays read: a prompt that begins with it costs only the rest.
#[derive(Debug)]
pub struct Session<'m, B: Backend> {
    model: &'m Decoder<B>,
    device: B::Device,
    context: usize,
    cache: Cache<B>,
    /// The tokens in the cache.
    read: Vec<u32>,
}

impl<'m, B: Backend> Session<'m, B> {
    /// Begins with no text; `context` is the most tokens of prompt and answer.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for a context that the model was not made for.
    pub fn new(model: &'m Decoder<B>, context: usize) -> Result<Self> {
        let most = model.config().context;
        if context == 0 || context > most {
            return Err(LlmError::Prompt(format!("a context of {context} tokens: the model takes 1 to {most}")));
        }
        let device = model.embed_tokens.weight.device();
        // The last chunk of a prompt is padded.
        let cache = Cache::new(model.config(), 1, context + CHUNK, model.dtype(), &device);
        Ok(Self { model, device, context, cache, read: Vec::new() })
    }

    /// Returns the most tokens of prompt and answer.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Reads and writes what makes a backend that compiles its programs compile all that answers with these options need,
    /// and forgets it. Programs begin with their positions as constants, and need a second and a third one to take any.
    ///
    /// # Errors
    /// Those of [`Session::generate`].
    pub fn warm_up(&mut self, options: &GenerateOptions) -> Result<()> {
        let options = GenerateOptions { tokens: 3, end_tokens: Vec::new(), ..options.clone() };
        let room = self.context.saturating_sub(1);
        for (token, length) in [(0, 2), (0, 7), (1, 5), (1, CHUNK + 9), (0, 4)] {
            if length > room || token as usize >= self.model.config().vocabulary {
                continue;
            }
            for token in self.generate(&vec![token; length], &options)? {
                token?;
            }
        }
        self.read.clear();
        self.cache.set_position(0);
        Ok(())
    }

    /// Reads a prompt and begins an answer. Dropping it ends it.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for a prompt that is empty, has tokens that the model does not know, or leaves no room for an
    /// answer; [`LlmError::Sampling`]; [`LlmError::Device`].
    pub fn generate(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<Generation<'_, 'm, B>> {
        options.sampling.check()?;
        self.check(prompt)?;
        let vocabulary = self.model.config().vocabulary;
        let mut sampler = Sampler::new(&options.sampling, options.log_probabilities, prompt, vocabulary, &self.device);
        // What the sampler begins with is an input of all chunks alike, and no part of the first one.
        B::sync(&self.device)?;
        let pending = self.prefill(prompt, &mut sampler)?;
        Ok(Generation {
            session: self,
            sampler,
            options: options.clone(),
            next: Next::Chosen(pending),
            written: 0,
            end: None,
        })
    }

    fn check(&self, prompt: &[u32]) -> Result<()> {
        let (length, context, vocabulary) = (prompt.len(), self.context, self.model.config().vocabulary);
        if prompt.is_empty() {
            return Err(LlmError::Prompt("the prompt is empty".to_owned()));
        }
        if length >= context {
            return Err(LlmError::Prompt(format!(
                "the prompt has {length} tokens, and the context {context}: at most {} leave room for an answer",
                context - 1
            )));
        }
        match prompt.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => {
                Err(LlmError::Prompt(format!("the prompt has the token {token}; the model knows {vocabulary}")))
            }
            None => Ok(()),
        }
    }

    /// Reads what is new of a prompt, and chooses the token after it.
    fn prefill(&mut self, prompt: &[u32], sampler: &mut Sampler<B>) -> Result<Choice<B>> {
        let same = self.read.iter().zip(prompt).take_while(|(read, new)| read == new).count();
        // The last token is read again for its logits.
        let same = same.min(prompt.len() - 1);
        self.read.truncate(same);
        self.cache.set_position(same);
        let last = (prompt.len() - same - 1) / CHUNK;
        for chunk in prompt[same..].chunks(CHUNK).take(last) {
            // A token is chosen here too, so that all chunks are one program.
            self.read_chunk(chunk, &mut sampler.clone()).read()?;
        }
        Ok(self.read_chunk(&prompt[same + last * CHUNK..], sampler))
    }

    fn read_chunk(&mut self, chunk: &[u32], sampler: &mut Sampler<B>) -> Choice<B> {
        let (begin, length) = (self.cache.position(), chunk.len());
        let mut tokens: Vec<i32> = chunk.iter().map(|token| *token as i32).collect();
        tokens.resize(CHUNK, 0);
        let tokens = Tensor::from_data(TensorData::new(tokens, [1, CHUNK]), &self.device);
        let hidden = self.model.extend(tokens, &mut self.cache);
        // What the padding wrote is after the position, and is written again before it is seen.
        self.cache.set_position(begin + length);
        self.read.extend_from_slice(chunk);
        self.choose(hidden.slice_dim(1, length - 1..length), sampler)
    }

    /// Reads one token, and chooses the next one.
    fn step(&mut self, token: Tensor<B, 2, Int>, id: u32, sampler: &mut Sampler<B>) -> Choice<B> {
        let hidden = self.model.extend(token, &mut self.cache);
        self.read.push(id);
        self.choose(hidden, sampler)
    }

    /// Chooses by a vector `[1, 1, width]`.
    fn choose(&self, hidden: Tensor<B, 3>, sampler: &mut Sampler<B>) -> Choice<B> {
        sampler.choose(self.model.logits(hidden).squeeze_dim(1))
    }
}

/// An answer as it is written: an iterator over its tokens.
#[derive(Debug)]
pub struct Generation<'s, 'm, B: Backend> {
    session: &'s mut Session<'m, B>,
    sampler: Sampler<B>,
    options: GenerateOptions,
    next: Next<B>,
    written: usize,
    end: Option<End>,
}

/// What the next token needs.
#[derive(Debug)]
enum Next<B: Backend> {
    /// To be read.
    Chosen(Choice<B>),
    /// To be chosen after this token.
    After(Tensor<B, 2, Int>, u32),
    /// A failure was reported.
    Failed,
}

impl<B: Backend> Generation<'_, '_, B> {
    /// Returns why the answer ended; `None` while it goes on.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the choice of the next token, or ends the answer.
    fn choice(&mut self) -> Option<Choice<B>> {
        if self.end.is_none() && self.written == self.options.tokens {
            self.end = Some(End::Tokens);
        }
        if self.end.is_some() {
            return None;
        }
        match std::mem::replace(&mut self.next, Next::Failed) {
            Next::Chosen(choice) => Some(choice),
            Next::After(..) if self.session.cache.position() == self.session.context => {
                self.end = Some(End::Context);
                None
            }
            Next::After(token, id) => Some(self.session.step(token, id, &mut self.sampler)),
            Next::Failed => None,
        }
    }
}

impl<B: Backend> Iterator for Generation<'_, '_, B> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Result<Token>> {
        let choice = self.choice()?;
        let (id, log_probability) = match choice.read() {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        if self.options.end_tokens.contains(&id) {
            self.end = Some(End::Token(id));
            return None;
        }
        self.next = Next::After(choice.token, id);
        self.written += 1;
        Some(Ok(Token { id, log_probability }))
    }
}
