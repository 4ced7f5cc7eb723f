//! Sound from WAV files.

use crate::mel::RATE;
use anyhow::{Context, Result, ensure};
use hound::{SampleFormat, WavReader};
use std::path::Path;

/// Returns the samples of a WAV file, between -1 and 1; of several channels, their mean.
pub fn read(path: &Path) -> Result<Vec<f32>> {
    let read = || format!("cannot read the sound `{}`", path.display());
    let wav = WavReader::open(path).with_context(read)?;
    let spec = wav.spec();
    ensure!(
        spec.sample_rate as usize == RATE,
        "`{}` has {} samples a second, and the model reads {RATE}: `sox IN.wav -r {RATE} OUT.wav` makes such a file",
        path.display(),
        spec.sample_rate
    );
    let samples: Vec<f32> = match spec.sample_format {
        SampleFormat::Float => wav.into_samples().collect::<Result<_, _>>().with_context(read)?,
        SampleFormat::Int => {
            let most = (1_i64 << (spec.bits_per_sample - 1)) as f32;
            let samples = wav.into_samples::<i32>().map(|sample| Ok(sample? as f32 / most));
            samples.collect::<Result<_, hound::Error>>().with_context(read)?
        }
    };
    let channels = usize::from(spec.channels);
    Ok(samples.chunks_exact(channels).map(|frame| frame.iter().sum::<f32>() / channels as f32).collect())
}
