//! Which crates and files are libraries, in which no user's line is.

use std::path::Path;

/// Crates of others whose frames are not shown to a user.
const LIBRARIES: [&str; 47] = [
    "alloc",
    "async_channel",
    "backtrace",
    "burn",
    "burn_autodiff",
    "burn_backend",
    "burn_capture",
    "burn_collective",
    "burn_communication",
    "burn_core",
    "burn_dataset",
    "burn_derive",
    "burn_dispatch",
    "burn_einsum",
    "burn_flex",
    "burn_fusion",
    "burn_group",
    "burn_import",
    "burn_ir",
    "burn_linalg",
    "burn_ndarray",
    "burn_nn",
    "burn_onnx",
    "burn_optim",
    "burn_pack",
    "burn_remote",
    "burn_rl",
    "burn_router",
    "burn_signal",
    "burn_std",
    "burn_store",
    "burn_tensor",
    "burn_train",
    "burn_vision",
    "core",
    "crossbeam",
    "cubecl_common",
    "futures_util",
    "hashbrown",
    "libc",
    "panic_unwind",
    "parking_lot",
    "rayon",
    "rayon_core",
    "std",
    "test",
    "tokio",
];

/// The crates of burn-tpu. A user's crate may begin with `burn_tpu_` too.
const OURS: [&str; 14] = [
    "burn_tpu",
    "burn_tpu_0_22",
    "burn_tpu_cli",
    "burn_tpu_fusion",
    "burn_tpu_graph",
    "burn_tpu_interpreter",
    "burn_tpu_kernels",
    "burn_tpu_llm",
    "burn_tpu_pjrt",
    "burn_tpu_profile",
    "burn_tpu_runtime",
    "burn_tpu_serve",
    "burn_tpu_train",
    "burn_tpu_xla",
];

/// Returns the crate of a function or of a trait's method (`<app::Model as …>`). An inlined function may have a bare
/// name, which has no crate.
fn crate_of(name: &str) -> Option<&str> {
    let (first, _) = name.trim_start_matches(['<', '&', '[', '(']).split_once("::")?;
    (!first.contains(['<', ' '])).then_some(first)
}

/// Returns whether a function belongs to the standard library, to Burn, to burn-tpu, or to what these call.
pub(super) fn is_library(name: &str) -> bool {
    crate_of(name).is_some_and(|name| LIBRARIES.contains(&name) || OURS.contains(&name))
}

/// Returns whether a function's name alone says that it is a user's.
pub(super) fn is_users(name: &str) -> bool {
    crate_of(name).is_some() && !is_library(name)
}

/// Returns whether a function is one that a derive of Burn writes: a method of its traits for modules and records. Its lines
/// are those of `#[derive(Module)]`.
pub(super) fn is_derived(name: &str) -> bool {
    ["burn_core::module::", "burn_core::record::"].iter().any(|traits| name.contains(&format!(" as {traits}")))
}

/// Returns whether a line of a file is in an attribute: what a derive or another attribute writes has its line. Not if
/// the file cannot be read here.
pub(super) fn is_of_attribute(file: &Path, line: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    let lines: Vec<&str> = text.lines().take(line as usize).map(str::trim).collect();
    let first = lines.iter().rposition(|line| line.starts_with("#["));
    // An attribute that ended before the line is another item's.
    first.is_some_and(|first| !lines[first..lines.len() - 1].iter().any(|line| line.ends_with(']')))
}

/// Returns whether a file belongs to the standard library (also as the component `rust-src` installs it), to a downloaded or
/// vendored crate, to burn-tpu, or to a library in another language.
pub(super) fn is_library_file(file: &Path) -> bool {
    let path = file.to_string_lossy();
    let parts = ["/rustc/", "/lib/rustlib/", "/registry/src/", "/git/checkouts/", "/vendor/"];
    let is_fetched = parts.iter().any(|part| path.contains(part));
    is_fetched || is_ours(file) || file.extension().is_none_or(|extension| extension != "rs")
}

/// Returns whether a file belongs to a crate of burn-tpu. Its tests, benchmarks and examples are users.
fn is_ours(file: &Path) -> bool {
    let Some(file) = workspace().and_then(|workspace| file.strip_prefix(workspace).ok()) else { return false };
    let file = file.strip_prefix("crates").unwrap_or(file);
    let mut folders = file.iter();
    let package = folders.next().map(|name| name.to_string_lossy().replace('-', "_")).unwrap_or_default();
    OURS.contains(&package.as_str()) && folders.next().is_some_and(|folder| folder == "src")
}

/// Returns the folder that the crates of burn-tpu were compiled in, unless they were downloaded.
fn workspace() -> Option<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)
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
    fn what_a_derive_writes_has_no_line_of_the_users() {
        let derived = "<app::Model<B> as burn_core::module::base::Module<B>>::load_record::{{closure}}";
        assert!(
            is_derived(derived) && is_derived("<app::ModelRecord<B> as burn_core::record::base::Record<B>>::from_item")
        );
        assert!(!is_derived("<app::Model<B> as app::Layer>::forward") && !is_derived("burn_core::module::load"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "#[derive(Module)]\nstruct A;\n#[derive(\n    Module,\n    Debug,\n)]\nstruct B;\nfn f() {\n    g(x[0]);\n}";
        std::fs::write(file.path(), text).unwrap();
        let lines: Vec<u32> = (1..=10).filter(|&line| is_of_attribute(file.path(), line)).collect();
        assert_eq!(lines, [1, 3, 4, 5, 6]);
        assert!(!is_of_attribute(Path::new("/no/such/file.rs"), 1));
    }

    #[test]
    fn files_of_libraries_and_of_burn_tpu_are_skipped() {
        let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/record.rs");
        for file in [
            "/rustc/0123/library/core/src/ops.rs",
            "/home/a/.rustup/toolchains/stable/lib/rustlib/src/rust/library/alloc/src/vec/mod.rs",
            "/home/a/.cargo/registry/src/x/burn-0.21.0/src/lib.rs",
            "/home/a/app/vendor/burn-core/src/lib.rs",
            "./nptl/pthread_create.c",
            "../sysdeps/unix/sysv/linux/x86_64/clone3.S",
            ours,
        ] {
            assert!(is_library_file(Path::new(file)), "{file}");
        }
        assert!(!is_library_file(Path::new("/home/a/app/src/main.rs")));
        for users in ["tests/step.rs", "crates/burn-tpu-runtime/tests/step.rs", "examples/step/src/main.rs"] {
            assert!(!is_library_file(&workspace().unwrap().join(users)), "{users}");
        }
    }

    /// A crate that is missing in the list would be shown as a user's.
    #[test]
    fn every_published_crate_of_the_workspace_is_ours() {
        let workspace = workspace().unwrap();
        let mut published = Vec::new();
        for folder in [workspace.to_owned(), workspace.join("crates")] {
            for package in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let Ok(manifest) = std::fs::read_to_string(package.join("Cargo.toml")) else { continue };
                let name = package.file_name().unwrap().to_string_lossy().replace('-', "_");
                if !manifest.contains("publish = false") {
                    published.push(name);
                }
            }
        }
        published.sort_unstable();
        assert_eq!(published, OURS);
    }
}
