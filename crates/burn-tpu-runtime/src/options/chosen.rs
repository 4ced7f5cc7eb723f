//! The compiler options that were chosen for a program.

use burn_tpu_pjrt::CompileOptions;
use serde::{Deserialize, Serialize};

/// The compiler options that were chosen for a program, by the compiler's own estimate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChosenOptions {
    /// The options that differ from the compiler's defaults, by name; none if the defaults are the best.
    pub options: Vec<(String, i64)>,
    /// The estimated cycles with the compiler's defaults.
    pub cycles_before: u64,
    /// The estimated cycles with the options.
    pub cycles_after: u64,
    /// The number of sets of options that were compiled beside the defaults; none for a program with little work.
    pub tried: usize,
}

impl ChosenOptions {
    /// Returns compile options with the chosen ones added.
    pub(crate) fn apply(&self, start: CompileOptions) -> CompileOptions {
        self.options.iter().fold(start, |options, (name, value)| options.set(name.as_str(), *value))
    }

    /// Returns the part of a stored program's key that the choice is; empty for the compiler's defaults.
    pub(crate) fn key(&self) -> Vec<u8> {
        self.options.iter().flat_map(|(name, value)| format!("{name}={value}\n").into_bytes()).collect()
    }
}

impl std::fmt::Display for ChosenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let options: Vec<_> = self.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let chosen = if options.is_empty() { "the defaults".to_owned() } else { options.join(" ") };
        let millions = |cycles: u64| cycles as f64 / 1e6;
        let (before, after) = (millions(self.cycles_before), millions(self.cycles_after));
        write!(f, "{chosen} of {} sets: {before:.2} -> {after:.2} M cycles", self.tried + 1)
    }
}
