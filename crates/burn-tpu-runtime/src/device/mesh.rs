//! Descriptions of meshes, and the registry that gives each one a device number.
//!
//! Owns: the names and sizes of the axes as the user gave them, which chips, which axes split batches. May not know:
//! plugins, programs. Nothing is checked here but the grammar: the first use of a mesh reports what does not exist.

use super::Platform;
use crate::error::{Result, TpuError};
use burn_tpu_graph::{Axis, Mesh as Axes};
use parking_lot::RwLock;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// The names that split batches, if [`Mesh::batch_axes`] names none.
const BATCH_AXES: [&str; 6] = ["slice", "replica", "data", "batch", "fsdp", "expert"];

/// The number of devices along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Size {
    Of(usize),
    /// All devices that there are.
    All,
}

/// Many chips as one device: named axes of chips.
///
/// To a program, a mesh is one device: tensors have their global shapes, and a step is one program. XLA's partitioner splits
/// the program over the chips and inserts the communication. The chips are numbered row-major: neighbours differ in the last
/// axis, which is therefore the place for the axis that communicates most.
///
/// ```
/// use burn_tpu_runtime::{Device, Mesh};
/// let mesh = Mesh::new().axis("data", 4).axis("model", 2);
/// assert_eq!(mesh.to_string(), "data=4,model=2");
/// assert_eq!("data=4,model=2".parse::<Mesh>()?, mesh);
/// let device = Device::mesh(mesh);
/// assert_eq!(device.to_string(), "mesh(data=4,model=2)");
/// # Ok::<(), burn_tpu_runtime::TpuError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mesh {
    axes: Vec<(String, Size)>,
    platform: Option<Platform>,
    devices: Option<Vec<u16>>,
    batch: Option<Vec<String>>,
}

impl Mesh {
    /// Returns a mesh without axes. Add one at least.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a mesh of one axis over all chips of the platform.
    pub fn all(name: impl Into<String>) -> Self {
        Self { axes: vec![(name.into(), Size::All)], ..Self::default() }
    }

    /// Adds an axis after those that there are. Its name consists of letters, digits and `_`.
    pub fn axis(mut self, name: impl Into<String>, size: usize) -> Self {
        self.axes.push((name.into(), Size::Of(size)));
        self
    }

    /// Chooses the platform of the chips. The default is that of [`Device::default`](crate::Device::default).
    pub fn on(mut self, platform: Platform) -> Self {
        self.platform = Some(platform);
        self
    }

    /// Chooses the chips by their numbers, in mesh order. The default is the first ones of the platform.
    pub fn devices(mut self, indices: impl IntoIterator<Item = u16>) -> Self {
        self.devices = Some(indices.into_iter().collect());
        self
    }

    /// Names the axes that split batches. The default is those called `slice`, `replica`, `data`, `batch`, `fsdp` or
    /// `expert`.
    pub fn batch_axes<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.batch = Some(names.into_iter().map(Into::into).collect());
        self
    }

    pub(crate) fn platform(&self) -> Option<Platform> {
        self.platform
    }

    /// Returns the numbers of the chips, of a platform with `count` of them.
    pub(crate) fn indices(&self, axes: &Axes, count: usize) -> Result<Vec<u16>> {
        let needed = axes.devices();
        let indices = self.devices.clone().unwrap_or_else(|| (0..needed.min(count) as u16).collect());
        let mut sorted = indices.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if indices.len() != needed || sorted.len() != needed {
            let have = self.devices.as_ref().map_or(count, |_| sorted.len());
            return Err(self.error(format!("needs {needed} devices, and there are {have}")));
        }
        match indices.iter().find(|&&index| usize::from(index) >= count) {
            Some(index) => Err(self.error(format!("names device {index} of {count}"))),
            None => Ok(indices),
        }
    }

    /// Returns the number of devices that the sizes ask for; `None` if they ask for all.
    pub fn size(&self) -> Option<usize> {
        let sizes = self.axes.iter().map(|(_, size)| match size {
            Size::Of(size) => Some(*size),
            Size::All => None,
        });
        sizes.product::<Option<usize>>().or(self.devices.as_ref().map(Vec::len))
    }

    /// Returns the names of the axes, in their order.
    pub fn names(&self) -> Vec<&str> {
        self.axes.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the names of the axes that split batches.
    pub fn batch_names(&self) -> Vec<&str> {
        match &self.batch {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => self.names().into_iter().filter(|name| BATCH_AXES.contains(name)).collect(),
        }
    }

    /// Returns the axes with their sizes, on a platform with `count` devices.
    pub(crate) fn resolve(&self, count: usize) -> Result<Axes> {
        let all = self.devices.as_ref().map_or(count, Vec::len);
        let size = |size: &Size| match *size {
            Size::Of(size) => size,
            Size::All => all,
        };
        let axes: Vec<_> = self.axes.iter().map(|(name, given)| (name.clone(), size(given))).collect();
        Axes::new(&axes).map_err(|rule| self.error(rule))
    }

    /// Returns the axes that split batches.
    pub(crate) fn batch(&self) -> Result<Vec<Axis>> {
        self.batch_names().into_iter().map(|name| self.axis_named(name)).collect()
    }

    /// Returns the position of an axis.
    ///
    /// # Errors
    /// [`TpuError::Mesh`] with the axes that there are.
    pub(crate) fn axis_named(&self, name: &str) -> Result<Axis> {
        let position = self.axes.iter().position(|(known, _)| known == name);
        position.map(|position| position as Axis).ok_or_else(|| self.error(format!("has no axis {name:?}")))
    }

    pub(crate) fn error(&self, rule: impl Into<String>) -> TpuError {
        TpuError::Mesh { mesh: self.to_string(), rule: rule.into() }
    }
}

impl Display for Mesh {
    /// Writes `data=4,model=2`; the chips that were chosen follow: `on cpu[4, 5]`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (i, (name, size)) in self.axes.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            match size {
                Size::Of(size) => write!(f, "{name}={size}")?,
                Size::All => f.write_str(name)?,
            }
        }
        match (&self.platform, &self.devices) {
            (None, None) => Ok(()),
            (Some(platform), None) => write!(f, " on {platform}"),
            (None, Some(devices)) => write!(f, " on {devices:?}"),
            (Some(platform), Some(devices)) => write!(f, " on {platform}{devices:?}"),
        }
    }
}

impl FromStr for Mesh {
    type Err = TpuError;

    /// Parses `data=4,model=2`; a name without a size stands for all chips.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = |rule: &str| TpuError::Mesh { mesh: text.into(), rule: rule.into() };
        let mut mesh = Self::new();
        for part in text.split(',').map(str::trim) {
            let (name, size) = match part.split_once('=') {
                None => (part, Size::All),
                Some((name, size)) => {
                    let size = size.trim().parse().map_err(|_| invalid("is not NAME=SIZE,… such as data=4,model=2"))?;
                    (name.trim(), Size::Of(size))
                }
            };
            mesh.axes.push((name.into(), size));
        }
        if mesh.axes.len() > 1 && mesh.axes.iter().any(|(_, size)| *size == Size::All) {
            return Err(invalid("has an axis without a size beside others"));
        }
        // The sizes are checked with any number of devices in place of all.
        mesh.resolve(1)?;
        Ok(mesh)
    }
}

/// The meshes by device number. Entries are never removed.
static REGISTRY: RwLock<Vec<Mesh>> = RwLock::new(Vec::new());

/// Returns the device number of a mesh, which is the same at every call.
pub(super) fn register(mesh: Mesh) -> u16 {
    let mut registry = REGISTRY.write();
    let known = registry.iter().position(|known| *known == mesh);
    let index = known.unwrap_or(registry.len());
    match u16::try_from(index) {
        Ok(number) if known.is_none() => {
            registry.push(mesh);
            number
        }
        Ok(number) => number,
        // The number of no mesh: its first use is an error.
        Err(_) => u16::MAX,
    }
}

/// Returns the mesh of a device number, if it was registered.
pub(super) fn described(index: u16) -> Option<Mesh> {
    REGISTRY.read().get(usize::from(index)).cloned()
}

/// Returns the number of registered meshes.
pub(super) fn count() -> usize {
    REGISTRY.read().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_parse_and_print() {
        for text in ["data=8", "data=4,model=2", "data"] {
            assert_eq!(text.parse::<Mesh>().unwrap().to_string(), text);
        }
        assert_eq!(" data = 4 , model=2 ".parse::<Mesh>().unwrap(), Mesh::new().axis("data", 4).axis("model", 2));
        let chosen = Mesh::new().axis("data", 2).on(Platform::Cpu).devices([4, 5]);
        assert_eq!(chosen.to_string(), "data=2 on cpu[4, 5]");
        for (text, part) in [("", "letters"), ("data=x", "NAME=SIZE"), ("a,b=2", "beside"), ("a=0", "no devices")] {
            let error = text.parse::<Mesh>().unwrap_err();
            assert!(matches!(error, TpuError::Mesh { .. }) && error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn devices_are_chosen_and_counted() {
        let indices = |mesh: &Mesh, count: usize| mesh.indices(&mesh.resolve(count)?, count);
        assert_eq!(indices(&Mesh::all("data"), 3).unwrap(), [0, 1, 2]);
        assert_eq!(indices(&Mesh::new().axis("data", 2), 3).unwrap(), [0, 1]);
        assert_eq!(indices(&Mesh::all("data").devices([2, 0]), 3).unwrap(), [2, 0]);
        let refused = [
            (Mesh::new().axis("data", 4), "needs 4 devices, and there are 3"),
            (Mesh::new().axis("data", 2).devices([0]), "needs 2 devices, and there are 1"),
            (Mesh::new().axis("data", 2).devices([1, 1]), "needs 2 devices, and there are 1"),
            (Mesh::new().axis("data", 2).devices([1, 3]), "names device 3 of 3"),
            (Mesh::new(), "1 to 255 axes"),
        ];
        for (mesh, part) in refused {
            let error = indices(&mesh, 3).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn batches_are_split_over_the_axes_that_are_named_for_it() {
        let mesh = Mesh::new().axis("data", 2).axis("model", 2).axis("fsdp", 2);
        assert_eq!(mesh.batch().unwrap(), [0, 2]);
        assert_eq!(mesh.clone().batch_axes(["model"]).batch().unwrap(), [1]);
        let error = mesh.batch_axes(["rows"]).batch().unwrap_err().to_string();
        assert!(error.contains("has no axis \"rows\""), "{error}");
    }

    #[test]
    fn one_mesh_has_one_number() {
        let mesh = || Mesh::new().axis("numbered", 3);
        let number = register(mesh());
        assert_eq!((register(mesh()), described(number)), (number, Some(mesh())));
        assert_ne!(register(mesh().on(Platform::Cpu)), number);
    }
}
