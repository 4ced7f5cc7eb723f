//! Engines: what compiles a program and runs it on a device's buffers.
//!
//! Owns: the [`Engine`] and [`Executable`] traits and the choice between engines. May not know: Burn's traits, traces.

mod clients;
#[cfg(feature = "ndarray")]
mod fallback;
#[cfg(feature = "ndarray")]
mod host;
mod host_nodes;
#[cfg(feature = "ndarray")]
mod ndarray;
mod pjrt;
mod topology;
#[cfg(not(feature = "ndarray"))]
mod without_ndarray;

pub(crate) use clients::{device_count, is_present, open as open_client};
#[cfg(feature = "ndarray")]
pub(crate) use fallback::compile;
#[cfg(feature = "testing")]
pub use host::interpret_program;
#[cfg(feature = "ndarray")]
pub(crate) use host::open_ndarray;
#[cfg(feature = "testing")]
pub use pjrt::CPU_COMPILER_FLAGS;
pub(crate) use pjrt::{dump_program, open};
pub(crate) use topology::{Draft, Slice, libtpu, open_described};
#[cfg(not(feature = "ndarray"))]
pub(crate) use without_ndarray::{compile, open_ndarray};

use crate::error::{Result, TpuError};
use burn_tpu_graph::{Op, Program, TensorType};
use std::any::Any;
use std::sync::Arc;

/// A tensor's value on a device, which may still be computed. Each engine has a type of its own for it.
pub(crate) trait DeviceBuffer: Any + Send + Sync {
    /// Returns whether a program has taken the buffer's memory, so that the value is gone.
    fn is_donated(&self) -> bool {
        false
    }

    /// Returns whether the value has been computed.
    #[cfg(feature = "testing")]
    fn is_computed(&self) -> bool {
        true
    }
}

/// A buffer with its owners: tensors, and traces that read it. A program may take the memory of one that has no other
/// owner.
pub(crate) type SharedBuffer = Arc<dyn DeviceBuffer>;

/// A value that a trace reads, or why there is none.
pub(crate) type Input = Result<SharedBuffer>;

/// Buffers by parameter index. A program takes those whose memory it takes, and leaves the others.
pub(crate) type Arguments = Vec<Option<SharedBuffer>>;

/// Something that runs programs on one device.
pub(crate) trait Engine: Send + Sync {
    /// The engine and its device, for people.
    fn describe(&self) -> String;

    /// Puts row-major little-endian bytes (a bool takes one) on the device.
    fn upload(&self, ty: &TensorType, bytes: Vec<u8>) -> Result<SharedBuffer>;

    /// Waits for a value and copies its row-major little-endian bytes to the host.
    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>>;

    /// Whether the engine has a lowering for the op.
    fn lowers(&self, op: &Op) -> bool;

    /// Makes a program ready to run.
    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>>;

    /// Waits until everything dispatched has finished.
    fn wait(&self) -> Result<()>;
}

/// A program of an engine.
pub(crate) trait Executable: Send + Sync {
    /// Dispatches the program without waiting for it. Arguments without another owner are donated: they are taken out of
    /// `arguments`.
    ///
    /// # Errors
    /// With every argument still in place, and not donated, if the program did not begin.
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution>;

    /// What the program takes in the cache.
    fn size_bytes(&self) -> u64;

    /// Whether an earlier process compiled it.
    fn is_from_disk(&self) -> bool {
        false
    }
}

/// The outcome of a dispatch.
#[derive(Default)]
pub(crate) struct Execution {
    /// The results, in the program's order.
    pub(crate) outputs: Vec<SharedBuffer>,
    /// Arguments given back to the device.
    pub(crate) donated_buffers: usize,
    /// Their size.
    pub(crate) donated_bytes: usize,
    /// What the program took.
    pub(crate) footprint: Footprint,
    /// Ops that ran on the host although the engine is another, one entry per run.
    pub(crate) host_ops: Vec<&'static str>,
}

/// Bytes of device memory that a run of a program takes, as its compiler planned them; zeros where none does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Footprint {
    pub(crate) arguments: usize,
    pub(crate) outputs: usize,
    /// Of the outputs, those in an argument's memory.
    pub(crate) aliases: usize,
    pub(crate) temporaries: usize,
}

/// The buffer of parameter `index`.
fn argument(arguments: &Arguments, index: u32) -> Result<&SharedBuffer> {
    let missing = || TpuError::Bug(format!("parameter {index} has no buffer"));
    arguments.get(index as usize).and_then(Option::as_ref).ok_or_else(missing)
}

/// Takes the buffer of parameter `index`.
fn take_argument(arguments: &mut Arguments, index: u32) -> Result<SharedBuffer> {
    let missing = || TpuError::Bug(format!("parameter {index} has no buffer"));
    arguments.get_mut(index as usize).and_then(Option::take).ok_or_else(missing)
}

/// A buffer as the type that an engine has for it.
fn downcast<T: DeviceBuffer>(buffer: &SharedBuffer) -> Result<&T> {
    let any: &dyn Any = &**buffer;
    any.downcast_ref().ok_or_else(wrong_engine)
}

fn wrong_engine() -> TpuError {
    TpuError::Bug("a buffer reached an engine that is not its own".into())
}
