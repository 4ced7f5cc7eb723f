//! The environment variables that affect a program on this machine.

use super::report::Variable;

/// Variables that concern plugins or this project, by prefix.
const PREFIXES: [&str; 6] = ["BURN_TPU_", "XLA_", "TPU_", "LIBTPU_", "PJRT_", "CUDA_"];
/// Others that determine which libraries are found, or how they behave.
const NAMES: [&str; 8] = [
    "ALLOW_MULTIPLE_LIBTPU_LOAD",
    "CONDA_PREFIX",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_VISIBLE_DEVICES",
    "TF_CPP_MIN_LOG_LEVEL",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
];

/// Returns those that are set, by name.
pub fn look() -> Vec<Variable> {
    let set = std::env::vars_os().map(|(name, value)| Variable {
        name: name.to_string_lossy().into_owned(),
        value: value.to_string_lossy().into_owned(),
    });
    let mut variables: Vec<Variable> = set.filter(|variable| matters(&variable.name)).collect();
    variables.sort_by(|one, other| one.name.cmp(&other.name));
    variables
}

fn matters(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
