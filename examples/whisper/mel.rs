//! The log-mel spectrogram that Whisper was trained on, computed on the device.
//!
//! Burn's `rfft` takes powers of two, and a frame has 400 samples. So the transform is a product with a matrix of cosines
//! and sines, which is also what a TPU does best. The filters are Slaney's, as librosa has them (`librosa.filters.mel`).

use anyhow::{Result, ensure};
use burn::prelude::*;
use burn::tensor::ops::PadMode;
use std::f64::consts::PI;

/// Samples a second.
pub const RATE: usize = 16_000;
/// The samples that the model reads at once: 30 seconds.
const SAMPLES: usize = 30 * RATE;
/// The samples of a frame, and those between the beginnings of two.
const FRAME: usize = 400;
const HOP: usize = 160;
/// The frequencies of a frame's spectrum, from 0 to half the rate.
const BINS: usize = FRAME / 2 + 1;

/// Maps sound to spectrograms.
pub struct LogMel<B: Backend> {
    /// Cosines, then sines, both under a Hann window: `[FRAME, 2 BINS]`.
    waves: Tensor<B, 2>,
    /// `[BINS, mels]`
    filters: Tensor<B, 2>,
    device: B::Device,
}

impl<B: Backend> LogMel<B> {
    /// Creates spectrograms of so many mel bands.
    pub fn new(mels: usize, device: &B::Device) -> Self {
        let waves = TensorData::new(waves(), [FRAME, 2 * BINS]);
        let filters = Tensor::<B, 2>::from_data(TensorData::new(filters(mels), [mels, BINS]), device);
        Self { waves: Tensor::from_data(waves, device), filters: filters.transpose(), device: device.clone() }
    }

    /// Maps at most 30 seconds of sound, one channel between -1 and 1, to `[1, mels, 3000]`. Silence follows a shorter
    /// sound.
    pub fn forward(&self, sound: &[f32]) -> Result<Tensor<B, 3>> {
        let seconds = sound.len() as f64 / RATE as f64;
        ensure!(sound.len() <= SAMPLES, "the sound has {seconds:.1} s; the model reads at most {} s", SAMPLES / RATE);
        let mut sound = sound.to_vec();
        sound.resize(SAMPLES, 0.0);
        let sound = Tensor::<B, 2>::from_data(TensorData::new(sound, [1, SAMPLES]), &self.device);
        let sound = sound.pad([(0, 0), (FRAME / 2, FRAME / 2)], PadMode::Reflect);
        // One frame more than the model reads begins before the end.
        let frames: Tensor<B, 3> = sound.unfold(1, FRAME, HOP).narrow(1, 0, SAMPLES / HOP);
        let squares = frames.matmul(self.waves.clone().unsqueeze()).square();
        let power = squares.clone().narrow(2, 0, BINS) + squares.narrow(2, BINS, BINS);
        let mel = power.matmul(self.filters.clone().unsqueeze());
        let log = mel.clamp_min(1e-10).log() / std::f64::consts::LN_10;
        // Nothing is more than 80 dB below the loudest.
        let floor = log.clone().max().reshape([1, 1, 1]) - 8.0;
        Ok(((log.max_pair(floor) + 4.0) / 4.0).swap_dims(1, 2))
    }
}

fn waves() -> Vec<f32> {
    let wave = |sample: usize, column: usize| {
        let window = 0.5 - 0.5 * (2.0 * PI * sample as f64 / FRAME as f64).cos();
        let (sine, cosine) = (2.0 * PI * (sample * (column % BINS)) as f64 / FRAME as f64).sin_cos();
        (window * if column < BINS { cosine } else { sine }) as f32
    };
    (0..FRAME).flat_map(|sample| (0..2 * BINS).map(move |column| wave(sample, column))).collect()
}

/// Returns triangles over the frequencies, `[mels, BINS]`: each rises from its neighbour's centre to its own and falls to
/// the next one's, and has the area 1 (in Hz).
fn filters(mels: usize) -> Vec<f32> {
    let top = mel(RATE as f64 / 2.0);
    let centre = |index: usize| hertz(top * index as f64 / (mels + 1) as f64);
    let filter = |band: usize, bin: usize| {
        let (from, to, until) = (centre(band), centre(band + 1), centre(band + 2));
        let frequency = (bin * RATE) as f64 / FRAME as f64;
        let height = ((frequency - from) / (to - from)).min((until - frequency) / (until - to)).max(0.0);
        (height * 2.0 / (until - from)) as f32
    };
    (0..mels).flat_map(|band| (0..BINS).map(move |bin| filter(band, bin))).collect()
}

/// Slaney's scale: 15 mels to 1 kHz, and 27 for each factor of 6.4 above.
fn mel(hertz: f64) -> f64 {
    if hertz < 1000.0 { hertz * 3.0 / 200.0 } else { 15.0 + 27.0 * (hertz / 1000.0).ln() / 6.4_f64.ln() }
}

/// The inverse of [`mel`].
fn hertz(mel: f64) -> f64 {
    if mel < 15.0 { mel * 200.0 / 3.0 } else { 1000.0 * ((mel - 15.0) / 27.0 * 6.4_f64.ln()).exp() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::farthest;
    use burn_flex::{Flex, FlexDevice};

    #[test]
    fn filters_are_those_of_librosa() {
        let filters = filters(80);
        let filter = |band: usize| &filters[band * BINS..][..BINS];
        assert!(farthest(&filter(0)[..4], &[0.0, 0.02486259, 0.0, 0.0]) < 1e-8);
        assert!(farthest(&filter(40)[41..46], &[0.0, 0.00541111, 0.01473557, 0.00651819, 0.0]) < 1e-8);
        assert!(farthest(&filter(79)[191..196], &[0.00269838, 0.00316471, 0.00314131, 0.00269255, 0.0022438]) < 1e-8);
    }

    /// A second of two tones, of which the figures are those of faster-whisper 1.2.1 (`FeatureExtractor`).
    #[test]
    fn a_spectrogram_is_that_of_faster_whisper() {
        let tone = |hertz: f64, index: usize| (2.0 * PI * hertz * index as f64 / RATE as f64).sin();
        let sound: Vec<f32> = (0..RATE).map(|at| (0.5 * tone(440.0, at) + 0.1 * tone(3000.0, at)) as f32).collect();
        let mel = LogMel::<Flex>::new(80, &FlexDevice).forward(&sound).unwrap();
        assert_eq!(mel.dims(), [1, 80, 3000]);
        let mel: Vec<f32> = mel.into_data().to_vec().unwrap();
        let expected = [
            (0, [0.988746, -0.561796, 0.326251, 0.838231, 0.326251]),
            (9, [1.309057, 1.159391, 1.162235, 1.18294, 0.362225]),
            (12, [1.337189, 1.293523, 1.295575, 1.242279, 0.343265]),
            (53, [0.741295, -0.561796, -0.032845, 0.59078, -0.032845]),
            (79, [0.121214, -0.561796, -0.539399, -0.029301, -0.539398]),
        ];
        for (band, expected) in expected {
            let found = [0, 50, 99, 100, 101].map(|frame| mel[band * 3000 + frame]);
            assert!(farthest(&found, &expected) < 1e-4, "band {band}: {found:?} instead of {expected:?}");
        }
    }

    #[test]
    fn a_sound_that_is_too_long_is_an_error() {
        let error = LogMel::<Flex>::new(80, &FlexDevice).forward(&[0.0; SAMPLES + 1600]).unwrap_err().to_string();
        assert!(error.contains("the sound has 30.1 s; the model reads at most 30 s"), "{error}");
    }
}
