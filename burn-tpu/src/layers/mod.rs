//! Equal blocks as one module: [`Layers`].
//!
//! Owns: the stacked parameters of equal blocks, and how a block is made of its part of them. May not know: how a loop is
//! recorded, and what its backward pass keeps, which are the runtime's.

mod autodiff;
mod blocks;
mod module;
mod run;
mod stack;

pub use run::LayersBackend;

use crate::custom_op::OpTensors;
use crate::custom_op::tensors::{AnyTensor, kinds};
use crate::{Keep, Result, TpuDevice, TpuError};
use blocks::{Found, Hollow, Separate, SetParameters, find};
use burn_core::module::Module;
use burn_core::tensor::Tensor;
use burn_core::tensor::backend::Backend;
use burn_tpu_runtime::Tensor as Recorded;
use burn_tpu_runtime::layers::stack_of;
use burn_tpu_runtime::leaves;
use run::Call;
use stack::Stack;

/// Equal blocks of a model, one after another, as one module: each parameter is stacked, `[layers, ..]`.
///
/// On [`Tpu`](crate::Tpu) and its autodiff, [`Layers::forward`] records the block once, as a loop whose trips read
/// their part of the stacks, and the backward pass is a loop too. So what recording and compiling cost does not depend
/// on the number of layers. The backward pass computes each block again from its input; [`Layers::with_keep`] keeps
/// more.
///
/// On a single chip, a model that compiles unrolled is faster unrolled: XLA fuses the update of a weight with its gradient,
/// and gradients are not stacked. See `docs/layers.md`.
///
/// The blocks may differ in the values of their tensors alone. What a block is beside tensors (sizes, rates, options) is the
/// same in all, and has no running statistics, as `BatchNorm` does.
///
/// A record has those of the blocks, as a `Vec` of them does: files of the one load into the other.
///
/// ```
/// use burn::backend::Autodiff;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::tensor::{Tensor, activation};
/// use burn_tpu::{Layers, Tpu, TpuDevice, TpuError};
///
/// # fn main() -> Result<(), TpuError> {
/// type B = Autodiff<Tpu<f32>>;
/// let device = TpuDevice::ndarray();
/// let layers = Layers::<B, Linear<B>>::init(8, |_| LinearConfig::new(4, 4).init(&device))?;
/// let x = Tensor::<B, 2>::ones([2, 4], &device);
/// let y = layers.forward(x, |layer, x| activation::gelu(layer.forward(x)))?;
/// let gradients = y.sum().backward();
/// # let _ = gradients;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Layers<B: Backend, M> {
    layers: usize,
    /// The blocks without their parameters: the first one alone, if they are equal then.
    blocks: Vec<M>,
    stacks: Vec<Stack<B>>,
    keep: Keep,
}

impl<B: Backend, M: Module<B>> Layers<B, M> {
    /// Returns `layers` blocks, which `block` makes from their numbers. Parameters are drawn in this order.
    ///
    /// # Errors
    /// Those of [`Layers::new`].
    pub fn init(layers: usize, block: impl FnMut(usize) -> M) -> Result<Self> {
        Self::new((0..layers).map(block).collect())
    }

    /// Returns blocks as one module.
    ///
    /// # Errors
    /// [`TpuError::Layers`] if there is no block, if two differ in more than the values of their tensors, if one has running
    /// statistics, or if a parameter is quantized or has more than five dims.
    pub fn new(blocks: Vec<M>) -> Result<Self> {
        if blocks.iter().any(leaves::has_running_statistics) {
            return Err(refused("a block has running statistics, as of `BatchNorm`, which a loop cannot keep".into()));
        }
        let found: Vec<Vec<Found<B>>> = blocks.iter().map(find).collect::<Result<_>>()?;
        let Some(first) = found.first() else { return Err(refused("there are none".into())) };
        if let Some((layer, message)) =
            found.iter().enumerate().find_map(|(i, other)| Some((i, differs(first, other)?)))
        {
            return Err(refused(format!("layer {layer} differs from layer 0: {message}")));
        }
        let stacks = (0..first.len())
            .map(|parameter| Stack::of(found.iter().map(|of| &of[parameter])))
            .collect::<Result<_>>()?;
        let layers = blocks.len();
        let mut blocks: Vec<M> = blocks.into_iter().map(|block| block.map(&mut Hollow::default())).collect();
        if is_of_this_backend(first) {
            let structure = blocks::structure(&blocks[0]);
            if let Some(other) = blocks.iter().position(|block| blocks::structure(block) != structure) {
                return Err(refused(format!("layer {other} differs from layer 0 in more than its tensors")));
            }
            if leaves::visit(|| blocks[0].devices()).is_empty() {
                blocks.truncate(1);
            }
        }
        Ok(Self { layers, blocks, stacks, keep: Keep::default() })
    }

    /// Sets what the forward pass keeps for the backward pass.
    pub fn with_keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// Returns the number of layers.
    pub fn len(&self) -> usize {
        self.layers
    }

    /// Returns whether there are no layers, which is never so.
    pub fn is_empty(&self) -> bool {
        self.layers == 0
    }

    /// Returns a layer as a module of its own, with the values of its parameters.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn layer(&self, index: usize) -> M {
        assert!(index < self.layers, "burn-tpu: layers: there are {}, and no layer {index}", self.layers);
        self.part(index).map(&mut Separate(self.stacks.iter().map(|stack| (stack.id(index), stack.is_trained()))))
    }

    /// Returns the layers as modules of their own.
    pub fn into_blocks(self) -> Vec<M> {
        (0..self.layers).map(|index| self.layer(index)).collect()
    }

    /// Runs the layers one after another, each recorded, on any backend.
    pub fn forward_each<T>(&self, input: T, layer: impl Fn(&M, T) -> T) -> T {
        (0..self.layers).fold(input, |x, index| layer(&self.part(index), x))
    }

    /// Returns a layer whose parameters are parts of the stacks, to which their gradients flow.
    fn part(&self, index: usize) -> M {
        self.block(index).clone().map(&mut SetParameters(self.stacks.iter().map(|stack| stack.layer(index))))
    }

    fn block(&self, index: usize) -> &M {
        &self.blocks[index % self.blocks.len()]
    }
}

impl<B: LayersBackend, M: Module<B>> Layers<B, M> {
    /// Runs the layers one after another, as one loop. `layer` takes a block and what the block before gave, and gives
    /// the same types: a tensor, or a tuple or array of tensors. It is called once.
    ///
    /// A tensor that `layer` captures is the same for all layers and gets no gradient. One that needs a gradient, such
    /// as a mask that is learned, goes in and out with what the layers give: a tensor that a layer gives back as it is
    /// costs nothing. Random numbers are drawn as if the layers ran one by one.
    ///
    /// # Errors
    /// [`TpuError::Layers`] if a block gives other types than it takes; [`TpuError::Impure`] if it reads a value, ends
    /// a step or uses another device.
    ///
    /// # Panics
    /// If `layer` does.
    pub fn forward<T: OpTensors<Backend = B>>(&self, input: T, layer: impl Fn(&M, T) -> T) -> Result<T> {
        self.run::<T, [T; 0], [T; 0]>(input, [], |block, x, state| (layer(block, x), state)).map(|(output, _)| output)
    }

    /// Runs the layers as [`Layers::forward`] does, with tensors that each layer has of its own and changes, such as a
    /// cache of keys and values. `state` is `[layers, ..]`; `layer` takes a layer's part of it, without that dim, and gives
    /// the new one. Returns what the last layer gives, and the new state of all layers.
    ///
    /// A part of the state that is written by `slice_assign` is written in place: a token costs its row of a cache.
    ///
    /// ```
    /// use burn::nn::{Linear, LinearConfig};
    /// use burn::tensor::Tensor;
    /// use burn_tpu::{Layers, Tpu, TpuDevice, TpuError};
    ///
    /// # fn main() -> Result<(), TpuError> {
    /// type B = Tpu<f32>;
    /// let device = TpuDevice::ndarray();
    /// let layers = Layers::<B, Linear<B>>::init(8, |_| LinearConfig::new(4, 4).init(&device))?;
    /// let (x, inputs) = (Tensor::<B, 2>::ones([1, 4], &device), Tensor::<B, 3>::zeros([8, 100, 4], &device));
    /// let (y, inputs) = layers.forward_with_state(x, inputs, |layer, x, inputs: Tensor<B, 2>| {
    ///     let inputs = inputs.slice_assign([7..8, 0..4], x.clone());
    ///     (layer.forward(x) + inputs.clone().mean_dim(0), inputs)
    /// })?;
    /// assert_eq!((y.dims(), inputs.dims()), ([1, 4], [8, 100, 4]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Layers::forward`]. [`TpuError::Layers`] if the state is not `[layers, ..]`, if a layer gives another type
    /// than it takes, or on a backend with autodiff: state has no gradient.
    ///
    /// # Panics
    /// If `layer` does.
    pub fn forward_with_state<T, S, P>(&self, input: T, state: S, layer: impl Fn(&M, T, P) -> (T, P)) -> Result<(T, S)>
    where
        T: OpTensors<Backend = B>,
        S: OpTensors<Backend = B>,
        P: OpTensors<Backend = B>,
    {
        self.run(input, state, layer)
    }

    fn run<T, S, P>(&self, input: T, state: S, layer: impl Fn(&M, T, P) -> (T, P)) -> Result<(T, S)>
    where
        T: OpTensors<Backend = B>,
        S: OpTensors<Backend = B>,
        P: OpTensors<Backend = B>,
    {
        if kinds::<S>() != kinds::<P>() {
            return Err(refused("the state of a layer is another list of tensors than that of all layers".into()));
        }
        let mut carries = Vec::new();
        input.into_values(&mut carries);
        let constants = self.constants()?;
        let parameters = self.stacks.len();
        let record = |carries: Vec<AnyTensor<B>>, mut slices: Vec<AnyTensor<B>>, constants: Vec<Recorded>| {
            let taken = T::from_values(&mut carries.into_iter()).ok_or_else(too_few)?;
            let state = P::from_values(&mut slices.drain(parameters..)).ok_or_else(too_few)?;
            let block = self.block(0).clone();
            let device = constants.first().map(|constant| TpuDevice::from(constant.device()));
            let block = match device {
                Some(device) => leaves::replace_with(constants, || block.fork(&device)),
                None => block,
            };
            let (output, state) = layer(&block.map(&mut SetParameters(slices.into_iter())), taken, state);
            let mut values = Vec::new();
            output.into_values(&mut values);
            state.into_values(&mut values);
            Ok(values)
        };
        let mut stacked = self.stacks.iter().map(Stack::tensor).collect::<Result<Vec<_>>>()?;
        state.into_values(&mut stacked);
        let states = stacked.len() - parameters;
        let call = Call { layers: self.layers, keep: &self.keep, carries, stacked, states, constants, layer: &record };
        let mut results = B::run(call)?.into_iter();
        let output = T::from_values(&mut results).ok_or_else(too_few)?;
        Ok((output, S::from_values(&mut results).ok_or_else(too_few)?))
    }

    /// Returns the blocks' tensors that are no parameters, stacked; none if all blocks have the same.
    fn constants(&self) -> Result<Vec<Recorded>> {
        let found: Vec<Vec<Recorded>> =
            self.blocks.iter().map(|block| leaves::initialised(|| block.devices())).collect();
        if found.iter().all(|of| same(of, &found[0])) {
            return Ok(Vec::new());
        }
        let mut stacked = Vec::new();
        for constant in 0..found[0].len() {
            let parts = found.iter().map(|of| of.get(constant).filter(|part| part.ty() == found[0][constant].ty()));
            let parts: Option<Vec<_>> = parts.map(|part| part.cloned()).collect();
            let parts = parts.ok_or_else(|| refused("their tensors differ in number or types".into()))?;
            stacked.push(stack_of(&parts));
        }
        Ok(stacked)
    }
}

/// Returns whether two lists have the same tensors.
fn same(a: &[Recorded], b: &[Recorded]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b))
}

/// Gives a value a name, in a block that [`Layers::forward`] runs: [`Keep::Names`] and [`Keep::Offload`] keep the values
/// that they list. Elsewhere, and on other backends, it returns the value and does nothing. As `checkpoint_name` of JAX.
pub fn keep<B: Backend, const D: usize>(name: &'static str, value: Tensor<B, D>) -> Tensor<B, D> {
    leaves::visit(|| value.device()).iter().for_each(|recorded| burn_tpu_runtime::layers::name(name, recorded));
    value
}

/// Returns in what the parameters of two blocks differ, beside their values.
fn differs<B: Backend>(first: &[Found<B>], other: &[Found<B>]) -> Option<String> {
    if first.len() != other.len() {
        return Some(format!("it has {} parameters, not {}", other.len(), first.len()));
    }
    let (first, other) = first.iter().zip(other).find(|(first, other)| !first.is_like(other))?;
    Some(format!("its parameter {other} is {first} there"))
}

/// Returns whether a block's parameters are tensors of [`Tpu`](crate::Tpu) or of its autodiff.
fn is_of_this_backend<B: Backend>(block: &[Found<B>]) -> bool {
    !leaves::visit(|| block.first().map(Found::device)).is_empty()
}

fn refused(reason: String) -> TpuError {
    TpuError::Layers { reason }
}

fn too_few() -> TpuError {
    TpuError::Bug("a loop over layers has too few values".to_owned())
}
