//! The callers of a thread: a stream for each, if the process tells them apart.

use super::stream::StreamState;
use std::sync::{Arc, OnceLock};

static CALLER: OnceLock<fn() -> u64> = OnceLock::new();

/// Sets how callers are told apart, unless it is set.
pub(super) fn tell_apart(caller: fn() -> u64) {
    CALLER.get_or_init(|| caller);
}

/// Returns the caller that the calling thread works for; `None` if callers are not told apart.
pub(super) fn current() -> Option<u64> {
    CALLER.get().map(|caller| caller())
}

/// The number of callers whose streams a thread keeps. A client's threads come and go; a tensor outlives the stream that
/// recorded it.
const KEPT: usize = 64;

/// The streams of a thread's callers, the last used at the end.
pub(super) struct Callers(Vec<(u64, Arc<StreamState>)>);

impl Callers {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the stream of a caller.
    pub(super) fn stream_of(&mut self, caller: u64) -> Arc<StreamState> {
        let found = self.0.iter().position(|(of, _)| *of == caller).map(|place| self.0.remove(place));
        if found.is_none() && self.0.len() == KEPT {
            self.0.remove(0);
        }
        let (caller, state) = found.unwrap_or_else(|| (caller, StreamState::new(None)));
        self.0.push((caller, Arc::clone(&state)));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;
    use crate::ops::testing::{tensor, values};
    use crate::ops::{arithmetic, data};
    use burn_tpu_graph::op::UnaryOp;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_caller_has_its_stream_again() {
        Stream::per_caller(|| NOW.get());
        let name = || format!("{:?}", Stream::current());
        let first = name();
        NOW.set(1);
        let second = name();
        let x = arithmetic::unary("neg", UnaryOp::Neg, tensor([1.0f32, 2.0], &[2]));
        let entered = Stream::new().run(name);
        NOW.set(0);
        assert_eq!(name(), first);
        assert!(first != second && entered != first && entered != second);
        // Another caller uses the tensor: what it needs runs, and the value is the same.
        let y = arithmetic::unary("neg", UnaryOp::Neg, x.clone());
        assert_eq!((values(y), values(x)), (vec![1.0, 2.0], vec![-1.0, -2.0]));
        NOW.set(1);
        assert_eq!(name(), second);
    }

    #[test]
    fn old_callers_are_forgotten_and_their_tensors_live() {
        Stream::per_caller(|| NOW.get());
        NOW.set(1_000);
        let x = arithmetic::unary("neg", UnaryOp::Neg, tensor([3.0f32], &[1]));
        for caller in 1_001..1_001 + 2 * KEPT as u64 {
            NOW.set(caller);
            drop(arithmetic::unary("neg", UnaryOp::Neg, tensor([0.0f32], &[1])));
        }
        assert_eq!(data::into_bytes(&x).unwrap(), (-3.0f32).to_le_bytes());
    }
}
