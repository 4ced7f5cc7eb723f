//! Tests of the program cache.

use super::*;
use crate::engine::Execution;
use burn_tpu_graph::{DType, Op, TensorType};
use std::cell::Cell;

struct Fake;

impl Executable for Fake {
    fn execute(&self, _: &mut Arguments, _: &[u64]) -> Result<Execution> {
        Ok(Execution::default())
    }

    fn size_bytes(&self) -> u64 {
        1
    }
}

/// A program of so many elements.
fn program(elements: usize) -> Arc<Program> {
    let mut graph = Graph::new();
    let ty = TensorType::new(DType::F32, [elements]);
    let x = graph.add(Op::Parameter { index: 0, ty }, &[]).unwrap();
    Arc::new(Program::canonical(&graph, &[x]).unwrap().0)
}

#[test]
fn room_is_made_of_the_least_recently_used_half_until_there_is_enough() {
    let (cache, counters) = (ProgramCache::new(NonZeroUsize::MIN.saturating_add(9), 100), Counters::default());
    for elements in 1..=8 {
        let compiled = CompiledProgram { executable: Arc::new(Fake), assumptions: Arc::default() };
        cache.insert(program(elements), Arc::new(compiled), &counters);
    }
    let asked = Cell::new(0);
    let is_full_for = |times: usize| {
        asked.set(0);
        let before = cache.len();
        let evicted = cache.make_room(|| asked.replace(asked.get() + 1) < times, &counters);
        assert_eq!(evicted, before - cache.len());
        cache.len()
    };
    assert_eq!((is_full_for(0), asked.get()), (8, 1));
    assert!(cache.get(&program(1)).is_some(), "1 is used");
    assert_eq!(is_full_for(1), 4);
    let kept = (1..=8).filter(|&elements| cache.get(&program(elements)).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [1, 6, 7, 8]);
    // Programs cannot be evicted for ever.
    assert_eq!((is_full_for(usize::MAX), asked.get()), (0, 4));
}
