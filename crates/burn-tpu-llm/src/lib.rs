//! Language models for [Burn](https://burn.dev): Llama, Mistral, Qwen and Gemma from Hugging Face's folders and from
//! GGUF files, with their tokenizers and chat templates, and generation of text.
//!
//! Owns: one decoder that a [`Config`] describes ([`model`]), what the files say ([`Source`]), and the loop that writes
//! ([`Session`]). May not know: how a backend records or runs. Everything is generic over Burn's `Backend`, and runs
//! on any: only layers as a loop, the placement on a mesh, and the program `burn-tpu-llm` name `burn-tpu`.
//!
//! ```no_run
//! use burn::prelude::Backend;
//! use burn_tpu_llm::{GenerateOptions, LlmError, Session, Source};
//!
//! fn tell<B: Backend>(device: &B::Device) -> Result<(), LlmError> {
//!     let source = Source::open("SmolLM2-135M-Instruct.Q4_1.gguf".as_ref())?;
//!     let model = source.load::<B>(device)?;
//!     let tokenizer = source.tokenizer()?;
//!     let mut session = Session::new(&model, 1024)?;
//!     let prompt = tokenizer.encode("Once upon a time")?;
//!     for token in session.generate(&prompt, &GenerateOptions::default())? {
//!         let _id = token?.id;
//!     }
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]

pub mod config;
mod error;
mod generate;
pub mod model;
mod random;
mod sampler;
mod source;
mod template;
mod tokenizer;
pub mod training;
mod weights;

pub use config::{Config, LoraConfig};
pub use error::{LlmError, Result};
pub use generate::{BatchGeneration, End, GenerateOptions, Generation, Prompt, Session, Token};
pub use model::{Bits, Cache, Decoder, Dispatch};
pub use sampler::Sampling;
pub use source::Source;
pub use template::{ChatTemplate, Message};
pub use tokenizer::{TextStream, Tokenizer};
pub use weights::save_weights;
