//! The names of what a loop over the layers can keep of each for the backward pass, for [`burn_tpu::Keep`].
//!
//! [`RING`](super::RING) is another one.

/// What a layer takes, `[batch, length, width]`. It is kept anyway; by this name it can be in the host's memory.
pub const INPUT: &str = "input";
/// Queries, keys and values, rotated, `[batch, heads, length, head]`.
pub const QKV: &str = "qkv";
/// What the heads of attention give, `[batch, length, heads * head]`, before the last product.
pub const ATTENTION: &str = "attention";
/// The two products of a feed-forward layer that its activation joins, `[batch, length, hidden]`. Experts have no name.
pub const FEED_FORWARD: &str = "feed_forward";
