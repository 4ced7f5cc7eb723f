//! The layouts of a transformer that divide evenly over the devices of a slice.

use crate::device::Topology;
use serde::Serialize;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Forward, backward and update.
    Training,
    /// One token of each sample, beside a cache of `sequence` positions.
    Decoding,
}

/// The sizes that decide which layouts divide, and what they cost.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// What a step does.
    pub step: Step,
    /// Transformer blocks.
    pub layers: usize,
    /// Whether the blocks are one loop. Then their weights are gathered, and gradients added up, a block at a time, and a
    /// compile takes as long for many blocks as for few.
    pub is_loop: bool,
    /// Elements of a token's vector.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head: usize,
    /// Elements of the hidden layer after attention, of each expert.
    pub ff: usize,
    /// Matrices of that layer: 2, or 3 with a gate.
    pub ff_matrices: usize,
    /// Hidden layers among which a router chooses; 1 without a router.
    pub experts: usize,
    /// The number of them that a token passes through.
    pub experts_per_token: usize,
    /// Tokens of a sample.
    pub sequence: usize,
    /// Distinct tokens.
    pub vocab: usize,
    /// Parameters of no block for each element of a token's vector: the rows of tables.
    pub table_rows: usize,
    /// Whether those are split as the heads and the hidden layers are.
    pub splits_tables: bool,
    /// Samples of a step on all devices.
    pub batch: usize,
    /// Bytes of an element of the weights and the activations.
    pub element_bytes: usize,
    /// Bytes that live from step to step for each parameter: the weight, two moments, a master weight.
    pub state_bytes: usize,
    /// Whether the tokens of a sample may be split.
    pub splits_sequence: bool,
}

/// What each block keeps for its backward pass. The rest is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Its input alone.
    Input,
    /// The results of its matrix products too.
    Products,
    /// All that its gradients read.
    Everything,
}

impl Kept {
    /// Returns the name in tables and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Products => "products",
            Self::Everything => "everything",
        }
    }
}

/// A mesh, and what is kept for the backward pass. An axis of size 1 is not an axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Slices, over the data center's network: each has its own samples.
    pub slice: usize,
    /// Copies of the model in a slice: each has its own samples.
    pub data: usize,
    /// Parts of the parameters and their state, with its own samples each.
    pub fsdp: usize,
    /// Parts of the experts, with its own samples each.
    pub expert: usize,
    /// Parts of the tokens of a sample, and of the parameters and their state.
    pub context: usize,
    /// Parts of the heads and of the hidden layers.
    pub tensor: usize,
    /// What each block keeps for its backward pass.
    pub kept: Kept,
}

impl Candidate {
    /// One device that keeps all that gradients read.
    pub const ONE: Self = Self { slice: 1, data: 1, fsdp: 1, expert: 1, context: 1, tensor: 1, kept: Kept::Everything };

    /// Returns the axes of the mesh, outermost first. The last one's devices are neighbours.
    pub fn axes(self) -> Vec<(&'static str, usize)> {
        let Self { slice, data, fsdp, expert, context, tensor, kept: _ } = self;
        let all = [
            ("slice", slice),
            ("data", data),
            ("fsdp", fsdp),
            ("expert", expert),
            ("context", context),
            ("tensor", tensor),
        ];
        all.into_iter().filter(|(_, size)| *size > 1).collect()
    }

    /// Returns the mesh as [`Mesh`](crate::Mesh) reads it; empty for one device.
    pub fn mesh(self) -> String {
        self.axes().iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",")
    }

    /// Returns the number of groups of devices that have their own samples.
    pub fn batches(self) -> usize {
        self.slice * self.data * self.fsdp * self.expert
    }
}

/// Returns every layout for a slice whose devices are `devices` in all, with each of the settings of `kept`.
pub(super) fn all(sizes: &Sizes, topology: Topology, devices: usize, kept: &[Kept]) -> Vec<Candidate> {
    let (slice, in_slice) = (topology.slices(), devices / topology.slices());
    let mut found = Vec::new();
    for tensor in divisors(in_slice) {
        for context in divisors(in_slice / tensor) {
            for expert in divisors(in_slice / tensor / context) {
                for fsdp in divisors(in_slice / tensor / context / expert) {
                    let data = in_slice / tensor / context / expert / fsdp;
                    let layout = Candidate { slice, data, fsdp, expert, context, tensor, kept: Kept::Everything };
                    if divides(sizes, layout) {
                        found.extend(kept.iter().map(|&kept| Candidate { kept, ..layout }));
                    }
                }
            }
        }
    }
    found
}

/// Returns whether each part of the weights, the experts, the tokens and the batch has the same size, and the step has
/// such a part.
fn divides(sizes: &Sizes, candidate: Candidate) -> bool {
    let Candidate { fsdp, expert, context, tensor, .. } = candidate;
    let split = [sizes.heads, sizes.kv_heads, sizes.ff, sizes.vocab].iter().all(|size| size.is_multiple_of(tensor));
    let parts = fsdp * context;
    let both = parts == 1 || tensor == 1 || sizes.width.is_multiple_of(parts);
    // A ring gives each device two parts of a sample, an early and a late one.
    let tokens = context == 1 || sizes.splits_sequence && sizes.sequence.is_multiple_of(2 * context);
    let step = match sizes.step {
        Step::Training => true,
        // Weights that are gathered for each token would be all that the links do.
        Step::Decoding => parts == 1,
    };
    split
        && both
        && tokens
        && step
        && sizes.experts.is_multiple_of(expert)
        && sizes.batch.is_multiple_of(candidate.batches())
}

fn divisors(n: usize) -> impl Iterator<Item = usize> {
    (1..=n).filter(move |divisor| n.is_multiple_of(*divisor))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A GPT with 7 billion parameters, 256 samples a step.
    pub const LARGE: Sizes = Sizes {
        step: Step::Training,
        layers: 32,
        is_loop: false,
        width: 4096,
        heads: 32,
        kv_heads: 32,
        head: 128,
        ff: 16384,
        ff_matrices: 2,
        experts: 1,
        experts_per_token: 1,
        sequence: 4096,
        vocab: 32000,
        table_rows: 2 * 32000 + 4096,
        splits_tables: false,
        batch: 256,
        element_bytes: 2,
        state_bytes: 6,
        splits_sequence: false,
    };

    fn layouts(sizes: &Sizes, slice: &str) -> Vec<String> {
        let slice: Topology = slice.parse().unwrap();
        all(sizes, slice, slice.chips(), &[Kept::Input]).into_iter().map(Candidate::mesh).collect()
    }

    #[test]
    fn every_factorisation_is_a_layout_with_axes_longer_than_one() {
        let expected = ["data=4", "data=2,fsdp=2", "fsdp=4", "data=2,tensor=2", "fsdp=2,tensor=2", "tensor=4"];
        assert_eq!(layouts(&LARGE, "v5e:2x2"), expected);
        assert_eq!(layouts(&LARGE, "v5e:1x1"), [""]);
        assert_eq!(layouts(&LARGE, "2xv5e:2x2")[..2], ["slice=2,data=4", "slice=2,data=2,fsdp=2"]);
    }

    #[test]
    fn heads_hidden_layers_vocabulary_and_batch_divide() {
        let layouts = |sizes| layouts(&sizes, "v5e:2x2");
        assert_eq!(layouts(Sizes { heads: 2, batch: 2, ..LARGE }), ["data=2,tensor=2", "fsdp=2,tensor=2"]);
        assert_eq!(layouts(Sizes { kv_heads: 2, batch: 2, ..LARGE }), ["data=2,tensor=2", "fsdp=2,tensor=2"]);
        assert_eq!(layouts(Sizes { vocab: 31, batch: 2, ..LARGE }), Vec::<String>::new());
        assert_eq!(layouts(Sizes { batch: 1, ..LARGE }), ["tensor=4"]);
    }

    #[test]
    fn tokens_and_experts_are_split_where_the_step_has_such_parts() {
        let layouts = |sizes| layouts(&sizes, "v5e:2x2");
        let few = Sizes { batch: 1, heads: 1, kv_heads: 1, splits_sequence: true, ..LARGE };
        assert_eq!(layouts(few), ["context=4"]);
        assert!(layouts(Sizes { sequence: 4, ..few }).is_empty(), "four chips take multiples of 8");
        let experts = layouts(Sizes { experts: 2, heads: 1, kv_heads: 1, ..LARGE });
        assert_eq!(experts, ["data=4", "data=2,fsdp=2", "fsdp=4", "data=2,expert=2", "fsdp=2,expert=2"]);
    }

    #[test]
    fn a_decoding_step_gathers_no_weights() {
        let decoding = Sizes { step: Step::Decoding, splits_sequence: true, ..LARGE };
        assert_eq!(layouts(&decoding, "v5e:2x2"), ["data=4", "data=2,tensor=2", "tensor=4"]);
    }
}
