//! What burn-ndarray does in other builds, in one without the feature `ndarray`: nothing, and errors that say so.

use super::host_nodes::host_ops;
use super::{Engine, Executable};
use crate::Device;
use crate::error::{Result, TpuError};
use burn_tpu_graph::Program;
use std::sync::Arc;

/// Opens the host.
///
/// # Errors
/// [`TpuError::Unavailable`]: this build has no interpreter.
pub(crate) fn open_ndarray() -> Result<Arc<dyn Engine>> {
    Err(TpuError::Unavailable {
        device: Device::ndarray().to_string(),
        reason: "this program was built without burn-ndarray".into(),
        mend: "build burn-tpu-runtime with its feature `ndarray`, or install a plugin: cargo xtask setup cpu",
    })
}

/// Compiles a program for an engine.
///
/// # Errors
/// [`TpuError::FallbackDenied`] when a node is in `host` (by mnemonic) or without a lowering, whether or not fallback is
/// `denied`: there is nothing to fall back to. The engine's own errors.
pub(crate) fn compile(
    engine: &Arc<dyn Engine>,
    program: &Program,
    host: &[String],
    denied: bool,
) -> Result<Box<dyn Executable>> {
    let Some(mut ops) = host_ops(engine.as_ref(), program, host) else {
        return engine.compile(program);
    };
    if !denied {
        ops.push_str(" (and this program was built without burn-ndarray, the feature `ndarray`)");
    }
    Err(TpuError::FallbackDenied { device: engine.describe(), ops })
}
