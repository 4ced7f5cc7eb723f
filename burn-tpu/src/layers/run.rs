//! The backends that run layers as a loop, and the loop without a gradient.

use crate::custom_op::TpuBackend;
use crate::custom_op::sealed::Sealed;
use crate::custom_op::tensors::AnyTensor;
use crate::{Keep, Result, Tpu, TpuDevice, TpuFloat, TpuInt};
use burn_core::tensor::backend::Backend;
use burn_tpu_runtime::Tensor;
use burn_tpu_runtime::custom_op::Kind;
use burn_tpu_runtime::layers::{LayerInputs, LayerLoop, LayerResults};

/// The backends that run [`Layers`](super::Layers) as a loop: [`Tpu`] and its autodiff.
pub trait LayersBackend: Sealed + Backend<Device = TpuDevice> {
    /// Returns what the last layer gives, and the new state of all, `[layers, ..]`.
    #[doc(hidden)]
    fn run(call: Call<'_, Self>) -> Result<Vec<AnyTensor<Self>>>;
}

/// What a block records: from what the block before gives, its parameters and its state, and its other tensors, to what it
/// gives and its new state.
pub type Block<'c, B> = dyn Fn(Vec<AnyTensor<B>>, Vec<AnyTensor<B>>, Vec<Tensor>) -> Result<Vec<AnyTensor<B>>> + 'c;

/// A call of layers.
pub struct Call<'c, B: Backend> {
    pub(super) layers: usize,
    pub(super) keep: &'c Keep,
    pub(super) carries: Vec<AnyTensor<B>>,
    /// The parameters and the state, `[layers, ..]`.
    pub(super) stacked: Vec<AnyTensor<B>>,
    /// How many of them are state, the last ones.
    pub(super) states: usize,
    /// The other tensors, `[layers, ..]`.
    pub(super) constants: Vec<Tensor>,
    pub(super) layer: &'c Block<'c, B>,
}

impl<F: TpuFloat, I: TpuInt> LayersBackend for Tpu<F, I> {
    fn run(call: Call<'_, Self>) -> Result<Vec<AnyTensor<Self>>> {
        let kinds: Vec<Kind> = call.carries.iter().map(AnyTensor::kind).collect();
        let of_stacks: Vec<Kind> = call.stacked.iter().map(AnyTensor::kind).collect();
        let parameters = of_stacks.len() - call.states;
        let stacked = call.stacked.into_iter().map(Self::to_tensor);
        let stacked: Vec<Tensor> = stacked.chain(call.constants).collect();
        let carries: Vec<Tensor> = call.carries.into_iter().map(Self::to_tensor).collect();
        let mut error = None;
        let recorded = LayerLoop::record(call.layers, &carries, &stacked, call.keep, |inputs| {
            let LayerInputs { carries, mut slices, .. } = inputs;
            let constants = slices.split_off(of_stacks.len());
            let values = |tensors: Vec<Tensor>, kinds: &[Kind]| -> Vec<AnyTensor<Self>> {
                tensors.into_iter().zip(kinds).map(|(tensor, &kind)| Self::to_value(tensor, kind)).collect()
            };
            let given = (call.layer)(values(carries, &kinds), values(slices, &of_stacks), constants);
            let given = given.unwrap_or_else(|reason| {
                error = Some(reason);
                Vec::new()
            });
            let mut given: Vec<Tensor> = given.into_iter().map(Self::to_tensor).collect();
            let states = given.split_off(given.len().min(kinds.len()));
            let parts = (0..parameters).map(|_| None).chain(states.into_iter().map(Some)).collect();
            LayerResults { carries: given, parts, ..LayerResults::default() }
        });
        if let Some(error) = error {
            return Err(error);
        }
        let (mut results, mut stacked) = recorded?.replace(carries, stacked, &[])?;
        stacked.truncate(of_stacks.len());
        results.extend(stacked.drain(parameters..));
        let kinds = kinds.into_iter().chain(of_stacks.into_iter().skip(parameters));
        Ok(results.into_iter().zip(kinds).map(|(tensor, kind)| Self::to_value(tensor, kind)).collect())
    }
}
