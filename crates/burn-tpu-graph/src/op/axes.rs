//! How an axis of an operand passes through an op.
//!
//! Owns: the rules that the rows of the op table name. May not know: which op a rule is for, beyond its attributes.
//!
//! The rules say what is exact for every value. Sizes count: a slice of all indices keeps its axis, and an axis of size 1
//! may be repeated. `crates/burn-tpu-interpreter/src/axis_tests.rs` checks each against the interpreter.

use super::{Combine, ConvAttrs, DotAttrs, GatherAttrs, PadAttrs, ScatterAttrs, ScatterMode, SliceAttrs, WindowAttrs};
use crate::{Dims, Graph, Node};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The rule of each axis of an operand.
pub type AxisRules = SmallVec<[AxisRule; 4]>;

/// What becomes of an axis of an operand. The axes that a rule names are those of the result, and of every result of an op
/// that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisRule {
    /// It is this axis: index `i` there is computed from index `i` here and from no other. The sizes are equal.
    Kept(usize),
    /// It has one index, which is read for every index of this axis.
    Repeated(usize),
    /// It has one index, and the result does not have the axis.
    Dropped,
    /// All indices are combined, in any order, and the result does not have the axis. An index of neutral elements changes
    /// nothing. A product combines indices of both factors, and its neutral element is 0 in both.
    Reduced(Combine),
    /// A reshape: places in these axes of the operand, in row-major order, are places in those of the result.
    Regrouped {
        /// Axes of the operand, this one among them.
        from: Range<usize>,
        /// Axes of the result.
        to: Range<usize>,
    },
    /// It is this axis, in the opposite order.
    Reversed(usize),
    /// Some of its indices are this axis: those of a static slice.
    Sliced(usize),
    /// It is this axis with indices added or, where an edge is negative, left out.
    Padded(usize),
    /// It is one of several that are this axis, one after another.
    Joined(usize),
    /// Each index of this axis combines indices of the operand under a window. The neutral element changes nothing.
    Windowed(usize, Combine),
    /// Positions that are computed at run time say which of its indices are read or replaced. It is this axis, if the result
    /// has it. An update replaces no other indices, and a lookup leaves all others out.
    Addressed(Option<usize>),
    /// It is written to consecutive indices of this axis.
    Placed(usize),
    /// Each of its indices is written at positions that are computed at run time, and combined with what is there; `None`
    /// replaces it.
    Scattered(Option<Combine>),
    /// It has the components of positions.
    Components,
    /// Its indices, ordered by their elements, are this axis. A top-k has the first of them.
    Ordered(usize),
    /// Every index of this axis is computed from all indices, and their order matters.
    Transformed(usize),
    /// Nothing is known without looking into a program, or there is no rule.
    Opaque,
}

impl AxisRule {
    /// Returns the axis that this one is, index by index.
    pub const fn kept(&self) -> Option<usize> {
        match self {
            Self::Kept(axis) => Some(*axis),
            _ => None,
        }
    }
}

/// An operand of a node.
pub(super) struct Operand<'a> {
    graph: &'a Graph,
    node: &'a Node,
    position: usize,
    dims: &'a Dims,
}

impl<'a> Operand<'a> {
    pub(super) fn new(graph: &'a Graph, node: &'a Node, position: usize) -> Self {
        Self { graph, node, position, dims: &graph.ty(node.operands[position]).dims }
    }

    /// Returns the dims of the operand at a position.
    fn dims_of(&self, position: usize) -> &'a Dims {
        &self.graph.ty(self.node.operands[position]).dims
    }

    /// Returns the dims of the result.
    fn result(&self) -> &'a Dims {
        &self.node.ty.dims
    }

    fn each(&self, rule: impl FnMut(usize) -> AxisRule) -> AxisRules {
        (0..self.dims.len()).map(rule).collect()
    }

    pub(super) fn no_axes(&self) -> AxisRules {
        AxisRules::new()
    }

    pub(super) fn opaque(&self) -> AxisRules {
        self.each(|_| AxisRule::Opaque)
    }

    pub(super) fn kept(&self) -> AxisRules {
        self.each(AxisRule::Kept)
    }

    /// All results of some ops have the same axes. Those of others are known only from their program.
    pub(super) fn result_of(&self) -> AxisRules {
        let has_equal_results = self.graph.node(self.node.operands[0]).op.has_equal_results();
        if has_equal_results { self.kept() } else { self.opaque() }
    }

    pub(super) fn broadcast(&self, mapping: &Dims) -> AxisRules {
        self.each(|axis| match mapping[axis] {
            to if self.dims[axis] == self.result()[to] => AxisRule::Kept(to),
            to => AxisRule::Repeated(to),
        })
    }

    /// Divides the axes into the shortest runs that have as many elements as a run of the result's axes.
    pub(super) fn reshape(&self) -> AxisRules {
        let (old, new) = (self.dims, self.result());
        let mut rules = self.each(|axis| if old[axis] == 1 { AxisRule::Dropped } else { AxisRule::Opaque });
        // Without elements, sizes do not tell which axes belong together.
        if old.contains(&0) {
            return rules;
        }
        let (mut from, mut to) = (0..0, 0..0);
        while let Some(first) = (from.end..old.len()).find(|&axis| old[axis] != 1) {
            let Some(start) = (to.end..new.len()).find(|&axis| new[axis] != 1) else { break };
            (from, to) = (first..first + 1, start..start + 1);
            let (mut before, mut after) = (old[first], new[start]);
            while before != after {
                if before < after {
                    before *= old[from.end];
                    from.end += 1;
                } else {
                    after *= new[to.end];
                    to.end += 1;
                }
            }
            for axis in from.clone() {
                rules[axis] = match (from.len(), to.len()) {
                    (1, 1) => AxisRule::Kept(to.start),
                    _ => AxisRule::Regrouped { from: from.clone(), to: to.clone() },
                };
            }
        }
        rules
    }

    pub(super) fn transpose(&self, permutation: &Dims) -> AxisRules {
        let mut rules = self.opaque();
        permutation.iter().enumerate().for_each(|(to, &from)| rules[from] = AxisRule::Kept(to));
        rules
    }

    pub(super) fn reverse(&self, dims: &Dims) -> AxisRules {
        self.each(|axis| match dims.contains(&axis) {
            true => AxisRule::Reversed(axis),
            false => AxisRule::Kept(axis),
        })
    }

    pub(super) fn slice(&self, attrs: &SliceAttrs) -> AxisRules {
        self.each(|axis| match (attrs.start[axis], attrs.limit[axis], attrs.stride[axis]) {
            (0, limit, 1) if limit == self.dims[axis] => AxisRule::Kept(axis),
            _ => AxisRule::Sliced(axis),
        })
    }

    pub(super) fn pad(&self, attrs: &PadAttrs) -> AxisRules {
        self.each(|axis| match (attrs.low[axis], attrs.high[axis], attrs.interior[axis]) {
            (0, 0, 0) => AxisRule::Kept(axis),
            _ => AxisRule::Padded(axis),
        })
    }

    pub(super) fn concatenate(&self, dim: usize) -> AxisRules {
        self.each(|axis| match axis == dim {
            true => AxisRule::Joined(axis),
            false => AxisRule::Kept(axis),
        })
    }

    /// A slice of all indices begins at the first, whatever its start.
    pub(super) fn dynamic_slice(&self) -> AxisRules {
        self.each(|axis| match self.dims[axis] == self.result()[axis] {
            true => AxisRule::Kept(axis),
            false => AxisRule::Addressed(Some(axis)),
        })
    }

    pub(super) fn update(&self) -> AxisRules {
        self.each(|axis| match (self.dims_of(1)[axis] == self.result()[axis], self.position) {
            (true, _) => AxisRule::Kept(axis),
            (false, 0) => AxisRule::Addressed(Some(axis)),
            (false, _) => AxisRule::Placed(axis),
        })
    }

    pub(super) fn dot_general(&self, attrs: &DotAttrs) -> AxisRules {
        let lhs = [&attrs.lhs_batch, &attrs.lhs_contract];
        let [batch, contracted] = if self.position == 0 { lhs } else { [&attrs.rhs_batch, &attrs.rhs_contract] };
        let lhs_free = self.dims_of(0).len() - attrs.lhs_batch.len() - attrs.lhs_contract.len();
        let mut free = batch.len() + if self.position == 0 { 0 } else { lhs_free };
        self.each(|axis| {
            if contracted.contains(&axis) {
                return AxisRule::Reduced(Combine::Sum);
            }
            AxisRule::Kept(batch.iter().position(|&other| other == axis).unwrap_or_else(|| {
                free += 1;
                free - 1
            }))
        })
    }

    pub(super) fn convolution(&self, attrs: &ConvAttrs) -> AxisRules {
        let (roles, output) = (if self.position == 0 { &attrs.input } else { &attrs.kernel }, &attrs.output);
        self.each(|axis| {
            if let Some(i) = roles.spatial.iter().position(|&spatial| spatial == axis) {
                return self.spatial(attrs, i);
            }
            match (self.position, axis == roles.batch) {
                (0, true) if attrs.batch_groups == 1 => AxisRule::Kept(output.batch),
                (0, false) if attrs.feature_groups == 1 => AxisRule::Reduced(Combine::Sum),
                (0, _) => AxisRule::Opaque,
                (_, true) if attrs.feature_groups == 1 && attrs.batch_groups == 1 => AxisRule::Kept(output.feature),
                (_, true) => AxisRule::Opaque,
                (_, false) => AxisRule::Reduced(Combine::Sum),
            }
        })
    }

    /// Returns the rule of spatial axis `i` of a convolution's input or kernel.
    fn spatial(&self, attrs: &ConvAttrs, i: usize) -> AxisRule {
        let to = attrs.output.spatial[i];
        let is_point = self.dims_of(1)[attrs.kernel.spatial[i]] == 1
            && (attrs.strides[i], attrs.padding[i], attrs.lhs_dilation[i]) == (1, (0, 0), 1);
        match (is_point, self.position) {
            (true, 0) => AxisRule::Kept(to),
            (true, _) => AxisRule::Repeated(to),
            (false, _) => AxisRule::Windowed(to, Combine::Sum),
        }
    }

    pub(super) fn reduce(&self, dims: &[usize], combine: &Combine) -> AxisRules {
        let mut to = 0;
        self.each(|axis| {
            if dims.contains(&axis) {
                return AxisRule::Reduced(*combine);
            }
            to += 1;
            AxisRule::Kept(to - 1)
        })
    }

    /// Of equal values the lowest index counts: the neutral index is the highest.
    pub(super) fn arg_reduce(&self, dim: usize, max: bool) -> AxisRules {
        self.reduce(&[dim], if max && self.position == 0 { &Combine::Max } else { &Combine::Min })
    }

    pub(super) fn window(&self, window: &WindowAttrs, combine: &Combine) -> AxisRules {
        self.each(|axis| {
            let is_point = window.dims[axis] == 1
                && (window.strides[axis], window.padding[axis], window.base_dilation[axis]) == (1, (0, 0), 1);
            if is_point { AxisRule::Kept(axis) } else { AxisRule::Windowed(axis, *combine) }
        })
    }

    /// The gradient of a maximum under a window.
    pub(super) fn select(&self, window: &WindowAttrs) -> AxisRules {
        self.window(window, if self.position == 0 { &Combine::Max } else { &Combine::Sum })
    }

    pub(super) fn sort(&self, dim: usize) -> AxisRules {
        self.each(|axis| if axis == dim { AxisRule::Ordered(axis) } else { AxisRule::Kept(axis) })
    }

    pub(super) fn top_k(&self) -> AxisRules {
        self.sort(self.dims.len() - 1)
    }

    pub(super) fn transform(&self) -> AxisRules {
        let last = self.dims.len() - 1;
        self.each(|axis| if axis == last { AxisRule::Transformed(axis) } else { AxisRule::Kept(axis) })
    }

    pub(super) fn gather(&self, attrs: &GatherAttrs) -> AxisRules {
        let mut from_indices = (0..self.result().len()).filter(|axis| !attrs.offset_dims.contains(axis));
        let of_indices = (0..self.dims_of(1).len()).map(|axis| match axis == attrs.index_vector_dim {
            true => AxisRule::Components,
            false => from_indices.next().map_or(AxisRule::Opaque, AxisRule::Kept),
        });
        let of_indices: AxisRules = of_indices.collect();
        if self.position == 1 {
            return of_indices;
        }
        let mut offsets = attrs.offset_dims.iter();
        self.each(|axis| {
            if let Some(pair) = attrs.operand_batching_dims.iter().position(|&dim| dim == axis) {
                return of_indices[attrs.start_indices_batching_dims[pair]].clone();
            }
            let to = match attrs.collapsed_slice_dims.contains(&axis) {
                true => None,
                false => offsets.next().copied(),
            };
            let (is_whole, is_addressed) =
                (attrs.slice_sizes[axis] == self.dims[axis], attrs.start_index_map.contains(&axis));
            match (to, is_whole) {
                (Some(to), true) => AxisRule::Kept(to),
                (None, true) => AxisRule::Dropped,
                (Some(to), false) if !is_addressed => AxisRule::Sliced(to),
                (to, false) => AxisRule::Addressed(to),
            }
        })
    }

    pub(super) fn scatter(&self, attrs: &ScatterAttrs) -> AxisRules {
        let mut windows = attrs.update_window_dims.iter();
        // The axis of the updates that is written along each axis of the result.
        let written: SmallVec<[Option<usize>; 4]> = (0..self.result().len())
            .map(|axis| match attrs.inserted_window_dims.contains(&axis) || attrs.input_batching_dims.contains(&axis) {
                true => None,
                false => windows.next().copied(),
            })
            .collect();
        let updates = self.dims_of(2);
        let is_whole = |axis: usize| written[axis].is_some_and(|from| updates[from] == self.result()[axis]);
        let of_indices = |axis: usize| {
            if axis == attrs.index_vector_dim {
                return AxisRule::Components;
            }
            match attrs.scatter_indices_batching_dims.iter().position(|&dim| dim == axis) {
                Some(pair) => AxisRule::Kept(attrs.input_batching_dims[pair]),
                None => AxisRule::Scattered(match attrs.mode {
                    ScatterMode::Assign => None,
                    ScatterMode::Combine(combine) => Some(combine),
                }),
            }
        };
        match self.position {
            0 => self.each(|axis| match attrs.input_batching_dims.contains(&axis) || is_whole(axis) {
                true => AxisRule::Kept(axis),
                false => AxisRule::Addressed(Some(axis)),
            }),
            1 => self.each(of_indices),
            _ => {
                let indices = (0..self.dims_of(1).len()).filter(|&axis| axis != attrs.index_vector_dim);
                let mut rules: SmallVec<[AxisRule; 4]> = smallvec![AxisRule::Opaque; self.dims.len()];
                for (axis, from) in written.iter().enumerate() {
                    let Some(from) = *from else { continue };
                    rules[from] = if is_whole(axis) { AxisRule::Kept(axis) } else { AxisRule::Placed(axis) };
                }
                let others = (0..self.dims.len()).filter(|axis| !attrs.update_window_dims.contains(axis));
                others.zip(indices).for_each(|(axis, of)| rules[axis] = of_indices(of));
                rules
            }
        }
    }
}
