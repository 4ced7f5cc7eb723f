//! The same training step written in JAX, exported by `benches/jax/step_time.py export` and run on a separate client.

use anyhow::{Context, Result, ensure};
use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, Event, ExecuteOptions, LoadedExecutable, Plugin, PluginKind,
    Program, TensorSpec, discovery,
};
use std::path::Path;
use std::sync::Arc;

/// JAX's program and the state that it trains. The arguments are the state, the rate, the inputs and the targets; the
/// results are the state (which is donated) and the loss.
pub struct JaxStep {
    program: LoadedExecutable,
    state: Vec<Buffer>,
    rest: Vec<Buffer>,
    /// The running steps, each with the state that was passed to it: dropping a donated buffer before its program has
    /// run would wait for the program.
    running: Vec<(Vec<Event>, Vec<Buffer>)>,
    /// Bytes of arguments, results and temporaries, without results that use an argument's memory.
    pub memory_bytes: u64,
}

impl JaxStep {
    /// Compiles `NAME.step.mlir` of a folder and creates the state with `NAME.start.mlir`.
    pub fn load(folder: &Path, name: &str) -> Result<Self> {
        let read = |part: &str| {
            let path = folder.join(format!("{name}.{part}.mlir"));
            std::fs::read_to_string(&path)
                .with_context(|| format!("`{}`: see benches/jax/step_time.py", path.display()))
        };
        let plugin = Plugin::load(&discovery::find(PluginKind::Cpu, None)?.path)?;
        let client = Client::new(plugin, &ClientOptions::cpu(1)?)?;
        let options = CompileOptions::default();
        let start = client.compile(&Program::stablehlo(read("start")?, Vec::<TensorSpec>::new())?, &options)?;
        let mut state = start.execute_single(&[], &ExecuteOptions::default())?;
        let batch = state.split_off(state.len() - 2);
        let device = client.device(0)?;
        let scalar = Arc::new(TensorSpec::new(burn_tpu_pjrt::ElementType::F32, [])?);
        let mut rest = vec![Buffer::from_host(&device, scalar, &1e-3f32.to_le_bytes())?];
        rest.extend(batch);
        let specs: Vec<_> = state.iter().chain(&rest).map(|buffer| Arc::clone(buffer.spec())).collect();
        let program = client.compile(&Program::stablehlo(read("step")?, specs)?, &options)?;
        ensure!(
            program.executable().outputs().len() == state.len() + 1,
            "`{name}.step.mlir` does not return the state and a loss"
        );
        let memory = program.executable().memory_stats()?;
        let memory = memory.argument_bytes + memory.output_bytes + memory.temporary_bytes - memory.alias_bytes;
        let mut jax = Self { program, state, rest, running: Vec::new(), memory_bytes: memory as u64 };
        // As in our step, the first steps are not timed.
        (0..5).try_for_each(|_| jax.step())?;
        jax.finish()?;
        Ok(jax)
    }

    /// Dispatches one step.
    pub fn step(&mut self) -> Result<()> {
        let state = std::mem::take(&mut self.state);
        let inputs: Vec<&Buffer> = state.iter().chain(&self.rest).collect();
        let kept: Vec<i64> = (state.len()..inputs.len()).map(|position| position as i64).collect();
        let options = ExecuteOptions { non_donatable: &kept, events: true, ..ExecuteOptions::default() };
        let mut done = self.program.execute(&[&inputs], &options)?;
        self.running.push((done.events, state));
        self.state = done.outputs.pop().unwrap_or_default();
        self.state.pop().context("the step returns no loss")?;
        Ok(())
    }

    /// Waits until all steps have run.
    pub fn finish(&mut self) -> Result<()> {
        let events = self.running.iter().flat_map(|(events, _)| events);
        events.map(|event| event.wait()).collect::<Result<Vec<()>, _>>()?;
        self.running.clear();
        Ok(())
    }
}
