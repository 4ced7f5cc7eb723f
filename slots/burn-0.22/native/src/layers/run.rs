//! The loop that layers are recorded as, and its forward pass where nothing has autodiff.

use super::autodiff;
use super::refused;
use crate::custom_op::tensors::{plain, value};
use crate::{Keep, Result, TpuError};
use burn_dispatch::backends::autodiff::checkpoint::strategy::{BalancedCheckpointing, NoCheckpointing};
use burn_dispatch::{DispatchAutodiffContext, DispatchTensor, GradientCheckpointingStrategy};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::{LayerInputs, LayerLoop, LayerResults};

/// What a block records: from what the block before gives, its parameters and its state, and its other tensors, to what it
/// gives and its new state.
type Block<'c> = dyn Fn(Vec<DispatchTensor>, Vec<DispatchTensor>, Vec<Value>) -> Result<Vec<DispatchTensor>> + 'c;

/// A call of layers.
pub(super) struct Call<'c> {
    pub(super) layers: usize,
    pub(super) keep: &'c Keep,
    /// What each carry is.
    pub(super) kinds: &'c [Kind],
    pub(super) carries: Vec<DispatchTensor>,
    /// The parameters and the state, `[layers, ..]`.
    pub(super) stacked: Vec<DispatchTensor>,
    /// What each tensor of the state is, the last ones of `stacked`.
    pub(super) states: &'c [Kind],
    /// The other tensors, `[layers, ..]`.
    pub(super) constants: Vec<Value>,
    pub(super) layer: &'c Block<'c>,
}

/// How a layer that is recorded sees its tensors.
pub(super) trait Sees {
    /// Returns what the layer gets for its next operand: carries first, then parameters.
    fn operand(&mut self, value: Value, kind: Kind) -> DispatchTensor;

    /// Returns what the layer gives, with the gradients of its operands if `is_a_loop`. `None` if a tensor is foreign.
    fn results(
        self,
        given: Vec<DispatchTensor>,
        is_a_loop: impl Fn(&[Value]) -> bool,
        gradients: Vec<Value>,
    ) -> Option<LayerResults>;
}

impl Call<'_> {
    /// Runs the layers. Returns what the last one gives, and the new state of all, `[layers, ..]`. Results have autodiff
    /// if a carry or a parameter has.
    pub(super) fn run(self) -> Result<Vec<DispatchTensor>> {
        let operands = self.carries.iter().chain(&self.stacked);
        let context = operands.fold(DispatchAutodiffContext::Disabled, |all, one| all.merge(one.autodiff));
        match context {
            DispatchAutodiffContext::Disabled => self.without_autodiff(),
            DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Balanced) => {
                autodiff::run::<BalancedCheckpointing>(self)
            }
            DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Disabled) => {
                autodiff::run::<NoCheckpointing>(self)
            }
        }
    }

    fn without_autodiff(mut self) -> Result<Vec<DispatchTensor>> {
        let values = |tensors: Vec<DispatchTensor>| {
            tensors.into_iter().map(|tensor| value(tensor).ok_or_else(foreign)).collect::<Result<Vec<_>>>()
        };
        let carries = values(std::mem::take(&mut self.carries))?;
        let mut stacked = values(std::mem::take(&mut self.stacked))?;
        let slices = stacked.len();
        let parameters = slices - self.states.len();
        stacked.append(&mut self.constants);
        let sees = Plain { carries: carries.len(), parameters };
        let (mut results, stacked) = self.record(&carries, &stacked, slices, sees)?.replace(carries, stacked, &[])?;
        results.extend(stacked.into_iter().take(slices).skip(parameters));
        let kinds = self.kinds.iter().chain(self.states);
        Ok(results.into_iter().zip(kinds).map(|(result, &kind)| plain(result, kind)).collect())
    }

    /// Records a layer. The first `count` of `stacked` are its parameters and its state.
    pub(super) fn record(
        &self,
        carries: &[Value],
        stacked: &[Value],
        count: usize,
        mut sees: impl Sees,
    ) -> Result<LayerLoop> {
        let types: Vec<_> = carries.iter().map(|carry| carry.ty().clone()).collect();
        let mut error = None;
        let recorded = LayerLoop::record(self.layers, carries, stacked, self.keep, |inputs| {
            let LayerInputs { carries, mut slices, gradients } = inputs;
            let constants = slices.split_off(count);
            let states = slices.split_off(count - self.states.len());
            let carries = carries.into_iter().zip(self.kinds).map(|(carry, &kind)| sees.operand(carry, kind)).collect();
            let parameter = |slice: Value| {
                let kind = if slice.element().is_float() { Kind::Float } else { Kind::Int };
                sees.operand(slice, kind)
            };
            let mut slices: Vec<_> = slices.into_iter().map(parameter).collect();
            slices.extend(states.into_iter().zip(self.states).map(|(state, &kind)| sees.operand(state, kind)));
            let is_a_loop = |given: &[Value]| given.iter().map(Value::ty).eq(&types);
            let given = (self.layer)(carries, slices, constants);
            given.and_then(|given| sees.results(given, is_a_loop, gradients).ok_or_else(foreign)).unwrap_or_else(
                |reason| {
                    error = Some(reason);
                    LayerResults::default()
                },
            )
        });
        error.map_or(recorded, Err)
    }
}

/// The layer's tensors have no autodiff.
struct Plain {
    /// The numbers of carries, and of parameters.
    carries: usize,
    parameters: usize,
}

impl Sees for Plain {
    fn operand(&mut self, value: Value, kind: Kind) -> DispatchTensor {
        plain(value, kind)
    }

    fn results(self, given: Vec<DispatchTensor>, _: impl Fn(&[Value]) -> bool, _: Vec<Value>) -> Option<LayerResults> {
        let mut carries = given.into_iter().map(value).collect::<Option<Vec<_>>>()?;
        let states = carries.split_off(carries.len().min(self.carries));
        let parts = (0..self.parameters).map(|_| None).chain(states.into_iter().map(Some)).collect();
        Some(LayerResults { carries, parts, ..LayerResults::default() })
    }
}

/// The error for a tensor that is not this backend's.
pub(super) fn foreign() -> TpuError {
    refused("a tensor is quantized, or on a device that is no `TpuDevice`".into())
}
