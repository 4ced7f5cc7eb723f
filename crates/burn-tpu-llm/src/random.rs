//! Random numbers that follow from a seed and a count, so that they are the same on every backend.

/// Returns a number in `[0, 1)`: SplitMix64's output of that step.
pub(crate) fn uniform(seed: u64, count: u64) -> f64 {
    let mut mixed = seed.wrapping_add((count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 40) as f64 / (1u64 << 24) as f64
}
