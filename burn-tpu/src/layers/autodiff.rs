//! Layers on the autodiff backend.
//!
//! A node of Burn's graph has one value and a constant number of parents, and a loop has any number of both. So a loop
//! is a chain of nodes that pass a *token* on. Each operand joins the chain, the loop is at its end, and each result is
//! a node after that. What the backward pass of one finds is in a table that all of them share: a result's gradient is
//! put there, the loop takes those and puts its operands' gradients there, and each operand's node hands its own on.

use super::refused;
use super::run::{Call, LayersBackend};
use crate::custom_op::autodiff::{node, untracked};
use crate::custom_op::tensors::AnyTensor;
use crate::{Result, Tpu, TpuError, TpuFloat, TpuInt, TpuTensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::ops::{FloatTensor, FloatTensorOps};
use burn_core::tensor::{FloatDType, Shape, TensorMetadata};
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::{LayerInputs, LayerLoop, LayerResults, Residuals};
use std::sync::{Arc, Mutex, PoisonError};

/// A tensor of the autodiff backend.
type Tracked<F, I, C> = FloatTensor<Autodiff<Tpu<F, I>, C>>;

/// What the nodes of one loop share: gradients by the number of the operand or result.
type Shared = Arc<Mutex<Vec<Option<Tensor>>>>;

fn take(shared: &Shared, place: usize) -> Option<Tensor> {
    shared.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place).and_then(Option::take)
}

fn put(shared: &Shared, place: usize, gradient: Option<Tensor>) {
    if let Some(slot) = shared.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
        *slot = gradient;
    }
}

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> LayersBackend for Autodiff<Tpu<F, I>, C> {
    fn run(call: Call<'_, Self>) -> Result<Vec<AnyTensor<Self>>> {
        if call.states > 0 {
            return Err(refused("state has no gradient: run the layers of the model's `valid()`".into()));
        }
        let kinds: Vec<Kind> = call.carries.iter().map(AnyTensor::kind).collect();
        let is_tracked = |value: &AnyTensor<Self>| matches!(value, AnyTensor::Float(tensor) if tensor.is_tracked());
        let of_stacks: Vec<(Kind, bool)> = call.stacked.iter().map(|stack| (stack.kind(), is_tracked(stack))).collect();
        let differentiates = call.carries.iter().chain(&call.stacked).any(is_tracked);
        let operands: Vec<Option<Tracked<F, I, C>>> = call.carries.iter().chain(&call.stacked).map(float).collect();
        let stacked = call.stacked.into_iter().map(recorded);
        let stacked: Vec<Tensor> = stacked.chain(call.constants).collect();
        let carries: Vec<Tensor> = call.carries.into_iter().map(recorded).collect();
        let types: Vec<_> = carries.iter().map(|carry| carry.ty().clone()).collect();
        let mut error = None;
        let layer = LayerLoop::record(call.layers, &carries, &stacked, call.keep, |inputs| {
            let LayerInputs { carries, mut slices, gradients } = inputs;
            let constants = slices.split_off(of_stacks.len());
            let carries: Vec<_> =
                carries.into_iter().zip(&kinds).map(|(tensor, &kind)| leaf(tensor, kind, differentiates)).collect();
            let slices = slices.into_iter().zip(&of_stacks);
            let slices: Vec<_> = slices.map(|(slice, &(kind, is_trained))| leaf(slice, kind, is_trained)).collect();
            let given = (call.layer)(carries.clone(), slices.clone(), constants);
            let given = given.unwrap_or_else(|reason| {
                error = Some(reason);
                Vec::new()
            });
            let operands: Vec<_> = carries.iter().chain(&slices).map(float).collect();
            // Else the caller says what is wrong.
            let results: Vec<Tensor> = given.iter().cloned().map(recorded).collect();
            let is_a_loop = results.iter().map(Tensor::ty).eq(&types);
            let found = if differentiates && is_a_loop { of_layer(&given, operands, gradients) } else { Vec::new() };
            LayerResults { carries: results, gradients: found, ..LayerResults::default() }
        });
        if let Some(error) = error {
            return Err(error);
        }
        let layer = layer?;
        let (results, residuals) = layer.forward(carries, stacked)?;
        if !differentiates {
            return Ok(results.into_iter().zip(kinds).map(|(result, kind)| untracked(result, kind)).collect());
        }
        let shared: Shared = Arc::new(Mutex::new(vec![None; operands.len()]));
        let given: Shared = Arc::new(Mutex::new(vec![None; results.len()]));
        let chain = join::<F, I, C>(operands, &shared);
        let saved = SavedLoop { recorded: Arc::new(layer), residuals, shared, given: Arc::clone(&given) };
        let last = node::<F, I, C, _, 1>(TheLoop, [chain.clone()], saved, chain.primitive.clone());
        let result = |(place, (result, kind)): (usize, (Tensor, Kind))| match kind {
            Kind::Float => {
                let saved = Place { shared: Arc::clone(&given), place, token: last.primitive.clone() };
                AnyTensor::Float(node::<F, I, C, _, 1>(LoopResult, [last.clone()], saved, result.into()))
            }
            other => untracked(result, other),
        };
        Ok(results.into_iter().zip(kinds).enumerate().map(result).collect())
    }
}

/// Returns a value without its gradient.
fn recorded<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(value: AnyTensor<Autodiff<Tpu<F, I>, C>>) -> Tensor {
    match value {
        AnyTensor::Float(tensor) => tensor.primitive.0,
        AnyTensor::Int(tensor) | AnyTensor::Bool(tensor) => tensor.0,
    }
}

/// Returns the float tensor that a value is.
fn float<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    value: &AnyTensor<Autodiff<Tpu<F, I>, C>>,
) -> Option<Tracked<F, I, C>> {
    match value {
        AnyTensor::Float(tensor) => Some(tensor.clone()),
        AnyTensor::Int(_) | AnyTensor::Bool(_) => None,
    }
}

/// Returns a value of the layer that is being recorded. A float may be one whose gradient is looked for.
fn leaf<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    tensor: Tensor,
    kind: Kind,
    is_trained: bool,
) -> AnyTensor<Autodiff<Tpu<F, I>, C>> {
    match untracked(tensor, kind) {
        AnyTensor::Float(tensor) => {
            AnyTensor::Float(Autodiff::<Tpu<F, I>, C>::float_set_require_grad(tensor, is_trained))
        }
        other => other,
    }
}

/// Returns the gradients of a layer's operands, from those of what it gives.
fn of_layer<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    given: &[AnyTensor<Autodiff<Tpu<F, I>, C>>],
    operands: Vec<Option<Tracked<F, I, C>>>,
    gradients: Vec<Tensor>,
) -> Vec<Option<Tensor>> {
    let shared: Shared = Arc::new(Mutex::new(gradients.into_iter().map(Some).collect()));
    let last = join::<F, I, C>(given.iter().map(float).collect(), &shared);
    if !last.is_tracked() {
        return vec![None; operands.len()];
    }
    let mut found = <Autodiff<Tpu<F, I>, C> as AutodiffBackend>::backward(last);
    let gradient = |operand: Option<Tracked<F, I, C>>| {
        let operand = operand.filter(|operand| operand.is_tracked())?;
        let gradient = <Autodiff<Tpu<F, I>, C> as AutodiffBackend>::grad_remove(&operand, &mut found)?;
        // Of an op on two float types, Burn's gradients have the result's type.
        Some(Tpu::<F, I>::float_cast(gradient, operand.primitive.dtype().into()).0)
    };
    operands.into_iter().map(gradient).collect()
}

/// Returns the end of a chain that values join. Its backward pass gives each the gradient at its place.
fn join<F: TpuFloat, I: TpuInt, C: CheckpointStrategy>(
    values: Vec<Option<Tracked<F, I, C>>>,
    shared: &Shared,
) -> Tracked<F, I, C> {
    let mut chain: Option<Tracked<F, I, C>> = None;
    for (place, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let start = || {
            let device = value.primitive.device();
            let token = Tpu::<F, I>::float_zeros(Shape::new([1]), &device, FloatDType::F32);
            <Autodiff<Tpu<F, I>, C> as AutodiffBackend>::from_inner(token)
        };
        let before = chain.unwrap_or_else(start);
        let token = before.primitive.clone();
        let saved = Place { shared: Arc::clone(shared), place, token: token.clone() };
        chain = Some(node::<F, I, C, _, 2>(Join, [before, value], saved, token));
    }
    chain.unwrap_or_else(|| unreachable!("a loop carries a float"))
}

/// The place of a gradient, and the token that the nodes of a chain pass on.
#[derive(Clone, Debug)]
struct Place {
    shared: Shared,
    place: usize,
    token: TpuTensor,
}

/// Hands the gradient at its place to an operand.
#[derive(Debug)]
struct Join;

impl<F: TpuFloat, I: TpuInt> Backward<Tpu<F, I>, 2> for Join {
    type State = Place;

    fn backward(self, ops: Ops<Place, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [before, operand], node, state } = ops;
        drop(gradients.consume::<Tpu<F, I>>(&node));
        if let Some(operand) = operand
            && let Some(gradient) = take(&state.shared, state.place)
        {
            gradients.register::<Tpu<F, I>>(operand.id, gradient.into());
        }
        if let Some(before) = before {
            gradients.register::<Tpu<F, I>>(before.id, state.token);
        }
    }
}

/// Puts the gradient of a result at its place.
#[derive(Debug)]
struct LoopResult;

impl<F: TpuFloat, I: TpuInt> Backward<Tpu<F, I>, 1> for LoopResult {
    type State = Place;

    fn backward(self, ops: Ops<Place, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [the_loop], node, state } = ops;
        put(&state.shared, state.place, Some(gradients.consume::<Tpu<F, I>>(&node).0));
        if let Some(the_loop) = the_loop {
            gradients.register::<Tpu<F, I>>(the_loop.id, state.token);
        }
    }
}

/// What the backward pass of a loop needs.
#[derive(Clone)]
struct SavedLoop {
    recorded: Arc<LayerLoop>,
    residuals: Residuals,
    /// The gradients of the operands.
    shared: Shared,
    /// The gradients of the results.
    given: Shared,
}

impl std::fmt::Debug for SavedLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SavedLoop")
    }
}

/// Records the backward loop.
#[derive(Debug)]
struct TheLoop;

impl<F: TpuFloat, I: TpuInt> Backward<Tpu<F, I>, 1> for TheLoop {
    type State = SavedLoop;

    fn backward(self, ops: Ops<SavedLoop, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [chain], node, state } = ops;
        let token = gradients.consume::<Tpu<F, I>>(&node);
        let given = std::mem::take(&mut *state.given.lock().unwrap_or_else(PoisonError::into_inner));
        let found = state.recorded.backward(&state.residuals, &given);
        // Burn's backward pass returns no error, and only a bug gives one.
        let found = found.unwrap_or_else(|error: TpuError| panic!("burn-tpu: {error}"));
        for (place, gradient) in found.carries.into_iter().chain(found.stacked).enumerate() {
            put(&state.shared, place, gradient);
        }
        if let Some(chain) = chain {
            gradients.register::<Tpu<F, I>>(chain.id, token);
        }
    }
}
