//! What is computed query by query from the product of queries and keys: the region around each attention.
//!
//! Owns: which nodes belong to a region, and where the query and the key dim of their values are. May not know: which keys
//! are masked.

use super::part::{is_elementwise, is_split, reshaped};
use burn_tpu_graph::op::{Combine, DotAttrs, ScatterAttrs};
use burn_tpu_graph::{Builder, Graph, Node, NodeId, Op, Program};

/// The dims of the queries and of the keys in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axes {
    pub(super) query: usize,
    pub(super) key: Option<usize>,
}

/// What a node of a region computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// A row for each query. Of a product over all keys, only a conversion is still a member: the product is what attention
    /// and its gradients return.
    Rows { axes: Axes, is_product: bool },
    /// A sum over all queries, in f32 or f64, with the dim of the keys.
    Sum { key: Option<usize> },
}

/// The nodes that are computed query by query from products of the same queries and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// In the order of the program.
    pub(super) members: Vec<NodeId>,
}

/// All regions of a program.
pub(super) struct Regions<'a> {
    graph: &'a Graph,
    members: Vec<Option<Member>>,
    /// Whether something outside its region reads a value.
    is_read_outside: Vec<bool>,
    pub(super) all: Vec<Region>,
}

/// The region of each member while the regions grow.
struct Growth<'a> {
    graph: &'a Graph,
    members: Vec<Option<Member>>,
    /// For each member, an earlier member of its region or itself.
    joined: Vec<usize>,
    /// The numbers of queries and keys of each member's region.
    sizes: Vec<(usize, usize)>,
}

impl<'a> Regions<'a> {
    /// Finds the regions whose products have more than this number of queries and of keys.
    pub(super) fn find(program: &'a Program, more_than: usize) -> Self {
        let graph = program.graph();
        let mut growth = Growth { graph, members: Vec::new(), joined: Vec::new(), sizes: Vec::new() };
        graph.nodes().iter().for_each(|node| growth.grow(node, more_than));
        let mut regions =
            Self { graph, is_read_outside: vec![false; graph.len()], all: growth.regions(), members: growth.members };
        for (index, node) in graph.nodes().iter().enumerate() {
            let outside = node.operands.iter().filter(|&&operand| !regions.reads_rows(NodeId(index as u32), operand));
            let outside: Vec<_> = outside.copied().collect();
            outside.iter().for_each(|id| regions.is_read_outside[id.index()] = true);
        }
        program.outputs().iter().for_each(|id| regions.is_read_outside[id.index()] = true);
        regions
    }

    pub(super) fn member(&self, id: NodeId) -> Option<Member> {
        self.members[id.index()]
    }

    pub(super) fn is_read_outside(&self, id: NodeId) -> bool {
        self.is_read_outside[id.index()]
    }

    /// Returns whether a mesh splits the queries of a region. A block of them would be on some devices alone: the others
    /// would wait, and all would be sent what they have not.
    pub(super) fn is_split(&self, region: &Region) -> bool {
        let is_split = |&id: &NodeId| {
            let Some((&queries, attrs)) = self.first_factor(id) else { return false };
            let is_free = |dim: &usize| !attrs.lhs_batch.contains(dim) && !attrs.lhs_contract.contains(dim);
            (0..self.graph.rank(queries)).find(is_free).is_some_and(|dim| is_split(self.graph, queries, dim))
        };
        region.members.iter().any(is_split)
    }

    /// Returns the width of a region's queries and keys: the length of the sums of its first product.
    pub(super) fn width(&self, region: &Region) -> usize {
        let first = region.members.iter().find_map(|&id| self.first_factor(id));
        let lengths = |(&queries, attrs): (&NodeId, &DotAttrs)| -> usize {
            attrs.lhs_contract.iter().map(|&dim| self.graph.ty(queries).dims[dim]).product()
        };
        first.map_or(0, lengths)
    }

    /// Returns the factor with the queries, for a product that is the first one of a region.
    fn first_factor(&self, id: NodeId) -> Option<(&NodeId, &DotAttrs)> {
        let node = self.graph.node(id);
        let Op::DotGeneral(attrs) = &node.op else { return None };
        let reads_rows = node.operands.iter().any(|&operand| self.reads_rows(id, operand));
        Some((node.operands.first().filter(|_| !reads_rows)?, attrs))
    }

    /// Returns whether a node reads the rows of an operand one by one.
    pub(super) fn reads_rows(&self, id: NodeId, operand: NodeId) -> bool {
        self.member(id).is_some() && rows_read(&self.members, self.graph.node(id), operand).is_some()
    }
}

/// Returns the axes of an operand whose rows a node can read one by one, and whether it is a product.
fn rows_read(members: &[Option<Member>], node: &Node, operand: NodeId) -> Option<(Axes, bool)> {
    match members[operand.index()] {
        Some(Member::Rows { axes, is_product }) => {
            (!is_product || matches!(node.op, Op::Convert { .. })).then_some((axes, is_product))
        }
        _ => None,
    }
}

impl Growth<'_> {
    fn grow(&mut self, node: &Node, more_than: usize) {
        let index = self.members.len();
        let is_read = |id: &NodeId| rows_read(&self.members, node, *id).is_some();
        let read: Vec<_> = node.operands.iter().copied().filter(is_read).map(NodeId::index).collect();
        let (sizes, member) = match read.first() {
            Some(&first) if read.iter().all(|&other| self.sizes[other] == self.sizes[first]) => {
                (self.sizes[first], self.member(node, self.sizes[first].1))
            }
            Some(_) => Default::default(),
            None => {
                let product = product_of(self.graph, node, more_than);
                product.map_or_else(Default::default, |(sizes, member)| (sizes, Some(member)))
            }
        };
        self.joined.push(index);
        self.sizes.push(sizes);
        self.members.push(member);
        for other in read.into_iter().filter(|_| member.is_some()) {
            let (a, b) = (self.root(other), self.root(index));
            self.joined[a.max(b)] = a.min(b);
        }
    }

    fn root(&self, mut index: usize) -> usize {
        while self.joined[index] != index {
            index = self.joined[index];
        }
        index
    }

    /// Returns the regions, each with its members.
    fn regions(&self) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        let mut of_root = std::collections::HashMap::new();
        for index in (0..self.members.len()).filter(|&index| self.members[index].is_some()) {
            let region = *of_root.entry(self.root(index)).or_insert_with(|| {
                let (queries, keys) = self.sizes[index];
                regions.push(Region { queries, keys, members: Vec::new() });
                regions.len() - 1
            });
            regions[region].members.push(NodeId(index as u32));
        }
        regions
    }

    /// Returns whether a value is the place of each row's largest score.
    fn is_arg_max(&self, mut id: NodeId) -> bool {
        loop {
            let node = self.graph.node(id);
            match node.op {
                Op::Reshape { .. } => id = node.operands[0],
                Op::GetResult { index } => {
                    let is_maximum = matches!(self.graph.node(node.operands[0]).op, Op::ArgReduce { max: true, .. });
                    return index == 1 && is_maximum && self.members[node.operands[0].index()].is_some();
                }
                _ => return false,
            }
        }
    }

    /// Returns the role of a scatter that writes a number of each row at the place of the row's largest score.
    fn of_scatter(&self, node: &Node, attrs: &ScatterAttrs, keys: usize) -> Option<Member> {
        let &[zeros, indices, updates] = &node.operands[..] else { return None };
        let [zeros, places, updates] = [zeros, indices, updates].map(|id| rows_read(&self.members, node, id));
        let (places, _) = places.filter(|_| zeros.is_none() && self.is_arg_max(indices))?;
        let batch = attrs.scatter_indices_batching_dims.iter().position(|&dim| dim == places.query)?;
        let (query, key) = (attrs.input_batching_dims[batch], *attrs.scatter_dims_to_operand_dims.first()?);
        let is_one_a_row = attrs.update_window_dims.is_empty() && attrs.inserted_window_dims[..] == [key];
        let is_of_rows = updates.is_some_and(|(updates, _)| updates.query == places.query);
        let axes = Axes { query, key: Some(key) };
        (is_one_a_row && is_of_rows && node.ty.dims[key] == keys).then_some(Member::Rows { axes, is_product: false })
    }

    /// Returns the role of a node that reads rows; `None` if it is outside of the region.
    fn member(&self, node: &Node, keys: usize) -> Option<Member> {
        let read = |id: NodeId| rows_read(&self.members, node, id);
        if let (Op::DotGeneral(attrs), &[lhs, rhs]) = (&node.op, &node.operands[..]) {
            return of_product(attrs, [lhs, rhs].map(|id| (read(id), self.graph.rank(id))));
        }
        let mut all = node.operands.iter().filter_map(|&id| read(id));
        let (axes, is_product) = all.next()?;
        let (old, new) = (&self.graph.ty(*node.operands.first()?).dims, &node.ty.dims);
        let rows =
            |query: usize, key: Option<usize>| Some(Member::Rows { axes: Axes { query, key }, is_product: false });
        match &node.op {
            op if is_elementwise(op) => {
                all.all(|(other, _)| other == axes).then_some(Member::Rows { axes, is_product })
            }
            Op::BroadcastInDim { mapping, .. } => {
                let query = mapping[axes.query];
                let is_new = |dim: &usize| mapping.iter().position(|to| to == dim).is_none_or(|from| old[from] == 1);
                let repeated = Some(query + 1).filter(|dim| new.get(*dim) == Some(&keys) && is_new(dim));
                rows(query, axes.key.map_or(repeated, |key| Some(mapping[key])))
            }
            Op::Reshape { .. } => {
                let key = axes.key.map(|key| reshaped(old, new, key));
                rows(reshaped(old, new, axes.query)?, if let Some(key) = key { Some(key?) } else { None })
            }
            Op::Transpose { permutation } => {
                let place = |dim: usize| permutation.iter().position(|&from| from == dim);
                rows(place(axes.query)?, axes.key.and_then(place))
            }
            Op::Reduce { combine, dims } => {
                let place = |dim: usize| dim - dims.iter().filter(|&&reduced| reduced < dim).count();
                let key = axes.key.filter(|key| !dims.contains(key)).map(place);
                if !dims.contains(&axes.query) {
                    return rows(place(axes.query), key);
                }
                let is_sum = *combine == Combine::Sum && is_wide(node);
                is_sum.then_some(Member::Sum { key })
            }
            Op::ArgReduce { max: true, dim } if Some(*dim) == axes.key && all.next().is_none() => {
                rows(axes.query - usize::from(*dim < axes.query), None)
            }
            Op::GetResult { .. } => rows(axes.query, axes.key),
            Op::Scatter(attrs) => self.of_scatter(node, attrs, keys),
            _ => None,
        }
    }
}

/// Returns the numbers of queries and keys of a product that a region can begin with, and its role.
fn product_of(graph: &Graph, node: &Node, more_than: usize) -> Option<((usize, usize), Member)> {
    let Op::DotGeneral(attrs) = &node.op else { return None };
    let lhs = graph.rank(node.operands[0]) - attrs.lhs_batch.len() - attrs.lhs_contract.len();
    let rhs = graph.rank(node.operands[1]) - attrs.rhs_batch.len() - attrs.rhs_contract.len();
    let &[.., queries, keys] = node.ty.dims.as_slice() else { return None };
    let key = node.ty.rank() - 1;
    let axes = Axes { query: key - 1, key: Some(key) };
    let is_large = lhs == 1 && rhs == 1 && queries > more_than && keys > more_than;
    is_large.then_some(((queries, keys), Member::Rows { axes, is_product: false }))
}

/// Returns the role of a product of rows with another value. `operands` are the axes of each, if it has rows, and its rank.
fn of_product(attrs: &DotAttrs, operands: [(Option<(Axes, bool)>, usize); 2]) -> Option<Member> {
    let [(left, left_rank), (right, right_rank)] = operands;
    let left_free = left_rank - attrs.lhs_contract.len();
    let (axes, batch, contracted, rank, before) = match (left, right) {
        (Some((axes, _)), None) => (axes, &attrs.lhs_batch, &attrs.lhs_contract, left_rank, attrs.lhs_batch.len()),
        (None, Some((axes, _))) => (axes, &attrs.rhs_batch, &attrs.rhs_contract, right_rank, left_free),
        _ => return None,
    };
    let free = (0..rank).filter(|dim| !batch.contains(dim) && !contracted.contains(dim));
    let place = |dim: usize| free.clone().position(|other| other == dim).map(|place| before + place);
    let key = axes.key?;
    match (place(axes.query), place(key)) {
        (Some(query), None) if contracted.contains(&key) => {
            Some(Member::Rows { axes: Axes { query, key: None }, is_product: true })
        }
        (None, Some(key)) if contracted.contains(&axes.query) => Some(Member::Sum { key: Some(key) }),
        _ => None,
    }
}

/// Returns whether sums of this type can be added without a loss to rounding.
pub(super) fn is_wide(node: &Node) -> bool {
    node.ty.dtype.size_bytes() >= 4
}
