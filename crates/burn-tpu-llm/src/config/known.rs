//! Public models by name: their sizes alone, so that a step of one can be compiled without its files.
//!
//! `known.json` has what matters of each `config.json`, and under `_source` where that is.

use super::Config;
use crate::error::{LlmError, Result};
use serde_json::{Map, Value};

impl Config {
    /// Returns the configuration of a public model, such as `llama-3.1-8b`.
    ///
    /// # Errors
    /// [`LlmError::Config`] for a name that is not known, with those that are.
    pub fn named(name: &str) -> Result<Self> {
        let known = known()?;
        let Some(config) = known.get(name) else {
            let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(LlmError::Config(format!("`{name}` is not known; known are {names}")));
        };
        Self::from_hugging_face(&config.to_string())
    }

    /// Returns the number of weights. Those of experts that a token does not use count too.
    pub fn num_params(&self) -> usize {
        let (width, queries, keys) = (self.width, self.heads * self.head, self.kv_heads * self.head);
        let biases = match self.attention_bias {
            super::AttentionBias::None => 0,
            super::AttentionBias::Inputs => queries + 2 * keys,
            super::AttentionBias::All => queries + 2 * keys + width,
        };
        let head_norms = if self.head_norms { 2 * self.head } else { 0 };
        let attention = 2 * width * (queries + keys) + biases + head_norms;
        let norms = width * if self.post_norms { 4 } else { 2 };
        let heads = if self.tied { 1 } else { 2 };
        self.layers * (attention + self.feed_forward_params() + norms) + width + heads * self.vocabulary * width
    }

    fn feed_forward_params(&self) -> usize {
        let width = self.width;
        let of = |hidden: usize| 3 * width * hidden + if self.feed_forward_bias { 2 * hidden + width } else { 0 };
        let Some(experts) = &self.experts else { return of(self.feed_forward) };
        let shared = experts.shared.map_or(0, |hidden| of(hidden) + width);
        experts.count * (of(experts.feed_forward) + width) + shared
    }
}

fn known() -> Result<Map<String, Value>> {
    let wrong = |error| LlmError::Config(format!("of the known models is no JSON: {error}"));
    serde_json::from_str(include_str!("known.json")).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the models' pages say.
    #[test]
    fn public_models_have_as_many_weights_as_their_pages_say() {
        for (name, expected) in [
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-2-70b", 68_976_648_192),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.1-405b", 405_853_388_800),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("mistral-7b", 7_241_732_096),
            ("mixtral-8x7b", 46_702_792_704),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen2.5-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-8b", 8_190_735_360),
            ("qwen3-30b-a3b", 30_532_122_624),
            ("gemma-2-9b", 9_241_705_984),
            ("gemma-3-270m", 268_098_176),
            ("gemma-3-1b", 999_885_952),
        ] {
            assert_eq!(Config::named(name).unwrap().num_params(), expected, "{name}");
        }
        for name in known().unwrap().keys() {
            Config::named(name).unwrap();
        }
        let error = Config::named("llama").unwrap_err().to_string();
        assert!(error.contains("`llama` is not known; known are gemma-2-9b, "), "{error}");
    }
}
