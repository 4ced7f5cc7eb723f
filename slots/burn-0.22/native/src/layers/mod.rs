//! Equal blocks as one module: [`Layers`].
//!
//! Owns: the stacked parameters of equal blocks, and how a block is made of its part of them. May not know: how a loop is
//! recorded, and what its backward pass keeps, which are the runtime's.

mod autodiff;
mod blocks;
mod module;
mod run;
mod stack;

use crate::custom_op::OpTensors;
use crate::custom_op::tensors::kinds;
use crate::tensors::value;
use crate::{Result, TpuError};
use blocks::{Found, Hollow, Separate, SetParameters, find};
use burn::module::Module;
use burn::tensor::Tensor;
use burn_dispatch::DispatchTensor;
use burn_tpu_runtime::layers::{Keep, stack_of};
use burn_tpu_runtime::{Tensor as Value, leaves};
use run::Call;
use stack::Stack;

/// Equal blocks of a model, one after another, as one module: each parameter is stacked, `[layers, ..]`.
///
/// On a [`TpuDevice`](crate::TpuDevice), [`Layers::forward`] records the block once, as a loop whose trips read their
/// part of the stacks, and the backward pass is a loop too. So what recording and compiling cost does not depend on the
/// number of layers. The backward pass computes each block again from its input; [`Layers::with_keep`] keeps more.
///
/// On a single chip, a model that compiles unrolled is faster unrolled: XLA fuses the update of a weight with its gradient,
/// and gradients are not stacked. See `docs/layers.md`.
///
/// The blocks may differ in the values of their tensors alone. What a block is beside tensors (sizes, rates, options) is the
/// same in all, and has no running statistics, as `BatchNorm` does.
///
/// A record of Burn has the stacks, under the path `*`. The checkpoints of `burn-tpu-train` have the parameters of each
/// block, and go on in either form.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor, activation};
/// use burn_tpu::{Layers, TpuDevice, TpuError};
///
/// # fn main() -> Result<(), TpuError> {
/// let device = Device::from(TpuDevice::ndarray()).autodiff();
/// let layers = Layers::init(8, |_| LinearConfig::new(4, 4).init(&device))?;
/// let x = Tensor::<2>::ones([2, 4], &device);
/// let y = layers.forward(x, |layer, x| activation::gelu(layer.forward(x)))?;
/// let gradients = y.sum().backward();
/// # let _ = gradients;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Layers<M> {
    layers: usize,
    /// The blocks without their parameters: the first one alone, if they are equal then.
    blocks: Vec<M>,
    stacks: Vec<Stack>,
    keep: Keep,
}

impl<M: Module> Layers<M> {
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
        let found: Vec<Vec<Found>> = blocks.iter().map(find).collect::<Result<_>>()?;
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
        let structure = blocks::structure(&blocks[0]);
        if let Some(other) = blocks.iter().position(|block| blocks::structure(block) != structure) {
            return Err(refused(format!("layer {other} differs from layer 0 in more than its tensors")));
        }
        if first.iter().all(|found| found.is_ours) && leaves::visit(|| blocks[0].devices()).is_empty() {
            blocks.truncate(1);
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

    /// Runs the layers one after another, each recorded.
    pub fn forward_each<T>(&self, input: T, layer: impl Fn(&M, T) -> T) -> T {
        (0..self.layers).fold(input, |x, index| layer(&self.part(index), x))
    }

    /// Runs the layers one after another, as one loop. `layer` takes a block and what the block before gave, and gives
    /// the same types: a tensor, or a tuple or array of tensors. It is called once. On another device than a
    /// [`TpuDevice`](crate::TpuDevice) it is [`Layers::forward_each`].
    ///
    /// A tensor that `layer` captures is the same for all layers and gets no gradient. One that needs a gradient, such
    /// as a mask that is learned, goes in and out with what the layers give: a tensor that a layer gives back as it is
    /// costs nothing. Random numbers are drawn as if the layers ran one by one.
    ///
    /// # Errors
    /// [`TpuError::Layers`] if a block gives other types than it takes, or takes a tensor of another device;
    /// [`TpuError::Impure`] if it reads a value, ends a step or uses another device.
    ///
    /// # Panics
    /// If `layer` does.
    pub fn forward<T: OpTensors>(&self, input: T, layer: impl Fn(&M, T) -> T) -> Result<T> {
        if !self.stacks.iter().all(Stack::is_ours) {
            return Ok(self.forward_each(input, layer));
        }
        self.run::<T, [T; 0], [T; 0]>(input, [], |block, x, state| (layer(block, x), state)).map(|(output, _)| output)
    }

    /// Runs the layers as [`Layers::forward`] does, with tensors that each layer has of its own and changes, such as a
    /// cache of keys and values. `state` is `[layers, ..]`; `layer` takes a layer's part of it, without that dim, and gives
    /// the new one. Returns what the last layer gives, and the new state of all layers.
    ///
    /// A part of the state that is written by `slice_assign` is written in place: a token costs its row of a cache.
    ///
    /// # Errors
    /// Those of [`Layers::forward`]. [`TpuError::Layers`] if the state is not `[layers, ..]`, if a layer gives another type
    /// than it takes, on another device than a [`TpuDevice`](crate::TpuDevice), or on a device with autodiff: state has no
    /// gradient.
    ///
    /// # Panics
    /// If `layer` does.
    pub fn forward_with_state<T: OpTensors, S: OpTensors, P: OpTensors>(
        &self,
        input: T,
        state: S,
        layer: impl Fn(&M, T, P) -> (T, P),
    ) -> Result<(T, S)> {
        self.run(input, state, layer)
    }

    fn run<T: OpTensors, S: OpTensors, P: OpTensors>(
        &self,
        input: T,
        state: S,
        layer: impl Fn(&M, T, P) -> (T, P),
    ) -> Result<(T, S)> {
        let mut carries = Vec::new();
        input.into_tensors(&mut carries);
        let constants = self.constants()?;
        let parameters = self.stacks.len();
        let record = |carries: Vec<DispatchTensor>, mut slices: Vec<DispatchTensor>, constants: Vec<Value>| {
            let taken = T::from_tensors(&mut carries.into_iter()).ok_or_else(too_few)?;
            let state = P::from_tensors(&mut slices.drain(parameters..)).ok_or_else(too_few)?;
            let block = self.block(0).clone();
            let device = constants.first().map(|constant| crate::tensors::device(constant.device()));
            let block = match device {
                Some(device) => leaves::replace_with(constants, || block.fork(&device)),
                None => block,
            };
            let (output, state) = layer(&block.map(&mut SetParameters(slices.into_iter())), taken, state);
            let mut given = Vec::new();
            output.into_tensors(&mut given);
            state.into_tensors(&mut given);
            Ok(given)
        };
        let mut stacked: Vec<DispatchTensor> = self.stacks.iter().map(Stack::tensor).collect();
        state.into_tensors(&mut stacked);
        let (of_carries, states, of_part) = (kinds::<T>(), kinds::<S>(), kinds::<P>());
        if states != of_part {
            return Err(refused("the state of a layer is another list of tensors than that of all layers".into()));
        }
        let call = Call {
            layers: self.layers,
            keep: &self.keep,
            kinds: &of_carries,
            carries,
            stacked,
            states: &states,
            constants,
            layer: &record,
        };
        let mut results = call.run()?.into_iter();
        let output = T::from_tensors(&mut results).ok_or_else(too_few)?;
        Ok((output, S::from_tensors(&mut results).ok_or_else(too_few)?))
    }

    /// Returns the blocks' tensors that are no parameters, stacked; none if all blocks have the same.
    fn constants(&self) -> Result<Vec<Value>> {
        let found: Vec<Vec<Value>> = self.blocks.iter().map(|block| leaves::initialised(|| block.devices())).collect();
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

    /// Returns a layer whose parameters are parts of the stacks, to which their gradients flow.
    fn part(&self, index: usize) -> M {
        self.block(index).clone().map(&mut SetParameters(self.stacks.iter().map(|stack| stack.layer(index))))
    }

    fn block(&self, index: usize) -> &M {
        &self.blocks[index % self.blocks.len()]
    }
}

/// Returns whether two lists have the same tensors.
fn same(a: &[Value], b: &[Value]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b))
}

/// Gives a value a name, in a block that [`Layers::forward`] runs: [`Keep::Names`] and [`Keep::Offload`] keep the values
/// that they list. Elsewhere, it returns the value and does nothing. As `checkpoint_name` of JAX.
pub fn keep<const D: usize>(name: &'static str, tensor: Tensor<D>) -> Tensor<D> {
    if let Some(value) = value(tensor.clone()) {
        burn_tpu_runtime::layers::name(name, &value);
    }
    tensor
}

/// Returns in what the parameters of two blocks differ, beside their values.
fn differs(first: &[Found], other: &[Found]) -> Option<String> {
    if first.len() != other.len() {
        return Some(format!("it has {} parameters, not {}", other.len(), first.len()));
    }
    let (first, other) = first.iter().zip(other).find(|(first, other)| !first.is_like(other))?;
    Some(format!("its parameter {other} is {first} there"))
}

fn refused(reason: String) -> TpuError {
    TpuError::Layers { reason }
}

fn too_few() -> TpuError {
    TpuError::Bug("a loop over layers has too few values".to_owned())
}
