//! What CTranslate2 computes from the same sound, which `reference.py` wrote, and how far the results are from it.

use crate::transcribe::Transcriber;
use anyhow::{Context, Result, ensure};
use burn::prelude::*;
use safetensors::SafeTensors;
use std::path::Path;

/// The largest differences that roundings of f32 in other orders make: of a spectrogram, whose numbers are about 1, and of
/// what the encoder finds, up to about 20.
const MEL: f32 = 1e-3;
const ENCODED: f32 = 2e-2;

/// The bytes of `reference.safetensors`: for each sound `NAME.wav` the arrays `NAME.mel`, `NAME.encoded` and `NAME.tokens`.
pub struct Reference(Vec<u8>);

impl Reference {
    /// Reads the file in a folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("reference.safetensors");
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read `{}`: run reference.py", path.display()))?;
        Ok(Self(bytes))
    }

    /// Describes how far a sound's results are from the reference's. Other tokens and large differences are errors.
    pub fn compare<B: Backend>(
        &self,
        path: &Path,
        transcriber: &Transcriber<B>,
        sound: &[f32],
        ids: &[u32],
    ) -> Result<String> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let mel = transcriber.mel(sound)?;
        let (_, tokens) = self.array::<4>(&format!("{name}.tokens"))?;
        let expected: Vec<u32> = tokens.into_iter().map(u32::from_le_bytes).collect();
        let far = self.distance(&format!("{name}.mel"), mel.clone())?;
        // Of the same spectrogram, so that this is the difference of the encoder alone.
        let encoded = self.distance(
            &format!("{name}.encoded"),
            transcriber.encode(self.tensor(&format!("{name}.mel"), &mel.device())?),
        )?;
        ensure!(ids == expected, "{name}: the tokens are {ids:?} instead of {expected:?}");
        ensure!(far < MEL && encoded < ENCODED, "{name}: spectrogram off by {far:.1e}, encoder by {encoded:.1e}");
        Ok(format!("spectrogram off by {far:.1e}, encoder by {encoded:.1e}, the same {} tokens", ids.len()))
    }

    fn distance<B: Backend>(&self, name: &str, found: Tensor<B, 3>) -> Result<f32> {
        let expected = self.tensor::<B>(name, &found.device())?;
        ensure!(expected.dims() == found.dims(), "`{name}` has sizes {:?}, not {:?}", expected.dims(), found.dims());
        Ok((found - expected).abs().max().try_into_scalar()?.elem())
    }

    /// Returns an array of f32 as a batch of one.
    fn tensor<B: Backend>(&self, name: &str, device: &B::Device) -> Result<Tensor<B, 3>> {
        let (sizes, numbers) = self.array::<4>(name)?;
        let numbers: Vec<f32> = numbers.into_iter().map(f32::from_le_bytes).collect();
        Ok(Tensor::<B, 2>::from_data(TensorData::new(numbers, sizes), device).unsqueeze())
    }

    /// Returns an array's sizes and the bytes of its numbers.
    fn array<const N: usize>(&self, name: &str) -> Result<(Vec<usize>, Vec<[u8; N]>)> {
        let file = SafeTensors::deserialize(&self.0)?;
        let view = file.tensor(name)?;
        Ok((view.shape().to_vec(), view.data().as_chunks().0.to_vec()))
    }
}
