//! The clients of this process, one per platform, since all devices of a plugin belong to one client.
//!
//! Owns: finding and loading a platform's plugin, creating its client, and the conflict of two devices of a platform
//! that need clients with different options. May not know: engines, runtimes.

use super::external::is_registered;
use crate::distributed;
use crate::error::{Result, TpuError};
use crate::{Device, Platform, TpuOptions};
use burn_tpu_pjrt::discovery::{self, PluginKind};
use burn_tpu_pjrt::{Client, ClientOptions, Plugin, presence};
use parking_lot::Mutex;
use std::sync::Arc;

/// A platform's client with the options that it was created with.
struct OpenClient {
    platform: Platform,
    client: Client,
    memory_fraction: f32,
    cpu_devices: u16,
    /// The number of launches on several devices. Held during one: two in different orders on two devices would wait for each
    /// other.
    launches: Arc<Mutex<i32>>,
}

static CLIENTS: Mutex<Vec<OpenClient>> = Mutex::new(Vec::new());

const DEFAULT_MEMORY_FRACTION: f32 = 0.9;
const DEFAULT_CPU_DEVICES: u16 = 1;

/// Returns whether the platform's hardware seems to be present, without loading a plugin. The host's processor always
/// is.
pub(crate) fn is_present(platform: Platform) -> bool {
    match platform {
        Platform::Tpu => presence::tpu_present(),
        Platform::Cuda => presence::nvidia_gpu_present(),
        Platform::Cpu | Platform::NdArray => true,
        Platform::Topology | Platform::Mesh => false,
        Platform::XlaRs => is_registered(platform),
    }
}

/// Returns the number of devices of a platform. Opens the platform's client if the hardware seems to be present.
/// Returns zero without a plugin, one for burn-ndarray, and for topologies the number of slices named so far.
pub(crate) fn device_count(platform: Platform) -> usize {
    match platform {
        Platform::NdArray => 1,
        Platform::Topology => crate::topology::count(),
        Platform::Mesh => crate::mesh::count(),
        Platform::XlaRs => usize::from(is_registered(platform)),
        Platform::Tpu | Platform::Cuda | Platform::Cpu if !is_present(platform) => 0,
        Platform::Tpu | Platform::Cuda | Platform::Cpu => {
            let options = TpuOptions::default().with_environment().unwrap_or_default();
            let count = with_client(Device::new(platform, 0), &options, |opened| opened.client.device_count());
            count.unwrap_or_else(|error| {
                tracing::debug!(%platform, %error, "no devices");
                0
            })
        }
    }
}

/// Opens the client of a device's platform and keeps it open. No runtime is started, so that the device's options can
/// still be installed.
///
/// # Errors
/// The same as [`client`].
pub(crate) fn open(device: Device, options: &TpuOptions) -> Result<()> {
    with_client(device, options, |_| ())
}

/// Returns the client of a device's platform, and creates it if there is none.
///
/// If nothing uses an existing client and its options differ from those that are set, it is replaced by a new client.
///
/// # Errors
/// [`TpuError::ClientOption`] if a client with other options is in use. [`TpuError::Unavailable`] if the client cannot
/// be created: the error lists what was tried and the command that fixes it.
pub(crate) fn client(device: Device, options: &TpuOptions) -> Result<Client> {
    with_client(device, options, |opened| opened.client.clone())
}

/// Returns the client of a platform for a mesh of `devices`, and the lock of its launches. The CPU plugin makes as many
/// devices as the mesh needs, unless the option `cpu_devices` says how many.
///
/// # Errors
/// The same as [`client`].
pub(crate) fn client_of_mesh(
    platform: Platform,
    devices: Option<usize>,
    options: &TpuOptions,
) -> Result<(Client, Arc<Mutex<i32>>)> {
    let needed = devices.and_then(|devices| u16::try_from(devices).ok());
    let has_enough = |opened: &OpenClient| needed.is_none_or(|needed| opened.cpu_devices >= needed);
    let is_open = CLIENTS.lock().iter().any(|opened| opened.platform == platform && has_enough(opened));
    let cpu_devices = options.cpu_devices.or(needed.filter(|_| !is_open));
    let options = TpuOptions { cpu_devices, ..options.clone() };
    with_client(Device::new(platform, 0), &options, |opened| (opened.client.clone(), Arc::clone(&opened.launches)))
}

/// Calls `then` with the client while no other thread can create or replace one.
fn with_client<T>(device: Device, options: &TpuOptions, then: impl FnOnce(&OpenClient) -> T) -> Result<T> {
    let platform = device.platform();
    let mut clients = CLIENTS.lock();
    if let Some(position) = clients.iter().position(|opened| opened.platform == platform) {
        let opened = &clients[position];
        let Some(conflict) = conflict(opened, device, options) else { return Ok(then(opened)) };
        if opened.client.is_shared() {
            return Err(conflict);
        }
        tracing::debug!(%platform, "the client is created again with other options");
        clients.swap_remove(position);
    }
    let opened = make(device, options)?;
    let result = then(&opened);
    clients.push(opened);
    Ok(result)
}

/// Returns an error for the first option that is set and differs from the client's.
fn conflict(opened: &OpenClient, device: Device, options: &TpuOptions) -> Option<TpuError> {
    let differ = |option, asked: String, current: String| {
        Some(TpuError::ClientOption { device: device.to_string(), option, asked, current })
    };
    let current = opened.client.plugin().path();
    match (&options.plugin, device.platform()) {
        // A path that names no file counts as another plugin.
        (Some(asked), _) if asked.canonicalize().ok().as_deref() != Some(current) => {
            return differ("plugin", asked.display().to_string(), current.display().to_string());
        }
        _ => {}
    }
    match (device.platform(), options.cpu_devices, options.memory_fraction) {
        (Platform::Cpu, Some(asked), _) if asked != opened.cpu_devices => {
            differ("cpu_devices", asked.to_string(), opened.cpu_devices.to_string())
        }
        (Platform::Cuda, _, Some(asked)) if asked != opened.memory_fraction => {
            differ("memory_fraction", asked.to_string(), opened.memory_fraction.to_string())
        }
        _ => None,
    }
}

/// Finds and loads the plugin, and creates its client.
fn make(device: Device, options: &TpuOptions) -> Result<OpenClient> {
    let platform = device.platform();
    let (kind, fix) = match platform {
        Platform::Tpu if is_present(platform) => (PluginKind::Tpu, "cargo xtask setup tpu"),
        Platform::Tpu => (PluginKind::Tpu, NO_TPU),
        Platform::Cuda => (PluginKind::Cuda, "cargo xtask setup cuda"),
        Platform::Cpu => (PluginKind::Cpu, "cargo xtask setup cpu"),
        Platform::NdArray | Platform::Topology | Platform::Mesh | Platform::XlaRs => return Err(super::wrong_engine()),
    };
    let unavailable = |reason: String| TpuError::Unavailable { device: device.to_string(), reason, fix };
    let found = discovery::find(kind, options.plugin.as_deref()).map_err(|error| unavailable(error.to_string()))?;
    tracing::debug!(path = %found.path.display(), source = ?found.source, "plugin found");
    let memory_fraction = options.memory_fraction.unwrap_or(DEFAULT_MEMORY_FRACTION);
    let cpu_devices = options.cpu_devices.unwrap_or(DEFAULT_CPU_DEVICES);
    // libtpu finds its hosts by itself, and the CPU plugin belongs to one process.
    let group = if platform == Platform::Cuda { distributed::group()? } else { None };
    let process = group.map(|group| (group.index, group.count));
    let client_options = client_options(platform, memory_fraction, cpu_devices, process);
    let plugin = Plugin::load(&found.path).map_err(|error| unavailable(error.to_string()))?;
    let client = client_options.and_then(|client_options| match group {
        Some(group) => Client::with_store(plugin, &client_options, Arc::<distributed::Store>::clone(&group.store)),
        None => Client::new(plugin, &client_options),
    });
    let client = client.map_err(|error| match platform {
        Platform::Tpu if !is_present(platform) => {
            unavailable(format!("this machine has no TPU ({})", first_line(&error)))
        }
        _ => unavailable(error.to_string()),
    })?;
    let serves = client.platform_name();
    if PluginKind::ALL.iter().any(|other| *other != kind && other.name() == serves) {
        let path = found.path.display();
        return Err(unavailable(format!("the plugin `{path}` ({}) is for {serves} devices", found.source)));
    }
    Ok(OpenClient { platform, client, memory_fraction, cpu_devices, launches: Arc::default() })
}

/// Returns the options of a platform's client, in this process of so many.
fn client_options(
    platform: Platform,
    memory_fraction: f32,
    cpu_devices: u16,
    process: Option<(usize, usize)>,
) -> burn_tpu_pjrt::Result<ClientOptions> {
    match (platform, process) {
        (Platform::Cpu, _) => ClientOptions::cpu(usize::from(cpu_devices)),
        (Platform::Cuda, None) => ClientOptions::cuda_memory(memory_fraction, true),
        (Platform::Cuda, Some((index, count))) => ClientOptions::cuda_memory(memory_fraction, true)?.node(index, count),
        (Platform::Tpu | Platform::NdArray | Platform::Topology | Platform::Mesh | Platform::XlaRs, _) => {
            Ok(ClientOptions::default())
        }
    }
}

/// The fix on a machine without a TPU.
const NO_TPU: &str = "run on this machine's processor with TpuDevice::cpu(0) or BURN_TPU_PLATFORM=cpu; to compile for TPUs \
                      without one, use TpuDevice::topology or burn_tpu::fit, which need libtpu only: cargo xtask setup tpu";

/// Returns the first line of an error: libtpu appends lines of its own source.
fn first_line(error: &burn_tpu_pjrt::PjrtError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_pjrt::Value;

    #[test]
    fn a_client_of_gpus_knows_its_process_and_those_of_other_platforms_do_not() {
        let options = |platform, process| client_options(platform, 0.5, 3, process).unwrap().values().to_vec();
        let named = |options: &[(&str, Value)]| -> Vec<(String, Value)> {
            options.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
        };
        let memory = [("memory_fraction", Value::Float(0.5)), ("preallocate", Value::Bool(true))];
        let node = [("node_id", Value::Int(1)), ("num_nodes", Value::Int(2))];
        assert_eq!(options(Platform::Cuda, None), named(&memory));
        assert_eq!(options(Platform::Cuda, Some((1, 2))), named(&[memory, node].concat()));
        assert_eq!(options(Platform::Tpu, Some((1, 2))), []);
        assert_eq!(options(Platform::Cpu, Some((1, 2))), named(&[("cpu_device_count", Value::Int(3))]));
    }
}
