//! What an adapter of low rank is, and PEFT's `adapter_config.json` about it.
//!
//! A field that is neither used nor known to leave the adapter's product alone is an error, unless it is off.

use crate::error::{LlmError, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The products of a layer, as Hugging Face names them.
const PRODUCTS: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// Fields that do not change what an adapter computes.
const HARMLESS: [&str; 11] = [
    "auto_mapping",
    "base_model_name_or_path",
    "inference_mode",
    "megatron_config",
    "megatron_core",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
];

/// An adapter ([Hu et al.](https://arxiv.org/abs/2106.09685)): which products of a decoder are changed, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// The inner size of the product of two matrices that is added to a weight.
    pub rank: usize,
    /// That product is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// The products that are changed, by name: `q_proj` for that of each layer, `layers.0.self_attn.q_proj` for one,
    /// `lm_head`.
    pub targets: Vec<String>,
    /// The share of the adapter's inputs that training drops.
    pub dropout: f64,
}

impl Default for LoraConfig {
    /// Rank 16 and alpha 32 for all products of the layers, no dropout.
    fn default() -> Self {
        Self { rank: 16, alpha: 32.0, targets: PRODUCTS.map(str::to_owned).to_vec(), dropout: 0.0 }
    }
}

/// The fields of the file that are used, and all others.
#[derive(Deserialize)]
struct File {
    r: usize,
    lora_alpha: f64,
    target_modules: Value,
    #[serde(default)]
    lora_dropout: f64,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl LoraConfig {
    /// Reads the text of PEFT's `adapter_config.json`.
    ///
    /// # Errors
    /// [`LlmError::Adapter`] for text that is none, for a field that changes what is computed and that this crate does
    /// not know, and for numbers that make no sense.
    pub fn from_peft(text: &str) -> Result<Self> {
        let file: File = serde_json::from_str(text)
            .map_err(|error| LlmError::Adapter(format!("has a configuration that is none: {error}")))?;
        match file.others.get("peft_type").map(Value::as_str) {
            None | Some(Some("LORA")) => {}
            found => return Err(LlmError::Adapter(format!("has the `peft_type` {found:?}; this crate knows LORA"))),
        }
        if let Some((name, value)) = file.others.iter().find(|(name, value)| !is_harmless(name, value)) {
            return Err(LlmError::Adapter(format!(
                "has the field `{name}`: {value}, which this crate does not know and which may change what it computes"
            )));
        }
        let targets = targets(&file.target_modules)?;
        let config = Self { rank: file.r, alpha: file.lora_alpha, targets, dropout: file.lora_dropout };
        config.check()?;
        Ok(config)
    }

    /// Returns the text of an `adapter_config.json` for PEFT.
    pub fn to_peft(&self) -> String {
        let json = json!({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": null, "inference_mode": true,
            "r": self.rank, "lora_alpha": self.alpha, "lora_dropout": self.dropout, "target_modules": self.targets,
            "bias": "none", "fan_in_fan_out": false, "init_lora_weights": true,
        });
        format!("{json:#}")
    }

    /// Checks that the numbers make sense.
    ///
    /// # Errors
    /// [`LlmError::Adapter`], with the number and its range.
    pub fn check(&self) -> Result<()> {
        let Self { rank, alpha, dropout, targets } = self;
        let wrong = |what: String| Err(LlmError::Adapter(what));
        match self {
            _ if *rank == 0 => wrong("has rank 0: it must be at least 1".to_owned()),
            _ if !alpha.is_finite() => wrong(format!("has alpha {alpha}: it must be a number")),
            _ if !(0.0..1.0).contains(dropout) => wrong(format!("has dropout {dropout}: it must be from 0 to below 1")),
            _ if targets.is_empty() => wrong("names no products that it changes".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns whether a target names a product, which Hugging Face's files call `name`.
    pub(crate) fn names(target: &str, name: &str) -> bool {
        name.strip_suffix(target).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    }
}

fn is_harmless(name: &str, value: &Value) -> bool {
    let is_off = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    is_off
        || HARMLESS.contains(&name)
        || name == "bias" && value == "none"
        // How a new adapter begins. PiSSA and others change the weights of the model too.
        || name == "init_lora_weights" && (value == true || value == "gaussian")
}

fn targets(value: &Value) -> Result<Vec<String>> {
    let names = match value {
        Value::String(all) if all == "all-linear" => Some(PRODUCTS.map(str::to_owned).to_vec()),
        Value::Array(names) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    names.ok_or_else(|| {
        LlmError::Adapter(format!("has `target_modules`: {value} instead of a list of names or \"all-linear\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(fields: &[(&str, Value)]) -> Result<LoraConfig> {
        let mut json = json!({
            "alpha_pattern": {}, "auto_mapping": null, "base_model_name_or_path": "a/b", "bias": "none",
            "corda_config": null, "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
            "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05,
            "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA", "peft_version": "0.18.0",
            "qalora_group_size": 16, "r": 8, "rank_pattern": {}, "revision": null, "target_modules": ["v_proj", "q_proj"],
            "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_dora": false, "use_rslora": false,
        });
        for (name, value) in fields {
            json[*name] = value.clone();
        }
        LoraConfig::from_peft(&json.to_string())
    }

    #[test]
    fn pefts_file_is_read_and_written() {
        let config = file(&[]).unwrap();
        let targets = ["v_proj", "q_proj"].map(str::to_owned).to_vec();
        assert_eq!(config, LoraConfig { rank: 8, alpha: 32.0, targets, dropout: 0.05 });
        assert_eq!(LoraConfig::from_peft(&config.to_peft()).unwrap(), config);
        let all = file(&[("target_modules", "all-linear".into())]).unwrap();
        assert_eq!(all.targets, LoraConfig::default().targets);
    }

    #[test]
    fn a_field_that_changes_the_product_is_named() {
        for (name, value) in [
            ("use_dora", json!(true)),
            ("use_rslora", json!(true)),
            ("rank_pattern", json!({"q_proj": 4})),
            ("alpha_pattern", json!({"q_proj": 4})),
            ("modules_to_save", json!(["lm_head"])),
            ("bias", json!("lora_only")),
            ("init_lora_weights", json!("pissa")),
            ("layers_to_transform", json!([0])),
            ("something_new", json!(1)),
        ] {
            let error = file(&[(name, value.clone())]).unwrap_err().to_string();
            let expected = format!("the adapter has the field `{name}`: {value}, which this crate does not know");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = |name, value| file(&[(name, value)]).unwrap_err().to_string();
        assert!(error("peft_type", json!("IA3")).contains("IA3"));
        assert!(error("target_modules", json!(".*_proj")).contains("\".*_proj\" instead of a list of names"));
        assert!(error("r", json!(0)).contains("rank 0"));
        assert!(error("lora_dropout", json!(1.0)).contains("dropout 1"));
        assert!(error("target_modules", json!([])).contains("names no products"));
    }

    #[test]
    fn a_target_is_the_end_of_a_name() {
        let name = "model.layers.10.self_attn.q_proj";
        for (target, named) in [("q_proj", true), ("layers.10.self_attn.q_proj", true), (name, true), ("proj", false)] {
            assert_eq!(LoraConfig::names(target, name), named, "{target}");
        }
        assert!(!LoraConfig::names("layers.0.self_attn.q_proj", name));
    }
}
