//! Products that files have as one: Phi's queries, keys and values, and both inputs of its feed-forward.
//!
//! Owns: which rows of them are which product. May not know: the formats of files.

use crate::config::Config;
use std::ops::Range;

/// Returns the names of the products that a tensor of so many rows is, with the rows of each; `None` if it is not several.
pub(super) fn parts(name: &str, rows: usize, config: &Config) -> Option<Vec<(String, Range<usize>)>> {
    let (queries, keys) = (config.heads * config.head, config.kv_heads * config.head);
    let (fused, sizes) = if name.ends_with(".qkv_proj.weight") {
        ("qkv_proj", vec![("q_proj", queries), ("k_proj", keys), ("v_proj", keys)])
    } else if name.ends_with(".gate_up_proj.weight") {
        ("gate_up_proj", vec![("gate_proj", config.feed_forward), ("up_proj", config.feed_forward)])
    } else {
        return None;
    };
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (part, size) in sizes {
        parts.push((name.replace(fused, part), begin..begin + size));
        begin += size;
    }
    (begin == rows).then_some(parts)
}
