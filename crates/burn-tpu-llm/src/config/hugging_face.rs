//! `config.json` of Hugging Face's folders.
//!
//! A field that is neither used nor known to leave the logits alone is an error, unless it is `null` or `false`.

use super::{Activation, AttentionBias, Config, Experts, Family, Rope, Scaling};
use crate::error::{LlmError, Result};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Fields that change no logits.
const HARMLESS: [&str; 28] = [
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "cache_implementation",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "hidden_dropout",
    "initializer_range",
    "is_llama_config",
    "max_window_layers",
    "model_type",
    // Of a scaling that is refused; others have it in `rope_scaling`.
    "original_max_position_embeddings",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "resid_pdrop",
    "rope_interleaved",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sliding_window",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unsloth_version",
    "use_cache",
];

/// The fields of a file, with those that were asked for.
struct Fields<'a> {
    values: &'a Map<String, Value>,
    used: RefCell<BTreeSet<&'static str>>,
}

impl Config {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// [`LlmError::Config`] for text that is no JSON, a family or a field that is not known, and sizes that do not fit.
    pub fn from_hugging_face(text: &str) -> Result<Self> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| LlmError::Config(format!("is no JSON: {error}")))?;
        let values = value.as_object().ok_or_else(|| LlmError::Config("is no JSON object".to_owned()))?;
        let fields = Fields { values, used: RefCell::default() };
        let config = fields.config()?;
        fields.refuse_unknown()?;
        config.check()?;
        Ok(config)
    }

    /// Returns the text of a `config.json` from which [`Config::from_hugging_face`] reads this configuration.
    ///
    /// # Errors
    /// [`LlmError::Config`] for what Hugging Face's format has no field for.
    pub fn to_hugging_face(&self) -> Result<String> {
        let mut json = json!({
            "model_type": self.family.model_type(), "vocab_size": self.vocabulary, "hidden_size": self.width,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head, "intermediate_size": self.feed_forward, "max_position_embeddings": self.context,
            "rms_norm_eps": self.norm_epsilon, "rope_theta": self.rope.theta,
            "rope_scaling": self.rope.scaling.to_json()?, "tie_word_embeddings": self.tied,
        });
        let gemma = matches!(self.family, Family::Gemma2 | Family::Gemma3);
        if gemma {
            json["hidden_activation"] = json!(self.activation.name());
            // The number that was read: it is never finer than this.
            json["query_pre_attn_scalar"] = json!((self.query_scale.powi(-2) * 1e6).round() / 1e6);
            json["attn_logit_softcapping"] = json!(self.score_cap);
            json["final_logit_softcapping"] = json!(self.logit_cap);
        } else {
            json["hidden_act"] = json!(self.activation.name());
        }
        if let Some(rope) = &self.window_rope {
            json["rope_local_base_freq"] = json!(rope.theta);
        }
        if let Some(window) = self.windows.iter().flatten().next() {
            let kind = |window: &Option<usize>| if window.is_some() { "sliding_attention" } else { "full_attention" };
            json["sliding_window"] = json!(window);
            json["layer_types"] = self.windows.iter().map(kind).collect();
            if self.family.is_qwen() {
                json["use_sliding_window"] = json!(true);
            }
        }
        if let Some(experts) = &self.experts {
            json["num_experts_per_tok"] = json!(experts.per_token);
            if self.family == Family::Mixtral {
                json["num_local_experts"] = json!(experts.count);
            } else {
                json["num_experts"] = json!(experts.count);
                json["moe_intermediate_size"] = json!(experts.feed_forward);
                json["shared_expert_intermediate_size"] = json!(experts.shared);
                json["norm_topk_prob"] = json!(experts.normalised);
            }
        }
        if self.family == Family::Llama {
            json["attention_bias"] = json!(self.attention_bias == AttentionBias::All);
            json["mlp_bias"] = json!(self.feed_forward_bias);
        }
        let text = format!("{json:#}");
        if Self::from_hugging_face(&text)? != *self {
            return Err(LlmError::Config(format!("has no form in Hugging Face's `config.json`: {self:?}")));
        }
        Ok(text)
    }
}

impl Family {
    fn model_type(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Mixtral => "mixtral",
            Self::Qwen2Moe => "qwen2_moe",
            Self::Qwen3Moe => "qwen3_moe",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3_text",
        }
    }

    fn is_qwen(self) -> bool {
        matches!(self, Self::Qwen2 | Self::Qwen3 | Self::Qwen2Moe | Self::Qwen3Moe)
    }
}

impl Activation {
    fn name(self) -> &'static str {
        match self {
            Self::Silu => "silu",
            Self::GeluTanh => "gelu_pytorch_tanh",
        }
    }
}

impl Scaling {
    fn to_json(&self) -> Result<Value> {
        Ok(match self {
            Self::None => Value::Null,
            Self::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            Self::Factors(_) => {
                let reason = "has a factor for each frequency of its rotation, which `config.json` has no field for";
                return Err(LlmError::Config(reason.to_owned()));
            }
            Self::Llama3 { factor, low, high, original } => json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                "original_max_position_embeddings": original
            }),
            Self::Yarn { factor, original, fast, slow, attention } => json!({
                "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original, "beta_fast": fast,
                "beta_slow": slow, "attention_factor": attention
            }),
        })
    }
}

impl Fields<'_> {
    fn config(&self) -> Result<Config> {
        let family = self.family()?;
        let gemma = matches!(family, Family::Gemma2 | Family::Gemma3);
        let (width, heads, layers) =
            (self.size("hidden_size")?, self.size("num_attention_heads")?, self.size("num_hidden_layers")?);
        let head = match self.get("head_dim") {
            Some(head) => integer("head_dim", head)?,
            None if gemma => 256,
            None => width / heads.max(1),
        };
        let context = self.size("max_position_embeddings")?;
        let scalar = if gemma { self.number("query_pre_attn_scalar")?.unwrap_or(256.0) } else { head as f64 };
        let windows = self.windows(family, layers)?;
        let (rope, window_rope) = self.ropes(family, context)?;
        if let Some(part) = self.get("partial_rotary_factor").filter(|part| part.as_f64() != Some(1.0)) {
            return Err(wrong("partial_rotary_factor", part, "1: this crate rotates whole heads"));
        }
        let bias = self.flag("attention_bias")?;
        let feed_forward = self.size("intermediate_size")?;
        Ok(Config {
            family,
            vocabulary: self.size("vocab_size")?,
            width,
            layers,
            heads,
            kv_heads: self
                .get("num_key_value_heads")
                .map_or(Ok(heads), |heads| integer("num_key_value_heads", heads))?,
            head,
            feed_forward,
            experts: self.experts(family, feed_forward)?,
            context,
            norm_epsilon: self.number("rms_norm_eps")?.unwrap_or(1e-6),
            norm_less_one: gemma,
            activation: self.activation(gemma)?,
            rope,
            window_rope,
            windows,
            attention_bias: match family {
                Family::Qwen2 | Family::Qwen2Moe => AttentionBias::Inputs,
                _ if bias => AttentionBias::All,
                _ => AttentionBias::None,
            },
            feed_forward_bias: self.flag("mlp_bias")?,
            head_norms: matches!(family, Family::Qwen3 | Family::Qwen3Moe | Family::Gemma3),
            post_norms: gemma,
            query_scale: scalar.powf(-0.5),
            score_cap: self.number("attn_logit_softcapping")?,
            logit_cap: self.number("final_logit_softcapping")?,
            embedding_scale: gemma.then(|| (width as f64).sqrt()),
            tied: self.get("tie_word_embeddings").map_or(gemma, |tied| tied == &Value::Bool(true)),
        })
    }

    /// Returns the experts of each layer, in families that have some.
    fn experts(&self, family: Family, feed_forward: usize) -> Result<Option<Experts>> {
        let (count, feed_forward, shared, normalised) = match family {
            Family::Mixtral => ("num_local_experts", feed_forward, None, true),
            Family::Qwen2Moe | Family::Qwen3Moe => {
                let has_shared = family == Family::Qwen2Moe;
                let shared = has_shared.then(|| self.size("shared_expert_intermediate_size")).transpose()?;
                ("num_experts", self.size("moe_intermediate_size")?, shared, self.flag("norm_topk_prob")?)
            }
            _ => return Ok(None),
        };
        let (step, dense) = (self.get("decoder_sparse_step"), self.get("mlp_only_layers"));
        for (name, value, all) in [("decoder_sparse_step", step, json!(1)), ("mlp_only_layers", dense, json!([]))] {
            if let Some(value) = value.filter(|value| **value != all) {
                return Err(wrong(name, value, &format!("{all}: every layer has experts in this crate")));
            }
        }
        let (count, per_token) = (self.size(count)?, self.size("num_experts_per_tok")?);
        Ok(Some(Experts { count, per_token, feed_forward, shared, normalised }))
    }

    fn family(&self) -> Result<Family> {
        match self.get("model_type").and_then(Value::as_str) {
            Some("llama") => Ok(Family::Llama),
            // Phi differs in how files have its products.
            Some("mistral" | "phi3") => Ok(Family::Mistral),
            Some("qwen2") => Ok(Family::Qwen2),
            Some("qwen3") => Ok(Family::Qwen3),
            Some("mixtral") => Ok(Family::Mixtral),
            Some("qwen2_moe") => Ok(Family::Qwen2Moe),
            Some("qwen3_moe") => Ok(Family::Qwen3Moe),
            Some("gemma2") => Ok(Family::Gemma2),
            Some("gemma3_text") => Ok(Family::Gemma3),
            found => Err(LlmError::Config(format!(
                "has the `model_type` {}; this crate runs llama, mistral, mixtral, phi3, qwen2, qwen2_moe, \
                 qwen3, qwen3_moe, gemma2 and gemma3_text",
                found.map_or("of no text".to_owned(), |found| format!("`{found}`"))
            ))),
        }
    }

    fn activation(&self, gemma: bool) -> Result<Activation> {
        let [hidden, gate] = [self.get("hidden_act"), self.get("hidden_activation")];
        let default = if gemma { "gelu_pytorch_tanh" } else { "silu" };
        // Gemma's files say `gelu` in `hidden_act` and mean the approximation, which `hidden_activation` says.
        let name = if gemma { gate } else { gate.or(hidden) };
        match name.map_or(Some(default), Value::as_str) {
            Some("silu") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            found => {
                Err(LlmError::Config(format!("has the `hidden_act` {found:?}; known are silu and gelu_pytorch_tanh")))
            }
        }
    }

    fn windows(&self, family: Family, layers: usize) -> Result<Vec<Option<usize>>> {
        let size = self.get("sliding_window").map(|size| integer("sliding_window", size)).transpose()?;
        let pattern = self.get("sliding_window_pattern").map(|every| integer("sliding_window_pattern", every));
        let pattern = pattern.transpose()?.unwrap_or(if family == Family::Gemma2 { 2 } else { 6 }).max(1);
        let first = self.get("max_window_layers").map_or(Ok(0), |first| integer("max_window_layers", first))?;
        let used = self.flag("use_sliding_window")?;
        let named = self.get("layer_types").and_then(Value::as_array);
        let is_local = |layer: usize| match (named, family) {
            (Some(named), _) => named.get(layer).is_some_and(|kind| kind == "sliding_attention"),
            (None, Family::Gemma2 | Family::Gemma3) => !(layer + 1).is_multiple_of(pattern),
            (None, family) if family.is_qwen() => used && layer >= first,
            (None, Family::Mistral | Family::Mixtral) => true,
            (None, _) => false,
        };
        if let Some(kind) =
            named.into_iter().flatten().find(|kind| *kind != "sliding_attention" && *kind != "full_attention")
        {
            return Err(LlmError::Config(format!("has a layer of type {kind} in `layer_types`")));
        }
        if family == Family::Llama && size.is_some() {
            return Err(LlmError::Config("has a `sliding_window`, which models of type `llama` have not".to_owned()));
        }
        if let (Family::Gemma2 | Family::Gemma3, None) = (family, size) {
            return Err(LlmError::Config("has no `sliding_window`".to_owned()));
        }
        Ok((0..layers).map(|layer| size.filter(|_| is_local(layer))).collect())
    }

    /// Returns the rotation of layers that see everything, and that of layers with a window where it differs.
    fn ropes(&self, family: Family, context: usize) -> Result<(Rope, Option<Rope>)> {
        let theta = self.number("rope_theta")?;
        let local = self.number("rope_local_base_freq")?;
        let scaling = self.get("rope_scaling");
        let nested = self.get("rope_parameters");
        let [full, window] = ["full_attention", "sliding_attention"].map(|kind| nested.and_then(|rope| rope.get(kind)));
        let full = full.or(nested).or(scaling);
        let default = if family == Family::Gemma3 { 1e6 } else { 1e4 };
        let rope = rope(full, theta.unwrap_or(default), context)?;
        let local = match (window, local) {
            (Some(window), _) => Some(self::rope(Some(window), 1e4, context)?),
            (None, theta) if family == Family::Gemma3 => {
                Some(Rope { theta: theta.unwrap_or(1e4), scaling: Scaling::None })
            }
            _ => None,
        };
        Ok((rope, local))
    }

    /// Fails for a field that nobody asked for and that may change what the model computes.
    fn refuse_unknown(&self) -> Result<()> {
        let used = self.used.borrow();
        let off = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
        for (name, value) in self.values {
            let known = used.contains(name.as_str()) || HARMLESS.contains(&name.as_str()) || name.starts_with('_');
            if !known && !off(value) {
                return Err(unknown(name, value));
            }
        }
        Ok(())
    }

    fn get(&self, name: &'static str) -> Option<&Value> {
        self.used.borrow_mut().insert(name);
        self.values.get(name).filter(|value| !value.is_null())
    }

    fn size(&self, name: &'static str) -> Result<usize> {
        integer(name, self.get(name).ok_or_else(|| LlmError::Config(format!("has no field `{name}`")))?)
    }

    fn number(&self, name: &'static str) -> Result<Option<f64>> {
        self.get(name).map(|value| real(name, value)).transpose()
    }

    fn flag(&self, name: &'static str) -> Result<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| wrong(name, value, "true or false")),
        }
    }
}

/// Reads `rope_scaling` or `rope_parameters`.
fn rope(value: Option<&Value>, theta: f64, context: usize) -> Result<Rope> {
    let Some(value) = value else { return Ok(Rope { theta, scaling: Scaling::None }) };
    let fields = value.as_object().ok_or_else(|| wrong("rope_scaling", value, "an object"))?;
    let fields = Fields { values: fields, used: RefCell::default() };
    let theta = fields.number("rope_theta")?.unwrap_or(theta);
    let [old, new] = [fields.get("type"), fields.get("rope_type")];
    let need =
        |name| fields.number(name)?.ok_or_else(|| LlmError::Config(format!("has no `{name}` in `rope_scaling`")));
    let original =
        || -> Result<f64> { Ok(fields.number("original_max_position_embeddings")?.unwrap_or(context as f64)) };
    let scaling = match new.or(old).map_or(Some("default"), Value::as_str) {
        Some("default") => Scaling::None,
        Some("linear") => Scaling::Linear { factor: need("factor")? },
        Some("llama3") => Scaling::Llama3 {
            factor: need("factor")?,
            low: need("low_freq_factor")?,
            high: need("high_freq_factor")?,
            original: original()?,
        },
        Some("yarn") => {
            let factor = need("factor")?;
            Scaling::Yarn {
                factor,
                original: original()?,
                fast: fields.number("beta_fast")?.unwrap_or(32.0),
                slow: fields.number("beta_slow")?.unwrap_or(1.0),
                attention: fields.number("attention_factor")?.unwrap_or_else(|| yarn_attention(factor)),
            }
        }
        found => {
            return Err(LlmError::Config(format!(
                "has a `rope_scaling` of type {found:?}; known are default, linear, llama3 and yarn"
            )));
        }
    };
    fields.refuse_unknown()?;
    Ok(Rope { theta, scaling })
}

/// The temperature that YaRN's paper recommends, as a factor of queries and keys.
pub(super) fn yarn_attention(factor: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
}

fn integer(name: &str, value: &Value) -> Result<usize> {
    value.as_u64().map(|value| value as usize).ok_or_else(|| wrong(name, value, "a positive integer"))
}

fn real(name: &str, value: &Value) -> Result<f64> {
    value.as_f64().ok_or_else(|| wrong(name, value, "a number"))
}

fn wrong(name: &str, value: &Value, expected: &str) -> LlmError {
    LlmError::Config(format!("has `{name}`: {value} instead of {expected}"))
}

fn unknown(name: &str, value: &Value) -> LlmError {
    LlmError::Config(format!(
        "has the field `{name}`: {value}, which this crate does not know and which may change what the model computes"
    ))
}
