//! Clients: a plugin's runtime with its devices (header: "Client").

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::abi::Struct;
use crate::api::{Api, log_failed_drop, slice, string};
use crate::bindings::*;
use crate::client_options::ClientOptions;
use crate::device::{Device, DeviceDescription, DeviceRecord};
use crate::environment;
use crate::error::{PjrtError, Result};
use crate::key_value::{KeyValueStore, KeyValues};
use crate::live::{Alive, Noun};
use crate::named_value::RawValues;
use crate::plugin::Plugin;
use crate::signals::KeptSignals;

/// A running client. Clones share it; it ends when the last clone, buffer, executable and event of it is gone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    raw: NonNull<PJRT_Client>,
    plugin: Plugin,
    platform_name: String,
    platform_version: String,
    process_index: i32,
    devices: Vec<DeviceRecord>,
    /// What the plugin's callbacks read. It is dropped after the client is destroyed.
    _store: Option<KeyValues>,
    _alive: Alive,
}

// SAFETY: PJRT's C++ clients and the devices they own are documented as thread-safe, and the C API adds no state per
// thread; everything else in here is written once, before the client is shared.
unsafe impl Send for Owned {}
// SAFETY: as for `Send`.
unsafe impl Sync for Owned {}

impl Client {
    /// Starts a client.
    ///
    /// # Errors
    /// [`PjrtError::Call`], for example "not found" when the machine has no such device.
    pub fn new(plugin: Plugin, options: &ClientOptions) -> Result<Client> {
        Client::create(plugin, options, None)
    }

    /// Starts a client that spans several processes, which find each other through a store: see [`ClientOptions::node`]. The
    /// call returns when all of them have started theirs.
    ///
    /// # Errors
    /// Those of [`Client::new`].
    pub fn with_store(plugin: Plugin, options: &ClientOptions, store: Arc<dyn KeyValueStore>) -> Result<Client> {
        Client::create(plugin, options, Some(KeyValues::new(store)))
    }

    fn create(plugin: Plugin, options: &ClientOptions, store: Option<KeyValues>) -> Result<Client> {
        let _span = tracing::info_span!("pjrt.create_client", plugin = %plugin.path().display()).entered();
        let api = plugin.api();
        if let Some(devices) = options.cpu_devices() {
            environment::cpu_threads(devices);
        }
        let raw_options = RawValues::new(options.values());
        let mut args = PJRT_Client_Create_Args::new();
        args.create_options = raw_options.as_ptr();
        args.num_options = raw_options.len();
        if let Some(store) = &store {
            store.install(&mut args);
        }
        let _kept = KeptSignals::new();
        // SAFETY: `raw_options` borrows from `options`, alive during the call; names and types are known ones. The store of
        // the callbacks outlives the client.
        unsafe { api.call(&mut args) }?;
        let mut client = Owned {
            raw: api.non_null("PJRT_Client_Create", args.client)?,
            plugin,
            platform_name: String::new(),
            platform_version: String::new(),
            process_index: 0,
            devices: Vec::new(),
            _store: store,
            _alive: Alive::new(Noun::Client),
        };
        client.describe()?;
        tracing::info!(platform = client.platform_name, devices = client.devices.len(), "client created");
        Ok(Client(Arc::new(client)))
    }

    /// The plugin that runs it.
    pub fn plugin(&self) -> Plugin {
        self.0.plugin
    }

    /// The platform's name, such as `cpu`, `tpu` or `cuda`.
    pub fn platform_name(&self) -> &str {
        &self.0.platform_name
    }

    /// The platform's version in the plugin's own words.
    pub fn platform_version(&self) -> &str {
        &self.0.platform_version
    }

    /// This process among those that share the devices; 0 when it is alone.
    pub fn process_index(&self) -> i32 {
        self.0.process_index
    }

    /// The devices that this process can use, in the plugin's order.
    pub fn devices(&self) -> Vec<Device> {
        let addressable = self.0.devices.iter().enumerate().filter(|(_, device)| device.addressable);
        addressable.map(|(index, _)| Device::new(self.clone(), index)).collect()
    }

    /// The device at a position in [`Client::devices`].
    ///
    /// # Errors
    /// [`PjrtError::Usage`] if there are fewer.
    pub fn device(&self, position: usize) -> Result<Device> {
        let mut addressable = self.0.devices.iter().enumerate().filter(|(_, device)| device.addressable);
        let found = addressable.nth(position).map(|(index, _)| Device::new(self.clone(), index));
        found.ok_or_else(|| {
            let reason = format!("there is no device {position}; this client has {}", self.device_count());
            PjrtError::usage("Client::device", reason)
        })
    }

    /// Whether anything but this handle keeps the client: a clone, a device, a buffer, an executable, an event.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns the number of devices that this process can use.
    pub fn device_count(&self) -> usize {
        self.0.devices.iter().filter(|device| device.addressable).count()
    }

    /// Every device of the client, those of other hosts included.
    pub fn all_devices(&self) -> impl Iterator<Item = &DeviceDescription> {
        self.0.devices.iter().map(|device| &device.description)
    }

    /// The device at a position in [`Client::all_devices`], which may be another host's.
    ///
    /// # Errors
    /// [`PjrtError::Usage`] if there are fewer.
    pub fn device_of_any_host(&self, position: usize) -> Result<Device> {
        if position < self.0.devices.len() {
            return Ok(Device::new(self.clone(), position));
        }
        let reason = format!("there is no device {position}; all hosts have {}", self.0.devices.len());
        Err(PjrtError::usage("Client::device_of_any_host", reason))
    }

    pub(crate) fn records(&self) -> &[DeviceRecord] {
        &self.0.devices
    }

    /// The position in [`Client::records`] of a device that the plugin named.
    pub(crate) fn index_of(&self, raw: *mut PJRT_Device) -> Option<usize> {
        self.0.devices.iter().position(|device| device.raw.as_ptr() == raw)
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Client {
        self.0.raw.as_ptr()
    }

    pub(crate) fn api(&self) -> Api {
        self.0.plugin.api()
    }

    /// Drops a handle on a thread that may be one of the client's own. If it was the last, the client is destroyed on
    /// a new thread, since destroying joins the client's threads.
    pub(crate) fn release_from_callback(self) {
        let Some(last) = Arc::into_inner(self.0).map(ManuallyDrop::new) else { return };
        let destroy = move || drop(ManuallyDrop::into_inner(last));
        if let Err(error) = std::thread::Builder::new().name("pjrt-client-drop".into()).spawn(destroy) {
            tracing::error!(%error, "a PJRT client is leaked: no thread to destroy it on");
        }
    }
}

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Client {}

impl Owned {
    /// Reads names and devices once, so that nothing asks the plugin for them later.
    fn describe(&mut self) -> Result<()> {
        let api = self.plugin.api();
        let mut name = PJRT_Client_PlatformName_Args::new();
        name.client = self.raw.as_ptr();
        // SAFETY: the client is live.
        unsafe { api.call(&mut name) }?;
        // SAFETY: the text lives as long as the client and is copied here.
        self.platform_name = unsafe { string(name.platform_name, name.platform_name_size) };
        let mut version = PJRT_Client_PlatformVersion_Args::new();
        version.client = self.raw.as_ptr();
        // SAFETY: the client is live.
        unsafe { api.call(&mut version) }?;
        // SAFETY: as for the name.
        self.platform_version = unsafe { string(version.platform_version, version.platform_version_size) };
        let mut process = PJRT_Client_ProcessIndex_Args::new();
        process.client = self.raw.as_ptr();
        // SAFETY: the client is live.
        unsafe { api.call(&mut process) }?;
        self.process_index = process.process_index;
        let mut devices = PJRT_Client_Devices_Args::new();
        devices.client = self.raw.as_ptr();
        // SAFETY: the client is live.
        unsafe { api.call(&mut devices) }?;
        // SAFETY: the list lives as long as the client.
        let devices = unsafe { slice(devices.devices, devices.num_devices) };
        // SAFETY: the devices are the live client's.
        self.devices = devices.iter().map(|&raw| unsafe { DeviceRecord::read(api, raw) }).collect::<Result<_>>()?;
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let mut args = PJRT_Client_Destroy_Args::new();
        args.client = self.raw.as_ptr();
        // SAFETY: every buffer, executable and event holds a clone of the client, so none is left; the handle is not
        // used after this.
        log_failed_drop(unsafe { self.plugin.api().call(&mut args) });
    }
}
