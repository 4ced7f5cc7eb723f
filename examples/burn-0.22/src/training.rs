//! Trains and tests the classifier, on whatever device.

use crate::data::{self, Digits, Split};
use crate::model::Mlp;
use anyhow::{Context, Result, ensure};
use burn::optim::GradientsParams;
use burn::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    #[arg(long, default_value_t = 128)]
    batch_size: usize,
    /// Stop after this many training steps
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Fail below this share of correct test images
    #[arg(long, default_value_t = 0.0)]
    at_least: f64,
    /// Folder with the four MNIST files [default: where `cargo xtask data` puts them]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// When the loss is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LossRead {
    /// In every step, which ends it.
    Always,
    /// In every hundredth step.
    Seldom,
}

/// Trains a classifier and tests it. `update` gets the learning rate, the model and its gradients: an optimizer's step,
/// and what ends the training step.
pub fn run(
    options: &Options,
    device: &Device,
    loss_read: LossRead,
    update: impl FnMut(f64, Mlp, GradientsParams) -> Result<Mlp>,
) -> Result<()> {
    let folder = options.data.clone().map_or_else(data::folder, Ok)?;
    let model = train(options, device, loss_read, update, &Digits::load(&folder, Split::Train)?)?;
    let accuracy = test(&model, device, &Digits::load(&folder, Split::Test)?)?;
    println!("test accuracy {:.2} %", 100.0 * accuracy);
    ensure!(accuracy >= options.at_least, "the accuracy is below {:.2} %", 100.0 * options.at_least);
    Ok(())
}

fn train(
    options: &Options,
    device: &Device,
    loss_read: LossRead,
    mut update: impl FnMut(f64, Mlp, GradientsParams) -> Result<Mlp>,
    digits: &Digits,
) -> Result<Mlp> {
    device.seed(42);
    let training = device.clone().autodiff();
    let mut model = Mlp::new(&training);
    let mut order: Vec<usize> = (0..digits.len()).collect();
    let mut random = StdRng::seed_from_u64(42);
    let steps_per_epoch = digits.len() / options.batch_size;
    let steps = options.steps.unwrap_or(options.epochs * steps_per_epoch);
    // The first steps compile.
    let warm = steps.min(10);
    let mut started = Instant::now();
    for step in 0..steps {
        if step % steps_per_epoch == 0 {
            order.shuffle(&mut random);
        }
        let from = step % steps_per_epoch * options.batch_size;
        let (images, targets) = digits.batch(&order[from..from + options.batch_size], &training);
        let loss = model.loss(images, targets);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let rate = 1e-5 + 0.5 * (1e-3 - 1e-5) * (1.0 + (std::f64::consts::PI * step as f64 / steps as f64).cos());
        model = update(rate, model, grads)?;
        let shown = step % 100 == 99 || step + 1 == steps;
        if shown || loss_read == LossRead::Always {
            let loss = loss.try_into_data().context("the step failed")?.iter::<f32>().next().unwrap_or(f32::NAN);
            ensure!(loss.is_finite(), "the loss of step {step} is {loss}");
            if shown {
                println!("step {}: loss {loss:.4}", step + 1);
            }
        }
        if step + 1 == warm {
            started = Instant::now();
        }
    }
    device.sync().context("the last step failed")?;
    let images = ((steps - warm) * options.batch_size) as f64;
    println!("{steps} steps, {:.0} images/s after the first {warm}", images / started.elapsed().as_secs_f64());
    Ok(model.valid())
}

/// Returns the share of images that are classified correctly.
fn test(model: &Mlp, device: &Device, digits: &Digits) -> Result<f64> {
    let all: Vec<usize> = (0..digits.len()).collect();
    let mut correct = 0;
    for batch in all.chunks(1000) {
        let (images, _) = digits.batch(batch, device);
        let found = model.forward(images).argmax(1).try_into_data().context("a batch failed")?;
        correct += found.iter::<i64>().zip(batch).filter(|(found, image)| *found == digits.label(**image)).count();
    }
    Ok(correct as f64 / digits.len() as f64)
}
