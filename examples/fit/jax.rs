//! The same step written in JAX, exported by `benches/jax/step_time.py export` and compiled with the same libtpu.

use anyhow::{Context, Result};
use burn_tpu::Topology;
use burn_tpu::fit::{FitReport, SliceFit};
use burn_tpu_pjrt::{
    CompileOptions, HloModule, Plugin, PluginKind, Program, TensorSpec, TopologyDescription, Value, discovery,
};
use std::path::Path;

/// The compiler's statistics of a program.
struct Cost {
    argument_bytes: f64,
    temporary_bytes: f64,
    bytes_accessed: f64,
    /// The bytes moved to and from main memory, in loops as often as they run. Kernels read each operand once.
    main_memory_bytes: f64,
    /// The compiler's estimate, without JAX's own kernels, which it does not estimate.
    cycles: f64,
    flops: f64,
    /// The bytes that a device gives in exchanges with others.
    collective_bytes: f64,
}

/// Prints a table of the ratios of our step to JAX's, for the slices that our step fits.
pub fn compare(report: &FitReport, folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(format!("{name}.step.mlir"));
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: `benches/jax/step_time.py export` writes it", path.display()))?;
    // The program is not run, so its parameter types are not needed.
    let program = Program::stablehlo(text, Vec::<TensorSpec>::new())?;
    let libtpu = Plugin::load(discovery::find(PluginKind::Tpu, None)?.path)?;
    println!(
        "\n{:<12} {:>20} {:>11} {:>14} {:>11} {:>8} {:>5} {:>16}",
        "ours / JAX's",
        "argument + temporary",
        "temporary",
        "bytes accessed",
        "main memory",
        "cycles",
        "FLOPs",
        "collective bytes"
    );
    for slice in report.slices.iter().filter(|slice| slice.fits()) {
        let jax = Cost::of(&program, libtpu, slice)?;
        let Some(ours) = Cost::ours(slice) else { continue };
        let memory = |cost: &Cost| cost.argument_bytes + cost.temporary_bytes;
        println!(
            "{:<12} {:>20.3} {:>11.3} {:>14.3} {:>11.3} {:>8.3} {:>5.3} {:>16}",
            slice.topology,
            memory(&ours) / memory(&jax),
            ours.temporary_bytes / jax.temporary_bytes,
            ours.bytes_accessed / jax.bytes_accessed,
            ours.main_memory_bytes / jax.main_memory_bytes,
            ours.cycles / jax.cycles,
            ours.flops / jax.flops,
            match jax.collective_bytes {
                0.0 => "-".into(),
                bytes => format!("{:.3}", ours.collective_bytes / bytes),
            }
        );
    }
    Ok(())
}

impl Cost {
    fn of(program: &Program, libtpu: Plugin, slice: &SliceFit) -> Result<Self> {
        let topology: Topology = slice.topology.parse()?;
        let several = [("num_slices", Value::Int(topology.slices() as i64))];
        let options = if topology.slices() > 1 { &several[..] } else { &[] };
        let topology = TopologyDescription::new(libtpu, &topology.slice().to_string(), options)?;
        let ids: Vec<i32> = topology.devices().iter().map(|device| device.id).collect();
        let options = match slice.mesh {
            Some(_) => CompileOptions::default().partitions(ids.len()).shardy(true).device_assignment(vec![ids]),
            None => CompileOptions::default(),
        };
        let executable = topology.compile(program, &options)?;
        let memory = executable.memory_stats()?;
        let costs = executable.cost_analysis()?;
        let figure = |name: &str| match costs.get(name) {
            Some(Value::Float(figure)) => Ok(f64::from(*figure)),
            _ => anyhow::bail!("the compiler does not report {name}"),
        };
        let module = HloModule::parse(&executable.optimized_program()?.code)?;
        let accessed = figure("bytes accessed")?;
        Ok(Self {
            argument_bytes: memory.argument_bytes as f64,
            temporary_bytes: memory.temporary_bytes as f64,
            bytes_accessed: accessed,
            main_memory_bytes: module.main_memory_bytes(Some(accessed as u64)) as f64,
            cycles: module.cycles().unwrap_or(0) as f64,
            flops: figure("flops")?,
            collective_bytes: module.collectives.iter().map(|collective| collective.operand_bytes).sum::<u64>() as f64,
        })
    }

    fn ours(slice: &SliceFit) -> Option<Self> {
        let speed = slice.speed?;
        Some(Self {
            argument_bytes: slice.memory.argument_bytes as f64,
            temporary_bytes: slice.memory.temporary_bytes as f64,
            bytes_accessed: speed.bytes_accessed as f64,
            main_memory_bytes: speed.hbm_bytes as f64,
            cycles: speed.estimated_cycles.unwrap_or(0) as f64,
            flops: speed.compiled_flops as f64,
            collective_bytes: slice.collectives.iter().map(|collective| collective.operand_bytes).sum::<u64>() as f64,
        })
    }
}
