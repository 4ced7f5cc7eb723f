//! Burn 0.22 on a TPU, GPU or CPU of another process: `burn-tpu serve`, then `cargo run --release -- ws://127.0.0.1:3000`.
//!
//! Nothing here knows burn-tpu, except the op that ends a step (`step.rs`), which is optional.

mod data;
mod model;
mod step;
mod training;

use anyhow::{Context, Result};
use burn::optim::AdamConfig;
use burn::prelude::*;
use burn::remote::{EndpointId, IrohHost, IrohRelays, RemoteHost};
use clap::{Parser, ValueEnum};
use training::{LossRead, Options};

/// Train and test a digit classifier on a device that a server of Burn's remote protocol has.
#[derive(Parser)]
struct Args {
    /// What the server prints: `ws://HOST:PORT`, or `iroh:ID@ADDRESS:PORT`
    #[arg(default_value = "ws://127.0.0.1:3000")]
    server: String,
    /// The server's token
    #[arg(long, env = "BURN_TPU_SERVE_TOKEN")]
    token: Option<String>,
    /// What ends a training step on the server
    #[arg(long, value_enum, default_value_t = End::Read)]
    step_end: End,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, ValueEnum)]
enum End {
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
    let mut optimizer = AdamConfig::new().init();
    match args.step_end {
        End::Read => training::run(&args.options, &device, LossRead::Always, |rate, model, gradients| {
            Ok(optimizer.step(rate, model, gradients))
        }),
        End::Mark => training::run(&args.options, &device, LossRead::Seldom, |rate, model, gradients| {
            let model = optimizer.step(rate, model, gradients);
            step::mark(&device)?;
            Ok(model)
        }),
    }
}

/// Takes apart what the server prints. Iroh's servers are dialled directly: nothing goes through a relay.
fn host(server: &str) -> Result<RemoteHost> {
    let Some(place) = server.strip_prefix("iroh:") else { return Ok(RemoteHost::websocket(server)) };
    let (id, address) = place.split_once('@').context("an Iroh server is `iroh:ID@ADDRESS:PORT`")?;
    let id: EndpointId = id.parse().with_context(|| format!("`{id}` is no id of an Iroh server"))?;
    let address = address.parse().with_context(|| format!("`{address}` is no address with a port"))?;
    Ok(RemoteHost::iroh(IrohHost::new(id).with_relays(IrohRelays::Disabled).with_address(address)))
}
