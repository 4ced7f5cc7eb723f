//! Finds the line of a user's source in a stack trace.

use backtrace::{Backtrace, BacktraceSymbol};
use std::path::Path;

/// The crates whose frames are not shown to a user.
const LIBRARIES: [&str; 22] = [
    "alloc",
    "backtrace",
    "burn",
    "burn_autodiff",
    "burn_backend",
    "burn_core",
    "burn_dataset",
    "burn_derive",
    "burn_nn",
    "burn_optim",
    "burn_std",
    "burn_store",
    "burn_tensor",
    "burn_tpu",
    "burn_tpu_fusion",
    "burn_tpu_graph",
    "burn_tpu_runtime",
    "burn_train",
    "core",
    "parking_lot",
    "std",
    "test",
];

/// Returns the innermost frame outside Burn, burn-tpu and the standard library, such as `src/train.rs:41 in app::step`.
/// The line number is missing if the binary has no debug information.
pub(super) fn of(mut stack: Backtrace) -> Option<String> {
    stack.resolve();
    stack.frames().iter().flat_map(|frame| frame.symbols()).find_map(describe)
}

fn describe(symbol: &BacktraceSymbol) -> Option<String> {
    let name = format!("{:#}", symbol.name()?);
    let Some(file) = symbol.filename() else { return is_users(&name).then_some(name) };
    if is_library(&name) || is_library_file(file) {
        return None;
    }
    let here = std::env::current_dir().unwrap_or_default();
    let file = file.strip_prefix(here).unwrap_or(file).display();
    Some(format!("{file}:{} in {}", symbol.lineno().unwrap_or(0), short(&name)))
}

/// Returns the crate of a function or of a trait's method (`<app::Model as …>`). An inlined function may have a bare
/// name, which has no crate.
fn crate_of(name: &str) -> Option<&str> {
    let (first, _) = name.trim_start_matches(['<', '&', '[', '(']).split_once("::")?;
    (!first.contains(['<', ' '])).then_some(first)
}

fn is_library(name: &str) -> bool {
    crate_of(name).is_some_and(|name| LIBRARIES.contains(&name))
}

fn is_users(name: &str) -> bool {
    crate_of(name).is_some_and(|name| !LIBRARIES.contains(&name))
}

/// Returns whether a file belongs to the standard library, to a downloaded crate or to burn-tpu.
fn is_library_file(file: &Path) -> bool {
    let path = file.to_string_lossy();
    let fetched = ["/rustc/", "/registry/src/", "/git/checkouts/"].iter().any(|part| path.contains(part));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    fetched || ["burn-tpu", "burn-tpu-runtime"].iter().any(|of| file.starts_with(workspace.join(of).join("src")))
}

/// Returns a function's name without its generic arguments.
fn short(name: &str) -> &str {
    name.split('<').next().filter(|name| !name.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_burn_and_the_standard_library_are_skipped() {
        for name in ["burn_tpu::trace::record", "<burn_tensor::Tensor<B,D> as core::ops::Add>::add", "std::f"] {
            assert!(is_library(name) && !is_users(name), "{name}");
        }
        for name in ["app::train", "<app::Model as burn_core::Module>::forward", "burner::step"] {
            assert!(!is_library(name) && is_users(name), "{name}");
        }
        for name in ["main", "finish<1, burn_tpu::trace::record::{closure_env#0}>"] {
            assert!(!is_library(name) && !is_users(name), "{name} has no crate");
        }
    }

    #[test]
    fn files_of_libraries_and_of_burn_tpu_are_skipped() {
        let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/record.rs");
        for file in
            ["/rustc/0123/library/core/src/ops.rs", "/home/a/.cargo/registry/src/x/burn-0.21.0/src/lib.rs", ours]
        {
            assert!(is_library_file(Path::new(file)), "{file}");
        }
        assert!(!is_library_file(Path::new("/home/a/app/src/main.rs")));
    }

    #[test]
    fn generic_arguments_are_removed_from_names() {
        assert_eq!(short("app::train<Autodiff<Tpu>>"), "app::train");
        assert_eq!(short("<app::Model as T>::f"), "<app::Model as T>::f");
    }
}
