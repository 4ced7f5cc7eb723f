//! The tokens of Rust code, and what imports are made of: paths, `use` trees, the functions of `impl`s.

use super::text::{Keep, strip};

/// A word, `::`, or one other character, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// Returns the tokens of the code.
pub fn of(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (index, line) in strip(source, Keep::Code).lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match rest.starts_with("::") {
                true => 2,
                false if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            tokens.push(Token { text: rest[..length].to_owned(), line: index + 1 });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Returns whether these tokens are at `at`.
fn is_at(code: &[Token], at: usize, texts: &[&str]) -> bool {
    code.get(at..at + texts.len())
        .is_some_and(|tokens| tokens.iter().zip(texts).all(|(token, text)| token.text == *text))
}

/// Takes the items under `#[cfg(test)]` and `#[cfg(all(test, …))]` out of the code, and returns both.
pub fn without_tests(code: Vec<Token>) -> (Vec<Token>, Vec<Vec<Token>>) {
    let (mut kept, mut tests) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < code.len() {
        let is_test = is_at(&code, at, &["#", "[", "cfg", "(", "test", ")"])
            || is_at(&code, at, &["#", "[", "cfg", "(", "all", "(", "test"]);
        if is_test {
            let end = end_of_item(&code, at);
            tests.push(code[at..end].to_vec());
            at = end;
        } else {
            kept.push(code[at].clone());
            at += 1;
        }
    }
    (kept, tests)
}

/// Returns the place after the item at `at`: after its `;` or its `}`, or before the `}` of what it is in.
fn end_of_item(code: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (place, token) in code.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            "}" if depth == 0 => return place,
            "}" if depth == 1 => return place + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" if depth == 0 => return place + 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the place after the bracket that closes the one at `at`.
fn end_of_block(code: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (place, token) in code.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    code.len()
}

/// A path of the code.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportPath {
    /// From the root of the crate, if the path is absolute; `*` for everything.
    pub segments: Vec<String>,
    /// Whether it began with `crate`, `self` or `super`.
    pub is_absolute: bool,
    pub is_use: bool,
    /// The name after `as`.
    renamed: Option<String>,
    pub line: usize,
}

impl ImportPath {
    /// Returns the name that a `use` binds.
    pub fn name(&self) -> Option<String> {
        self.renamed.clone().or_else(|| self.segments.last().cloned())
    }

    /// Returns the path with its `crate`, `self` and `super`s replaced by the module that they refer to.
    fn resolved(mut self, module: &[String]) -> Self {
        let mut base: Option<Vec<String>> = None;
        let mut rest = self.segments.as_slice();
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => base = Some(Vec::new()),
                "self" => base = Some(base.unwrap_or_else(|| module.to_vec())),
                "super" => {
                    let mut inner = base.unwrap_or_else(|| module.to_vec());
                    inner.pop();
                    base = Some(inner);
                }
                _ => break,
            }
            rest = after;
        }
        self.is_absolute = base.is_some();
        self.segments = [base.unwrap_or_default().as_slice(), rest].concat();
        self
    }
}

/// Returns the paths of the code of a module: those of its `use`s, and all others that begin with `crate`, `self` or
/// `super`.
pub fn paths(code: &[Token], module: &[String]) -> impl Iterator<Item = ImportPath> {
    let mut found = Vec::new();
    let mut inner = vec![(module.to_vec(), usize::MAX)];
    let mut at = 0;
    while at < code.len() {
        while inner.last().is_some_and(|(_, end)| *end <= at) {
            inner.pop();
        }
        let here = inner.last().map_or(module, |(module, _)| module).to_vec();
        let (text, before) =
            (code[at].text.as_str(), at.checked_sub(1).map_or("", |before| code[before].text.as_str()));
        match text {
            "mod" if is_at(code, at + 2, &["{"]) => {
                let name = code[at + 1].text.clone();
                inner.push(([here.as_slice(), &[name]].concat(), end_of_block(code, at + 2)));
                at += 3;
            }
            "use" => {
                let (tree, end) = use_tree(code, at + 1, &[]);
                found.extend(tree.into_iter().map(|path| path.resolved(&here)));
                at = end;
            }
            "crate" | "self" | "super" if before != "::" && before != "in" && is_at(code, at + 1, &["::"]) => {
                let (path, end) = plain(code, at);
                found.push(path.resolved(&here));
                at = end;
            }
            _ => at += 1,
        }
    }
    found.into_iter()
}

/// Returns the path at a word, without generic arguments, and the place after it.
fn plain(code: &[Token], at: usize) -> (ImportPath, usize) {
    let mut segments = vec![code[at].text.clone()];
    let mut end = at + 1;
    while is_at(code, end, &["::"]) && code.get(end + 1).is_some_and(|token| is_word(&token.text)) {
        segments.push(code[end + 1].text.clone());
        end += 2;
    }
    (ImportPath { segments, is_absolute: false, is_use: false, renamed: None, line: code[at].line }, end)
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns the paths of the `use` tree at `at`, which come after `before`, and the place after the tree.
fn use_tree(code: &[Token], mut at: usize, before: &[String]) -> (Vec<ImportPath>, usize) {
    let mut segments = before.to_vec();
    let line = code.get(at).map_or(0, |token| token.line);
    let path = |segments, renamed| ImportPath { segments, is_absolute: false, is_use: true, renamed, line };
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            "{" => {
                let end = end_of_block(code, at);
                let mut found = Vec::new();
                at += 1;
                while at + 1 < end {
                    if code[at].text == "," {
                        at += 1;
                        continue;
                    }
                    let (inner, after) = use_tree(code, at, &segments);
                    found.extend(inner);
                    at = after.max(at + 1);
                }
                return (found, end);
            }
            "as" => {
                let renamed = code.get(at + 1).map(|token| token.text.clone());
                return (vec![path(segments, renamed)], at + 3);
            }
            "," | ";" | "}" => return (vec![path(segments, None)], at + 1),
            "::" => {}
            word => segments.push(word.to_owned()),
        }
        at += 1;
    }
    (vec![path(segments, None)], at)
}

/// Returns the names of the macros that are at the root of the crate.
pub fn exported_macros(code: &[Token]) -> Vec<String> {
    let starts = (0..code.len()).filter(|&at| is_at(code, at, &["#", "[", "macro_export"]));
    let names = starts.filter_map(|at| {
        let rest = &code[at..];
        let found = rest.iter().position(|token| token.text == "macro_rules")?;
        rest.get(found + 2).map(|token| token.text.clone())
    });
    names.collect()
}

/// Returns the `impl`s: the name of the type, and those of the functions.
pub fn impls(code: &[Token]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for at in (0..code.len()).filter(|&at| code[at].text == "impl") {
        let is_item = at == 0 || matches!(code[at - 1].text.as_str(), "}" | ";" | "]" | "{" | "unsafe");
        let Some(open) = code[at..].iter().position(|token| token.text == "{").filter(|_| is_item) else { continue };
        let Some(ty) = type_name(&code[at + 1..at + open]) else { continue };
        let body = &code[at + open..end_of_block(code, at + open)];
        let functions = body.windows(2).filter(|pair| pair[0].text == "fn").map(|pair| pair[1].text.clone());
        found.push((ty, functions.collect()));
    }
    found
}

/// Returns the last word of the type's path between `impl` and `{`, outside of generic arguments.
fn type_name(head: &[Token]) -> Option<String> {
    let mut depth = 0;
    let mut name = None;
    for token in head {
        match token.text.as_str() {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ if depth > 0 => {}
            "for" => name = None,
            "where" => break,
            word if is_word(word) => name = Some(word.to_owned()),
            _ => {}
        }
    }
    name
}

/// Returns the line of an `extern crate self`, which gives the root another name.
pub fn renames_crate(code: &[Token]) -> Option<usize> {
    (0..code.len()).find(|&at| is_at(code, at, &["extern", "crate", "self"])).map(|at| code[at].line)
}

/// Returns the line of the first use of a function as `Type::function`, or, if it is the only one of its name, as a method.
pub fn call(code: &[Token], ty: &str, function: &str, only: bool) -> Option<usize> {
    let mut named = (2..code.len()).filter(|&at| code[at].text == function);
    let found = named.find(|&at| {
        let before = code[at - 1].text.as_str();
        let of_type = before == "::" && code[at - 2].text == ty;
        of_type || only && before == "." && (is_at(code, at + 1, &["("]) || is_at(code, at + 1, &["::"]))
    });
    found.map(|at| code[at].line)
}
