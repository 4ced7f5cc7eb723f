//! What is computed row by row from a large product: the region that becomes a loop.
//!
//! Owns: which nodes belong to a region, and that it can be computed block by block. May not know: how the loop is written.

use super::Sizes;
use super::split::{Split, after, before};
use burn_tpu_graph::op::{Combine, DotAttrs};
use burn_tpu_graph::{Builder, Graph, NodeId, Op, Program};
use std::collections::BTreeMap;

/// What a node of a region computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// Rows of its own for each block.
    Rows(Split),
    /// A sum over all rows.
    Sum,
}

/// A product over many classes, with what is computed from it row by row.
pub(super) struct Region {
    pub(super) blocks: usize,
    pub(super) members: BTreeMap<NodeId, Member>,
    /// Whether a node that is no member needs the result of one.
    pub(super) follows: Vec<bool>,
    /// The number of elements of the product. Values of fewer are narrow.
    wide: usize,
}

impl Region {
    /// Returns the first region of a program.
    pub(super) fn find(program: &Program, sizes: Sizes) -> Option<Self> {
        let ids = (0..program.graph().len() as u32).map(NodeId);
        ids.filter_map(|id| Self::begin(program.graph(), id, sizes))
            .find_map(|(region, first)| region.grow(program, first))
    }

    /// Returns the region with a large product alone.
    fn begin(graph: &Graph, id: NodeId, sizes: Sizes) -> Option<(Self, NodeId)> {
        let node = graph.node(id);
        let Op::DotGeneral(attrs) = &node.op else { return None };
        let wide = node.ty.elements();
        let is_large = attrs.lhs_batch.is_empty() && wide >= sizes.least;
        let rows = graph.rank(node.operands[0]) - attrs.lhs_contract.len();
        let fewest = wide.div_ceil(sizes.block).max(2);
        let mut divided = (fewest..=2 * fewest).filter(|_| is_large).filter_map(|blocks| {
            let split = Split::leading(&node.ty.dims, blocks)?;
            split.0.iter().all(|divided| divided.dim < rows).then_some((blocks, split))
        });
        let (blocks, split) = divided.next()?;
        let members = BTreeMap::from([(id, Member::Rows(split))]);
        Some((Self { blocks, members, follows: vec![false; graph.len()], wide }, id))
    }

    /// Returns the region with all that is computed from its first node, if it can be computed block by block.
    fn grow(mut self, program: &Program, first: NodeId) -> Option<Self> {
        let graph = program.graph();
        for id in (first.0 + 1..graph.len() as u32).map(NodeId) {
            let operands = &graph.node(id).operands;
            if operands.iter().any(|operand| self.needs(*operand)) {
                match self.member(graph, id) {
                    Some(member) => drop(self.members.insert(id, member)),
                    None => self.follows[id.index()] = true,
                }
            }
        }
        self.prune(graph);
        self.is_closed(program).then_some(self)
    }

    fn needs(&self, id: NodeId) -> bool {
        self.follows[id.index()] || self.members.contains_key(&id)
    }

    /// Returns whether a value has as many elements as the product.
    pub(super) fn is_wide(&self, graph: &Graph, id: NodeId) -> bool {
        graph.ty(id).elements() >= self.wide
    }

    /// Returns the split of a member with rows.
    pub(super) fn rows(&self, id: NodeId) -> Option<&Split> {
        match self.members.get(&id) {
            Some(Member::Rows(split)) => Some(split),
            _ => None,
        }
    }

    /// Returns what a node is that reads a member; `None` if it is computed after the region.
    fn member(&self, graph: &Graph, id: NodeId) -> Option<Member> {
        let node = graph.node(id);
        let (first, split) = node.operands.iter().enumerate().find_map(|(i, &read)| Some((i, self.rows(read)?)))?;
        if self.is_sum(graph, id, first, split) {
            return Some(Member::Sum);
        }
        let split = after(graph, id, first, split)?;
        let fits = |(i, &operand)| before(graph, id, i, &split).is_some_and(|split| self.fits(operand, &split));
        node.operands.iter().enumerate().all(fits).then_some(Member::Rows(split))
    }

    /// Returns whether each block can read an operand with this split.
    fn fits(&self, operand: NodeId, split: &Split) -> bool {
        !self.needs(operand) || self.rows(operand) == Some(split)
    }

    /// Returns whether a node is a sum of a wide operand over all rows.
    fn is_sum(&self, graph: &Graph, id: NodeId, operand: usize, split: &Split) -> bool {
        let node = graph.node(id);
        let is_wide = node.ty.dtype.is_float() && self.is_wide(graph, node.operands[operand]);
        let is_reduced = match &node.op {
            Op::Reduce { combine: Combine::Sum, dims } => split.0.iter().all(|divided| dims.contains(&divided.dim)),
            Op::DotGeneral(attrs) => {
                let other = factor(attrs, operand, split);
                other.is_some_and(|split| self.fits(node.operands[1 - operand], &split))
            }
            _ => false,
        };
        is_wide && is_reduced
    }

    /// Leaves out what needs no loop: what is computed from narrow members alone, and of which no wide one is.
    fn prune(&mut self, graph: &Graph) {
        let mut needed = vec![false; graph.len()];
        for id in self.members.keys().rev() {
            let operands = &graph.node(*id).operands;
            let reads_wide = operands.iter().any(|&read| self.rows(read).is_some() && self.is_wide(graph, read));
            if reads_wide || self.is_wide(graph, *id) {
                needed[id.index()] = true;
            }
            if needed[id.index()] {
                operands.iter().for_each(|operand| needed[operand.index()] = true);
            }
        }
        let follows = &mut self.follows;
        self.members.retain(|id, _| {
            follows[id.index()] |= !needed[id.index()];
            needed[id.index()]
        });
    }

    /// Returns whether no wide member is read outside the region.
    fn is_closed(&self, program: &Program) -> bool {
        let graph = program.graph();
        let is_wide = |id: &NodeId| self.rows(*id).is_some() && self.is_wide(graph, *id);
        let outside = graph.nodes().iter().enumerate().filter(|(i, _)| self.follows[*i]);
        !outside.flat_map(|(_, node)| &node.operands).chain(program.outputs()).any(is_wide)
    }
}

/// Returns the split of the other factor of a product that sums over all divided dims of `operand`.
pub(super) fn factor(attrs: &DotAttrs, operand: usize, split: &Split) -> Option<Split> {
    let sides = [&attrs.lhs_contract, &attrs.rhs_contract];
    let paired = |dim: usize| sides[operand].iter().position(|&other| other == dim).map(|i| sides[1 - operand][i]);
    split.all_at(paired)
}
