//! Activation checkpointing: blocks of a model whose activations are computed again in the backward pass.
//!
//! Owns: the list of blocks, their second run, and the sum of the gradients. Burn's own strategy
//! (`Autodiff<B, BalancedCheckpointing>`) computes cheap ops again and keeps the results of matrix products; here only the
//! input of a block is kept. The idea is that of `jax.checkpoint`: barriers keep XLA from merging the two runs.
//!
//! Not an op with a backward pass of its own: that pass would call `backward` on the block, and burn-autodiff 0.21 stops for
//! ever there, since each `backward` ends with a lock on all graphs, of which the caller holds one.

use crate::{Tpu, TpuDevice, TpuFloat, TpuInt, TpuTensor};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_backend::Backend;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;
use burn_core::module::{AutodiffModule, Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::backend::AutodiffBackend;
use burn_core::tensor::{Tensor, TensorPrimitive};
use burn_optim::GradientsParams;
use burn_tpu_runtime::ops::movement::barrier;
use burn_tpu_runtime::ops::random::{draws, replay};

/// The backends that [`Checkpoints`] works on: the autodiff of [`Tpu`].
pub trait CheckpointBackend: AutodiffBackend<Device = TpuDevice> {
    /// Returns the same value, which the compiler takes for another one.
    fn barrier(tensor: FloatTensor<Self::InnerBackend>) -> FloatTensor<Self::InnerBackend>;

    /// Returns whether a gradient flows into the tensor.
    fn is_tracked(tensor: &FloatTensor<Self>) -> bool;
}

impl<F: TpuFloat, I: TpuInt, C: CheckpointStrategy> CheckpointBackend for Autodiff<Tpu<F, I>, C> {
    fn barrier(tensor: TpuTensor) -> TpuTensor {
        barrier(tensor.0).into()
    }

    fn is_tracked(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_tracked()
    }
}

/// The tensors of the backend below autodiff.
type Inner<B> = <B as AutodiffBackend>::InnerBackend;

/// The blocks of one forward pass whose activations are not kept: the backward pass runs each block once more, from its
/// input. A step then needs the memory of one block's activations and of every block's input, and about a third more
/// time.
///
/// ```
/// use burn::backend::Autodiff;
/// use burn::nn::LinearConfig;
/// use burn::tensor::Tensor;
/// use burn_tpu::{Checkpoints, Tpu, TpuDevice};
///
/// type B = Autodiff<Tpu<f32>>;
/// let block = LinearConfig::new(2, 2).init::<B>(&TpuDevice::ndarray());
/// let x = Tensor::<B, 2>::from_floats([[1.0, 2.0]], &TpuDevice::ndarray());
/// let mut checkpoints = Checkpoints::new();
/// let y = checkpoints.run(&block, x, |block, x| block.forward(x));
/// let gradients = checkpoints.backward(y.sum(), &block);
/// assert_eq!(gradients.len(), 2);
/// ```
pub struct Checkpoints<'m, B: CheckpointBackend> {
    blocks: Vec<Block<'m, B>>,
}

/// One block that was run without keeping its activations.
struct Block<'m, B: CheckpointBackend> {
    /// Removes the gradient of the block's result.
    take: TakeGradient<B>,
    /// The gradient of the block's result, as far as it is known.
    gradient: Option<FloatTensor<Inner<B>>>,
    again: Again<'m, B>,
}

type TakeGradient<B> = Box<dyn Fn(&mut <B as AutodiffBackend>::Gradients) -> Option<FloatTensor<Inner<B>>>>;

/// Runs the block again, adds its parameters' gradients, and returns those of the ops that made its input.
type Again<'m, B> =
    Box<dyn FnOnce(FloatTensor<Inner<B>>, &mut GradientsParams) -> Option<<B as AutodiffBackend>::Gradients> + 'm>;

impl<B: CheckpointBackend> Default for Checkpoints<'_, B> {
    fn default() -> Self {
        Self { blocks: Vec::new() }
    }
}

impl<'m, B: CheckpointBackend> Checkpoints<'m, B> {
    /// Returns an empty list, for one forward pass.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a block of a model and keeps its input alone.
    ///
    /// `forward` runs twice and must compute the same both times. Random numbers, as in dropout, are drawn alike, unless other
    /// threads draw on the same device. Values that it captures get no gradient. The input may be the result of another block
    /// or of other ops; those other ops are part of no other path to the loss.
    pub fn run<M: AutodiffModule<B>, const D: usize, const E: usize>(
        &mut self,
        block: &'m M,
        input: Tensor<B, D>,
        forward: impl Fn(&M, Tensor<B, D>) -> Tensor<B, E> + 'm,
    ) -> Tensor<B, E> {
        let frozen = block.clone().no_grad();
        // After the parameters, which may be drawn only now.
        let start = draws(input.device().into());
        let output = forward(&frozen, Tensor::from_inner(input.clone().inner()));
        let output = Tensor::<B, E>::from_inner(output.inner()).require_grad();
        let result = output.clone();
        self.blocks.push(Block {
            take: Box::new(move |gradients| Some(primitive(output.grad_remove(gradients)?))),
            gradient: None,
            again: Box::new(move |gradient, total| {
                let forward = |block: &M, x: Tensor<B, D>| replay(x.device().into(), start, || forward(block, x));
                again(block, input, &forward, gradient, total)
            }),
        });
        result
    }

    /// Returns the gradients of the model's parameters: those of all blocks and of the ops around them.
    pub fn backward<M: AutodiffModule<B>>(mut self, loss: Tensor<B, 1>, model: &M) -> GradientsParams {
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
    fn add<M: AutodiffModule<B>>(&mut self, mut gradients: B::Gradients, model: &M, total: &mut GradientsParams) {
        for block in &mut self.blocks {
            block.gradient = match ((block.take)(&mut gradients), block.gradient.take()) {
                (Some(new), Some(known)) => Some(Inner::<B>::float_add(known, new)),
                (new, known) => new.or(known),
            };
        }
        merge(model, GradientsParams::from_module(&mut gradients, model), total);
    }
}

/// Runs a block again and its backward pass, and the backward pass of the ops that made its input.
fn again<B: CheckpointBackend, M: AutodiffModule<B>, const D: usize, const E: usize>(
    block: &M,
    input: Tensor<B, D>,
    forward: &dyn Fn(&M, Tensor<B, D>) -> Tensor<B, E>,
    gradient: FloatTensor<Inner<B>>,
    total: &mut GradientsParams,
) -> Option<B::Gradients> {
    let fresh = block.clone().map(&mut Separate);
    let x = separate(input.clone()).require_grad();
    let mut gradients = pull_back(forward(&fresh, x.clone()), gradient);
    merge(block, GradientsParams::from_module(&mut gradients, &fresh), total);
    let gradient = primitive(x.grad_remove(&mut gradients)?);
    B::is_tracked(&input.clone().into_primitive().tensor()).then(|| pull_back(input, gradient))
}

/// Returns the gradients of the ops that made a tensor, from the tensor's own.
fn pull_back<B: AutodiffBackend, const D: usize>(x: Tensor<B, D>, gradient: FloatTensor<Inner<B>>) -> B::Gradients {
    let gradient = Tensor::from_inner(Tensor::from_primitive(TensorPrimitive::Float(gradient)));
    (x * gradient).sum().backward()
}

fn primitive<B: Backend, const D: usize>(x: Tensor<B, D>) -> FloatTensor<B> {
    x.into_primitive().tensor()
}

/// Returns the value as a new leaf that the compiler does not merge with the old one.
fn separate<B: CheckpointBackend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let separate = B::barrier(primitive(x.inner()));
    Tensor::from_inner(Tensor::from_primitive(TensorPrimitive::Float(separate)))
}

/// Separates the parameters of a block from those of its first run.
struct Separate;

impl<B: CheckpointBackend> ModuleMapper<B> for Separate {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let is_trained = tensor.is_require_grad();
        Param::from_mapped_value(id, separate(tensor).set_require_grad(is_trained), mapper)
    }
}

/// Adds the gradients of a module's parameters to the total.
fn merge<B: AutodiffBackend, M: Module<B>>(module: &M, new: GradientsParams, total: &mut GradientsParams) {
    module.visit(&mut Merge { new, total });
}

struct Merge<'t> {
    new: GradientsParams,
    total: &'t mut GradientsParams,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Merge<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some(new) = self.new.remove::<Inner<B>, D>(param.id) else { return };
        let sum = match self.total.remove::<Inner<B>, D>(param.id) {
            Some(known) => known + new,
            None => new,
        };
        self.total.register::<Inner<B>, D>(param.id, sum);
    }
}
