//! What a loss needs of a decoder, whether its layers are one by one or a loop.

use super::context::Context;
use super::decoder::Decoder;
use super::looped::LoopedDecoder;
use super::mixture::RouterReport;
use crate::error::Result;
use burn::prelude::*;
use burn_tpu::{LayersBackend, MeshBackend};

/// A model of the next token: a [`Decoder`], or a [`LoopedDecoder`].
pub trait LanguageModel<B: Backend> {
    /// Returns what [`Decoder::nats`] does.
    ///
    /// # Errors
    /// Those of [`LoopedDecoder::nats`].
    fn nats(&self, tokens: Tensor<B, 2, Int>, starts: Option<Tensor<B, 2, Int>>) -> Result<Tensor<B, 2>>;

    /// Returns what [`Decoder::nats_over`] does.
    ///
    /// # Errors
    /// Those of [`LoopedDecoder::nats_over`].
    fn nats_over(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: &Context<B>,
    ) -> Result<Tensor<B, 2>>;

    /// Returns what [`Decoder::nats_and_routers`] does.
    ///
    /// # Errors
    /// Those of [`LoopedDecoder::nats_and_routers`].
    fn nats_and_routers(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
    ) -> Result<(Tensor<B, 2>, RouterReport<B>)>;
}

impl<B: Backend> LanguageModel<B> for Decoder<B> {
    fn nats(&self, tokens: Tensor<B, 2, Int>, starts: Option<Tensor<B, 2, Int>>) -> Result<Tensor<B, 2>> {
        Ok(self.nats(tokens, starts))
    }

    fn nats_over(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: &Context<B>,
    ) -> Result<Tensor<B, 2>> {
        self.nats_over(tokens, starts, context)
    }

    fn nats_and_routers(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
    ) -> Result<(Tensor<B, 2>, RouterReport<B>)> {
        Ok(self.nats_and_routers(tokens, starts))
    }
}

impl<B: LayersBackend + MeshBackend> LanguageModel<B> for LoopedDecoder<B> {
    fn nats(&self, tokens: Tensor<B, 2, Int>, starts: Option<Tensor<B, 2, Int>>) -> Result<Tensor<B, 2>> {
        self.nats(tokens, starts)
    }

    fn nats_over(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
        context: &Context<B>,
    ) -> Result<Tensor<B, 2>> {
        self.nats_over(tokens, starts, context)
    }

    fn nats_and_routers(
        &self,
        tokens: Tensor<B, 2, Int>,
        starts: Option<Tensor<B, 2, Int>>,
    ) -> Result<(Tensor<B, 2>, RouterReport<B>)> {
        self.nats_and_routers(tokens, starts)
    }
}
