//! The layouts of a GPT that divide evenly over the devices of a slice.

use crate::device::Topology;
use serde::Serialize;

/// The sizes that decide which layouts divide, and what they cost.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Transformer blocks.
    pub layers: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Elements of the hidden layer after attention.
    pub ff: usize,
    /// Tokens of a sample.
    pub sequence: usize,
    /// Distinct tokens.
    pub vocab: usize,
    /// Samples of a step on all devices.
    pub batch: usize,
    /// Bytes of an element of the weights and the activations.
    pub element_bytes: usize,
    /// Bytes that live from step to step for each parameter: the weight, two moments, a master weight.
    pub state_bytes: usize,
}

/// A mesh, and whether activations are computed again. An axis of size 1 is not an axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Slices, over the data center's network: each has its own samples.
    pub slice: usize,
    /// Copies of the model in a slice: each has its own samples.
    pub data: usize,
    /// Parts of the parameters and their state, with its own samples each.
    pub fsdp: usize,
    /// Parts of the heads and of the hidden layers.
    pub tensor: usize,
    /// Whether each block runs again in the backward pass.
    pub remat: bool,
}

impl Candidate {
    /// Returns the axes of the mesh, outermost first. The last one's devices are neighbours.
    pub fn axes(self) -> Vec<(&'static str, usize)> {
        let all = [("slice", self.slice), ("data", self.data), ("fsdp", self.fsdp), ("tensor", self.tensor)];
        all.into_iter().filter(|(_, size)| *size > 1).collect()
    }

    /// Returns the mesh as [`Mesh`](crate::Mesh) reads it; empty for one device.
    pub fn mesh(self) -> String {
        self.axes().iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",")
    }

    /// Returns the number of groups of devices that have their own samples.
    pub fn batches(self) -> usize {
        self.slice * self.data * self.fsdp
    }
}

/// Returns every layout for a slice whose devices are `devices` in all, with each of the settings of `remat`.
pub(super) fn all(sizes: &Sizes, topology: Topology, devices: usize, remat: &[bool]) -> Vec<Candidate> {
    let (slice, in_slice) = (topology.slices(), devices / topology.slices());
    let mut found = Vec::new();
    for tensor in divisors(in_slice) {
        for fsdp in divisors(in_slice / tensor) {
            let data = in_slice / tensor / fsdp;
            let every = remat.iter().map(|&remat| Candidate { slice, data, fsdp, tensor, remat });
            found.extend(every.filter(|candidate| divides(sizes, *candidate)));
        }
    }
    found
}

/// Returns whether each part of the weights and of the batch has the same size.
fn divides(sizes: &Sizes, candidate: Candidate) -> bool {
    let Candidate { fsdp, tensor, .. } = candidate;
    let split = [sizes.heads, sizes.ff, sizes.vocab].iter().all(|size| size.is_multiple_of(tensor));
    let both = fsdp == 1 || tensor == 1 || sizes.width.is_multiple_of(fsdp);
    split && both && sizes.batch.is_multiple_of(candidate.batches())
}

fn divisors(n: usize) -> impl Iterator<Item = usize> {
    (1..=n).filter(move |divisor| n.is_multiple_of(*divisor))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A GPT with 7 billion parameters, 256 samples a step.
    pub const LARGE: Sizes = Sizes {
        layers: 32,
        width: 4096,
        heads: 32,
        ff: 16384,
        sequence: 4096,
        vocab: 32000,
        batch: 256,
        element_bytes: 2,
        state_bytes: 6,
    };

    fn layouts(sizes: &Sizes, slice: &str) -> Vec<String> {
        let slice: Topology = slice.parse().unwrap();
        all(sizes, slice, slice.chips(), &[true]).into_iter().map(Candidate::mesh).collect()
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
        assert_eq!(layouts(Sizes { vocab: 31, batch: 2, ..LARGE }), Vec::<String>::new());
        assert_eq!(layouts(Sizes { batch: 1, ..LARGE }), ["tensor=4"]);
    }
}
