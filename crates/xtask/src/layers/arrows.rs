//! Which crate may depend on which, checked on `cargo metadata`'s answer.

use super::LIBRARIES;
use anyhow::{Context, Result};
use serde::Deserialize;

/// What a library may depend on, of this workspace and of Burn.
struct Rule {
    library: &'static str,
    workspace: &'static [&'static str],
    burn: Burn,
}

/// How much of Burn a library may see.
enum Burn {
    Nothing,
    /// Shapes, dtypes, tensor data: no trait that a backend implements.
    Data,
    Everything,
}

/// The arrows point down; graph and pjrt know neither each other nor Burn's `Backend`.
const RULES: [Rule; 14] = [
    Rule { library: "burn-tpu-llm", workspace: &["burn-tpu"], burn: Burn::Everything },
    Rule { library: "burn-tpu-train", workspace: &["burn-tpu"], burn: Burn::Everything },
    Rule { library: "burn-tpu-serve", workspace: &["burn-tpu-0-22", "burn-tpu-runtime"], burn: Burn::Everything },
    Rule {
        library: "burn-tpu-cli",
        workspace: &["burn-tpu-runtime", "burn-tpu-pjrt", "burn-tpu-profile"],
        burn: Burn::Nothing,
    },
    Rule { library: "burn-tpu", workspace: &["burn-tpu-runtime", "burn-tpu-xla"], burn: Burn::Everything },
    Rule { library: "burn-tpu-xla", workspace: &["burn-tpu-runtime"], burn: Burn::Nothing },
    Rule { library: "burn-tpu-0-22", workspace: &["burn-tpu-runtime"], burn: Burn::Everything },
    Rule {
        library: "burn-tpu-runtime",
        workspace: &[
            "burn-tpu-fusion",
            "burn-tpu-graph",
            "burn-tpu-interpreter",
            "burn-tpu-kernels",
            "burn-tpu-pjrt",
            "burn-tpu-profile",
        ],
        burn: Burn::Nothing,
    },
    Rule { library: "burn-tpu-interpreter", workspace: &["burn-tpu-graph"], burn: Burn::Nothing },
    Rule { library: "burn-tpu-fusion", workspace: &["burn-tpu-graph", "burn-tpu-kernels"], burn: Burn::Data },
    Rule { library: "burn-tpu-graph", workspace: &[], burn: Burn::Data },
    Rule { library: "burn-tpu-kernels", workspace: &[], burn: Burn::Nothing },
    Rule { library: "burn-tpu-pjrt", workspace: &[], burn: Burn::Nothing },
    Rule { library: "burn-tpu-profile", workspace: &[], burn: Burn::Nothing },
];

/// The arrows that tests alone have: kernels are compiled ahead of time, and what needs a plugin asks the gate for it.
const FOR_TESTS: [(&str, &str); 6] = [
    ("burn-tpu", "burn-tpu-pjrt"),
    ("burn-tpu-fusion", "burn-tpu-interpreter"),
    ("burn-tpu-kernels", "burn-tpu-pjrt"),
    ("burn-tpu-0-22", "burn-tpu-pjrt"),
    ("burn-tpu-llm", "burn-tpu-pjrt"),
    ("burn-tpu-serve", "burn-tpu-pjrt"),
];

/// The Burn crates that hold data types and no backend trait.
const BURN_DATA: [&str; 1] = ["burn-std"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

impl Rule {
    fn allows(&self, dependency: &Dependency) -> bool {
        let name = dependency.name.as_str();
        if name.starts_with("burn-tpu") {
            // On itself, for the features that its own tests need.
            return self.workspace.contains(&name) || name == self.library;
        }
        let is_burn = name == "burn" || name.starts_with("burn-");
        match self.burn {
            Burn::Nothing => !is_burn,
            Burn::Data => !is_burn || BURN_DATA.contains(&name),
            Burn::Everything => true,
        }
    }
}

/// Every forbidden arrow. Dev-dependencies count only between the workspace's own crates: a test may compare with
/// Burn, but a crate whose tests need a layer above it is in the wrong place.
pub fn check(metadata: &str) -> Result<Vec<String>> {
    let metadata: Metadata = serde_json::from_str(metadata).context("cannot read `cargo metadata`'s answer")?;
    let mut broken = Vec::new();
    for rule in &RULES {
        let Some(package) = metadata.packages.iter().find(|package| package.name == rule.library) else {
            broken.push(format!("{}: the workspace has no such crate", rule.library));
            continue;
        };
        broken.extend(package.dependencies.iter().filter_map(|dependency| forbidden(rule, dependency)));
    }
    Ok(broken)
}

fn forbidden(rule: &Rule, dependency: &Dependency) -> Option<String> {
    let for_tests = dependency.kind.as_deref() == Some("dev");
    let ours = LIBRARIES.contains(&dependency.name.as_str());
    let is_testing = !ours || FOR_TESTS.contains(&(rule.library, dependency.name.as_str()));
    if rule.allows(dependency) || for_tests && is_testing {
        return None;
    }
    Some(format!(
        "{} -> {}: a forbidden arrow{}; {} may depend on [{}] of this workspace and on {} of Burn",
        rule.library,
        dependency.name,
        if for_tests { " (dev-dependency)" } else { "" },
        rule.library,
        rule.workspace.join(", "),
        match rule.burn {
            Burn::Nothing => "nothing",
            Burn::Data => "its data types (burn-std)",
            Burn::Everything => "everything",
        }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata with these arrows (crate, dependency, kind) and every crate that has a rule.
    fn metadata(arrows: &[(&str, &str, Option<&str>)]) -> String {
        let dependencies = |library: &str| -> Vec<_> {
            let of = arrows.iter().filter(|(from, ..)| *from == library);
            of.map(|(_, name, kind)| serde_json::json!({ "name": name, "kind": kind })).collect()
        };
        let package = |name: &&str| serde_json::json!({ "name": name, "dependencies": dependencies(name) });
        serde_json::json!({ "packages": RULES.iter().map(|rule| package(&rule.library)).collect::<Vec<_>>() })
            .to_string()
    }

    #[test]
    fn the_designed_arrows_pass() {
        let arrows = [
            ("burn-tpu-llm", "burn-tpu", None),
            ("burn-tpu-llm", "burn-tpu-pjrt", Some("dev")),
            ("burn-tpu-train", "burn-tpu", None),
            ("burn-tpu-train", "burn-optim", None),
            ("burn-tpu-serve", "burn-tpu-0-22", None),
            ("burn-tpu-serve", "burn-remote", None),
            ("burn-tpu", "burn-tpu-runtime", None),
            ("burn-tpu", "burn-tpu-xla", None),
            ("burn-tpu-xla", "burn-tpu-runtime", None),
            ("burn-tpu", "burn-backend", None),
            ("burn-tpu-0-22", "burn-tpu-runtime", None),
            ("burn-tpu-0-22", "burn-ir", None),
            ("burn-tpu-cli", "burn-tpu-runtime", None),
            ("burn-tpu-cli", "burn-tpu-pjrt", None),
            ("burn-tpu-runtime", "burn-tpu-fusion", None),
            ("burn-tpu-runtime", "burn-tpu-graph", None),
            ("burn-tpu-runtime", "burn-tpu-pjrt", None),
            ("burn-tpu-runtime", "burn-tpu-profile", None),
            ("burn-tpu-cli", "burn-tpu-profile", None),
            ("burn-tpu-runtime", "burn-tpu-interpreter", None),
            ("burn-tpu-interpreter", "burn-tpu-graph", None),
            ("burn-tpu-interpreter", "ndarray", None),
            ("burn-tpu-interpreter", "burn-ndarray", Some("dev")),
            ("burn-tpu-graph", "burn-tpu-graph", Some("dev")),
            ("burn-tpu-runtime", "burn-tpu-kernels", None),
            ("burn-tpu-fusion", "burn-tpu-graph", None),
            ("burn-tpu-fusion", "burn-tpu-kernels", None),
            ("burn-tpu-graph", "half", None),
            ("burn-tpu-graph", "burn-ndarray", Some("dev")),
            ("burn-tpu-pjrt", "libloading", None),
            ("burn-tpu-kernels", "half", None),
            ("burn-tpu-kernels", "burn-tpu-pjrt", Some("dev")),
            ("burn-tpu-0-22", "burn-tpu-pjrt", Some("dev")),
        ];
        assert_eq!(check(&metadata(&arrows)).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn every_forbidden_arrow_is_named() {
        let forbidden = [
            ("burn-tpu-graph", "burn-tpu-pjrt", None),
            ("burn-tpu-graph", "burn-tpu-kernels", None),
            ("burn-tpu-pjrt", "burn-tpu-graph", None),
            ("burn-tpu-graph", "burn-backend", None),
            ("burn-tpu-graph", "burn", Some("build")),
            ("burn-tpu-pjrt", "burn-std", None),
            ("burn-tpu-profile", "burn-tpu-pjrt", None),
            ("burn-tpu-fusion", "burn-tpu-pjrt", None),
            ("burn-tpu-kernels", "burn-tpu-pjrt", None),
            ("burn-tpu-kernels", "burn-tpu-graph", Some("dev")),
            ("burn-tpu-fusion", "burn-tpu", Some("dev")),
            ("burn-tpu-cli", "burn-tpu-graph", None),
            ("burn-tpu-cli", "burn-tpu", None),
            ("burn-tpu-cli", "burn", None),
            ("burn-tpu-runtime", "burn-tpu", None),
            ("burn-tpu-runtime", "burn-tpu-xla", None),
            ("burn-tpu-xla", "burn-tpu-pjrt", None),
            ("burn-tpu-xla", "burn-backend", None),
            ("burn-tpu-runtime", "burn-backend", None),
            ("burn-tpu-interpreter", "burn-ndarray", None),
            ("burn-tpu-interpreter", "burn-tpu-pjrt", None),
            ("burn-tpu-interpreter", "burn-tpu-runtime", Some("dev")),
            ("burn-tpu", "burn-tpu-graph", None),
            ("burn-tpu", "burn-tpu-cli", None),
            ("burn-tpu-cli", "burn-tpu-serve", None),
            ("burn-tpu-serve", "burn-tpu", Some("dev")),
            ("burn-tpu-serve", "burn-tpu-graph", None),
            ("burn-tpu", "burn-tpu-train", None),
            ("burn-tpu-cli", "burn-tpu-llm", None),
            ("burn-tpu-llm", "burn-tpu-runtime", None),
            ("burn-tpu-train", "burn-tpu-runtime", None),
            ("burn-tpu-0-22", "burn-tpu", Some("dev")),
            ("burn-tpu-0-22", "burn-tpu-pjrt", None),
        ];
        for arrow in forbidden {
            let broken = check(&metadata(&[arrow])).unwrap();
            assert_eq!(broken.len(), 1, "{arrow:?}");
            assert!(broken[0].starts_with(&format!("{} -> {}:", arrow.0, arrow.1)), "{}", broken[0]);
        }
    }

    #[test]
    fn a_missing_crate_is_a_broken_rule() {
        let broken = check(r#"{ "packages": [] }"#).unwrap();
        assert_eq!(broken.len(), RULES.len());
    }
}
