//! Device names: a platform and an index, and the meshes and TPU slices that an index refers to.
//!
//! A name costs nothing and loads nothing; the runtime of a device starts at its first use. May not know: engines, runtimes,
//! what is recorded.

mod mesh;
mod platform;
mod recorded;
mod topology;

pub use mesh::Mesh;
pub use platform::Platform;
pub use recorded::NamedValues;
pub(crate) use recorded::RecordedPrograms;
pub(crate) use topology::Described;
pub use topology::{Generation, Topology};

use crate::error::Result;
#[cfg(doc)]
use crate::error::TpuError;

/// Returns the number of meshes or of slices that were described.
pub(crate) fn described_devices(platform: Platform) -> usize {
    match platform {
        Platform::Mesh => mesh::count(),
        Platform::Topology => topology::count(),
        Platform::Tpu | Platform::Cuda | Platform::Cpu | Platform::NdArray | Platform::XlaRs => 0,
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

    /// The device number `index` of the client of the crate `xla`. There is one, in a program that has its engine.
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
        let index = topology::register(name.parse()?, None)?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// Many chips as one device, which XLA's partitioner splits every program over. The same mesh is the same device.
    ///
    /// Nothing is loaded or checked here: that there are fewer chips, or that an axis has no valid name, is reported by the
    /// first `sync` or read, as [`TpuError::Mesh`].
    pub fn mesh(mesh: Mesh) -> Self {
        Self { platform: Platform::Mesh, index: mesh::register(mesh) }
    }

    /// A mesh of all devices of a TPU slice that need not be attached. See [`Device::topology`] and [`Device::mesh`]; the
    /// mesh's platform and chips are those of the slice.
    ///
    /// # Errors
    /// [`TpuError::Topology`] for a name of another form.
    pub fn topology_mesh(name: &str, mesh: Mesh) -> Result<Self> {
        let index = topology::register(name.parse()?, Some(mesh))?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// The mesh of a device of many chips; `None` for a device of one.
    pub fn as_mesh(self) -> Option<Mesh> {
        match self.platform {
            Platform::Mesh => mesh::described(self.index),
            Platform::Topology => topology::described(self.index)?.mesh().cloned(),
            Platform::Tpu | Platform::Cuda | Platform::Cpu | Platform::NdArray | Platform::XlaRs => None,
        }
    }

    /// Returns a new device whose programs are recorded in a list, and neither compiled nor run.
    ///
    /// # Errors
    /// [`TpuError::Topology`] if no number is left.
    pub(crate) fn recording(programs: RecordedPrograms, mesh: Option<Mesh>) -> Result<Self> {
        let index = topology::register_recording(programs, mesh)?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// Returns whether labels of the device's ops name the lines that recorded them.
    pub(crate) fn names_lines(self) -> bool {
        matches!(self.described(), Some(Described::Recording(programs, _)) if programs.names_lines())
    }

    /// Returns what programs are compiled for or recorded in, for a device of [`Platform::Topology`].
    pub(crate) fn described(self) -> Option<Described> {
        topology::described(self.index).filter(|_| self.platform == Platform::Topology)
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
}

impl AsRef<Device> for Device {
    fn as_ref(&self) -> &Device {
        self
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mesh = self.as_mesh();
        match (self.platform, topology::described(self.index), &mesh) {
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
    fn a_slice_has_one_number_and_keeps_its_name() {
        let device = Device::topology("v4:2x2").unwrap();
        assert_eq!(Device::topology("v4:2x2x1").unwrap(), device);
        assert_ne!(Device::topology("v5e:2x2").unwrap(), device);
        assert_eq!(Device::new(Platform::Topology, device.index()).to_string(), "v4:2x2x1");
        assert!(Device::topology("v4").is_err());
    }
}
