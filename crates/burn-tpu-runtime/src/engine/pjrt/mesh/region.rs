//! The parts of a value: which bytes of the whole each device has.

use burn_tpu_graph::{Mesh, Sharding, TensorType};

/// A device's part of a row-major array: a box.
pub(super) struct Region {
    pub(super) start: Vec<usize>,
    sizes: Vec<usize>,
    pub(super) whole: Vec<usize>,
    element: usize,
}

impl Region {
    pub(super) fn of(sharding: &Sharding, ty: &TensorType, mesh: &Mesh, device: usize) -> Self {
        Self {
            start: sharding.start(ty, mesh, device).to_vec(),
            sizes: sharding.local(ty, mesh).dims.to_vec(),
            whole: ty.dims.to_vec(),
            element: ty.dtype.size_bytes(),
        }
    }

    /// Calls `run` with each contiguous run of bytes: its place in the part, its place in the whole, its length.
    fn runs(&self, mut run: impl FnMut(usize, usize, usize)) {
        let split = (0..self.whole.len()).rev().find(|&dim| self.sizes[dim] != self.whole[dim]);
        let Some(last) = split else { return run(0, 0, self.whole.iter().product::<usize>() * self.element) };
        // The dims after `last` are whole, so that a run spans them all.
        let inner: usize = self.whole[last + 1..].iter().product::<usize>() * self.element;
        let length = self.sizes[last] * inner;
        for i in 0..self.sizes[..last].iter().product() {
            let (mut rest, mut at, mut stride) = (i, self.start[last], self.whole[last]);
            for dim in (0..last).rev() {
                at += (self.start[dim] + rest % self.sizes[dim]) * stride;
                rest /= self.sizes[dim];
                stride *= self.whole[dim];
            }
            run(i * length, at * inner, length);
        }
    }

    /// Returns the part's bytes.
    pub(super) fn take(&self, whole: &[u8]) -> Vec<u8> {
        let mut part = Vec::with_capacity(self.sizes.iter().product::<usize>() * self.element);
        self.runs(|_, at, length| part.extend_from_slice(&whole[at..at + length]));
        part
    }

    /// Writes the part's bytes into the whole.
    pub(super) fn put(&self, part: &[u8], whole: &mut [u8]) {
        self.runs(|from, at, length| whole[at..at + length].copy_from_slice(&part[from..from + length]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::DType;
    use smallvec::smallvec;

    #[test]
    fn parts_join_to_the_whole() {
        let mesh = Mesh::new(&[("data".to_owned(), 2), ("model".to_owned(), 3)]).unwrap();
        let ty = TensorType::new(DType::I16, [4, 5, 6, 2]);
        let whole: Vec<u8> = (0..ty.bytes()).map(|byte| byte as u8).collect();
        let shardings = [
            Sharding::replicated(4),
            Sharding::first_dim(4, &[0]),
            Sharding::new([smallvec![], smallvec![], smallvec![1], smallvec![0]]),
            Sharding::new([smallvec![0], smallvec![], smallvec![1], smallvec![]]),
            Sharding::new([smallvec![], smallvec![], smallvec![1, 0], smallvec![]]),
        ];
        for sharding in shardings {
            let mut joined = vec![0; whole.len()];
            for device in 0..mesh.devices() {
                let region = Region::of(&sharding, &ty, &mesh, device);
                let part = region.take(&whole);
                assert_eq!(part.len(), sharding.local(&ty, &mesh).bytes(), "{sharding}");
                region.put(&part, &mut joined);
            }
            assert_eq!(joined, whole, "{sharding}");
        }
        // Row 1 of each column pair.
        let ty = TensorType::new(DType::U8, [2, 6]);
        let sharding = Sharding::new([smallvec![0], smallvec![1]]);
        let region = Region::of(&sharding, &ty, &mesh, 4);
        assert_eq!(region.take(&(0..12).collect::<Vec<u8>>()), [8, 9]);
    }
}
