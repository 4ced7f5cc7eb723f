//! The engine that another crate has: what it implements, how this crate gets it, and what the runtime does around it.
//!
//! Owns: the trait [`ExternalEngine`], and the [`Engine`] around it, which counts its values and checks its answers. May not
//! know: the crate that implements it, `burn-tpu-xla`.
//!
//! That crate depends on this one, so it cannot be opened by name from here. `burn-tpu` hands it over before the first
//! tensor, if its feature `xla-rs` is on.

use super::{Arguments, DeviceBuffer, Engine, Executable, Execution, Footprint, HostBytes, SharedBuffer};
use super::{argument, downcast};
use crate::Device;
use crate::error::{Result, TpuError};
use crate::memory::{AllocationSite, Ledger, LiveValue};
use crate::metrics::Counters;
use burn_tpu_graph::{Op, Program, Sharding, TensorType};
use std::sync::{Arc, OnceLock};

/// An engine that another crate has: it compiles programs and runs them on one device.
///
/// The runtime asks it only for programs whose ops it [lowers](ExternalEngine::lowers); the other nodes run on the host, and
/// are counted. Calls come from any thread, several at a time. Arguments are never donated: they are as they were after a
/// run.
pub trait ExternalEngine: Send + Sync + 'static {
    /// A value on the device, which may still be being computed.
    type Value: Send + Sync + 'static;

    /// A compiled program.
    type Program: Send + Sync + 'static;

    /// Returns a description of the engine and its device for people.
    fn describe(&self) -> String;

    /// Returns whether the engine can run the op, with every element type that it takes.
    fn lowers(&self, op: &Op) -> bool;

    /// Returns a copy of a value on the device. `bytes` are row-major and little-endian, one byte per bool.
    ///
    /// # Errors
    /// The engine's own; [`TpuError::Engine`] has room for its message.
    fn upload(&self, ty: &TensorType, bytes: &[u8]) -> Result<Self::Value>;

    /// Waits for a value and returns its bytes, in the order in which [`ExternalEngine::upload`] takes them.
    ///
    /// # Errors
    /// The engine's own, of this call or of the program that computes the value.
    fn download(&self, ty: &TensorType, value: &Self::Value) -> Result<Vec<u8>>;

    /// Compiles a program. It is canonical and verified.
    ///
    /// # Errors
    /// The engine's own.
    fn compile(&self, program: &Program) -> Result<Self::Program>;

    /// Runs a program and returns its results, in order. `arguments` are the values of [`Program::parameters`], in their
    /// order. `slots[i]` are the bits of slot `i`, in the low bytes.
    ///
    /// # Errors
    /// The engine's own. One that occurs after the call belongs to the results.
    fn run(&self, program: &Self::Program, arguments: &[&Self::Value], slots: &[u64]) -> Result<Vec<Self::Value>>;

    /// Returns the size of a program in the cache, in bytes, as far as it is known.
    fn size_bytes(&self, program: &Self::Program) -> u64;

    /// Waits until everything that was started has finished.
    ///
    /// # Errors
    /// The engine's own.
    fn wait(&self) -> Result<()>;
}

type Open = Box<dyn Fn(u16, &Arc<Counters>) -> Result<Arc<dyn Engine>> + Send + Sync>;

/// What opens a device of the platform `xla-rs`, once the program has it.
static XLA_RS: OnceLock<Open> = OnceLock::new();

/// Makes an engine that of the platform `xla-rs`; `open` opens the device of an index. Later calls change nothing.
#[doc(hidden)]
pub fn provide_xla_rs<E: ExternalEngine>(open: fn(u16) -> Result<E>) {
    let open: Open = Box::new(move |index, counters| {
        Ok(Arc::new(External { engine: Arc::new(open(index)?), memory: Arc::clone(&counters.memory) }))
    });
    XLA_RS.get_or_init(|| open);
}

/// Returns whether the program has the engine of the platform `xla-rs`.
pub(crate) fn has_xla_rs() -> bool {
    XLA_RS.get().is_some()
}

/// Opens a device of the platform `xla-rs`.
///
/// # Errors
/// [`TpuError::Unavailable`] if the program was built without its engine; those of the engine.
pub(crate) fn open_xla_rs(device: Device, counters: &Arc<Counters>) -> Result<Arc<dyn Engine>> {
    let Some(open) = XLA_RS.get() else {
        return Err(TpuError::Unavailable {
            device: device.to_string(),
            reason: "this program was built without its engine".into(),
            fix: "run `cargo xtask setup xla-rs`, set the variables that it prints, and build with the feature `xla-rs` of \
                  burn-tpu (docs/xla-rs.md)",
        });
    };
    open(device.index(), counters)
}

/// An engine of another crate, with what the runtime knows of its values.
struct External<E> {
    engine: Arc<E>,
    memory: Arc<Ledger>,
}

/// A value of an engine, counted until it is dropped.
struct ExternalValue<V> {
    value: V,
    ty: TensorType,
    live: LiveValue,
}

impl<V> ExternalValue<V> {
    fn new(value: V, ty: TensorType, site: &Arc<AllocationSite>) -> Self {
        let live = site.hold(|| ty.bytes() as u64);
        Self { value, ty, live }
    }
}

impl<V: Send + Sync + 'static> DeviceBuffer for ExternalValue<V> {
    fn site(&self) -> Option<&Arc<AllocationSite>> {
        Some(self.live.site())
    }
}

impl<E: ExternalEngine> Engine for External<E> {
    fn describe(&self) -> String {
        self.engine.describe()
    }

    fn upload(&self, ty: &TensorType, bytes: HostBytes, _: Option<&Sharding>) -> Result<SharedBuffer> {
        self.memory.check(&"a value from the host", ty.bytes() as u64).map_err(TpuError::OutOfMemory)?;
        let value = self.engine.upload(ty, bytes.as_ref())?;
        let site = self.memory.upload(ty.clone());
        Ok(Arc::new(ExternalValue::new(value, ty.clone(), &site)))
    }

    fn download(&self, buffer: &SharedBuffer) -> Result<Vec<u8>> {
        let value: &ExternalValue<E::Value> = downcast(buffer)?;
        let bytes = self.engine.download(&value.ty, &value.value)?;
        match bytes.len() == value.ty.bytes() {
            true => Ok(bytes),
            false => Err(wrong(format!("{} bytes for a value {}", bytes.len(), value.ty))),
        }
    }

    fn lowers(&self, op: &Op) -> bool {
        self.engine.lowers(op)
    }

    fn compile(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let ledger = &self.memory;
        let roles = program.roles(&program.results_in_place());
        let results = program.output_types().cloned().zip(roles);
        let results = results.map(|(ty, role)| (ty.clone(), ledger.result(ty, role))).collect();
        Ok(Box::new(ExternalProgram {
            program: self.engine.compile(program)?,
            engine: Arc::clone(&self.engine),
            parameters: program.parameters().map(|(index, ty)| (index, ty.bytes())).collect(),
            results,
            ledger: Arc::clone(ledger),
        }))
    }

    fn transfers_values(&self) -> bool {
        true
    }

    /// The crate `xla` has no way to place a value.
    fn has_host_memory(&self) -> bool {
        false
    }

    fn wait(&self) -> Result<()> {
        self.engine.wait()
    }
}

/// A compiled program.
struct ExternalProgram<E: ExternalEngine> {
    engine: Arc<E>,
    program: E::Program,
    /// The index and the size of each parameter, in the order of the arguments.
    parameters: Vec<(u32, usize)>,
    results: Vec<(TensorType, Arc<AllocationSite>)>,
    ledger: Arc<Ledger>,
}

impl<E: ExternalEngine> Executable for ExternalProgram<E> {
    fn execute(&self, arguments: &mut Arguments, slots: &[u64]) -> Result<Execution> {
        let values = self.parameters.iter().map(|&(index, _)| -> Result<&E::Value> {
            let value: &ExternalValue<E::Value> = downcast(argument(arguments, index)?)?;
            Ok(&value.value)
        });
        let footprint = Footprint {
            arguments: self.parameters.iter().map(|(_, bytes)| bytes).sum(),
            outputs: self.results.iter().map(|(ty, _)| ty.bytes()).sum(),
            ..Footprint::default()
        };
        self.ledger.check(&"the results of a program", footprint.outputs as u64).map_err(TpuError::OutOfMemory)?;
        let results = self.engine.run(&self.program, &values.collect::<Result<Vec<_>>>()?, slots)?;
        if results.len() != self.results.len() {
            return Err(wrong(format!("{} results of a program with {}", results.len(), self.results.len())));
        }
        let output = |(value, (ty, site)): (E::Value, &(TensorType, Arc<AllocationSite>))| -> SharedBuffer {
            Arc::new(ExternalValue::new(value, ty.clone(), site))
        };
        let outputs = results.into_iter().zip(&self.results).map(output).collect();
        self.ledger.ran(0);
        Ok(Execution { outputs, footprint, ..Execution::default() })
    }

    fn size_bytes(&self) -> u64 {
        self.engine.size_bytes(&self.program)
    }
}

fn wrong(answer: String) -> TpuError {
    TpuError::Bug(format!("an engine of another crate returned {answer}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{arithmetic, data};
    use crate::{Platform, TpuOptions};
    use burn_tpu_graph::DType;
    use burn_tpu_graph::op::{BinaryOp, UnaryOp};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Adds its arguments of one f32, and lowers nothing but that.
    #[derive(Default)]
    struct Adder;

    static RUNS: AtomicUsize = AtomicUsize::new(0);

    impl ExternalEngine for Adder {
        type Value = f32;
        type Program = usize;

        fn describe(&self) -> String {
            "an engine of a test".into()
        }

        fn lowers(&self, op: &Op) -> bool {
            matches!(op, Op::Parameter { .. } | Op::Binary(BinaryOp::Add))
        }

        fn upload(&self, _: &TensorType, bytes: &[u8]) -> Result<f32> {
            Ok(f32::from_le_bytes(bytes.try_into().expect("one element")))
        }

        fn download(&self, _: &TensorType, value: &f32) -> Result<Vec<u8>> {
            Ok(value.to_le_bytes().to_vec())
        }

        fn compile(&self, program: &Program) -> Result<usize> {
            Ok(program.outputs().len())
        }

        fn run(&self, outputs: &usize, arguments: &[&f32], _: &[u64]) -> Result<Vec<f32>> {
            RUNS.fetch_add(1, Relaxed);
            Ok(vec![arguments.iter().copied().sum(); *outputs])
        }

        fn size_bytes(&self, _: &usize) -> u64 {
            8
        }

        fn wait(&self) -> Result<()> {
            Ok(())
        }
    }

    fn options() -> TpuOptions {
        TpuOptions::default().interpret_from(0)
    }

    /// One test, since the engine is the process's.
    #[test]
    fn the_engine_runs_what_it_lowers_and_the_host_runs_the_rest() {
        let counters = Arc::<Counters>::default();
        let device = Device::xla_rs(0);
        let missing = open_xla_rs(device, &counters).err().unwrap();
        assert!(matches!(&missing, TpuError::Unavailable { .. }) && missing.to_string().contains("feature `xla-rs`"));
        assert_eq!(Platform::XlaRs.device_count(), 0);
        provide_xla_rs(|_| Ok(Adder));
        assert_eq!(Platform::XlaRs.device_count(), 1);

        options().install(&device).unwrap();
        let ty = TensorType::new(DType::F32, [1]);
        let value = |x: f32| data::from_bytes("x", ty.clone(), x.to_le_bytes().to_vec(), &device);
        let sum = arithmetic::binary("add", BinaryOp::Add, value(1.0), value(2.5));
        assert_eq!(data::into_bytes(&sum).unwrap(), 3.5f32.to_le_bytes());
        assert_eq!((RUNS.load(Relaxed), device.metrics().host_fallbacks), (1, 0));
        assert_eq!(device.memory().live.tensors(), 4, "its values are counted");
        let negated = arithmetic::unary("neg", UnaryOp::Neg, sum);
        assert_eq!(data::into_bytes(&negated).unwrap(), (-3.5f32).to_le_bytes());
    }
}
