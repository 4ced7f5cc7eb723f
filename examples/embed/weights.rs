//! A checkpoint's folder: `config.json`, and `model.safetensors` in PyTorch's names and layouts.
//!
//! Every weight of the model must be in the file with the right shape. What the file has and the model lacks (the pooler,
//! position numbers) is ignored.

use anyhow::{Context, Result, anyhow, bail, ensure};
use burn::config::Config;
use burn::prelude::Backend;
use burn_store::{
    ApplyError, ModuleAdapter, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore, SafetensorsStoreError,
};
use burn_tpu::store::CastFloats;
use burn_tpu_workspace::models::{Bert, BertConfig};
use serde::Deserialize;
use std::path::Path;

/// The checkpoint's names and this model's, in the order in which they are replaced.
const NAMES: [(&str, &str); 7] = [
    ("encoder.layer.", "encoder.layers."),
    ("attention.self.", "mha."),
    ("attention.output.dense.", "mha.output."),
    ("attention.output.LayerNorm.", "norm_1."),
    ("intermediate.dense.", "pwff.linear_inner."),
    ("output.dense.", "pwff.linear_outer."),
    ("output.LayerNorm.", "norm_2."),
];
/// The name of the first layer norm, which is in no layer.
const FIRST_NORM: (&str, &str) = ("embeddings.LayerNorm.", "embeddings.layer_norm.");

/// What `config.json` says beside the sizes.
#[derive(Deserialize)]
struct Kind {
    model_type: String,
    hidden_act: String,
}

/// Reads the sizes of the encoder.
pub fn config(folder: &Path) -> Result<BertConfig> {
    let path = folder.join("config.json");
    let read = || format!("cannot read the model's sizes from `{}`", path.display());
    let kind: Kind = serde_json::from_slice(&std::fs::read(&path).with_context(read)?).with_context(read)?;
    ensure!(
        kind.model_type == "bert" && kind.hidden_act == "gelu",
        "`{}` describes a model of type `{}` with activation `{}`; this program runs `bert` with `gelu`",
        path.display(),
        kind.model_type,
        kind.hidden_act
    );
    BertConfig::load(&path).with_context(read)
}

/// Returns the most tokens of a sentence: what the model was trained for, if the folder says so, else what it can take.
pub fn context(folder: &Path, config: &BertConfig) -> Result<usize> {
    #[derive(Deserialize)]
    struct Sentences {
        max_seq_length: usize,
    }
    let path = folder.join("sentence_bert_config.json");
    if !path.exists() {
        return Ok(config.max_position_embeddings);
    }
    let read = || format!("cannot read the length of sentences from `{}`", path.display());
    let sentences: Sentences = serde_json::from_slice(&std::fs::read(&path).with_context(read)?).with_context(read)?;
    Ok(sentences.max_seq_length.min(config.max_position_embeddings))
}

/// Returns the encoder with the folder's weights, in the float type of the backend.
pub fn load<B: Backend>(folder: &Path, config: &BertConfig, device: &B::Device) -> Result<Bert<B>> {
    let path = folder.join("model.safetensors");
    let adapter = PyTorchToBurnAdapter.chain(CastFloats::to_those_of::<B>());
    let mut store = SafetensorsStore::from_file(&path).with_from_adapter(adapter).validate(false).allow_partial(true);
    for (theirs, ours) in NAMES.iter().chain([&FIRST_NORM]) {
        store = store.with_key_remapping(theirs.replace('.', r"\."), *ours);
    }
    let mut model = config.init::<B>(device);
    let result = model.load_from(&mut store).map_err(|error| unreadable(&path, &error))?;
    let wrong = result.errors.iter().map(wrong);
    let missing = result.missing.iter().map(|(name, _)| format!("`{}` is missing", in_file(name)));
    let problems: Vec<_> = wrong.chain(missing).collect();
    if !problems.is_empty() {
        bail!("`{}` does not fit `config.json`: {}", path.display(), listed(&problems));
    }
    Ok(model)
}

/// Describes a file that burn-store cannot read.
fn unreadable(path: &Path, error: &SafetensorsStoreError) -> anyhow::Error {
    let cause = anyhow!("{error}");
    match error {
        SafetensorsStoreError::Safetensors(_) => {
            cause.context(format!("`{}` is not a safetensors file, or not a whole one", path.display()))
        }
        _ => cause.context(format!("cannot read the weights `{}`", path.display())),
    }
}

/// Describes a tensor that cannot be used.
fn wrong(error: &ApplyError) -> String {
    match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            // The adapter has transposed what is read; show linear weights as they are in the file.
            let shape = |shape: &[usize]| match path.ends_with(".weight") && !path.contains("_embeddings.") {
                true => shape.iter().rev().copied().collect::<Vec<_>>(),
                false => shape.to_vec(),
            };
            format!("`{}` has shape {:?} instead of {:?}", in_file(path), shape(found), shape(expected))
        }
        error => error.to_string(),
    }
}

/// Returns the checkpoint's name of a parameter.
fn in_file(name: &str) -> String {
    let name = match name {
        name if name.contains("norm") => name.replace(".gamma", ".weight").replace(".beta", ".bias"),
        name => name.to_owned(),
    };
    NAMES.iter().chain([&FIRST_NORM]).rev().fold(name, |name, (theirs, ours)| name.replace(ours, theirs))
}

/// Lists the first few of many problems.
fn listed(problems: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = problems.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match problems.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown}; and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;
    use burn_store::BurnToPyTorchAdapter;
    use serde_json::json;
    use tempfile::TempDir;

    /// Writes a checkpoint of random weights whose `config.json` says `intermediate_size`; it is 32 in truth.
    fn checkpoint(intermediate_size: usize, keep: fn(&str, &str) -> bool) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let json = json!({
            "model_type": "bert", "hidden_act": "gelu", "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": intermediate_size, "max_position_embeddings": 12,
            "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1
        });
        std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
        let mut store = SafetensorsStore::from_file(folder.path().join("model.safetensors"))
            .with_to_adapter(BurnToPyTorchAdapter)
            .with_predicate(keep);
        for (theirs, ours) in NAMES.iter().chain([&FIRST_NORM]).rev() {
            store = store.with_key_remapping(ours.replace('.', r"\."), *theirs);
        }
        let model = BertConfig::new(20, 16, 2, 4, 32, 12).init::<NdArray>(&Default::default());
        model.save_into(&mut store).unwrap();
        folder
    }

    fn loaded(folder: &TempDir) -> Result<Bert<NdArray>> {
        let config = config(folder.path())?;
        load(folder.path(), &config, &Default::default())
    }

    fn error(folder: &TempDir) -> String {
        format!("{:#}", loaded(folder).err().unwrap())
    }

    #[test]
    fn a_whole_checkpoint_is_loaded_and_its_length_is_that_of_the_positions() {
        let folder = checkpoint(32, |_, _| true);
        loaded(&folder).unwrap();
        let config = config(folder.path()).unwrap();
        assert_eq!(context(folder.path(), &config).unwrap(), 12);
        std::fs::write(folder.path().join("sentence_bert_config.json"), r#"{"max_seq_length": 9}"#).unwrap();
        assert_eq!(context(folder.path(), &config).unwrap(), 9);
    }

    #[test]
    fn a_missing_weight_is_named_as_in_the_file() {
        let folder =
            checkpoint(32, |name, _| !name.contains("layers.1.norm_2") && !name.contains("layers.0.mha.query"));
        let message = error(&folder);
        for name in ["layer.0.attention.self.query.weight", "layer.1.output.LayerNorm.bias", "and 1 more"] {
            assert!(message.contains(name), "`{name}` missing in: {message}");
        }
        assert!(message.contains("model.safetensors` does not fit `config.json`"), "{message}");
    }

    #[test]
    fn a_weight_of_another_shape_is_named_with_both() {
        let message = error(&checkpoint(40, |_, _| true));
        let part = "`encoder.layer.0.intermediate.dense.weight` has shape [32, 16] instead of [40, 16]";
        assert!(message.contains(part), "{message}");
        assert!(message.contains("and 3 more"), "{message}");
    }

    #[test]
    fn a_file_without_tensors_is_named() {
        let folder = checkpoint(32, |_, _| true);
        let file = folder.path().join("model.safetensors");
        let whole = std::fs::read(&file).unwrap();
        for bytes in [&b"These are not tensors, but a sentence."[..], &whole[..whole.len() - 1], b""] {
            std::fs::write(&file, bytes).unwrap();
            let message = error(&folder);
            assert!(message.contains("model.safetensors` is not a safetensors file, or not a whole one"), "{message}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(error(&folder).contains("cannot read the weights"), "{}", error(&folder));
    }

    #[test]
    fn a_model_of_another_kind_is_refused() {
        let folder = checkpoint(32, |_, _| true);
        let path = folder.path().join("config.json");
        let json = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, json.replace("\"gelu\"", "\"relu\"")).unwrap();
        assert!(error(&folder).contains("`bert` with activation `relu`"), "{}", error(&folder));
        std::fs::write(&path, "{}").unwrap();
        assert!(error(&folder).contains("cannot read the model's sizes from"), "{}", error(&folder));
    }
}
