//! TPU slices that need not be attached: their names, and the registry that gives each one a device number.
//!
//! Owns: the grammar of slice names and the number of each slice in a [`Device`](crate::Device). May not know: libtpu.
//! Names that would make libtpu end the process (an empty name, unbounded sizes) do not parse.

use super::{Mesh, RecordedPrograms};
use crate::error::{Result, TpuError};
use parking_lot::RwLock;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// A TPU generation that libtpu compiles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Generation {
    /// TPU v4.
    V4,
    /// TPU v5e.
    V5e,
    /// TPU v5p.
    V5p,
    /// TPU v6e, also called Trillium.
    V6e,
    /// TPU7x, also called Ironwood.
    Tpu7x,
}

impl Generation {
    /// Every generation, oldest first.
    pub const ALL: [Generation; 5] =
        [Generation::V4, Generation::V5e, Generation::V5p, Generation::V6e, Generation::Tpu7x];

    /// Returns the name in topologies: `v5e`, `tpu7x`.
    pub const fn name(self) -> &'static str {
        match self {
            Generation::V4 => "v4",
            Generation::V5e => "v5e",
            Generation::V5p => "v5p",
            Generation::V6e => "v6e",
            Generation::Tpu7x => "tpu7x",
        }
    }

    /// Returns whether its chips form a three-dimensional torus. Those of other generations form a two-dimensional mesh.
    pub const fn is_cubic(self) -> bool {
        match self {
            Generation::V4 | Generation::V5p | Generation::Tpu7x => true,
            Generation::V5e | Generation::V6e => false,
        }
    }

    /// Returns the topology of one chip.
    pub fn chip(self) -> Topology {
        Topology { generation: self, dims: [1, 1, 1], slices: 1 }
    }
}

impl Display for Generation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Generation {
    type Err = TpuError;

    fn from_str(name: &str) -> Result<Self> {
        let known = Generation::ALL.into_iter().find(|generation| generation.name() == name);
        known.ok_or_else(|| {
            let names = Generation::ALL.map(Generation::name).join(", ");
            invalid(name, format!("names no TPU generation; known are {names}"))
        })
    }
}

/// A slice of chips: `v5e:2x2`, `v4:2x2x1`; or several equal slices that the data center's network connects: `2xv5e:16x16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topology {
    generation: Generation,
    dims: [u32; 3],
    slices: u32,
}

/// An upper bound of the chips of a slice: a v5p pod has 8960, a TPU7x pod 9216.
const MOST_CHIPS: u32 = 10_000;

/// An upper bound of the number of slices.
const MOST_SLICES: u32 = 256;

impl Topology {
    /// Returns the generation of the chips.
    pub fn generation(self) -> Generation {
        self.generation
    }

    /// Returns the number of chips of all slices.
    pub fn chips(self) -> usize {
        (self.dims.iter().product::<u32>() * self.slices) as usize
    }

    /// Returns the number of slices.
    pub fn slices(self) -> usize {
        self.slices as usize
    }

    /// Returns one of the slices.
    pub fn slice(self) -> Topology {
        Topology { slices: 1, ..self }
    }
}

impl Display for Topology {
    /// Writes the name as libtpu does: with two sizes for v5e and v6e, with three for the others. The number of slices
    /// precedes it, if there are several.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.dims;
        if self.slices > 1 {
            write!(f, "{}x", self.slices)?;
        }
        write!(f, "{}:{x}x{y}", self.generation)?;
        if self.generation.is_cubic() { write!(f, "x{z}") } else { Ok(()) }
    }
}

impl FromStr for Topology {
    type Err = TpuError;

    fn from_str(name: &str) -> Result<Self> {
        let Some((generation, sizes)) = name.split_once(':') else {
            return Err(invalid(name, "is not GENERATION:AxB or GENERATION:AxBxC, such as v5e:2x2 or v4:2x2x1"));
        };
        let (slices, generation) = match generation.split_once('x') {
            Some((slices, generation)) if slices.starts_with(|c: char| c.is_ascii_digit()) => (slices, generation),
            _ => ("1", generation),
        };
        let slices = slices.parse().ok().filter(|slices| (1..=MOST_SLICES).contains(slices));
        let slices = slices.ok_or_else(|| invalid(name, format!("needs 1 to {MOST_SLICES} slices")))?;
        let generation: Generation = generation.parse()?;
        let parsed: Option<Vec<u32>> = sizes.split('x').map(|size| size.parse().ok().filter(|&n| n > 0)).collect();
        let dims = match parsed.as_deref() {
            Some(&[x, y]) => [x, y, 1],
            Some(&[x, y, z]) if generation.is_cubic() => [x, y, z],
            _ => {
                let form = if generation.is_cubic() { "two or three" } else { "two" };
                return Err(invalid(name, format!("needs {form} sizes of at least 1")));
            }
        };
        let chips = dims.iter().try_fold(1u32, |product, &size| product.checked_mul(size));
        if chips.is_none_or(|chips| chips > MOST_CHIPS) {
            return Err(invalid(name, format!("has more than {MOST_CHIPS} chips, the largest slice there is")));
        }
        Ok(Topology { generation, dims, slices })
    }
}

fn invalid(name: &str, rule: impl Into<String>) -> TpuError {
    TpuError::Topology { name: name.into(), rule: rule.into() }
}

/// The target of a device of [`Platform::Topology`](crate::Platform::Topology).
#[derive(Clone)]
pub(crate) enum Described {
    /// A slice, and the axes of a mesh of all its devices: programs are compiled for it.
    Slice(Topology, Option<Mesh>),
    /// A list of recorded programs, for a mesh with these axes: they are neither compiled nor run.
    Recording(RecordedPrograms, Option<Mesh>),
}

impl Described {
    /// Returns the axes, if programs are for a mesh.
    pub(super) fn mesh(&self) -> Option<&Mesh> {
        match self {
            Described::Slice(_, mesh) | Described::Recording(_, mesh) => mesh.as_ref(),
        }
    }
}

/// The targets by device number. Entries are never removed: a device number is never reused for another target.
static REGISTRY: RwLock<Vec<Described>> = RwLock::new(Vec::new());

/// Returns the device number of a slice, or of a mesh on it, which is the same at every call.
pub(super) fn register(topology: Topology, mesh: Option<Mesh>) -> Result<u16> {
    let same = |described: &Described| match described {
        Described::Slice(known, axes) => *known == topology && *axes == mesh,
        Described::Recording(..) => false,
    };
    let mut registry = REGISTRY.write();
    match registry.iter().position(same) {
        Some(index) => Ok(index as u16),
        None => push(&mut registry, Described::Slice(topology, mesh)),
    }
}

/// Returns a new device number for recorded programs. Burn's default dtypes belong to a device, so they are separate too.
pub(super) fn register_recording(programs: RecordedPrograms, mesh: Option<Mesh>) -> Result<u16> {
    push(&mut REGISTRY.write(), Described::Recording(programs, mesh))
}

fn push(registry: &mut Vec<Described>, described: Described) -> Result<u16> {
    let index = registry.len();
    let Ok(number) = u16::try_from(index) else {
        return Err(invalid("a further topology", format!("has no number left: this process named {index}")));
    };
    registry.push(described);
    Ok(number)
}

/// Returns the target of a device number, if it was registered.
pub(super) fn described(index: u16) -> Option<Described> {
    REGISTRY.read().get(usize::from(index)).cloned()
}

/// Returns the number of registered targets.
pub(super) fn count() -> usize {
    REGISTRY.read().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_and_print_as_in_libtpu() {
        for name in ["v4:2x2x1", "v5e:2x2", "v5p:4x4x4", "v6e:16x16", "tpu7x:2x2x1", "2xv5e:16x16", "16xtpu7x:2x2x1"] {
            assert_eq!(name.parse::<Topology>().unwrap().to_string(), name);
        }
        assert_eq!("v4:2x2".parse::<Topology>().unwrap().to_string(), "v4:2x2x1");
        assert_eq!("v5e:4x8".parse::<Topology>().unwrap().chips(), 32);
        let several = "3xv5e:4x8".parse::<Topology>().unwrap();
        assert_eq!((several.chips(), several.slices(), several.slice().to_string()), (96, 3, "v5e:4x8".to_owned()));
        assert_eq!("1xv5e:2x2".parse::<Topology>().unwrap().to_string(), "v5e:2x2");
        assert_eq!(Generation::V6e.chip().to_string(), "v6e:1x1");
    }

    #[test]
    fn invalid_names_are_errors_with_the_broken_rule() {
        for (name, part) in [
            ("", "GENERATION"),
            ("v5e", "GENERATION"),
            ("v99:2x2", "known are v4"),
            ("v5e:", "sizes"),
            ("v5e:0x2", "sizes"),
            ("v5e:2", "sizes"),
            ("v5e:2x2x1", "two sizes"),
            ("v4:2x2x2x2", "two or three"),
            ("v5e:-1x2", "sizes"),
            ("v5p:4294967295x4294967295x4294967295", "more than"),
            ("v5e:1000x1000", "more than"),
            ("0xv5e:2x2", "1 to 256 slices"),
            ("2000xv5e:2x2", "1 to 256 slices"),
            ("2x:2x2", "known are v4"),
        ] {
            let error = name.parse::<Topology>().unwrap_err();
            assert!(matches!(error, TpuError::Topology { .. }) && error.to_string().contains(part), "{name}: {error}");
            assert_eq!(error.fault(), crate::Fault::User);
        }
    }
}
