//! `cargo xtask coverage`: writes the tables of every method of Burn's backend traits, one for each version of Burn.
//!
//! Nothing in them is written by hand: the methods come from the sources of the Burn release that the adapter is pinned
//! to, what is overridden from the adapter's own sources, and what is tested from the tests' sources. What the engines do
//! with each kind of graph node comes from `burn-tpu-xla`'s table.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod engines;
mod methods;
mod table;
mod tested;

/// The traits of the tables, in their order.
const TRAITS: [&str; 8] = [
    "Backend",
    "FloatTensorOps",
    "IntTensorOps",
    "BoolTensorOps",
    "ModuleOps",
    "ActivationOps",
    "QTensorOps",
    "TransactionOps",
];

/// A crate that implements the backend traits of one version of Burn.
struct Adapter {
    burn: &'static str,
    /// The workspace that it is a member of.
    workspace: &'static str,
    /// The traits that this version has beside [`TRAITS`].
    added_traits: &'static [&'static str],
    /// Its sources: its crate, and what that compiles of another.
    sources: &'static [&'static str],
    /// Where its integration tests are.
    tests: &'static [&'static str],
    table: &'static str,
    /// Whether the table ends with what engines do with each kind of graph node, whatever Burn's version.
    lists_engines: bool,
}

const ADAPTERS: [Adapter; 2] = [
    Adapter {
        burn: "0.21",
        workspace: ".",
        added_traits: &[],
        sources: &["burn-tpu/src"],
        tests: &["tests"],
        table: "docs/op-coverage.md",
        lists_engines: true,
    },
    Adapter {
        burn: "0.22",
        workspace: ".",
        added_traits: &[],
        sources: &["crates/burn-tpu-0-22/src", "burn-tpu/src/ops", "burn-tpu/src/until_0_22.rs"],
        // The rows that it shares with the first are compiled against its version too, but for the files named `version.rs`
        // and `fourier.rs`.
        tests: &["crates/burn-tpu-0-22/tests", "tests/parity", "tests/numbers/module_parity"],
        table: "docs/op-coverage-0.22.md",
        lists_engines: false,
    },
];

/// Those of slots, whose versions of Burn only `cargo xtask slot` fetches.
const SLOTS: [Adapter; 1] = [Adapter {
    burn: "0.23",
    workspace: "slots/burn-0.23",
    added_traits: &["CollectiveOps"],
    sources: &["slots/burn-0.23/adapter/src", "crates/burn-tpu-0-22/src", "burn-tpu/src/ops"],
    tests: &[
        "slots/burn-0.23/unpatched/tests",
        "crates/burn-tpu-0-22/tests",
        "tests/parity",
        "tests/numbers/module_parity",
    ],
    table: "docs/op-coverage-0.23.md",
    lists_engines: false,
}];

/// How the table is made.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if the table is not what the sources say
    #[arg(long)]
    check: bool,
    /// The tables of slots too, which fetches their versions of Burn
    #[arg(long)]
    slots: bool,
}

/// `cargo xtask coverage`
pub fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    let root = crate::layers::root()?;
    let slots = if args.slots { &SLOTS[..] } else { &[] };
    for adapter in ADAPTERS.iter().chain(slots) {
        let table = adapter.generate(&root)?;
        std::fs::write(root.join(adapter.table), &table).with_context(|| format!("cannot write {}", adapter.table))?;
        adapter.complete(&table)?;
    }
    Ok(())
}

/// Fails if a table is not what the sources say, or a method is missing or without a test.
pub fn check() -> Result<()> {
    ADAPTERS.iter().try_for_each(Adapter::check)
}

/// Does what [`check`] does for a slot, if it has a table.
pub fn check_slot(burn: &str) -> Result<()> {
    SLOTS.iter().filter(|adapter| adapter.burn == burn).try_for_each(Adapter::check)
}

impl Adapter {
    fn check(&self) -> Result<()> {
        let (root, table) = (crate::layers::root()?, self.table);
        let written = std::fs::read_to_string(root.join(table)).with_context(|| format!("cannot read {table}"))?;
        if written != self.generate(&root)? {
            bail!("{table} is stale: run `cargo xtask coverage --slots` and commit it");
        }
        self.complete(&written)
    }

    fn complete(&self, table: &str) -> Result<()> {
        let table::Summary { methods, missing, untested } = table::Summary::of(table);
        let burn = self.burn;
        if !missing.is_empty() || !untested.is_empty() {
            let (missing, untested) = (missing.join(", "), untested.join(", "));
            bail!("of {methods} methods of Burn {burn} are missing: {missing}; without a test: {untested}");
        }
        println!("coverage: {methods} methods of Burn {burn}, none missing, none without a test");
        Ok(())
    }

    fn generate(&self, root: &Path) -> Result<String> {
        let wanted: Vec<&str> = TRAITS.iter().chain(self.added_traits).copied().collect();
        let traits = methods::traits(&self.burn_sources(root)?, &wanted)?;
        let mut overridden = BTreeSet::new();
        for sources in self.sources {
            overridden.extend(methods::overridden(&root.join(sources), &wanted)?);
        }
        let names = traits.iter().flat_map(|(_, methods)| methods.iter().map(|method| method.name.clone())).collect();
        let tests = tested::find(root, self.tests, self.sources, &names)?;
        let mut text = table::render(self.burn, &traits, &overridden, &tests);
        if self.lists_engines {
            text += &engines::render();
        }
        Ok(text)
    }

    /// The backend traits' sources, where cargo keeps the pinned release.
    fn burn_sources(&self, root: &Path) -> Result<PathBuf> {
        let metadata: serde_json::Value =
            serde_json::from_str(&crate::layers::metadata(&root.join(self.workspace), &[])?)?;
        let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
        let is_pinned = |package: &&serde_json::Value| {
            let version = package["version"].as_str().unwrap_or_default();
            package["name"] == "burn-backend" && version.starts_with(&format!("{}.", self.burn))
        };
        let burn = packages.iter().find(is_pinned).with_context(|| format!("no burn-backend {}", self.burn))?;
        let manifest = burn["manifest_path"].as_str().context("burn-backend has no manifest")?;
        let folder = Path::new(manifest).parent().context("burn-backend has no folder")?;
        Ok(folder.join("src/backend"))
    }
}

fn parsed(path: &Path) -> Result<syn::File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))
}
