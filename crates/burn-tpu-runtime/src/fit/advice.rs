//! Advice for the user: matrix shapes that fill the matrix unit, and ways to make a step fit.

use super::report::{Buffer, BufferKind, Memory, MxuAdvice};
use super::specs::Specs;
use crate::device::Generation;
use crate::lines::op_and_line;
use burn_tpu_graph::cost::Contraction;
use std::collections::BTreeMap;

/// The number of rows that the matrix unit processes at a time.
const ROWS: usize = 8;

/// The smallest waste that is reported, as a fraction of the step's matrix work.
const WORTH: f64 = 0.01;

/// The maximum number of reported shapes.
const LINES: usize = 5;

/// Returns the shapes that waste the matrix unit, the most wasteful first.
pub(super) fn matrix_unit(contractions: &[Contraction], tile: usize) -> Vec<MxuAdvice> {
    let total: f64 = contractions.iter().map(|c| padded_flops(c, tile)).sum();
    let mut shapes: BTreeMap<(String, [usize; 4]), (usize, f64)> = BTreeMap::new();
    for c in contractions {
        let entry = shapes.entry((op_and_line(c.label).0, [c.batch, c.m, c.k, c.n])).or_default();
        entry.0 += 1;
        entry.1 += (padded_flops(c, tile) - c.flops as f64) / total.max(1.0);
    }
    let mut advice = Vec::new();
    for ((op, [batch, m, k, n]), (count, wasted)) in shapes {
        let texts: Vec<String> = [dim_advice("k", k, tile), dim_advice("n", n, tile)].into_iter().flatten().collect();
        if wasted > WORTH && !texts.is_empty() {
            let shape = format!("[{batch}] {m} x {k} x {n}");
            advice.push(MxuAdvice { op, count, shape, wasted, advice: texts.join("; ") });
        }
    }
    advice.sort_by(|a, b| b.wasted.total_cmp(&a.wasted));
    advice.truncate(LINES);
    advice
}

/// Returns the operations of a matrix product whose dims are padded to whole tiles.
fn padded_flops(c: &Contraction, tile: usize) -> f64 {
    let growth = |size: usize, tile: usize| size.next_multiple_of(tile).max(1) as f64 / size.max(1) as f64;
    c.flops as f64 * growth(c.m, ROWS) * growth(c.k, tile) * growth(c.n, tile)
}

/// Returns advice for a dim that leaves a large part of its last tile empty.
fn dim_advice(name: &str, size: usize, tile: usize) -> Option<String> {
    let over = size % tile;
    if over == 0 || over > tile / 2 {
        return None;
    }
    Some(match size / tile * tile {
        0 => format!("{name} = {size} fills {}% of a tile of {tile}", 100 * size / tile),
        below => format!("{name} = {size} is {over} above {below}: {below} would save a tile of {tile}"),
    })
}

/// Returns suggestions that could make a step fit, the most promising first.
pub(super) fn to_fit(memory: &Memory, buffers: &[Buffer], specs: &Specs) -> Vec<String> {
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let mut suggestions = Vec::new();
    let room = memory.limit_bytes.saturating_sub(memory.argument_bytes);
    if memory.argument_bytes >= memory.limit_bytes {
        suggestions.push(format!(
            "the arguments alone (weights, optimizer state, batch) take {:.2} GiB of {:.2}: use fewer \
             parameters, or a device with more memory",
            gib(memory.argument_bytes),
            gib(memory.limit_bytes)
        ));
    } else if memory.temporary_bytes > 0 {
        let parts = memory.temporary_bytes.div_ceil(room.max(1));
        suggestions.push(format!(
            "activations scale with the batch: try a batch at least {parts} times smaller, and accumulate gradients"
        ));
        suggestions.push(
            "recompute activations instead of keeping them: burn_tpu::Checkpoints for whole blocks, or \
             Autodiff<B, BalancedCheckpointing>"
                .to_string(),
        );
    }
    let wide = |buffer: &&Buffer| buffer.kind != BufferKind::Argument && buffer.shape.starts_with("f32");
    let wide_bytes: u64 = buffers.iter().filter(wide).map(|buffer| buffer.bytes).sum();
    if wide_bytes * 2 > buffers.iter().map(|buffer| buffer.bytes).sum::<u64>() {
        suggestions.push("most of the largest buffers are f32: Tpu<bf16> with TpuOptimizer halves them".into());
    }
    let larger = |generation: &Generation| specs.of(*generation).usable_bytes() > memory.peak_bytes;
    let larger: Vec<&str> = Generation::ALL.into_iter().filter(larger).map(Generation::name).collect();
    match larger.is_empty() {
        false => suggestions.push(format!(
            "a device of {} has enough memory for {:.2} GiB",
            larger.join(", "),
            gib(memory.peak_bytes)
        )),
        true => suggestions.push("no single device has enough memory: split the model over several chips".into()),
    }
    suggestions
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_graph::DType;

    fn dot(m: usize, k: usize, n: usize) -> Contraction {
        Contraction { label: "float_matmul", dtype: DType::BF16, batch: 1, m, n, k, flops: 2 * (m * n * k) as u64 }
    }

    #[test]
    fn only_dims_that_leave_part_of_a_tile_empty_are_reported() {
        assert_eq!(matrix_unit(&[dot(1024, 512, 512)], 128), []);
        let advice = matrix_unit(&[dot(1024, 512, 513), dot(1024, 512, 513)], 128);
        let [one] = &advice[..] else { panic!("{advice:?}") };
        assert!(one.advice.contains("n = 513 is 1 above 512"), "{one:?}");
        assert_eq!((one.count, one.shape.as_str()), (2, "[1] 1024 x 512 x 513"));
        assert!((one.wasted - (1.0 - 513.0 / 640.0)).abs() < 1e-9, "{one:?}");
        assert!(matrix_unit(&[dot(1024, 128, 256)], 256)[0].advice.contains("k = 128 fills 50%"));
    }

    #[test]
    fn suggestions_depend_on_what_uses_the_memory() {
        let specs = Specs::builtin().unwrap();
        let gib = 1u64 << 30;
        let memory = |argument, temporary| Memory {
            limit_bytes: 16 * gib,
            argument_bytes: argument * gib,
            temporary_bytes: temporary * gib,
            peak_bytes: (argument + temporary) * gib,
            ..Memory::default()
        };
        let activations = to_fit(&memory(2, 26), &[], &specs).join("\n");
        assert!(
            activations.contains("2 times smaller") && activations.contains("BalancedCheckpointing"),
            "{activations}"
        );
        assert!(activations.contains("v5p, v6e, tpu7x has enough memory"), "{activations}");
        let weights = to_fit(&memory(20, 200), &[], &specs).join("\n");
        assert!(weights.contains("arguments alone") && weights.contains("split"), "{weights}");
    }
}
