use super::*;
use std::collections::BTreeSet;
use std::path::Path;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    std::fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the backquoted names that have the prefix of our variables.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').filter(|name| is_variable(name))
}

fn is_variable(name: &str) -> bool {
    let rest = name.strip_prefix("BURN_TPU_").unwrap_or_default();
    let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    !rest.is_empty() && !rest.ends_with('_') && rest.chars().all(is_of_name)
}

#[test]
fn the_page_of_variables_lists_every_variable() {
    let page = file("docs/variables.md");
    let rows = page.lines().filter(|line| line.starts_with("| `BURN_TPU_"));
    let mut names: Vec<&str> = rows.flat_map(|row| row.split('|').nth(1).into_iter().flat_map(quoted)).collect();
    names.sort_by_key(|name| TpuOptions::VARIABLES.iter().position(|known| known == name));
    assert_eq!(names, TpuOptions::VARIABLES);
}

/// A test of the doctor misspells this name on purpose.
const MISSPELT: &str = "BURN_TPU_CACHE_ENTRYS";

/// Every variable that a source file of the workspace names must be in [`TpuOptions::VARIABLES`], or, if only this
/// project's tests use it, in `docs/testing.md`.
#[test]
fn every_variable_in_the_sources_is_documented() {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(workspace()).expect("the workspace").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name.starts_with("burn-tpu") || ["crates", "src", "tests", "examples", "benches"].contains(&&*name);
        if ours && entry.path().is_dir() {
            collect(&entry.path(), &mut found);
        }
    }
    let testing = file("docs/testing.md");
    let documented: BTreeSet<&str> = TpuOptions::VARIABLES.iter().copied().chain(quoted(&testing)).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).filter(|name| *name != MISSPELT).collect();
    assert_eq!(found.difference(&documented).collect::<Vec<_>>(), Vec::<&&str>::new(), "read and not documented");
    assert_eq!(documented.difference(&found).collect::<Vec<_>>(), Vec::<&&str>::new(), "documented and not read");
}

/// Collects the string literals in the files of a folder that are names of variables.
fn collect(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source");
            found.extend(source.split('"').filter(|text| is_variable(text)).map(str::to_owned));
        }
    }
}

#[test]
fn strict_mode_overrides_the_fallback_policy() {
    let allowed = TpuOptions::training().fallback(FallbackPolicy::Allow);
    assert_eq!(allowed.fallback_policy(), FallbackPolicy::Allow);
    assert_eq!(allowed.strict(true).fallback_policy(), FallbackPolicy::Deny);
}

#[test]
fn parsers_reject_invalid_values_and_name_the_valid_range() {
    assert_eq!(number::<u16>(1, 256)("256"), Ok(256));
    for wrong in ["0", "257", "-1", "many", "99999999999999999999"] {
        assert!(number::<u16>(1, 256)(wrong).unwrap_err().contains("from 1 to 256"), "{wrong}");
    }
    assert_eq!((switch("0"), switch("1")), (Ok(false), Ok(true)));
    assert_eq!(list("a, b"), Ok(vec!["a".into(), "b".into()]));
    assert_eq!(policy("allow"), Ok(FallbackPolicy::Allow));
    assert_eq!(index_checks("all"), Ok(IndexChecks::All));
    assert_eq!(optimization("conservative"), Ok(Optimization::Conservative));
    assert_eq!(optimization("aggressive"), Ok(Optimization::Aggressive));
    assert!(optimization("full").unwrap_err().contains("balanced"));
    assert_eq!(
        ["default", "high", "highest"].map(precision),
        [Precision::Default, Precision::High, Precision::Highest].map(Ok)
    );
    assert!(precision("exact").unwrap_err().contains("highest"));
    assert_eq!(rewrites("roll, query_blocks"), Ok(vec![Rewrite::Roll, Rewrite::QueryBlocks]));
    assert!(rewrites("rolls").unwrap_err().contains("`rolls` is not one of linear_activation"));
    assert!(switch("yes").is_err() && policy("always").is_err() && index_checks("1").is_err());
}
