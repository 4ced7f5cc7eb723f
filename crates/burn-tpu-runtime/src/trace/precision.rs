//! The precision of the products that a thread records: that of its scope, or else of the device.
//!
//! It is given to a product when that is recorded, as a part of its op. So a program's identity has it, every rewrite keeps it,
//! and what a program computes does not depend on where or when it is compiled.

use burn_tpu_graph::op::Precision;
use burn_tpu_graph::{DType, Op};
use std::cell::Cell;

thread_local! {
    /// The precision of the innermost scope of the thread.
    static SCOPE: Cell<Option<Precision>> = const { Cell::new(None) };
}

/// Puts the outer scope back, also when the scope ends by a panic.
struct Outer(Option<Precision>);

impl Drop for Outer {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// Returns what `work` returns. Products and convolutions of 32-bit floats that it records on this thread have this precision,
/// whatever the device's is ([`TpuOptions::precision`](crate::TpuOptions::precision)). Scopes may be nested.
///
/// The products of a gradient are recorded by `backward`: they have the precision of the scope in which that is called.
pub fn with_precision<T>(precision: Precision, work: impl FnOnce() -> T) -> T {
    let _outer = Outer(SCOPE.replace(Some(precision)));
    work()
}

/// Returns the precision of the thread's scope, if it is in one.
#[doc(hidden)]
pub fn scoped_precision() -> Option<Precision> {
    SCOPE.get()
}

/// Returns an op as it is recorded: a product of 32-bit factors at the precision of the thread's scope or else at the device's,
/// unless its composition asked for one.
pub(super) fn at_precision(mut op: Op, factor: Option<DType>, of_device: impl FnOnce() -> Precision) -> Op {
    let precision = match &mut op {
        Op::DotGeneral(attrs) => &mut attrs.precision,
        Op::Convolution(attrs) => &mut attrs.precision,
        _ => return op,
    };
    if factor == Some(DType::F32) && *precision == Precision::Default {
        *precision = scoped_precision().unwrap_or_else(of_device);
    }
    op
}
