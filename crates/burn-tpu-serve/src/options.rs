//! What a server is told to do, as options of a command line.

use crate::access::Token;
use crate::error::ServeError;
use burn_tpu_runtime::{Device, Platform};
use clap::{Parser, ValueEnum};

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportKind {
    /// A WebSocket: not encrypted.
    Websocket,
    /// Iroh: encrypted, and the server proves who it is.
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

impl From<Float> for burn_std::FloatDType {
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
    /// Address to listen on. One that other machines reach needs a token
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 for any free one
    #[arg(long, default_value_t = 3000)]
    pub port: u16,
    /// How clients connect
    #[arg(long, value_enum, default_value = "websocket")]
    pub transport: TransportKind,
    /// Secret that clients must name: at least 16 characters. The variable does not show in `ps`
    #[arg(long, env = "BURN_TPU_SERVE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Platform to serve: tpu, cuda, cpu or ndarray. Default: the best one that is present
    #[arg(long)]
    pub platform: Option<Platform>,
    /// Number of the device on its platform
    #[arg(long, default_value_t = 0)]
    pub device: u16,
    /// Float type that the server tells its clients to use by default
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
