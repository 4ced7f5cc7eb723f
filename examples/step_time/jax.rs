//! The same training step written in JAX, exported by `benches/jax/step_time.py export` and run on a separate client.

use anyhow::{Context, Result, bail, ensure};
use burn_tpu::Platform;
use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, Event, ExecuteOptions, LoadedExecutable, Plugin, PluginKind,
    Program, TensorSpec, discovery,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// The number of steps on several devices that run at a time.
const MOST_IN_FLIGHT: usize = 8;
/// The fraction of a GPU's memory that JAX's client may take. Ours takes 0.75 in advance.
const GPU_MEMORY: f32 = 0.15;

/// JAX's program and the state that it trains, on one device or on a mesh. The arguments are the state, the rate, the inputs and the targets; the
/// results are the state (which is donated) and the loss.
pub struct JaxStep {
    program: LoadedExecutable,
    /// The state of each device.
    state: Vec<Vec<Buffer>>,
    /// The other arguments of each device.
    rest: Vec<Vec<Buffer>>,
    /// The running steps, each with the state that was passed to it: dropping a donated buffer before its program has
    /// run would wait for the program.
    running: VecDeque<(Vec<Event>, Vec<Vec<Buffer>>)>,
    /// Bytes of arguments, results and temporaries, without results that use an argument's memory.
    pub memory_bytes: u64,
}

impl JaxStep {
    /// Compiles `NAME.step.mlir` of a folder for a number of devices of a platform and creates the state with
    /// `NAME.start.mlir`.
    pub fn load(folder: &Path, name: &str, platform: Platform, devices: usize) -> Result<Self> {
        let read = |part: &str| {
            let path = folder.join(format!("{name}.{part}.mlir"));
            std::fs::read_to_string(&path)
                .with_context(|| format!("`{}`: see benches/jax/step_time.py", path.display()))
        };
        let (client, options) = client(platform, devices)?;
        let options = if devices == 1 { options } else { options.partitions(devices).shardy(true) };
        let start = client.compile(&Program::stablehlo(read("start")?, Vec::<TensorSpec>::new())?, &options)?;
        let mut state = start.execute(&vec![&[][..]; devices], &ExecuteOptions::default())?.outputs;
        let scalar = Arc::new(TensorSpec::new(burn_tpu_pjrt::ElementType::F32, [])?);
        let rest = state.iter_mut().enumerate().map(|(index, state)| {
            let rate = Buffer::from_host(&client.device(index)?, Arc::clone(&scalar), &1e-3f32.to_le_bytes())?;
            Ok([rate].into_iter().chain(state.split_off(state.len() - 2)).collect())
        });
        let rest: Vec<Vec<Buffer>> = rest.collect::<Result<_>>()?;
        let specs: Vec<_> = state[0].iter().chain(&rest[0]).map(|buffer| Arc::clone(buffer.spec())).collect();
        let program = client.compile(&Program::stablehlo(read("step")?, specs)?, &options)?;
        ensure!(
            program.executable().outputs().len() == state[0].len() + 1,
            "`{name}.step.mlir` does not return the state and a loss"
        );
        let memory = program.executable().memory_stats()?;
        let memory = memory.argument_bytes + memory.output_bytes + memory.temporary_bytes - memory.alias_bytes;
        let mut jax = Self { program, state, rest, running: VecDeque::new(), memory_bytes: memory as u64 };
        // As in our step, the first steps are not timed.
        (0..5).try_for_each(|_| jax.step())?;
        jax.finish()?;
        Ok(jax)
    }

    /// Dispatches one step.
    pub fn step(&mut self) -> Result<()> {
        let state = std::mem::take(&mut self.state);
        let inputs: Vec<Vec<&Buffer>> =
            state.iter().zip(&self.rest).map(|(s, r)| s.iter().chain(r).collect()).collect();
        let inputs: Vec<&[&Buffer]> = inputs.iter().map(Vec::as_slice).collect();
        let kept: Vec<i64> = (state[0].len()..inputs[0].len()).map(|position| position as i64).collect();
        let options = ExecuteOptions { non_donatable: &kept, events: true, ..ExecuteOptions::default() };
        let done = self.program.execute(&inputs, &options)?;
        self.running.push_back((done.events, state));
        self.state = done.outputs;
        self.state.iter_mut().try_for_each(|state| state.pop().map(drop).context("the step returns no loss"))?;
        // The CPU plugin hangs when many launches on several devices are in flight; ours waits at the same number.
        if self.state.len() > 1 && self.running.len() >= MOST_IN_FLIGHT {
            let (events, _state) = self.running.pop_front().context("no step is running")?;
            events.iter().map(Event::wait).collect::<Result<Vec<()>, _>>()?;
        }
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

/// Returns a client of JAX's own, and how it compiles.
fn client(platform: Platform, devices: usize) -> Result<(Client, CompileOptions)> {
    let (kind, client_options, options) = match platform {
        // With XNNPACK, a product of a weight that is updated in place reads its first value: a faster, but another step.
        Platform::Cpu => {
            let options = CompileOptions::default().set("xla_cpu_use_xnnpack", false);
            (PluginKind::Cpu, ClientOptions::cpu(devices)?, options)
        }
        Platform::Cuda => (PluginKind::Cuda, ClientOptions::cuda_memory(GPU_MEMORY, false)?, CompileOptions::default()),
        other => bail!("--against runs on cpu and cuda, not on {}: a TPU serves one client", other.name()),
    };
    Ok((Client::new(Plugin::load(&discovery::find(kind, None)?.path)?, &client_options)?, options))
}
