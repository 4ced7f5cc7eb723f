//! `XLA_FLAGS`, checked before a plugin is loaded: every plugin reads it and aborts the process on an unknown flag.
//!
//! Only flags that the tests have passed to the plugins are allowed: those that dump the compiler's work, for debugging, and
//! those that leave most of LLVM's work out, for tests. Every other flag has a per-compile form,
//! [`CompileOptions::set`](crate::CompileOptions::set).

use crate::error::{PjrtError, Result};

/// Flags that the CPU plugin 0.0.1 and libtpu 0.0.51 know; `tests/` passes all of them to both.
const ALLOWED: [&str; 16] = [
    "xla_dump_to",
    "xla_dump_hlo_as_text",
    "xla_dump_hlo_as_proto",
    "xla_dump_hlo_as_dot",
    "xla_dump_hlo_as_html",
    "xla_dump_hlo_as_url",
    "xla_dump_hlo_snapshots",
    "xla_dump_hlo_module_re",
    "xla_dump_hlo_pass_re",
    "xla_dump_include_timestamp",
    "xla_dump_max_hlo_modules",
    "xla_dump_module_metadata",
    "xla_dump_compress_protos",
    "xla_force_host_platform_device_count",
    "xla_backend_optimization_level",
    "xla_llvm_disable_expensive_passes",
];

/// Checks the process's `XLA_FLAGS`, as [`Plugin::load`](crate::Plugin::load) does before it opens anything.
///
/// # Errors
/// [`PjrtError::XlaFlag`] for the first flag that is not known to be safe, or for a file of flags.
pub fn check_xla_flags() -> Result<()> {
    match std::env::var_os("XLA_FLAGS") {
        None => Ok(()),
        Some(flags) => check(&flags.to_string_lossy()),
    }
}

fn check(flags: &str) -> Result<()> {
    match flags.split_whitespace().find(|flag| !allowed(flag)) {
        None => Ok(()),
        Some(flag) => Err(PjrtError::XlaFlag { flag: flag.to_owned() }),
    }
}

/// A value that does not start with `--` names a file of flags, whose content is not checked here.
fn allowed(flag: &str) -> bool {
    let name = flag.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or_default());
    name.is_some_and(|name| ALLOWED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_flags_pass_and_everything_else_is_named() {
        assert!(check("").is_ok());
        assert!(check(" --xla_dump_to=/tmp/x  --xla_dump_hlo_as_text ").is_ok());
        for bad in
            ["--xla_no_such_flag=1", "--xla_dump_to_=x", "flags.txt", "-xla_dump_to=x", "--xla_cpu_enable_fast_math"]
        {
            let error = check(&format!("--xla_dump_to=/tmp/x {bad}")).unwrap_err();
            assert!(matches!(&error, PjrtError::XlaFlag { flag } if flag == bad), "{error}");
        }
    }
}
