//! The replacement for burn-ndarray in a build without the feature `ndarray`: its functions return errors that explain
//! why.

use super::host_nodes::host_ops;
use super::{Engine, Executable};
use crate::error::{Result, TpuError};
use crate::{Device, FallbackPolicy};
use burn_tpu_graph::Program;
use std::sync::Arc;

/// Returns the error of a build without an interpreter.
///
/// # Errors
/// [`TpuError::Unavailable`], always.
pub(crate) fn open_ndarray() -> Result<Arc<dyn Engine>> {
    Err(TpuError::Unavailable {
        device: Device::ndarray().to_string(),
        reason: "this program was built without burn-ndarray".into(),
        fix: "build burn-tpu-runtime with its feature `ndarray`, or install a plugin: cargo xtask setup cpu",
    })
}

/// Compiles a program for an engine.
///
/// # Errors
/// [`TpuError::FallbackDenied`] if a node is in `host` (by mnemonic) or has no lowering, for any policy, since there is
/// no interpreter to fall back to. The engine's own errors.
pub(crate) fn compile(
    engine: &Arc<dyn Engine>,
    program: &Program,
    host: &[String],
    policy: FallbackPolicy,
) -> Result<Box<dyn Executable>> {
    let ops = host_ops(engine.as_ref(), program, host);
    if ops.is_empty() {
        return engine.compile(program);
    }
    let mut ops = ops.into_iter().collect::<Vec<_>>().join(", ");
    if policy != FallbackPolicy::Deny {
        ops.push_str(" (and this program was built without burn-ndarray, the feature `ndarray`)");
    }
    Err(TpuError::FallbackDenied { device: engine.describe(), ops })
}
