//! Sizes that are easily wrong by one, checked by counting.

use super::infer;
use burn_tpu_graph::op::{Combine, PadAttrs, SliceAttrs, WindowAttrs};
use burn_tpu_graph::{Dims, Op};
use proptest::prelude::*;

fn one(size: usize) -> Dims {
    Dims::from_slice(&[size])
}

proptest! {
    #[test]
    fn slices_have_as_many_elements_as_steps(size in 0usize..20, a in 0usize..20, b in 0usize..20, stride in 1usize..6) {
        let (start, limit) = (a.min(b).min(size), a.max(b).min(size));
        let attrs = SliceAttrs { start: one(start), limit: one(limit), stride: one(stride) };
        let steps = (start..limit).step_by(stride).count();
        prop_assert_eq!(infer(Op::Slice(Box::new(attrs)), &format!("f32[{size}]")), Ok(format!("f32[{steps}]")));
    }

    #[test]
    fn pads_have_as_many_elements_as_positions(
        size in 0usize..9, low in -9isize..9, high in -9isize..9, interior in 0usize..4,
    ) {
        let attrs = PadAttrs { low: vec![low].into(), high: vec![high].into(), interior: one(interior) };
        let spread = (0..size).map(|i| i * (interior + 1)).max().map_or(0, |last| last as isize + 1);
        let expected = (spread + low).checked_add(high).filter(|&n| n >= 0 && spread + low >= 0);
        let found = infer(Op::Pad(Box::new(attrs)), &format!("f32[{size}] f32[]"));
        prop_assert_eq!(found.ok(), expected.map(|n| format!("f32[{n}]")));
    }

    #[test]
    fn windows_have_as_many_positions_as_fit(
        size in 0usize..9, window in 1usize..5, stride in 1usize..4, base in 1usize..4, dilation in 1usize..4,
        low in 0isize..4, high in 0isize..4,
    ) {
        let attrs = WindowAttrs {
            dims: one(window), strides: one(stride), base_dilation: one(base), window_dilation: one(dilation),
            padding: [(low, high)].into_iter().collect(),
        };
        let spread = if size == 0 { 0 } else { (size - 1) * base + 1 };
        let padded = spread + (low + high) as usize;
        let last = (window - 1) * dilation;
        let positions = (0..padded).step_by(stride).filter(|start| start + last < padded).count();
        let op = Op::ReduceWindow { combine: Combine::Max, window: Box::new(attrs) };
        prop_assert_eq!(infer(op, &format!("f32[{size}]")), Ok(format!("f32[{positions}]")));
    }
}
