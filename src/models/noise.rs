//! Pseudo-random numbers that are the same on every machine, for synthetic batches.

/// A linear congruential generator. Its low bits are of poor quality, so it returns only high bits.
pub(super) struct Noise(u64);

impl Noise {
    /// Creates the generator of a training step.
    pub(super) fn of_step(step: usize) -> Self {
        let mut noise = Self(step as u64);
        noise.next();
        noise
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Returns an integer in `0..bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// Returns a number in `[0, 1)`.
    pub(super) fn unit(&mut self) -> f32 {
        (self.next() >> 7) as f32 / (1 << 24) as f32
    }
}
