//! Devices: descriptions, memories, memory statistics (header: "Device Descriptions", "Devices", "Memory").

use std::fmt;
use std::ptr::NonNull;

use crate::abi::Struct;
use crate::api::{Api, slice, string};
use crate::bindings::*;
use crate::client::Client;
use crate::error::{PjrtError, Result};
use crate::named_value::Attributes;

/// A device's properties that are known without using it. A topology has them for devices that are not attached.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceDescription {
    /// Unique among this platform's devices, over all hosts.
    pub id: i32,
    /// The index of the process that can use it.
    pub process_index: i32,
    /// The vendor's name of the kind, such as `TPU v5 lite` or `cpu`.
    pub kind: String,
    /// A short text for logs.
    pub name: String,
    /// A long text for error reports.
    pub debug: String,
    /// All other attributes that the plugin reports, such as `coords`.
    pub attributes: Attributes,
}

impl DeviceDescription {
    /// # Safety
    /// `raw` is a live description that belongs to this plugin.
    pub(crate) unsafe fn read(api: Api, raw: *mut PJRT_DeviceDescription) -> Result<DeviceDescription> {
        let mut id = PJRT_DeviceDescription_Id_Args::new();
        id.device_description = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut id) }?;
        let mut process = PJRT_DeviceDescription_ProcessIndex_Args::new();
        process.device_description = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut process) }?;
        let mut attributes = PJRT_DeviceDescription_Attributes_Args::new();
        attributes.device_description = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut attributes) }?;
        // SAFETY: the attributes live as long as the description and are copied here.
        let attributes = unsafe { Attributes::copy(attributes.attributes, attributes.num_attributes) };
        // SAFETY: `raw` is live.
        let [kind, name, debug] = unsafe { description_texts(api, raw) }?;
        Ok(DeviceDescription { id: id.id, process_index: process.process_index, kind, name, debug, attributes })
    }
}

/// Returns kind, short text and long text.
///
/// # Safety
/// `raw` is a live description that belongs to this plugin.
unsafe fn description_texts(api: Api, raw: *mut PJRT_DeviceDescription) -> Result<[String; 3]> {
    let mut kind = PJRT_DeviceDescription_Kind_Args::new();
    kind.device_description = raw;
    // SAFETY: `raw` is live.
    unsafe { api.call(&mut kind) }?;
    let mut name = PJRT_DeviceDescription_ToString_Args::new();
    name.device_description = raw;
    // SAFETY: `raw` is live.
    unsafe { api.call(&mut name) }?;
    let mut debug = PJRT_DeviceDescription_DebugString_Args::new();
    debug.device_description = raw;
    // SAFETY: `raw` is live.
    unsafe { api.call(&mut debug) }?;
    // SAFETY: the text lives as long as the description and is copied here.
    let kind = unsafe { string(kind.device_kind, kind.device_kind_size) };
    // SAFETY: as above.
    let name = unsafe { string(name.to_string, name.to_string_size) };
    // SAFETY: as above.
    let debug = unsafe { string(debug.debug_string, debug.debug_string_size) };
    Ok([kind, name, debug])
}

/// A client's cached record of one of its devices.
#[derive(Debug)]
pub(crate) struct DeviceRecord {
    pub(crate) raw: NonNull<PJRT_Device>,
    pub(crate) addressable: bool,
    pub(crate) description: DeviceDescription,
    pub(crate) local_hardware_id: i32,
    pub(crate) memories: Vec<Memory>,
}

impl DeviceRecord {
    /// # Safety
    /// `raw` is a device of a live client of this plugin.
    pub(crate) unsafe fn read(api: Api, raw: *mut PJRT_Device) -> Result<DeviceRecord> {
        let mut description = PJRT_Device_GetDescription_Args::new();
        description.device = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut description) }?;
        // SAFETY: a device's description lives as long as the device.
        let description = unsafe { DeviceDescription::read(api, description.device_description) }?;
        let mut addressable = PJRT_Device_IsAddressable_Args::new();
        addressable.device = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut addressable) }?;
        let addressable = addressable.is_addressable;
        let mut local = PJRT_Device_LocalHardwareId_Args::new();
        local.device = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut local) }?;
        // SAFETY: `raw` is live; the memories of another host's devices cannot be queried here.
        let memories = if addressable { unsafe { Memory::read_all(api, raw) }? } else { Vec::new() };
        let raw = api.non_null("PJRT_Client_Devices", raw)?;
        Ok(DeviceRecord { raw, addressable, description, local_hardware_id: local.local_hardware_id, memories })
    }
}

/// A memory that a device can address, such as its HBM or pinned host memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Unique among the client's memories.
    pub id: i32,
    /// The plugin's name of the kind: `device`, `pinned_host`, `unpinned_host`.
    pub kind: String,
    /// Text for error reports.
    pub debug: String,
    /// Whether it is the device's default memory.
    pub is_default: bool,
}

impl Memory {
    /// # Safety
    /// `device` is an addressable device of a live client of this plugin.
    unsafe fn read_all(api: Api, device: *mut PJRT_Device) -> Result<Vec<Memory>> {
        let mut default = PJRT_Device_DefaultMemory_Args::new();
        default.device = device;
        // SAFETY: `device` is live.
        unsafe { api.call(&mut default) }?;
        // SAFETY: as the caller's.
        let memories = unsafe { Memory::all(api, device) }?;
        // SAFETY: a device's memories live as long as the device.
        memories.iter().map(|&raw| unsafe { Memory::read(api, raw, raw == default.memory) }).collect()
    }

    /// # Safety
    /// `device` is an addressable device of a client of this plugin that outlives the list.
    unsafe fn all<'c>(api: Api, device: *mut PJRT_Device) -> Result<&'c [*mut PJRT_Memory]> {
        let mut all = PJRT_Device_AddressableMemories_Args::new();
        all.device = device;
        // SAFETY: `device` is live.
        unsafe { api.call(&mut all) }?;
        // SAFETY: the list lives as long as the device.
        Ok(unsafe { slice(all.memories, all.num_memories) })
    }

    /// # Safety
    /// `raw` is a live memory that belongs to this plugin.
    unsafe fn read(api: Api, raw: *mut PJRT_Memory, is_default: bool) -> Result<Memory> {
        let mut id = PJRT_Memory_Id_Args::new();
        id.memory = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut id) }?;
        // SAFETY: `raw` is live.
        let kind = unsafe { memory_kind(api, raw) }?;
        let mut debug = PJRT_Memory_DebugString_Args::new();
        debug.memory = raw;
        // SAFETY: `raw` is live.
        unsafe { api.call(&mut debug) }?;
        // SAFETY: the text lives as long as the memory and is copied here.
        let debug = unsafe { string(debug.debug_string, debug.debug_string_size) };
        Ok(Memory { id: id.id, kind, debug, is_default })
    }
}

/// Returns the plugin's name of a memory's kind.
///
/// # Safety
/// `raw` is a live memory that belongs to this plugin.
pub(crate) unsafe fn memory_kind(api: Api, raw: *mut PJRT_Memory) -> Result<String> {
    let mut kind = PJRT_Memory_Kind_Args::new();
    kind.memory = raw;
    // SAFETY: `raw` is live.
    unsafe { api.call(&mut kind) }?;
    // SAFETY: the text lives as long as the memory and is copied here.
    Ok(unsafe { string(kind.kind, kind.kind_size) })
}

/// A device of a client. It keeps the client alive and is cheap to clone.
#[derive(Clone)]
pub struct Device {
    client: Client,
    /// The index among the client's devices, including those of other hosts.
    index: usize,
}

impl Device {
    pub(crate) fn new(client: Client, index: usize) -> Device {
        Device { client, index }
    }

    /// Returns the client that this device belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the device's description.
    pub fn description(&self) -> &DeviceDescription {
        &self.record().description
    }

    /// Returns the id, unique among this platform's devices over all hosts.
    pub fn id(&self) -> i32 {
        self.description().id
    }

    /// Returns whether this process can use it.
    pub fn is_addressable(&self) -> bool {
        self.record().addressable
    }

    /// Returns the hardware's own number, or -1 if it has none.
    pub fn local_hardware_id(&self) -> i32 {
        self.record().local_hardware_id
    }

    /// Returns its memory of a kind.
    pub(crate) fn raw_memory(&self, kind: &str) -> Result<*mut PJRT_Memory> {
        let missing = || PjrtError::usage("Device::raw_memory", format!("the device has no memory `{kind}`"));
        let place = self.memories().iter().position(|memory| memory.kind == kind).ok_or_else(missing)?;
        // SAFETY: the device is one that was read with its memories, so it is addressable, and this keeps its client.
        let all = unsafe { Memory::all(self.client.api(), self.raw()) }?;
        all.get(place).copied().ok_or_else(missing)
    }

    /// Returns the memories that it can address.
    pub fn memories(&self) -> &[Memory] {
        &self.record().memories
    }

    /// Returns the allocator's current statistics.
    ///
    /// # Errors
    /// [`PjrtError::Call`](crate::PjrtError::Call) with [`Code::Unimplemented`](crate::Code::Unimplemented) on the
    /// CPU plugin.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        let mut args = PJRT_Device_MemoryStats_Args::new();
        args.device = self.raw();
        // SAFETY: the device lives as long as the client that `self` keeps alive.
        unsafe { self.client.api().call(&mut args) }?;
        Ok(MemoryStats::from_raw(&args))
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn raw(&self) -> *mut PJRT_Device {
        self.record().raw.as_ptr()
    }

    fn record(&self) -> &DeviceRecord {
        &self.client.records()[self.index]
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.index == other.index && self.client == other.client
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description().name)
    }
}

/// Statistics of a device's allocator, in bytes except `allocation_count`. A value that a plugin does not report is
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in use now.
    pub in_use_bytes: i64,
    /// The largest number of bytes in use at once.
    pub peak_in_use_bytes: Option<i64>,
    /// The number of allocations since the start.
    pub allocation_count: Option<i64>,
    /// The largest single allocation since the start.
    pub largest_allocation_bytes: Option<i64>,
    /// The most that can be allocated.
    pub limit_bytes: Option<i64>,
    /// Bytes reserved now.
    pub reserved_bytes: Option<i64>,
    /// The largest number of bytes reserved at once.
    pub peak_reserved_bytes: Option<i64>,
    /// The most that can be reserved.
    pub reservable_limit_bytes: Option<i64>,
    /// The largest free block.
    pub largest_free_block_bytes: Option<i64>,
    /// Bytes that the allocator holds, in use or not.
    pub pool_bytes: Option<i64>,
    /// The largest number of bytes that the allocator held at once.
    pub peak_pool_bytes: Option<i64>,
}

impl MemoryStats {
    fn from_raw(raw: &PJRT_Device_MemoryStats_Args) -> MemoryStats {
        let optional = |is_set: bool, value: i64| is_set.then_some(value);
        MemoryStats {
            in_use_bytes: raw.bytes_in_use,
            peak_in_use_bytes: optional(raw.peak_bytes_in_use_is_set, raw.peak_bytes_in_use),
            allocation_count: optional(raw.num_allocs_is_set, raw.num_allocs),
            largest_allocation_bytes: optional(raw.largest_alloc_size_is_set, raw.largest_alloc_size),
            limit_bytes: optional(raw.bytes_limit_is_set, raw.bytes_limit),
            reserved_bytes: optional(raw.bytes_reserved_is_set, raw.bytes_reserved),
            peak_reserved_bytes: optional(raw.peak_bytes_reserved_is_set, raw.peak_bytes_reserved),
            reservable_limit_bytes: optional(raw.bytes_reservable_limit_is_set, raw.bytes_reservable_limit),
            largest_free_block_bytes: optional(raw.largest_free_block_bytes_is_set, raw.largest_free_block_bytes),
            pool_bytes: optional(raw.pool_bytes_is_set, raw.pool_bytes),
            peak_pool_bytes: optional(raw.peak_pool_bytes_is_set, raw.peak_pool_bytes),
        }
    }
}
