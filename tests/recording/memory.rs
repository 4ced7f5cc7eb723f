//! What a device's memory holds: sums that are those of the process, kinds, the line of a leak, and a device that is full.

use crate::common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::{Distribution, Tensor, TensorData, bf16};
use burn_tpu::{
    DeviceAdamW, MemoryKind, MemoryReport, Tpu, TpuDevice, TpuError, TpuOptimizer, compile, compile_step, memory,
};
use burn_tpu_train::MemoryMonitorOptions;
use common::{alone, bf16_cpu, child, cpu, development};
use std::sync::mpsc::channel;
use std::time::Duration;

type B = Tpu<f32>;

const MIB: usize = 1 << 20;

/// The limit of one of the devices.
const LIMIT: usize = 96 * MIB;

/// Returns the device with a limit.
fn limited() -> Option<TpuDevice> {
    common::cpu_with("limited", development().memory_limit(LIMIT as u64))
}

/// Returns the report once everything that was dropped has been freed.
fn settled(device: &TpuDevice) -> MemoryReport {
    device.sync().expect("a sync");
    device.sync().expect("a sync");
    memory(device)
}

/// Returns the bytes of this process that are in the machine's memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn values(device: &TpuDevice, bytes: usize) -> Tensor<B, 1> {
    let values = Tensor::random([bytes / 4], Distribution::Default, device);
    device.sync().expect("a sync");
    values
}

/// In a process of its own, since other tests return memory to the system at any time.
#[test]
fn the_sum_is_what_the_process_holds() {
    let Some(plugin) = child::cpu_plugin() else { return };
    child::run(module_path!(), "sum", &[("BURN_TPU_PLUGIN", &plugin)]);
}

#[test]
fn child() {
    if child::scenario().as_deref() == Some("sum") {
        compare_the_sum();
    }
}

fn compare_the_sum() {
    let Some(device) = cpu() else { return };
    // Each is so large that the allocator returns it to the system.
    let large = || (0..8).map(|_| values(&device, 64 * MIB)).collect::<Vec<_>>();
    // What the process has beside tensors is there after the first ones.
    let first = large();
    drop(large());
    let (before, resident_before, handles) = (settled(&device), resident(), burn_tpu_pjrt::live_buffers());
    let mut kept = large();
    let report = settled(&device);
    let live = report.live.tensors() - before.live.tensors();
    assert_eq!(live, 512 * MIB as u64);
    // A program's scratch is freed by a thread of the plugin, perhaps a little later.
    let share = || (resident() - resident_before) as f64 / live as f64;
    (0..1000).take_while(|_| share() > 1.01).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
    assert!((share() - 1.0).abs() < 0.01, "{} of the counted bytes are resident", share());
    assert_eq!(burn_tpu_pjrt::live_buffers() - handles, 8);
    assert!(report.peak.total() >= report.live.total());
    // Results that take the memory of an argument are not counted twice.
    kept = kept.into_iter().map(|x| x * 2.0).collect();
    assert_eq!(settled(&device).live.tensors(), report.live.tensors());
    drop(kept);
    assert_eq!(settled(&device).live.tensors(), before.live.tensors());
    drop(first);
}

#[test]
fn a_leak_is_named_with_its_line() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let (mut leak, mut line) = (Vec::new(), 0);
    for step in 0..20 {
        let x = Tensor::<B, 2>::full([64, 64], step as f32, &device);
        let y = x.clone().matmul(x).exp();
        leak.push(y.clone().mean_dim(1));
        line = line!() - 1;
        y.sum().into_data();
        burn_tpu::mark_step(&device);
    }
    let report = settled(&device);
    let at = format!("tests/recording/memory.rs:{line}");
    let is_leak = |line: &Option<String>| line.as_ref().is_some_and(|line| line.starts_with(&at));
    let found = report.largest.iter().find(|tensors| is_leak(&tensors.line));
    let found = found.unwrap_or_else(|| panic!("no {at} in {report}"));
    assert_eq!((found.op.as_str(), found.ty.as_str()), ("mean_dim", "f32[64,1]"), "{report}");
    assert_eq!((found.kind, found.count, found.bytes), (MemoryKind::Activations, leak.len(), 20 * 256), "{report}");
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

const WIDTH: usize = 700;

impl<B: AutodiffBackend> Model<B> {
    fn new(device: &B::Device) -> Self {
        let hidden = LinearConfig::new(WIDTH, WIDTH).init(device);
        let model = Self { hidden, output: LinearConfig::new(WIDTH, 2).init(device) };
        model.num_params();
        model
    }

    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        self.output.forward(self.hidden.forward(x).tanh()).powi_scalar(2).mean()
    }
}

fn batch<B: Backend>(step: usize, device: &B::Device) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..8 * WIDTH).map(|i| ((i * 7 + step * 3) % 11) as f32 * 0.02).collect();
    Tensor::from_data(TensorData::new(values, [8, WIDTH]), device)
}

/// Checks the bytes of parameters and of the optimizer's state, of which the latter also has small numbers.
fn check(report: &MemoryReport, before: &MemoryReport, parameters: usize, state: usize) {
    let found = [MemoryKind::Parameters, MemoryKind::OptimizerState];
    let found = found.map(|kind| (report.live.of(kind) - before.live.of(kind)) as usize);
    assert_eq!(found[0], parameters, "{report}");
    assert!((state..state + 1024).contains(&found[1]), "{found:?}, and the state has {state}: {report}");
}

#[test]
fn bf16_weights_and_their_masters_and_moments_are_told_apart() {
    let Some(device) = bf16_cpu() else { return };
    let _alone = alone();
    type M = Autodiff<Tpu<bf16>>;
    let before = settled(&device);
    let mut model = Model::<M>::new(&device);
    let count = model.num_params();
    let mut optimizer = TpuOptimizer::new(AdamWConfig::new().init());
    for step in 0..4 {
        let gradients = GradientsParams::from_grads(model.loss(batch(step, &device)).backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
    }
    let report = settled(&device);
    check(&report, &before, 2 * count, 12 * count);
    let weight = report.largest.iter().find(|found| found.ty == format!("bf16[{WIDTH},{WIDTH}]"));
    let weight = weight.unwrap_or_else(|| panic!("no weight in {report}"));
    assert!(weight.line.as_ref().is_some_and(|line| line.starts_with("tests/recording/memory.rs")), "{report}");
    drop((model, optimizer));
    assert_eq!(settled(&device).live.tensors(), before.live.tensors());
}

#[test]
fn a_compiled_step_has_the_same_kinds() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    type M = Autodiff<B>;
    let before = settled(&device);
    let model = Model::<M>::new(&device);
    let count = model.num_params();
    let mut step = compile_step(model, DeviceAdamW::new(), |model: &Model<M>, x| {
        let loss = model.loss(Tensor::from_inner(x));
        (loss.clone(), loss.inner())
    });
    for number in 0..3 {
        step.run(1e-3, batch::<B>(number, &device)).expect("a step");
    }
    let report = settled(&device);
    // The rate is read by each step and never changed, as parameters are.
    check(&report, &before, 4 * count + 4, 8 * count);
}

#[test]
fn weights_that_a_compiled_function_captures_are_parameters_and_its_argument_is_a_batch() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let before = settled(&device);
    let weight = batch::<B>(0, &device);
    let forward = compile(move |x: Tensor<B, 2>| x.matmul(weight.clone().transpose()));
    let x = batch::<B>(1, &device);
    let y = forward.call(x.clone()).expect("a call");
    let report = settled(&device);
    let bytes = (8 * WIDTH * 4) as u64;
    let of = |kind: MemoryKind| report.live.of(kind) - before.live.of(kind);
    let kinds = [MemoryKind::Parameters, MemoryKind::Batches, MemoryKind::Activations].map(of);
    assert_eq!(kinds, [bytes, bytes, 8 * 8 * 4], "{report}");
    drop((x, y));
}

/// The program is refused before it runs, so that its arguments and its recording are there afterwards.
#[test]
fn a_full_device_names_the_largest_tensors_and_goes_on() {
    let Some(device) = limited() else { return };
    let _alone = alone();
    let (mut kept, mut line) = (Vec::new(), 0);
    for _ in 0..6 {
        kept.push(Tensor::<B, 1>::random([2 * MIB], Distribution::Default, &device));
        line = line!() - 1;
        device.sync().expect("room for 48 MiB");
    }
    let x = kept[0].clone();
    let sum = (kept[1].clone() * kept[2].clone()).reshape([2, MIB]).sum();
    let many = x.clone().reshape([2, MIB]).repeat_dim(0, 6) * 3.0;
    let Err(TpuError::OutOfMemory(full)) = device.sync() else { panic!("the device has room for 48 MiB more") };
    let text = full.to_string();
    assert_eq!((full.limit, full.device.as_str()), (Some(LIMIT as u64), device.to_string().as_str()), "{text}");
    assert!(full.needed.is_some_and(|needed| needed >= 48 * MIB as u64), "{text}");
    let largest = &full.largest[0];
    assert_eq!((largest.count, largest.bytes, largest.op.as_str()), (6, 48 * MIB as u64, "float_random"), "{text}");
    let found = largest.line.clone().unwrap_or_default();
    assert!(found.starts_with(&format!("tests/recording/memory.rs:{line}")), "{text}");
    assert!(text.contains("drop the results that are kept"), "{text}");
    kept.truncate(1);
    device.sync().expect("room");
    assert_eq!(many.dims(), [12, MIB]);
    let (many, x): (f32, f32) = (many.sum().into_scalar(), x.sum().into_scalar());
    assert!((many / x - 18.0).abs() < 1e-2, "{many} is 18 times {x}");
    assert!(sum.into_scalar().is_finite());
}

#[test]
fn a_value_from_the_host_that_does_not_fit_is_refused() {
    let Some(device) = limited() else { return };
    let _alone = alone();
    let large = Tensor::<B, 1>::from_data(TensorData::new(vec![1f32; LIMIT / 4 + 1], [LIMIT / 4 + 1]), &device);
    let result = large + 1.0;
    let Err(TpuError::OutOfMemory(full)) = device.sync() else { panic!("the value does not fit") };
    assert!(full.what.contains("from the host"), "{full}");
    drop(result);
    let small = Tensor::<B, 1>::from_floats([1.0, 2.0], &device);
    assert_eq!((small + 1.0).into_data(), TensorData::from([2f32, 3.0]));
}

/// The plugin itself has no room: the error is the same, and the process goes on.
#[test]
fn a_plugin_without_room_is_the_same_error() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let kept = values(&device, 4 * MIB);
    let large = Tensor::<B, 1>::full([1usize << 40], 1.5, &device) + 1.0;
    let Err(TpuError::OutOfMemory(full)) = device.sync() else { panic!("there is no room for 4 TiB") };
    assert!(full.message.is_some() && full.limit.is_none(), "{full}");
    assert!(full.largest.iter().any(|tensors| tensors.bytes == 4 * MIB as u64), "{full}");
    drop(large);
    assert!(kept.sum().into_scalar().is_finite());
}

#[test]
fn the_monitor_warns_once_and_draws_what_it_saw() {
    let Some(device) = cpu() else { return };
    let _alone = alone();
    let (send, warnings) = channel();
    let capacity = memory(&device).live.total() + 100 * MIB as u64;
    let monitor = MemoryMonitorOptions::new(&device).capacity(capacity).warn_at(0.8).interval(Duration::from_millis(1));
    let monitor = monitor.on_full(move |report| send.send(report.clone()).unwrap_or(())).start().expect("a thread");
    let kept = values(&device, 90 * MIB);
    let report = warnings.recv().expect("a warning");
    assert!(report.live.activations >= 90 * MIB as u64, "{report}");
    let seen = monitor.history().len();
    while monitor.history().len() < seen + 3 {
        std::thread::yield_now();
    }
    assert!(warnings.try_recv().is_err(), "one warning for each time that the share is passed");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("memory.svg");
    monitor.write_svg(&path).expect("a picture");
    let svg = std::fs::read_to_string(path).expect("it is there");
    assert!(svg.contains(&format!("memory of {device}")) && svg.contains("activations"));
    drop(kept);
}
