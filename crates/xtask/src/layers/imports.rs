//! Which modules of a crate import which.
//!
//! A module here is a top-level one of a crate, with everything below it. `lib.rs` is none: it declares and re-exports all
//! of them. A module *imports* another one where its code has
//!
//! - a path that begins with `crate` (or `$crate`), or with enough `super`s to leave the module, in a `use` or anywhere
//!   else. A name that `lib.rs` re-exports is an import of the module that it comes from;
//! - a function of an `impl` that is not in the module of its type: as `Type::f`, or as `.f(…)` if no other function of the
//!   crate has this name.
//!
//! Comments, literals, `pub(in crate::…)` and what is under `#[cfg(test)]` do not count. A path that hides what it imports
//! is refused: one that ends at the root (`crate::*`, `use crate as root`) or at something that `lib.rs` itself defines, and
//! `extern crate self`.

use super::tokens::{self, Token};
use crate::sources::rust_files;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The imports of each module: the imported modules, each with the file and line of the first import.
pub type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the imports between the modules of the crate whose sources lie in `folder`, and the paths that hide some.
pub fn of_crate(root: &Path, folder: &str) -> Result<(Imports, Vec<String>)> {
    let folder = root.join(folder);
    let mut sources = Vec::new();
    for file in rust_files(&folder)? {
        let path = file.strip_prefix(&folder).unwrap_or(&file).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        sources.push((path, text));
    }
    let sources: Vec<(&str, &str)> = sources.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    Ok(of_sources(&sources))
}

/// Returns the imports of a crate with these files: their paths from its `src`, and their texts.
pub fn of_sources(files: &[(&str, &str)]) -> (Imports, Vec<String>) {
    let mut sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
    let tests: BTreeSet<Vec<String>> = sources.iter().flat_map(Source::test_modules).collect();
    sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    let names = Names::of(&sources);
    let mut found = Found::default();
    for source in sources.iter().filter(|source| !source.module.is_empty()) {
        found.imports.entry(source.top().to_owned()).or_default();
        found.paths_of(source, &names);
        found.functions_of(source, &names);
    }
    (found.imports, found.hidden)
}

/// A file: its path, the module that it is, and its code without what only tests have.
struct Source {
    path: String,
    module: Vec<String>,
    code: Vec<Token>,
    /// The code of tests that was removed.
    tests: Vec<Vec<Token>>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let (code, tests) = tokens::without_tests(tokens::of(text));
        let module = path.trim_end_matches(".rs").split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
        Self { path: path.to_owned(), module: module.map(str::to_owned).collect(), code, tests }
    }

    /// Returns the modules of other files that only tests have: `#[cfg(test)] mod tests;`.
    fn test_modules(&self) -> impl Iterator<Item = Vec<String>> {
        let names = self.tests.iter().filter_map(|item| match item.iter().position(|token| token.text == "mod") {
            Some(at) if item.get(at + 2).is_some_and(|token| token.text == ";") => Some(item[at + 1].text.clone()),
            _ => None,
        });
        names.map(|name| [self.module.as_slice(), &[name]].concat())
    }

    fn top(&self) -> &str {
        self.module.first().map_or("", String::as_str)
    }
}

/// What the names of a crate refer to.
#[derive(Default)]
struct Names {
    modules: BTreeSet<String>,
    /// What `lib.rs` imports from modules, and the macros that are at the root: name to module.
    reexports: BTreeMap<String, String>,
    /// What `lib.rs` imports from other crates, or defines.
    root: BTreeSet<String>,
    /// The modules that define a type of this name.
    types: BTreeMap<String, BTreeSet<String>>,
    /// How many functions have a name.
    functions: BTreeMap<String, usize>,
    /// The functions in an `impl` of another module's type: type and name, to the module of the `impl`.
    extensions: BTreeMap<(String, String), String>,
}

impl Names {
    fn of(sources: &[Source]) -> Self {
        let mut names = Self::default();
        names.modules.extend(sources.iter().map(|source| source.top().to_owned()).filter(|top| !top.is_empty()));
        for source in sources {
            names.definitions(source);
        }
        for source in sources {
            names.extensions_of(source);
        }
        names
    }

    fn definitions(&mut self, source: &Source) {
        for pair in source.code.windows(2) {
            let (keyword, name) = (pair[0].text.as_str(), pair[1].text.clone());
            match keyword {
                "struct" | "enum" | "union" | "trait" | "type" => {
                    self.types.entry(name).or_default().insert(source.top().to_owned());
                }
                "fn" => *self.functions.entry(name).or_default() += 1,
                _ => {}
            }
        }
        for name in tokens::exported_macros(&source.code) {
            self.reexports.insert(name, source.top().to_owned());
        }
        if source.module.is_empty() {
            self.root(&source.code);
        }
    }

    /// Notes what `lib.rs` has under which name.
    fn root(&mut self, code: &[Token]) {
        for path in tokens::paths(code, &[]).filter(|path| path.is_use) {
            let Some(name) = path.name() else { continue };
            match path.segments.first().filter(|first| self.modules.contains(*first)) {
                Some(module) => drop(self.reexports.insert(name, module.clone())),
                None => drop(self.root.insert(name)),
            }
        }
    }

    fn extensions_of(&mut self, source: &Source) {
        for (ty, functions) in tokens::impls(&source.code) {
            if self.types.get(&ty).is_none_or(|homes| homes.contains(source.top())) {
                continue;
            }
            for function in functions {
                self.extensions.insert((ty.clone(), function), source.top().to_owned());
            }
        }
    }

    /// Returns the module that a path from the root leads to; `None` outside the crate.
    fn module_of(&self, path: &[String]) -> Result<Option<&str>, ()> {
        let first = path.first().filter(|first| *first != "*").ok_or(())?;
        if let Some(module) = self.modules.get(first).or_else(|| self.reexports.get(first)) {
            return Ok(Some(module));
        }
        if self.root.contains(first) { Ok(None) } else { Err(()) }
    }
}

#[derive(Default)]
struct Found {
    imports: Imports,
    hidden: Vec<String>,
}

impl Found {
    fn add(&mut self, source: &Source, to: &str, line: usize) {
        if to != source.top() {
            let of_source = self.imports.entry(source.top().to_owned()).or_default();
            of_source.entry(to.to_owned()).or_insert_with(|| format!("{}:{line}", source.path));
        }
    }

    /// Adds what the paths of a file import.
    fn paths_of(&mut self, source: &Source, names: &Names) {
        if let Some(line) = tokens::renames_crate(&source.code) {
            self.hidden.push(format!(
                "{}:{line}: `extern crate self`: a path has to say which module it imports",
                source.path
            ));
        }
        for path in tokens::paths(&source.code, &source.module).filter(|path| path.is_absolute) {
            match names.module_of(&path.segments) {
                Ok(Some(module)) => self.add(source, module, path.line),
                Ok(None) => {}
                Err(()) => self.hidden.push(format!(
                    "{}:{}: `crate::{}`: a path has to say which module it imports",
                    source.path,
                    path.line,
                    path.segments.join("::")
                )),
            }
        }
    }

    /// Adds the uses of functions whose `impl` is not in the module of its type.
    fn functions_of(&mut self, source: &Source, names: &Names) {
        for ((ty, function), module) in &names.extensions {
            let only = names.functions.get(function) == Some(&1);
            if let Some(line) = tokens::call(&source.code, ty, function, only) {
                self.add(source, module, line);
            }
        }
    }
}
