//! The client of the crate `xla` that programs run on.
//!
//! Owns: the choice of the client, by `BURN_TPU_XLA_RS_CLIENT`, and that a client that could wait for ever is not asked for.

use crate::types::{ENGINE, failed};
use burn_tpu_runtime::{Platform, Result, TpuError, xla_flag_environment};
use std::sync::{Mutex, PoisonError};
use xla::PjRtClient;

/// Which client: `cpu` (the default), `tpu` or `cuda`.
const VARIABLE: &str = "BURN_TPU_XLA_RS_CLIENT";

/// The part of a GPU's memory that the client may use; that of this project's CUDA plugin.
const GPU_MEMORY_FRACTION: f64 = 0.9;

/// The process's client, once it was opened. All devices of the crate share it.
static CLIENT: Mutex<Option<PjRtClient>> = Mutex::new(None);

/// Returns the process's client.
///
/// # Errors
/// [`TpuError::Option`] for an unknown name; [`TpuError::Unavailable`] for a TPU that is not there, which its client would
/// search for minutes; the crate's error if the client does not start.
pub(crate) fn client() -> Result<PjRtClient> {
    let mut opened = CLIENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = &*opened {
        return Ok(client.clone());
    }
    let name = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
    let client = open(name.as_deref().unwrap_or("cpu"))?;
    Ok(opened.insert(client).clone())
}

fn open(name: &str) -> Result<PjRtClient> {
    // Fast minima and maxima lose NaN and the sign of zeros (decision 53). The crate takes no options for a program.
    xla_flag_environment("xla_cpu_enable_fast_min_max", false);
    let client = match name {
        "cpu" => PjRtClient::cpu(),
        "tpu" if !Platform::Tpu.is_present() => {
            return Err(TpuError::Unavailable {
                device: ENGINE.into(),
                reason: "this machine has no TPU, which libtpu would go on searching for".into(),
                fix: "unset BURN_TPU_XLA_RS_CLIENT, or set it to cpu",
            });
        }
        "tpu" => PjRtClient::tpu(1),
        "cuda" => PjRtClient::gpu(GPU_MEMORY_FRACTION, true),
        other => {
            return Err(TpuError::Option {
                name: VARIABLE.into(),
                value: other.into(),
                rule: "is not one of cpu, tpu, cuda".into(),
            });
        }
    };
    client.map_err(failed(format!("starting the {name} client")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_client_and_a_missing_tpu_are_refused_at_once() {
        assert!(matches!(open("metal").err(), Some(TpuError::Option { .. })));
        if !Platform::Tpu.is_present() {
            let error = open("tpu").err().unwrap();
            assert!(matches!(&error, TpuError::Unavailable { .. }) && error.to_string().contains(VARIABLE), "{error}");
        }
    }

    #[test]
    fn there_is_one_client() {
        assert_eq!(client().unwrap().platform_name(), client().unwrap().platform_name());
    }
}
