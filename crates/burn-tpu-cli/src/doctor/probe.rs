//! The child's side: actions that may abort or hang a process. Results are lines of JSON on stdout.

use super::report::{Failure, Reason, Stage};
use burn_tpu_pjrt::discovery::DiscoveryError;
use burn_tpu_pjrt::{Client, ClientOptions, Code, PjrtError, Plugin, TopologyDescription, Value};
use burn_tpu_runtime::graph::{DType, TensorType};
use burn_tpu_runtime::ops::{data, matmul::matmul};
use burn_tpu_runtime::{Device, Platform};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a probe tries.
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

/// A line that a probe prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "line")]
pub enum Line {
    /// A stage begins.
    Begins { stage: Stage },
    /// The plugin is loaded and initialised.
    Loaded { pjrt: String, xla: Option<String>, stablehlo: Option<String> },
    /// A client is running; `devices` are the kinds of its devices.
    Started { platform: String, devices: Vec<String> },
    /// There is no client, but the plugin compiles for devices that are not attached.
    AheadOfTime,
    /// The matmul's result was correct.
    Proven { seconds: f64 },
    /// The probe failed; this is the last line.
    Failed(Failure),
}

impl Line {
    /// Returns the stage that this line begins.
    pub fn stage(&self) -> Option<Stage> {
        match self {
            Line::Begins { stage } => Some(*stage),
            _ => None,
        }
    }

    /// Returns the failure that this line reports.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Line::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("plain data"));
    }
}

impl Probe {
    /// Runs the probe and prints its lines.
    pub fn run(&self) {
        let tried = match self {
            Probe::Plugin { path } => plugin(path),
            Probe::Proof { platform } => proof(*platform),
        };
        if let Err(failure) = tried {
            Line::Failed(failure).print();
        }
    }
}

fn plugin(path: &Path) -> Result<(), Failure> {
    let at = |stage| move |error: PjrtError| Failure { stage, reason: reason(&error), message: error.to_string() };
    Line::Begins { stage: Stage::Load }.print();
    let plugin = Plugin::load(path).map_err(at(Stage::Load))?;
    let xla = plugin.attributes().get("xla_version").map(Value::to_string);
    let stablehlo = plugin.stablehlo_version().map(|[major, minor, patch]| format!("{major}.{minor}.{patch}"));
    Line::Loaded { pjrt: plugin.version().to_string(), xla, stablehlo }.print();
    Line::Begins { stage: Stage::Client }.print();
    let started = client_options(path).and_then(|options| Client::new(plugin, &options));
    if started.is_err() && TopologyDescription::new(plugin, "v5e:1x1", &[]).is_ok() {
        Line::AheadOfTime.print();
    }
    let client = started.map_err(at(Stage::Client))?;
    let devices = client.devices().iter().map(|device| device.description().kind.clone()).collect();
    Line::Started { platform: client.platform_name().to_owned(), devices }.print();
    Ok(())
}

/// Returns options that use little: one CPU device, no preallocated GPU memory. The file's name decides, since a plugin
/// reports its platform only once it has a client.
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

/// The side length of the test's square matrices.
const SIDE: usize = 64;

/// Multiplies matrices of small whole numbers, so that every float type and every order of summation gives the same result.
fn proof(platform: Platform) -> Result<(), Failure> {
    let failed = |reason, message| Failure { stage: Stage::Proof, reason, message };
    Line::Begins { stage: Stage::Proof }.print();
    let start = Instant::now();
    let device = Device::new(platform, 0);
    let element = |i: usize, factor: usize| ((i * factor) % 7) as f32 - 3.0;
    let matrix = |factor| -> Vec<f32> { (0..SIDE * SIDE).map(|i| element(i, factor)).collect() };
    let (x, y) = (matrix(3), matrix(5));
    let tensor = |values: &[f32]| {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
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
    Line::Proven { seconds: start.elapsed().as_secs_f64() }.print();
    Ok(())
}
