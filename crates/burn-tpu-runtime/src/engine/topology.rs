//! The topology engine: libtpu compiles programs for a slice that need not be attached; they are never run.
//!
//! Its buffers are shapes. An upload keeps no data, an execution returns shapes, and a read returns an error.

use super::custom_calls::compile_error;
use super::pjrt::{compiler_flags, dump_program, notes, spec};
use super::tuning::{self, Tuner};
use super::{
    Arguments, DeviceBuffer, Engine, Executable, Execution, HostBytes, MeshAxes, SharedBuffer, argument, downcast,
};
use crate::cache::DiskCache;
use crate::device::{Described, Mesh, RecordedPrograms, Topology};
use crate::error::{Result, TpuError};
use crate::options::ChosenOptions;
use crate::{Device, TpuOptions};
use burn_tpu_graph::{LowerOptions, Lowered, Op, Program, Sharding, TensorType, lower_with};
use burn_tpu_pjrt::PluginKind;
use burn_tpu_pjrt::{CompileOptions, PjrtError, Plugin, TensorSpec, TopologyDescription, Value};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value without its data: an upload, or a result of a program that was compiled but not run.
struct ShapeOnly {
    ty: TensorType,
    /// How it would be split over a mesh.
    sharding: Option<Sharding>,
    /// The hash of the bytes of an upload.
    given: Option<u64>,
}

impl DeviceBuffer for ShapeOnly {
    fn sharding(&self) -> Option<&Sharding> {
        self.sharding.as_ref()
    }

    fn given(&self) -> Option<u64> {
        self.given
    }
}

/// The engine of a slice for which programs are compiled.
struct TopologyEngine {
    slice: Slice,
    axes: Option<MeshAxes>,
    dump: Option<std::path::PathBuf>,
}

/// Opens one device of a slice, or a mesh of all of them: finds and loads libtpu, and creates the description of the slice.
///
/// # Errors
/// [`TpuError::Unavailable`] without libtpu, [`TpuError::Pjrt`] for a slice that libtpu does not support,
/// [`TpuError::Mesh`] for a mesh that the slice does not have.
pub(crate) fn open(topology: Topology, mesh: Option<&Mesh>, options: &TpuOptions) -> Result<Arc<dyn Engine>> {
    let slice = Slice::open(topology, options)?;
    let axes = mesh.map(|mesh| axes(mesh, slice.description.devices().len())).transpose()?;
    Ok(Arc::new(TopologyEngine { slice, axes, dump: options.dump.clone() }))
}

/// Returns the axes of a mesh of all `count` devices.
fn axes(mesh: &Mesh, count: usize) -> Result<MeshAxes> {
    let axes = mesh.resolve(count)?;
    mesh.indices(&axes, count)?;
    Ok(MeshAxes { batch: mesh.batch()?, mesh: axes })
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
    tuner: Option<Arc<Tuner>>,
    /// Where choices of the tuner are noted.
    notes: Option<Arc<DiskCache>>,
    /// Whether kernels are compiled, and not their plain forms.
    kernels: bool,
}

/// Lowers a program for a TPU. Without kernels, their plain forms are compiled.
pub(crate) fn lower_for_tpu(program: &Program, kernels: bool) -> Result<Lowered> {
    let lowered = lower_with(program, LowerOptions { kernels, host_memory: true, ..LowerOptions::default() });
    lowered.map_err(|error| TpuError::Bug(error.to_string()))
}

impl Slice {
    /// Opens a slice. See [`open`].
    pub(crate) fn open(topology: Topology, options: &TpuOptions) -> Result<Self> {
        let plugin = libtpu(&topology.to_string(), options)?;
        let slices = topology.slices();
        let several = [("num_slices", Value::Int(slices as i64))];
        let slice_options = if slices > 1 { &several[..] } else { &[] };
        let description = TopologyDescription::new(plugin, &topology.slice().to_string(), slice_options);
        let description = description.map_err(TpuError::pjrt(format!("describing the slice {topology}")))?;
        if description.devices().is_empty() {
            return Err(TpuError::Topology { name: topology.to_string(), rule: "has no devices".into() });
        }
        let tuner = Tuner::of(options).map(Arc::new);
        let flags = compiler_flags(CompileOptions::default(), options);
        let notes = tuner.as_ref().and_then(|_| notes(&description, &flags, options)).map(Arc::new);
        Ok(Self { topology, description, options: flags, tuner, notes, kernels: options.kernels })
    }

    /// Compiles a lowered program for the slice's first device; one with a placement for all devices that its mesh has.
    /// Returns the options that were chosen for it too, at the level that does so for programs of one device.
    pub(crate) fn compile(
        &self,
        program: &Program,
        lowered: &Lowered,
    ) -> Result<(burn_tpu_pjrt::Executable, Option<ChosenOptions>)> {
        let specs = lowered.arguments.iter().map(|argument| spec(&argument.local(program)));
        let specs = specs.collect::<Result<Vec<_>>>()?;
        let options = self.options_for(program)?;
        let compile = |options: &CompileOptions| self.compile_text(lowered, specs.clone(), options);
        let tuner = self.tuner.as_ref().filter(|_| program.placement().is_none());
        let notes = self.notes.as_deref();
        let note = notes.map(|notes| notes.note_key(program.stable_hash(), lowered.stable_hash()));
        let noted = tuner.zip(note.as_ref()).and_then(|(tuner, note)| tuner.noted(notes, note));
        let (executable, chosen) = match (tuner, noted) {
            (Some(tuner), None) => tuner.compile(&options, compile, tuning::estimated_cycles),
            (_, Some(noted)) => compile(&noted.apply(options)).map(|executable| (executable, Some(noted))),
            (None, None) => compile(&options).map(|executable| (executable, None)),
        }
        .map_err(|error| {
            let context = format!("compiling a program for {}", self.topology);
            compile_error(program, context, error, |alone| self.compile_alone(alone))
        })?;
        if let (Some(tuner), Some(note), Some(chosen)) = (tuner, &note, &chosen) {
            tuner.note(notes, note, chosen);
        }
        Ok((executable, chosen))
    }

    fn compile_text(
        &self,
        lowered: &Lowered,
        specs: Vec<Arc<TensorSpec>>,
        options: &CompileOptions,
    ) -> Result<burn_tpu_pjrt::Executable, PjrtError> {
        let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs)?;
        self.description.compile(&text, options)
    }

    /// Compiles the program of a single custom call.
    fn compile_alone(&self, program: &Program) -> Result<Result<(), PjrtError>> {
        let lowered = self.lower(program)?;
        let specs = lowered.arguments.iter().map(|argument| spec(argument.ty())).collect::<Result<Vec<_>>>()?;
        Ok(self.compile_text(&lowered, specs, &self.options_for(program)?).map(drop))
    }

    /// Lowers a program for a TPU.
    pub(crate) fn lower(&self, program: &Program) -> Result<Lowered> {
        lower_for_tpu(program, self.kernels)
    }

    fn options_for(&self, program: &Program) -> Result<CompileOptions> {
        let ids: Vec<i32> = self.description.devices().iter().map(|device| device.id).collect();
        let Some(placement) = program.placement() else {
            return Ok(self.options.clone().device_assignment(vec![ids[..1].to_vec()]));
        };
        let (needed, have) = (placement.mesh.devices(), ids.len());
        if needed != have {
            let rule = format!("needs {needed} devices, and {} has {have}", self.topology);
            return Err(TpuError::Mesh { mesh: placement.mesh.to_string(), rule });
        }
        Ok(self.options.clone().partitions(needed).shardy(needed > 1).device_assignment(vec![ids]))
    }
}

impl Engine for TopologyEngine {
    fn describe(&self) -> String {
        format!("{} (ahead of time, {})", self.slice.topology, self.slice.description.plugin().path().display())
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        Ok(shape_only(ty, &bytes, sharding, self.axes.as_ref()))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        no_value(&self.slice.topology.to_string(), buffer)
    }

    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn takes_tpu_kernels(&self) -> bool {
        true
    }

    fn mesh(&self) -> Option<&MeshAxes> {
        self.axes.as_ref()
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let lowered = self.slice.lower(program)?;
        dump_program(self.dump.as_deref(), program, &lowered)?;
        let (executable, _) = self.slice.compile(program, &lowered)?;
        let size_bytes = executable.code_size().unwrap_or(0).max(0) as u64;
        Ok(Box::new(ShapeProgram::new(program, size_bytes, None)))
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}

/// An engine that records programs without compiling or running them: the graph is the same for every slice.
struct RecordOnlyEngine {
    recorded: RecordedPrograms,
    axes: Option<MeshAxes>,
}

impl Engine for RecordOnlyEngine {
    fn describe(&self) -> String {
        "record only: programs are neither compiled nor run".into()
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer> {
        Ok(shape_only(ty, &bytes, sharding, self.axes.as_ref()))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        no_value("the device of a fit", buffer)
    }

    fn lowers(&self, _op: &Op) -> bool {
        true
    }

    fn takes_tpu_kernels(&self) -> bool {
        true
    }

    fn mesh(&self) -> Option<&MeshAxes> {
        self.axes.as_ref()
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        Ok(Box::new(ShapeProgram::new(program, 0, Some(self.recorded.clone()))))
    }

    fn recorded(&self) -> Option<&RecordedPrograms> {
        Some(&self.recorded)
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
            recorded.push(Arc::clone(&self.program));
        }
        let sharding = |i: usize| self.program.placement().and_then(|placement| placement.results.get(i)).cloned();
        let outputs = self.program.output_types().enumerate();
        execution.outputs = outputs
            .map(|(i, ty)| Arc::new(ShapeOnly { ty: ty.clone(), sharding: sharding(i), given: None }) as SharedBuffer)
            .collect();
        Ok(execution)
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

/// Returns an upload, without its data. On a mesh without a sharding, it is whole on every device.
fn shape_only(
    ty: &TensorType,
    bytes: &HostBytes,
    sharding: Option<&Sharding>,
    axes: Option<&MeshAxes>,
) -> SharedBuffer {
    let whole = || axes.map(|_| Sharding::replicated(ty.rank()));
    let mut hasher = FxHasher::default();
    bytes.as_ref().hash(&mut hasher);
    let sharding = sharding.cloned().or_else(whole);
    Arc::new(ShapeOnly { ty: ty.clone(), sharding, given: Some(hasher.finish()) })
}

fn no_value(device: &str, buffer: &SharedBuffer) -> Result<Vec<u8>> {
    let ShapeOnly { ty, .. } = downcast(buffer)?;
    Err(TpuError::NoValue { device: device.into(), ty: ty.to_string() })
}

/// Opens the engine of a topology device.
pub(crate) fn open_described(device: Device, options: &TpuOptions) -> Result<Arc<dyn Engine>> {
    match device.described() {
        Some(Described::Slice(topology, mesh)) => open(topology, mesh.as_ref(), options),
        Some(Described::Recording(recorded, mesh)) => {
            // Any number of devices will do for an axis without a size.
            let axes = mesh.map(|mesh| axes(&mesh, mesh.size().unwrap_or(1))).transpose()?;
            Ok(Arc::new(RecordOnlyEngine { recorded, axes }))
        }
        None => Err(TpuError::Topology {
            name: device.to_string(),
            rule: "was never registered; create the device with TpuDevice::topology".into(),
        }),
    }
}
