//! Adapters of a decoder's products: adding, merging and removing them.

use super::decoder::Decoder;
use super::product::Product;
use crate::config::LoraConfig;
use crate::error::{LlmError, Result};
use burn::prelude::*;

impl<B: Backend> Decoder<B> {
    /// Returns the decoder with a new adapter, which changes nothing yet and is all that training changes: no gradients
    /// of the decoder's own weights are computed. The backend must be one with gradients, if it is to be trained.
    ///
    /// # Errors
    /// [`LlmError::Adapter`] for numbers that make no sense, a target that names no product of the decoder, and a
    /// decoder that has an adapter.
    pub fn with_lora(self, config: &LoraConfig) -> Result<Self> {
        config.check()?;
        if self.lora.is_some() {
            return Err(LlmError::Adapter("is a second one: merge and remove the first".to_owned()));
        }
        let mut decoder = self.no_grad();
        let device = decoder.device();
        let mut unused: Vec<_> = config.targets.iter().collect();
        for (names, product) in decoder.products() {
            let named = |name: &&String| config.targets.iter().any(|target| LoraConfig::names(target, name));
            unused.retain(|target| !names.iter().any(|name| LoraConfig::names(target, name)));
            match names.iter().filter(named).count() {
                0 => {}
                count if count == names.len() => product.add_lora(config, &device),
                count => {
                    let all = names.len();
                    let of = &names[0];
                    return Err(LlmError::Adapter(format!(
                        "changes {count} of {all} experts, such as `{of}`: name the product of all of them"
                    )));
                }
            }
        }
        if let Some(target) = unused.first() {
            let names: Vec<_> = decoder.products().into_iter().flat_map(|(names, _)| names).collect();
            let (first, last) = (&names[0], &names[names.len() - 1]);
            return Err(LlmError::Adapter(format!(
                "changes `{target}`, which is none of the model's products, from `{first}` to `{last}`"
            )));
        }
        decoder.lora = Some(config.clone());
        Ok(decoder)
    }

    /// Returns what the adapter is, if there is one.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.lora.as_ref()
    }

    /// Returns the decoder with the adapter's change in its weights: it computes the same, up to rounding, as fast as a
    /// decoder without an adapter. The adapter is kept. Weights in few bits stay as they are, and their adapters beside
    /// them.
    pub fn merge_lora(self) -> Self {
        self.with_merged(true)
    }

    /// Returns the decoder with its own weights again, up to rounding, and the adapter beside them.
    pub fn unmerge_lora(self) -> Self {
        self.with_merged(false)
    }

    /// Returns the decoder without the adapter. If that was merged, its change stays.
    pub fn without_lora(mut self) -> Self {
        for (_, product) in self.products() {
            product.remove_lora();
        }
        self.lora = None;
        self
    }

    /// Returns whether there is an adapter that some of the weights do not contain.
    pub fn has_unmerged_lora(&self) -> bool {
        // A clone of handles.
        let mut decoder = self.clone();
        decoder.products().iter().any(|(_, product)| product.has_unmerged_lora())
    }

    fn with_merged(mut self, merged: bool) -> Self {
        for (_, product) in self.products() {
            product.set_merged(merged);
        }
        self
    }

    /// Returns the products of the decoder with their names in Hugging Face's files: one, or one for each expert.
    pub(super) fn products(&mut self) -> Vec<(Vec<String>, Product<'_, B>)> {
        let (family, mut all) = (self.config().family, Vec::new());
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let named = |name: String| format!("model.layers.{index}.{}", family.named(name.split('.')));
            for (names, product) in layer.products() {
                all.push((names.into_iter().map(named).collect(), product));
            }
        }
        all.extend(self.lm_head.iter_mut().map(|head| (vec!["lm_head".to_owned()], Product::One(head))));
        all
    }
}
