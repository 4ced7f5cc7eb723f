//! Who writes what: each element of each tensor is written by one process that has it, and all write about as much.
//!
//! Every process makes the same plan, from what all of them know: the parts of the tensors and who has them. Parts of
//! the same processes are taken as one sequence of bytes, of which each gets an equal and contiguous range, so that a
//! process copies little from its devices that it does not write. What one process alone has is its own.

use burn_tpu::distributed::{Part, Region};
use std::collections::BTreeMap;

/// The pieces into which a process's range is cut at least, so that ranges differ by little.
const PIECES: usize = 64;

/// A tensor whose writers are chosen.
pub(crate) struct Tensor {
    /// The size of an element in bytes.
    pub(crate) element: usize,
    pub(crate) parts: Vec<Part>,
}

/// A region that a process writes, and the part which it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The place of the tensor.
    pub(crate) tensor: usize,
    pub(crate) part: Region,
    pub(crate) region: Region,
}

/// Returns what a process writes, in the order of the tensors.
pub(crate) fn of(process: usize, tensors: &[Tensor]) -> Vec<Share> {
    let mut sequences: BTreeMap<&[usize], u64> = BTreeMap::new();
    for (tensor, part) in parts(tensors) {
        *sequences.entry(&part.processes).or_default() += bytes(&part.region, tensor.element);
    }
    let mut begun: BTreeMap<&[usize], u64> = BTreeMap::new();
    let mut shares = Vec::new();
    for (place, tensor) in tensors.iter().enumerate() {
        for part in &tensor.parts {
            let (all, at) = (sequences[&part.processes[..]], begun.entry(&part.processes).or_default());
            let sequence = Sequence { processes: &part.processes, bytes: all, begin: *at };
            *at += bytes(&part.region, tensor.element);
            let own = sequence.of(process, &part.region, tensor.element);
            shares.extend(own.into_iter().map(|region| Share { tensor: place, part: part.region.clone(), region }));
        }
    }
    shares
}

fn parts(tensors: &[Tensor]) -> impl Iterator<Item = (&Tensor, &Part)> {
    tensors.iter().flat_map(|tensor| tensor.parts.iter().map(move |part| (tensor, part)))
}

fn bytes(region: &Region, element: usize) -> u64 {
    (region.elements() * element) as u64
}

/// The bytes that some processes have in common, of which one part begins at a place.
struct Sequence<'p> {
    processes: &'p [usize],
    bytes: u64,
    begin: u64,
}

impl Sequence<'_> {
    /// Returns the process that writes the bytes in the middle between two places in the part.
    fn writer(&self, from: u64, to: u64) -> Option<usize> {
        let middle = u128::from(2 * self.begin + from + to);
        let place = middle * self.processes.len() as u128 / (2 * u128::from(self.bytes.max(1)));
        self.processes.get(place as usize).or(self.processes.last()).copied()
    }

    /// Returns the regions of a part that a process writes. A part is cut along its first dims, in pieces that are
    /// small beside a process's range.
    fn of(&self, process: usize, part: &Region, element: usize) -> Vec<Region> {
        let all = bytes(part, element);
        let is_one = part.sizes.is_empty() || all <= self.most() || self.writer(0, 0) == self.writer(all, all);
        if is_one {
            return if self.writer(0, all) == Some(process) { vec![part.clone()] } else { Vec::new() };
        }
        let (dim, row) = self.cut(part, element);
        let (rows, outer): (usize, usize) = (part.sizes[dim], part.sizes[..dim].iter().product());
        let mut own: Vec<Region> = Vec::new();
        for i in 0..outer {
            let is_own = |at: usize| {
                let from = (i * rows + at) as u64 * row;
                self.writer(from, from + row) == Some(process)
            };
            let Some(first) = (0..rows).find(|&at| is_own(at)) else { continue };
            let count = (first..rows).take_while(|&at| is_own(at)).count();
            own.push(slab(part, dim, i, first, count));
        }
        own
    }

    /// The most bytes of a piece.
    fn most(&self) -> u64 {
        self.bytes / (self.processes.len() * PIECES) as u64
    }

    /// Returns the dim along which a part is cut, and the bytes of one of its indices.
    fn cut(&self, part: &Region, element: usize) -> (usize, u64) {
        let row = |dim: usize| (part.sizes[dim + 1..].iter().product::<usize>() * element) as u64;
        let last = part.sizes.len().saturating_sub(1);
        let dim = (0..last).find(|&dim| row(dim) <= self.most()).unwrap_or(last);
        (dim, row(dim))
    }
}

/// Returns the indices from `first` on of a dim of a part, in row `outer` of the dims before it.
fn slab(part: &Region, dim: usize, mut outer: usize, first: usize, count: usize) -> Region {
    let mut region = part.clone();
    for before in (0..dim).rev() {
        region.start[before] += outer % part.sizes[before];
        region.sizes[before] = 1;
        outer /= part.sizes[before];
    }
    region.start[dim] += first;
    region.sizes[dim] = count;
    region
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(dims: &[usize], processes: &[usize]) -> Tensor {
        Tensor { element: 2, parts: vec![Part { region: Region::whole(dims), processes: processes.to_vec() }] }
    }

    /// Checks that each element has one writer, which has it, and returns the bytes of each process.
    fn written(tensors: &[Tensor], processes: usize) -> Vec<u64> {
        let shares: Vec<Vec<Share>> = (0..processes).map(|process| of(process, tensors)).collect();
        for (place, tensor) in tensors.iter().enumerate() {
            let of_tensor = |process: usize| shares[process].iter().filter(move |share| share.tensor == place);
            for part in &tensor.parts {
                let mut writers = vec![0u8; part.region.elements()];
                for process in 0..processes {
                    for share in of_tensor(process).filter(|share| share.part == part.region) {
                        assert!(part.processes.contains(&process) && part.region.contains(&share.region));
                        part.region.runs(&share.region, |at, _, length| {
                            writers[at..at + length].iter_mut().for_each(|writers| *writers += 1)
                        });
                    }
                }
                assert!(writers.iter().all(|&writers| writers == 1), "{:?}", part.region);
            }
        }
        let sum = |shares: &Vec<Share>| {
            shares.iter().map(|share| bytes(&share.region, tensors[share.tensor].element)).sum::<u64>()
        };
        shares.iter().map(sum).collect()
    }

    fn is_even(written: &[u64]) {
        let share = written.iter().sum::<u64>() as f64 / written.len() as f64;
        for &bytes in written {
            assert!((bytes as f64 / share - 1.0).abs() < 0.05, "{written:?}");
        }
    }

    #[test]
    fn replicas_are_written_once_and_evenly() {
        let all = [0, 1, 2, 3];
        // One tensor has most of it; another cannot be cut along its first dims.
        let dims: [&[usize]; 7] = [&[1000, 64], &[64], &[3, 50, 7], &[1, 9000], &[2, 3, 5000], &[], &[0, 4]];
        is_even(&written(&dims.map(|dims| whole(dims, &all)), 4));
        is_even(&written(&[whole(&[4, 4], &all)], 4));
        assert_eq!(written(&[whole(&[2], &all)], 4).iter().sum::<u64>(), 4, "fewer elements than processes");
        assert_eq!(written(&[whole(&[8, 8], &[0])], 1), [128]);
    }

    #[test]
    fn one_process_writes_tensors_as_they_are() {
        let shares = of(0, &[whole(&[1000, 3], &[0]), whole(&[], &[0])]);
        assert_eq!(
            shares.iter().map(|share| share.region.clone()).collect::<Vec<_>>(),
            [Region::whole(&[1000, 3]), Region::whole(&[])]
        );
    }

    #[test]
    fn what_one_process_has_is_its_own_and_the_rest_is_divided() {
        let region = |first, processes: &[usize]| Part {
            region: Region { start: vec![first, 0], sizes: vec![25, 64] },
            processes: processes.to_vec(),
        };
        // Split over all; split in two, with two copies each; replicated.
        let four = (0..4).map(|process| region(25 * process, &[process])).collect();
        let pairs = vec![region(0, &[0, 1]), region(25, &[2, 3])];
        let tensors =
            [Tensor { element: 4, parts: four }, Tensor { element: 4, parts: pairs }, whole(&[640], &[0, 1, 2, 3])];
        is_even(&written(&tensors, 4));
        // A process copies little that it does not write: of whole tensors, no more than the two at the ends of its
        // range.
        let many: Vec<Tensor> = (0..40).map(|_| whole(&[30, 8], &[0, 1, 2, 3])).collect();
        for process in 0..4 {
            let copied: Vec<Share> = of(process, &many);
            assert!(copied.len() <= 12, "{}", copied.len());
        }
    }
}
