//! Which test calls which method, read from the tests' sources.
//!
//! A test calls a method where it names it in a path (`B::float_add`, `module::conv2d`), registers it as a row or a law
//! of the parity tests (`row("float_add", …)`), or gives its name to a macro of its own file. The table names files: the
//! names of tests change too often.

use super::parsed;
use crate::sources::rust_files;
use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::Item;

/// For each method, the files whose tests call it, sorted.
pub type Tests = BTreeMap<String, BTreeSet<String>>;

/// Reads the integration tests, and the tests beside the backend's code.
pub fn find(root: &Path, integration: &[&str], sources: &[&str], methods: &BTreeSet<String>) -> Result<Tests> {
    let mut tests = Tests::new();
    for &folder in integration.iter().chain(sources) {
        for path in rust_files(&root.join(folder))? {
            let file = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            let items = parsed(&path)?.items;
            let items = if sources.contains(&folder) { beside_the_code(items) } else { items };
            Search { file: &file, macros: macros(&items), methods }.search(&items, &mut tests);
        }
    }
    Ok(tests)
}

/// The items of modules that only tests compile.
fn beside_the_code(items: Vec<Item>) -> Vec<Item> {
    let inner = |item: Item| match item {
        Item::Mod(module)
            if module.attrs.iter().any(|attr| attr.to_token_stream().to_string().contains("cfg (test)")) =>
        {
            module.content.map(|(_, items)| items).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    items.into_iter().flat_map(inner).collect()
}

/// The macros that a file defines for itself.
fn macros(items: &[Item]) -> BTreeSet<String> {
    let names = items.iter().filter_map(|item| match item {
        Item::Macro(definition) => definition.ident.as_ref().map(ToString::to_string),
        _ => None,
    });
    names.collect()
}

/// A file of tests.
struct Search<'a> {
    file: &'a str,
    macros: BTreeSet<String>,
    methods: &'a BTreeSet<String>,
}

impl Search<'_> {
    fn search(&self, items: &[Item], tests: &mut Tests) {
        for item in items {
            match item {
                Item::Mod(module) => {
                    self.search(module.content.as_ref().map(|(_, items)| &items[..]).unwrap_or_default(), tests);
                }
                Item::Use(_) => {}
                other => self.record(other.to_token_stream(), tests),
            }
        }
    }

    fn record(&self, tokens: TokenStream, tests: &mut Tests) {
        for name in self.named(tokens).into_iter().filter(|name| self.methods.contains(name)) {
            tests.entry(name).or_default().insert(self.file.to_string());
        }
    }

    /// Names after `::`, the first literal of every row, and all names that the file's own macros are given.
    fn named(&self, tokens: TokenStream) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        // The two tokens before, as text.
        let (mut before, mut last) = (String::new(), String::new());
        for token in tokens {
            if let TokenTree::Group(group) = &token {
                let first = group.stream().into_iter().next();
                if let (true, Some(TokenTree::Literal(name))) = (ROWS.contains(&last.as_str()), first) {
                    found.insert(name.to_string().trim_matches('"').to_string());
                }
                if last == "!" && self.macros.contains(&before) {
                    found.extend(names(group.stream()));
                }
                found.extend(self.named(group.stream()));
            } else if matches!(&token, TokenTree::Ident(_)) && last == ":" && before == ":" {
                found.insert(token.to_string());
            }
            before = std::mem::replace(&mut last, token.to_string());
        }
        found
    }
}

/// What registers a test of the parity tests, under the name of its method.
const ROWS: [&str; 2] = ["row", "law"];

fn names(tokens: TokenStream) -> BTreeSet<String> {
    let each = |token| match token {
        TokenTree::Group(group) => names(group.stream()),
        TokenTree::Ident(name) => BTreeSet::from([name.to_string()]),
        TokenTree::Literal(_) | TokenTree::Punct(_) => BTreeSet::new(),
    };
    tokens.into_iter().flat_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Tests {
        let methods = ["float_add", "float_sub", "float_mul", "float_div", "float_exp"].map(String::from).into();
        let file = syn::parse_file(text).unwrap();
        let mut tests = Tests::new();
        Search { file: "tests/x.rs", macros: macros(&file.items), methods: &methods }.search(&file.items, &mut tests);
        tests
    }

    #[test]
    fn paths_and_rows_count_and_other_words_do_not() {
        let tests = found(
            r#"fn f() { row("float_add", run!(|t| B::float_sub(x))); let float_mul = "float_div"; rows("float_exp"); }"#,
        );
        assert_eq!(tests.keys().collect::<Vec<_>>(), ["float_add", "float_sub"]);
    }

    #[test]
    fn names_count_for_macros_of_the_file() {
        let tests =
            found("macro_rules! own { () => {} } own!(a, float_add); other!(b, float_sub); fn f() { own!(float_mul) }");
        assert_eq!(tests.keys().collect::<Vec<_>>(), ["float_add", "float_mul"]);
    }

    #[test]
    fn a_method_is_tested_by_files() {
        let tests =
            found("use B::float_exp; #[test] fn adds() { B::float_add(); } mod m { fn f() { B::float_sub(); } }");
        let file: BTreeSet<String> = ["tests/x.rs".to_string()].into();
        assert_eq!(tests, [("float_add", file.clone()), ("float_sub", file)].map(|(k, v)| (k.to_string(), v)).into());
    }
}
