//! Options for creating a client. Each known name has one type, which is checked here: a plugin aborts on a wrong one.

use crate::error::{PjrtError, Result};
use crate::named_value::Value;

/// The largest accepted number of virtual CPU devices: each device costs a thread in two pools.
pub const MAX_CPU_DEVICES: usize = 1024;

/// A known option: its name and an example of its type.
type Known = (&'static str, fn() -> Value);

const KNOWN: [Known; 13] = [
    // CPU. All others are silently ignored by the CPU plugin.
    ("cpu_device_count", || Value::Int(1)),
    // CUDA (names and types of XLA's GPU plugin).
    ("allocator", || Value::from("")),
    ("memory_fraction", || Value::Float(0.0)),
    ("preallocate", || Value::Bool(false)),
    ("collective_memory_size", || Value::Int(0)),
    ("visible_devices", || Value::Ints(vec![])),
    ("node_id", || Value::Int(0)),
    ("num_nodes", || Value::Int(1)),
    ("should_stage_host_to_device_transfers", || Value::Bool(true)),
    ("platform_name", || Value::from("")),
    // Names and versions that frameworks pass to every accelerator plugin.
    ("ml_framework_name", || Value::from("")),
    ("ml_framework_version", || Value::from("")),
    ("max_inflight_computations", || Value::Int(1)),
];

/// Options for [`Client::new`](crate::Client::new). The default passes none, which is right for TPUs and GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientOptions {
    values: Vec<(String, Value)>,
}

impl ClientOptions {
    /// Returns options for the CPU plugin with this number of virtual devices. Without the option that plugin creates
    /// four; with zero or less it creates none and reports success.
    ///
    /// # Errors
    /// [`PjrtError::Option`] unless `1 <= devices <= MAX_CPU_DEVICES`.
    pub fn cpu(devices: usize) -> Result<ClientOptions> {
        ClientOptions::default().set("cpu_device_count", Value::Int(devices.try_into().unwrap_or(i64::MAX)))
    }

    /// Returns options for the CUDA plugin: the fraction of the device's memory to use, and whether to allocate it at
    /// once.
    ///
    /// # Errors
    /// [`PjrtError::Option`] unless `0 < fraction <= 1`.
    pub fn cuda_memory(fraction: f32, preallocate: bool) -> Result<ClientOptions> {
        ClientOptions::default().set("memory_fraction", fraction)?.set("preallocate", preallocate)
    }

    /// Adds this process's number among those that share the devices, for the CUDA plugin. The client needs a store then:
    /// [`Client::with_store`](crate::Client::with_store).
    ///
    /// # Errors
    /// [`PjrtError::Option`] unless `index < count`.
    pub fn node(self, index: usize, count: usize) -> Result<ClientOptions> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        if index >= count {
            let reason = format!("must be below num_nodes, which is {count}, not {index}");
            return Err(PjrtError::Option { name: "node_id".to_owned(), reason });
        }
        self.set("node_id", number(index))?.set("num_nodes", number(count))
    }

    /// Sets one option; a second value for the same name replaces the first.
    ///
    /// # Errors
    /// [`PjrtError::Option`] for a name that this crate does not know (its type cannot be checked), a value of a type
    /// that the plugins do not expect, or a value out of range.
    pub fn set(mut self, name: &str, value: impl Into<Value>) -> Result<ClientOptions> {
        let value = value.into();
        check(name, &value).map_err(|reason| PjrtError::Option { name: name.to_owned(), reason })?;
        self.values.retain(|(known, _)| known != name);
        self.values.push((name.to_owned(), value));
        Ok(self)
    }

    /// Returns the number of devices that the CPU plugin is asked for.
    pub(crate) fn cpu_devices(&self) -> Option<usize> {
        self.values.iter().find_map(|(name, value)| match (name.as_str(), value) {
            ("cpu_device_count", Value::Int(count)) => usize::try_from(*count).ok(),
            _ => None,
        })
    }

    /// Returns the options by name, as the plugin gets them.
    pub fn values(&self) -> &[(String, Value)] {
        &self.values
    }
}

fn check(name: &str, value: &Value) -> Result<(), String> {
    let Some((_, example)) = KNOWN.iter().find(|(known, _)| *known == name) else {
        return Err(format!("not known; known are {}", KNOWN.map(|(known, _)| known).join(", ")));
    };
    let expected = example();
    if std::mem::discriminant(&expected) != std::mem::discriminant(value) {
        return Err(format!("takes {}, {} was given", expected.type_name(), value.type_name()));
    }
    match (name, value) {
        ("cpu_device_count", Value::Int(count)) if !(1..=MAX_CPU_DEVICES as i64).contains(count) => {
            Err(format!("must be 1 to {MAX_CPU_DEVICES}, not {count}"))
        }
        ("memory_fraction", Value::Float(fraction)) if !(*fraction > 0.0 && *fraction <= 1.0) => {
            Err(format!("must be above 0 and at most 1, not {fraction}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(result: Result<ClientOptions>, part: &str) {
        let error = result.unwrap_err();
        assert!(matches!(error, PjrtError::Option { .. }) && error.to_string().contains(part), "{error}");
    }

    #[test]
    fn device_counts_out_of_range_are_refused() {
        refused(ClientOptions::cpu(0), "must be 1 to");
        refused(ClientOptions::cpu(MAX_CPU_DEVICES + 1), "must be 1 to");
        refused(ClientOptions::cpu(usize::MAX), "must be 1 to");
        refused(ClientOptions::default().set("cpu_device_count", -1), "must be 1 to");
        assert_eq!(ClientOptions::cpu(4).unwrap().values(), [("cpu_device_count".to_owned(), Value::Int(4))]);
    }

    #[test]
    fn wrong_types_and_unknown_names_are_refused() {
        refused(ClientOptions::default().set("cpu_device_count", "4"), "takes an integer, a string was given");
        refused(ClientOptions::default().set("memory_fraction", 1), "takes a float");
        refused(ClientOptions::default().set("cpu_device_counts", 1), "not known");
        refused(ClientOptions::cuda_memory(f32::NAN, true), "above 0");
    }

    #[test]
    fn a_node_has_its_number_and_that_of_all() {
        let options = ClientOptions::default().node(1, 2).unwrap();
        let expected = [("node_id".to_owned(), Value::Int(1)), ("num_nodes".to_owned(), Value::Int(2))];
        assert_eq!(options.values(), expected);
        refused(ClientOptions::default().node(2, 2), "below num_nodes");
    }

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let options = ClientOptions::cpu(2).unwrap().set("cpu_device_count", 3).unwrap();
        assert_eq!(options.values().len(), 1);
    }
}
