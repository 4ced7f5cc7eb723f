//! The gpt with its blocks as a loop.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_tpu::{Keep, Layers, LayersBackend, TpuDevice};
use burn_tpu_workspace::models::{Block, Gpt, GptConfig, Supervised, Tokens};

/// A [`Gpt`] whose blocks are stacked.
#[derive(Module, Debug)]
pub struct LoopedGpt<B: Backend> {
    /// All but the blocks.
    ends: Gpt<B>,
    blocks: Layers<B, Block<B>>,
}

impl<B: LayersBackend> LoopedGpt<B> {
    /// Creates a model with random weights.
    #[allow(clippy::expect_used, reason = "the blocks of a configuration are equal")]
    pub fn init(config: &GptConfig, keep: Keep, device: &TpuDevice) -> Self {
        let blocks = Layers::init(config.layers, |_| config.block(device)).expect("equal blocks").with_keep(keep);
        Self { ends: config.clone().with_layers(0).init(device), blocks }
    }
}

impl<B: LayersBackend> Supervised<B> for LoopedGpt<B> {
    type Batch = Tokens<B>;

    #[allow(clippy::expect_used, reason = "a block takes what it gives")]
    fn loss(&self, batch: Tokens<B>) -> Tensor<B, 1> {
        self.ends.loss_around(batch, |x, mask| {
            self.blocks.forward(x, |block, x| block.forward(x, mask.clone())).expect("blocks that are a loop")
        })
    }
}
