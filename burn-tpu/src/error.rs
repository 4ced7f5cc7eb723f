//! The runtime's errors as Burn's.

use crate::TpuError;
use burn_backend::ExecutionError;

/// Burn reports failed executions at the read or the sync, as text.
pub(crate) fn failed(error: TpuError) -> ExecutionError {
    ExecutionError::WithContext { reason: error.to_string() }
}
