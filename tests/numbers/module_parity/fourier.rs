//! Fourier transforms, which are backend methods of Burn 0.21 alone.

use super::rows::*;
use super::version::{Ours, cases};
use burn_backend::FloatDType;
use burn_backend::ops::ModuleOps;
use burn_flex::Flex;
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn fourier_transforms(
        dims in prop::array::uniform3(1..4usize),
        dim in 0..3usize,
        bits in 1..5u32,
        n in prop::option::of(1..5u32),
    ) {
        let mut dims = dims;
        dims[dim] = 1 << bits;
        let n = n.map(|bits| 1 << bits);
        agree!(Flex, feed, {
            let x = feed.float(&dims);
            let (re, im) = B::rfft(x, dim, n);
            let mut bins = dims;
            bins[dim] = dims[dim] / 2 + 1;
            let y = B::irfft(feed.float(&bins), feed.float(&bins), dim, n);
            vec![feed.read(re), feed.read(im), feed.read(y)]
        });
    }
}
