//! Where the arguments and results of a program live on a mesh.
//!
//! Owns: the choice of a sharding for each value that comes from the host and for each result. May not know: how values are
//! moved, or what the compiler does inside the program. A choice never changes a result's values, only where its parts are.
//!
//! An argument that is on the mesh stays as it is. For the others, values that meet in element-wise ops belong together (a
//! weight, its gradient, its moments), and they are placed alike:
//! 1. A value from the host that belongs to one on the mesh is placed like that one.
//! 2. If its dim 0 is a batch dim, it is split over the batch axes. Dim 0 is a batch dim if it stays dim 0 through a
//!    contraction, a convolution, a lookup or a broadcast: rows of inputs do, rows of weights do not. A value that only
//!    element-wise ops read counts as a batch.
//! 3. Every other value from the host is replicated.
//!
//! A result is placed as the first of these says:
//! 1. the constraint that it is the value of;
//! 2. the argument that it updates in place;
//! 3. the values that it belongs to;
//! 4. the batch whose dim 0 it has;
//! 5. the split arguments of the same sizes, if all arguments of these sizes agree (a gradient and its weight);
//! 6. replicated.

mod flow;
#[cfg(test)]
mod tests;

use crate::{Axis, Mesh, NodeId, Op, Program, Sharding, TensorType};
use flow::Flow;
use rustc_hash::FxHashMap;

/// The shardings of a program's arguments and results.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The devices.
    pub mesh: Mesh,
    /// The axes that split batches.
    pub batch: Vec<Axis>,
    /// The sharding of each parameter, by its `index`.
    pub parameters: Vec<Sharding>,
    /// The sharding of each result.
    pub results: Vec<Sharding>,
}

/// Where an argument is when the program is placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// On the mesh, with this sharding.
    Mesh(Sharding),
    /// On the host: its sharding is to be chosen.
    Host,
}

impl Placement {
    /// Chooses the shardings of a program whose argument `i` arrives as `arrivals[i]`. `batch` are the axes that split
    /// batches. Also returns the types of the batches that do not split into equal parts, and are therefore replicated.
    pub fn of(program: &Program, mesh: &Mesh, batch: &[Axis], arrivals: &[Arrival]) -> (Self, Vec<TensorType>) {
        let mut choice = Choice::new(program, mesh, batch);
        let uneven = choice.place_arguments(arrivals);
        let results = choice.place_results();
        (Self { mesh: mesh.clone(), batch: batch.to_vec(), parameters: choice.parameters, results }, uneven)
    }

    /// Returns the shardings that the arguments would have if every size divided.
    pub fn wanted(program: &Program, mesh: &Mesh, batch: &[Axis], arrivals: &[Arrival]) -> Vec<Sharding> {
        let mut choice = Choice { needs_equal_parts: false, ..Choice::new(program, mesh, batch) };
        choice.place_arguments(arrivals);
        choice.parameters
    }

    /// Returns for each node of a program that is placed so whether its dim 0 is that of a batch which is split.
    pub(crate) fn batches(&self, program: &Program) -> Vec<bool> {
        let choice = Choice::new(program, &self.mesh, &self.batch);
        Choice { parameters: self.parameters.clone(), ..choice }.first_dims_of_batches()
    }

    /// The sharding of the parameter with this `index`; `None` if there is none.
    pub fn parameter(&self, index: u32) -> Option<&Sharding> {
        self.parameters.get(index as usize)
    }
}

/// The state of a choice.
struct Choice<'p> {
    program: &'p Program,
    mesh: &'p Mesh,
    batch: &'p [Axis],
    needs_equal_parts: bool,
    flow: Flow<'p>,
    /// The node of each parameter, by `index`.
    nodes: Vec<Option<NodeId>>,
    parameters: Vec<Sharding>,
    /// The sharding of the values that belong together, by the first of them.
    together: FxHashMap<NodeId, Sharding>,
}

impl<'p> Choice<'p> {
    fn new(program: &'p Program, mesh: &'p Mesh, batch: &'p [Axis]) -> Self {
        let mut nodes = Vec::new();
        for (i, node) in program.graph().nodes().iter().enumerate() {
            if let Op::Parameter { index, .. } = node.op {
                let index = index as usize;
                nodes.resize(nodes.len().max(index + 1), None);
                nodes[index] = Some(NodeId(i as u32));
            }
        }
        let (flow, together) = (Flow::of(program), FxHashMap::default());
        Self { program, mesh, batch, needs_equal_parts: true, flow, nodes, parameters: Vec::new(), together }
    }

    fn place_arguments(&mut self, arrivals: &[Arrival]) -> Vec<TensorType> {
        self.know_placed(arrivals);
        let mut uneven = Vec::new();
        let arguments: Vec<_> = self.nodes.iter().copied().zip(arrivals).collect();
        for (node, arrival) in arguments {
            let sharding = match (node, arrival) {
                (_, Arrival::Mesh(sharding)) => sharding.clone(),
                (Some(node), Arrival::Host) => self.place_host_value(node, &mut uneven),
                (None, Arrival::Host) => Sharding::replicated(0),
            };
            self.parameters.push(sharding);
        }
        uneven
    }

    /// Notes what belongs to an argument on the mesh or to a constraint. What is split has precedence.
    fn know_placed(&mut self, arrivals: &[Arrival]) {
        let placed = self.nodes.iter().zip(arrivals).filter_map(|(node, arrival)| match arrival {
            Arrival::Mesh(sharding) => Some(((*node)?, sharding)),
            Arrival::Host => None,
        });
        let constraints = self.program.graph().nodes().iter().enumerate().filter_map(|(i, node)| match &node.op {
            Op::ShardingConstraint(sharding) => Some((NodeId(i as u32), sharding)),
            _ => None,
        });
        let (split, whole): (Vec<_>, Vec<_>) = placed.partition(|(_, sharding)| !sharding.is_replicated());
        for (node, sharding) in split.into_iter().chain(constraints).chain(whole) {
            if self.may_split(self.program.graph().ty(node), sharding) {
                self.together.entry(self.flow.first_of(node)).or_insert_with(|| sharding.clone());
            }
        }
    }

    fn place_host_value(&mut self, node: NodeId, uneven: &mut Vec<TensorType>) -> Sharding {
        let first = self.flow.first_of(node);
        if let Some(sharding) = self.together.get(&first) {
            return sharding.clone();
        }
        let ty = self.program.graph().ty(node);
        let is_batch = ty.dims.first().is_some_and(|&size| size > 1) && self.is_batch(first);
        let split = Sharding::first_dim(ty.rank(), self.batch);
        let is_split = is_batch && self.may_split(ty, &split);
        if is_batch && !is_split {
            uneven.push(ty.clone());
        }
        let sharding = if is_split { split } else { Sharding::replicated(ty.rank()) };
        self.together.insert(first, sharding.clone());
        sharding
    }

    /// Returns whether a value of this type may be split so.
    fn may_split(&self, ty: &TensorType, sharding: &Sharding) -> bool {
        match self.needs_equal_parts {
            true => sharding.check(ty, self.mesh).is_ok(),
            false => sharding.check_axes(ty.rank(), self.mesh).is_ok(),
        }
    }

    /// Returns whether the parameters that belong to `first` have a batch dim.
    fn is_batch(&self, first: NodeId) -> bool {
        let alike = self.nodes.iter().flatten().filter(|node| self.flow.first_of(**node) == first);
        let uses: Vec<_> = alike.map(|&node| self.flow.uses_of_first_dim(node)).collect();
        uses.iter().any(|uses| uses.is_batch) || !uses.iter().any(|uses| uses.leaves)
    }

    fn place_results(&self) -> Vec<Sharding> {
        let mut updates = FxHashMap::default();
        for ((index, _), result) in self.program.parameters().zip(self.program.results_in_place()) {
            result.map(|result| updates.insert(result, index));
        }
        let batch = self.first_dims_of_batches();
        let results = self.program.outputs().iter().enumerate();
        results.map(|(i, &node)| self.place_result(node, updates.get(&i).copied(), &batch)).collect()
    }

    fn place_result(&self, node: NodeId, updates: Option<u32>, batch: &[bool]) -> Sharding {
        let graph = self.program.graph();
        let ty = graph.ty(node);
        let constraint = match &graph.node(node).op {
            Op::ShardingConstraint(sharding) => Some(sharding.clone()),
            _ => None,
        };
        let updated = || updates.and_then(|index| self.parameters.get(index as usize).cloned());
        let together = || self.together.get(&self.flow.first_of(node)).cloned();
        let first_dim = || batch[node.index()].then(|| Sharding::first_dim(ty.rank(), self.batch));
        let is_even = |sharding: &Sharding| sharding.check(ty, self.mesh).is_ok();
        let chosen = constraint.filter(is_even).or_else(updated).or_else(together).filter(is_even);
        let chosen = chosen.or_else(|| first_dim().filter(is_even)).or_else(|| self.of_equal_sizes(ty));
        chosen.unwrap_or_else(|| Sharding::replicated(ty.rank()))
    }

    /// Returns for each node whether its dim 0 is that of an argument that is split over the batch axes.
    fn first_dims_of_batches(&self) -> Vec<bool> {
        let mut reached = vec![false; self.program.graph().len()];
        for (node, sharding) in self.nodes.iter().zip(&self.parameters) {
            let Some(node) = node else { continue };
            let rank = self.program.graph().ty(*node).rank();
            if !sharding.is_replicated() && *sharding == Sharding::first_dim(rank, self.batch) {
                self.flow.uses_of_first_dim(*node).reached.iter().for_each(|id| reached[id.index()] = true);
            }
        }
        reached
    }

    /// Returns the sharding that all arguments of these sizes have, if it splits them.
    fn of_equal_sizes(&self, ty: &TensorType) -> Option<Sharding> {
        let arguments = self.nodes.iter().zip(&self.parameters);
        let mut alike = arguments
            .filter(|(node, _)| node.is_some_and(|node| self.program.graph().ty(node).dims == ty.dims))
            .map(|(_, sharding)| sharding);
        let first = alike.next().filter(|sharding| !sharding.is_replicated())?;
        alike.all(|sharding| sharding == first).then(|| first.clone())
    }
}
