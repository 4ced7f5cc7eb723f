//! The random numbers of a device: a key, and a counter that each draw advances.

use parking_lot::Mutex;

/// The key and the counter of the next draw.
pub(crate) struct Draws(Mutex<(u64, u64)>);

impl Default for Draws {
    /// Starts from a number that differs from process to process.
    fn default() -> Self {
        Self(Mutex::new((entropy(), 0)))
    }
}

impl Draws {
    /// Starts the random numbers anew.
    pub(crate) fn seed(&self, seed: u64) {
        *self.0.lock() = (seed, 0);
    }

    /// Key and first counter of a draw of `words` 32-bit words. Later draws begin after it, so none repeats.
    pub(crate) fn draw(&self, words: usize) -> (u64, u64) {
        let mut rng = self.0.lock();
        let drawn = *rng;
        rng.1 = rng.1.wrapping_add(words as u64 / 2 + 1);
        drawn
    }

    /// Returns key and first counter of the draws of a call, which takes this many counters.
    pub(crate) fn draws_of_call(&self, counters: u64) -> (u64, u64) {
        let mut rng = self.0.lock();
        let drawn = *rng;
        rng.1 = rng.1.wrapping_add(counters);
        drawn
    }

    /// Returns key and first counter of the next draw.
    pub(crate) fn next_draw(&self) -> (u64, u64) {
        *self.0.lock()
    }

    /// Makes the next draw begin at this key and counter.
    pub(crate) fn draw_from(&self, next: (u64, u64)) {
        *self.0.lock() = next;
    }
}

/// A number that differs from process to process: the seed until `Backend::seed` gives one.
pub(super) fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
