//! The same decode step written in JAX, exported by `benches/jax/gpt_decode.py` and run on a separate client, in turns
//! with ours. Each step is finished, and its tokens are on the host, before the other one's begins.

use crate::generate::Writer;
use crate::timing::median;
use anyhow::{Context, Result, ensure};
use burn_tpu::TpuFloat;
use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, ExecuteOptions, LoadedExecutable, Plugin, PluginKind, Program,
    TensorSpec, discovery,
};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// JAX's program. Its arguments are the state, which is donated, and the weights; its results are the state. The first
/// part of the state is the tokens.
pub struct JaxDecoder {
    program: LoadedExecutable,
    state: Vec<Buffer>,
    weights: Vec<Buffer>,
}

/// The medians of both.
pub struct Comparison {
    ours_ms: f64,
    jax_ms: f64,
    steps: usize,
}

impl JaxDecoder {
    /// Compiles `decode-BATCH.step.mlir` of a folder and creates state and weights with `decode-BATCH.start.mlir`.
    pub fn load(folder: &Path, batch: usize) -> Result<Self> {
        let read = |part: &str| {
            let path = folder.join(format!("decode-{batch}.{part}.mlir"));
            std::fs::read_to_string(&path)
                .with_context(|| format!("`{}`: see benches/jax/gpt_decode.py", path.display()))
        };
        let plugin = Plugin::load(&discovery::find(PluginKind::Cpu, None)?.path)?;
        let client = Client::new(plugin, &ClientOptions::cpu(1)?)?;
        let options = CompileOptions::default();
        let start = client.compile(&Program::stablehlo(read("start")?, Vec::<TensorSpec>::new())?, &options)?;
        let mut state = start.execute(&[&[]], &ExecuteOptions::default())?.outputs.remove(0);
        let specs: Vec<_> = state.iter().map(|buffer| Arc::clone(buffer.spec())).collect();
        let program = client.compile(&Program::stablehlo(read("step")?, specs)?, &options)?;
        let parts = program.executable().outputs().len();
        ensure!(parts < state.len(), "`decode-{batch}.step.mlir` has no weights");
        let weights = state.split_off(parts);
        Ok(Self { program, state, weights })
    }

    /// Runs a step and reads its tokens.
    fn step(&mut self) -> Result<()> {
        let inputs: Vec<&Buffer> = self.state.iter().chain(&self.weights).collect();
        let kept: Vec<i64> = (self.state.len()..inputs.len()).map(|position| position as i64).collect();
        let options = ExecuteOptions { non_donatable: &kept, ..ExecuteOptions::default() };
        let next = self.program.execute(&[&inputs], &options)?.outputs.remove(0);
        next[0].to_host()?;
        self.state = next;
        Ok(())
    }
}

/// Decodes in turns with JAX.
pub fn compare<F: TpuFloat>(
    writer: &Writer<F>,
    prompts: &[Vec<u32>],
    steps: usize,
    mut jax: JaxDecoder,
) -> Result<Comparison> {
    let mut state = writer.prefill(prompts)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let begun = Instant::now();
        state = writer.decode(state)?;
        state.1.clone().try_into_data()?;
        ours.push(1e3 * begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        jax.step()?;
        theirs.push(1e3 * begun.elapsed().as_secs_f64());
    }
    Ok(Comparison { ours_ms: median(ours), jax_ms: median(theirs), steps })
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours_ms, jax_ms, steps } = self;
        let ratio = ours_ms / jax_ms;
        write!(f, "in turns     {ours_ms:.3} ms, JAX {jax_ms:.3} ms each: {ratio:.3} ({steps} steps, medians)")
    }
}
