//! Attention without its scores in memory: forward, and backward from what forward saves.
//!
//! Queries `[batch, heads, queries, head_dim]`; keys and values `[batch, key_heads, keys, head_dim]`, where each key head
//! serves `heads / key_heads` heads one after the other (grouped queries). For each query
//!
//! ```text
//! score = drop(cap(scale * q k^T)) + bias, where the query sees the key      cap(x) = softcap * tanh(x / softcap)
//! out   = drop(softmax(score)) v
//! ```
//!
//! computed block by block with an online softmax (Milakov and Gimelshein 2018; Dao et al., *FlashAttention*, 2022, and
//! *FlashAttention-2*, 2023), so that memory is linear in the sequence. Scores and sums are f32; the factors of products
//! are rounded to the element type. A query that sees no key has result 0 and gradients 0.
//!
//! Owns: what attention is called with, and its blocks. The kernels are in `attention/forward.rs` and `backward.rs`.

use crate::{ArrayType, Axis, Element, Index, KernelBuilder, KernelError, Ref, Result, Window};

mod backward;
mod band;
mod dropout;
mod forward;
mod scores;

pub use band::Band;
pub use dropout::{Dropout, Dropped};

/// Larger numbers would overflow where positions are added.
const LARGEST: usize = 1 << 24;

/// Attention of these shapes.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// The element type of queries, keys, values, results and their gradients: f32 or bf16.
    pub element: Element,
    /// The number of sequences.
    pub batch: usize,
    /// The heads of the queries.
    pub heads: usize,
    /// The heads of keys and values, which divide those of the queries.
    pub key_heads: usize,
    /// The number of queries of a sequence.
    pub queries: usize,
    /// The number of keys of a sequence.
    pub keys: usize,
    /// The width of a head.
    pub head_dim: usize,
    /// The factor of the scores, most often `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// The bound of the scores, if they are capped.
    pub softcap: Option<f32>,
    /// The keys that a query sees by position.
    pub band: Band,
    /// Whether each sequence has a number of keys, after which none is seen: an operand i32 `[batch]`.
    pub has_lengths: bool,
    /// What is added to the scores: an operand each.
    pub biases: Vec<Bias>,
    /// The weights or scores that are dropped at random, if any are: an operand.
    pub dropout: Option<Dropout>,
    /// The sizes of blocks.
    pub blocks: Blocks,
}

/// An operand `[batch, heads, queries, keys]` that is added to the scores. It gets no gradient. What hides a key, such as a
/// mask of data, is a large negative number: -2.4e38 or minus infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bias {
    /// Its element type, f32 or bf16.
    pub element: Element,
    /// Its batch, which may be 1.
    pub batch: usize,
    /// Its heads, which may be 1.
    pub heads: usize,
    /// Its queries, which may be 1: then it is a row of keys, of f32.
    pub queries: usize,
}

/// The sizes of blocks: how many queries and keys a step of the grid computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// They divide the queries.
    pub queries: usize,
    /// They divide the keys.
    pub keys: usize,
}

impl Blocks {
    /// Returns the largest of 512, 256 and 128 that divides a sequence, or a short sequence as a whole.
    pub fn choose(queries: usize, keys: usize) -> Self {
        let size =
            |length: usize| [512, 256, 128].into_iter().find(|&size| length.is_multiple_of(size)).unwrap_or(length);
        Self { queries: size(queries), keys: size(keys) }
    }
}

impl Attention {
    /// Creates attention of all queries to all keys, with as many key heads as heads and the usual scale and blocks.
    pub fn new(element: Element, batch: usize, heads: usize, queries: usize, keys: usize, head_dim: usize) -> Self {
        Self {
            element,
            batch,
            heads,
            key_heads: heads,
            queries,
            keys,
            head_dim,
            scale: 1.0 / (head_dim as f32).sqrt(),
            softcap: None,
            band: Band::ALL,
            has_lengths: false,
            biases: Vec::new(),
            dropout: None,
            blocks: Blocks::choose(queries, keys),
        }
    }

    /// Returns attention as each of `batch * heads` devices computes it, of its sequences and its heads; `None` if they do
    /// not divide.
    pub fn part(&self, batch: usize, heads: usize) -> Option<Self> {
        let divides = |size: usize, parts: usize| parts > 0 && size.is_multiple_of(parts);
        if !divides(self.batch, batch) || !divides(self.heads, heads) || !divides(self.key_heads, heads) {
            return None;
        }
        let own = |size: usize, parts: usize| if size == 1 { 1 } else { size / parts };
        let bias = |bias: &Bias| Bias { batch: own(bias.batch, batch), heads: own(bias.heads, heads), ..*bias };
        let part_of = Some([self.batch, self.heads]);
        Some(Self {
            batch: self.batch / batch,
            heads: self.heads / heads,
            key_heads: self.key_heads / heads,
            biases: self.biases.iter().map(bias).collect(),
            dropout: self.dropout.map(|dropout| Dropout { part_of: dropout.part_of.or(part_of), ..dropout }),
            ..self.clone()
        })
    }

    /// Returns the number of heads that share a key head.
    fn group(&self) -> usize {
        self.heads / self.key_heads
    }

    /// Returns the number of blocks of queries and of keys.
    fn counts(&self) -> [usize; 2] {
        [self.queries / self.blocks.queries, self.keys / self.blocks.keys]
    }

    /// Returns what these numbers break, if anything.
    fn check(&self) -> Result<()> {
        let fails = |what: String, rule| Err(KernelError::Unsupported { kernel: "attention", what, rule });
        let Self { batch, heads, key_heads, queries, keys, head_dim, blocks, .. } = *self;
        let sizes = [batch, heads, key_heads, queries, keys, head_dim, blocks.queries, blocks.keys];
        if sizes.iter().any(|size| !(1..=LARGEST).contains(size)) || self.band.is_wide() {
            return fails(format!("sizes {sizes:?} with {:?}", self.band), "sizes are from 1 to 2^24");
        }
        let is_wide_row = |bias: &Bias| bias.queries > 1 || queries == 1 || bias.element == Element::F32;
        if !self.element.is_float() || !self.biases.iter().all(|bias| bias.element.is_float() && is_wide_row(bias)) {
            let what = format!("{:?} with {:?}", self.element, self.biases);
            return fails(what, "elements are f32 or bf16, those of a bias with one row f32");
        }
        let words = self.draw().iter().fold(1, |count: usize, size| count.saturating_mul(*size));
        if self.dropout.is_some() && u32::try_from(words).is_err() {
            return fails(format!("dropout of {words} weights"), "a draw has less than 2^32 words");
        }
        if !heads.is_multiple_of(key_heads) {
            return fails(format!("{heads} heads on {key_heads} key heads"), "key heads divide heads");
        }
        if !queries.is_multiple_of(blocks.queries) || !keys.is_multiple_of(blocks.keys) {
            return fails(format!("{blocks:?} of {queries} queries and {keys} keys"), "blocks divide the sequences");
        }
        if blocks.queries > 1024 || blocks.keys > 1024 || head_dim > 256 {
            let what = format!("{blocks:?} of width {head_dim}");
            return fails(what, "blocks have at most 1024 queries and keys, heads a width of 256");
        }
        let own = |size: usize, all: usize| size == 1 || size == all;
        let fits = |bias: &Bias| own(bias.batch, batch) && own(bias.heads, heads) && own(bias.queries, queries);
        if !self.biases.iter().all(fits) {
            let what = format!("{:?} of {batch} x {heads} x {queries}", self.biases);
            return fails(what, "a bias has 1 or all of batch, heads and queries");
        }
        Ok(())
    }

    /// Returns the type of queries, of results and of their gradients.
    pub fn query_type(&self) -> ArrayType {
        ArrayType::new(self.element, [self.batch, self.heads, self.queries, self.head_dim])
    }

    /// Returns the type of keys, of values and of their gradients.
    pub fn key_type(&self) -> ArrayType {
        ArrayType::new(self.element, [self.batch, self.key_heads, self.keys, self.head_dim])
    }

    /// Returns the type of what is saved for each query, `[batch, heads, 1, queries]`: rows, which take no padding.
    pub fn row_type(&self) -> ArrayType {
        ArrayType::new(Element::F32, [self.batch, self.heads, 1, self.queries])
    }
}

/// Where a step of a grid is: the sequence, the head, and the blocks of queries and keys.
#[derive(Clone)]
struct Place {
    batch: Index,
    head: Index,
    query: Index,
    key: Index,
}

/// The operands that change the scores and their weights, if there are any.
struct Masks {
    biases: Vec<Ref>,
    lengths: Option<Ref>,
    /// The state of the draw.
    state: Option<Ref>,
}

impl Attention {
    /// Returns the window on a block of queries.
    fn query_window(&self, at: &Place) -> Window {
        let block = [1, 1, self.blocks.queries, self.head_dim];
        let index = [at.batch.clone(), at.head.clone(), at.query.clone(), 0.into()];
        Window::whole(self.element, &self.query_type().dims).block(&block, index)
    }

    /// Returns the window on a block of keys or values.
    fn key_window(&self, at: &Place) -> Window {
        let block = [1, 1, self.blocks.keys, self.head_dim];
        let head = at.head.clone() / self.group() as i32;
        Window::whole(self.element, &self.key_type().dims)
            .block(&block, [at.batch.clone(), head, at.key.clone(), 0.into()])
    }

    /// Returns the window on what is saved of a block of queries.
    fn row_window(&self, at: &Place) -> Window {
        let index = [at.batch.clone(), at.head.clone(), 0.into(), at.query.clone()];
        Window::whole(Element::F32, &self.row_type().dims).block(&[1, 1, 1, self.blocks.queries], index)
    }

    /// Declares the operands that change the scores: the biases, the lengths, then the state of the draw.
    fn masks(&self, k: &mut KernelBuilder, at: &Place) -> Masks {
        let biases = self.biases.iter().map(|bias| k.operand(self.bias_window(bias, at))).collect();
        let lengths = self.has_lengths.then(|| k.operand(Window::whole(Element::I32, &[self.batch]).in_smem()));
        Masks { biases, lengths, state: self.state(k) }
    }

    /// Returns the window on a block of a bias.
    fn bias_window(&self, bias: &Bias, at: &Place) -> Window {
        let own = |size: usize, index: &Index| if size == 1 { 0.into() } else { index.clone() };
        let (batch, head) = (own(bias.batch, &at.batch), own(bias.heads, &at.head));
        let (query, rows) = (own(bias.queries, &at.query), bias.queries.min(self.blocks.queries));
        let array = Window::whole(bias.element, &[bias.batch, bias.heads, bias.queries, self.keys]);
        array.block(&[1, 1, rows, self.blocks.keys], [batch, head, query, at.key.clone()])
    }

    /// Returns the grid of the kernels that follow one block of queries along the keys, and its place.
    fn query_grid(&self) -> ([Axis; 4], Place) {
        let [queries, keys] = self.counts();
        let axes =
            [Axis::parallel(self.batch), Axis::parallel(self.heads), Axis::parallel(queries), Axis::arbitrary(keys)];
        let [batch, head, query, key] = [0, 1, 2, 3].map(Index::grid);
        (axes, Place { batch, head, query, key })
    }
}
