//! A slice that can be ordered: a topology with the hosts that Google Cloud gives it.
//!
//! Owns: which topologies are legal, and how many hosts they have, from the facts of `table.rs`. May not know: what is
//! rendered.

use super::error::{Error, Result};
use super::table::{self, Facts};
use burn_tpu_runtime::Topology;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// The number of chips of a host in every slice of cubes.
const CUBE_HOST: usize = 4;

/// The sides of a cube: above 64 chips, each side is a multiple of it.
const CUBE_SIDE: usize = 4;

/// One legal slice.
#[derive(Clone)]
pub struct Slice {
    topology: Topology,
    shape: String,
    chips_per_host: usize,
}

impl Slice {
    /// Returns the slice of a topology.
    ///
    /// # Errors
    /// [`Error::SeveralSlices`], or [`Error::NoSuchSlice`] with the shapes that there are.
    pub fn new(topology: Topology) -> Result<Self> {
        let name = topology.to_string();
        if topology.slices() > 1 {
            let one = topology.slice().to_string();
            return Err(Error::SeveralSlices { name, slices: topology.slices(), one });
        }
        let shape = name.rsplit(':').next().unwrap_or_default().to_owned();
        let facts = table::facts(topology.generation());
        match facts.as_ref().and_then(|facts| chips_per_host(facts, &shape)) {
            Some(chips_per_host) => Ok(Self { topology, shape, chips_per_host }),
            None => Err(Error::NoSuchSlice { name, legal: legal(topology, facts.as_ref()) }),
        }
    }

    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// Returns the sizes alone: `4x4`.
    pub fn shape(&self) -> &str {
        &self.shape
    }

    pub fn chips_per_host(&self) -> usize {
        self.chips_per_host
    }

    pub fn hosts(&self) -> usize {
        self.topology.chips() / self.chips_per_host
    }

    /// Returns the facts of its generation.
    ///
    /// # Errors
    /// [`Error::NoSuchSlice`], which [`Slice::new`] has excluded.
    pub fn facts(&self) -> Result<Facts> {
        let missing = || Error::NoSuchSlice { name: self.to_string(), legal: legal(self.topology, None) };
        table::facts(self.topology.generation()).ok_or_else(missing)
    }

    /// Returns its size in words: `v5e:4x4: 16 chips on 4 hosts of 4`.
    pub fn describe(&self) -> String {
        let (chips, hosts, each) = (self.topology.chips(), self.hosts(), self.chips_per_host);
        match (chips, hosts) {
            (1, _) => format!("{self}: 1 chip on 1 host"),
            (_, 1) => format!("{self}: {chips} chips on 1 host"),
            _ => format!("{self}: {chips} chips on {hosts} hosts of {each}"),
        }
    }
}

impl Display for Slice {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        Display::fmt(&self.topology, f)
    }
}

impl FromStr for Slice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Slice::new(name.parse()?)
    }
}

/// Returns the chips of one host of this shape, if there is such a slice.
fn chips_per_host(facts: &Facts, shape: &str) -> Option<usize> {
    let listed = facts.shapes.iter().find(|(known, _)| *known == shape).map(|(_, chips)| *chips);
    listed.or_else(|| is_cubes(shape, facts.cubes?).then_some(CUBE_HOST))
}

/// Returns whether the sides are multiples of a cube's, in ascending order, and the chips are at most `most`.
fn is_cubes(shape: &str, most: usize) -> bool {
    let sides: Vec<usize> = shape.split('x').filter_map(|side| side.parse().ok()).collect();
    sides.is_sorted() && sides.iter().all(|side| side % CUBE_SIDE == 0) && sides.iter().product::<usize>() <= most
}

/// Returns the legal shapes of a topology's generation in words.
fn legal(topology: Topology, facts: Option<&Facts>) -> String {
    let generation = topology.generation();
    let Some(facts) = facts else { return format!("deploy knows no slices of {generation}") };
    let names: Vec<&str> = facts.shapes.iter().map(|(shape, _)| *shape).collect();
    let cubes = facts.cubes.map(|most| {
        format!(", and AxBxC of multiples of {CUBE_SIDE} with A <= B <= C and at most {most} chips, such as 4x4x8")
    });
    format!("slices of {generation} are {}{}", names.join(", "), cubes.unwrap_or_default())
}
