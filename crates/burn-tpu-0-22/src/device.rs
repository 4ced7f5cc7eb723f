//! Burn's device type: the runtime's device, and the element types that a client of it starts with.

use crate::{Mesh, Platform, TpuError};
use burn_backend::{DeviceId, DeviceOps};
use burn_std::device::Device as BurnDevice;
use burn_std::quantization::{QuantConfig, QuantScheme, QuantStore};
use burn_std::{BoolDType, DeviceSettings, FloatDType, IntDType};
use burn_tpu_runtime::Device;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// One device: where tensors live and programs run. It has the methods of [`Device`], such as `sync` and `metrics`, and
/// it is a device of Burn where the slot is (`docs/from-burn-0.22.md`):
/// `burn::tensor::Device::from(TpuDevice::tpu(1))`.
///
/// Creating this value neither checks that the device exists nor starts it. If the device is missing, the first read or
/// sync returns an error, which lists where a plugin was searched for and how to install one.
///
/// ```
/// use burn_backend::DeviceOps;
/// use burn_std::FloatDType;
/// use burn_tpu_0_22::TpuDevice;
/// let device = TpuDevice::cpu(0).with_default_float(FloatDType::BF16);
/// assert_eq!((device.to_string(), device.defaults().float_dtype), ("cpu:0".into(), FloatDType::BF16));
/// ```
#[derive(Clone, Copy)]
pub struct TpuDevice(pub(crate) Place, Option<FloatDType>);

/// A device that was named, or the best one present, which is looked for at its first use.
#[derive(Clone, Copy)]
pub(crate) struct Place(Option<Device>);

impl std::ops::Deref for Place {
    type Target = Device;

    fn deref(&self) -> &Device {
        static BEST: OnceLock<Device> = OnceLock::new();
        match &self.0 {
            Some(device) => device,
            None => BEST.get_or_init(Device::default),
        }
    }
}

/// The float types that a device may prefer, in the order of their ids. The first id is that of the devices of tensors.
const FLOATS: [Option<FloatDType>; 5] =
    [None, Some(FloatDType::F32), Some(FloatDType::BF16), Some(FloatDType::F16), Some(FloatDType::F64)];

impl TpuDevice {
    /// The best device present, in this order: TPU, CUDA, CPU plugin, interpreter. It is looked for at its first use,
    /// as [`Device::default`] does it.
    pub const BEST: Self = Self(Place(None), None);

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

    /// Returns the host, which runs programs in the interpreter, without any plugin.
    pub const fn ndarray() -> Self {
        Self::of(Device::ndarray())
    }

    /// Returns the first device of a TPU slice that need not be attached, such as `v5e:2x2`: libtpu compiles what is
    /// recorded on it, and nothing is executed. See [`Device::topology`].
    ///
    /// # Errors
    /// [`TpuError::Topology`] for a name of another form.
    pub fn topology(name: &str) -> Result<Self, TpuError> {
        Device::topology(name).map(Self::of)
    }

    /// Returns many chips as one device, which XLA's partitioner splits every program over. See [`Device::mesh`].
    pub fn mesh(mesh: Mesh) -> Self {
        Self::of(Device::mesh(mesh))
    }

    const fn of(device: Device) -> Self {
        Self(Place(Some(device)), None)
    }

    /// Returns the same device with a default float type of its own: that of a tensor for which a program names none. A
    /// server tells it to its clients. It is f32 at first, as for Burn's other backends; `Flex32` counts as f32.
    ///
    /// Burn knows default types by a device's id, and this device has another id than the device of its tensors. A
    /// program in process configures that one instead: `burn::tensor::Device::from(tpu).configure(FloatDType::BF16)`.
    pub const fn with_default_float(self, float: FloatDType) -> Self {
        let float = if matches!(float, FloatDType::Flex32) { FloatDType::F32 } else { float };
        Self(self.0, Some(float))
    }
}

impl From<Device> for TpuDevice {
    fn from(device: Device) -> Self {
        Self::of(device)
    }
}

impl From<TpuDevice> for Device {
    fn from(device: TpuDevice) -> Self {
        *device
    }
}

impl std::ops::Deref for TpuDevice {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0
    }
}

impl AsRef<Device> for TpuDevice {
    fn as_ref(&self) -> &Device {
        self
    }
}

/// Compares the devices alone, whatever they prefer.
impl PartialEq for TpuDevice {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for TpuDevice {}

impl Hash for TpuDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Default for TpuDevice {
    /// Returns [`TpuDevice::BEST`].
    fn default() -> Self {
        Self::BEST
    }
}

impl std::fmt::Display for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl std::fmt::Debug for TpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TpuDevice({self})")
    }
}

/// Returns the number of devices of a type id's platform. It is 0 for the ids of devices with a default type of their
/// own, which are not separate devices.
pub(crate) fn device_count(type_id: u16) -> usize {
    Platform::at_position(usize::from(type_id)).map_or(0, Platform::device_count)
}

impl BurnDevice for TpuDevice {
    /// Returns the device with this id; the interpreter's, which always exists, for an unknown type id.
    fn from_id(id: DeviceId) -> Self {
        let (type_id, platforms) = (usize::from(id.type_id), Platform::ALL.len());
        let platform = Platform::at_position(type_id % platforms);
        match (FLOATS.get(type_id / platforms), platform) {
            (Some(&float), Some(platform)) => Self(Place(Some(Device::new(platform, id.index_id))), float),
            _ => Device::new(Platform::NdArray, id.index_id).into(),
        }
    }

    /// Returns the device's id. It may differ in a process whose default platform differs.
    fn to_id(&self) -> DeviceId {
        let float = FLOATS.iter().position(|&float| float == self.1).unwrap_or(0);
        let type_id = self.platform().position() + float * Platform::ALL.len();
        DeviceId { type_id: type_id as u16, index_id: self.index() }
    }
}

impl DeviceOps for TpuDevice {
    /// Returns the default element types: floats as [`TpuDevice::with_default_float`] says, i32, and native bools.
    fn defaults(&self) -> DeviceSettings {
        // XLA cannot pack smaller values into words.
        let scheme = QuantScheme::default().with_store(QuantStore::Native);
        let quantization = QuantConfig::new(scheme, Default::default());
        DeviceSettings::new(self.1.unwrap_or(FloatDType::F32), IntDType::I32, BoolDType::Native, quantization)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_a_bijection_and_begin_with_the_default_platform() {
        let mut ids = BTreeSet::new();
        for device in Platform::ALL.map(|platform| TpuDevice::from(Device::new(platform, 3))) {
            for named in FLOATS.map(|float| TpuDevice(device.0, float)) {
                let id = named.to_id();
                let back = TpuDevice::from_id(id);
                assert_eq!((back, back.defaults()), (device, named.defaults()));
                assert!(ids.insert(id.type_id) && id.index_id == 3);
            }
        }
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), (0..35).collect::<Vec<_>>());
        assert_eq!(TpuDevice::from_id(DeviceId { type_id: 0, index_id: 0 }), TpuDevice::default());
        assert_eq!(TpuDevice::from_id(DeviceId { type_id: 99, index_id: 0 }), Device::ndarray().into());
    }
}
