//! What an adapter may change of a decoder: one product, or those of a layer's experts.

use super::few_bits::Bits;
use super::projection::{Lora, Projection};
use super::stack::Stack;
use crate::config::LoraConfig;
use burn::prelude::*;

/// A product, or those of a layer's experts, which have a name each.
pub(super) enum Product<'m, B: Backend> {
    One(&'m mut Projection<B>),
    Each(&'m mut Stack<B>),
}

impl<B: Backend> Product<'_, B> {
    pub(super) fn has_few_bits(&self) -> bool {
        match self {
            Self::One(projection) => projection.few_bits.is_some(),
            Self::Each(stack) => !stack.few_bits.is_empty(),
        }
    }

    pub(super) fn set_few_bits(self, bits: Bits, device: &B::Device) {
        match self {
            Self::One(projection) => projection.set_few_bits(bits, device),
            Self::Each(stack) => stack.set_few_bits(bits, device),
        }
    }

    /// Adds an adapter that changes nothing.
    pub(super) fn add_lora(self, config: &LoraConfig, device: &B::Device) {
        let LoraConfig { rank, alpha, dropout, .. } = *config;
        match self {
            Self::One(projection) => {
                let [inputs, outputs] = projection.dims();
                projection.lora = Some(Lora::new(inputs, outputs, rank, alpha, dropout, device));
            }
            Self::Each(stack) => stack.add_lora(rank, alpha, dropout, device),
        }
    }

    pub(super) fn remove_lora(self) {
        match self {
            Self::One(projection) => projection.lora = None,
            Self::Each(stack) => stack.lora = None,
        }
    }

    /// Returns whether there is an adapter that the weight does not contain.
    pub(super) fn has_unmerged_lora(&self) -> bool {
        match self {
            Self::One(projection) => projection.lora.as_ref().is_some_and(|lora| !lora.is_merged()),
            Self::Each(stack) => stack.lora.as_ref().is_some_and(|lora| !lora.is_merged()),
        }
    }

    pub(super) fn set_merged(self, merged: bool) {
        match self {
            Self::One(projection) => projection.set_merged(merged),
            Self::Each(stack) => stack.set_merged(merged),
        }
    }
}
