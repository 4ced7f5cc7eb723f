//! Engines: they compile programs and run them on a device's buffers.
//!
//! Owns: the [`Engine`] and [`Executable`] traits and the choice between engines. May not know: Burn's traits, traces.

mod clients;
mod custom_calls;
mod deferred;
pub(crate) mod external;
mod fallback;
mod host;
mod host_nodes;
mod host_value;
mod pieces;
mod pjrt;
mod topology;
mod tuning;
mod undivided;

pub(crate) use burn_tpu_interpreter::HostTensor;
pub(crate) use clients::{device_count, is_present, open as open_client};
pub(crate) use external::open_xla_rs;
pub(crate) use fallback::compile;
#[cfg(feature = "testing")]
pub use host::interpret_program;
pub(crate) use host::{interpret_nodes, interpret_values, open_ndarray};
pub(crate) use host_value::{HostElements, HostValue, MOST_WAITING_BYTES, Maker};
pub(crate) use pieces::{InPieces, picked};
#[cfg(feature = "testing")]
pub use pjrt::CPU_COMPILER_FLAGS;
#[cfg(feature = "testing")]
pub(crate) use pjrt::replicas_agree;
pub(crate) use pjrt::{dump_program, open, open_mesh};
pub(crate) use topology::{Slice, libtpu, lower_for_tpu, open_described};
pub(crate) use undivided::OfUndivided;

use crate::activity::RunningProgram;
use crate::device::RecordedPrograms;
use crate::error::{Result, TpuError};
use crate::memory::{AllocationSite, PluginMemory};
use crate::region::{Part, Region};
use burn_tpu_graph::{Axis, Mesh, Op, Program, Sharding, TensorType};
use burn_tpu_pjrt::Plugin;
use std::any::Any;
use std::sync::Arc;

/// A tensor's value on a device, which may still be being computed. Each engine has its own type for it.
pub(crate) trait DeviceBuffer: Any + Send + Sync {
    /// Returns whether the buffer was donated to a program, so that its value is no longer available.
    fn is_donated(&self) -> bool {
        false
    }

    /// Returns how the value is split over a mesh; `None` for a value on one device.
    fn sharding(&self) -> Option<&Sharding> {
        None
    }

    /// Returns a hash of the bytes that were uploaded, if the device keeps none of them.
    fn given(&self) -> Option<u64> {
        None
    }

    /// Returns where the value is counted; `None` for a value that is not in a device's memory.
    fn site(&self) -> Option<&Arc<AllocationSite>> {
        None
    }

    /// Returns whether the value has been computed.
    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        true
    }
}

/// The elements of a value on the host: row-major, little-endian, one byte per bool. Clones share them.
#[derive(Clone)]
pub(crate) enum HostBytes {
    /// What burn-tpu made.
    Own(Arc<Vec<u8>>),
    /// What the user gave, in the memory of the front end's type.
    Given(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(Arc::new(bytes))
    }
}

impl AsRef<[u8]> for HostBytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Given(bytes) => (**bytes).as_ref(),
        }
    }
}

impl HostBytes {
    /// Returns the bytes that the user gave, which stay where they are.
    pub(crate) fn given(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::Given(Arc::new(bytes))
    }

    /// Returns the bytes, copied only if they are shared or the user's.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Own(bytes) => Arc::unwrap_or_clone(bytes),
            Self::Given(bytes) => (*bytes).as_ref().to_vec(),
        }
    }
}

/// A buffer that tensors and the traces that read it own together. A buffer with a single owner can be donated.
pub(crate) type SharedBuffer = Arc<dyn DeviceBuffer>;

/// A value that a trace reads, or the error that explains why there is none. It is as small as the buffer's address,
/// since every tensor has room for one.
pub(crate) type Input = std::result::Result<SharedBuffer, Arc<TpuError>>;

/// Buffers by parameter index. A program takes the buffers that it reuses and leaves the others in place.
pub(crate) type Arguments = Vec<Option<SharedBuffer>>;

/// An engine that compiles and runs programs on one device.
pub(crate) trait Engine: Send + Sync {
    /// Returns a description of the engine and its device for people.
    fn describe(&self) -> String;

    /// Opens what the engine would open when it is needed. Most are open from the start.
    fn open(&self) -> Result<()> {
        Ok(())
    }

    /// Copies a value to the device. On a mesh it is split as `sharding` says; without one, as the engine chooses.
    fn upload(&self, ty: &TensorType, bytes: HostBytes, sharding: Option<&Sharding>) -> Result<SharedBuffer>;

    /// Puts this process's rows of a batch on the devices that it has of a mesh, and returns the type of the whole
    /// batch; `None` if the rows are the batch, since there is no other process.
    fn upload_rows(&self, _ty: &TensorType, _bytes: HostBytes) -> Result<Option<(TensorType, SharedBuffer)>> {
        Ok(None)
    }

    /// Waits for a value and copies its row-major little-endian bytes to the host.
    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>>;

    /// Returns the parts of a value on a mesh of several processes, each once; `None` if this process has the whole
    /// value.
    fn parts(&self, _buffer: &SharedBuffer) -> Result<Option<Vec<Part>>> {
        Ok(None)
    }

    /// Waits for parts of a value that this process has, and copies them to the host. Other processes need not do the
    /// same.
    fn download_parts(&self, _buffer: &SharedBuffer, _regions: &[Region]) -> Result<Vec<Vec<u8>>> {
        Err(wrong_engine())
    }

    /// Returns the regions of a value, split so, that the devices of this process need.
    fn regions(&self, ty: &TensorType, _sharding: &Sharding) -> Vec<Region> {
        vec![Region::whole(&ty.dims)]
    }

    /// Copies a value to the device, of which the bytes of [`Engine::regions`] are given.
    fn upload_regions(
        &self,
        ty: &TensorType,
        sharding: &Sharding,
        regions: Vec<(Region, HostBytes)>,
    ) -> Result<SharedBuffer> {
        let whole = regions.into_iter().next().map(|(_, bytes)| bytes);
        let whole = whole.ok_or_else(|| TpuError::Bug(format!("no region of {ty} was given")))?;
        self.upload(ty, whole, Some(sharding))
    }

    /// Returns whether the engine has a lowering for the op.
    fn lowers(&self, op: &Op) -> bool;

    /// Compiles a program.
    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>>;

    /// Returns where a step is recorded whose figures are wanted; `None` where steps run.
    fn recorded(&self) -> Option<&RecordedPrograms> {
        None
    }

    /// Returns whether programs are compiled for TPUs, which take kernels.
    fn takes_tpu_kernels(&self) -> bool {
        false
    }

    /// Returns whether values have to be transferred, and programs compiled. Both take longer than the interpreter
    /// takes for a small program, so values stay on the host until a compiled program reads them.
    fn transfers_values(&self) -> bool {
        false
    }

    /// Returns whether programs can have values in the host's memory: the device reads it, or has no other.
    fn has_host_memory(&self) -> bool {
        true
    }

    /// Returns the axes of a mesh, whose programs need a placement; `None` for one device.
    fn mesh(&self) -> Option<&MeshAxes> {
        None
    }

    /// Returns one value per device of a mesh as one value of the mesh, whose dim 0 is split over the devices. Nothing
    /// is copied.
    fn join(&self, _whole: &TensorType, _parts: Vec<SharedBuffer>) -> Result<SharedBuffer> {
        Err(wrong_engine())
    }

    /// Returns each device's own copy of a value that is whole on every device of a mesh. Nothing is copied.
    fn take_apart(&self, _value: &SharedBuffer) -> Result<Vec<SharedBuffer>> {
        Err(wrong_engine())
    }

    /// Waits until a value has been computed. A failure is left to who reads the value.
    fn wait_for(&self, _buffer: &SharedBuffer) -> Result<()> {
        Ok(())
    }

    /// Returns what the plugin says of the memory, summed over the devices of this process; `None` if it says nothing.
    fn memory(&self) -> Option<PluginMemory> {
        None
    }

    /// Returns the plugin that runs the programs, if one does.
    fn plugin(&self) -> Option<Plugin> {
        None
    }

    /// Waits until everything dispatched has finished.
    fn wait(&self) -> Result<()>;

    /// Returns the dispatched programs that have not finished, oldest first; none if dispatching waits for the result.
    fn in_flight(&self) -> Vec<RunningProgram> {
        Vec::new()
    }
}

/// The axes of a mesh.
pub(crate) struct MeshAxes {
    pub(crate) mesh: Mesh,
    /// The axes that split batches.
    pub(crate) batch: Vec<Axis>,
}

/// A compiled program.
pub(crate) trait Executable: Send + Sync {
    /// Dispatches the program without waiting for it. Arguments without another owner are donated and removed from
    /// `arguments`.
    ///
    /// # Errors
    /// If the program did not start, all arguments are still in place and none is donated.
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution>;

    /// Returns the size of the program in the cache, in bytes.
    fn size_bytes(&self) -> u64;

    /// Returns whether an earlier process compiled the program.
    fn is_from_disk(&self) -> bool {
        false
    }
}

/// The outcome of a dispatch.
#[derive(Default)]
pub(crate) struct Execution {
    /// The results, in the program's order.
    pub(crate) outputs: Vec<SharedBuffer>,
    /// The number of arguments whose memory was donated.
    pub(crate) donated_buffers: usize,
    /// The size of the donated arguments in bytes.
    pub(crate) donated_bytes: usize,
    /// The memory that the program uses.
    pub(crate) footprint: Footprint,
    /// Ops that ran on the host although the engine runs on another device, one entry per run.
    pub(crate) host_ops: Vec<&'static str>,
    /// The number of pieces that ran, for a program that runs in pieces.
    pub(crate) pieces: usize,
}

impl Execution {
    /// Adds what a part of the program used. Its results are the caller's.
    fn add(&mut self, part: Execution) {
        self.donated_buffers += part.donated_buffers;
        self.donated_bytes += part.donated_bytes;
        self.footprint.arguments += part.footprint.arguments;
        self.footprint.outputs += part.footprint.outputs;
        self.footprint.aliases += part.footprint.aliases;
        self.footprint.temporaries += part.footprint.temporaries;
        self.host_ops.extend(part.host_ops);
    }
}

/// The device memory in bytes that one run of a program uses, as its compiler planned it. All fields are zero if the
/// compiler reports none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) arguments: usize,
    pub(crate) outputs: usize,
    /// The part of the outputs that is aliased to arguments.
    pub(crate) aliases: usize,
    pub(crate) temporaries: usize,
}

/// Returns the buffer of parameter `index`.
fn argument(arguments: &Arguments, index: u32) -> Result<&SharedBuffer> {
    let missing = || TpuError::Bug(format!("parameter {index} has no buffer"));
    arguments.get(index as usize).and_then(Option::as_ref).ok_or_else(missing)
}

/// Takes the buffer of parameter `index` out of the arguments.
fn take_argument(arguments: &mut Arguments, index: u32) -> Result<SharedBuffer> {
    let missing = || TpuError::Bug(format!("parameter {index} has no buffer"));
    arguments.get_mut(index as usize).and_then(Option::take).ok_or_else(missing)
}

/// Returns a buffer as the engine's own buffer type.
fn downcast<T: DeviceBuffer>(buffer: &SharedBuffer) -> Result<&T> {
    let any: &dyn Any = &**buffer;
    any.downcast_ref().ok_or_else(wrong_engine)
}

/// Returns a buffer, with its share of the ownership, as the engine's own buffer type.
fn downcast_arc<T: DeviceBuffer>(buffer: SharedBuffer) -> Result<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = buffer;
    any.downcast().map_err(|_| wrong_engine())
}

fn wrong_engine() -> TpuError {
    TpuError::Bug("a buffer was passed to an engine that did not create it".into())
}
