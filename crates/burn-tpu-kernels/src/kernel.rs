//! A kernel: a grid, windows on arrays, scratch memory, and a body that runs once at each step of the grid.

use crate::op::{Node, Ref, Statement, Value};
use crate::{ArrayType, Element, Index, KernelError, Result};

/// How the steps along an axis of the grid depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Semantics {
    /// In no way: chips with two cores may divide them, and scratch memory is lost between them.
    Parallel,
    /// They run in order and find the scratch memory as the step before left it.
    Arbitrary,
}

/// An axis of the grid. The last one is the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Axis {
    /// The number of steps.
    pub size: usize,
    /// How they depend on each other.
    pub semantics: Semantics,
}

impl Axis {
    /// Creates an axis whose steps are independent.
    pub fn parallel(size: usize) -> Self {
        Self { size, semantics: Semantics::Parallel }
    }

    /// Creates an axis whose steps run in order.
    pub fn arbitrary(size: usize) -> Self {
        Self { size, semantics: Semantics::Arbitrary }
    }
}

/// The memory that a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Vectors.
    Vmem,
    /// Scalars.
    Smem,
}

/// The block of an array that a step of the grid sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub(crate) array: ArrayType,
    pub(crate) block: Vec<usize>,
    pub(crate) index: Vec<Index>,
    pub(crate) space: Space,
}

impl Window {
    /// Creates a window in which every step sees the whole array.
    pub fn whole(element: Element, dims: &[usize]) -> Self {
        let index = dims.iter().map(|_| Index::from(0)).collect();
        Self { array: ArrayType::new(element, dims), block: dims.to_vec(), index, space: Space::Vmem }
    }

    /// Sets the block's sizes, which divide the array's, and its index along each dim, counted in blocks.
    pub fn block(mut self, block: &[usize], index: impl IntoIterator<Item = Index>) -> Self {
        self.block = block.to_vec();
        self.index = index.into_iter().collect();
        self
    }

    /// Puts the array into the memory of scalars. The whole array is seen.
    pub fn in_smem(mut self) -> Self {
        self.space = Space::Smem;
        self
    }

    /// Returns the type of a block.
    pub fn block_type(&self) -> ArrayType {
        self.array.with_dims(self.block.clone())
    }

    /// Returns whether a step sees the block with this index.
    pub(crate) fn is_at(&self, step: &[i64], block: &[i64]) -> bool {
        self.index.iter().map(|index| index.at(step)).eq(block.iter().copied())
    }

    /// Returns the index of the block that a step sees.
    pub(crate) fn at(&self, step: &[i64]) -> Vec<i64> {
        self.index.iter().map(|index| index.at(step)).collect()
    }

    /// Checks that sizes match and that every block of the grid is inside the array.
    fn check(&self, axes: &[Axis]) -> Result<(), String> {
        let Self { array, block, .. } = self;
        if block.len() != array.dims.len() || self.index.len() != array.dims.len() {
            return Err(format!("blocks {block:?} at {} indices of an array {array}", self.index.len()));
        }
        if array.elements() == 0 || block.iter().zip(&array.dims).any(|(&size, dim)| size == 0 || dim % size != 0) {
            return Err(format!("blocks {block:?} do not divide {array}"));
        }
        if self.space == Space::Smem && *block != array.dims {
            return Err(format!("scalar memory takes whole arrays, not blocks {block:?} of {array}"));
        }
        if self.index.iter().any(|index| index.axes() > axes.len()) {
            return Err(format!("an index map of {array} reads more than the {} axes of the grid", axes.len()));
        }
        array.dims.iter().zip(block).zip(&self.index).try_for_each(|((dim, size), index)| {
            let outside = |at: i64| !usize::try_from(at).is_ok_and(|at| at < dim / size);
            let step = steps(&axes_of(index, axes)).find(|step| outside(index.at(step)));
            step.map_or(Ok(()), |step| {
                let (at, count) = (index.at(&step), dim / size);
                Err(format!("block {at} of {count} blocks of {size} along a dim of {array}, at step {step:?}"))
            })
        })
    }
}

/// Returns the axes of a grid without the steps along those that an expression does not read.
fn axes_of(index: &Index, axes: &[Axis]) -> Vec<Axis> {
    let axes = axes.iter().enumerate();
    axes.map(|(at, axis)| if index.reads(at) { *axis } else { Axis { size: 1, ..*axis } }).collect()
}

/// What a [`Ref`] refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Operand,
    Result,
    Scratch,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    pub role: Role,
    pub window: Window,
}

/// A checked kernel. [`KernelBuilder`](crate::KernelBuilder) makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) axes: Vec<Axis>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) body: Vec<Statement>,
}

impl Kernel {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the types of the operands.
    pub fn operands(&self) -> Vec<ArrayType> {
        self.arrays(Role::Operand)
    }

    /// Returns the types of the results.
    pub fn results(&self) -> Vec<ArrayType> {
        self.arrays(Role::Result)
    }

    /// Returns the number of steps of the grid.
    pub fn steps(&self) -> usize {
        self.axes.iter().map(|axis| axis.size).product()
    }

    fn arrays(&self, role: Role) -> Vec<ArrayType> {
        self.of(role).map(|(_, buffer)| buffer.window.array.clone()).collect()
    }

    /// Returns the buffers of a role, in the order of their declaration.
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = (Ref, &Buffer)> {
        let refs = (0..).map(Ref);
        refs.zip(&self.buffers).filter(move |(_, buffer)| buffer.role == role)
    }

    pub(crate) fn node(&self, value: Value) -> &Node {
        &self.nodes[value.0 as usize]
    }

    pub(crate) fn buffer(&self, at: Ref) -> &Buffer {
        &self.buffers[at.0 as usize]
    }

    pub(crate) fn check(self) -> Result<Self> {
        let fails = |rule: String| Err(KernelError::layout(&self.name, rule));
        if self.axes.is_empty() || self.axes.iter().any(|axis| axis.size == 0 || i32::try_from(axis.size).is_err()) {
            return fails(format!("a grid of {:?}", self.axes.iter().map(|axis| axis.size).collect::<Vec<_>>()));
        }
        let is_name = |name: &str| {
            let mut chars = name.chars();
            chars.next().is_some_and(|c| c.is_ascii_alphabetic())
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !is_name(&self.name) {
            return fails("a name is letters, digits and `_`".into());
        }
        if self.of(Role::Result).next().is_none() {
            return fails("no result".into());
        }
        for buffer in &self.buffers {
            if let Err(rule) = buffer.window.check(&self.axes) {
                return fails(rule);
            }
        }
        Ok(self)
    }
}

/// Returns the steps of a grid in the order in which they run.
pub(crate) fn steps(axes: &[Axis]) -> impl Iterator<Item = Vec<i64>> {
    let sizes: Vec<i64> = axes.iter().map(|axis| axis.size as i64).collect();
    let advance = move |step: &Vec<i64>| {
        let mut next = step.clone();
        let axis = (0..next.len()).rev().find(|&axis| next[axis] + 1 < sizes[axis])?;
        next[axis] += 1;
        next[axis + 1..].fill(0);
        Some(next)
    };
    std::iter::successors(Some(vec![0; axes.len()]), advance)
}
