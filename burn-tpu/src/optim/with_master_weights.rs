//! The f32 master weights and the f32 state of 16-bit weights.

use crate::backend::{TpuFloat, TpuInt};
use crate::dtype::to_burn;
use crate::{Tpu, TpuDevice};
use burn_core::module::AutodiffModule;
use burn_core::record::{PrecisionSettings, Record};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::{Bool, Tensor, TensorPrimitive};
use burn_optim::{LearningRate, SimpleOptimizer, adaptor::OptimizerAdaptor};
use burn_std::DType as BurnDType;
use burn_tpu_runtime::graph::DType;

/// The part of [`TpuOptimizer`](crate::TpuOptimizer) that updates one weight: a Burn [`SimpleOptimizer`] that works on an
/// f32 master copy of each 16-bit weight.
///
/// It is public since the type of a `TpuOptimizer` names it. It does not end the step.
#[derive(Clone, Debug)]
pub struct WithMasterWeights<O> {
    optimizer: O,
}

impl<O> WithMasterWeights<O> {
    /// Wraps the part of a Burn optimizer that updates one weight; it runs on `Tpu<f32>`.
    pub fn new(optimizer: O) -> Self {
        Self { optimizer }
    }

    /// Wraps the optimizer inside the adaptor that a Burn configuration builds, and keeps its gradient clipping.
    pub fn adapt<M, B>(adaptor: OptimizerAdaptor<O, M, B>) -> OptimizerAdaptor<Self, M, B>
    where
        B: AutodiffBackend,
        M: AutodiffModule<B>,
        O: SimpleOptimizer<B::InnerBackend>,
        Self: SimpleOptimizer<B::InnerBackend>,
    {
        let wrapped = OptimizerAdaptor::from(Self::new(adaptor.optim().clone()));
        match adaptor.grad_clipping() {
            Some(clipping) => wrapped.with_grad_clipping(clipping.clone()),
            None => wrapped,
        }
    }
}

/// The backend in which the wrapped optimizer runs: the same tensors, f32 by default.
type Wide<I> = Tpu<f32, I>;

/// An f32 master copy and the wrapped optimizer's state for it.
#[derive(Clone, Debug)]
pub struct MasterState<I: TpuInt, S, const D: usize> {
    master: Option<Tensor<Wide<I>, D>>,
    state: Option<S>,
}

impl<F, I, O> SimpleOptimizer<Tpu<F, I>> for WithMasterWeights<O>
where
    F: TpuFloat,
    I: TpuInt,
    O: SimpleOptimizer<Wide<I>>,
{
    type State<const D: usize> = MasterState<I, O::State<D>, D>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<Tpu<F, I>, D>,
        grad: Tensor<Tpu<F, I>, D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<Tpu<F, I>, D>, Option<Self::State<D>>) {
        let dtype = tensor.dtype();
        let (master, state) = state.map_or((None, None), |state| (state.master, state.state));
        let narrow = matches!(dtype, BurnDType::BF16 | BurnDType::F16);
        if !narrow {
            let (tensor, state) = self.optimizer.step(lr, retype(tensor), retype(grad), state);
            return (retype(tensor), Some(MasterState { master: None, state }));
        }
        let master = follow(master, tensor);
        let (master, state) = self.optimizer.step(lr, master, widen(grad), state);
        let rounded = retype(master.clone().cast(dtype));
        (rounded, Some(MasterState { master: Some(master), state }))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &TpuDevice) -> Self::State<D> {
        MasterState {
            master: state.master.map(|master| master.to_device(device)),
            state: state.state.map(|state| O::to_device(state, device)),
        }
    }
}

/// Returns the master copy that the optimizer starts from. Each element is that of the old master copy if the weight's
/// element is its rounded value, else the weight's element. So the copy follows a weight that was clipped, averaged,
/// re-initialised or loaded since the last step.
fn follow<F: TpuFloat, I: TpuInt, const D: usize>(
    master: Option<Tensor<Wide<I>, D>>,
    weight: Tensor<Tpu<F, I>, D>,
) -> Tensor<Wide<I>, D> {
    let Some(master) = master else { return widen(weight) };
    let rounded = retype(master.clone().cast(weight.dtype()));
    let untouched = rounded.equal(weight.clone());
    widen(weight).mask_where(retype_bool(untouched), master)
}

fn retype_bool<F: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<F, I>, D, Bool>) -> Tensor<Wide<I>, D, Bool> {
    Tensor::from_primitive(tensor.into_primitive())
}

/// Returns the same tensor, typed with another default float type.
fn retype<A: TpuFloat, B: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<A, I>, D>) -> Tensor<Tpu<B, I>, D> {
    Tensor::from_primitive(TensorPrimitive::Float(tensor.into_primitive().tensor()))
}

fn widen<F: TpuFloat, I: TpuInt, const D: usize>(tensor: Tensor<Tpu<F, I>, D>) -> Tensor<Wide<I>, D> {
    retype(tensor.cast(to_burn(DType::F32)))
}

/// Saved as the pair of master copy and state.
impl<F, I, S, const D: usize> Record<Tpu<F, I>> for MasterState<I, S, D>
where
    F: TpuFloat,
    I: TpuInt,
    S: Record<Wide<I>>,
{
    type Item<P: PrecisionSettings> = <(Option<Tensor<Wide<I>, D>>, Option<S>) as Record<Wide<I>>>::Item<P>;

    fn into_item<P: PrecisionSettings>(self) -> Self::Item<P> {
        (self.master, self.state).into_item::<P>()
    }

    /// Loads f32 values. Burn loads a float tensor in its device's default type, which has 16 bits here; see
    /// `TpuDevice::wide`.
    fn from_item<P: PrecisionSettings>(item: Self::Item<P>, device: &TpuDevice) -> Self {
        let (master, state) = Record::<Wide<I>>::from_item::<P>(item, &device.wide());
        Self { master, state }
    }
}
