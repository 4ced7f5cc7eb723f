//! Records of Burn 0.22 and 0.23 as [trees](crate::tree) of Burn 0.21, which are the form of a checkpoint.
//!
//! In Burn 0.21's tree of an optimizer a parameter has `{"V1": {"Rank2": [master, state]}}`, where the state is a map
//! of maps; the pair is that of `TpuOptimizer`. Later versions have names instead: `17.momentum.moment_1` of the
//! parameter with the number 17, its rank `17.__rank`, and with [`burn_tpu::TpuOptimizer`] the master copy
//! `17.__master`.

use crate::error::{CheckpointError, Result};
use crate::tree::{PATH, TENSOR, is_variant, name_of};
use burn_core::tensor::TensorData;
use burn_optim::lr_scheduler::LrSchedulerRecord;
use burn_optim::{ModuleOptimizer, OptimizerRecord};
use burn_pack::{Reader, Scalar, Tensor, Writer};
use burn_tpu::TpuTensor;
use burn_tpu::tickets::{self, Ticket};
use ciborium::Value;
use std::collections::{BTreeMap, HashMap};

/// Burn's name of a parameter's rank.
const RANK: &str = "__rank";
/// The names of a master copy: in Burn's record, and in a tree.
const MASTER: [&str; 2] = ["__master", "master"];

/// The state of one parameter.
#[derive(Default)]
struct ParameterState {
    rank: u64,
    /// A tensor, or null.
    master: Option<Value>,
    fields: BTreeMap<String, Value>,
}

/// Takes the state of an optimizer apart: returns its tree, and its tensors by name. `paths` are the paths of
/// parameters by id.
pub(crate) fn take_apart(
    part: &str,
    optimizer: &ModuleOptimizer,
    paths: &HashMap<String, String>,
) -> Result<(Value, Vec<(String, TpuTensor)>)> {
    let (record, tensors) = tickets::collect(|| optimizer.to_record());
    let reader = record.into_bytes().map_err(unread(part))?;
    let reader = Reader::from_bytes(reader).map_err(unread(part))?;
    let (mut states, mut named) = (BTreeMap::<String, ParameterState>::new(), Vec::new());
    for (name, &scalar) in reader.scalars() {
        let Some((id, field)) = name.split_once('.') else { continue };
        let state = states.entry(id.to_owned()).or_default();
        match (field, scalar) {
            (RANK, Scalar::UInt(rank)) => state.rank = rank,
            (RANK, Scalar::Int(rank)) => state.rank = rank.unsigned_abs(),
            _ => drop(state.fields.insert(field.to_owned(), number(scalar))),
        }
    }
    for tensor in reader.into_tensors().map_err(unread(part))? {
        let (name, dtype, shape, _, bytes) = tensor.into_parts().map_err(unread(part))?;
        let data = TensorData::from_bytes(bytes, shape, dtype);
        let Some((id, field)) = name.split_once('.') else { continue };
        let ticket = Ticket::of(&data).ok_or_else(|| crate::tensor_file::no_dtype(&name, data.dtype()))?;
        let tensor = tensors.get(ticket.index()).ok_or_else(|| unread(part)(format!("`{name}` was not read")))?;
        let state = states.entry(id.to_owned()).or_default();
        let path = paths.get(id).map_or(id, String::as_str);
        let is_master = field == MASTER[0];
        let name = format!("{path}.{}", if is_master { MASTER[1] } else { field });
        let value = Value::Map(vec![(TENSOR.into(), name.as_str().into())]);
        match is_master {
            true => state.master = Some(value),
            false => drop(state.fields.insert(field.to_owned(), value)),
        }
        named.push((name, tensor.clone()));
    }
    let mut tree: Vec<(Value, Value)> = Vec::new();
    for (id, state) in states {
        let key = paths.get(&id).map_or(id, |path| format!("{PATH}{path}"));
        tree.push((key.into(), state.into_tree()));
    }
    tree.sort_by(|(a, _), (b, _)| a.as_text().cmp(&b.as_text()));
    Ok((Value::Map(tree), named))
}

impl ParameterState {
    fn into_tree(self) -> Value {
        let state = Value::Array(vec![self.master.unwrap_or(Value::Null), nested(self.fields)]);
        let ranked = Value::Map(vec![(format!("Rank{}", self.rank).into(), state)]);
        Value::Map(vec![("V1".into(), ranked)])
    }
}

/// Returns values as a map of maps, by the parts of their names.
fn nested(fields: BTreeMap<String, Value>) -> Value {
    let mut inner: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    let mut entries: Vec<(Value, Value)> = Vec::new();
    for (name, value) in fields {
        match name.split_once('.') {
            Some((first, rest)) => drop(inner.entry(first.to_owned()).or_default().insert(rest.to_owned(), value)),
            None => entries.push((name.into(), value)),
        }
    }
    entries.extend(inner.into_iter().map(|(name, fields)| (name.into(), nested(fields))));
    entries.sort_by(|(a, _), (b, _)| a.as_text().cmp(&b.as_text()));
    Value::Map(entries)
}

/// Puts a record together and gives it to `load`. `ids` are the ids of parameters by path; what belongs to another path
/// is left out. `tensor` returns the tensor with a name, of the parameter at a path, and its rank; `None` leaves out
/// the parameter.
pub(crate) fn put_together<O>(
    part: &str,
    tree: &Value,
    ids: &HashMap<String, u64>,
    tensor: impl Fn(&str, &str) -> Result<Option<(TpuTensor, usize)>>,
    load: impl FnOnce(OptimizerRecord) -> O,
) -> Result<O> {
    let (mut tensors, mut found) = (Vec::new(), Vec::new());
    let (mut scalars, mut paths) = (Vec::new(), Vec::new());
    for (key, value) in tree.as_map().into_iter().flatten() {
        let Some(path) = key.as_text().and_then(|key| key.strip_prefix(PATH)) else { continue };
        let Some(id) = ids.get(path) else { continue };
        let mut flat = Flat::default();
        flat.add(value, "", None);
        let tensors_of = flat.tensors.iter().map(|(field, name)| Ok(tensor(name, path)?.map(|found| (field, found))));
        let Some(tensors_of) = tensors_of.collect::<Result<Option<Vec<_>>>>()? else { continue };
        for (field, (tensor, rank)) in tensors_of {
            let ticket = Ticket::new(found.len() as u32).data(rank);
            found.push(tensor);
            let (bytes, shape, dtype) = ticket.into_parts();
            tensors.push(Tensor::new(format!("{id}.{field}"), dtype, shape, Some(*id), bytes));
        }
        scalars.push((format!("{id}.{RANK}"), Scalar::UInt(flat.rank)));
        scalars.extend(flat.numbers.into_iter().map(|(field, number)| (format!("{id}.{field}"), number)));
        paths.push((id.to_string(), path));
    }
    let mut writer =
        scalars.iter().fold(Writer::new(tensors), |writer, (name, number)| writer.with_scalar(name, *number));
    writer = paths.iter().fold(writer, |writer, (id, path)| writer.with_metadata(id, path));
    let bytes = writer.into_bytes().map_err(unread(part))?;
    let record = OptimizerRecord::from_bytes(bytes).map_err(unread(part))?;
    Ok(tickets::supply(found, || load(record)))
}

/// The state of one parameter by the names of Burn's record.
#[derive(Default)]
struct Flat {
    rank: u64,
    /// The name of each tensor: in the record, and in the checkpoint.
    tensors: Vec<(String, String)>,
    numbers: Vec<(String, Scalar)>,
}

impl Flat {
    /// Adds what is below a tree, whose name in the record is `name` and whose key is `key`.
    fn add(&mut self, tree: &Value, name: &str, key: Option<&str>) {
        if let Some(tensor) = name_of(tree) {
            self.tensors.push((name.to_owned(), tensor.to_owned()));
            return;
        }
        match tree {
            Value::Map(entries) => {
                for (key, value) in entries {
                    let Some(key) = key.as_text() else { continue };
                    if let Some(rank) = key.strip_prefix("Rank").and_then(|rank| rank.parse().ok()) {
                        self.rank = rank;
                    }
                    let name = if is_variant(key) { name.to_owned() } else { joined(name, key) };
                    self.add(value, &name, Some(key));
                }
            }
            Value::Array(values) => match (&values[..], key.is_some_and(is_variant)) {
                ([master, state], true) => {
                    self.add(master, MASTER[0], None);
                    self.add(state, name, None);
                }
                (values, _) => {
                    for (index, value) in values.iter().enumerate() {
                        self.add(value, &joined(name, &index.to_string()), None);
                    }
                }
            },
            Value::Integer(number) => {
                let number = i128::from(*number);
                let unsigned = u64::try_from(number).map(Scalar::UInt);
                self.numbers.push((name.to_owned(), unsigned.unwrap_or(Scalar::Int(number as i64))));
            }
            Value::Float(number) => self.numbers.push((name.to_owned(), Scalar::Float(*number))),
            Value::Bool(value) => self.numbers.push((name.to_owned(), Scalar::Bool(*value))),
            _ => {}
        }
    }
}

/// Returns the tree of a schedule's record: its numbers by name.
pub(crate) fn of_schedule(part: &str, record: LrSchedulerRecord) -> Result<Value> {
    let bytes = record.into_bytes().map_err(unread(part))?;
    let reader = Reader::from_bytes(bytes).map_err(unread(part))?;
    let entry = |(name, &scalar): (&String, &Scalar)| (name.as_str().into(), number(scalar));
    Ok(Value::Map(reader.scalars().iter().map(entry).collect()))
}

/// Returns the record of a schedule's tree.
pub(crate) fn to_schedule(part: &str, tree: &Value) -> Result<LrSchedulerRecord> {
    let Value::Map(_) = tree else { return Err(unread(part)("Burn 0.21 saved it")) };
    let mut flat = Flat::default();
    flat.add(tree, "", None);
    let writer = Writer::new(Vec::new());
    let writer = flat.numbers.iter().fold(writer, |writer, (name, number)| writer.with_scalar(name, *number));
    let bytes = writer.into_bytes().map_err(unread(part))?;
    LrSchedulerRecord::from_bytes(bytes).map_err(unread(part))
}

fn number(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Int(number) => number.into(),
        Scalar::UInt(number) => number.into(),
        Scalar::Float(number) => number.into(),
        Scalar::Bool(value) => value.into(),
    }
}

fn joined(name: &str, part: &str) -> String {
    if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") }
}

/// Returns the conversion of an error of Burn's formats.
fn unread<E: ToString>(part: &str) -> impl Fn(E) -> CheckpointError {
    move |error| CheckpointError::Record {
        part: part.to_owned(),
        expected: "record of Burn",
        reason: error.to_string(),
    }
}
