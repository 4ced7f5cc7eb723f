//! The engine: uploads, compiles, runs and reads with the client of the crate `xla`.
//!
//! What the crate cannot do is decided here. A program always runs on the client's first device, so there is one device.
//! Arguments are not donated: an alias of the builder donates them in every run, and a caller may keep one. `execute` of
//! literals leaks its inputs, and reads at an offset are wrong, so only `execute_b` and whole reads are used. A read returns
//! elements in the device's order, which the crate does not tell; on any device but the CPU, a value is made one-dimensional
//! before it is read.

use crate::client::client;
use crate::lower::{SlotUpload, lower};
use crate::support;
use crate::types::{ENGINE, element, failed, i64s};
use burn_tpu_runtime::graph::{Op, Program, TensorType};
use burn_tpu_runtime::{ExternalEngine, Result, TpuError};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use xla::{PjRtBuffer, PjRtClient, PjRtLoadedExecutable, XlaBuilder};

/// The engine of the platform `xla-rs`.
pub struct XlaRsEngine {
    client: PjRtClient,
    /// Whether runs return before they have finished; those of the CPU client do not.
    is_asynchronous: bool,
    /// The smallest result of the last run, on a device that runs programs in order.
    last: Mutex<Option<XlaRsValue>>,
    /// The programs that make values of a type one-dimensional.
    flattened: Mutex<HashMap<TensorType, Arc<PjRtLoadedExecutable>>>,
}

/// A value on the device.
#[derive(Clone)]
pub struct XlaRsValue(Arc<PjRtBuffer>);

/// A compiled program.
pub struct XlaRsProgram {
    executable: PjRtLoadedExecutable,
    slots: Vec<SlotUpload>,
    /// The place of the smallest result.
    smallest: Option<usize>,
    size_bytes: u64,
}

impl XlaRsEngine {
    /// Opens a device of the process's client: `BURN_TPU_XLA_RS_CLIENT` names it, and the CPU client is the default.
    ///
    /// # Errors
    /// [`TpuError::Unavailable`] for another index than 0; those of the client.
    pub fn open(index: u16) -> Result<Self> {
        if index != 0 {
            return Err(TpuError::Unavailable {
                device: format!("{ENGINE}:{index}"),
                reason: "the crate xla runs every program on its client's first device".into(),
                fix: "use TpuDevice::xla_rs(0)",
            });
        }
        let client = client()?;
        let is_asynchronous = client.platform_name() != "cpu";
        Ok(Self { client, is_asynchronous, last: Mutex::default(), flattened: Mutex::default() })
    }

    /// Returns the elements of a value in row-major order, as one dim.
    fn flatten(&self, ty: &TensorType, value: &XlaRsValue) -> std::result::Result<PjRtBuffer, xla::Error> {
        let mut programs = self.flattened.lock().unwrap_or_else(PoisonError::into_inner);
        let program = match programs.get(ty) {
            Some(program) => Arc::clone(program),
            None => {
                let builder = XlaBuilder::new("flatten");
                let x = builder.parameter(0, element(ty.dtype), &i64s(&ty.dims), "x")?;
                let flat = x.reshape(&[ty.elements() as i64])?;
                let program = Arc::new(self.client.compile(&builder.build(&flat)?)?);
                programs.insert(ty.clone(), Arc::clone(&program));
                program
            }
        };
        drop(programs);
        let mut results = program.execute_b(&[&*value.0])?.into_iter().flatten();
        results.next().ok_or(xla::Error::EmptyLiteral)
    }

    /// Returns the bytes of a value. `is_row_major` says that the device keeps it so.
    fn read(&self, ty: &TensorType, value: &XlaRsValue, is_row_major: bool) -> Result<Vec<u8>> {
        let mut bytes = vec![0; ty.bytes()];
        let literal = match is_row_major || ty.rank() < 2 {
            true => value.0.to_literal_sync(),
            false => self.flatten(ty, value).and_then(|flat| flat.to_literal_sync()),
        };
        let read = literal.and_then(|literal| literal.copy_untyped_to(&mut bytes));
        read.map_err(failed(format!("reading {ty}")))?;
        Ok(bytes)
    }

    /// Returns the buffers of a run's slots.
    fn pack(&self, uploads: &[SlotUpload], slots: &[u64]) -> Result<Vec<PjRtBuffer>> {
        let upload = |upload: &SlotUpload| {
            let bytes = upload.bytes(slots)?;
            let (ty, dims) = (element(upload.dtype), [upload.slots.len()]);
            let buffer = self.client.buffer_from_host_raw_bytes(ty, &bytes, &dims, None);
            buffer.map_err(failed("uploading scalars"))
        };
        uploads.iter().map(upload).collect()
    }
}

impl ExternalEngine for XlaRsEngine {
    type Value = XlaRsValue;
    type Program = XlaRsProgram;

    fn describe(&self) -> String {
        format!("{} {} (crate xla)", self.client.platform_name(), self.client.platform_version())
    }

    fn lowers(&self, op: &Op) -> bool {
        support::of(op.mnemonic()).is_some()
    }

    fn upload(&self, ty: &TensorType, bytes: &[u8]) -> Result<XlaRsValue> {
        let buffer = self.client.buffer_from_host_raw_bytes(element(ty.dtype), bytes, &ty.dims, None);
        buffer.map(|buffer| XlaRsValue(Arc::new(buffer))).map_err(failed(format!("uploading {ty}")))
    }

    fn download(&self, ty: &TensorType, value: &XlaRsValue) -> Result<Vec<u8>> {
        self.read(ty, value, !self.is_asynchronous)
    }

    fn compile(&self, program: &Program) -> Result<XlaRsProgram> {
        let lowered = lower(program)?;
        let executable = self.client.compile(&lowered.computation);
        let outputs = program.output_types().map(TensorType::bytes).enumerate();
        Ok(XlaRsProgram {
            executable: executable.map_err(failed("compiling a program"))?,
            slots: lowered.slots,
            smallest: outputs.min_by_key(|&(_, bytes)| bytes).map(|(place, _)| place),
            // The crate does not say how large the code is.
            size_bytes: 1024 * program.graph().len() as u64,
        })
    }

    fn run(&self, program: &XlaRsProgram, arguments: &[&XlaRsValue], slots: &[u64]) -> Result<Vec<XlaRsValue>> {
        let packed = self.pack(&program.slots, slots)?;
        let inputs: Vec<&PjRtBuffer> = arguments.iter().map(|value| &*value.0).chain(&packed).collect();
        let mut results = program.executable.execute_b(&inputs).map_err(failed("running a program"))?;
        let results: Vec<XlaRsValue> =
            results.pop().unwrap_or_default().into_iter().map(Arc::new).map(XlaRsValue).collect();
        if self.is_asynchronous {
            let smallest = program.smallest.and_then(|place| results.get(place)).cloned();
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = smallest;
        }
        Ok(results)
    }

    fn size_bytes(&self, program: &XlaRsProgram) -> u64 {
        program.size_bytes
    }

    /// The crate has no events: a read waits for the program that computes the value, and so for those before it.
    fn wait(&self) -> Result<()> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).take();
        last.map_or(Ok(()), |last| last.0.to_literal_sync().map(drop).map_err(failed("waiting for a program")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_tpu_runtime::graph::op::BinaryOp;
    use burn_tpu_runtime::graph::{Builder, DType, Graph};

    fn ty() -> TensorType {
        TensorType::new(DType::I32, [2, 3])
    }

    fn bytes() -> Vec<u8> {
        (0i32..6).flat_map(i32::to_le_bytes).collect()
    }

    /// `x + slot`, twice: a result is one of two.
    fn program() -> Program {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: ty() }, &[]).unwrap();
        let slot = graph.add(Op::Slot { index: 1, dtype: DType::I32 }, &[]).unwrap();
        let slot = graph.broadcast_to(slot, &[2, 3]).unwrap();
        let sum = graph.binary(BinaryOp::Add, x, slot).unwrap();
        Program::extract(&graph, &[sum, x]).unwrap()
    }

    #[test]
    fn arguments_are_as_they_were_after_a_run() {
        let engine = XlaRsEngine::open(0).unwrap();
        let (x, program) = (engine.upload(&ty(), &bytes()).unwrap(), engine.compile(&program()).unwrap());
        for slot in [0u64, 7] {
            let results = engine.run(&program, &[&x], &[99, slot]).unwrap();
            let expected: Vec<u8> = (0i32..6).flat_map(|i| (i + slot as i32).to_le_bytes()).collect();
            assert_eq!(engine.download(&ty(), &results[0]).unwrap(), expected);
            assert_eq!(engine.download(&ty(), &results[1]).unwrap(), bytes());
        }
        engine.wait().unwrap();
    }

    #[test]
    fn a_value_is_read_in_row_major_order_by_way_of_one_dim() {
        let engine = XlaRsEngine::open(0).unwrap();
        let x = engine.upload(&ty(), &bytes()).unwrap();
        assert_eq!(engine.read(&ty(), &x, false).unwrap(), bytes());
        assert_eq!(engine.read(&ty(), &x, false).unwrap(), bytes());
        assert_eq!(engine.flattened.lock().unwrap().len(), 1);
    }

    #[test]
    fn there_is_one_device() {
        assert!(matches!(XlaRsEngine::open(1).err(), Some(TpuError::Unavailable { .. })));
    }

    #[test]
    fn a_wrong_number_of_bytes_is_an_error_of_the_engine() {
        let error = XlaRsEngine::open(0).unwrap().upload(&ty(), &[0; 3]).err().unwrap();
        assert!(
            matches!(&error, TpuError::Engine { .. }) && error.to_string().starts_with("xla-rs: uploading"),
            "{error}"
        );
    }
}
