//! A batch and its loss.

use crate::error::Result;
use crate::model::{Context, LanguageModel, RouterReport};
use burn::module::Module;
use burn::prelude::*;

/// How much the losses of routers count: [`RouterReport`]'s numbers times these. They keep a router from choosing few
/// experts, and its logits from growing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RouterLoss {
    /// Of the balance between experts; 0.01 in Switch Transformers, 0.001 in Qwen's and 0.02 in Mixtral's configurations.
    pub balance: f64,
    /// Of the size of logits; 0.001 in ST-MoE.
    pub z: f64,
}

impl RouterLoss {
    /// Returns the loss, `[1]` in f32.
    pub fn of<B: Backend>(&self, report: &RouterReport<B>) -> Tensor<B, 1> {
        report.balance.clone() * self.balance + report.z.clone() * self.z
    }

    /// Returns whether neither counts.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// Rows that are learned from at once. It is a module, so that a compiled step takes it as an argument.
#[derive(Module, Debug)]
pub struct Batch<B: Backend> {
    /// `[batch, length + 1]`
    pub tokens: Tensor<B, 2, Int>,
    /// Of each token but the first, 1 if it is learned, else 0; `[batch, length]` in f32.
    pub weights: Tensor<B, 2>,
    /// Of each token but the last, where in its row its text begins, `[batch, length]`; without it, at 0.
    pub starts: Option<Tensor<B, 2, Int>>,
}

impl<B: Backend> Batch<B> {
    /// Returns the mean cross-entropy in nats of the tokens that are learned, `[1]` in f32.
    ///
    /// # Errors
    /// [`LlmError::Loop`](crate::LlmError::Loop) for layers that cannot be recorded as a loop.
    pub fn loss(self, model: &impl LanguageModel<B>) -> Result<Tensor<B, 1>> {
        let count = self.weights.clone().sum().clamp_min(1.0);
        Ok(self.nats(model)? / count)
    }

    /// Returns the same loss of rows that chips split.
    ///
    /// # Errors
    /// [`LlmError::Context`](crate::LlmError::Context) for rows that do not divide, and that of [`Batch::loss`].
    pub fn loss_over(self, model: &impl LanguageModel<B>, context: &Context<B>) -> Result<Tensor<B, 1>> {
        let count = self.weights.clone().sum().clamp_min(1.0);
        let nats = model.nats_over(self.tokens, self.starts, context)?;
        Ok((nats * self.weights).sum() / count)
    }

    /// Returns the same loss with that of routers added, where there are mixtures of experts.
    ///
    /// # Errors
    /// That of [`Batch::loss`].
    pub fn loss_with_routers(self, model: &impl LanguageModel<B>, routers: &RouterLoss) -> Result<Tensor<B, 1>> {
        let count = self.weights.clone().sum().clamp_min(1.0);
        let (nats, report) = model.nats_and_routers(self.tokens, self.starts)?;
        Ok((nats * self.weights).sum() / count + routers.of(&report))
    }

    /// Returns the sum of the cross-entropy in nats of the tokens that are learned, `[1]` in f32.
    ///
    /// # Errors
    /// That of [`Batch::loss`].
    pub fn nats(self, model: &impl LanguageModel<B>) -> Result<Tensor<B, 1>> {
        Ok((model.nats(self.tokens, self.starts)? * self.weights).sum())
    }
}
