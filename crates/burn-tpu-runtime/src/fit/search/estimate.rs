//! What a layout costs, roughly and before any compile: enough to choose which layouts are compiled.
//!
//! The terms of a transformer's training step: state, saved activations, weights that are gathered, gradients that are
//! added up, activations that tensor parallel layers add up (Megatron-LM, Shoeybi et al. 2019; ZeRO, Rajbhandari et al.
//! 2020), keys and values that go round a ring (Ring Attention, Liu et al. 2023), tokens that go to their experts (GShard,
//! Lepikhin et al. 2020). Those of a decoding step: weights and cache, which are read once.

use super::candidates::{Candidate, Kept, Sizes, Step};
use crate::fit::Spec;
use serde::Serialize;
use std::cmp::Ordering;

/// The estimate for one device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Estimate {
    /// What it holds at the peak.
    pub memory_bytes: f64,
    /// The longer of its matrix operations and its memory traffic.
    pub work_seconds: f64,
    /// What it sends to other devices.
    pub communication_seconds: f64,
}

impl Estimate {
    /// Returns the estimate of a layout on devices of one generation.
    pub(super) fn of(sizes: &Sizes, candidate: Candidate, spec: &Spec) -> Self {
        let model = Model::new(sizes, candidate);
        let (memory_bytes, traffic) = match sizes.step {
            // State is read and written; activations are written, read, and read again for the gradients.
            Step::Training => (
                model.state_bytes() + model.gradient_bytes() + model.activation_bytes(),
                2.0 * model.state_bytes() + 3.0 * model.traffic_bytes(),
            ),
            Step::Decoding => (model.state_bytes() + model.cache_bytes(), model.state_bytes() + model.cache_bytes()),
        };
        let work = (model.flops() / spec.flops_per_second()).max(traffic / spec.bytes_per_second());
        let network = spec.network_bytes_per_second().map_or(0.0, |rate| model.network_bytes() / rate);
        let communication_seconds = network.max(model.link_bytes() / spec.link_bytes_per_second());
        Self { memory_bytes, work_seconds: work, communication_seconds }
    }

    /// Compares two layouts, the more promising one first: those with room in `usable` bytes by the time of a step, then by
    /// the time without overlap; the others by memory.
    pub(super) fn order(&self, other: &Self, usable: f64) -> Ordering {
        let key = |estimate: &Self| match estimate.memory_bytes > ROOM * usable {
            true => (true, estimate.memory_bytes, 0.0),
            false => (false, nanoseconds(estimate.step_seconds()), nanoseconds(estimate.sum_seconds())),
        };
        let (a, b) = (key(self), key(other));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
    }

    /// Returns the least time of a step that hides its communication.
    fn step_seconds(&self) -> f64 {
        self.work_seconds.max(self.communication_seconds)
    }

    /// Returns the least time of a step that hides none of it.
    fn sum_seconds(&self) -> f64 {
        self.work_seconds + self.communication_seconds
    }
}

/// Returns a time as it is compared: times of the same work differ in their last bits.
pub(super) fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round()
}

/// The part of a device's memory that an estimate may fill: it is rough.
const ROOM: f64 = 0.9;

/// Elements that a block keeps for its gradients, in vectors of the model's width: the inputs of the norms and the sums.
const WHOLE_VECTORS: f64 = 8.0;

/// Tables of attention that a block keeps, `[heads, sequence, sequence]`: scores, weights, a masked copy.
const TABLES: f64 = 3.0;

/// Times that keys and values go round a ring, in their own size: forward, and backward with their gradients in f32.
const ROUNDS: f64 = 4.0;

struct Model {
    sizes: Sizes,
    candidate: Candidate,
    /// Tokens of one device.
    tokens: f64,
    element: f64,
}

impl Model {
    fn new(sizes: &Sizes, candidate: Candidate) -> Self {
        let each = match sizes.step {
            Step::Training => sizes.sequence,
            Step::Decoding => 1,
        };
        let tokens = (sizes.batch * each) as f64 / (candidate.batches() * candidate.context) as f64;
        Self { sizes: *sizes, candidate, tokens, element: sizes.element_bytes as f64 }
    }

    fn width(&self) -> f64 {
        self.sizes.width as f64
    }

    fn layers(&self) -> f64 {
        self.sizes.layers as f64
    }

    fn tensor(&self) -> f64 {
        self.candidate.tensor as f64
    }

    /// Parts of the parameters that are gathered to compute with.
    fn gathered_parts(&self) -> f64 {
        (self.candidate.fsdp * self.candidate.context) as f64
    }

    /// Elements of queries, and of keys.
    fn queries_and_keys(&self) -> [f64; 2] {
        [self.sizes.heads * self.sizes.head, self.sizes.kv_heads * self.sizes.head].map(|elements| elements as f64)
    }

    /// Parameters of a block without its hidden layer.
    fn attention_weights(&self) -> f64 {
        let [queries, keys] = self.queries_and_keys();
        self.width() * 2.0 * (queries + keys)
    }

    /// Parameters of one hidden layer.
    fn hidden_weights(&self) -> f64 {
        self.width() * (self.sizes.ff_matrices * self.sizes.ff) as f64
    }

    /// Parameters of a block on one device while it computes with them.
    fn block_weights(&self) -> f64 {
        let experts = self.sizes.experts as f64 / self.candidate.expert as f64;
        (self.attention_weights() + experts * self.hidden_weights()) / self.tensor()
    }

    /// Parameters of one device while it computes with them.
    fn weights(&self) -> f64 {
        let tables = self.width() * self.sizes.table_rows as f64;
        self.layers() * self.block_weights() + if self.sizes.splits_tables { tables / self.tensor() } else { tables }
    }

    /// Parameters of one device.
    fn parameters(&self) -> f64 {
        self.weights() / self.gathered_parts()
    }

    fn state_bytes(&self) -> f64 {
        self.parameters() * self.sizes.state_bytes as f64
    }

    /// Keys and values of all positions.
    fn cache_bytes(&self) -> f64 {
        let [_, keys] = self.queries_and_keys();
        let positions = (self.sizes.batch * self.sizes.sequence) as f64 / self.candidate.data as f64;
        2.0 * self.layers() * positions * keys / self.tensor() * self.element
    }

    /// Gradients are added up whole, in f32, before they are split: in a loop those of a block at a time, else XLA combines
    /// the exchanges of many blocks.
    fn gradient_bytes(&self) -> f64 {
        let whole = if self.sizes.is_loop { self.parameters() + self.block_weights() } else { self.weights() };
        whole * 4.0
    }

    /// Bytes that one block keeps for its gradients.
    fn block_bytes(&self) -> f64 {
        let [queries, keys] = self.queries_and_keys();
        let vectors = self.width() * WHOLE_VECTORS + (4.0 * queries + 2.0 * keys) / self.tensor();
        let hidden = self.hidden_elements() + self.hidden_elements() / self.sizes.ff_matrices as f64;
        self.tokens * (vectors + hidden) * self.element + TABLES * self.table_bytes()
    }

    /// Elements of the results of a hidden layer's products, for a token.
    fn hidden_elements(&self) -> f64 {
        (self.sizes.ff_matrices * self.sizes.ff * self.sizes.experts_per_token) as f64 / self.tensor()
    }

    /// Bytes of the results of a block's products.
    fn product_bytes(&self) -> f64 {
        let [queries, keys] = self.queries_and_keys();
        self.tokens * (self.width() + 2.0 * (queries + keys) / self.tensor() + self.hidden_elements()) * self.element
    }

    /// In a ring, a device sees half of a part's keys at a time.
    fn table_bytes(&self) -> f64 {
        let parts = if self.candidate.context > 1 { 2.0 * self.candidate.context as f64 } else { 1.0 };
        self.tokens * self.element * (self.sizes.sequence * self.sizes.heads) as f64 / self.tensor() / parts
    }

    fn activation_bytes(&self) -> f64 {
        let input = self.tokens * self.width() * self.element;
        let kept = match self.candidate.kept {
            Kept::Input => {
                // Fitted to one compile, which ran out of memory (docs/fit.md); too much for other layouts.
                let is_fitted = self.tensor() > 1.0 && !self.sizes.is_loop;
                let tables = if is_fitted { self.table_bytes() } else { 0.0 };
                self.layers() * (input + tables) + self.block_bytes()
            }
            Kept::Products => self.layers() * (input + self.product_bytes()) + self.block_bytes(),
            Kept::Everything => self.layers() * self.block_bytes(),
        };
        // The logits in f32 and their gradient; one block's weights, gathered.
        let logits = self.tokens * self.sizes.vocab as f64 / self.tensor() * 8.0;
        kept + logits + self.block_weights() * self.element
    }

    fn traffic_bytes(&self) -> f64 {
        self.layers() * self.block_bytes()
    }

    /// Passes over the products: forward, twice that for the gradients, and forward again where results are not kept.
    fn passes(&self) -> f64 {
        match (self.sizes.step, self.candidate.kept) {
            (Step::Decoding, _) => 1.0,
            (Step::Training, Kept::Input) => 4.0,
            (Step::Training, Kept::Products | Kept::Everything) => 3.0,
        }
    }

    fn flops(&self) -> f64 {
        let [queries, _] = self.queries_and_keys();
        let block = self.attention_weights()
            + self.sizes.experts_per_token as f64 * self.hidden_weights()
            + 2.0 * self.sizes.sequence as f64 * queries;
        let head = self.width() * self.sizes.vocab as f64;
        2.0 * self.tokens * self.passes() * (self.layers() * block + head) / self.tensor()
    }

    /// Bytes that a device sends over the links of its slice.
    fn link_bytes(&self) -> f64 {
        let Candidate { data, expert, context, kept, .. } = self.candidate;
        let others = |n: f64| (n - 1.0) / n;
        let vectors = self.layers() * self.tokens * self.width() * self.element;
        let to_experts = 2.0 * self.passes() * self.sizes.experts_per_token as f64 * vectors * others(expert as f64);
        let sums = match (self.sizes.step, kept) {
            (Step::Decoding, _) => 2.0,
            (Step::Training, Kept::Input) => 6.0,
            (Step::Training, Kept::Products | Kept::Everything) => 4.0,
        };
        let activations = sums * 2.0 * vectors * others(self.tensor()) + to_experts;
        if self.sizes.step == Step::Decoding {
            return activations;
        }
        let gradients = 2.0 * self.parameters() * self.element * others(data as f64);
        // Gathered for each pass over the weights; the gradients are added up once.
        let sharded = self.passes() * self.weights() * self.element * others(self.gathered_parts());
        let [_, keys] = self.queries_and_keys();
        let part = self.layers() * self.tokens * 2.0 * keys / self.tensor() * self.element;
        gradients + sharded + activations + ROUNDS * (context as f64 - 1.0) * part
    }

    /// Bytes that a device sends over the data center's network: the gradients.
    fn network_bytes(&self) -> f64 {
        let slices = self.candidate.slice as f64;
        match self.sizes.step {
            Step::Training => 2.0 * self.parameters() * self.element * (slices - 1.0) / slices,
            Step::Decoding => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::LARGE;
    use super::*;
    use crate::fit::Specs;

    fn estimate(candidate: Candidate) -> Estimate {
        Estimate::of(&LARGE, candidate, &Specs::builtin().unwrap().v5e)
    }

    const WHOLE: Candidate = Candidate { data: 256, kept: Kept::Input, ..Candidate::ONE };

    #[test]
    fn a_copy_on_each_device_has_all_the_state() {
        let memory = estimate(WHOLE).memory_bytes;
        assert!(memory > 6.7e9 * 10.0, "{memory}");
        let split = estimate(Candidate { data: 1, fsdp: 256, ..WHOLE }).memory_bytes;
        assert!(memory - split > 6.6e9 * 6.0, "{split}");
    }

    #[test]
    fn recomputation_takes_time_and_saves_memory() {
        let (again, kept) = (estimate(WHOLE), estimate(Candidate { kept: Kept::Everything, ..WHOLE }));
        assert!(again.memory_bytes < kept.memory_bytes && again.work_seconds > 1.3 * kept.work_seconds);
    }

    #[test]
    fn rounding_does_not_decide() {
        let estimate = estimate(WHOLE);
        let rounded = Estimate { work_seconds: estimate.work_seconds.next_up(), ..estimate };
        assert_eq!(rounded.order(&estimate, 1e15), Ordering::Equal);
    }

    #[test]
    fn a_layout_without_room_comes_after_those_with_room() {
        let copies = Candidate { kept: Kept::Everything, ..WHOLE };
        let split = Candidate { data: 1, fsdp: 256, ..WHOLE };
        assert_eq!(estimate(split).order(&estimate(copies), 16e9), Ordering::Less);
        assert_eq!(estimate(copies).order(&estimate(split), 1e15), Ordering::Less);
    }

    #[test]
    fn tensor_parallel_layers_exchange_activations() {
        let few = estimate(Candidate { data: 128, tensor: 2, ..WHOLE });
        let many = estimate(Candidate { data: 16, tensor: 16, ..WHOLE });
        assert!(many.communication_seconds > 2.0 * few.communication_seconds, "{many:?} {few:?}");
    }

    #[test]
    fn more_that_is_kept_takes_more_memory_and_no_more_time() {
        let [input, products, everything] =
            [Kept::Input, Kept::Products, Kept::Everything].map(|kept| estimate(Candidate { kept, ..WHOLE }));
        assert!(input.memory_bytes < products.memory_bytes && products.memory_bytes < everything.memory_bytes);
        assert!(products.work_seconds <= input.work_seconds);
    }

    #[test]
    fn a_split_of_the_tokens_splits_the_state_and_sends_keys() {
        let sizes = Sizes { batch: 4, sequence: 131_072, is_loop: true, splits_sequence: true, ..LARGE };
        let spec = &Specs::builtin().unwrap().v5p;
        let of = |fsdp, context| {
            Estimate::of(&sizes, Candidate { fsdp, context, kept: Kept::Input, ..Candidate::ONE }, spec)
        };
        let (whole, split) = (of(4, 1), of(4, 16));
        assert!(split.memory_bytes < whole.memory_bytes / 15.0, "{split:?} {whole:?}");
        assert!(split.work_seconds < whole.work_seconds / 15.0, "{split:?} {whole:?}");
    }

    /// Llama 3.1 8B, 64 texts of 2,048 positions: 15 GiB of weights and 16 GiB of cache.
    #[test]
    fn a_decoding_step_reads_weights_and_cache() {
        let sizes = Sizes {
            step: Step::Decoding,
            kv_heads: 8,
            ff: 14336,
            ff_matrices: 3,
            sequence: 2048,
            vocab: 128_256,
            table_rows: 2 * 128_256,
            splits_tables: true,
            batch: 64,
            state_bytes: 2,
            ..LARGE
        };
        let spec = &Specs::builtin().unwrap().v5p;
        let one = Estimate::of(&sizes, Candidate::ONE, spec);
        let gib = one.memory_bytes / (1u64 << 30) as f64;
        assert!((30.9..31.1).contains(&gib), "{gib}");
        assert_eq!((one.work_seconds, one.communication_seconds), (one.memory_bytes / spec.bytes_per_second(), 0.0));
        let split = Estimate::of(&sizes, Candidate { tensor: 8, ..Candidate::ONE }, spec);
        assert!(split.memory_bytes < one.memory_bytes / 7.9 && split.communication_seconds > 0.0, "{split:?}");
    }
}
