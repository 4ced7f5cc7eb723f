//! Layers in Burn's graph.
//!
//! A node of Burn's graph has one value and a constant number of parents, and a loop has any number of both. So a loop
//! is a chain of nodes that pass a *token* on. Each operand joins the chain, the loop is at its end, and each result is
//! a node after that. What the backward pass of one finds is in a table that all of them share: a result's gradient is
//! put there, the loop takes those and puts its operands' gradients there, and each operand's node hands its own on.

use super::refused;
use super::run::{Call, Sees, foreign};
use crate::custom_op::autodiff::{Tracked, float, node, operand, untracked};
use crate::{Result, TpuError};
use backend::{Tpu, TpuTensor};
use burn::tensor::{FloatDType, Shape};
use burn_backend::ops::FloatTensorOps;
use burn_backend::{AutodiffBackend, TensorMetadata};
use burn_dispatch::backends::autodiff::Autodiff;
use burn_dispatch::backends::autodiff::checkpoint::base::Checkpointer;
use burn_dispatch::backends::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_dispatch::backends::autodiff::grads::Gradients;
use burn_dispatch::backends::autodiff::ops::{Backward, Ops};
use burn_dispatch::{DispatchKindConversion, DispatchTensor};
use burn_tpu_runtime::Tensor as Value;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::{LayerLoop, LayerResults, Residuals};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// What the nodes of one loop share: gradients by the number of the operand or result.
type Shared = Arc<Mutex<Vec<Option<Value>>>>;

fn take(shared: &Shared, place: usize) -> Option<Value> {
    shared.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place).and_then(Option::take)
}

fn put(shared: &Shared, place: usize, gradient: Option<Value>) {
    if let Some(slot) = shared.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place) {
        *slot = gradient;
    }
}

/// Runs layers. A carry or a parameter has autodiff.
pub(super) fn run<C: CheckpointStrategy>(mut call: Call<'_>) -> Result<Vec<DispatchTensor>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    if !call.states.is_empty() {
        return Err(refused("state has no gradient: run the layers of the model's `valid()`".into()));
    }
    let (carries, stacked) = (std::mem::take(&mut call.carries), std::mem::take(&mut call.stacked));
    let (count, parameters) = (carries.len(), stacked.len());
    let (mut values, mut operands) = (Vec::new(), Vec::new());
    for tensor in carries.into_iter().chain(stacked) {
        let (value, float) = operand::<C>(tensor).ok_or_else(foreign)?;
        values.push(value);
        operands.push(float);
    }
    let mut stacked = values.split_off(count);
    stacked.append(&mut call.constants);
    let carries = values;
    let is_tracked = |operand: &Option<Tracked>| operand.as_ref().is_some_and(Tracked::is_tracked);
    let differentiates = operands.iter().any(is_tracked);
    // The gradient of a carry is that of what the layer before gave.
    let trained = (0..count).map(|_| differentiates).chain(operands[count..].iter().map(is_tracked)).collect();
    let sees = InGraph::<C> { trained, operands: Vec::new(), strategy: PhantomData };
    let recorded = call.record(&carries, &stacked, parameters, sees)?;
    let (results, residuals) = recorded.forward(carries, stacked)?;
    let kinds = call.kinds.iter().copied();
    if !differentiates {
        return Ok(results.into_iter().zip(kinds).map(|(result, kind)| untracked::<C>(result, kind)).collect());
    }
    let shared: Shared = Arc::new(Mutex::new(vec![None; operands.len()]));
    let given: Shared = Arc::new(Mutex::new(vec![None; results.len()]));
    let chain = join::<C>(operands, &shared).ok_or_else(|| TpuError::Bug("a loop carries no float".to_owned()))?;
    let saved = SavedLoop { recorded: Arc::new(recorded), residuals, shared, given: Arc::clone(&given) };
    let last = node::<C, _, 1>(TheLoop, [&chain], saved, chain.primitive().clone());
    let result = |(place, (result, kind))| match kind {
        Kind::Float => {
            let saved = Place { shared: Arc::clone(&given), place, token: last.primitive().clone() };
            float::<C>(node::<C, _, 1>(LoopResult, [&last], saved, TpuTensor::from(result)))
        }
        other => untracked::<C>(result, other),
    };
    Ok(results.into_iter().zip(kinds).enumerate().map(result).collect())
}

/// A layer whose operands are leaves of Burn's graph.
struct InGraph<C> {
    /// Whether the gradient of each operand is looked for.
    trained: Vec<bool>,
    /// The operands so far, where they are floats.
    operands: Vec<Option<Tracked>>,
    strategy: PhantomData<C>,
}

impl<C: CheckpointStrategy> Sees for InGraph<C>
where
    DispatchTensor: DispatchKindConversion<Autodiff<Tpu, C>>,
{
    fn operand(&mut self, value: Value, kind: Kind) -> DispatchTensor {
        let is_trained = self.trained.get(self.operands.len()).copied().unwrap_or(false);
        if kind != Kind::Float {
            self.operands.push(None);
            return untracked::<C>(value, kind);
        }
        let leaf = Autodiff::<Tpu, C>::from_inner(TpuTensor::from(value));
        let leaf = Autodiff::<Tpu, C>::float_set_require_grad(leaf, is_trained);
        self.operands.push(Some(leaf.clone()));
        float::<C>(leaf)
    }

    fn results(
        self,
        given: Vec<DispatchTensor>,
        is_a_loop: impl Fn(&[Value]) -> bool,
        gradients: Vec<Value>,
    ) -> Option<LayerResults> {
        let (mut carries, mut floats) = (Vec::new(), Vec::new());
        for tensor in given {
            let (value, float) = operand::<C>(tensor)?;
            carries.push(value);
            floats.push(float);
        }
        // Else the caller says what is wrong.
        let differentiates = self.trained.contains(&true) && is_a_loop(&carries);
        let gradients = if differentiates { of_layer::<C>(floats, self.operands, gradients) } else { Vec::new() };
        Some(LayerResults { carries, gradients, ..LayerResults::default() })
    }
}

/// Returns the gradients of a layer's operands, from those of what it gives.
fn of_layer<C: CheckpointStrategy>(
    given: Vec<Option<Tracked>>,
    operands: Vec<Option<Tracked>>,
    gradients: Vec<Value>,
) -> Vec<Option<Value>> {
    let shared: Shared = Arc::new(Mutex::new(gradients.into_iter().map(Some).collect()));
    let Some(last) = join::<C>(given, &shared).filter(Tracked::is_tracked) else {
        return vec![None; operands.len()];
    };
    let mut found = Autodiff::<Tpu, C>::backward(last);
    let gradient = |operand: Option<Tracked>| {
        let operand = operand.filter(Tracked::is_tracked)?;
        let gradient = Autodiff::<Tpu, C>::grad_remove(&operand, &mut found)?;
        // Of an op on two float types, Burn's gradients have the result's type.
        Some(Tpu::float_cast(gradient, operand.primitive().dtype().into()).into())
    };
    operands.into_iter().map(gradient).collect()
}

/// Returns the end of a chain that values join; `None` for no float. Its backward pass gives each the gradient at its
/// place.
fn join<C: CheckpointStrategy>(values: Vec<Option<Tracked>>, shared: &Shared) -> Option<Tracked> {
    let mut chain: Option<Tracked> = None;
    for (place, value) in values.into_iter().enumerate() {
        let Some(value) = value else { continue };
        let before = chain.unwrap_or_else(|| {
            let device = value.primitive().device();
            Autodiff::<Tpu, C>::from_inner(Tpu::float_zeros(Shape::new([1]), &device, FloatDType::F32))
        });
        let token = before.primitive().clone();
        let saved = Place { shared: Arc::clone(shared), place, token: token.clone() };
        chain = Some(node::<C, _, 2>(Join, [&before, &value], saved, token));
    }
    chain
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

impl Backward<Tpu, 2> for Join {
    type State = Place;

    fn backward(self, ops: Ops<Place, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [before, operand], node, state } = ops;
        drop(gradients.consume::<Tpu>(&node));
        if let Some(operand) = operand
            && let Some(gradient) = take(&state.shared, state.place)
        {
            gradients.register::<Tpu>(operand.id, gradient.into());
        }
        if let Some(before) = before {
            gradients.register::<Tpu>(before.id, state.token);
        }
    }
}

/// Puts the gradient of a result at its place.
#[derive(Debug)]
struct LoopResult;

impl Backward<Tpu, 1> for LoopResult {
    type State = Place;

    fn backward(self, ops: Ops<Place, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [the_loop], node, state } = ops;
        put(&state.shared, state.place, Some(gradients.consume::<Tpu>(&node).into()));
        if let Some(the_loop) = the_loop {
            gradients.register::<Tpu>(the_loop.id, state.token);
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

impl Backward<Tpu, 1> for TheLoop {
    type State = SavedLoop;

    fn backward(self, ops: Ops<SavedLoop, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Ops { parents: [chain], node, state } = ops;
        let token = gradients.consume::<Tpu>(&node);
        let given = std::mem::take(&mut *state.given.lock().unwrap_or_else(PoisonError::into_inner));
        let found = state.recorded.backward(&state.residuals, &given);
        // Burn's backward pass returns no error, and only a bug gives one.
        let found = found.unwrap_or_else(|error: TpuError| panic!("burn-tpu: {error}"));
        for (place, gradient) in found.carries.into_iter().chain(found.stacked).enumerate() {
            put(&state.shared, place, gradient);
        }
        if let Some(chain) = chain {
            gradients.register::<Tpu>(chain.id, token);
        }
    }
}
