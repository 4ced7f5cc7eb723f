//! Burn's device type: the runtime's device, and the key under which Burn's registries know it.

use crate::{Activity, MemoryReport, Mesh, Metrics, Platform, Result};
use burn_backend::{DeviceId, DeviceOps};
use burn_std::device::Device as BurnDevice;
use burn_tpu_runtime::Device;
use std::hash::{Hash, Hasher};

/// One device: where tensors live and programs run.
///
/// Creating this value neither checks that the device exists nor starts it. If the device is missing, the first read or
/// sync returns an error, which lists where a plugin was searched for and how to install one.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_tpu::{Tpu, TpuDevice};
/// let device = TpuDevice::ndarray();
/// let x = Tensor::<Tpu<f32>, 1>::from_floats([1.0, 2.0], &device);
/// let y = x * 2.0;
/// device.mark_step();
/// device.sync()?;
/// assert_eq!(device.metrics().executions, 1);
/// # Ok::<(), burn_tpu::TpuError>(())
/// ```
#[derive(Clone, Copy)]
pub struct TpuDevice(pub(crate) Device, Defaults);

/// Where a device is in its random numbers: what it draws next depends on this alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomState {
    /// The key of the generator, which a seed sets.
    pub key: u64,
    /// The number of the next draw's first block.
    pub counter: u64,
}

/// Which default element types Burn's registry keeps for a device. There is one registry per process, and its key is the
/// device's id, not the backend type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defaults {
    /// Those of the device, set by the backend type that was used first: bf16 for `Tpu`.
    OfDevice,
    /// f32 floats, whatever the device's default is.
    F32,
}

impl Defaults {
    const ALL: [Defaults; 2] = [Defaults::OfDevice, Defaults::F32];
}

impl TpuDevice {
    /// Returns the TPU core or chip number `index` of this host.
    pub const fn tpu(index: u16) -> Self {
        Self::of(Device::tpu(index))
    }

    /// Returns the NVIDIA GPU number `index` of this host.
    pub const fn cuda(index: u16) -> Self {
        Self::of(Device::cuda(index))
    }

    /// Returns the device number `index` of XLA's CPU plugin. There is one unless
    /// [`TpuOptions::cpu_devices`](crate::TpuOptions::cpu_devices) is larger.
    pub const fn cpu(index: u16) -> Self {
        Self::of(Device::cpu(index))
    }

    /// Returns the device number `index` of the client of the crate `xla` (xla-rs). There is one.
    ///
    /// It needs the feature `xla-rs`, and the set-up that `docs/xla-rs.md` describes. Without the feature, the first read or
    /// sync returns [`TpuError::Unavailable`](crate::TpuError::Unavailable), which says so.
    pub fn xla_rs(index: u16) -> Self {
        Self::from(Device::xla_rs(index))
    }

    /// Returns the host, which runs programs in the interpreter, without any plugin.
    pub const fn ndarray() -> Self {
        Self::of(Device::ndarray())
    }

    /// Returns the first device of a TPU slice that need not be attached: `v5e:2x2`, `v4:2x2x1`, `tpu7x:1x1x1` (generations
    /// v4, v5e, v5p, v6e and tpu7x). libtpu compiles what is recorded on it; nothing is executed. Results have shapes and no
    /// values, an upload keeps no data, and reading a value is an error, [`TpuError::NoValue`](crate::TpuError::NoValue).
    ///
    /// Equal names give the same device. On a machine without a TPU, loading libtpu sets the environment variables that
    /// `docs/plugins.md` lists; on a machine with a TPU it sets none.
    ///
    /// # Errors
    /// [`TpuError::Topology`](crate::TpuError::Topology) for a name of another form. Nothing is loaded here: if libtpu is
    /// missing, or has no slice of these sizes, the first `sync` or read returns that error.
    ///
    /// ```
    /// let device = burn_tpu::TpuDevice::topology("v5e:2x2")?;
    /// assert_eq!(device.to_string(), "v5e:2x2");
    /// # Ok::<(), burn_tpu::TpuError>(())
    /// ```
    pub fn topology(name: &str) -> Result<Self> {
        Device::topology(name).map(Self::of)
    }

    /// Returns many chips as one device. Tensors have their global shapes and a step is one program, which XLA's partitioner
    /// splits over the chips; the ordinary `Learner` or loop trains on it. Batches are split over the axes `data` and `fsdp`
    /// (see [`Mesh::batch_axes`]) where their dim 0 divides; parameters are on every chip unless [`place`](crate::place)
    /// splits them. On the CPU plugin there are as many devices as the mesh needs. The same mesh is the same device.
    ///
    /// Nothing is checked here: if there are fewer chips, the first read or sync returns
    /// [`TpuError::Mesh`](crate::TpuError::Mesh).
    ///
    /// ```
    /// use burn_tpu::{Mesh, TpuDevice};
    /// let device = TpuDevice::mesh(Mesh::new().axis("data", 4).axis("model", 2));
    /// assert_eq!(device.to_string(), "mesh(data=4,model=2)");
    /// ```
    pub fn mesh(mesh: Mesh) -> Self {
        Self::of(Device::mesh(mesh))
    }

    /// Returns the mesh of a device of many chips; `None` for a device of one.
    pub fn as_mesh(self) -> Option<Mesh> {
        self.0.as_mesh()
    }

    /// Returns the number of chips along an axis of a mesh; 1 on any other device. This starts a mesh.
    ///
    /// # Errors
    /// [`TpuError::Mesh`](crate::TpuError::Mesh) for an axis that does not exist.
    pub fn axis_size(self, axis: &str) -> Result<usize> {
        burn_tpu_runtime::ops::sharding::axis_size(self.0, axis)
    }

    /// Returns whether its chips are TPUs, attached or not. Of a mesh that names no platform, this looks for the default one.
    pub fn is_tpu(self) -> bool {
        burn_tpu_runtime::ops::sharding::is_tpu(self.0)
    }

    /// Returns the device number `index` of a platform. For [`Platform::Topology`] and [`Platform::Mesh`] the number comes
    /// from [`TpuDevice::topology`] or [`TpuDevice::mesh`].
    pub fn new(platform: Platform, index: u16) -> Self {
        Self::from(Device::new(platform, index))
    }

    const fn of(device: Device) -> Self {
        Self(device, Defaults::OfDevice)
    }

    /// Returns the same device with a different id in Burn's registry of default element types: with this id, `Tpu<f32>`
    /// loads f32 values although the device's default is bf16. Tensors never hold this id.
    pub(crate) const fn wide(self) -> Self {
        Self(self.0, Defaults::F32)
    }

    /// Returns the platform that the device belongs to.
    pub const fn platform(self) -> Platform {
        self.0.platform()
    }

    /// Returns the device's number on its platform.
    pub const fn index(self) -> u16 {
        self.0.index()
    }

    /// Runs everything that the calling thread's stream has recorded on this device as one program, without waiting for it.
    ///
    /// Call it at the end of a training step: with the whole step in one program, XLA fuses across its ops and keeps only
    /// the step's results. Other devices are not affected, and earlier work that the step does not use is part of the same
    /// program. [`TpuOptimizer`](crate::TpuOptimizer) ends a training step by itself: it cuts the traces of all devices, and
    /// runs such earlier work as separate programs.
    ///
    /// If the program cannot be compiled, the error is logged, the work stays recorded and the tensors keep their values;
    /// the next read or sync tries again and returns the error.
    pub fn mark_step(self) {
        self.0.mark_step();
    }

    /// Runs what the calling thread's stream has recorded on this device, and waits until the device has finished all its
    /// programs. Afterwards the device is open: the CPU plugin, which waits for the first program that is compiled, is
    /// loaded.
    ///
    /// # Errors
    /// If the device cannot be used, if a program was refused (its work stays recorded), or if a program failed while it
    /// ran.
    pub fn sync(self) -> Result<()> {
        self.0.sync()
    }

    /// Returns the device's counters and timers since it started. Print them for a report. Does not start the device: all
    /// counters of a device that was not used yet are zero.
    pub fn metrics(self) -> Metrics {
        self.0.metrics()
    }

    /// Returns what the device does at this moment: the programs in flight, and what the threads of this process wait for.
    /// It neither starts the device nor waits for it. Print it to see why nothing goes on.
    ///
    /// ```
    /// let device = burn_tpu::TpuDevice::ndarray();
    /// assert_eq!(device.activity().to_string(), "ndarray:0: no program in flight");
    /// ```
    pub fn activity(self) -> Activity {
        self.0.activity()
    }

    /// Returns what the device's memory holds: live bytes now and at their peak by what they are, and the largest tensors
    /// with the op and the line that made them. It neither starts the device nor waits for it: a tensor that is recorded and
    /// not computed takes no memory yet. Print it for a table. See `docs/memory.md`.
    ///
    /// ```
    /// let device = burn_tpu::TpuDevice::ndarray();
    /// assert_eq!(device.memory().live.total(), 0, "the interpreter's tensors are in the host's memory");
    /// ```
    pub fn memory(self) -> MemoryReport {
        self.0.memory()
    }

    /// Makes every later compile on the device an error, [`TpuError::Frozen`](crate::TpuError::Frozen), which names what
    /// changed and where. The work of a refused program stays recorded and its tensors keep their values: it runs at the
    /// first cut after [`TpuDevice::unfreeze`].
    ///
    /// Freeze a training or serving loop once it is warm: from then on, no compile goes unnoticed. A device that was not
    /// used yet is frozen from its start.
    pub fn freeze(self) {
        self.0.freeze();
    }

    /// Compiles every bucket of sizes that a service needs, and runs nothing: for each family of programs that differ in
    /// sizes alone, the programs of all buckets up to the largest sizes that have come. Returns the number of compiles.
    ///
    /// A family is known from its third size on, so warm a service up with three sizes, among them the largest, then call
    /// this and [`TpuDevice::freeze`]: every size up to the largest runs, in its own bucket, without a compile. See
    /// `docs/shapes.md`.
    ///
    /// # Errors
    /// Those of the compiler. A bucket that does not fit into the device's memory is left out.
    pub fn compile_buckets(self) -> Result<usize> {
        self.0.compile_buckets()
    }

    /// Ends [`TpuDevice::freeze`].
    pub fn unfreeze(self) {
        self.0.unfreeze();
    }

    /// Returns the hashes of the programs in the device's cache, ascending. Two runs that recorded the same programs return
    /// the same list. It is empty for a device that was not used yet.
    pub fn program_keys(self) -> Vec<u64> {
        self.0.program_keys()
    }

    /// Returns where the device is in its random numbers. Draws of compiled functions are among them.
    ///
    /// ```
    /// use burn::tensor::{Distribution, Tensor};
    /// use burn_tpu::{Tpu, TpuDevice};
    /// let device = TpuDevice::ndarray();
    /// let draw = || Tensor::<Tpu<f32>, 1>::random([4], Distribution::Default, &device).into_data();
    /// let state = device.random_state();
    /// let first = draw();
    /// assert_ne!(draw(), first);
    /// device.set_random_state(state);
    /// assert_eq!(draw(), first);
    /// ```
    pub fn random_state(self) -> RandomState {
        let (key, counter) = self.0.next_draw();
        RandomState { key, counter }
    }

    /// Makes the device draw what it would have drawn in this state.
    pub fn set_random_state(self, RandomState { key, counter }: RandomState) {
        self.0.draw_from((key, counter));
    }
}

impl From<Device> for TpuDevice {
    fn from(device: Device) -> Self {
        provide_engines();
        Self::of(device)
    }
}

/// Gives the runtime the engine of another crate, in a build with it. Whatever makes a device of its platform calls
/// this.
fn provide_engines() {
    #[cfg(feature = "xla-rs")]
    burn_tpu_xla::provide();
}

impl From<TpuDevice> for Device {
    fn from(device: TpuDevice) -> Self {
        device.0
    }
}

impl AsRef<Device> for TpuDevice {
    fn as_ref(&self) -> &Device {
        &self.0
    }
}

/// Compares the devices alone, whatever Burn's registry keeps for them.
impl PartialEq for TpuDevice {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for TpuDevice {}

impl Hash for TpuDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialOrd for TpuDevice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TpuDevice {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Default for TpuDevice {
    /// Returns the best device present, in this order: TPU, CUDA, CPU plugin, interpreter. If `BURN_TPU_PLATFORM` is set,
    /// returns the first device of that platform. If `BURN_TPU_MESH` is set, returns a mesh of its chips.
    ///
    /// The choice is made once per process and starts no device. If only the interpreter is left, one warning says how to
    /// install a plugin. If `BURN_TPU_PLUGIN` names a file that cannot be used, the result is the device that the file was
    /// named for, and its first read returns the error.
    fn default() -> Self {
        Self::from(Device::default())
    }
}

impl std::fmt::Display for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Debug for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TpuDevice({self})")
    }
}

/// Returns the number of devices of a type id's platform. It is 0 for the ids of [`TpuDevice::wide`], which are not separate
/// devices.
pub(crate) fn device_count(type_id: u16) -> usize {
    provide_engines();
    Platform::at_position(usize::from(type_id)).map_or(0, Platform::device_count)
}

impl BurnDevice for TpuDevice {
    /// Returns the device with this id; the interpreter's, which always exists, for an unknown type id.
    fn from_id(id: DeviceId) -> Self {
        let (type_id, platforms) = (usize::from(id.type_id), Platform::ALL.len());
        let platform = Platform::at_position(type_id % platforms);
        match (Defaults::ALL.get(type_id / platforms), platform) {
            (Some(&defaults), Some(platform)) => Self(Self::new(platform, id.index_id).0, defaults),
            _ => Self::new(Platform::NdArray, id.index_id),
        }
    }

    /// Returns the device's id. It may differ in a process whose default platform differs.
    fn to_id(&self) -> DeviceId {
        let type_id = self.platform().position() + self.1 as usize * Platform::ALL.len();
        DeviceId { type_id: type_id as u16, index_id: self.index() }
    }
}

impl DeviceOps for TpuDevice {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_a_bijection_and_begin_with_the_default_platform() {
        let mut ids = BTreeSet::new();
        for device in Platform::ALL.map(|platform| TpuDevice::new(platform, 3)) {
            for named in [device, device.wide()] {
                let id = named.to_id();
                let back = TpuDevice::from_id(id);
                assert_eq!((back, back.1 == named.1), (device, true));
                assert!(ids.insert(id.type_id) && id.index_id == 3);
            }
        }
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), (0..14).collect::<Vec<_>>());
        assert_eq!(TpuDevice::from_id(DeviceId { type_id: 0, index_id: 0 }), TpuDevice::default());
        assert_eq!(TpuDevice::from_id(DeviceId { type_id: 99, index_id: 0 }), TpuDevice::ndarray());
    }

    #[test]
    fn a_wide_id_names_the_same_device() {
        let device = TpuDevice::cpu(1);
        assert_eq!((device.wide(), device.wide().to_string()), (device, device.to_string()));
        assert_ne!(device.wide().to_id(), device.to_id());
        assert_eq!(device_count(device.wide().to_id().type_id), 0);
    }

    #[test]
    fn a_slice_keeps_its_name() {
        let device = TpuDevice::topology("v4:2x2").unwrap();
        assert_eq!(TpuDevice::from_id(device.to_id()).to_string(), "v4:2x2x1");
    }
}
