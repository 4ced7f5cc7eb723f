//! The one gate of tests that need a plugin: found, skipped with a line that says why, or required.
//!
//! Every crate's tests ask here, so that `BURN_TPU_REQUIRE_PLUGIN` and `BURN_TPU_REQUIRE_LIBTPU` mean the same everywhere.
//! Nothing here loads a plugin. It is no part of the crate's interface.

use crate::{PluginKind, discovery, presence};
use std::path::PathBuf;

impl PluginKind {
    /// The variable with which a missing plugin fails a test instead of being a reason to skip it.
    fn required_by(self) -> &'static str {
        match self {
            PluginKind::Cpu => "BURN_TPU_REQUIRE_PLUGIN",
            PluginKind::Tpu => "BURN_TPU_REQUIRE_LIBTPU",
            PluginKind::Cuda => "BURN_TPU_REQUIRE_CUDA_PLUGIN",
        }
    }
}

/// Returns a plugin's file for a test. `None`, after a line that says why, if there is none.
///
/// # Panics
/// If there is none and the plugin is required: the variable is `1`.
pub fn plugin(kind: PluginKind) -> Option<PathBuf> {
    let variable = kind.required_by();
    match discovery::find(kind, None) {
        Ok(found) => Some(found.path),
        Err(error) if std::env::var_os(variable).is_some_and(|value| value == "1") => {
            panic!("{variable}=1: {error}; run `cargo xtask setup {kind}`")
        }
        Err(error) => skip(&error.to_string()),
    }
}

/// Returns libtpu's file for a test that compiles ahead of time. `None`, after a line that says why, where there is a TPU
/// (whose runtime belongs to other tests) or no libtpu.
///
/// # Panics
/// As [`plugin`].
pub fn libtpu() -> Option<PathBuf> {
    if presence::tpu_present() {
        return skip("compiling ahead of time is for machines without a TPU");
    }
    plugin(PluginKind::Tpu)
}

/// Says why a test has nothing to do.
#[allow(clippy::print_stderr, reason = "a skipped test reports the reason")]
fn skip(why: &str) -> Option<PathBuf> {
    eprintln!("skipped: {why}");
    None
}
