//! Conversion of the runtime's errors to Burn's.

use burn_backend::ExecutionError;
use burn_tpu_runtime::TpuError;

/// Converts an error to the text that Burn returns from a read or a sync.
pub(crate) fn failed(error: TpuError) -> ExecutionError {
    ExecutionError::WithContext { reason: error.to_string() }
}
