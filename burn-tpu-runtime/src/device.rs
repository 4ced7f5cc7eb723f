//! Device names: a platform and an index. A name costs nothing and loads nothing; the runtime behind it starts at first use.

use burn_backend::{DeviceId, DeviceOps};
use burn_std::device::Device;

/// What a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Platform {
    /// Google TPUs, through libtpu.
    Tpu,
    /// NVIDIA GPUs, through XLA's CUDA plugin.
    Cuda,
    /// The host's processor, through XLA's CPU plugin.
    Cpu,
    /// The host's processor, through burn-ndarray: no plugin needed.
    NdArray,
    /// A TPU slice that need not be attached: programs are compiled for it and never run. See [`TpuDevice::topology`].
    Topology,
}

impl Platform {
    /// Every platform: those that run programs, best first, then the one that does not.
    pub const ALL: [Platform; 5] =
        [Platform::Tpu, Platform::Cuda, Platform::Cpu, Platform::NdArray, Platform::Topology];

    /// The name used in `BURN_TPU_PLATFORM` and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Tpu => "tpu",
            Platform::Cuda => "cuda",
            Platform::Cpu => "cpu",
            Platform::NdArray => "ndarray",
            Platform::Topology => "topology",
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Platform {
    type Err = crate::TpuError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Platform::ALL.into_iter().find(|platform| platform.name() == name);
        known.ok_or_else(|| crate::TpuError::Option {
            name: "platform".into(),
            value: name.into(),
            rule: "is not one of tpu, cuda, cpu, ndarray, topology".into(),
        })
    }
}

/// One device: where tensors live and programs run.
///
/// Naming a device does not check that it exists. A device that is missing answers with an error at the first read or
/// sync; the error says where a plugin was looked for and how to install one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TpuDevice {
    platform: Platform,
    index: u16,
}

impl TpuDevice {
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

    /// The host through burn-ndarray, without any plugin.
    pub const fn ndarray() -> Self {
        Self { platform: Platform::NdArray, index: 0 }
    }

    /// The first device of a TPU slice that need not be attached: `v5e:2x2`, `v4:2x2x1`, `tpu7x:1x1x1` (generations v4, v5e,
    /// v5p, v6e and tpu7x). libtpu compiles for it what is recorded on it; nothing is executed. Results are shapes, an
    /// upload keeps no data, and reading a value is an error, [`TpuError::NoValue`](crate::TpuError::NoValue).
    ///
    /// The same name is the same device. On a machine without a TPU, loading libtpu sets the environment variables that
    /// `docs/fit.md` lists; on a machine with one it sets none.
    ///
    /// # Errors
    /// [`TpuError::Topology`](crate::TpuError::Topology) for a name of another form. Nothing is loaded here: that libtpu
    /// is missing, or knows no slice of these sizes, is reported by the first `sync` or mark step.
    ///
    /// ```
    /// let device = burn_tpu::TpuDevice::topology("v5e:2x2")?;
    /// assert_eq!(device.to_string(), "v5e:2x2");
    /// # Ok::<(), burn_tpu::TpuError>(())
    /// ```
    pub fn topology(name: &str) -> crate::Result<Self> {
        let index = crate::topology::register(name.parse()?)?;
        Ok(Self { platform: Platform::Topology, index })
    }

    /// The device number `index` of a platform. For [`Platform::Topology`] the number is one that [`TpuDevice::topology`] gave.
    pub const fn new(platform: Platform, index: u16) -> Self {
        Self { platform, index }
    }

    /// The same device under an id of its own in Burn's registry of default dtypes, which is kept per device and not per
    /// backend type: through this name, `Tpu<f32>` loads f32 values although the device's default is bf16. Tensors never
    /// carry it.
    pub(crate) const fn wide(self) -> Self {
        Self { platform: self.platform, index: self.index | WIDE }
    }

    /// The device without the mark of [`TpuDevice::wide`].
    pub(crate) const fn canonical(self) -> Self {
        Self { platform: self.platform, index: self.index & !WIDE }
    }

    /// What the device runs on.
    pub const fn platform(self) -> Platform {
        self.platform
    }

    /// The device's number on its platform.
    pub const fn index(self) -> u16 {
        self.index & !WIDE
    }
}

/// The mark of [`TpuDevice::wide`] in an index.
pub(crate) const WIDE: u16 = 1 << 15;

impl Default for TpuDevice {
    /// The best device present: TPU, CUDA, CPU plugin, burn-ndarray. `BURN_TPU_PLATFORM` picks the platform instead.
    ///
    /// The answer is found once per process. When only burn-ndarray is left, one warning says how to install a plugin.
    fn default() -> Self {
        crate::runtime::default_device()
    }
}

impl std::fmt::Display for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.platform, crate::topology::described(self.index())) {
            (Platform::Topology, Some(crate::topology::Described::Slice(topology))) => topology.fmt(f),
            _ => write!(f, "{}:{}", self.platform, self.index),
        }
    }
}

impl std::fmt::Debug for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TpuDevice({self})")
    }
}

impl Device for TpuDevice {
    /// Unknown type ids name burn-ndarray, the platform that is always there.
    fn from_id(id: DeviceId) -> Self {
        let platform = Platform::ALL.get(usize::from(id.type_id)).copied().unwrap_or(Platform::NdArray);
        Self { platform, index: id.index_id }
    }

    fn to_id(&self) -> DeviceId {
        DeviceId { type_id: self.platform as u16, index_id: self.index }
    }
}

impl DeviceOps for TpuDevice {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_bijections() {
        for platform in Platform::ALL {
            let device = TpuDevice::new(platform, 3);
            assert_eq!(TpuDevice::from_id(device.to_id()), device);
            assert_eq!(platform.name().parse::<Platform>().ok(), Some(platform));
        }
        assert!("gpu".parse::<Platform>().is_err());
    }

    #[test]
    fn a_slice_has_one_number_and_keeps_its_name() {
        let device = TpuDevice::topology("v4:2x2").unwrap();
        assert_eq!(TpuDevice::topology("v4:2x2x1").unwrap(), device);
        assert_ne!(TpuDevice::topology("v5e:2x2").unwrap(), device);
        assert_eq!(TpuDevice::from_id(device.to_id()).to_string(), "v4:2x2x1");
        assert!(TpuDevice::topology("v4").is_err());
    }
}
