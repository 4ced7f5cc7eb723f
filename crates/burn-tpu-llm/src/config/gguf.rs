//! The metadata of GGUF files ([specification](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)).
//!
//! A field of the architecture that is not used is an error, as in `config.json`.

use super::hugging_face::yarn_attention;
use super::{Activation, AttentionBias, Config, Experts, Family, Rope, Scaling};
use crate::error::{LlmError, Result};
use crate::weights::gguf::{Gguf, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Fields that change no logits, or that only repeat what tensors say.
const HARMLESS: [&str; 2] = ["attention.value_length", "rope.scaling.finetuned"];

/// The metadata of an architecture, with the fields that were asked for.
struct Fields<'a> {
    file: &'a Gguf,
    architecture: &'a str,
    used: RefCell<BTreeSet<&'static str>>,
}

impl Config {
    /// Reads the metadata of a file.
    pub(crate) fn from_gguf(file: &Gguf) -> Result<Self> {
        let Some(Value::Text(architecture)) = file.metadata.get("general.architecture") else {
            return Err(LlmError::Config("has no `general.architecture`".to_owned()));
        };
        let fields = Fields { file, architecture, used: RefCell::default() };
        let config = fields.config()?;
        fields.refuse_unknown()?;
        config.check()?;
        Ok(config)
    }
}

impl Fields<'_> {
    fn config(&self) -> Result<Config> {
        let family = match self.architecture {
            // Files of Mixtral and Mistral are of this architecture too.
            "llama" if self.optional("expert_count")?.is_some_and(|count| count > 0.0) => Family::Mixtral,
            "llama" if self.get("attention.sliding_window").is_some() => Family::Mistral,
            "llama" => Family::Llama,
            // It differs in how files have its products.
            "phi3" => Family::Mistral,
            "qwen2" => Family::Qwen2,
            "qwen3" => Family::Qwen3,
            "qwen2moe" => Family::Qwen2Moe,
            "qwen3moe" => Family::Qwen3Moe,
            "gemma2" => Family::Gemma2,
            "gemma3" => Family::Gemma3,
            found => {
                return Err(LlmError::Config(format!(
                    "has the architecture `{found}`; this crate runs llama, phi3, qwen2, qwen2moe, qwen3, qwen3moe, gemma2 and \
                     gemma3"
                )));
            }
        };
        let gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
        let (width, heads, layers) =
            (self.size("embedding_length")?, self.size("attention.head_count")?, self.size("block_count")?);
        let head = self.optional("attention.key_length")?.map_or(width / heads.max(1), |head| head as usize);
        if let Some(rotated) = self.optional("rope.dimension_count")?.filter(|rotated| *rotated as usize != head) {
            return Err(LlmError::Config(format!("rotates {rotated} of the {head} elements of a head")));
        }
        let embedding = self.file.shape("token_embd.weight").unwrap_or_default();
        // The largest Gemmas scale by the width of a head that they do not have; the files do not say so.
        let largest = matches!((family, layers), (Family::Gemma2, 46) | (Family::Gemma3, 62));
        let scalar = if largest { width as f64 / heads as f64 } else { head as f64 };
        let (rope, window_rope) = self.ropes(family)?;
        Ok(Config {
            family,
            vocabulary: self
                .optional("vocab_size")?
                .map_or(embedding.first().copied().unwrap_or(0), |size| size as usize),
            width,
            layers,
            heads,
            kv_heads: self.optional("attention.head_count_kv")?.map_or(heads, |heads| heads as usize),
            head,
            feed_forward: self.size("feed_forward_length")?,
            experts: self.experts(family)?,
            context: self.size("context_length")?,
            norm_epsilon: shortest(self.need("attention.layer_norm_rms_epsilon")?),
            norm_less_one: gemma,
            activation: if gemma { Activation::GeluTanh } else { Activation::Silu },
            rope,
            window_rope,
            windows: self.windows(family, layers)?,
            attention_bias: match (self.has("attn_q.bias"), self.has("attn_output.bias")) {
                (false, _) => AttentionBias::None,
                (true, false) => AttentionBias::Inputs,
                (true, true) => AttentionBias::All,
            },
            feed_forward_bias: self.has("ffn_up.bias"),
            head_norms: matches!(family, Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3),
            post_norms: gemma,
            query_scale: scalar.powf(-0.5),
            score_cap: self.optional("attn_logit_softcapping")?,
            logit_cap: self.optional("final_logit_softcapping")?,
            embedding_scale: gemma.then(|| (width as f64).sqrt()),
            tied: self.file.shape("output.weight").is_none(),
        })
    }

    /// Returns the experts of each layer, in families that have some.
    fn experts(&self, family: Family) -> Result<Option<Experts>> {
        let (feed_forward, shared, normalised) = match family {
            Family::Mixtral => ("feed_forward_length", None, true),
            Family::Qwen2Moe => {
                let shared = self.size("expert_shared_feed_forward_length")?;
                ("expert_feed_forward_length", Some(shared), false)
            }
            Family::Qwen3Moe => ("expert_feed_forward_length", None, true),
            _ => return Ok(None),
        };
        let normalised = match self.get("expert_weights_norm") {
            Some(Value::Bool(normalised)) => *normalised,
            _ => normalised,
        };
        let (count, per_token) = (self.size("expert_count")?, self.size("expert_used_count")?);
        Ok(Some(Experts { count, per_token, feed_forward: self.size(feed_forward)?, shared, normalised }))
    }

    fn windows(&self, family: Family, layers: usize) -> Result<Vec<Option<usize>>> {
        // Phi 4's files say 0 for none.
        let size = self.optional("attention.sliding_window")?.map(|size| size as usize).filter(|size| *size > 0);
        let every = match family {
            Family::Gemma2 => 2,
            Family::Gemma3 => 6,
            _ => usize::MAX,
        };
        Ok((0..layers).map(|layer| size.filter(|_| !(layer + 1usize).is_multiple_of(every))).collect())
    }

    fn ropes(&self, family: Family) -> Result<(Rope, Option<Rope>)> {
        let theta = self.optional("rope.freq_base")?.unwrap_or(1e4);
        let factor = self.optional("rope.scaling.factor")?;
        let original = self.optional("rope.scaling.original_context_length")?;
        let attention = self.optional("rope.scaling.attn_factor")?;
        let factors = self.file.floats("rope_freqs.weight")?;
        let scaling = match (self.text("rope.scaling.type")?, factors) {
            (_, Some(factors)) => Scaling::Factors(factors),
            (None | Some("none"), None) => Scaling::None,
            (Some("linear"), None) => Scaling::Linear { factor: factor.unwrap_or(1.0) },
            (Some("yarn"), None) => {
                let factor = factor.unwrap_or(1.0);
                let original = original.map_or_else(|| self.need("context_length"), Ok)?;
                let attention = attention.unwrap_or(1.0) * yarn_attention(factor);
                Scaling::Yarn { factor, original, fast: 32.0, slow: 1.0, attention }
            }
            (Some(found), None) => {
                return Err(LlmError::Config(format!(
                    "has the `rope.scaling.type` `{found}`; known are linear and yarn"
                )));
            }
        };
        let local = (family == Family::Gemma3).then_some(Rope { theta: 1e4, scaling: Scaling::None });
        Ok((Rope { theta, scaling }, local))
    }

    fn refuse_unknown(&self) -> Result<()> {
        let (used, prefix) = (self.used.borrow(), format!("{}.", self.architecture));
        for (name, value) in &self.file.metadata {
            let Some(field) = name.strip_prefix(&prefix) else { continue };
            if !used.contains(field) && !HARMLESS.contains(&field) {
                return Err(LlmError::Config(format!(
                    "has the field `{name}`: {value:?}, which this crate does not know and which may change what the model \
                     computes"
                )));
            }
        }
        Ok(())
    }

    /// Returns whether the first layer has a tensor.
    fn has(&self, tensor: &str) -> bool {
        self.file.shape(&format!("blk.0.{tensor}")).is_some()
    }

    fn get(&self, name: &'static str) -> Option<&Value> {
        self.used.borrow_mut().insert(name);
        self.file.metadata.get(&format!("{}.{name}", self.architecture))
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(value) => Err(LlmError::Config(format!("has `{name}`: {value:?} instead of text"))),
        }
    }

    fn optional(&self, name: &'static str) -> Result<Option<f64>> {
        let wrong = |value| LlmError::Config(format!("has `{name}`: {value:?} instead of a number"));
        self.get(name).map(|value| value.number().ok_or_else(|| wrong(value))).transpose()
    }

    fn need(&self, name: &'static str) -> Result<f64> {
        let missing = || LlmError::Config(format!("has no field `{}.{name}`", self.architecture));
        self.optional(name)?.ok_or_else(missing)
    }

    fn size(&self, name: &'static str) -> Result<usize> {
        self.need(name).map(|size| size as usize)
    }
}

/// Returns the shortest decimal number that is this f32: the 1e-5 that was meant.
fn shortest(value: f64) -> f64 {
    (value as f32).to_string().parse().unwrap_or(value)
}
