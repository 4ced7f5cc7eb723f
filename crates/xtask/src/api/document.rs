//! Rustdoc's description of crates: items by number, and re-exports followed to what they name, in any crate of the
//! workspace.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The description of one crate, as rustdoc wrote it.
pub struct Document(Value);

/// An item and the description that its numbers belong to.
#[derive(Clone)]
pub struct Item {
    document: Rc<Document>,
    number: String,
}

impl Item {
    fn json(&self) -> &Value {
        &self.document.0["index"][&self.number]
    }

    /// Returns the name; empty for items without one, such as an `impl`.
    pub fn name(&self) -> &str {
        self.json()["name"].as_str().unwrap_or_default()
    }

    /// Returns what kind of item it is, and the part of the description that depends on it.
    pub fn inner(&self) -> (&str, &Value) {
        let inner = self.json()["inner"].as_object().and_then(|inner| inner.iter().next());
        inner.map_or(("", &Value::Null), |(kind, value)| (kind, value))
    }

    /// Returns `true` for an item that the crate shows: a public one, or one without a visibility of its own.
    pub fn is_public(&self) -> bool {
        matches!(self.json()["visibility"].as_str(), Some("public" | "default"))
    }

    /// Returns `true` for an item that is deprecated.
    pub fn is_deprecated(&self) -> bool {
        !self.json()["deprecation"].is_null()
    }

    /// Returns `true` for an item marked `#[non_exhaustive]`.
    pub fn is_non_exhaustive(&self) -> bool {
        self.json()["attrs"].as_array().is_some_and(|attributes| attributes.iter().any(|it| it == "non_exhaustive"))
    }

    /// Returns `true` if this is the item's number in its description.
    pub fn has_number(&self, number: &Value) -> bool {
        number.as_u64().is_some_and(|number| number.to_string() == self.number)
    }

    /// Returns `true` if the description that this item belongs to describes the item of a number too.
    pub fn contains(&self, number: &Value) -> bool {
        self.document.get(number).is_some()
    }

    /// Returns the items of a list of numbers. Numbers that the description lacks, those of private items, are left out.
    pub fn list(&self, numbers: &Value) -> Vec<Item> {
        let numbers = numbers.as_array().map(Vec::as_slice).unwrap_or_default();
        numbers.iter().filter_map(|number| self.document.get(number)).collect()
    }
}

impl Document {
    fn get(self: &Rc<Self>, number: &Value) -> Option<Item> {
        let number = number.as_u64()?.to_string();
        self.0["index"].get(&number)?;
        Some(Item { document: Rc::clone(self), number })
    }
}

/// The descriptions that were read so far, by crate name.
pub struct Documents<R> {
    read: R,
    known: BTreeMap<String, Rc<Document>>,
}

impl<R: Fn(&str) -> Result<Value>> Documents<R> {
    /// Descriptions that `read` makes, each when it is first needed.
    pub fn new(read: R) -> Self {
        Self { read, known: BTreeMap::new() }
    }

    /// Returns the root module of a crate.
    pub fn root(&mut self, name: &str) -> Result<Item> {
        if !self.known.contains_key(name) {
            self.known.insert(name.into(), Rc::new(Document((self.read)(name)?)));
        }
        let document = &self.known[name];
        document.get(&document.0["root"]).with_context(|| format!("rustdoc names no root of {name}"))
    }

    /// Returns what a `use` names: an item of its own crate, or of another crate of the workspace.
    pub fn target(&mut self, user: &Item, used: &Value) -> Result<Item> {
        if used["is_glob"] == true {
            bail!("a `pub use` of everything in {} cannot be listed: name the items", used["source"]);
        }
        let mut item = match user.document.get(&used["id"]) {
            Some(item) => item,
            None => self.find(used["source"].as_str().context("a `use` without a source")?)?,
        };
        while let ("use", used) = item.inner() {
            let used = used.clone();
            item = self.target(&item, &used)?;
        }
        Ok(item)
    }

    /// Returns the item at a path that begins with the name of a crate.
    fn find(&mut self, path: &str) -> Result<Item> {
        let mut segments = path.split("::");
        let mut item = self.root(segments.next().unwrap_or_default())?;
        for segment in segments {
            let children = item.list(&item.inner().1["items"]);
            let named = |child: &Item| match child.inner() {
                ("use", used) => used["name"] == segment,
                _ => child.name() == segment,
            };
            let child = children.into_iter().find(named).with_context(|| format!("{path} is not public"))?;
            item = match child.inner() {
                ("use", used) => self.target(&child, &used.clone())?,
                _ => child,
            };
        }
        Ok(item)
    }
}
