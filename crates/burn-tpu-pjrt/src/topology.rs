//! Topologies: descriptions of devices that need not be attached, for compiling ahead of time (header: "Device Topology").

use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::api::{log_failed_drop, slice, string};
use crate::bindings::*;
use crate::compile_options::CompileOptions;
use crate::device::DeviceDescription;
use crate::error::{PjrtError, Result};
use crate::executable::{Executable, Parent};
use crate::live::{Alive, Noun};
use crate::loaded_executable::raw_program;
use crate::named_value::{Attributes, RawValues, Value};
use crate::plugin::Plugin;
use crate::process::WorkGuard;
use crate::program::Program;
use crate::signals::KeptSignals;

/// The known options with a value of their type. The last one is the CUDA plugin's, the others are libtpu's.
static KNOWN_OPTIONS: [(&str, Value); 4] = [
    ("chip_config_name", Value::String(String::new())),
    ("topology", Value::String(String::new())),
    ("num_slices", Value::Int(0)),
    ("target_config", Value::String(String::new())),
];

/// A set of devices as a compiler sees them. Clones share it.
#[derive(Clone, Debug)]
pub struct TopologyDescription(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    raw: NonNull<PJRT_TopologyDescription>,
    plugin: Plugin,
    platform_name: String,
    platform_version: String,
    devices: Vec<DeviceDescription>,
    attributes: Attributes,
    _alive: Alive,
}

// SAFETY: a topology is immutable after its creation, in the plugin and here.
unsafe impl Send for Owned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Owned {}

impl TopologyDescription {
    /// Creates a topology by name. libtpu knows names such as `v5e:2x2`, `v4:2x2x1`, `v6e:2x2`, `tpu7x:2x2x1`; the CPU
    /// plugin has no topologies. With the option `num_slices`, it is as many slices of that name, connected by the data
    /// center's network; a program for it needs a device assignment.
    ///
    /// # Errors
    /// [`PjrtError::Option`] for an empty name (which libtpu reads as `v2:2x2`), an unknown option or one of another type,
    /// [`PjrtError::Call`] for a name that the plugin does not know.
    pub fn new(plugin: Plugin, name: &str, options: &[(&str, Value)]) -> Result<TopologyDescription> {
        let _span = tracing::info_span!("pjrt.create_topology", name).entered();
        check(name, options)?;
        let api = plugin.api();
        let values: Vec<_> = options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let raw_values = RawValues::new(&values);
        let mut args = PJRT_TopologyDescription_Create_Args::new();
        args.topology_name = name.as_ptr().cast();
        args.topology_name_size = name.len();
        args.create_options = raw_values.as_ptr();
        args.num_options = raw_values.len();
        let _kept = KeptSignals::new();
        // SAFETY: name and options are borrowed for the call; the options are known ones with their known types.
        unsafe { api.call(&mut args) }?;
        let mut topology = Owned {
            raw: api.non_null("PJRT_TopologyDescription_Create", args.topology)?,
            plugin,
            platform_name: String::new(),
            platform_version: String::new(),
            devices: Vec::new(),
            attributes: Attributes::default(),
            _alive: Alive::new(Noun::Topology),
        };
        topology.describe()?;
        Ok(TopologyDescription(Arc::new(topology)))
    }

    /// Returns the plugin that created it.
    pub fn plugin(&self) -> Plugin {
        self.0.plugin
    }

    /// Returns the platform's name, such as `tpu`.
    pub fn platform_name(&self) -> &str {
        &self.0.platform_name
    }

    /// Returns the platform's version, as the plugin reports it.
    pub fn platform_version(&self) -> &str {
        &self.0.platform_version
    }

    /// Returns the descriptions of its devices.
    pub fn devices(&self) -> &[DeviceDescription] {
        &self.0.devices
    }

    /// Returns the other attributes that the plugin reports, such as `device_memory_bytes_limit`.
    pub fn attributes(&self) -> &Attributes {
        &self.0.attributes
    }

    /// Returns bytes that differ between topologies, for cache keys.
    ///
    /// # Errors
    /// [`PjrtError::Call`] if the plugin does not support serialization.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = PJRT_TopologyDescription_Serialize_Args::new();
        args.topology = self.0.raw.as_ptr();
        // SAFETY: the topology is live.
        unsafe { self.plugin().api().call(&mut args) }?;
        // SAFETY: the bytes live until the deleter below runs.
        let bytes = unsafe { slice(args.serialized_bytes.cast::<u8>(), args.serialized_bytes_size) }.to_vec();
        if let Some(delete) = args.serialized_topology_deleter {
            // SAFETY: the header requires exactly one call; the bytes have been copied.
            unsafe { delete(args.serialized_topology) };
        }
        Ok(bytes)
    }

    /// Compiles ahead of time, without a client.
    ///
    /// # Errors
    /// Same as [`Client::compile`](crate::Client::compile); running out of device memory is already reported here.
    pub fn compile(&self, program: &Program, options: &CompileOptions) -> Result<Executable> {
        let _span = tracing::info_span!("pjrt.compile_ahead", text_bytes = program.text().len()).entered();
        let ids: Vec<i32> = self.devices().iter().map(|device| device.id).collect();
        let options_bytes = options.encode_for(&ids)?;
        let _guard = WorkGuard::new()?;
        let raw_program = raw_program(program);
        let mut args = PJRT_Compile_Args::new();
        args.topology = self.0.raw.as_ptr();
        args.program = &raw_program;
        args.compile_options = options_bytes.as_ptr().cast();
        args.compile_options_size = options_bytes.len();
        // SAFETY: topology, program and options are borrowed for the call; a null client is allowed; text and options have
        // been checked for contents that would abort the process.
        unsafe { self.plugin().api().call(&mut args) }?;
        let raw = self.plugin().api().non_null("PJRT_Compile", args.executable)?;
        let parent = Parent::Topology(self.clone());
        // SAFETY: the caller owns the returned executable.
        unsafe { Executable::new(raw, parent, program.parameters().clone(), options.is_portable()) }
    }
}

fn check(name: &str, options: &[(&str, Value)]) -> Result<()> {
    let refuse = |name: &str, reason: String| Err(PjrtError::Option { name: name.to_owned(), reason });
    if name.trim().is_empty() {
        return refuse("topology name", "it is empty; name one, such as v5e:2x2".into());
    }
    for (key, value) in options {
        let known = KNOWN_OPTIONS.iter().find(|(known, _)| known == key);
        let Some((_, expected)) = known else {
            let names: Vec<&str> = KNOWN_OPTIONS.iter().map(|(known, _)| *known).collect();
            return refuse(key, format!("not known; known are {}", names.join(", ")));
        };
        match value {
            Value::Int(count) if *count < 1 => return refuse(key, format!("it is {count}, not at least 1")),
            _ if value.type_name() != expected.type_name() => {
                return refuse(key, format!("it is {}, not {}", value.type_name(), expected.type_name()));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Owned {
    fn describe(&mut self) -> Result<()> {
        let api = self.plugin.api();
        let mut name = PJRT_TopologyDescription_PlatformName_Args::new();
        name.topology = self.raw.as_ptr();
        // SAFETY: the topology is live.
        unsafe { api.call(&mut name) }?;
        // SAFETY: the text lives as long as the topology and is copied here.
        self.platform_name = unsafe { string(name.platform_name, name.platform_name_size) };
        let mut version = PJRT_TopologyDescription_PlatformVersion_Args::new();
        version.topology = self.raw.as_ptr();
        // SAFETY: the topology is live.
        unsafe { api.call(&mut version) }?;
        // SAFETY: as for the name.
        self.platform_version = unsafe { string(version.platform_version, version.platform_version_size) };
        let mut attributes = PJRT_TopologyDescription_Attributes_Args::new();
        attributes.topology = self.raw.as_ptr();
        // SAFETY: the topology is live.
        unsafe { api.call(&mut attributes) }?;
        // SAFETY: the attributes live as long as the topology and are copied here.
        self.attributes = unsafe { Attributes::copy(attributes.attributes, attributes.num_attributes) };
        let mut devices = PJRT_TopologyDescription_GetDeviceDescriptions_Args::new();
        devices.topology = self.raw.as_ptr();
        // SAFETY: the topology is live.
        unsafe { api.call(&mut devices) }?;
        // SAFETY: the list lives as long as the topology.
        let devices = unsafe { slice(devices.descriptions, devices.num_descriptions) };
        // SAFETY: the descriptions live as long as the topology too.
        let devices = devices.iter().map(|&raw| unsafe { DeviceDescription::read(api, raw) });
        self.devices = devices.collect::<Result<_>>()?;
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut args = PJRT_TopologyDescription_Destroy_Args::new();
        args.topology = self.raw.as_ptr();
        // SAFETY: every executable compiled for it holds a clone, so none remains; not used after this.
        log_failed_drop(unsafe { self.plugin.api().call(&mut args) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_and_unknown_options_are_refused() {
        assert!(check("", &[]).unwrap_err().to_string().contains("empty"));
        let refused = |option| check("v5e:2x2", &[option]).unwrap_err().to_string();
        assert!(refused(("chip_config", "megacore".into())).contains("not known"));
        assert!(refused(("num_slices", "2".into())).contains("a string, not an integer"));
        assert!(refused(("num_slices", 0.into())).contains("not at least 1"));
        assert!(check("v5e:2x2", &[("chip_config_name", "megacore".into()), ("num_slices", 2.into())]).is_ok());
    }
}
