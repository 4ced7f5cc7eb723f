//! Meshes of devices, and shardings: how a tensor's dims are split over a mesh's axes.
//!
//! Owns: the axes, which part of a tensor each device has, and the rule that parts are equal. May not know: which devices
//! there are, or what a program does with a tensor.

use crate::TensorType;
use smallvec::SmallVec;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// The position of an axis among those of its mesh.
pub type Axis = u8;

/// The axes that split one dim, outermost first; empty if the dim is whole on every device.
pub type DimAxes = SmallVec<[Axis; 2]>;

/// Named axes of devices. Devices are numbered row-major: neighbours differ in the last axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mesh {
    axes: Arc<[(String, usize)]>,
}

impl Mesh {
    /// A mesh with these axes: name and number of devices.
    ///
    /// # Errors
    /// Without axes, with more than 255, with an axis of no devices, or with a name that is empty, repeated, or has
    /// characters other than letters, digits and `_`.
    pub fn new(axes: &[(String, usize)]) -> Result<Self, String> {
        if axes.is_empty() || axes.len() > usize::from(Axis::MAX) {
            return Err(format!("a mesh has 1 to {} axes, not {}", Axis::MAX, axes.len()));
        }
        for (i, (name, size)) in axes.iter().enumerate() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(format!("the axis name {name:?} must be letters, digits and `_`"));
            }
            if axes[..i].iter().any(|(other, _)| other == name) {
                return Err(format!("there are two axes {name:?}"));
            }
            if *size == 0 {
                return Err(format!("the axis {name:?} has no devices"));
            }
        }
        let count = axes.iter().try_fold(1usize, |product, (_, size)| product.checked_mul(*size));
        match count.filter(|&count| i32::try_from(count).is_ok()) {
            Some(_) => Ok(Self { axes: axes.into() }),
            None => Err("a mesh cannot have so many devices".to_owned()),
        }
    }

    /// Names and sizes of the axes.
    pub fn axes(&self) -> &[(String, usize)] {
        &self.axes
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// Returns the position of an axis by its name.
    pub fn axis(&self, name: &str) -> Option<Axis> {
        self.axes.iter().position(|(known, _)| known == name).map(|position| position as Axis)
    }

    /// Returns the name of an axis; empty if there is none.
    pub fn name(&self, axis: Axis) -> &str {
        self.axes.get(usize::from(axis)).map_or("", |(name, _)| name)
    }

    /// Returns the number of devices along an axis; 1 if there is none.
    pub fn size(&self, axis: Axis) -> usize {
        self.axes.get(usize::from(axis)).map_or(1, |(_, size)| *size)
    }

    /// Returns the number of parts into which the axes split a dim.
    pub fn parts(&self, axes: &[Axis]) -> usize {
        axes.iter().map(|&axis| self.size(axis)).product()
    }

    /// Returns the position of a device along an axis.
    ///
    /// # Panics
    /// If the axis does not exist.
    pub fn coordinate(&self, device: usize, axis: Axis) -> usize {
        let after: usize = self.axes[usize::from(axis) + 1..].iter().map(|(_, size)| size).product();
        device / after % self.size(axis)
    }

    /// Returns which part of a dim that the axes split a device has.
    fn part(&self, device: usize, axes: &[Axis]) -> usize {
        axes.iter().fold(0, |part, &axis| part * self.size(axis) + self.coordinate(device, axis))
    }
}

impl Display for Mesh {
    /// Writes `data=2,model=4`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (i, (name, size)) in self.axes.iter().enumerate() {
            write!(f, "{}{name}={size}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// How a tensor is split over a mesh: the axes of each dim. Devices that differ in the other axes have the same values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sharding(Arc<[DimAxes]>);

impl Sharding {
    /// A sharding with these axes for each dim.
    pub fn new(dims: impl IntoIterator<Item = DimAxes>) -> Self {
        Self(dims.into_iter().collect())
    }

    /// Every device has the whole tensor.
    pub fn replicated(rank: usize) -> Self {
        Self::new((0..rank).map(|_| DimAxes::new()))
    }

    /// Dim 0 is split, the others are whole.
    pub fn first_dim(rank: usize, axes: &[Axis]) -> Self {
        Self::new((0..rank).map(|dim| if dim == 0 { axes.into() } else { DimAxes::new() }))
    }

    /// The axes of each dim.
    pub fn dims(&self) -> &[DimAxes] {
        &self.0
    }

    /// Returns whether every device has the whole tensor.
    pub fn is_replicated(&self) -> bool {
        self.0.iter().all(|axes| axes.is_empty())
    }

    /// Checks that a tensor of this type can be split so: a list of axes for each dim, each axis once, all parts equal.
    ///
    /// # Errors
    /// The broken rule in a sentence; for a dim that does not divide, with the next larger size that does.
    pub fn check(&self, ty: &TensorType, mesh: &Mesh) -> Result<(), String> {
        self.check_axes(ty.rank(), mesh)?;
        for (dim, (axes, &size)) in self.0.iter().zip(&ty.dims).enumerate() {
            let parts = mesh.parts(axes);
            if size % parts != 0 {
                let names = self.name_of(axes, mesh);
                let next = size.next_multiple_of(parts);
                return Err(format!(
                    "dim {dim} of {ty} has {size} elements, which do not split into {parts} equal parts over {names}; \
                     the next size that does is {next}"
                ));
            }
        }
        Ok(())
    }

    /// Checks the axes alone, for a tensor of some rank.
    ///
    /// # Errors
    /// The broken rule in a sentence.
    pub fn check_axes(&self, rank: usize, mesh: &Mesh) -> Result<(), String> {
        if self.0.len() != rank {
            return Err(format!("a sharding of {} dims for a tensor of rank {rank}", self.0.len()));
        }
        let mut seen = DimAxes::new();
        for &axis in self.0.iter().flatten() {
            if usize::from(axis) >= mesh.axes.len() {
                return Err(format!("axis {axis} does not exist: the mesh is {mesh}"));
            }
            if seen.contains(&axis) {
                return Err(format!("the axis {:?} splits a tensor twice", mesh.name(axis)));
            }
            seen.push(axis);
        }
        Ok(())
    }

    fn name_of(&self, axes: &[Axis], mesh: &Mesh) -> String {
        axes.iter().map(|&axis| format!("{:?}", mesh.name(axis))).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the type of the part that each device has.
    pub fn local(&self, ty: &TensorType, mesh: &Mesh) -> TensorType {
        let sizes = ty.dims.iter().zip(self.0.iter()).map(|(size, axes)| size / mesh.parts(axes));
        TensorType::new(ty.dtype, sizes.collect::<crate::Dims>())
    }

    /// Returns where a device's part begins in each dim.
    pub fn start(&self, ty: &TensorType, mesh: &Mesh, device: usize) -> crate::Dims {
        let starts = ty.dims.iter().zip(self.0.iter());
        starts.map(|(size, axes)| size / mesh.parts(axes) * mesh.part(device, axes)).collect()
    }

    /// Writes the axes of each dim by name: `[{"data"}, {}]`, the form of the dialect `sdy`.
    pub fn named<'s>(&'s self, mesh: &'s Mesh) -> impl Display + 's {
        Named { sharding: self, mesh }
    }
}

impl Display for Sharding {
    /// Writes the axes of each dim by position: `[{0}, {}]`.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        dims(f, self, |f, axis| write!(f, "{axis}"))
    }
}

struct Named<'s> {
    sharding: &'s Sharding,
    mesh: &'s Mesh,
}

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        dims(f, self.sharding, |f, axis| write!(f, "{:?}", self.mesh.name(axis)))
    }
}

fn dims(
    f: &mut Formatter<'_>,
    sharding: &Sharding,
    write: impl Fn(&mut Formatter<'_>, Axis) -> std::fmt::Result,
) -> std::fmt::Result {
    f.write_str("[")?;
    for (dim, axes) in sharding.0.iter().enumerate() {
        f.write_str(if dim == 0 { "{" } else { ", {" })?;
        for (i, &axis) in axes.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            write(f, axis)?;
        }
        f.write_str("}")?;
    }
    f.write_str("]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn mesh(axes: &[(&str, usize)]) -> Result<Mesh, String> {
        Mesh::new(&axes.iter().map(|&(name, size)| (name.to_owned(), size)).collect::<Vec<_>>())
    }

    fn sharding(dims: &[&[Axis]]) -> Sharding {
        Sharding::new(dims.iter().map(|&axes| axes.into()))
    }

    #[test]
    fn invalid_meshes_are_refused_with_the_rule() {
        let refused: [(&[(&str, usize)], &str); 6] = [
            (&[], "1 to 255 axes"),
            (&[("", 2)], "must be letters"),
            (&[("a\"", 2)], "must be letters"),
            (&[("a", 2), ("a", 2)], "two axes"),
            (&[("a", 0)], "no devices"),
            (&[("a", usize::MAX), ("b", 2)], "so many"),
        ];
        for (axes, part) in refused {
            let error = mesh(axes).unwrap_err();
            assert!(error.contains(part), "{axes:?}: {error}");
        }
    }

    #[test]
    fn every_device_has_its_part() {
        let mesh = mesh(&[("data", 2), ("model", 4)]).unwrap();
        let ty = TensorType::new(DType::F32, [4, 8]);
        let parts = |sharding: &Sharding| {
            let starts = (0..mesh.devices()).map(|device| sharding.start(&ty, &mesh, device).to_vec());
            (sharding.local(&ty, &mesh).dims.to_vec(), starts.collect::<Vec<_>>())
        };
        let (local, starts) = parts(&sharding(&[&[0], &[1]]));
        assert_eq!(local, [2, 2]);
        assert_eq!(starts[5], [2, 2]);
        // Both axes on one dim, in both orders.
        let (local, starts) = parts(&sharding(&[&[], &[0, 1]]));
        assert_eq!((local.as_slice(), starts[6].as_slice()), (&[4, 1][..], &[0, 6][..]));
        let (_, starts) = parts(&sharding(&[&[], &[1, 0]]));
        assert_eq!(starts[6], [0, 5]);
        let (local, starts) = parts(&Sharding::replicated(2));
        assert_eq!((local.as_slice(), starts[7].as_slice()), (&[4, 8][..], &[0, 0][..]));
    }

    #[test]
    fn a_sharding_that_cannot_be_names_the_rule() {
        let mesh = mesh(&[("data", 2), ("model", 4)]).unwrap();
        let ty = TensorType::new(DType::F32, [10, 6]);
        let error = |dims: &[&[Axis]]| sharding(dims).check(&ty, &mesh).unwrap_err();
        assert!(error(&[&[0]]).contains("1 dims for a tensor of rank 2"));
        assert!(error(&[&[2], &[]]).contains("axis 2 does not exist"));
        assert!(error(&[&[0], &[0]]).contains("\"data\" splits a tensor twice"));
        let uneven = error(&[&[0, 1], &[]]);
        assert!(
            uneven.contains("10 elements") && uneven.contains("8 equal parts") && uneven.contains("is 16"),
            "{uneven}"
        );
        assert_eq!(sharding(&[&[0], &[]]).check(&ty, &mesh), Ok(()));
        assert_eq!(sharding(&[&[0, 1], &[]]).named(&mesh).to_string(), "[{\"data\", \"model\"}, {}]");
        assert_eq!(sharding(&[&[0, 1], &[]]).to_string(), "[{0, 1}, {}]");
    }
}
