//! A call of a custom op as one node of a graph of autodiff.
//!
//! A node of Burn's graph has one value. If an op has several float results, the node's value is all of them in one vector,
//! of which the results are slices; XLA takes slices of a concatenation apart.

use super::{Kind, UntypedOp};
use crate::ops::movement::{Slice, cat, reshape, slice};
use crate::{Result, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// From operands, results and gradients of the results to the gradients of the operands. What is no float has none: in the
/// place of such a result's gradient is the result, and what is returned for such an operand is not read.
pub type Gradient = dyn Fn(Vec<Tensor>, Vec<Tensor>, Vec<Tensor>) -> Result<Vec<Tensor>> + Send + Sync;

/// A call of a custom op that has a gradient: what its backward pass needs.
#[derive(Clone)]
pub struct DifferentiableCall {
    op: Arc<UntypedOp>,
    gradient: Arc<Gradient>,
    operands: Vec<Tensor>,
    results: Vec<Tensor>,
}

/// Where a result of a call is.
#[derive(Clone, Debug)]
pub enum InNode {
    /// The node's value.
    Whole,
    /// These elements of the node's value, with these dims.
    Part(Range<usize>, Vec<usize>),
    /// Nowhere, since it is no float: this value.
    Outside(Tensor),
}

impl DifferentiableCall {
    /// Returns the call of an op with these operands, of which one requires a gradient, and results.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`](crate::TpuError::CustomOp) if the op has no gradient.
    pub fn new(
        op: &Arc<UntypedOp>,
        gradient: Option<&Arc<Gradient>>,
        operands: Vec<Tensor>,
        results: Vec<Tensor>,
    ) -> Result<Self> {
        let Some(gradient) = gradient else {
            return Err(op.error("an operand requires a gradient, and the op has none: add one, or detach the operand"));
        };
        Ok(Self { op: Arc::clone(op), gradient: Arc::clone(gradient), operands, results })
    }

    /// Returns the op.
    pub fn op(&self) -> &UntypedOp {
        &self.op
    }

    /// Returns the value of the node: the float result, or all of them in a vector.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`](crate::TpuError::CustomOp) if no result is a float, or several have different types.
    pub fn value(&self) -> Result<Tensor> {
        let mut floats = self.floats();
        let Some(first) = floats.next() else {
            return Err(self.op.error("an operand requires a gradient, and no result is a float"));
        };
        if floats.next().is_none() {
            return Ok(first.clone());
        }
        if let Some(other) = self.floats().find(|other| other.element() != first.element()) {
            let (first, other) = (first.element(), other.element());
            return Err(self.op.error(format!("it has gradients, and float results of {first} and {other}")));
        }
        let flat = |result: &Tensor| reshape(result.clone(), &[result.ty().elements()]);
        Ok(cat(self.floats().map(flat).collect(), 0))
    }

    /// Returns what each result is, and where.
    pub fn results(&self) -> Vec<(Kind, InNode)> {
        let is_single = self.floats().count() == 1;
        let mut start = 0;
        let mut places = Vec::with_capacity(self.results.len());
        for (result, &kind) in self.results.iter().zip(self.op.results()) {
            let place = match kind {
                Kind::Float if is_single => InNode::Whole,
                Kind::Float => {
                    let elements = start..start + result.ty().elements();
                    start = elements.end;
                    InNode::Part(elements, result.dims().to_vec())
                }
                Kind::Int | Kind::Bool => InNode::Outside(result.clone()),
            };
            places.push((kind, place));
        }
        places
    }

    /// Returns the gradients of the float operands, in their order, from that of the node's value.
    ///
    /// # Errors
    /// [`TpuError::CustomOp`](crate::TpuError::CustomOp) if a gradient has another type than its operand; that of the
    /// gradient.
    pub fn backward(self, of_value: &Tensor) -> Result<Vec<Tensor>> {
        let of_result = |(_, place)| match place {
            InNode::Whole => of_value.clone(),
            InNode::Part(elements, dims) => {
                let part = slice(of_value.clone(), &[Slice { range: elements, step: 1 }]);
                reshape(part, &dims)
            }
            InNode::Outside(result) => result,
        };
        let of_results = self.results().into_iter().map(of_result).collect();
        let found = (self.gradient)(self.operands.clone(), self.results, of_results)?;
        let mut gradients = Vec::with_capacity(found.len());
        for (operand, gradient) in self.operands.iter().zip(found) {
            if !operand.element().is_float() {
                continue;
            }
            if gradient.ty() != operand.ty() {
                let (gradient, operand) = (gradient.ty(), operand.ty());
                return Err(self.op.error(format!("the gradient of an operand {operand} is {gradient}")));
            }
            gradients.push(gradient);
        }
        Ok(gradients)
    }

    /// Returns the float results.
    fn floats(&self) -> impl Iterator<Item = &Tensor> {
        self.results.iter().zip(self.op.results()).filter(|(_, kind)| **kind == Kind::Float).map(|(result, _)| result)
    }
}

impl std::fmt::Debug for DifferentiableCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DifferentiableCall({:?})", self.op)
    }
}
