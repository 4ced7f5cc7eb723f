//! Loops that use the vector units of the processor that runs them: the compiler's own choice is what every processor has.
//!
//! The results are the same bits: a loop computes the same operations on each element, and none is contracted.

use pulp::Arch;
use std::sync::LazyLock;

/// The number of elements below which a loop is quicker than the call of another form of it.
const FEW: usize = 32;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Runs a loop over so many elements.
pub(super) fn vectorized<R>(elements: usize, run: impl FnOnce() -> R) -> R {
    if elements < FEW { run() } else { ARCH.dispatch(run) }
}
