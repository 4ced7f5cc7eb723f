//! Records of Burn 0.21 as [trees](tree).

use crate::error::{CheckpointError, Result};
use crate::tree::{PATH, TENSOR, from_tree, is_variant, name_of, to_tree};
use burn_core::record::{FullPrecisionSettings, Record};
use burn_core::tensor::TensorData;
use burn_core::tensor::backend::Backend;
use burn_tpu::tickets::{self, Ticket};
use burn_tpu::{TpuDevice, TpuTensor};
use ciborium::Value;
use std::collections::HashMap;

/// How a record is read and written. Tensors are tickets, so the types that this names never hold a value.
type Settings = FullPrecisionSettings;

/// Takes a record apart: returns its tree, and its tensors by name. `paths` are the paths of parameters by id.
pub(crate) fn take_apart<B: Backend, R: Record<B>>(
    part: &str,
    record: R,
    paths: &HashMap<String, String>,
) -> Result<(Value, Vec<(String, TpuTensor)>)> {
    let (item, tensors) = tickets::collect(|| record.into_item::<Settings>());
    let mut tree = to_tree(part, &item)?;
    let mut names = Names { paths, names: vec![String::new(); tensors.len()] };
    names.give(&mut tree, "", None)?;
    Ok((tree, names.names.into_iter().zip(tensors).collect()))
}

/// Gives the tensors of a tree their names.
struct Names<'p> {
    paths: &'p HashMap<String, String>,
    /// By the index of each tensor's ticket.
    names: Vec<String>,
}

impl Names<'_> {
    /// Replaces what is below `tree`, whose name is `name` and whose key is `key`.
    fn give(&mut self, tree: &mut Value, name: &str, key: Option<&str>) -> Result<()> {
        if let Some(ticket) = ticket_of(tree, name)? {
            *tree = Value::Map(vec![(TENSOR.into(), name.into())]);
            *self.names.get_mut(ticket.index()).ok_or_else(|| unknown_ticket(name))? = name.to_owned();
            return Ok(());
        }
        match tree {
            Value::Map(entries) => {
                for (key, value) in entries.iter_mut() {
                    let Value::Text(text) = key else { continue };
                    let (path, name) = match self.paths.get(text.as_str()) {
                        Some(path) => (format!("{PATH}{path}"), joined(name, path)),
                        None if is_variant(text) => (text.clone(), name.to_owned()),
                        None => (text.clone(), joined(name, text)),
                    };
                    *text = path;
                    self.give(value, &name, Some(text.as_str()))?;
                }
                // Maps of Burn's have no order of their own.
                entries.sort_by(|(a, _), (b, _)| a.as_text().cmp(&b.as_text()));
            }
            Value::Array(values) => {
                let is_pair = values.len() == 2 && key.is_some_and(|key| key.starts_with("Rank"));
                for (index, value) in values.iter_mut().enumerate() {
                    let name = if is_pair { of_pair(index, name) } else { joined(name, &index.to_string()) };
                    self.give(value, &name, None)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the name of a part of `TpuOptimizer`'s state: the master copy, and the wrapped optimizer's state.
fn of_pair(index: usize, name: &str) -> String {
    if index == 0 { joined(name, "master") } else { name.to_owned() }
}

fn joined(name: &str, part: &str) -> String {
    if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") }
}

/// Returns the ticket that a tree is, if it is a tensor.
fn ticket_of(tree: &Value, name: &str) -> Result<Option<Ticket>> {
    let Value::Map(entries) = tree else { return Ok(None) };
    let has = |key: &str| entries.iter().any(|(found, _)| found.as_text() == Some(key));
    if entries.len() != 3 || !["bytes", "shape", "dtype"].into_iter().all(has) {
        return Ok(None);
    }
    let data: TensorData = from_tree(name, tree)?;
    let ticket = Ticket::of(&data).ok_or_else(|| crate::tensor_file::no_dtype(name, data.dtype))?;
    Ok(Some(ticket))
}

fn unknown_ticket(name: &str) -> CheckpointError {
    CheckpointError::Bug(format!("`{name}` is no tensor that was read"))
}

/// Puts a record together. `ids` are the ids of parameters by path; what belongs to another path is left out. `tensor`
/// returns the tensor with a name and its rank; `None` leaves out the parameter that it belongs to.
pub(crate) fn put_together<B: Backend<Device = TpuDevice>, R: Record<B>>(
    part: &str,
    tree: &Value,
    ids: &HashMap<String, String>,
    tensor: impl Fn(&str, Option<&str>) -> Result<Option<(TpuTensor, usize)>>,
    device: &TpuDevice,
) -> Result<R> {
    let mut tensors = Tensors { ids, tensor, found: Vec::new() };
    let tree = tensors.fill(tree, None)?.unwrap_or(Value::Null);
    let item: R::Item<Settings> = from_tree(part, &tree)?;
    Ok(tickets::supply(tensors.found, || R::from_item::<Settings>(item, device)))
}

/// Replaces the names of tensors by tickets, and paths by ids.
struct Tensors<'i, T> {
    ids: &'i HashMap<String, String>,
    tensor: T,
    /// The tensors of the tickets.
    found: Vec<TpuTensor>,
}

impl<T: Fn(&str, Option<&str>) -> Result<Option<(TpuTensor, usize)>>> Tensors<'_, T> {
    /// Returns the tree with tickets; `None` if one of its tensors is left out. `path` is that of the parameter.
    fn fill(&mut self, tree: &Value, path: Option<&str>) -> Result<Option<Value>> {
        if let Some(name) = name_of(tree) {
            let Some((tensor, rank)) = (self.tensor)(name, path)? else { return Ok(None) };
            let ticket = Ticket::new(self.found.len() as u32);
            self.found.push(tensor);
            return to_tree(name, &ticket.data(rank)).map(Some);
        }
        match tree {
            Value::Map(entries) => self.fill_map(entries, path),
            Value::Array(values) => {
                let values: Result<Option<Vec<Value>>> = values.iter().map(|value| self.fill(value, path)).collect();
                Ok(values?.map(Value::Array))
            }
            other => Ok(Some(other.clone())),
        }
    }

    fn fill_map(&mut self, entries: &[(Value, Value)], path: Option<&str>) -> Result<Option<Value>> {
        let mut filled = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let Some(parameter) = key.as_text().and_then(|key| key.strip_prefix(PATH)) else {
                let Some(value) = self.fill(value, path)? else { return Ok(None) };
                filled.push((key.clone(), value));
                continue;
            };
            let Some(id) = self.ids.get(parameter) else { continue };
            filled.extend(self.fill(value, Some(parameter))?.map(|value| (Value::from(id.as_str()), value)));
        }
        Ok(Some(Value::Map(filled)))
    }
}
