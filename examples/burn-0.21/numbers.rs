//! Pseudo-random numbers on the host, for synthetic data that are the same on every backend.

/// A linear congruential generator. Its low bits are of poor quality, so it returns only high bits.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Creates a generator.
    pub fn new(seed: u64) -> Self {
        let mut numbers = Self(seed);
        numbers.next();
        numbers
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Returns an integer in `range`.
    pub fn within(&mut self, range: std::ops::Range<usize>) -> usize {
        range.start + self.next() as usize % range.len()
    }

    /// Returns a number in `[0, 1)`.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 7) as f32 / (1 << 24) as f32
    }

    /// Returns a number in `[-1, 1)`.
    pub fn signed(&mut self) -> f32 {
        2.0 * self.unit() - 1.0
    }
}
