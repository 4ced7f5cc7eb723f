//! Burn 0.22 on a TPU, GPU or CPU of another process: `burn-tpu serve`, then `cargo run --release -- ws://127.0.0.1:3000`.
//!
//! Nothing here knows burn-tpu, except the op that ends a step (`step.rs`), which is optional.

mod data;
mod model;
mod step;

use anyhow::{Context, Result, ensure};
use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::remote::{EndpointId, IrohHost, IrohRelays, RemoteHost};
use clap::{Parser, ValueEnum};
use data::{Digits, Split};
use model::Mlp;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::path::PathBuf;
use std::time::Instant;

/// Train and test a digit classifier on a device that a server of Burn's remote protocol has.
#[derive(Parser)]
struct Args {
    /// What the server prints: `ws://HOST:PORT`, or `iroh:ID@ADDRESS:PORT`
    #[arg(default_value = "ws://127.0.0.1:3000")]
    server: String,
    /// The server's token
    #[arg(long, env = "BURN_TPU_SERVE_TOKEN")]
    token: Option<String>,
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
    /// What ends a training step on the server
    #[arg(long, value_enum, default_value_t = StepEnd::Read)]
    step_end: StepEnd,
    /// Folder with the four MNIST files [default: where `cargo xtask data` puts them]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StepEnd {
    /// The loss is read in every step.
    Read,
    /// burn-tpu's op; the loss is read in every hundredth step. Other servers do not know the op.
    Mark,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let host = host(&args.server)?;
    let host = match &args.token {
        Some(token) => host.with_credential(token),
        None => host,
    };
    let device = Device::remote_options(&host).init().with_context(|| format!("no session on {}", args.server))?;
    let folder = args.data.clone().map_or_else(data::folder, Ok)?;
    let model = train(&args, &device, &Digits::load(&folder, Split::Train)?)?;
    let accuracy = test(&model, &device, &Digits::load(&folder, Split::Test)?)?;
    println!("test accuracy {:.2} %", 100.0 * accuracy);
    ensure!(accuracy >= args.at_least, "the accuracy is below {:.2} %", 100.0 * args.at_least);
    Ok(())
}

/// Takes apart what the server prints. Iroh's servers are dialled directly: nothing goes through a relay.
fn host(server: &str) -> Result<RemoteHost> {
    let Some(place) = server.strip_prefix("iroh:") else { return Ok(RemoteHost::websocket(server)) };
    let (id, address) = place.split_once('@').context("an Iroh server is `iroh:ID@ADDRESS:PORT`")?;
    let id: EndpointId = id.parse().with_context(|| format!("`{id}` is no id of an Iroh server"))?;
    let address = address.parse().with_context(|| format!("`{address}` is no address with a port"))?;
    Ok(RemoteHost::iroh(IrohHost::new(id).with_relays(IrohRelays::Disabled).with_address(address)))
}

fn train(args: &Args, device: &Device, digits: &Digits) -> Result<Mlp> {
    device.seed(42);
    let training = device.clone().autodiff();
    let mut model = Mlp::new(&training);
    let mut optimizer = AdamConfig::new().init();
    let mut order: Vec<usize> = (0..digits.len()).collect();
    let mut random = StdRng::seed_from_u64(42);
    let steps_per_epoch = digits.len() / args.batch_size;
    let steps = args.steps.unwrap_or(args.epochs * steps_per_epoch);
    // The first steps compile.
    let warm = steps.min(10);
    let mut started = Instant::now();
    for step in 0..steps {
        if step % steps_per_epoch == 0 {
            order.shuffle(&mut random);
        }
        let from = step % steps_per_epoch * args.batch_size;
        let (images, targets) = digits.batch(&order[from..from + args.batch_size], &training);
        let loss = model.loss(images, targets);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        let rate = 1e-5 + 0.5 * (1e-3 - 1e-5) * (1.0 + (std::f64::consts::PI * step as f64 / steps as f64).cos());
        model = optimizer.step(rate, model, grads);
        if args.step_end == StepEnd::Mark {
            step::mark(device)?;
        }
        let shown = step % 100 == 99 || step + 1 == steps;
        if shown || args.step_end == StepEnd::Read {
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
    let images = ((steps - warm) * args.batch_size) as f64;
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
