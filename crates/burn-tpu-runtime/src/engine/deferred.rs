//! An engine that opens another one when a program is compiled or a value is transferred first: a process whose programs are
//! all small never loads a plugin.
//!
//! Owns: when it opens. May not know: what it opens.

use super::{Engine, Executable, HostBytes, SharedBuffer};
use crate::activity::{RunningProgram, WaitFor, Waiting};
use crate::error::Result;
use crate::memory::PluginMemory;
use crate::{Device, Platform};
use burn_tpu_graph::{Op, Program, Sharding, TensorType};
use burn_tpu_pjrt::Plugin;
use std::sync::{Arc, OnceLock};

/// Opens an engine.
type Open = Box<dyn Fn() -> Result<Arc<dyn Engine>> + Send + Sync>;

/// The engine of one device of the CPU plugin, before and after the plugin is loaded. If it cannot be opened, every call
/// that needs it returns the error.
pub(super) struct DeferredEngine {
    device: Device,
    /// What describes the engine while it is not open.
    description: String,
    open: Open,
    engine: OnceLock<Result<Arc<dyn Engine>>>,
}

impl DeferredEngine {
    pub(super) fn new(
        device: Device,
        description: String,
        open: impl Fn() -> Result<Arc<dyn Engine>> + Send + Sync + 'static,
    ) -> Self {
        debug_assert_eq!(device.platform(), Platform::Cpu, "what is said before it is open holds for the CPU plugin");
        Self { device, description, open: Box::new(open), engine: OnceLock::new() }
    }

    /// Returns the engine, which is opened at the first call.
    fn opened(&self) -> Result<&Arc<dyn Engine>> {
        self.engine.get_or_init(|| self.open_logged()).as_ref().map_err(Clone::clone)
    }

    fn open_logged(&self) -> Result<Arc<dyn Engine>> {
        let (device, _wait) = (self.device, Waiting::new(Some(self.device), WaitFor::Start));
        let engine = (self.open)();
        match &engine {
            Ok(engine) => tracing::info!(%device, engine = engine.describe(), "engine opened"),
            Err(error) => tracing::error!(%device, %error, "engine did not open"),
        }
        engine
    }

    /// Returns the engine if it is open.
    fn if_open(&self) -> Option<&Arc<dyn Engine>> {
        self.engine.get()?.as_ref().ok()
    }
}

impl Engine for DeferredEngine {
    fn describe(&self) -> String {
        self.if_open().map_or_else(|| self.description.clone(), |engine| engine.describe())
    }

    fn open(&self) -> Result<()> {
        self.opened().map(|_| ())
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        self.opened()?.upload(ty, bytes, sharding)
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        self.opened()?.download(buffer)
    }

    fn lowers(&self, op: &Op) -> bool {
        self.if_open().is_none_or(|engine| engine.lowers(op))
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        self.opened()?.compile(program)
    }

    fn transfers_values(&self) -> bool {
        true
    }

    fn wait_for(&self, buffer: &SharedBuffer) -> Result<()> {
        self.opened()?.wait_for(buffer)
    }

    fn memory(&self) -> Option<PluginMemory> {
        self.if_open()?.memory()
    }

    fn plugin(&self) -> Option<Plugin> {
        self.opened().ok()?.plugin()
    }

    fn wait(&self) -> Result<()> {
        self.if_open().map_or(Ok(()), |engine| engine.wait())
    }

    fn in_flight(&self) -> Vec<RunningProgram> {
        self.if_open().map_or_else(Vec::new, |engine| engine.in_flight())
    }
}
