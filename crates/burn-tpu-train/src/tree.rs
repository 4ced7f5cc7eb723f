//! Records as trees of names and numbers, in which tensors are names.
//!
//! Burn keys the state of an optimizer by the ids of parameters, which differ from process to process. In a tree they are
//! the paths of the parameters, behind an `@`. A tensor is a map with one key, `$tensor`; its name is the path of the
//! parameter and the fields that lead to it: `embedding.weight.momentum.moment_1`.

use crate::error::{CheckpointError, Result};
use ciborium::Value;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;

/// The key of a map that stands for a tensor.
pub(crate) const TENSOR: &str = "$tensor";
/// What precedes the path of a parameter.
pub(crate) const PATH: char = '@';

/// Returns a value as a tree.
pub(crate) fn to_tree<T: Serialize>(part: &str, value: &T) -> Result<Value> {
    Value::serialized(value).map_err(|error| mistyped::<T>(part, error))
}

/// Returns the value of a tree.
pub(crate) fn from_tree<T: DeserializeOwned>(part: &str, tree: &Value) -> Result<T> {
    tree.deserialized().map_err(|error| mistyped::<T>(part, error))
}

fn mistyped<T>(part: &str, error: ciborium::value::Error) -> CheckpointError {
    CheckpointError::Record { part: part.to_owned(), expected: type_name::<T>(), reason: error.to_string() }
}

/// Returns whether a key is the name of a variant of Burn's: a version, or the rank of a parameter.
pub(crate) fn is_variant(key: &str) -> bool {
    key == "V1" || key.strip_prefix("Rank").is_some_and(|rank| rank.parse::<u8>().is_ok())
}

/// Returns the name of the tensor that a tree stands for, if it does.
pub(crate) fn name_of(tree: &Value) -> Option<&str> {
    match tree.as_map()?.as_slice() {
        [(key, name)] if key.as_text() == Some(TENSOR) => name.as_text(),
        _ => None,
    }
}

/// Calls `found` with each tensor of a tree: its name, and the path of its parameter.
pub(crate) fn each_tensor<'t>(
    tree: &'t Value,
    path: Option<&'t str>,
    found: &mut impl FnMut(&'t str, Option<&'t str>),
) {
    if let Some(name) = name_of(tree) {
        return found(name, path);
    }
    match tree {
        Value::Map(entries) => {
            for (key, value) in entries {
                let parameter = key.as_text().and_then(|key| key.strip_prefix(PATH));
                each_tensor(value, parameter.or(path), found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| each_tensor(value, path, found)),
        _ => {}
    }
}
