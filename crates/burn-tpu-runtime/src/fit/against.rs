//! The same step written elsewhere, such as in JAX: compiled for the same slices with the same libtpu, and compared.

use super::report::{FitReport, SliceFit};
use super::slice::Counts;
use crate::TpuOptions;
use crate::engine::Slice;
use crate::error::{Result, TpuError};
use burn_tpu_pjrt::{CompileOptions, HloCollective, Program, TensorSpec};
use std::fmt::{Display, Formatter};

/// The ratios of a step's figures to those of another program that computes the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Against {
    /// By slice, of those that the step fits.
    pub slices: Vec<Ratios>,
}

/// The figures of a step divided by those of another program, for one slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// The slice.
    pub topology: String,
    /// The bytes of arguments and temporaries.
    pub memory: f64,
    /// The bytes of temporaries.
    pub temporary: f64,
    /// The bytes accessed, as the compiler counts them.
    pub bytes_accessed: f64,
    /// The bytes moved to and from main memory, in loops as often as they run. Kernels read each operand once.
    pub main_memory: f64,
    /// The compiler's estimate, without the other program's own kernels, which it does not estimate.
    pub cycles: f64,
    /// The compiler's count, in which a loop's body counts once.
    pub flops: f64,
    /// The bytes that a device gives in exchanges, in loops as often as they run; `None` if there are none.
    pub collective_bytes: Option<f64>,
}

/// The figures of one compiled program.
struct Figures {
    argument: f64,
    temporary: f64,
    bytes_accessed: f64,
    main_memory: f64,
    cycles: f64,
    flops: f64,
    collective_bytes: f64,
}

impl FitReport {
    /// Compiles another program of the same step, StableHLO text that for a mesh is annotated for Shardy, for each slice
    /// that this step fits, and returns the ratios of this step's figures to that program's.
    ///
    /// # Errors
    /// [`TpuError::Unavailable`] without libtpu, [`TpuError::Pjrt`] for a program that it refuses.
    pub fn against(&self, stablehlo: String) -> Result<Against> {
        // The program is not run, so its parameter types are not needed.
        let program = Program::stablehlo(stablehlo, Vec::<TensorSpec>::new());
        let program = program.map_err(TpuError::pjrt("reading the other program"))?;
        let options = TpuOptions::default().with_environment()?;
        let mut slices = Vec::new();
        for slice in self.slices.iter().filter(|slice| slice.fits()) {
            let Some(ours) = Figures::of(slice) else { continue };
            let opened = Slice::open(slice.topology.parse()?, &options)?;
            let other = Figures::compiled(&program, &opened, slice.mesh.is_some())?;
            slices.push(ours.over(&other, &slice.topology));
        }
        Ok(Against { slices })
    }
}

impl Figures {
    fn of(slice: &SliceFit) -> Option<Self> {
        let speed = slice.speed?;
        let given = |bytes: u64, of: &super::Collective| bytes + of.operand_bytes;
        Some(Self {
            argument: slice.memory.argument_bytes as f64,
            temporary: slice.memory.temporary_bytes as f64,
            bytes_accessed: speed.bytes_accessed as f64,
            main_memory: speed.hbm_bytes as f64,
            cycles: speed.estimated_cycles.unwrap_or(0) as f64,
            flops: speed.compiled_flops as f64,
            collective_bytes: slice.collectives.iter().fold(0, given) as f64,
        })
    }

    fn compiled(program: &Program, slice: &Slice, is_split: bool) -> Result<Self> {
        let ids: Vec<i32> = slice.description.devices().iter().map(|device| device.id).collect();
        let options = match is_split {
            true => CompileOptions::default().partitions(ids.len()).shardy(true).device_assignment(vec![ids]),
            false => CompileOptions::default(),
        };
        let context = format!("compiling the other program for {}", slice.topology);
        let executable = slice.description.compile(program, &options).map_err(TpuError::pjrt(context))?;
        let Counts { memory, bytes_accessed, flops, hbm_bytes, module } = Counts::of(&executable, 0)?;
        let given = |bytes: u64, of: &HloCollective| bytes + of.runs * of.operand_bytes;
        Ok(Self {
            argument: memory.argument_bytes as f64,
            temporary: memory.temporary_bytes as f64,
            bytes_accessed: bytes_accessed as f64,
            main_memory: hbm_bytes as f64,
            cycles: module.cycles().unwrap_or(0) as f64,
            flops: flops as f64,
            collective_bytes: module.collectives.iter().fold(0, given) as f64,
        })
    }

    fn over(&self, other: &Self, topology: &str) -> Ratios {
        Ratios {
            topology: topology.to_owned(),
            memory: (self.argument + self.temporary) / (other.argument + other.temporary),
            temporary: self.temporary / other.temporary,
            bytes_accessed: self.bytes_accessed / other.bytes_accessed,
            main_memory: self.main_memory / other.main_memory,
            cycles: self.cycles / other.cycles,
            flops: self.flops / other.flops,
            collective_bytes: (other.collective_bytes > 0.0).then(|| self.collective_bytes / other.collective_bytes),
        }
    }
}

impl Display for Against {
    /// Writes a table with a line for each slice.
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "\n{:<13} {:>20} {:>9} {:>14}",
            "ours / theirs", "argument + temporary", "temporary", "bytes accessed"
        )?;
        writeln!(f, " {:>11} {:>8} {:>8} {:>16}", "main memory", "cycles", "FLOPs", "collective bytes")?;
        for slice in &self.slices {
            let Ratios { topology, memory, temporary, bytes_accessed, .. } = slice;
            write!(f, "{topology:<13} {memory:>20.3} {temporary:>9.3} {bytes_accessed:>14.3}")?;
            let collectives = slice.collective_bytes.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
            let Ratios { main_memory, cycles, flops, .. } = slice;
            writeln!(f, " {main_memory:>11.3} {cycles:>8.3} {flops:>8.3} {collectives:>16}")?;
        }
        Ok(())
    }
}
