//! The topology engine: libtpu compiles programs for a slice that need not be attached; they are never run.
//!
//! Its buffers are shapes. An upload keeps no data, an execution returns shapes, and a read returns an error.

use super::pjrt::{compiler_flags, dump_program, spec};
use super::{Arguments, DeviceBuffer, Engine, Executable, Execution, HostBytes, SharedBuffer, argument, downcast};
use crate::error::{Result, TpuError};
use crate::topology::Topology;
use crate::{Device, TpuOptions};
use burn_tpu_graph::{Lowered, Op, Program, TensorType, lower};
use burn_tpu_pjrt::PluginKind;
use burn_tpu_pjrt::{CompileOptions, Plugin, TopologyDescription};
use parking_lot::Mutex;
use std::sync::Arc;

/// A result of a program that was compiled but not run.
struct ShapeOnly(TensorType);

impl DeviceBuffer for ShapeOnly {}

/// The engine of a slice for which programs are compiled.
struct TopologyEngine {
    slice: Slice,
    dump: Option<std::path::PathBuf>,
}

/// Opens a slice: finds and loads libtpu, and creates the description of the slice.
///
/// # Errors
/// [`TpuError::Unavailable`] without libtpu, [`TpuError::Pjrt`] for a slice that libtpu does not support.
pub(crate) fn open(topology: Topology, options: &TpuOptions) -> Result<Arc<dyn Engine>> {
    let slice = Slice::open(topology, options)?;
    Ok(Arc::new(TopologyEngine { slice, dump: options.dump.clone() }))
}

/// Finds and loads libtpu, which needs no TPU to compile. `what` is the purpose that the error names.
///
/// # Errors
/// [`TpuError::Unavailable`] with every place that was searched.
pub(crate) fn libtpu(what: &str, options: &TpuOptions) -> Result<Plugin> {
    Plugin::find(PluginKind::Tpu, options.plugin.as_deref()).map_err(|error| TpuError::Unavailable {
        device: what.into(),
        reason: error.to_string(),
        fix: "cargo xtask setup tpu",
    })
}

/// A slice in the form that libtpu's compiler takes.
#[derive(Clone)]
pub(crate) struct Slice {
    pub(crate) topology: Topology,
    pub(crate) description: TopologyDescription,
    options: CompileOptions,
}

impl Slice {
    /// Opens a slice. See [`open`].
    pub(crate) fn open(topology: Topology, options: &TpuOptions) -> Result<Self> {
        let plugin = libtpu(&topology.to_string(), options)?;
        let description = TopologyDescription::new(plugin, &topology.to_string(), &[]);
        let description = description.map_err(TpuError::pjrt(format!("describing the slice {topology}")))?;
        let Some(first) = description.devices().first() else {
            return Err(TpuError::Topology { name: topology.to_string(), rule: "has no devices".into() });
        };
        let options = compiler_flags(CompileOptions::default().device_assignment(vec![vec![first.id]]), options);
        Ok(Self { topology, description, options })
    }

    /// Compiles a lowered program for the slice's first device.
    pub(crate) fn compile(&self, lowered: &Lowered) -> Result<burn_tpu_pjrt::Executable> {
        let specs = lowered.arguments.iter().map(|argument| spec(argument.ty())).collect::<Result<Vec<_>>>()?;
        let context = || format!("compiling a program for {}", self.topology);
        let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs);
        let text = text.map_err(TpuError::pjrt(context()))?;
        self.description.compile(&text, &self.options).map_err(TpuError::pjrt(context()))
    }
}

impl Engine for TopologyEngine {
    fn describe(&self) -> String {
        format!("{} (ahead of time, {})", self.slice.topology, self.slice.description.plugin().path().display())
    }

    fn upload(&self, ty: &TensorType, _bytes: HostBytes) -> Result<SharedBuffer> {
        Ok(Arc::new(ShapeOnly(ty.clone())))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        no_value(&self.slice.topology.to_string(), buffer)
    }

    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let lowered = lower(program).map_err(|error| TpuError::Bug(error.to_string()))?;
        dump_program(self.dump.as_deref(), program, &lowered)?;
        let executable = self.slice.compile(&lowered)?;
        let size_bytes = executable.code_size().unwrap_or(0).max(0) as u64;
        Ok(Box::new(ShapeProgram::new(program, size_bytes, None)))
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

/// The recorded programs, in the order in which they would have run.
#[derive(Clone, Default)]
pub(crate) struct RecordedPrograms {
    programs: Arc<Mutex<Vec<Arc<Program>>>>,
}

impl RecordedPrograms {
    /// Takes the programs that were recorded since the last call.
    pub(crate) fn take(&self) -> Vec<Arc<Program>> {
        std::mem::take(&mut *self.programs.lock())
    }
}

/// An engine that records programs without compiling or running them: the graph is the same for every slice.
pub(crate) struct RecordOnlyEngine(pub(crate) RecordedPrograms);

impl Engine for RecordOnlyEngine {
    fn describe(&self) -> String {
        "record only: programs are neither compiled nor run".into()
    }

    fn upload(&self, ty: &TensorType, _bytes: HostBytes) -> Result<SharedBuffer> {
        Ok(Arc::new(ShapeOnly(ty.clone())))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        no_value("the device of a fit", buffer)
    }

    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        Ok(Box::new(ShapeProgram::new(program, 0, Some(self.0.clone()))))
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

/// A program that returns shapes.
struct ShapeProgram {
    program: Arc<Program>,
    /// Whether a result would be aliased to the parameter, for each parameter in order.
    in_place: Vec<bool>,
    size_bytes: u64,
    recorded: Option<RecordedPrograms>,
}

impl ShapeProgram {
    fn new(program: &Program, size_bytes: u64, recorded: Option<RecordedPrograms>) -> Self {
        let in_place = program.results_in_place().iter().map(Option::is_some).collect();
        Self { program: Arc::new(program.clone()), in_place, size_bytes, recorded }
    }
}

impl Executable for ShapeProgram {
    fn execute(&self, arguments: &mut Arguments, _slots: &[u64]) -> Result<Execution> {
        let mut execution = Execution::default();
        for ((index, ty), in_place) in self.program.parameters().zip(&self.in_place) {
            let shared = argument(arguments, index)?;
            if Arc::strong_count(shared) == 1 && *in_place {
                execution.donated_buffers += 1;
                execution.donated_bytes += ty.bytes();
            }
        }
        if let Some(recorded) = &self.recorded {
            recorded.programs.lock().push(Arc::clone(&self.program));
        }
        execution.outputs =
            self.program.output_types().map(|ty| Arc::new(ShapeOnly(ty.clone())) as SharedBuffer).collect();
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

fn no_value(device: &str, buffer: &SharedBuffer) -> Result<Vec<u8>> {
    let ShapeOnly(ty) = downcast(buffer)?;
    Err(TpuError::NoValue { device: device.into(), ty: ty.to_string() })
}

/// Opens the engine of a topology device.
pub(crate) fn open_described(device: Device, options: &TpuOptions) -> Result<Arc<dyn Engine>> {
    match crate::topology::described(device.index()) {
        Some(crate::topology::Described::Slice(topology)) => open(topology, options),
        Some(crate::topology::Described::Recording(programs)) => Ok(Arc::new(RecordOnlyEngine(programs))),
        None => Err(TpuError::Topology {
            name: device.to_string(),
            rule: "was never registered; create the device with TpuDevice::topology".into(),
        }),
    }
}
