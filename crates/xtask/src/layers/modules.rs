//! Modules import each other in one direction: no two-way pair and no longer cycle, and in the runtime in one order.

use super::imports::{self, Imports};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;

/// The modules of the runtime by layer, lowest first. A module imports only modules that are listed before it.
const RUNTIME: [(&str, &[&str]); 3] = [
    (
        "engine",
        &[
            "units",
            "region",
            "warnings",
            "lines",
            "memory",
            "error",
            "device",
            "options",
            "metrics",
            "activity",
            "cache",
            "distributed",
            "profile",
            "engine",
        ],
    ),
    (
        "recording and running",
        &[
            "numerics",
            "recording",
            "program",
            "recompile",
            "compiling",
            "runtime",
            "trace",
            "control",
            "function",
            "ops",
            "custom_op",
            "layers",
            "collective",
            "placement",
            "leaves",
            "compiled",
            "step",
        ],
    ),
    ("analysis", &["fit", "testing"]),
];

/// The sources of the runtime.
const RUNTIME_SOURCES: &str = "crates/burn-tpu-runtime/src";

/// The sources of the other crates whose modules have no cycle.
const WITHOUT_CYCLES: [&str; 5] = [
    "crates/burn-tpu-cli/src",
    "crates/burn-tpu-interpreter/src",
    "crates/burn-tpu-kernels/src",
    "crates/burn-tpu-train/src",
    "crates/burn-tpu-xla/src",
];

/// Returns every import that breaks a rule.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for folder in WITHOUT_CYCLES.iter().chain([&RUNTIME_SOURCES]) {
        let (imports, hidden) = imports::of_crate(root, folder)?;
        broken.extend(hidden.into_iter().chain(cycles(&imports)).map(|message| format!("{folder}: {message}")));
        if *folder == RUNTIME_SOURCES {
            broken.extend(out_of_order(&imports, &RUNTIME).into_iter().map(|message| format!("{folder}: {message}")));
        }
    }
    Ok(broken)
}

/// Returns a message for each import of a module that comes later in the list, and for each module that is not listed or
/// does not exist.
fn out_of_order(imports: &Imports, layers: &[(&str, &[&str])]) -> Vec<String> {
    let order: Vec<(&str, &str)> =
        layers.iter().flat_map(|(layer, modules)| modules.iter().map(|module| (*layer, *module))).collect();
    let place = |module: &str| order.iter().position(|(_, listed)| *listed == module);
    let mut messages = Vec::new();
    for (module, imported) in imports {
        let Some(own) = place(module) else {
            messages.push(format!("`{module}` is in no layer: list it in xtask/src/layers/modules.rs"));
            continue;
        };
        for (other, at) in imported {
            if let Some(place) = place(other).filter(|place| *place > own) {
                let (of, above) = (order[own].0, order[place].0);
                messages.push(format!(
                    "{at}: `{module}` (layer {of}) imports `{other}` (layer {above}), which is above it"
                ));
            }
        }
    }
    let missing = order.iter().filter(|(_, module)| !imports.contains_key(*module));
    messages.extend(missing.map(|(_, module)| format!("`{module}` is listed, and there is no such module")));
    messages
}

/// Returns a message for each two-way pair, and, if there is none, for one longer cycle.
fn cycles(imports: &Imports) -> Vec<String> {
    let mut messages = Vec::new();
    for (a, of_a) in imports {
        for (b, there) in of_a.range(a.clone()..) {
            if let Some(back) = imports.get(b).and_then(|of_b| of_b.get(a)) {
                messages.push(format!("`{a}` and `{b}` import each other: {there} and {back}"));
            }
        }
    }
    if messages.is_empty() {
        let cycle = imports.keys().find_map(|module| cycle_from(imports, module));
        messages.extend(cycle.map(|cycle| format!("modules import each other in a cycle: {cycle}")));
    }
    messages
}

/// Returns the shortest way along imports from a module back to it, with the place of each import.
fn cycle_from(imports: &Imports, start: &str) -> Option<String> {
    let mut ways = vec![(start.to_owned(), format!("`{start}`"))];
    let mut seen = BTreeSet::new();
    let mut next = 0;
    while next < ways.len() {
        let (module, way) = ways[next].clone();
        next += 1;
        for (to, place) in imports.get(&module).into_iter().flatten() {
            let way = format!("{way} -> `{to}` ({place})");
            if to == start {
                return Some(way);
            }
            if seen.insert(to.clone()) {
                ways.push((to.clone(), way));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use b::Thing;\nuse other_crate::Foreign;\n");

    /// Returns the broken rules of a crate with these modules.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let (imports, hidden) = imports::of_sources(&[&[LIB], files].concat());
        hidden.into_iter().chain(cycles(&imports)).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn imports_in_one_direction_pass() {
        let a = "use crate::b::f;\nuse crate::{c, Foreign};\npub(in crate::c) struct A;";
        assert_eq!(of(&[("a.rs", a), ("b.rs", "use super::c::g;"), ("c.rs", "")]), NONE);
    }

    #[test]
    fn a_two_way_pair_is_refused_with_both_places() {
        let broken =
            of(&[("a.rs", "\nuse crate::b::f;"), ("b/mod.rs", ""), ("b/x.rs", "fn f() { super::super::a::g(); }")]);
        assert_eq!(broken, ["`a` and `b` import each other: a.rs:2 and b/x.rs:1"]);
    }

    #[test]
    fn a_cycle_of_three_is_refused() {
        let broken = of(&[("a.rs", "use crate::b;"), ("b.rs", "use crate::c;"), ("c.rs", "use crate::a;")]);
        let cycle = "`a` -> `b` (a.rs:1) -> `c` (b.rs:1) -> `a` (c.rs:1)";
        assert_eq!(broken, [format!("modules import each other in a cycle: {cycle}")]);
    }

    /// Each of these files of `a` imports `b`, in another way.
    #[test]
    fn no_form_of_import_is_overlooked() {
        let b =
            "use crate::a;\npub struct Thing;\npub(crate) fn f() {}\n#[macro_export]\nmacro_rules! made { () => {} }";
        for a in [
            "use crate::Thing;",
            "use crate::{c::{self}, Thing as Other};",
            "fn g() -> crate::Thing { loop {} }",
            "macro_rules! m { () => { $crate::b::f() } }",
            "mod inner { use super::super::b; }",
            "fn g() { crate::made!(); }",
            "use super::{c, b::{f, Thing}};",
            "use self::super::b;",
        ] {
            let broken = of(&[("a.rs", a), ("b.rs", b), ("c.rs", "")]);
            assert_eq!(broken.len(), 1, "{a}: {broken:?}");
            assert!(broken[0].starts_with("`a` and `b` import each other"), "{a}: {broken:?}");
        }
    }

    #[test]
    fn tests_comments_and_literals_import_nothing() {
        let a = "// crate::b\nconst S: &str = \"crate::b\";\n#[cfg(test)]\nmod tests { use crate::b; }\n#[cfg(test)]\nmod more;\n\
                 struct X {\n #[cfg(test)]\n y: crate::b::Thing }\n#[cfg(all(test, unix))]\nuse crate::b;";
        let files = [("a.rs", a), ("a/more.rs", "use crate::b;"), ("b.rs", "use crate::a;"), ("c.rs", "")];
        assert_eq!(of(&files), NONE);
    }

    #[test]
    fn a_path_that_hides_what_it_imports_is_refused() {
        for a in
            ["use crate::*;", "use crate as root;", "use super::*;", "use crate::Unknown;", "extern crate self as me;"]
        {
            let broken = of(&[("a.rs", a), ("b.rs", ""), ("c.rs", "")]);
            assert_eq!(broken.len(), 1, "{a}: {broken:?}");
            assert!(broken[0].contains("has to say which module it imports"), "{a}: {broken:?}");
        }
    }

    #[test]
    fn a_function_of_an_impl_in_another_module_is_an_import_of_that_module() {
        let c = "use crate::Thing;\nimpl Thing { pub fn high(&self) {} }\nimpl Default for Thing { fn default() -> Self { Thing } }";
        for (b, broken) in [
            ("pub struct Thing; fn f(x: Thing) { x.high(); }", 1),
            ("pub struct Thing; fn f(x: &Thing) { Thing::high(x); }", 1),
            ("pub struct Thing; fn f() -> Thing { Thing::default() }", 1),
            ("pub struct Thing; impl Thing { fn low(&self) {} } fn f(x: Thing) { x.low(); }", 0),
        ] {
            assert_eq!(of(&[("a.rs", ""), ("b.rs", b), ("c.rs", c)]).len(), broken, "{b}");
        }
    }

    #[test]
    fn the_order_of_the_list_is_kept_and_complete() {
        let files = [LIB, ("a.rs", "use crate::b;"), ("b.rs", ""), ("c.rs", "")];
        let (imports, _) = imports::of_sources(&files);
        assert_eq!(out_of_order(&imports, &[("low", &["b", "c"]), ("high", &["a"])]), NONE);
        let wrong = out_of_order(&imports, &[("low", &["a"]), ("high", &["b", "d"])]);
        let expected = [
            "a.rs:1: `a` (layer low) imports `b` (layer high), which is above it",
            "`c` is in no layer: list it in xtask/src/layers/modules.rs",
            "`d` is listed, and there is no such module",
        ];
        assert_eq!(wrong, expected);
    }
}
