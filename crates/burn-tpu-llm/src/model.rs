//! The decoder: Burn modules whose fields have the names of Hugging Face's tensors, so that a parameter's path is its
//! name in a file.
//!
//! Owns: what is computed, and the cache of keys and values. May not know: files, tokens' texts, or how tokens are
//! chosen.

mod attention;
mod blocks;
mod cache;
mod capacity;
mod context;
mod decoder;
mod division;
mod embedding;
mod exchange;
mod experts;
mod feed_forward;
pub(crate) mod few_bits;
mod grouped;
mod kept;
mod language_model;
mod looped;
mod lora;
mod mixture;
mod moved;
mod norm;
mod on_tpu;
mod placement;
mod product;
mod projection;
mod ring;
mod rope;
mod router;
mod stack;
mod view;

pub use attention::Attention;
pub use cache::{Cache, LoopedCache};
pub use context::{Context, ContextForm};
pub use decoder::{Decoder, Layer};
pub use embedding::Embedding;
pub use experts::FeedForwards;
pub use feed_forward::FeedForward;
pub use few_bits::{Bits, FewBits};
pub use kept::{ATTENTION, FEED_FORWARD, INPUT, QKV};
pub use language_model::LanguageModel;
pub use looped::LoopedDecoder;
pub use mixture::{Dispatch, Mixture, Mlp, RouterReport};
pub use norm::RmsNorm;
pub use projection::{Lora, Projection};
pub use ring::{RING, RingBackend};
pub use stack::{Stack, StackLora};
