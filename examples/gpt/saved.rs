//! The folder that training writes and generation reads: weights, tokenizer, sizes.

use crate::model::{Gpt, GptConfig};
use crate::tokenizer::Bpe;
use anyhow::{Context, Result, anyhow, bail, ensure};
use burn::config::Config;
use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn::tensor::FloatDType;
use burn_store::{ApplyError, ModuleSnapshot, SafetensorsStore};
use std::path::{Path, PathBuf};

/// The files of a folder.
pub struct Files(PathBuf);

impl Files {
    /// Names the files of a folder, which need not exist.
    pub fn in_folder(folder: &Path) -> Self {
        Self(folder.to_path_buf())
    }

    /// Creates the folder.
    pub fn create(&self) -> Result<()> {
        std::fs::create_dir_all(&self.0).with_context(|| format!("cannot create the folder `{}`", self.0.display()))
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn weights(&self) -> PathBuf {
        self.path("model.safetensors")
    }

    fn config(&self) -> PathBuf {
        self.path("config.json")
    }

    fn tokenizer(&self) -> PathBuf {
        self.path("tokenizer.json")
    }

    /// Writes everything that generation needs.
    pub fn save<B: Backend>(&self, config: &GptConfig, tokenizer: &Bpe, model: &Gpt<B>) -> Result<()> {
        self.create()?;
        let named = |path: &Path| format!("cannot write `{}`: is the disk full?", path.display());
        std::fs::write(self.config(), serde_json::to_string_pretty(config)? + "\n")
            .with_context(|| named(&self.config()))?;
        tokenizer.save(&self.tokenizer())?;
        save_weights(model, &self.weights())
    }

    /// Loads the sizes and the tokenizer, and checks that they belong together.
    pub fn load(&self) -> Result<(GptConfig, Bpe)> {
        ensure!(
            self.config().is_file(),
            "there is no model in `{}`: `gpt train --out DIR` writes one",
            self.0.display()
        );
        let config = GptConfig::load(self.config())
            .map_err(|error| anyhow!("`{}` is not a model's configuration: {error}", self.config().display()))?;
        let tokenizer = Bpe::load(&self.tokenizer())?;
        ensure!(
            tokenizer.vocab() == config.vocab,
            "the tokenizer of `{}` has {} tokens and its model {}: they are of different runs",
            self.0.display(),
            tokenizer.vocab(),
            config.vocab
        );
        Ok((config, tokenizer))
    }

    /// Loads the weights in the backend's own type of float.
    pub fn load_model<B: Backend>(&self, config: &GptConfig, device: &B::Device) -> Result<Gpt<B>> {
        load_weights(config.init(device), &self.weights())
    }
}

/// Writes a model's weights as safetensors. The file is complete or absent.
pub fn save_weights<B: Backend>(model: &Gpt<B>, path: &Path) -> Result<()> {
    let partial = path.with_extension("part");
    let mut store = SafetensorsStore::from_file(&partial).overwrite(true);
    let saved = model.save_into(&mut store).map_err(|error| anyhow!("{error}"));
    let saved = saved.and_then(|()| Ok(std::fs::rename(&partial, path)?));
    saved.with_context(|| format!("cannot write the weights to `{}`: is the disk full?", path.display()))
}

/// Returns the model with the weights of a file: all of them, and of the same shapes.
pub fn load_weights<B: Backend>(mut model: Gpt<B>, path: &Path) -> Result<Gpt<B>> {
    ensure!(path.is_file(), "the weights `{}` are missing", path.display());
    let mut store = SafetensorsStore::from_file(path).validate(false).allow_partial(true);
    let applied = model.load_from(&mut store).map_err(|error| anyhow!("{error}"));
    let applied = applied.with_context(|| format!("`{}` is not a file of tensors (safetensors)", path.display()))?;
    let mut problems: Vec<String> = applied.errors.iter().map(describe).collect();
    problems.extend(applied.missing.iter().map(|(name, _)| format!("the weight `{name}` is missing")));
    if !problems.is_empty() {
        bail!("`{}` does not have the weights of this model: {}", path.display(), problems.join("; "));
    }
    Ok(model.map(&mut ToOwnType))
}

fn describe(error: &ApplyError) -> String {
    match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("the weight `{path}` has the shape {found} instead of {expected}")
        }
        error => error.to_string(),
    }
}

/// Converts weights to the backend's own type: a file may have another one.
struct ToOwnType;

impl<B: Backend> ModuleMapper<B> for ToOwnType {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|weight| weight.cast(FloatDType::from(<B::FloatElem as burn::tensor::Element>::dtype())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_ndarray::NdArray;

    fn config() -> GptConfig {
        GptConfig::new(300).with_layers(1).with_width(8).with_heads(2).with_sequence(8)
    }

    fn model(config: &GptConfig) -> Gpt<NdArray> {
        config.init(&Default::default())
    }

    fn load_error(config: &GptConfig, path: &Path) -> String {
        format!("{:#}", load_weights(model(config), path).expect_err("the file is wrong"))
    }

    #[test]
    fn a_model_comes_back_from_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::in_folder(&folder.path().join("deep/model"));
        let bpe = Bpe::train(&["some text of the kernel ".repeat(30)], 300).unwrap();
        let config = GptConfig { vocab: bpe.vocab(), ..config() };
        let model = model(&config);
        files.save(&config, &bpe, &model).unwrap();
        let (loaded, tokenizer) = files.load().unwrap();
        assert_eq!((&loaded, tokenizer.vocab()), (&config, bpe.vocab()));
        let again = files.load_model::<NdArray>(&loaded, &Default::default()).unwrap();
        let tokens = Tensor::from_data([[1, 2, 3]], &Default::default());
        assert_eq!(model.forward(tokens.clone()).into_data(), again.forward(tokens).into_data());
    }

    #[test]
    fn a_file_that_is_no_tensor_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        assert!(load_error(&config(), &path).contains("are missing"));
        for bytes in [&b"words, not tensors"[..], &[0xff; 64], b""] {
            std::fs::write(&path, bytes).unwrap();
            let error = load_error(&config(), &path);
            assert!(error.contains("is not a file of tensors") && error.contains("model.safetensors"), "{error}");
        }
    }

    #[test]
    fn missing_and_differently_shaped_weights_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_weights(&model(&config()), &path).unwrap();
        let error = load_error(&config().with_layers(2), &path);
        assert!(error.contains("the weight `blocks.1.qkv.weight` is missing"), "{error}");
        let error = load_error(&config().with_sequence(16), &path);
        assert!(error.contains("`positions.weight` has the shape [8, 8] instead of [16, 8]"), "{error}");
    }

    #[test]
    fn a_folder_without_a_model_says_what_writes_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = Files::in_folder(folder.path()).load().err().unwrap().to_string();
        assert!(error.contains("gpt train --out"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        std::os::unix::fs::symlink("/dev/full", path.with_extension("part")).unwrap();
        let error = format!("{:#}", save_weights(&model(&config()), &path).unwrap_err());
        assert!(error.contains("model.safetensors") && error.contains("is the disk full?"), "{error}");
        assert!(!path.is_file());
    }
}
