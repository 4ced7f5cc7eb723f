//! `fit --search`, as its user runs it: a small GPT on a slice of four chips.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use crate::common;

use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Returns the program. `cargo test` builds its unit tests alone, so it is built here, once.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let built = Command::new(env!("CARGO")).args(["build", "--workspace", "--example", "fit"]).status().unwrap();
        assert!(built.success());
        let tests = std::env::current_exe().unwrap();
        tests.ancestors().nth(2).unwrap().join("examples/fit")
    })
}

/// Returns what a search writes as JSON.
fn search(options: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.json");
    let sizes = "--layers 1 --width 64 --heads 4 --ff 128 --sequence 32 --vocab 64 --batch 8";
    let mut command = Command::new(program());
    command.args(["--search", "--generations", "v5e:2x2"]).args(sizes.split(' ')).args(options.split(' '));
    let output = command.arg("--json").arg(&report).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(&report).unwrap()).unwrap()
}

#[test]
fn the_layouts_of_a_small_gpt_are_compiled_and_ranked() {
    if !common::has_libtpu() {
        return;
    }
    let found = search("--candidates 2 --remat on");
    let rows = found[0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let step = |row: &Value| {
        let figures = &row["figures"];
        let seconds = |name: &str| figures[name].as_f64().unwrap();
        assert!(seconds("peak_bytes") > 0.0 && seconds("peak_bytes") <= seconds("limit_bytes"), "{row}");
        assert!(seconds("communication_seconds") > 0.0, "{row}");
        seconds("matrix_seconds").max(seconds("memory_seconds")).max(seconds("communication_seconds"))
    };
    assert!(rows.iter().all(|row| row["from"] == "compiled"), "{found}");
    assert!(step(&rows[0]) <= step(&rows[1]), "{found}");
}

#[test]
fn a_compile_that_takes_too_long_is_an_entry_with_its_reason() {
    let found = search("--candidates 1 --limit 0");
    let row = &found[0]["rows"][0];
    assert_eq!(row["from"], "refused", "{found}");
    assert!(row["reason"].as_str().unwrap().contains("stopped after 0 s"), "{found}");
}
