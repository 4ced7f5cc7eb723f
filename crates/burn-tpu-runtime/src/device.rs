//! Device names: a platform and an index. A name costs nothing and loads nothing; the runtime of a device starts at its
//! first use.

use crate::activity::Activity;
use crate::error::{Result, TpuError};
use crate::memory::MemoryReport;
use crate::mesh::Mesh;
use crate::metrics::{CutReason, Metrics};
use crate::runtime::{registry, runtime};
use crate::trace;

/// What a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Platform {
    /// Google TPUs, through libtpu.
    Tpu,
    /// NVIDIA GPUs, through XLA's CUDA plugin.
    Cuda,
    /// The host's processor, through XLA's CPU plugin.
    Cpu,
    /// The host's processor, through the interpreter: no plugin needed.
    NdArray,
    /// A TPU slice that need not be attached: programs are compiled for it and never run. See [`Device::topology`].
    Topology,
    /// Many chips of another platform as one device. See [`Device::mesh`].
    Mesh,
    /// What the crate `xla` (xla-rs) runs programs on, by an engine that the program registers: see
    /// [`register`](crate::register).
    XlaRs,
}

impl Platform {
    /// Every platform: those that run programs, best first, then the one that does not, meshes of others, and the one whose
    /// engine another crate has.
    pub const ALL: [Platform; 7] = [
        Platform::Tpu,
        Platform::Cuda,
        Platform::Cpu,
        Platform::NdArray,
        Platform::Topology,
        Platform::Mesh,
        Platform::XlaRs,
    ];

    /// The name used in `BURN_TPU_PLATFORM` and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Tpu => "tpu",
            Platform::Cuda => "cuda",
            Platform::Cpu => "cpu",
            Platform::NdArray => "ndarray",
            Platform::Topology => "topology",
            Platform::Mesh => "mesh",
            Platform::XlaRs => "xla-rs",
        }
    }

    /// Returns whether the platform's hardware seems to be present, without loading a plugin. The host's processor always is.
    pub fn is_present(self) -> bool {
        crate::engine::is_present(self)
    }

    /// Returns the platform's place in an order for type ids: the platform of `Device::default()` is 0, since programs use
    /// type id 0, and the others follow in the order of [`Platform::ALL`].
    pub fn position(self) -> usize {
        let (first, place) = (Device::default().platform() as usize, self as usize);
        match place.cmp(&first) {
            std::cmp::Ordering::Less => place + 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => place,
        }
    }

    /// Returns the platform at a place: the inverse of [`Platform::position`].
    pub fn at_position(position: usize) -> Option<Platform> {
        let first = Device::default().platform() as usize;
        let place = match position {
            0 => first,
            position if position <= first => position - 1,
            position => position,
        };
        Platform::ALL.get(place).copied()
    }

    /// Returns the number of devices of a platform that has been opened; 1 for the interpreter, and for an engine of another
    /// crate that is registered.
    pub fn device_count(self) -> usize {
        crate::engine::device_count(self)
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Platform {
    type Err = TpuError;

    fn from_str(name: &str) -> Result<Self> {
        let known = Platform::ALL.into_iter().find(|platform| platform.name() == name);
        known.ok_or_else(|| TpuError::Option {
            name: "platform".into(),
            value: name.into(),
            rule: "is not one of tpu, cuda, cpu, ndarray, topology, mesh, xla-rs".into(),
        })
    }
}

/// One device: where tensors live and programs run.
///
/// Naming a device does not check that it exists. A device that is missing answers with an error at the first read or
/// sync; the error says where a plugin was looked for and how to install one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    platform: Platform,
    index: u16,
}

impl Device {
    /// The TPU core or chip number `index` of this host.
    pub const fn tpu(index: u16) -> Self {
        Self { platform: Platform::Tpu, index }
    }

    /// The NVIDIA GPU number `index` of this host.
    pub const fn cuda(index: u16) -> Self {
        Self { platform: Platform::Cuda, index }
    }

    /// The device number `index` of XLA's CPU plugin. There is one unless
    /// [`TpuOptions::cpu_devices`](crate::TpuOptions::cpu_devices) asks for more.
    pub const fn cpu(index: u16) -> Self {
        Self { platform: Platform::Cpu, index }
    }

    /// The host through the interpreter, without any plugin.
    pub const fn ndarray() -> Self {
        Self { platform: Platform::NdArray, index: 0 }
    }

    /// The device number `index` of the client of the crate `xla`, whose engine the program has to
    /// [register](crate::register). There is one.
    pub const fn xla_rs(index: u16) -> Self {
        Self { platform: Platform::XlaRs, index }
    }

    /// The first device of a TPU slice that need not be attached: `v5e:2x2`, `v4:2x2x1`, `tpu7x:1x1x1` (generations v4, v5e,
    /// v5p, v6e and tpu7x). libtpu compiles for it what is recorded on it; nothing is executed. Results are shapes, an
    /// upload keeps no data, and reading a value is an error, [`TpuError::NoValue`].
    ///
    /// The same name is the same device. On a machine without a TPU, loading libtpu sets the environment variables that
    /// `docs/fit.md` lists; on a machine with one it sets none.
    ///
    /// # Errors
    /// [`TpuError::Topology`] for a name of another form. Nothing is loaded here: that libtpu is missing, or knows no slice
    /// of these sizes, is reported by the first `sync` or mark step.
    ///
    /// ```
    /// let device = burn_tpu_runtime::Device::topology("v5e:2x2")?;
    /// assert_eq!(device.to_string(), "v5e:2x2");
    /// # Ok::<(), burn_tpu_runtime::TpuError>(())
    /// ```
    pub fn topology(name: &str) -> Result<Self> {
        let index = crate::topology::register(name.parse()?, None)?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// Many chips as one device, which XLA's partitioner splits every program over. The same mesh is the same device.
    ///
    /// Nothing is loaded or checked here: that there are fewer chips, or that an axis has no valid name, is reported by the
    /// first `sync` or read, as [`TpuError::Mesh`].
    pub fn mesh(mesh: Mesh) -> Self {
        Self { platform: Platform::Mesh, index: crate::mesh::register(mesh) }
    }

    /// A mesh of all devices of a TPU slice that need not be attached. See [`Device::topology`] and [`Device::mesh`]; the
    /// mesh's platform and chips are those of the slice.
    ///
    /// # Errors
    /// [`TpuError::Topology`] for a name of another form.
    pub fn topology_mesh(name: &str, mesh: Mesh) -> Result<Self> {
        let index = crate::topology::register(name.parse()?, Some(mesh))?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// The mesh of a device of many chips; `None` for a device of one.
    pub fn as_mesh(self) -> Option<Mesh> {
        match self.platform {
            Platform::Mesh => crate::mesh::described(self.index),
            Platform::Topology => crate::topology::described(self.index)?.mesh().cloned(),
            Platform::Tpu | Platform::Cuda | Platform::Cpu | Platform::NdArray | Platform::XlaRs => None,
        }
    }

    /// The device number `index` of a platform. For [`Platform::Topology`] and [`Platform::Mesh`] the number is one that
    /// [`Device::topology`] or [`Device::mesh`] gave.
    pub const fn new(platform: Platform, index: u16) -> Self {
        Self { platform, index }
    }

    /// What the device runs on.
    pub const fn platform(self) -> Platform {
        self.platform
    }

    /// The device's number on its platform.
    pub const fn index(self) -> u16 {
        self.index
    }

    /// Runs everything that the calling thread has recorded on the device as one program, without waiting for it.
    ///
    /// The end of a training step is the place for it: with all of a step in one program, XLA fuses across its ops and
    /// nothing but the step's results is kept.
    pub fn mark_step(self) {
        trace::mark_step(self);
    }

    /// Runs what the calling thread has recorded as one program, without waiting for it.
    ///
    /// # Errors
    /// Why the program was refused; its work stays recorded.
    pub fn flush(self) -> Result<()> {
        trace::cut(self, CutReason::MarkStep)
    }

    /// Runs what the calling thread has recorded and waits for all that the device was given. Afterwards the device is open:
    /// a plugin that waited for its first program is loaded.
    ///
    /// # Errors
    /// Those of [`Device::wait`], and the device's own error if it cannot be opened.
    pub fn sync(self) -> Result<()> {
        self.wait().and_then(|()| runtime(self).engine()?.open())
    }

    /// Runs what the calling thread has recorded and waits for all that the device was given.
    ///
    /// # Errors
    /// The device's own error when it did not start; that of a program that was refused, whose work stays recorded, or that
    /// failed while it ran; [`TpuError::Index`] where computed indices are checked, and [`TpuError::NotFinite`] where NaN and
    /// infinities are.
    pub fn wait(self) -> Result<()> {
        let cut = trace::cut(self, CutReason::Sync);
        cut.and(runtime(self).wait()).and_then(|()| runtime(self).deferred_errors())
    }

    /// Returns what the device has done since it started: all zeros for one that was not used yet, which this does not
    /// start. Print it for a report.
    pub fn metrics(self) -> Metrics {
        registry::metrics(self)
    }

    /// Returns what the device does at this moment: the programs in flight, and what this process's threads wait for. It
    /// neither starts the device nor waits for it. Print it to see why nothing goes on.
    pub fn activity(self) -> Activity {
        registry::activity(self)
    }

    /// Returns what the device's memory holds, by what it is, with the largest tensors and the lines that made them. It
    /// neither starts the device nor waits for it: a tensor that is recorded and not computed takes no memory yet. Print it
    /// for a table.
    pub fn memory(self) -> MemoryReport {
        registry::memory(self)
    }

    /// Makes every later compile on the device an error, [`TpuError::Frozen`], which says what differs and where. The work
    /// of a refused program stays recorded, and its tensors keep their values: after [`Device::unfreeze`] it runs.
    ///
    /// Freeze a training or serving loop once it is warm: from then on, nothing can stop for a compile unnoticed. A device
    /// that was not used yet is frozen from its start.
    pub fn freeze(self) {
        registry::freeze(self, true);
    }

    /// Ends [`Device::freeze`].
    pub fn unfreeze(self) {
        registry::freeze(self, false);
    }

    /// Returns the identities of the programs in the device's cache, ascending. Two runs that recorded the same programs
    /// give the same list. It is empty for a device that was not used yet.
    pub fn program_keys(self) -> Vec<u64> {
        registry::program_keys(self)
    }

    /// Evicts every compiled program of the device from memory.
    pub fn clear_programs(self) {
        if let Some(runtime) = registry::running(self) {
            runtime.cache().clear();
        }
    }

    /// Starts the device's random numbers anew from a seed.
    pub fn seed(self, seed: u64) {
        registry::seed(self, seed);
    }

    /// Returns the key and the counter of the device's next random draw. Starts the device.
    pub fn next_draw(self) -> (u64, u64) {
        runtime(self).next_draw()
    }

    /// Makes the device's next random draw begin at a key and a counter. Starts the device.
    pub fn draw_from(self, next: (u64, u64)) {
        runtime(self).draw_from(next);
    }
}

/// Ends a training step: runs what the calling thread has recorded on any device. What was recorded before the step and
/// the step does not use runs as programs of its own, so that the step is the same program every time.
pub fn end_step() {
    trace::end_step();
}

impl AsRef<Device> for Device {
    fn as_ref(&self) -> &Device {
        self
    }
}

impl Default for Device {
    /// The best device present: TPU, CUDA, CPU plugin, interpreter. `BURN_TPU_PLATFORM` picks the platform instead, and
    /// `BURN_TPU_MESH` makes a mesh of its chips.
    ///
    /// The answer is found once per process. When only the interpreter is left, one warning says how to install a plugin.
    fn default() -> Self {
        crate::runtime::default_device()
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use crate::topology::{Described, described};
        let mesh = self.as_mesh();
        match (self.platform, described(self.index), &mesh) {
            (Platform::Topology, Some(Described::Slice(topology, _)), _) => topology.fmt(f)?,
            (Platform::Mesh, _, Some(_)) => {}
            (platform, ..) => write!(f, "{platform}:{}", self.index)?,
        }
        mesh.map_or(Ok(()), |mesh| write!(f, "mesh({mesh})"))
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_names_are_a_bijection() {
        for platform in Platform::ALL {
            assert_eq!(platform.name().parse::<Platform>().ok(), Some(platform));
        }
        assert!("gpu".parse::<Platform>().is_err());
    }

    #[test]
    fn a_slice_has_one_number_and_keeps_its_name() {
        let device = Device::topology("v4:2x2").unwrap();
        assert_eq!(Device::topology("v4:2x2x1").unwrap(), device);
        assert_ne!(Device::topology("v5e:2x2").unwrap(), device);
        assert_eq!(Device::new(Platform::Topology, device.index()).to_string(), "v4:2x2x1");
        assert!(Device::topology("v4").is_err());
    }
}
