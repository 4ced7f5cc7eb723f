//! The loop that writes: prompts are read in chunks of one size, then each token is a step, of all texts of a batch at
//! once. A chosen token stays on the device as the input of the step after it, which is dispatched before the host
//! reads the token.
//!
//! Both are the same program at every position, since the cache has a fixed size and only the position moves. The
//! prompts of a batch end at the same place of their rows: what is before a shorter one is not seen.

use crate::error::{LlmError, Result};
use crate::model::{Cache, Decoder};
use crate::sampler::{Choice, Row, Sampler, Sampling};
use burn::prelude::*;
use burn_tpu::MeshBackend;
use std::ops::Range;

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
    /// It was ended from outside.
    Stopped,
}

/// A text of a batch, and the seed of its answer, which takes the place of that in the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'p> {
    /// Its tokens.
    pub tokens: &'p [u32],
    /// What the random numbers of its answer follow from. The same seed gives the same answer in every batch, up to the
    /// rounding of logits.
    pub seed: u64,
}

/// Texts that a model reads and continues. What it has read stays read: a prompt that begins with it costs only the
/// rest.
#[derive(Debug)]
pub struct Session<'m, B: Backend> {
    model: &'m Decoder<B>,
    device: B::Device,
    context: usize,
    cache: Cache<B>,
    /// The tokens in each row of the cache.
    read: Vec<Vec<u32>>,
    /// Where the text of each row begins.
    starts: Vec<usize>,
}

impl<'m, B: Backend> Session<'m, B> {
    /// Begins with no text; `context` is the most tokens of prompt and answer.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for a context that the model was not made for.
    pub fn new(model: &'m Decoder<B>, context: usize) -> Result<Self> {
        Self::with_rows(model, context, 1)
    }

    /// Begins with no texts, of which at most `rows` are written at once; `context` is the most tokens of the longest
    /// prompt and its answer.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for a context that the model was not made for, and for no rows.
    pub fn with_rows(model: &'m Decoder<B>, context: usize, rows: usize) -> Result<Self> {
        let most = model.config().context;
        if context == 0 || context > most {
            return Err(LlmError::Prompt(format!("a context of {context} tokens: the model takes 1 to {most}")));
        }
        if rows == 0 {
            return Err(LlmError::Prompt("a session of 0 rows: it needs at least 1".to_owned()));
        }
        let device = model.device();
        // The last chunk of a prompt is padded.
        let cache = Cache::new(model.config(), rows, context + CHUNK, model.dtype(), &device);
        Ok(Self { model, device, context, cache, read: vec![Vec::new(); rows], starts: vec![0; rows] })
    }

    /// Returns the most tokens of the longest prompt and its answer.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Reads and writes what makes a backend that compiles its programs compile all that answers with these options
    /// need, and forgets it. Programs begin with their positions as constants, and need a second and a third one to
    /// take any.
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
            let prompt = vec![token; length];
            let prompts = vec![Prompt { tokens: &prompt, seed: 0 }; self.read.len()];
            for step in self.generate_batch(&prompts, &options)? {
                step?;
            }
        }
        self.read.iter_mut().for_each(Vec::clear);
        self.cache.set_position(0);
        Ok(())
    }

    /// Reads a prompt and begins an answer. Dropping it ends it.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for a prompt that is empty, has tokens that the model does not know, or leaves no room for
    /// an answer; [`LlmError::Sampling`]; [`LlmError::Device`].
    pub fn generate(&mut self, prompt: &[u32], options: &GenerateOptions) -> Result<Generation<'_, 'm, B>> {
        let prompt = Prompt { tokens: prompt, seed: options.sampling.seed };
        Ok(Generation(self.generate_batch(&[prompt], options)?))
    }

    /// Reads prompts and begins their answers, with one step for all of them. Each ends by itself; dropping the result
    /// ends all. Answers have the room that the longest prompt leaves.
    ///
    /// # Errors
    /// [`LlmError::Prompt`] for no prompts or more than the session has rows, and for a prompt that is empty, has
    /// tokens that the model does not know, or leaves no room for an answer; [`LlmError::Sampling`];
    /// [`LlmError::Device`].
    pub fn generate_batch(
        &mut self,
        prompts: &[Prompt<'_>],
        options: &GenerateOptions,
    ) -> Result<BatchGeneration<'_, 'm, B>> {
        let vocabulary = self.model.config().vocabulary;
        options.sampling.check(vocabulary)?;
        self.check(prompts)?;
        let mut rows: Vec<_> = prompts.iter().map(|prompt| Row { prompt: prompt.tokens, seed: prompt.seed }).collect();
        rows.resize(self.read.len(), Row { prompt: &[], seed: 0 });
        let mut sampler = Sampler::new(&options.sampling, options.log_probabilities, &rows, vocabulary, &self.device);
        let (texts, same) = self.place(&rows);
        // What the sampler begins with is an input of all chunks alike, and no part of the first one.
        B::sync(&self.device)?;
        let pending = self.prefill(&texts, same, &mut sampler);
        Ok(BatchGeneration {
            session: self,
            sampler,
            options: options.clone(),
            next: Next::Chosen(pending),
            answers: vec![Answer::default(); prompts.len()],
        })
    }

    fn check(&self, prompts: &[Prompt<'_>]) -> Result<()> {
        let (rows, context, vocabulary) = (self.read.len(), self.context, self.model.config().vocabulary);
        if prompts.is_empty() || prompts.len() > rows {
            return Err(LlmError::Prompt(format!("{} prompts for a session of {rows} rows", prompts.len())));
        }
        for prompt in prompts {
            let length = prompt.tokens.len();
            if length == 0 {
                return Err(LlmError::Prompt("the prompt is empty".to_owned()));
            }
            if length >= context {
                return Err(LlmError::Prompt(format!(
                    "the prompt has {length} tokens, and the context {context}: at most {} leave room for an answer",
                    context - 1
                )));
            }
            if let Some(token) = prompt.tokens.iter().find(|token| **token as usize >= vocabulary) {
                let reason = format!("the prompt has the token {token}; the model knows {vocabulary}");
                return Err(LlmError::Prompt(reason));
            }
        }
        Ok(())
    }

    /// Returns the rows with prompts at their ends, and how much of them has been read.
    fn place(&mut self, rows: &[Row<'_>]) -> (Vec<Vec<u32>>, usize) {
        let longest = rows.iter().map(|row| row.prompt.len()).max().unwrap_or_default();
        let starts: Vec<_> = rows.iter().map(|row| longest - row.prompt.len()).collect();
        if self.starts != starts {
            self.read.iter_mut().for_each(Vec::clear);
            self.starts = starts;
        }
        if rows.len() > 1 {
            let starts: Vec<i32> = self.starts.iter().map(|start| *start as i32).collect();
            let starts = Tensor::from_data(TensorData::new(starts, [rows.len(), 1]), &self.device);
            self.cache.set_starts(Some(starts));
        }
        let (mut texts, mut same) = (Vec::with_capacity(rows.len()), longest - 1);
        for ((row, start), read) in rows.iter().zip(&self.starts).zip(&self.read) {
            let text = [&vec![0; *start], row.prompt].concat();
            // The last token is read again for its logits.
            same = same.min(read.iter().zip(&text).take_while(|(read, new)| read == new).count());
            texts.push(text);
        }
        (texts, same)
    }

    /// Reads what is new of the rows, which are of one length, and chooses the tokens after them.
    fn prefill(&mut self, texts: &[Vec<u32>], same: usize, sampler: &mut Sampler<B>) -> Choice<B> {
        self.read.iter_mut().for_each(|read| read.truncate(same));
        self.cache.set_position(same);
        let length = texts[0].len();
        let last = (length - same - 1) / CHUNK;
        for chunk in 0..last {
            let begin = same + chunk * CHUNK;
            // Tokens are chosen here too, so that all chunks are one program. Nobody waits for them: a chunk that fails
            // is an error of the last one, which reads its cache.
            drop(self.read_chunk(texts, begin..begin + CHUNK, &mut sampler.clone()));
        }
        self.read_chunk(texts, same + last * CHUNK..length, sampler)
    }

    fn read_chunk(&mut self, texts: &[Vec<u32>], place: Range<usize>, sampler: &mut Sampler<B>) -> Choice<B> {
        let (mut tokens, length) = (Vec::with_capacity(texts.len() * CHUNK), place.len());
        for (text, read) in texts.iter().zip(&mut self.read) {
            let chunk = &text[place.clone()];
            read.extend_from_slice(chunk);
            tokens.extend(chunk.iter().map(|token| *token as i32));
            tokens.resize(tokens.len() + CHUNK - length, 0);
        }
        let tokens = Tensor::from_data(TensorData::new(tokens, [texts.len(), CHUNK]), &self.device);
        let hidden = self.model.extend(tokens, &mut self.cache);
        // What the padding wrote is after the position, and is written again before it is seen.
        self.cache.set_position(place.end);
        self.choose(hidden.slice_dim(1, length - 1..length), sampler)
    }

    /// Reads one token of each row, `[batch, 1]`, and chooses the next ones. [`Session::has_read`] tells the host
    /// which.
    fn step(&mut self, tokens: Tensor<B, 2, Int>, sampler: &mut Sampler<B>) -> Choice<B> {
        let hidden = self.model.extend(tokens, &mut self.cache);
        self.choose(hidden, sampler)
    }

    /// Notes the tokens of a step.
    fn has_read(&mut self, ids: &[u32]) {
        self.read.iter_mut().zip(ids).for_each(|(read, id)| read.push(*id));
    }

    /// Chooses by vectors `[batch, 1, width]`.
    fn choose(&self, hidden: Tensor<B, 3>, sampler: &mut Sampler<B>) -> Choice<B> {
        sampler.choose(self.model.logits(hidden).squeeze_dim(1))
    }
}

impl<B: MeshBackend> Session<'_, B> {
    /// Splits what is kept of the texts over axes of a mesh: the texts over `texts`, and the keys and values of each over
    /// `heads`, as [`Config::placement`](crate::Config::placement) splits weights. Several axes are joined with `+`. What
    /// does not divide is whole on each chip. Call it before the first prompt.
    ///
    /// # Errors
    /// [`LlmError::Loop`] for an axis that the mesh does not have.
    pub fn split(mut self, texts: Option<&str>, heads: Option<&str>) -> Result<Self> {
        let mut dims = [texts, heads, None, None];
        for (axes, size) in dims.iter_mut().zip([self.read.len(), self.model.config().kv_heads]) {
            let mut parts = 1;
            for axis in axes.iter().flat_map(|names| names.split('+')) {
                parts *= self.device.axis_size(axis)?;
            }
            if !size.is_multiple_of(parts) {
                *axes = None;
            }
        }
        self.cache = self.cache.shard(dims);
        Ok(self)
    }
}

/// The answers of a batch as they are written: an iterator over steps, each with the next token of every answer, or
/// `None` for one that has ended. The device may be a step ahead of it.
#[derive(Debug)]
pub struct BatchGeneration<'s, 'm, B: Backend> {
    session: &'s mut Session<'m, B>,
    sampler: Sampler<B>,
    options: GenerateOptions,
    next: Next<B>,
    answers: Vec<Answer>,
}

/// An answer that is being written.
#[derive(Clone, Debug, Default)]
struct Answer {
    tokens: usize,
    end: Option<End>,
}

/// What the next tokens need.
#[derive(Debug)]
enum Next<B: Backend> {
    /// To be read.
    Chosen(Choice<B>),
    /// To be chosen after these tokens, `[batch, 1]`.
    After(Tensor<B, 2, Int>, Vec<u32>),
    /// A failure was reported.
    Failed,
}

impl<B: Backend> BatchGeneration<'_, '_, B> {
    /// Returns why an answer ended; `None` while it goes on.
    ///
    /// # Panics
    /// If there is no such answer.
    pub fn end(&self, answer: usize) -> Option<End> {
        self.answers[answer].end
    }

    /// Ends an answer, if it goes on.
    ///
    /// # Panics
    /// If there is no such answer.
    pub fn stop(&mut self, answer: usize) {
        self.answers[answer].end.get_or_insert(End::Stopped);
    }

    /// Returns the choice of the next tokens; `None` if all answers have ended.
    fn choice(&mut self) -> Option<Choice<B>> {
        for answer in &mut self.answers {
            if answer.tokens == self.options.tokens {
                answer.end.get_or_insert(End::Tokens);
            }
        }
        if self.answers.iter().all(|answer| answer.end.is_some()) {
            return None;
        }
        match std::mem::replace(&mut self.next, Next::Failed) {
            Next::Chosen(choice) => Some(choice),
            Next::After(..) if self.session.cache.position() == self.session.context => {
                for answer in &mut self.answers {
                    answer.end.get_or_insert(End::Context);
                }
                None
            }
            Next::After(tokens, ids) => {
                self.session.has_read(&ids);
                Some(self.session.step(tokens, &mut self.sampler))
            }
            Next::Failed => None,
        }
    }

    /// Dispatches the step after a choice that has not been read, unless nobody needs it: an answer that ends with a
    /// token is all that the host cannot know. The first tokens do not wait for a step that may have to be compiled.
    fn ahead(&mut self, choice: &Choice<B>) -> Option<Choice<B>> {
        let most = self.options.tokens;
        let goes_on = |answer: &Answer| answer.end.is_none() && (1..most.saturating_sub(1)).contains(&answer.tokens);
        let has_room = self.session.cache.position() < self.session.context;
        let is_needed = has_room && self.answers.iter().any(goes_on);
        is_needed.then(|| self.session.step(choice.tokens.clone(), &mut self.sampler))
    }
}

impl<B: Backend> Iterator for BatchGeneration<'_, '_, B> {
    type Item = Result<Vec<Option<Token>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let choice = self.choice()?;
        let (chosen, ahead) = (choice.tokens.clone(), self.ahead(&choice));
        let read = match choice.read() {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let mut tokens = Vec::with_capacity(self.answers.len());
        for (answer, (id, log_probability)) in self.answers.iter_mut().zip(&read) {
            if self.options.end_tokens.contains(id) {
                answer.end.get_or_insert(End::Token(*id));
            }
            let goes_on = answer.end.is_none();
            answer.tokens += usize::from(goes_on);
            tokens.push(goes_on.then_some(Token { id: *id, log_probability: *log_probability }));
        }
        let ids: Vec<_> = read.into_iter().map(|(id, _)| id).collect();
        self.next = match ahead {
            Some(choice) => {
                self.session.has_read(&ids);
                Next::Chosen(choice)
            }
            None => Next::After(chosen, ids),
        };
        tokens.iter().any(Option::is_some).then_some(Ok(tokens))
    }
}

/// An answer as it is written: an iterator over its tokens.
#[derive(Debug)]
pub struct Generation<'s, 'm, B: Backend>(BatchGeneration<'s, 'm, B>);

impl<B: Backend> Generation<'_, '_, B> {
    /// Returns why the answer ended; `None` while it goes on.
    pub fn end(&self) -> Option<End> {
        self.0.end(0)
    }
}

impl<B: Backend> Iterator for Generation<'_, '_, B> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Result<Token>> {
        let step = self.0.next()?;
        step.map(|tokens| tokens.into_iter().next().flatten()).transpose()
    }
}
