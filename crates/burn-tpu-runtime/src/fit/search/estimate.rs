//! What a layout costs, roughly and before any compile: enough to choose which layouts are compiled.
//!
//! The terms are those of a GPT's training step: state, saved activations, weights that are gathered, gradients that are
//! added up, activations that tensor parallel layers add up (Megatron-LM, Shoeybi et al. 2019; ZeRO, Rajbhandari et al.
//! 2020).

use super::candidates::{Candidate, Sizes};
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
        let memory_bytes = model.state_bytes() + model.gradient_bytes() + model.activation_bytes();
        // State is read and written; activations are written, read, and read again for the gradients.
        let traffic = 2.0 * model.state_bytes() + 3.0 * model.traffic_bytes();
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

/// Those that tensor parallelism splits: query, key, value, the result of attention.
const SPLIT_VECTORS: f64 = 6.0;

/// Hidden layers that a block keeps: before and after the activation function.
const HIDDEN_LAYERS: f64 = 3.0;

/// Tables of attention that a block keeps, `[heads, sequence, sequence]`: scores, weights, a masked copy.
const TABLES: f64 = 3.0;

struct Model {
    sizes: Sizes,
    candidate: Candidate,
    /// Tokens of one device.
    tokens: f64,
    element: f64,
}

impl Model {
    fn new(sizes: &Sizes, candidate: Candidate) -> Self {
        let tokens = (sizes.batch * sizes.sequence) as f64 / candidate.batches() as f64;
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

    /// Parameters in the blocks.
    fn blocks(&self) -> f64 {
        self.layers() * self.width() * (4.0 * self.width() + 2.0 * self.sizes.ff as f64)
    }

    fn edges(&self) -> f64 {
        self.width() * (2.0 * self.sizes.vocab as f64 + self.sizes.sequence as f64)
    }

    /// Parameters of one device.
    fn parameters(&self) -> f64 {
        self.weights() / self.candidate.fsdp as f64
    }

    fn state_bytes(&self) -> f64 {
        self.parameters() * self.sizes.state_bytes as f64
    }

    /// Gradients are added up whole, in f32, before they are split, and XLA combines the exchanges of many layers.
    fn gradient_bytes(&self) -> f64 {
        self.weights() * 4.0
    }

    /// Parameters of one device while it computes with them.
    fn weights(&self) -> f64 {
        self.blocks() / self.tensor() + self.edges()
    }

    /// Bytes that one block keeps for its gradients.
    fn block_bytes(&self) -> f64 {
        let vectors = self.width() * (WHOLE_VECTORS + SPLIT_VECTORS / self.tensor());
        let hidden = HIDDEN_LAYERS * self.sizes.ff as f64 / self.tensor();
        self.tokens * (vectors + hidden) * self.element + TABLES * self.table_bytes()
    }

    fn table_bytes(&self) -> f64 {
        self.tokens * self.element * (self.sizes.sequence * self.sizes.heads) as f64 / self.tensor()
    }

    fn activation_bytes(&self) -> f64 {
        let kept = match self.candidate.remat {
            true => {
                // Fitted to one compile, which ran out of memory (docs/fit.md); too much for other layouts.
                let tables = if self.tensor() > 1.0 { self.table_bytes() } else { 0.0 };
                self.layers() * (self.tokens * self.width() * self.element + tables) + self.block_bytes()
            }
            false => self.layers() * self.block_bytes(),
        };
        // The logits in f32 and their gradient; one block's weights, gathered.
        let logits = self.tokens * self.sizes.vocab as f64 / self.tensor() * 8.0;
        let gathered = self.blocks() / self.layers().max(1.0) / self.tensor() * self.element;
        kept + logits + gathered
    }

    fn traffic_bytes(&self) -> f64 {
        self.layers() * self.block_bytes()
    }

    /// Forward, twice that for the gradients, and forward again where activations are not kept.
    fn flops(&self) -> f64 {
        let passes = if self.candidate.remat { 4.0 } else { 3.0 };
        let attention = 2.0 * self.layers() * self.sizes.sequence as f64 * self.width();
        2.0 * self.tokens * passes * (self.blocks() + self.edges() / 2.0 + attention) / self.tensor()
    }

    /// Bytes that a device sends over the links of its slice.
    fn link_bytes(&self) -> f64 {
        let Candidate { data, fsdp, remat, .. } = self.candidate;
        let others = |n: f64| (n - 1.0) / n;
        let gradients = 2.0 * self.parameters() * self.element * others(data as f64);
        // Gathered for each pass over the weights; the gradients are added up once.
        let passes = if remat { 4.0 } else { 3.0 };
        let sharded = passes * self.weights() * self.element * others(fsdp as f64);
        let sums = if remat { 6.0 } else { 4.0 };
        let activations =
            sums * self.layers() * 2.0 * self.tokens * self.width() * self.element * others(self.tensor());
        gradients + sharded + activations
    }

    /// Bytes that a device sends over the data center's network: the gradients.
    fn network_bytes(&self) -> f64 {
        let slices = self.candidate.slice as f64;
        2.0 * self.parameters() * self.element * (slices - 1.0) / slices
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

    const WHOLE: Candidate = Candidate { slice: 1, data: 256, fsdp: 1, tensor: 1, remat: true };

    #[test]
    fn a_copy_on_each_device_has_all_the_state() {
        let memory = estimate(WHOLE).memory_bytes;
        assert!(memory > 6.7e9 * 10.0, "{memory}");
        let split = estimate(Candidate { data: 1, fsdp: 256, ..WHOLE }).memory_bytes;
        assert!(memory - split > 6.6e9 * 6.0, "{split}");
    }

    #[test]
    fn recomputation_takes_time_and_saves_memory() {
        let (again, kept) = (estimate(WHOLE), estimate(Candidate { remat: false, ..WHOLE }));
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
        let copies = Candidate { remat: false, ..WHOLE };
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
}
