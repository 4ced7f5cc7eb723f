//! Activation checkpointing: blocks of a model whose activations are computed again in the backward pass.
//!
//! Owns: the list of blocks, their second run, and the sum of the gradients. Burn's own strategy
//! (`Device::gradient_checkpointing`) computes cheap ops again and keeps the results of matrix products; here only the
//! input of a block is kept. The idea is that of `jax.checkpoint`: barriers keep XLA from merging the two runs.

use crate::tensors::{initialise, tensor, value};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Gradients, Tensor};
use burn_backend::ops::FloatTensorOps;
use burn_dispatch::{Dispatch, DispatchTensor};
use burn_tpu_runtime::ops::movement::barrier;
use burn_tpu_runtime::ops::random::{draws, replay};

/// The blocks of one forward pass whose activations are not kept: the backward pass runs each block once more, from its
/// input. A step then needs the memory of one block's activations and of every block's input, and about a third more
/// time.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::{Device, Tensor};
/// use burn_tpu::{Checkpoints, TpuDevice};
///
/// let device = Device::from(TpuDevice::ndarray()).autodiff();
/// let block = LinearConfig::new(2, 2).init(&device);
/// let x = Tensor::<2>::from_floats([[1.0, 2.0]], &device);
/// let mut checkpoints = Checkpoints::new();
/// let y = checkpoints.run(&block, x, |block, x| block.forward(x));
/// let gradients = checkpoints.backward(y.sum(), &block);
/// assert_eq!(gradients.len(), 2);
/// ```
#[derive(Default)]
pub struct Checkpoints<'m> {
    blocks: Vec<Block<'m>>,
}

/// One block that was run without keeping its activations.
struct Block<'m> {
    /// Removes the gradient of the block's result.
    take: TakeGradient,
    /// The gradient of the block's result, as far as it is known.
    gradient: Option<DispatchTensor>,
    again: Again<'m>,
}

type TakeGradient = Box<dyn Fn(&mut Gradients) -> Option<DispatchTensor>>;

/// Runs the block again, adds its parameters' gradients, and returns those of the ops that made its input.
type Again<'m> = Box<dyn FnOnce(DispatchTensor, &mut GradientsParams) -> Option<Gradients> + 'm>;

impl<'m> Checkpoints<'m> {
    /// Returns an empty list, for one forward pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a block of a model and keeps its input alone.
    ///
    /// `forward` runs twice and must compute the same both times. Random numbers, as in dropout, are drawn alike, unless other
    /// threads draw on the same device. Values that it captures get no gradient. The input may be the result of another block
    /// or of other ops; those other ops are part of no other path to the loss.
    pub fn run<M: Module, const D: usize, const E: usize>(
        &mut self,
        block: &'m M,
        input: Tensor<D>,
        forward: impl Fn(&M, Tensor<D>) -> Tensor<E> + 'm,
    ) -> Tensor<E> {
        // Before the numbers that the block draws.
        initialise(block);
        let frozen = block.clone().no_grad();
        let start = value(input.clone()).map(|input| (input.device(), draws(input.device())));
        let output = forward(&frozen, leaf(input.clone().inner(), &input));
        let output = leaf(output.inner(), &input).require_grad();
        let result = output.clone();
        self.blocks.push(Block {
            take: Box::new(move |gradients| output.grad_remove(gradients).map(Tensor::into_dispatch)),
            gradient: None,
            again: Box::new(move |gradient, total| {
                let forward = |block: &M, x: Tensor<D>| match start {
                    Some((device, start)) => replay(device, start, || forward(block, x)),
                    None => forward(block, x),
                };
                again(block, input, &forward, Tensor::from_dispatch(gradient), total)
            }),
        });
        result
    }

    /// Returns the gradients of the model's parameters: those of all blocks and of the ops around them.
    pub fn backward<M: Module>(mut self, loss: Tensor<1>, model: &M) -> GradientsParams {
        let mut total = GradientsParams::new();
        self.add(loss.backward(), model, &mut total);
        // A block that gave another one its input was run before it.
        while let Some(Block { gradient, again, .. }) = self.blocks.pop() {
            let Some(gradient) = gradient else { continue };
            if let Some(gradients) = again(gradient, &mut total) {
                self.add(gradients, model, &mut total);
            }
        }
        total
    }

    /// Adds the gradients of one backward pass to those of the parameters and of the remaining blocks' results.
    fn add<M: Module>(&mut self, mut gradients: Gradients, model: &M, total: &mut GradientsParams) {
        for block in &mut self.blocks {
            block.gradient = match ((block.take)(&mut gradients), block.gradient.take()) {
                (Some(new), Some(known)) => Some(Dispatch::float_add(known, new)),
                (new, known) => new.or(known),
            };
        }
        merge(model, GradientsParams::from_module(&mut gradients, model), total);
    }
}

/// Runs a block again and its backward pass, and the backward pass of the ops that made its input.
fn again<M: Module, const D: usize, const E: usize>(
    block: &M,
    input: Tensor<D>,
    forward: &dyn Fn(&M, Tensor<D>) -> Tensor<E>,
    gradient: Tensor<E>,
    total: &mut GradientsParams,
) -> Option<Gradients> {
    let fresh = block.clone().map(&mut Separate);
    let x = separate(input.clone()).require_grad();
    let mut gradients = pull_back(forward(&fresh, x.clone()), gradient);
    merge(block, GradientsParams::from_module(&mut gradients, &fresh), total);
    let gradient = x.grad_remove(&mut gradients)?;
    input.is_tracked().then(|| pull_back(input, gradient))
}

/// Returns the gradients of the ops that made a tensor, from the tensor's own.
fn pull_back<const D: usize>(x: Tensor<D>, gradient: Tensor<D>) -> Gradients {
    (x * gradient).sum().backward()
}

/// Returns a tensor without autodiff as a new one in the graph that another is in.
fn leaf<const D: usize, const E: usize>(x: Tensor<D>, like: &Tensor<E>) -> Tensor<D> {
    match like.gradient_checkpointing_strategy() {
        Some(strategy) => x.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => x.autodiff(),
    }
}

/// Returns the value as a new leaf that the compiler does not merge with the old one.
fn separate<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let plain = x.clone().inner();
    // On other backends nothing is merged.
    let separate = value(plain.clone()).map_or(plain, |value| tensor(barrier(value)));
    leaf(separate, &x)
}

/// Separates the parameters of a block from those of its first run.
struct Separate;

impl ModuleMapper for Separate {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let is_trained = tensor.is_require_grad();
        Param::from_mapped_value(id, separate(tensor).set_require_grad(is_trained), mapper)
    }
}

/// Adds the gradients of a module's parameters to the total.
fn merge<M: Module>(module: &M, new: GradientsParams, total: &mut GradientsParams) {
    module.visit(&mut Merge { new, total });
}

struct Merge<'t> {
    new: GradientsParams,
    total: &'t mut GradientsParams,
}

impl ModuleVisitor for Merge<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(new) = self.new.remove::<D>(param.id) else { return };
        let sum = match self.total.remove::<D>(param.id) {
            Some(known) => known + new,
            None => new,
        };
        self.total.register::<D>(param.id, sum);
    }
}
