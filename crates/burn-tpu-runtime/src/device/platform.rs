//! What devices run on: the names of platforms.

use crate::error::{Result, TpuError};

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
    /// A TPU slice that need not be attached: programs are compiled for it and never run. See
    /// [`Device::topology`](crate::Device::topology).
    Topology,
    /// Many chips of another platform as one device. See [`Device::mesh`](crate::Device::mesh).
    Mesh,
    /// What the crate `xla` (xla-rs) runs programs on. Its engine is the crate `burn-tpu-xla`, which `burn-tpu` has with its
    /// feature `xla-rs`.
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
}
