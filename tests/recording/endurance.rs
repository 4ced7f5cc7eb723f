//! Properties of a long-running process: memory stays bounded for any sequence of programs.

use crate::common;

use burn::tensor::{Tensor, TensorData};
use burn_tpu::{ShapeBuckets, Tpu, TpuOptions, metrics};

type B = Tpu<f32>;

/// Returns the resident memory of this process, in KiB.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("VmRSS: 0");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Returns the number of steps: `ENDURANCE_STEPS`. The project's own target is 20,000; CI runs fewer.
fn steps() -> usize {
    let steps = std::env::var("ENDURANCE_STEPS").map_or(600, |steps| steps.parse().expect("a number"));
    assert!(steps >= 500, "too few to show a leak");
    steps
}

const SHAPES: usize = 50;
const ENTRIES: usize = 16;

/// Fifty shapes through a cache of sixteen programs: each program is evicted before its shape comes again.
#[test]
fn many_shapes_through_a_small_cache_keep_memory_flat() {
    let options = TpuOptions::development().check_numerics(false).cache_entries(ENTRIES);
    let options = options.shape_buckets(ShapeBuckets::Off);
    let Some(device) = common::cpu_with("a small cache", options) else { return };
    // Other tests take and return memory of the process too.
    let _alone = common::alone();
    let run = |range: std::ops::Range<usize>| {
        for n in range.map(|step| step % SHAPES + 1) {
            let x = Tensor::<B, 1>::from_data(TensorData::new(vec![1.0f32; n], [n]), &device);
            let sum = (x * n as f32).sum().into_data().to_vec::<f32>().expect("f32 data");
            assert_eq!(sum, [(n * n) as f32]);
        }
        resident_kib()
    };
    let steps = steps();
    let before = run(0..steps / 4);
    let after = run(steps / 4..steps);
    assert!(after < before + 16 * 1024, "resident memory grew from {before} to {after} KiB");
    let metrics = metrics(&device);
    assert_eq!((metrics.compiles, metrics.cache_evictions), (steps as u64, (steps - ENTRIES) as u64), "{metrics}");
    assert_eq!(metrics.recompiles.len(), 256, "the list is bounded");
}
