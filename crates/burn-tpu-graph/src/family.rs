//! Families: programs that have the same ops and differ in sizes run as one program for each bucket of sizes.
//!
//! Recordings are of one family if every number that differs between them is a function of a few sizes that vary: `n`,
//! `n + c`, `c n`, or a product of two. The functions are found from three recordings, and every later recording is checked
//! against them, number by number. A family's program for a bucket has buffers as large as the bucket, takes the true sizes
//! as run-time scalars, and computes of the true part of each value what the recorded program computes.
//!
//! Owns: which programs are a family, and the program of a bucket. May not know: which buckets are chosen, when, nor how
//! values are passed.

mod buffer;
mod numbers;
mod padded;
mod rules;
mod size;

pub use buffer::{in_buffer, out_of_buffer};
pub use numbers::{Numbers, Skeleton};
pub use padded::Padded;
pub use size::Size;

use crate::op::{AxisRules, Trips};
use crate::{Arrival, Axis, Graph, Mesh, Node, NodeId, Op, Placement, Program, Result};
use numbers::{Places, Role};
use padded::Padder;
use size::Fit;
use std::sync::Arc;

/// Returns the number of elements of all values of a program.
pub fn elements(program: &Program) -> u64 {
    program.graph().nodes().iter().flat_map(Node::result_types).map(|ty| ty.elements() as u64).sum()
}

/// The number of recordings of different sizes that tell a family.
const LEAST_RECORDINGS: usize = 3;

/// Programs that differ in sizes alone.
#[derive(Clone, Debug)]
pub struct Family {
    /// A program of the family, none of whose varying sizes is 0 or 1.
    program: Arc<Program>,
    /// Another one, all of whose varying sizes differ.
    other: Arc<Program>,
    /// The numbers in the order of [`Numbers`]. `None` for an offset that no size explains.
    numbers: Vec<Option<Size>>,
    places: Arc<Places>,
    /// The place of each varying size.
    varying: Vec<usize>,
    /// What each varying size is made larger by, at most.
    added: Vec<i64>,
}

impl Family {
    /// Finds the family of programs with their numbers, all of one skeleton. Returns `None` if they are none, or if more
    /// recordings may tell.
    pub fn of(recordings: &[(Arc<Program>, Numbers)]) -> Option<Self> {
        let (_, first) = recordings.first().filter(|_| recordings.len() >= LEAST_RECORDINGS)?;
        let rows: Vec<&[i64]> = recordings.iter().map(|(_, numbers)| &*numbers.numbers).collect();
        let Fit { numbers, varying } = Fit::of(&rows, |place| first.roles[place] == Role::Size)?;
        let is_explained = |place: usize| numbers[place].is_some() || first.roles[place] == Role::Offset;
        if varying.is_empty() || !(0..numbers.len()).all(is_explained) {
            return None;
        }
        // The rules of axes are read where no size looks like another thing.
        let is_usual = |row: &Numbers| varying.iter().all(|&place| row.numbers[place] > 1);
        let mut usual = recordings.iter().filter(|(_, row)| is_usual(row));
        let (program, row) = usual.next()?;
        let differs = |other: &Numbers| varying.iter().all(|&place| other.numbers[place] != row.numbers[place]);
        let (other, _) = usual.find(|(_, numbers)| differs(numbers))?;
        let mut added = vec![0; varying.len()];
        for (place, size) in numbers.iter().enumerate() {
            let is_size = first.roles[place] == Role::Size;
            if let Some((index, more)) = size.as_ref().and_then(Size::added).filter(|_| is_size) {
                added[index] = added[index].max(more);
            }
        }
        let (program, other, places) = (Arc::clone(program), Arc::clone(other), Arc::clone(&first.places));
        Some(Self { program, other, numbers, places, varying, added })
    }

    /// Returns one of the family's programs.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the varying sizes of a program of the same skeleton; `None` if it is not of this family.
    pub fn sizes(&self, numbers: &Numbers) -> Option<Vec<i64>> {
        if numbers.numbers.len() != self.numbers.len() {
            return None;
        }
        let sizes: Vec<i64> = self.varying.iter().map(|&place| numbers.numbers[place]).collect();
        // What varies is an `i32` at run time.
        let follows = |size: &Size, number: i64| {
            size.at(&sizes) == Some(number) && (size.is_fixed() || i32::try_from(number).is_ok())
        };
        let mut both = self.numbers.iter().zip(&numbers.numbers);
        both.all(|(size, &number)| size.as_ref().is_none_or(|size| follows(size, number))).then_some(sizes)
    }

    /// Returns what a bucket must have room for, for these varying sizes.
    pub fn least_buckets(&self, sizes: &[i64]) -> Vec<i64> {
        sizes.iter().zip(&self.added).map(|(size, added)| size + added).collect()
    }

    /// Returns the number of sizes that vary.
    pub fn varying(&self) -> usize {
        self.varying.len()
    }

    /// Returns what the bucket of each varying size is a multiple of on a mesh: then what is split over its axes has equal
    /// parts. `batch` are the axes that split batches, and argument `i` arrives as `arrivals[i]`.
    pub fn multiples(&self, mesh: &Mesh, batch: &[Axis], arrivals: &[Arrival]) -> Vec<i64> {
        let wanted = Placement::wanted(&self.program, mesh, batch, arrivals);
        let mut multiples = vec![1; self.varying.len()];
        for id in self.program.graph().ids() {
            let sharding = match &self.program.graph().node(id).op {
                Op::Parameter { index, .. } => wanted.get(*index as usize),
                Op::ShardingConstraint(sharding) => Some(sharding),
                _ => None,
            };
            let Some(sharding) = sharding else { continue };
            for (size, axes) in self.whole().dims(id, 0).iter().zip(sharding.dims()) {
                if let Some((index, multiple)) = size.multiple(mesh.parts(axes) as i64) {
                    multiples[index] = least_common_multiple(multiples[index], multiple);
                }
            }
        }
        multiples
    }

    /// Returns the program for one bucket of each varying size. Its slots are the `slots` of the recorded program, then the
    /// varying sizes, as `i32`.
    ///
    /// # Errors
    /// The op that has no exact rule for a size that varies.
    pub fn padded(&self, buckets: &[i64], slots: u32) -> Result<Padded> {
        Padder::new(self.whole(), buckets, slots).build()
    }

    /// Returns the number of elements of all values of a program of the family in buffers of these buckets.
    pub fn elements(&self, buckets: &[i64]) -> u64 {
        let graph = self.program.graph();
        let results = |id: NodeId| (0..graph.node(id).results()).map(move |result| (id, result));
        let in_buffer = |(id, result): (NodeId, usize)| -> u64 {
            let dims = self.whole().dims(id, result);
            dims.iter().map(|size| size.capacity(buckets).unwrap_or(0) as u64).product()
        };
        graph.ids().flat_map(results).map(in_buffer).sum()
    }

    /// Returns the recorded program with its numbers.
    fn whole(&self) -> Part<'_> {
        Part { family: self, program: &self.program, other: &self.other, places: &self.places }
    }
}

/// A program of a family with its numbers: the recorded one, or the body of one of its loops.
#[derive(Clone, Copy)]
struct Part<'f> {
    family: &'f Family,
    program: &'f Program,
    /// The same part of a program of other sizes.
    other: &'f Program,
    places: &'f Places,
}

impl<'f> Part<'f> {
    fn graph(self) -> &'f Graph {
        self.program.graph()
    }

    /// Returns the dims of a result of a node.
    fn dims(self, id: NodeId, result: usize) -> Vec<Size> {
        let node = self.graph().node(id);
        let rank = |result: usize| node.result_type(result).map_or(0, |ty| ty.dims.len());
        let first = self.places.of_node[id.index()].1 + (0..result).map(rank).sum::<usize>();
        // Every size has a function.
        self.family.numbers[first..first + rank(result)].iter().flatten().cloned().collect()
    }

    /// Returns the numbers of a node's op, and then those of a loop's body; `None` for an offset that no size explains.
    fn op_numbers(self, id: NodeId) -> &'f [Option<Size>] {
        let (first, end) = self.places.of_node[id.index()];
        &self.family.numbers[first..end]
    }

    /// Returns whether all numbers of a node are the same in the whole family.
    fn is_fixed(self, id: NodeId) -> bool {
        let (first, _) = self.places.of_node[id.index()];
        let end = self.places.of_node.get(id.index() + 1).map_or(self.places.end, |next| next.0);
        self.family.numbers[first..end].iter().all(|number| number.as_ref().is_some_and(Size::is_fixed))
    }

    /// Returns the rules of the axes of an operand, if they are the same at other sizes.
    fn rules(self, id: NodeId, position: usize) -> Option<AxisRules> {
        let of = |program: &Program| program.graph().axis_rules(program.graph().node(id), position);
        let rules = of(self.program);
        (rules == of(self.other)).then_some(rules)
    }

    /// Returns the body of a loop whose trip count is a number of the program.
    fn body(self, id: NodeId) -> Option<Self> {
        let of = |program: &'f Program| match &program.graph().node(id).op {
            Op::For { trips: Trips::Exactly(_), body } => Some(&**body),
            _ => None,
        };
        let (program, other) = (of(self.program)?, of(self.other)?);
        Some(Self { program, other, places: self.places.bodies.get(&id)?, ..self })
    }
}

fn least_common_multiple(a: i64, b: i64) -> i64 {
    a / size::greatest_common_divisor(a, b) * b
}
