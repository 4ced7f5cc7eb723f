//! The replacement for burn-ndarray in a build without the feature `ndarray`: its functions return errors that explain
//! why.

use super::host_nodes::host_ops;
use super::{Engine, Executable, HostBytes};
use crate::error::{Result, TpuError};
use crate::{Device, FallbackPolicy};
use burn_tpu_graph::{Graph, NodeId, Program, TensorType};
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

/// Whether programs can be interpreted in this build.
pub(crate) const HAS_INTERPRETER: bool = false;

/// Runs nothing, since there is no interpreter.
///
/// # Errors
/// [`TpuError::Unavailable`], always.
pub(crate) fn interpret_values(_: &Program, _: Vec<Option<HostTensor>>, _: &[u64]) -> Result<Vec<HostTensor>> {
    open_ndarray().map(|_| Vec::new())
}

/// Runs nothing, since there is no interpreter.
///
/// # Errors
/// [`TpuError::Unavailable`], always.
pub(crate) fn interpret_nodes(
    _: &Graph,
    _: &[NodeId],
    _: impl FnMut(u32) -> Option<HostTensor>,
    _: &[u64],
) -> Result<Vec<HostTensor>> {
    open_ndarray().map(|_| Vec::new())
}

/// A value of the interpreter, of which nothing is computed here.
#[derive(Clone)]
pub(crate) struct HostTensor(HostBytes);

impl HostTensor {
    pub(crate) fn from_bytes(_: TensorType, bytes: impl AsRef<[u8]>) -> Self {
        Self(bytes.as_ref().to_vec().into())
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.clone().into_vec()
    }
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

/// Run by `cargo test -p burn-tpu-runtime --no-default-features --lib without_ndarray`.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::data;
    use burn_tpu_graph::DType;

    #[test]
    fn the_platform_says_that_it_is_not_built_in() {
        let error = open_ndarray().err().expect("there is no interpreter");
        assert!(matches!(&error, TpuError::Unavailable { .. }) && error.to_string().contains("`ndarray`"), "{error}");
        let x = data::from_bytes("x", TensorType::new(DType::F32, [1]), vec![0; 4], &Device::ndarray());
        assert!(matches!(data::into_bytes(&x), Err(TpuError::Unavailable { .. })));
    }
}
