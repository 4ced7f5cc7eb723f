//! What a server is told to do, as options of a command line.

use crate::access::Token;
use crate::error::ServeError;
use burn_tpu_runtime::{Device, Platform};
use clap::{Parser, ValueEnum};

/// Burn's release whose protocol is spoken. The two protocols have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BurnVersion {
    /// burn-remote 0.21.0.
    #[value(name = "0.21")]
    V0_21,
    /// burn-remote 0.22.1.
    #[value(name = "0.22", alias = "0.22.1")]
    V0_22,
}

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportKind {
    /// A WebSocket: not encrypted.
    Websocket,
    /// Iroh: encrypted, and the server proves who it is. Burn 0.22 alone.
    Iroh,
}

/// The float type of tensors for which a client's program names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Float {
    /// 32 bits, as on Burn's other backends.
    F32,
    /// 16 bits, at which a TPU is fastest.
    Bf16,
}

#[cfg(feature = "burn-0-22")]
impl From<Float> for burn_std_0_22::FloatDType {
    fn from(float: Float) -> Self {
        match float {
            Float::F32 => Self::F32,
            Float::Bf16 => Self::BF16,
        }
    }
}

/// Serves the device of this machine to Burn programs elsewhere.
#[derive(Clone, Debug, Parser)]
#[command(name = "burn-tpu serve", bin_name = "burn-tpu serve", version)]
pub struct Options {
    /// Burn's release that the clients are built with
    #[arg(long, value_enum, default_value = "0.22")]
    pub burn: BurnVersion,
    /// Address to listen on. One that other machines reach needs a token
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 for any free one
    #[arg(long, default_value_t = 3000)]
    pub port: u16,
    /// How clients connect
    #[arg(long, value_enum, default_value = "websocket")]
    pub transport: TransportKind,
    /// Secret that clients must name: at least 16 letters and digits. The variable does not show in `ps`
    #[arg(long, env = "BURN_TPU_SERVE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Platform to serve: tpu, cuda, cpu or ndarray. Default: the best one that is present
    #[arg(long)]
    pub platform: Option<Platform>,
    /// Number of the device on its platform
    #[arg(long, default_value_t = 0)]
    pub device: u16,
    /// Float type that the server tells its clients to use by default. Burn 0.21's clients always use f32
    #[arg(long, value_enum, default_value = "f32")]
    pub float: Float,
}

impl Options {
    /// The device to serve.
    pub fn served_device(&self) -> Device {
        match (self.platform, self.device) {
            (Some(platform), index) => Device::new(platform, index),
            (None, 0) => Device::default(),
            (None, index) => Device::new(Device::default().platform(), index),
        }
    }

    /// The token, checked.
    ///
    /// # Errors
    /// [`ServeError::Token`].
    pub fn checked_token(&self) -> Result<Option<Token>, ServeError> {
        self.token.as_ref().map(Token::new).transpose()
    }
}
