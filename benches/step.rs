//! The host cost of a training step, part by part: `cargo bench --bench step`, or `-- record` for one part.
//!
//! | part | one iteration |
//! |---|---|
//! | record | one op of a GPT training step: shape inference, structural hash, creating and dropping the tensor |
//! | key | finding a GPT's training step among the programs in memory |
//! | dispatch | dispatching that program |
//! | call N | a call of a compiled function with N arguments and N results |
//! | plugin N | the plugin's part of that call: the same program on its own API, without burn-tpu |
//! | call step | a compiled GPT training step |
//! | lower, compile cold, compile from disk | an MLP's training step |
//! | transfer | 4 KiB and 4 MiB, up and down |
//!
//! Parts that are not a single call are timed through `metrics(&device)`.

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::optim::Optimizer;
use burn::prelude::*;
use burn_tpu::{DeviceAdamW, Metrics, Tpu, TpuDevice, TpuOptions, compile, compile_step, mark_step, metrics};
use burn_tpu_pjrt::{
    Buffer, Client, ClientOptions, CompileOptions, ElementType, ExecuteOptions, Plugin, PluginKind, Program,
    TensorSpec, discovery,
};
use burn_tpu_workspace::models::{Gpt, GptConfig, Images, Mlp, Supervised, Tokens, adam, adamw, train_step};
use criterion::{BatchSize, Criterion};
use std::fmt::Write;
use std::ops::Sub;
use std::sync::Arc;
use std::time::{Duration, Instant};

type A = Autodiff<Tpu<f32>>;

/// Reads a timer of the metrics.
type Timer = fn(&Metrics) -> Duration;

/// A training step that can be repeated.
struct Step {
    device: TpuDevice,
    run: Box<dyn FnMut()>,
}

impl Step {
    fn new<M, O>(device: TpuDevice, model: M, mut optimizer: O, batch: M::Batch) -> Self
    where
        M: Supervised<A> + AutodiffModule<A> + 'static,
        O: Optimizer<M, A> + 'static,
        M::Batch: 'static,
    {
        let mut model = Some(model);
        let run = move || {
            let (trained, loss) = train_step(model.take().expect("a model"), &mut optimizer, 1e-3, batch.clone());
            model = Some(trained);
            mark_step(&device);
            drop(loss);
        };
        let mut step = Self { device, run: Box::new(run) };
        // After the second step the optimizer's state exists, so every later step finds its program in memory.
        (0..3).for_each(|_| (step.run)());
        step
    }

    /// The batches are small: the measured parts do not depend on their size, and the rest should be short.
    fn gpt(device: TpuDevice) -> Self {
        let config = GptConfig::new().with_batch(1).with_sequence(16);
        Self::new(device, config.init(&device), adamw(), Tokens::synthetic(&config, 0, &device))
    }

    fn mlp(device: TpuDevice) -> Self {
        Self::new(device, Mlp::new(&device), adam(), Images::synthetic(16, 0, &device))
    }

    /// Returns how much `steps` steps add to a counter or a timer of the metrics. Each step finishes before the next begins,
    /// since a full queue would make dispatch wait.
    fn metric_increase<N: Sub<Output = N>>(&mut self, steps: u64, number: impl Fn(&Metrics) -> N) -> N {
        let before = number(&metrics(&self.device));
        for _ in 0..steps {
            (self.run)();
            Tpu::<f32>::sync(&self.device).expect("it runs");
        }
        number(&metrics(&self.device)) - before
    }

    /// As [`Step::metric_increase`], with the in-memory cache emptied before each step.
    fn metric_increase_cold(&mut self, steps: u64, time: impl Fn(&Metrics) -> Duration + Copy) -> Duration {
        let cold = |_| {
            Tpu::<f32>::memory_cleanup(&self.device);
            self.metric_increase(1, time)
        };
        (0..steps).map(cold).sum()
    }
}

fn warm(c: &mut Criterion) {
    let mut gpt = Step::gpt(TpuDevice::cpu(0));
    c.bench_function("record", |b| {
        b.iter_custom(|ops| {
            let per_step = gpt.metric_increase(1, |m| m.recorded_ops);
            let steps = ops.div_ceil(per_step).max(8);
            gpt.metric_increase(steps, Metrics::record_time).mul_f64(ops as f64 / (steps * per_step) as f64)
        });
    });
    let times: [(_, Timer); 2] = [("key", Metrics::key_time), ("dispatch", Metrics::dispatch_time)];
    for (name, time) in times {
        c.bench_function(name, |b| b.iter_custom(|steps| gpt.metric_increase(steps, time)));
    }
}

/// The time on the calling thread, each call with an empty queue.
fn timed(calls: u64, device: &TpuDevice, mut call: impl FnMut()) -> Duration {
    let one = |_| {
        let start = Instant::now();
        call();
        let time = start.elapsed();
        Tpu::<f32>::sync(device).expect("it runs");
        time
    };
    (0..calls).map(one).sum()
}

fn calls(c: &mut Criterion) {
    type Vector = Tensor<Tpu<f32>, 1>;
    let device = TpuDevice::cpu(0);
    for count in [1, 16, 256] {
        let function = compile(|state: Vec<Vector>| state.into_iter().map(|x| x + 1.0).collect::<Vec<_>>());
        let mut state: Option<Vec<Vector>> = Some((0..count).map(|_| Tensor::zeros([8], &device)).collect());
        let mut call = || state = state.take().map(|state| function.call(state).expect("pure"));
        call();
        c.bench_function(&format!("call {count}"), |b| b.iter_custom(|calls| timed(calls, &device, &mut call)));
        plugin_alone(c, count).expect("the plugin runs it");
    }
    let config = GptConfig::new().with_batch(1).with_sequence(16);
    let mut training = compile_step(config.init(&device), DeviceAdamW::new(), |model: &Gpt<A>, batch| {
        let loss = model.loss(AutodiffModule::<A>::from_inner(batch));
        (loss.clone(), loss.inner())
    });
    let batch: Tokens<A> = Tokens::synthetic(&config, 0, &device);
    let mut call = || drop(training.run(1e-3, batch.valid()).expect("pure"));
    call();
    c.bench_function("call step", |b| b.iter_custom(|calls| timed(calls, &device, &mut call)));
}

/// Times the program of `call N` on the plugin's own API: its start, and the end of the buffers that it took.
fn plugin_alone(c: &mut Criterion, count: usize) -> burn_tpu_pjrt::Result<()> {
    let plugin = discovery::find(PluginKind::Cpu, None).expect("`calls` has found it");
    let client = Client::new(Plugin::load(&plugin.path)?, &ClientOptions::cpu(1)?)?;
    let (spec, device) = (Arc::new(TensorSpec::new(ElementType::F32, [8])?), client.device(0)?);
    let program = Program::stablehlo(additions(count), vec![Arc::clone(&spec); count])?;
    let program = client.compile(&program, &CompileOptions::default())?;
    let zeros = |_| Buffer::from_host(&device, Arc::clone(&spec), &[0; 32]);
    let mut state = (0..count).map(zeros).collect::<burn_tpu_pjrt::Result<Vec<_>>>()?;
    let options = ExecuteOptions { events: true, ..ExecuteOptions::default() };
    let mut call = || {
        let start = Instant::now();
        let arguments: Vec<&Buffer> = state.iter().collect();
        let mut done = program.execute(&[&arguments], &options).expect("it starts");
        state = done.outputs.pop().expect("the results of a device");
        let time = start.elapsed();
        done.events.iter().for_each(|event| event.wait().expect("it runs"));
        time
    };
    c.bench_function(&format!("plugin {count}"), |b| b.iter_custom(|calls| (0..calls).map(|_| call()).sum()));
    Ok(())
}

/// Returns StableHLO that adds 1 to each of its arguments `[8]`, in their memory.
fn additions(count: usize) -> String {
    let (mut parameters, mut body) = (Vec::new(), String::new());
    let names = |prefix: &str| (0..count).map(|i| format!("%{prefix}{i}")).collect::<Vec<_>>().join(", ");
    for i in 0..count {
        parameters.push(format!("%x{i}: tensor<8xf32> {{tf.aliasing_output = {i} : i32}}"));
        let _written = writeln!(body, "%y{i} = stablehlo.add %x{i}, %one : tensor<8xf32>");
    }
    let (parameters, types) = (parameters.join(", "), vec!["tensor<8xf32>"; count].join(", "));
    format!(
        "module @additions {{ func.func public @main({parameters}) -> ({types}) {{\n\
         %one = stablehlo.constant dense<1.0> : tensor<8xf32>\n{body}return {} : {types}\n}} }}",
        names("y")
    )
}

fn cold(c: &mut Criterion) {
    let mut mlp = Step::mlp(TpuDevice::cpu(1));
    let times: [(_, Timer); 2] = [("lower", Metrics::lower_time), ("compile cold", Metrics::compile_time)];
    for (name, time) in times {
        c.bench_function(name, |b| b.iter_custom(|steps| mlp.metric_increase_cold(steps, time)));
    }
    let mut mlp = Step::mlp(TpuDevice::cpu(2));
    c.bench_function("compile from disk", |b| {
        b.iter_custom(|steps| {
            let time = mlp.metric_increase_cold(steps, Metrics::disk_time);
            assert!(metrics(&mlp.device).disk_hits > 0, "no program was read from disk");
            time
        });
    });
}

fn transfer(c: &mut Criterion) {
    let device = TpuDevice::cpu(0);
    for kib in [4, 4 << 10] {
        let data = TensorData::new(vec![1.0f32; kib << 8], [kib << 8]);
        c.bench_function(&format!("transfer {kib} KiB up"), |b| {
            b.iter_batched(
                || data.clone(),
                |data| Tensor::<Tpu<f32>, 1>::from_data(data, &device),
                BatchSize::PerIteration,
            );
        });
        let tensor = Tensor::<Tpu<f32>, 1>::from_data(data, &device);
        c.bench_function(&format!("transfer {kib} KiB down"), |b| b.iter(|| tensor.to_data()));
    }
}

/// Uses three devices, so that no part finds programs that another part left in memory. The third keeps programs on disk.
fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    // As in training, but no program is interpreted at first, and none comes from disk unless that is measured.
    let options = || TpuOptions::training().cpu_devices(3).disk_cache(false).interpret_from(0);
    let disk = options().disk_cache(true).disk_cache_dir(folder.path()).disk_cache_least_compile(Duration::ZERO);
    for (index, options) in [options(), options(), disk].into_iter().enumerate() {
        options.install(&TpuDevice::cpu(index as u16)).expect("first use");
    }
    let (warm_up, measurement) = (Duration::from_millis(200), Duration::from_secs(2));
    let settings = Criterion::default().sample_size(10).warm_up_time(warm_up).measurement_time(measurement);
    let mut criterion = settings.configure_from_args();
    warm(&mut criterion);
    calls(&mut criterion);
    cold(&mut criterion);
    transfer(&mut criterion);
    criterion.final_summary();
}
