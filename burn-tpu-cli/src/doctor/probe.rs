//! The child's side: what may end or hang a process. It says what it learns as lines of JSON on stdout.

use super::report::{Failure, Reason, Stage};
use burn_tpu_pjrt::discovery::DiscoveryError;
use burn_tpu_pjrt::{Client, ClientOptions, Code, PjrtError, Plugin, TopologyDescription, Value};
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::{data, matmul::matmul};
use burn_tpu_runtime::{Device, Platform};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to try.
#[derive(clap::Subcommand)]
pub enum Probe {
    /// Load a plugin and start a client
    Plugin {
        /// The library file
        path: PathBuf,
    },
    /// Run a matmul as a program would
    Proof {
        /// The platform
        platform: Platform,
    },
}

/// A line of a probe.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "said")]
pub enum Said {
    /// This comes next.
    Begins { stage: Stage },
    /// The plugin is loaded and initialised.
    Loaded { pjrt: String, xla: Option<String>, stablehlo: Option<String> },
    /// A client runs; these are the kinds of its devices.
    Started { platform: String, devices: Vec<String> },
    /// No client, but the plugin describes devices that are not here, and so compiles for them.
    AheadOfTime,
    /// The matmul was right.
    Proven { seconds: f64 },
    /// The end, a bad one.
    Failed(Failure),
}

impl Said {
    /// The stage that this line begins.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Said::Begins { stage } => Some(*stage),
            _ => None,
        }
    }

    /// The failure that this line reports.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Said::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    fn say(&self) {
        println!("{}", serde_json::to_string(self).expect("plain data"));
    }
}

impl Probe {
    /// Tries it and says what happens.
    pub fn run(&self) {
        let tried = match self {
            Probe::Plugin { path } => plugin(path),
            Probe::Proof { platform } => proof(*platform),
        };
        if let Err(failure) = tried {
            Said::Failed(failure).say();
        }
    }
}

fn plugin(path: &Path) -> Result<(), Failure> {
    let at = |stage| move |error: PjrtError| Failure { stage, reason: reason(&error), message: error.to_string() };
    Said::Begins { stage: Stage::Load }.say();
    let plugin = Plugin::load(path).map_err(at(Stage::Load))?;
    let xla = plugin.attributes().get("xla_version").map(Value::to_string);
    let stablehlo = plugin.stablehlo_version().map(|[major, minor, patch]| format!("{major}.{minor}.{patch}"));
    Said::Loaded { pjrt: plugin.version().to_string(), xla, stablehlo }.say();
    Said::Begins { stage: Stage::Client }.say();
    let started = client_options(path).and_then(|options| Client::new(plugin, &options));
    if started.is_err() && TopologyDescription::new(plugin, "v5e:1x1", &[]).is_ok() {
        Said::AheadOfTime.say();
    }
    let client = started.map_err(at(Stage::Client))?;
    let devices = client.devices().iter().map(|device| device.description().kind.clone()).collect();
    Said::Started { platform: client.platform_name().to_owned(), devices }.say();
    Ok(())
}

/// Options that take as little as possible: one CPU device, no GPU memory in advance. Told by the file's name, since a
/// plugin names its platform only once it has a client.
fn client_options(path: &Path) -> burn_tpu_pjrt::Result<ClientOptions> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match () {
        () if name.contains("cpu") => ClientOptions::cpu(1),
        () if name.contains("cuda") => ClientOptions::cuda_memory(0.1, false),
        () => Ok(ClientOptions::default()),
    }
}

fn reason(error: &PjrtError) -> Reason {
    match error {
        PjrtError::PluginMissing { .. } | PjrtError::Discovery(DiscoveryError::Missing { .. }) => Reason::Missing,
        PjrtError::PluginNotLoadable { .. } => Reason::NotLoadable,
        PjrtError::NotAPlugin { .. } => Reason::NotAPlugin,
        PjrtError::PluginVersion { .. } => Reason::Version,
        PjrtError::XlaFlag { .. } => Reason::XlaFlag,
        PjrtError::TpuLocked { .. } => Reason::Locked,
        // libtpu says "not found", the CUDA plugin "failed precondition".
        error if matches!(error.code(), Some(Code::NotFound | Code::FailedPrecondition)) => Reason::NoDevice,
        _ => Reason::Other,
    }
}

/// The side of the proof's square matrices.
const SIDE: usize = 64;

/// Whole numbers so small that every float type and every order of summing gives the same result.
fn proof(platform: Platform) -> Result<(), Failure> {
    let failed = |reason, message| Failure { stage: Stage::Proof, reason, message };
    Said::Begins { stage: Stage::Proof }.say();
    let start = Instant::now();
    let device = Device::new(platform, 0);
    let element = |i: usize, factor: usize| ((i * factor) % 7) as f32 - 3.0;
    let matrix = |factor| -> Vec<f32> { (0..SIDE * SIDE).map(|i| element(i, factor)).collect() };
    let (x, y) = (matrix(3), matrix(5));
    let tensor = |values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        data::from_bytes("doctor", TensorType::new(DType::F32, [SIDE, SIDE]), bytes, &device)
    };
    let product = data::into_bytes(&matmul("doctor", tensor(&x), tensor(&y)));
    let product = product.map_err(|error| failed(Reason::Other, error.to_string()))?;
    let (values, _) = product.as_chunks::<4>();
    let found: Vec<f32> = values.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let dot = |at: usize| -> f32 { (0..SIDE).map(|k| x[at / SIDE * SIDE + k] * y[k * SIDE + at % SIDE]).sum() };
    if let Some(at) = (0..SIDE * SIDE).find(|&at| found.get(at) != Some(&dot(at))) {
        let message = format!("element {at} of a {SIDE}x{SIDE} matmul is {:?}, not {}", found.get(at), dot(at));
        return Err(failed(Reason::WrongNumbers, message));
    }
    Said::Proven { seconds: start.elapsed().as_secs_f64() }.say();
    Ok(())
}
