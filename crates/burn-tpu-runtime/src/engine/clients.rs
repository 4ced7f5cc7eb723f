//! The clients of this process, one per platform, since all devices of a plugin belong to one client.
//!
//! Owns: finding and loading a platform's plugin, creating its client, and the conflict of two devices of a platform
//! that need clients with different options. A client may be reserved: its plugin is found, and loaded when it is needed.
//! May not know: engines, runtimes.

use super::external::has_xla_rs;
use crate::device::described_devices;
use crate::distributed;
use crate::error::{Result, TpuError};
use crate::{Device, Platform, TpuOptions};
use burn_tpu_pjrt::discovery::{self, Candidate, PluginKind, Source};
use burn_tpu_pjrt::{Client, ClientOptions, Plugin, presence};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A platform's client, or the place that is kept for it, with the options that it is created with.
pub(super) struct PlatformClient {
    /// The device for which it was asked first.
    device: Device,
    kind: PluginKind,
    fix: &'static str,
    plugin: Candidate,
    memory_fraction: f32,
    cpu_devices: u16,
    /// The number of launches on several devices. Held during one: two in different orders on two devices would wait for
    /// each other.
    launches: Arc<Mutex<i32>>,
    client: OnceLock<Result<Client>>,
}

static CLIENTS: Mutex<Vec<Arc<PlatformClient>>> = Mutex::new(Vec::new());

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
        Platform::XlaRs => has_xla_rs(),
    }
}

/// Returns the number of devices of a platform. Opens the platform's client if the hardware seems to be present and the
/// client may not wait. Returns zero without a plugin, one for the interpreter, and for topologies the number of slices
/// named so far.
pub(crate) fn device_count(platform: Platform) -> usize {
    match platform {
        Platform::NdArray => 1,
        Platform::Topology | Platform::Mesh => described_devices(platform),
        Platform::XlaRs => usize::from(has_xla_rs()),
        Platform::Tpu | Platform::Cuda | Platform::Cpu if !is_present(platform) => 0,
        Platform::Tpu | Platform::Cuda | Platform::Cpu => {
            let options = TpuOptions::default().with_environment().unwrap_or_default();
            let device = Device::new(platform, 0);
            let count = reserve(device, &options).and_then(|known| match known.may_wait() {
                true => Ok(usize::from(known.cpu_devices)),
                false => with_client(device, &options, |_, client| client.device_count()),
            });
            count.unwrap_or_else(|error| {
                tracing::debug!(%platform, %error, "no devices");
                0
            })
        }
    }
}

/// Opens the client of a device's platform and keeps it open; one that may wait is only reserved. No runtime is started, so
/// that the device's options can still be installed.
///
/// # Errors
/// The same as [`client`].
pub(crate) fn open(device: Device, options: &TpuOptions) -> Result<()> {
    if reserve(device, options)?.may_wait() { Ok(()) } else { with_client(device, options, |_, _| ()) }
}

/// Returns the client of a device's platform, and creates it if there is none.
///
/// A client that nothing uses is replaced if its options differ from the ones that are set.
///
/// # Errors
/// [`TpuError::ClientOption`] if a client with other options is in use. [`TpuError::Unavailable`] if the client cannot
/// be created: the error lists what was tried and the command that fixes it.
pub(crate) fn client(device: Device, options: &TpuOptions) -> Result<Client> {
    with_client(device, options, |_, client| client.clone())
}

/// Returns the place of the client of a device's platform. Its plugin is found, but no library is loaded.
///
/// # Errors
/// [`TpuError::ClientOption`] if a client with other options is in use or reserved. [`TpuError::Unavailable`] if there is no
/// plugin.
pub(super) fn reserve(device: Device, options: &TpuOptions) -> Result<Arc<PlatformClient>> {
    place(&mut CLIENTS.lock(), device, options)
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
    let has_enough = |known: &PlatformClient| needed.is_none_or(|needed| known.cpu_devices >= needed);
    let is_open = CLIENTS.lock().iter().any(|known| known.platform() == platform && has_enough(known));
    let cpu_devices = options.cpu_devices.or(needed.filter(|_| !is_open));
    let options = TpuOptions { cpu_devices, ..options.clone() };
    with_client(Device::new(platform, 0), &options, |known, client| (client.clone(), Arc::clone(&known.launches)))
}

/// Calls `then` with the client while no other thread can create or replace one. A client that cannot be created is
/// forgotten, so that the next call tries again.
fn with_client<T>(device: Device, options: &TpuOptions, then: impl FnOnce(&PlatformClient, &Client) -> T) -> Result<T> {
    let mut clients = CLIENTS.lock();
    let known = place(&mut clients, device, options)?;
    let result = known.client().map(|client| then(&known, client));
    if result.is_err() {
        clients.retain(|other| !Arc::ptr_eq(other, &known));
    }
    result
}

/// Returns the process's entry for a platform's client, and makes one if there is none. An entry that nothing uses is
/// replaced if its options differ from the ones that are set.
fn place(clients: &mut Vec<Arc<PlatformClient>>, device: Device, options: &TpuOptions) -> Result<Arc<PlatformClient>> {
    let platform = device.platform();
    if let Some(position) = clients.iter().position(|known| known.platform() == platform) {
        let known = &clients[position];
        let Some(conflict) = known.conflict(device, options) else { return Ok(Arc::clone(known)) };
        if known.is_in_use() {
            return Err(conflict);
        }
        tracing::debug!(%platform, "the client is created again with other options");
        clients.swap_remove(position);
    }
    let new = Arc::new(PlatformClient::find(device, options)?);
    clients.push(Arc::clone(&new));
    Ok(new)
}

impl PlatformClient {
    /// Finds the plugin of a client with these options.
    fn find(device: Device, options: &TpuOptions) -> Result<Self> {
        let platform = device.platform();
        let (kind, fix) = match platform {
            Platform::Tpu if is_present(platform) => (PluginKind::Tpu, "cargo xtask setup tpu"),
            Platform::Tpu => (PluginKind::Tpu, NO_TPU),
            Platform::Cuda => (PluginKind::Cuda, "cargo xtask setup cuda"),
            Platform::Cpu => (PluginKind::Cpu, "cargo xtask setup cpu"),
            Platform::NdArray | Platform::Topology | Platform::Mesh | Platform::XlaRs => {
                return Err(super::wrong_engine());
            }
        };
        let plugin = discovery::find(kind, options.plugin.as_deref());
        let plugin = plugin.map_err(|error| unavailable(device, error.to_string(), fix))?;
        tracing::debug!(path = %plugin.path.display(), source = ?plugin.source, "plugin found");
        Ok(Self {
            device,
            kind,
            fix,
            plugin,
            memory_fraction: options.memory_fraction.unwrap_or(DEFAULT_MEMORY_FRACTION),
            cpu_devices: options.cpu_devices.unwrap_or(DEFAULT_CPU_DEVICES),
            launches: Arc::default(),
            client: OnceLock::new(),
        })
    }

    fn platform(&self) -> Platform {
        self.device.platform()
    }

    /// Returns the file of the plugin.
    pub(super) fn plugin(&self) -> &Path {
        &self.plugin.path
    }

    /// Returns whether its plugin may be loaded later than its first device starts: nobody named the file, so nobody waits
    /// for an error of it, and its client of one device writes no environment variable.
    pub(super) fn may_wait(&self) -> bool {
        let is_named = matches!(self.plugin.source, Source::Explicit | Source::Variable(_));
        self.platform() == Platform::Cpu && self.cpu_devices == 1 && !is_named
    }

    /// Returns the client, which is created at the first call.
    ///
    /// # Errors
    /// [`TpuError::Unavailable`] if it cannot be created, with the command that fixes it.
    pub(super) fn client(&self) -> Result<&Client> {
        self.client.get_or_init(|| self.create()).as_ref().map_err(Clone::clone)
    }

    /// Returns whether a device has it, or anything that its client made exists.
    fn is_in_use(self: &Arc<Self>) -> bool {
        let is_shared = || matches!(self.client.get(), Some(Ok(client)) if client.is_shared());
        // One owner is the list of all clients.
        Arc::strong_count(self) > 1 || is_shared()
    }

    /// Returns an error for the first option that is set and differs from the client's.
    fn conflict(&self, device: Device, options: &TpuOptions) -> Option<TpuError> {
        let differ = |option, asked: String, current: String| {
            Some(TpuError::ClientOption { device: device.to_string(), option, asked, current })
        };
        // A path that names no file counts as another plugin.
        let asked = options.plugin.as_ref().map(|asked| (asked, asked.canonicalize().ok()));
        if let Some((asked, file)) = asked
            && (file.is_none() || file != self.plugin().canonicalize().ok())
        {
            return differ("plugin", asked.display().to_string(), self.plugin().display().to_string());
        }
        match (device.platform(), options.cpu_devices, options.memory_fraction) {
            (Platform::Cpu, Some(asked), _) if asked != self.cpu_devices => {
                differ("cpu_devices", asked.to_string(), self.cpu_devices.to_string())
            }
            (Platform::Cuda, _, Some(asked)) if asked != self.memory_fraction => {
                differ("memory_fraction", asked.to_string(), self.memory_fraction.to_string())
            }
            _ => None,
        }
    }

    /// Loads the plugin and creates the client.
    fn create(&self) -> Result<Client> {
        let platform = self.platform();
        let unavailable = |reason: String| unavailable(self.device, reason, self.fix);
        // libtpu finds its hosts by itself, and the CPU plugin belongs to one process.
        let group = if platform == Platform::Cuda { distributed::group()? } else { None };
        let process = group.map(|group| (group.index, group.count));
        let client_options = client_options(platform, self.memory_fraction, self.cpu_devices, process);
        let plugin = Plugin::load(self.plugin()).map_err(|error| unavailable(error.to_string()))?;
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
        if PluginKind::ALL.iter().any(|other| *other != self.kind && other.name() == serves) {
            let (path, source) = (self.plugin().display(), &self.plugin.source);
            return Err(unavailable(format!("the plugin `{path}` ({source}) is for {serves} devices")));
        }
        Ok(client)
    }
}

fn unavailable(device: Device, reason: String, fix: &'static str) -> TpuError {
    TpuError::Unavailable { device: device.to_string(), reason, fix }
}

/// Returns the options of a platform's client. `process` is the index of this process and the number of processes, if they
/// form a group.
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
    fn only_a_client_of_gpus_knows_its_process() {
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
