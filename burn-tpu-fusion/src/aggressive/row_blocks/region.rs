//! What is computed row by row from a large product: the region that becomes a loop.
//!
//! Owns: which nodes belong to a region, that it can be computed block by block, and which parts of its operands a block
//! reads. May not know: how the loop is written.

use super::Sizes;
use super::split::{Split, operand_split, result_split};
use burn_tpu_graph::op::{Combine, DotAttrs};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Op, Program};
use std::collections::BTreeMap;

/// What a node of a region computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Rows of its own for each block.
    Rows(Split),
    /// A sum over all rows.
    Sum,
}

/// A product over many classes, with what is computed from it row by row.
pub(super) struct Region {
    /// The number of blocks, which is the trip count of the loop.
    pub(super) blocks: usize,
    /// The nodes that the loop computes.
    pub(super) nodes: BTreeMap<NodeId, Role>,
    /// For each node of the program, whether it is outside of the region and reads a result of it, directly or not.
    is_after: Vec<bool>,
    /// The number of elements of the product. A value of as many is large.
    product_elements: usize,
}

impl Region {
    /// Returns the first region of a program.
    pub(super) fn find(program: &Program, sizes: Sizes) -> Option<Self> {
        let graph = program.graph();
        for id in graph.ids() {
            if let Some(region) = Self::begin(graph, id, sizes)
                && let Some(grown) = region.grow(program, id)
            {
                return Some(grown);
            }
        }
        None
    }

    /// Returns the region with a large product alone.
    fn begin(graph: &Graph, id: NodeId, sizes: Sizes) -> Option<Self> {
        let node = graph.node(id);
        let Op::DotGeneral(attrs) = &node.op else { return None };
        let product_elements = node.ty.elements();
        if !attrs.lhs_batch.is_empty() || product_elements < sizes.least {
            return None;
        }
        let row_dims = graph.rank(node.operands[0]) - attrs.lhs_contract.len();
        let fewest = product_elements.div_ceil(sizes.block).max(2);
        for blocks in fewest..=2 * fewest {
            if let Some(split) = Split::leading(&node.ty.dims, blocks)
                && split.0.iter().all(|divided| divided.dim < row_dims)
            {
                let nodes = BTreeMap::from([(id, Role::Rows(split))]);
                return Some(Self { blocks, nodes, is_after: vec![false; graph.len()], product_elements });
            }
        }
        None
    }

    /// Returns the region with all that is computed from its product, if it can be computed block by block.
    fn grow(mut self, program: &Program, product: NodeId) -> Option<Self> {
        let graph = program.graph();
        for id in graph.ids().skip(product.index() + 1) {
            if !graph.node(id).operands.iter().any(|&operand| self.depends_on_product(operand)) {
                continue;
            }
            match self.role(graph, id) {
                Some(role) => drop(self.nodes.insert(id, role)),
                None => self.is_after[id.index()] = true,
            }
        }
        self.prune(graph);
        self.is_closed(program).then_some(self)
    }

    /// Returns whether a node is one of the region.
    pub(super) fn contains(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Returns whether a node is outside of the region and reads a result of it, directly or not.
    pub(super) fn is_after(&self, id: NodeId) -> bool {
        self.is_after[id.index()]
    }

    /// Returns whether a value has as many elements as the product.
    pub(super) fn is_large(&self, graph: &Graph, id: NodeId) -> bool {
        graph.ty(id).elements() >= self.product_elements
    }

    /// Returns how a node with rows is divided; `None` for a sum and for a node outside of the region.
    pub(super) fn split(&self, id: NodeId) -> Option<&Split> {
        match self.nodes.get(&id) {
            Some(Role::Rows(split)) => Some(split),
            Some(Role::Sum) | None => None,
        }
    }

    /// Returns the element type in which a loop carries a result: sums are f32 or wider.
    pub(super) fn carried_dtype(&self, graph: &Graph, id: NodeId) -> DType {
        let dtype = graph.dtype(id);
        let is_sum = self.nodes.get(&id) == Some(&Role::Sum);
        if is_sum && dtype.size_bytes() < 4 { DType::F32 } else { dtype }
    }

    /// Returns how the operands of a node of the region are divided.
    pub(super) fn operand_splits(&self, graph: &Graph, id: NodeId) -> Vec<Split> {
        if let Some(split) = self.split(id) {
            return operand_splits(graph, id, split);
        }
        let node = graph.node(id);
        let mut splits = Vec::with_capacity(node.operands.len());
        for (index, &operand) in node.operands.iter().enumerate() {
            let split = match (self.split(operand), &node.op) {
                (Some(split), _) => Some(split.clone()),
                (None, Op::DotGeneral(attrs)) => {
                    let other = self.split(node.operands[1 - index]);
                    other.and_then(|other| other_factor(attrs, 1 - index, other))
                }
                (None, _) => None,
            };
            splits.push(split.unwrap_or_default());
        }
        splits
    }

    fn depends_on_product(&self, id: NodeId) -> bool {
        self.is_after(id) || self.contains(id)
    }

    /// Returns the role of a node that reads a value of the region; `None` if it is computed after the loop.
    fn role(&self, graph: &Graph, id: NodeId) -> Option<Role> {
        let operands = &graph.node(id).operands;
        let with_rows = operands.iter().position(|&operand| self.split(operand).is_some())?;
        let split = self.split(operands[with_rows])?;
        if self.is_sum(graph, id, with_rows, split) {
            return Some(Role::Sum);
        }
        let split = result_split(graph, id, with_rows, split)?;
        for (index, &operand) in operands.iter().enumerate() {
            if !self.can_read(operand, &operand_split(graph, id, index, &split)?) {
                return None;
            }
        }
        Some(Role::Rows(split))
    }

    /// Returns whether a block can read an operand with this split.
    fn can_read(&self, operand: NodeId, split: &Split) -> bool {
        !self.depends_on_product(operand) || self.split(operand) == Some(split)
    }

    /// Returns whether a node sums one of its operands, a large one that is divided like this, over all rows.
    fn is_sum(&self, graph: &Graph, id: NodeId, operand: usize, split: &Split) -> bool {
        let node = graph.node(id);
        if !node.ty.dtype.is_float() || !self.is_large(graph, node.operands[operand]) {
            return false;
        }
        match &node.op {
            Op::Reduce { combine: Combine::Sum, dims } => split.0.iter().all(|divided| dims.contains(&divided.dim)),
            Op::DotGeneral(attrs) => match other_factor(attrs, operand, split) {
                Some(other) => self.can_read(node.operands[1 - operand], &other),
                None => false,
            },
            _ => false,
        }
    }

    /// Removes the nodes that need no loop: they read no large value of the region, and no large one is computed from them.
    fn prune(&mut self, graph: &Graph) {
        let mut is_needed = vec![false; graph.len()];
        for &id in self.nodes.keys().rev() {
            let operands = &graph.node(id).operands;
            let reads_large = operands.iter().any(|&read| self.split(read).is_some() && self.is_large(graph, read));
            if reads_large || self.is_large(graph, id) {
                is_needed[id.index()] = true;
            }
            if is_needed[id.index()] {
                operands.iter().for_each(|operand| is_needed[operand.index()] = true);
            }
        }
        for id in self.nodes.keys().filter(|id| !is_needed[id.index()]) {
            self.is_after[id.index()] = true;
        }
        self.nodes.retain(|id, _| is_needed[id.index()]);
    }

    /// Returns whether no large value with rows is read outside of the region.
    fn is_closed(&self, program: &Program) -> bool {
        let graph = program.graph();
        let may_be_read = |&id: &NodeId| self.split(id).is_none() || !self.is_large(graph, id);
        let is_free = |id: NodeId| !self.is_after(id) || graph.node(id).operands.iter().all(may_be_read);
        program.outputs().iter().all(may_be_read) && graph.ids().all(is_free)
    }
}

/// Returns how the operands of a node are divided for such blocks of its result. An operand that is not divided is read
/// whole.
pub(super) fn operand_splits(graph: &Graph, id: NodeId, split: &Split) -> Vec<Split> {
    let operands = 0..graph.node(id).operands.len();
    operands.map(|operand| operand_split(graph, id, operand, split).unwrap_or_default()).collect()
}

/// Returns how the other factor of a product is divided if the product sums over all divided dims of this one.
fn other_factor(attrs: &DotAttrs, operand: usize, split: &Split) -> Option<Split> {
    let contracted = [&attrs.lhs_contract, &attrs.rhs_contract];
    split.all_at(|dim| {
        let place = contracted[operand].iter().position(|&other| other == dim)?;
        Some(contracted[1 - operand][place])
    })
}
