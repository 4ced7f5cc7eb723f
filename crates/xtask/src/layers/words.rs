//! What the sources may not say, and where.

use super::text::{Keep, strip};
use super::{LIBRARIES, UNSAFE_CRATE};
use crate::sources::rust_files;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// A word, where it may not occur, and why.
struct Ban {
    words: &'static [&'static str],
    /// Whether `path` (from the workspace's folder) is under this ban.
    covers: fn(&str) -> bool,
    /// Whether string literals count too.
    keep: Keep,
    reason: &'static str,
}

const BANS: [Ban; 5] = [
    Ban {
        words: &["unsafe"],
        covers: |path| !in_library(path).is_some_and(|path| in_folder(path, UNSAFE_CRATE)),
        keep: Keep::Code,
        reason: "unsafe code belongs to burn-tpu-pjrt alone",
    },
    Ban {
        words: &["stablehlo."],
        covers: |path| in_sources(path, "burn-tpu") || in_sources(path, "burn-tpu-runtime"),
        keep: Keep::Literals,
        reason: "StableHLO text is written by burn-tpu-graph alone",
    },
    Ban {
        words: &["PJRT_"],
        covers: |path| in_sources(path, "burn-tpu") || in_sources(path, "burn-tpu-runtime"),
        keep: Keep::Code,
        reason: "the C structs stay inside burn-tpu-pjrt",
    },
    Ban {
        words: &["burn::", "burn_backend", "burn_core", "burn_ndarray", "burn_optim", "burn_std", "burn_tensor"],
        covers: |path| in_sources(path, "burn-tpu-runtime") || in_sources(path, "burn-tpu-interpreter"),
        keep: Keep::Code,
        reason: "Burn is known to burn-tpu",
    },
    Ban {
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        covers: |path| path != GATE && LIBRARIES.iter().any(|library| in_sources(path, library)),
        keep: Keep::Code,
        reason: "a library speaks through `tracing` and its metrics",
    },
];

/// The gate of the tests that need a plugin. It prints why a test is skipped.
const GATE: &str = "crates/burn-tpu-pjrt/src/testing.rs";

/// The attribute that makes the compiler enforce the first ban.
const FORBID: &str = "#![forbid(unsafe_code)]";

fn in_sources(path: &str, library: &str) -> bool {
    in_library(path).is_some_and(|path| in_folder(path, &format!("{library}/src")))
}

/// Returns a path from the folder that a library lies in: the workspace's, or `crates/`.
fn in_library(path: &str) -> Option<&str> {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.starts_with("burn-tpu").then_some(path)
}

fn in_folder(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Every ban that a Rust file of the workspace breaks, and every library that does not forbid `unsafe`.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in rust_files(root)? {
        let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read `{path}`"))?;
        broken.extend(check_source(&path, &source));
    }
    Ok(broken)
}

/// The bans that one file breaks.
fn check_source(path: &str, source: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for ban in BANS.iter().filter(|ban| (ban.covers)(path)) {
        let text = strip(source, ban.keep);
        for (line, text) in text.lines().enumerate() {
            let words = ban.words.iter().filter(|word| has_word(text, word));
            broken.extend(words.map(|word| format!("{path}:{}: `{word}`: {}", line + 1, ban.reason)));
        }
    }
    let is_library = LIBRARIES
        .iter()
        .any(|library| *library != UNSAFE_CRATE && in_library(path) == Some(&*format!("{library}/src/lib.rs")));
    if is_library && !strip(source, Keep::Code).contains(FORBID) {
        broken.push(format!(
            "{path}: `{FORBID}` is missing: the compiler is to keep {UNSAFE_CRATE} the only unsafe crate"
        ));
    }
    broken
}

/// Whether the text has this word, not merely as a part of a longer one (`unsafe_code` is not `unsafe`).
fn has_word(text: &str, word: &str) -> bool {
    let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
    let opens = word.ends_with(|c: char| !c.is_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].ends_with(part_of_a_name);
        let after = text[at + word.len()..].starts_with(part_of_a_name);
        !before && (opens || !after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "//! No unsafe here, says stablehlo.add.\n#![forbid(unsafe_code)]\nfn f() {}\n";

    #[test]
    fn a_clean_library_passes() {
        assert_eq!(check_source("burn-tpu/src/lib.rs", GOOD), Vec::<String>::new());
    }

    #[test]
    fn each_ban_names_file_line_and_reason() {
        let cases = [
            ("crates/burn-tpu-graph/src/x.rs", "\nunsafe { f() }", "x.rs:2: `unsafe`"),
            ("tests/x.rs", "unsafe fn f() {}", "tests/x.rs:1: `unsafe`"),
            ("burn-tpu/src/x.rs", "let t = \"stablehlo.add\";", "`stablehlo.`"),
            ("burn-tpu/src/x.rs", "use sys::PJRT_Buffer;", "`PJRT_`"),
            ("crates/burn-tpu-runtime/src/x.rs", "let t = \"stablehlo.add\";", "`stablehlo.`"),
            ("crates/burn-tpu-runtime/src/ops/x.rs", "use burn_std::Shape;", "`burn_std`"),
            ("crates/burn-tpu-pjrt/src/x.rs", "println!();", "`println!`"),
            ("burn-tpu-fusion/src/x.rs", "dbg!(1);", "`dbg!`"),
        ];
        for (path, source, expected) in cases {
            let broken = check_source(path, source);
            assert_eq!(broken.len(), 1, "{path}: {broken:?}");
            assert!(broken[0].contains(expected), "{}", broken[0]);
        }
    }

    #[test]
    fn bans_end_where_their_layer_ends() {
        for (path, source) in [
            ("crates/burn-tpu-pjrt/src/x.rs", "unsafe { PJRT_Call() }"),
            ("crates/burn-tpu-pjrt/tests/x.rs", "unsafe { f() }"),
            ("crates/burn-tpu-graph/src/x.rs", "let t = \"stablehlo.add\";"),
            ("burn-tpu/src/x.rs", "use burn_std::Shape;"),
            ("crates/xtask/src/x.rs", "println!();"),
            ("burn-tpu/src/x.rs", "// println! and unsafe\nlet unsafely = \"unsafe PJRT_X\";"),
        ] {
            assert_eq!(check_source(path, source), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn a_library_that_does_not_forbid_unsafe_is_named() {
        let broken = check_source("crates/burn-tpu-graph/src/lib.rs", "// #![forbid(unsafe_code)]\n");
        assert!(broken[0].contains("`#![forbid(unsafe_code)]` is missing"), "{broken:?}");
        assert!(check_source("crates/burn-tpu-pjrt/src/lib.rs", "").is_empty());
    }
}
