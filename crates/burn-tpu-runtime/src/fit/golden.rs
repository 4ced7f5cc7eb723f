//! Golden programs: a step's program and the result of its compile, stored in a small text file that tests compare
//! with.
//!
//! A later change is compared with the file: does this step still record the same program, with the same work, in the
//! same memory? Owns: the format of the file and the comparison. May only know: the report.

use super::report::{FitReport, SliceFit, Verdict};
use crate::error::{Result, TpuError};
use std::fmt::Write;
use std::path::Path;

/// The variable that, set to `1`, makes [`FitReport::pinned`] write the file instead of comparing with it.
const BLESS: &str = "BURN_TPU_BLESS";

const HEAD: &str = "# A step's StableHLO (SHA-256 of its text, nodes by op), its FLOPs, and its temporary bytes by slice.\n\
                    # BURN_TPU_BLESS=1 writes this file anew: read what changed before you keep it.\n";

impl FitReport {
    /// Compares the step with the text file `path`: the hash of its StableHLO, its nodes by op, its FLOPs and its
    /// temporary bytes on each slice. With `BURN_TPU_BLESS=1` in the environment, it writes the file instead.
    ///
    /// The bytes may differ with another version of libtpu.
    ///
    /// # Errors
    /// [`TpuError::Golden`] with the lines that differ; [`TpuError::File`] if the file cannot be read or written.
    ///
    /// ```no_run
    /// # fn of_a_test(report: burn_tpu_runtime::fit::FitReport) {
    /// report.pinned("tests/golden/step.txt").unwrap_or_else(|changed| panic!("{changed}"));
    /// # }
    /// ```
    pub fn pinned(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |error: std::io::Error| TpuError::File {
            what: "a golden program (BURN_TPU_BLESS=1 writes it)",
            path: path.into(),
            reason: error.to_string(),
        };
        let found = self.pin();
        if std::env::var(BLESS).is_ok_and(|value| value == "1") {
            let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            return folder.and_then(|()| std::fs::write(path, found)).map_err(failed);
        }
        let changes = changes(&std::fs::read_to_string(path).map_err(failed)?, &found);
        if changes.is_empty() { Ok(()) } else { Err(TpuError::Golden { path: path.into(), changes }) }
    }

    /// Returns the text of the file.
    fn pin(&self) -> String {
        let step = &self.step;
        let mut text = format!("{HEAD}stablehlo: {}\nflops: {}\n", step.hash, step.flops);
        let ops: Vec<String> = step.ops.iter().map(|(op, count)| format!("{op} {count}")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(text, "ops: {}", ops.join(", "));
        for slice in &self.slices {
            let _ = writeln!(text, "{}: {}", slice.topology, of_slice(slice));
        }
        text
    }
}

fn of_slice(slice: &SliceFit) -> String {
    match &slice.verdict {
        Verdict::Fits => format!("{} temporary bytes", slice.memory.temporary_bytes),
        Verdict::OutOfMemory { .. } => "out of memory".into(),
        Verdict::Failed { message } => format!("failed: {}", message.lines().next().unwrap_or_default()),
    }
}

/// Returns the lines that differ, `-` stored and `+` found, with a list of ops split into its items. Line ends and
/// comments are ignored.
fn changes(pinned: &str, found: &str) -> String {
    let (pinned, found) = (facts(pinned), facts(found));
    let removed = pinned.iter().filter(|fact| !found.contains(fact)).map(|fact| format!("  - {fact}\n"));
    let new = found.iter().filter(|fact| !pinned.contains(fact)).map(|fact| format!("  + {fact}\n"));
    removed.chain(new).collect()
}

/// Returns one fact per line, and one fact per op in the list of ops.
fn facts(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| match line.strip_prefix("ops: ") {
        Some(ops) => ops.split(", ").map(|op| format!("op {op}")).collect(),
        None => vec![line.to_owned()],
    };
    lines.flat_map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PINNED: &str = "# a comment\nstablehlo: 12ab\nflops: 5\nops: add 1, dot 2\nv5e:1x1: 64 temporary bytes\n";

    #[test]
    fn the_same_facts_are_no_change() {
        assert_eq!(changes(PINNED, PINNED), "");
        assert_eq!(changes(PINNED, &PINNED.replace('\n', "\r\n").replace("# a comment", "#")), "");
    }

    #[test]
    fn only_what_differs_is_shown() {
        let found = PINNED.replace("dot 2", "dot 3").replace("64", "128");
        let shown = "  - op dot 2\n  - v5e:1x1: 64 temporary bytes\n  + op dot 3\n  + v5e:1x1: 128 temporary bytes\n";
        assert_eq!(changes(PINNED, &found), shown);
    }
}
