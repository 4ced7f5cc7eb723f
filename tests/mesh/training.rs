//! A mesh of eight CPU devices is one device to a program: the same losses as on one, one program and one launch per step,
//! all of the state donated.

use crate::common;
use crate::looped::LoopedGpt;

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::Optimizer;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Distribution, Int, Tensor, TensorData};
use burn_tpu::{
    DeviceAdamW, FallbackPolicy, Fsdp, Keep, Mesh, Metrics, Patterns, PlacementRule, Platform, Replicate, Tpu,
    TpuDevice, TpuError, TpuOptimizer, TpuOptions, TpuTensor, compile_step, place, shard,
};
use burn_tpu_runtime::testing;
use burn_tpu_workspace::models::{
    Cnn, GptConfig, Images, Mlp, Supervised, Tokens, adam, adamw, tensor_parallel_weights, train_step,
};
use half::bf16;

const BATCH: usize = 16;

/// Returns the number of steps of each training. What takes long is eight devices that wait for each other on few cores.
fn steps() -> usize {
    if common::is_long() { 50 } else { 10 }
}

/// The launches of each thread. Two threads share a mesh.
const LAUNCHES: usize = 5_000;

/// Returns one of eight CPU devices and meshes of all of them; `None` without the plugin. Burn keeps one default float type
/// per device, so each type has devices of its own: `first` is the first chip of all of them.
pub(crate) fn devices<const N: usize>(first: u16, meshes: [Mesh; N]) -> Option<(TpuDevice, [TpuDevice; N])> {
    common::has_cpu_plugin().then(|| {
        let options = || TpuOptions::development().cpu_devices(8).check_numerics(false).interpret_from(0);
        let one = TpuDevice::cpu(first);
        let chips = (0..8).map(|chip| (chip + first) % 8);
        options().install(&one).ok();
        let meshes = meshes.map(|mesh| TpuDevice::mesh(mesh.on(Platform::Cpu).devices(chips.clone())));
        meshes.iter().for_each(|mesh| {
            options().install(mesh).ok();
        });
        (one, meshes)
    })
}

fn data() -> Mesh {
    Mesh::new().axis("data", 8)
}

fn data_model() -> Mesh {
    Mesh::new().axis("data", 2).axis("model", 4)
}

/// What a run of training did.
struct Run {
    losses: Vec<f32>,
    /// The counters after each step.
    metrics: Vec<Metrics>,
    /// The number of parameters, and how each is split.
    shardings: Vec<String>,
}

impl Run {
    /// Checks the losses against those of one device, and that steps are one program and one launch each.
    fn check(&self, name: &str, one: &[f32], tolerance: f32) {
        for (step, (&found, &expected)) in self.losses.iter().zip(one).enumerate() {
            let difference = (found - expected).abs() / expected.abs();
            assert!(difference <= tolerance, "{name}, step {step}: {found} instead of {expected}");
        }
        let settled = &self.metrics[2];
        for (earlier, later) in self.metrics[2..].iter().zip(&self.metrics[3..]) {
            assert_eq!(later.executions - earlier.executions, 1, "{name}: a step is one launch");
        }
        let last = self.metrics.last().unwrap();
        assert_eq!(last.compiles, settled.compiles, "{name}: nothing compiles after the third step");
        assert_eq!(last.host_fallbacks, 0, "{name}");
    }
}

/// Trains on batches that `batch` makes, and reads the losses at the end.
fn train<F, M, O>(
    device: &TpuDevice,
    steps: usize,
    model: impl FnOnce(&TpuDevice) -> M,
    (optimizer, rate): (O, f64),
    batch: impl Fn(usize, &TpuDevice) -> M::Batch,
) -> Run
where
    Tpu<F>: Backend<Device = TpuDevice, FloatTensorPrimitive = TpuTensor>,
    M: Supervised<Autodiff<Tpu<F>>> + AutodiffModule<Autodiff<Tpu<F>>>,
    O: Optimizer<M, Autodiff<Tpu<F>>>,
{
    Tpu::<F>::seed(device, 7);
    let mut model = model(device);
    device.mark_step();
    let mut optimizer = optimizer;
    let (mut losses, mut metrics) = (Vec::new(), Vec::new());
    for step in 0..steps {
        let (next, loss) = train_step(model, &mut optimizer, rate, batch(step, device));
        model = next;
        losses.push(loss);
        metrics.push(device.metrics());
    }
    let losses = losses.into_iter().map(|loss| loss.into_data().convert::<f32>().to_vec::<f32>().unwrap()[0]).collect();
    let mut parameters = Parameters::default();
    model.visit(&mut parameters);
    Run { losses, metrics, shardings: parameters.0 }
}

/// How each parameter of a model is split. Devices with the same part must have the same bits.
#[derive(Default)]
struct Parameters(Vec<String>);

impl<F> ModuleVisitor<Autodiff<Tpu<F>>> for Parameters
where
    Tpu<F>: Backend<Device = TpuDevice, FloatTensorPrimitive = TpuTensor>,
{
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<Autodiff<Tpu<F>>, D>>) {
        let value: burn_tpu_runtime::Tensor = parameter.val().inner().into_primitive().tensor().into();
        assert_ne!(testing::replicas_agree(&value).unwrap(), Some(false), "equal parts differ");
        self.0.push(testing::sharding(&value).unwrap_or_default());
    }
}

/// Trains one model on one device and on every mesh with its rule, and compares. `$split` has the patterns of the
/// tensor parallel layers; the other parameters are split as they divide.
macro_rules! compare {
    ($element:ty, $name:expr, $init:expr, $optimizer:expr, $batch:expr, $split:expr) => {{
        let first = std::mem::size_of::<$element>() as u16;
        let Some((one, [data, fsdp, model, both])) = devices(
            first,
            [self::data(), Mesh::new().axis("fsdp", 8), data_model(), Mesh::new().axis("data", 2).axis("fsdp", 4)],
        ) else {
            return;
        };
        let _alone = common::alone();
        let is_16_bit = std::mem::size_of::<$element>() == 2;
        let steps = steps();
        // The weights are drawn in the order in which they are placed.
        let init = |device: &TpuDevice| place($init(device), &Replicate).unwrap();
        let expected = train::<$element, _, _>(&one, steps, init, $optimizer(), $batch).losses;
        assert!(expected.last() < expected.first(), "{} learns: {expected:?}", $name);
        let run = |name: &str, device: &TpuDevice, rule: &dyn PlacementRule| {
            let init = |device: &TpuDevice| place($init(device), &rule).unwrap();
            let run = train::<$element, _, _>(device, steps, init, $optimizer(), $batch);
            let name = format!("{} {} {name}", stringify!($element), $name);
            run.check(&name, &expected, if is_16_bit { 1e-2 } else { 1e-5 });
            let [before, after] = [&run.metrics[steps - 2], &run.metrics[steps - 1]];
            // The state is the parameters with their moments; with 16-bit weights also their f32 masters.
            let per_parameter = if is_16_bit { 4 } else { 3 };
            let donated = after.donated_buffers - before.donated_buffers;
            assert_eq!(donated, (per_parameter * run.shardings.len()) as u64, "{name}: the state is donated");
            (
                run.shardings.iter().filter(|sharding| sharding.contains(char::is_numeric)).count(),
                after.argument_bytes - before.argument_bytes,
            )
        };
        let (split, whole) = run("data 8", &data, &Replicate);
        assert_eq!(split, 0, "{}: parameters are replicated", $name);
        let axis = |axis| Fsdp { axis, min_bytes: 1024 };
        let tensor = $split.otherwise(axis("model"));
        let rules: [(&str, &TpuDevice, &dyn PlacementRule, u64); 3] = [
            ("fsdp 8", &fsdp, &axis("fsdp"), 8),
            ("data 2 fsdp 4", &both, &axis("fsdp"), 4),
            ("data 2 model 4", &model, &tensor, 4),
        ];
        // The second has all of the first.
        for (name, device, rule, parts) in rules.into_iter().skip(usize::from(!common::is_long())) {
            let (split, bytes) = run(name, device, rule);
            assert!(split > 0, "{} {name}: parameters are split", $name);
            assert!(
                parts * bytes < 2 * whole,
                "{} {name}: {bytes} bytes of arguments, {whole} in every replica",
                $name
            );
        }
    }};
}

/// The learning rate of models of images. With a larger one losses get close to zero, where they are a matter of rounding.
const IMAGES_RATE: f64 = 1e-4;

fn images<F>(step: usize, device: &TpuDevice) -> Images<Autodiff<Tpu<F>>>
where
    Tpu<F>: Backend<Device = TpuDevice, FloatTensorPrimitive = TpuTensor>,
{
    Images::synthetic(BATCH, step, device)
}

/// Compares a model of images, of which one layer is split by columns and another by rows.
macro_rules! compare_images {
    ($element:ty, $model:ident, $by_columns:literal, $by_rows:literal) => {{
        let split = Patterns::new()
            .add(concat!($by_columns, ".weight"), [None, Some("model")])
            .add(concat!($by_columns, ".bias"), [Some("model")])
            .add(concat!($by_rows, ".weight"), [Some("model"), None]);
        let init = |device: &TpuDevice| $model::new(device);
        let optimizer = || (TpuOptimizer::new(adam()), IMAGES_RATE);
        compare!($element, stringify!($model), init, optimizer, images, split);
    }};
}

macro_rules! compare_gpt {
    ($element:ty) => {{
        let config = small_gpt();
        let batch = |step, device: &TpuDevice| Tokens::synthetic(&config, step, device);
        let weights = tensor_parallel_weights("model", None);
        let split = weights.into_iter().fold(Patterns::new(), |rule, (path, dims)| rule.add(path, dims));
        let init = |device: &TpuDevice| config.init(device);
        let optimizer = || (TpuOptimizer::new(adamw()), 1e-3);
        compare!($element, "Gpt", init, optimizer, batch, split);
    }};
}

#[test]
fn an_mlp_trains_as_on_one_device() {
    compare_images!(f32, Mlp, "hidden.0", "hidden.1");
}

#[test]
fn an_mlp_in_bf16_trains_nearly_as_on_one_device() {
    compare_images!(bf16, Mlp, "hidden.0", "hidden.1");
}

#[test]
fn a_cnn_trains_as_on_one_device() {
    compare_images!(f32, Cnn, "hidden", "output");
}

#[test]
#[ignore = "a minute: docs/testing.md, What CI leaves out"]
fn a_cnn_in_bf16_trains_nearly_as_on_one_device() {
    compare_images!(bf16, Cnn, "hidden", "output");
}

#[test]
fn a_gpt_trains_as_on_one_device() {
    compare_gpt!(f32);
}

#[test]
#[ignore = "a minute: docs/testing.md, What CI leaves out"]
fn a_gpt_in_bf16_trains_nearly_as_on_one_device() {
    compare_gpt!(bf16);
}

/// The rules are those of the blocks of a `Vec`.
#[test]
fn a_gpt_whose_blocks_are_a_loop_trains_as_on_one_device() {
    let Some((one, [mesh])) = devices(4, [data_model()]) else { return };
    let _alone = common::alone();
    let config = small_gpt();
    let batch = |step, device: &TpuDevice| Tokens::synthetic(&config, step, device);
    let run = |device: &TpuDevice, rule: &dyn PlacementRule| {
        let init = |device: &TpuDevice| place(LoopedGpt::init(&config, Keep::Nothing, device), &rule).unwrap();
        train::<f32, _, _>(device, 5, init, (TpuOptimizer::new(adamw()), 1e-3), batch)
    };
    let expected = run(&one, &Replicate).losses;
    assert!(expected[4] < expected[0], "{expected:?}");
    let split = tensor_parallel_weights("model", None)
        .into_iter()
        .fold(Patterns::new(), |rule, (path, dims)| rule.add(path, dims));
    let run = run(&mesh, &split.otherwise(Fsdp { axis: "model", min_bytes: 1024 }));
    run.check("split", &expected, 1e-5);
    assert!(run.shardings.iter().filter(|sharding| sharding.contains(char::is_numeric)).count() > 4);
}

fn small_gpt() -> GptConfig {
    let config = GptConfig::new().with_layers(2).with_width(64).with_feed_forward(128).with_sequence(32);
    config.with_vocabulary(256)
}

/// Its products are large enough for XLA to share them among threads, of which some wait for other devices.
#[test]
fn a_step_with_more_work_than_threads_goes_on() {
    let Some((_, [mesh])) = devices(4, [data()]) else { return };
    let _alone = common::alone();
    let config = GptConfig::new();
    let batch = |step, device: &TpuDevice| Tokens::synthetic(&config, step, device);
    let init = |device: &TpuDevice| config.init(device);
    let run = train::<f32, _, _>(&mesh, 4, init, (TpuOptimizer::new(adamw()), 1e-3), batch);
    assert!(run.losses.iter().all(|loss| loss.is_finite()), "{:?}", run.losses);
}

type F32 = Tpu<f32>;

fn value<const D: usize>(tensor: Tensor<F32, D>) -> Vec<f32> {
    tensor.into_data().to_vec().unwrap()
}

#[derive(Module, Debug)]
struct Integers<B: Backend> {
    table: Param<Tensor<B, 2, Int>>,
}

#[test]
fn integers_are_placed_as_floats_are() {
    let Some((_, [mesh])) = devices(2, [data()]) else { return };
    let _alone = common::alone();
    let numbers: Vec<i32> = (0..32).collect();
    let table = Tensor::<F32, 2, Int>::from_data(TensorData::new(numbers.clone(), [16, 2]), &mesh);
    let module = Integers { table: Param::initialized(ParamId::new(), table) };
    let odd = Patterns::new().add("table", [None, Some("data")]);
    let refused = place(module.clone(), &odd).map(drop).unwrap_err().to_string();
    assert!(refused.contains("table: dim 1 of i32"), "{refused}");
    let table = place(module, &Fsdp { axis: "data", min_bytes: 0 }).unwrap().table.val();
    mesh.sync().unwrap();
    let value: burn_tpu_runtime::Tensor = table.clone().into_primitive().into();
    assert_eq!(testing::sharding(&value).unwrap(), "[{0}, {}]");
    assert_eq!(table.into_data().convert::<i32>().to_vec::<i32>().unwrap(), numbers);
}

/// Weights that are given to a mesh stay on the host until they are placed, however many: transferred at once, each chip
/// would have all of them.
#[test]
fn values_wait_on_the_host_until_they_are_placed() {
    const ROWS: usize = 32 << 10;
    // A mesh of its own: other tests give values too.
    let Some((_, [mesh])) = devices(0, [Mesh::new().axis("waiting", 8)]) else { return };
    let _alone = common::alone();
    let given: Vec<_> = (0..3)
        .map(|number| {
            let values = TensorData::full([ROWS, 1024], number as f32);
            Tensor::<F32, 2>::from_data(values, &mesh)
        })
        .collect();
    assert_eq!(mesh.metrics().waiting_bytes, 3 * 4 * 1024 * ROWS as u64);
    for (number, tensor) in given.into_iter().enumerate() {
        let placed = shard(tensor, [None, Some("waiting")]);
        mesh.mark_step();
        let value: burn_tpu_runtime::Tensor = placed.clone().into_primitive().tensor().into();
        assert_eq!(testing::sharding(&value).as_deref(), Some("[{}, {0}]"));
        assert_eq!(placed.slice([0..1, 5..6]).into_scalar(), number as f32);
    }
    assert_eq!(mesh.metrics().waiting_bytes, 0);
}

#[test]
fn random_numbers_are_those_of_one_device() {
    let Some((one, [mesh])) = devices(4, [data_model()]) else { return };
    let _alone = common::alone();
    let draw = |device: &TpuDevice| {
        F32::seed(device, 3);
        let uniform = Tensor::<F32, 2>::random([24, 12], Distribution::Default, device);
        let normal = Tensor::<F32, 2>::random([24, 12], Distribution::Normal(0.0, 1.0), device);
        let split = shard(uniform.clone() * 2.0, [Some("data"), Some("model")]);
        device.mark_step();
        (value(uniform), value(split), value(normal))
    };
    let (expected, found) = (draw(&one), draw(&mesh));
    assert_eq!((&found.0, &found.1), (&expected.0, &expected.1), "the same bits");
    // The logarithm of a normal draw may be rounded differently in another fusion.
    let near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-6 * expected.abs().max(1.0);
    assert!(found.2.iter().zip(&expected.2).all(near), "{:?} instead of {:?}", found.2, expected.2);
}

#[test]
fn a_tensor_is_shifted_within_itself() {
    let Some((one, [mesh])) = devices(0, [data()]) else { return };
    let shifted = |device: &TpuDevice| {
        let values = (0..64).map(|i| i as f32).collect();
        let x = Tensor::<F32, 3>::from_data(TensorData::new(values, [16, 4, 1]), device);
        let x = shard(x, [Some("data"), None, None]) * Tensor::full([1, 1, 1], 2.0, device);
        let x = x.reshape([16, 4]);
        let rows = x.clone().slice_assign([1..16, 0..4], x.clone().slice([0..15, 0..4]));
        let columns = x.clone().slice_assign([0..16, 1..4], x.slice([0..16, 0..3]));
        [value(rows), value(columns)]
    };
    assert_eq!(shifted(&mesh), shifted(&one));
    assert_eq!(shifted(&one)[1][..8], [0.0, 0.0, 2.0, 4.0, 8.0, 8.0, 10.0, 12.0]);
}

#[test]
fn a_recording_of_equal_steps_runs_as_a_loop() {
    let Some((one, [mesh])) = devices(0, [data()]) else { return };
    let run = |device: &TpuDevice| {
        let values = |count: u16| (0..count).map(|i| f32::from(i % 7) / 8.0).collect::<Vec<f32>>();
        let x = Tensor::<F32, 2>::from_data(TensorData::new(values(64), [16, 4]), device);
        let weight = Tensor::<F32, 2>::from_data(TensorData::new(values(16), [4, 4]), device);
        let mut state = shard(x.clone(), [Some("data"), None]);
        for _ in 0..128 {
            state = (state.matmul(weight.clone()) - x.clone()).tanh();
        }
        value(state)
    };
    let rolled = || burn_tpu::metrics(&mesh).rewrites.get("roll").copied().unwrap_or(0);
    let (before, found) = (rolled(), run(&mesh));
    assert!(rolled() > before, "the recording is no loop");
    for (found, expected) in found.iter().zip(run(&one)) {
        assert!((found - expected).abs() <= 1e-5, "{found} instead of {expected}");
    }
}

#[test]
fn a_constraint_is_differentiable_and_the_identity_elsewhere() {
    let Some((one, [mesh])) = devices(4, [data_model()]) else { return };
    let _alone = common::alone();
    let run = |device: &TpuDevice| {
        let x =
            Tensor::<Autodiff<F32>, 2>::from_data(TensorData::new((0..32).map(|i| i as f32).collect(), [8, 4]), device);
        let x = x.require_grad();
        let y = shard(x.clone().powi_scalar(2), [Some("data"), Some("model")]).sum();
        let gradients = y.backward();
        (value(y.inner()), value(x.grad(&gradients).unwrap()))
    };
    assert_eq!(run(&one), run(&mesh));
}

#[test]
fn a_compiled_step_trains_as_on_one_device_with_its_state_split() {
    let Some((one, [mesh])) = devices(0, [data()]) else { return };
    let train = |device: &TpuDevice| {
        F32::seed(device, 42);
        let model = Mlp::<Autodiff<F32>>::new(device);
        let model =
            if device == &mesh { place(model, &Fsdp { axis: "data", min_bytes: 1 << 12 }).unwrap() } else { model };
        let mut training = compile_step(model, DeviceAdamW::new(), |model: &Mlp<Autodiff<F32>>, batch| {
            let loss = model.loss(AutodiffModule::<Autodiff<F32>>::from_inner(batch));
            (loss.clone(), loss.inner())
        });
        let mut step = |step| value(training.run(1e-3, Images::synthetic(BATCH, step, device)).unwrap())[0];
        let mut losses = vec![step(0)];
        let before = device.metrics();
        losses.extend((1..20).map(step));
        (losses, before, device.metrics())
    };
    let (expected, before, after) = train(&one);
    let bytes_of_one = after.argument_bytes - before.argument_bytes;
    let (losses, before, after) = train(&mesh);
    for (loss, expected) in losses.iter().zip(&expected) {
        assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{losses:?}\n{expected:?}");
    }
    assert_eq!((after.compiles - before.compiles, after.executions - before.executions), (0, 19));
    // At the calls 2, 4, 8 and 16, to check.
    assert_eq!(after.function_recordings - before.function_recordings, 4);
    let ratio = bytes_of_one as f64 / (after.argument_bytes - before.argument_bytes) as f64;
    assert!(ratio > 7.0, "the arguments of one device of eight are 1/{ratio} of those of one");
}

/// Each device goes on with its own rows of a batch: the parts of it are split as the batch is.
#[test]
fn microbatches_of_a_compiled_step_give_the_losses_of_one_device() {
    let Some((one, [mesh])) = devices(0, [data()]) else { return };
    let train = |device: &TpuDevice, count| {
        F32::seed(device, 42);
        let model = Mlp::<Autodiff<F32>>::new(device);
        let model =
            if device == &mesh { place(model, &Fsdp { axis: "data", min_bytes: 1 << 12 }).unwrap() } else { model };
        let optimizer = DeviceAdamW::new().with_microbatches(count);
        let mut training = compile_step(model, optimizer, |model: &Mlp<Autodiff<F32>>, batch| {
            let loss = model.loss(AutodiffModule::<Autodiff<F32>>::from_inner(batch));
            (loss.clone(), loss.inner())
        });
        let mut step = |step| value(training.run(1e-3, Images::synthetic(BATCH, step, device)).unwrap())[0];
        let mut losses = vec![step(0)];
        let before = device.metrics();
        losses.extend((1..5).map(step));
        (losses, device.metrics().argument_bytes - before.argument_bytes)
    };
    let (expected, _) = train(&one, 1);
    let (_, bytes) = train(&mesh, 1);
    let (losses, bytes_of_parts) = train(&mesh, 2);
    for (loss, expected) in losses.iter().zip(&expected) {
        assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{loss} instead of {expected}");
    }
    // The loop's own scalars are a few bytes, and a row of a batch has 3 KiB.
    assert!(bytes_of_parts < bytes + 1024, "a device has more than its rows of the batch: {bytes_of_parts}, {bytes}");
}

#[test]
fn a_mistake_is_an_error_that_names_it() {
    let Some((_, [mesh])) = devices(4, [data_model()]) else { return };
    let _alone = common::alone();
    let larger = TpuDevice::mesh(Mesh::new().axis("data", 16).on(Platform::Cpu));
    TpuOptions::development().cpu_devices(8).check_numerics(false).install(&larger).ok();
    let error = larger.sync().unwrap_err();
    assert!(
        matches!(error, TpuError::Mesh { .. }) && error.to_string().contains("needs 16 devices, and there are 8"),
        "{error}"
    );
    let model = || Mlp::<F32>::new(&mesh);
    let axis = place(model(), &Fsdp { axis: "rows", min_bytes: 0 }).unwrap_err();
    assert!(axis.to_string().contains("has no axis \"rows\""), "{axis}");
    let uneven = place(model(), &Patterns::new().add("*.bias", [Some("model")])).unwrap_err().to_string();
    assert!(uneven.contains("bias") && uneven.contains("10 elements") && uneven.contains("is 12"), "{uneven}");
    let rank = place(model(), &Patterns::new().add("*.weight", [Some("model")])).unwrap_err().to_string();
    assert!(rank.contains("weight") && rank.contains("rank 2"), "{rank}");
    // The mesh goes on.
    let x = Tensor::<F32, 2>::ones([8, 4], &mesh);
    assert_eq!(value(x.sum()), [32.0]);
}

#[test]
fn a_batch_that_does_not_divide_has_the_same_result() {
    let Some((one, [mesh])) = devices(4, [data()]) else { return };
    let _alone = common::alone();
    let run = |device: &TpuDevice, rows: usize| {
        let x = TensorData::new((0..rows * 3).map(|i| i as f32).collect::<Vec<f32>>(), [rows, 3]);
        value(Tensor::<F32, 2>::from_data(x, device).exp().sum_dim(1))
    };
    for rows in [1, 7, 8, 12] {
        assert_eq!(run(&one, rows), run(&mesh, rows), "{rows} rows");
    }
}

#[test]
fn two_meshes_over_the_same_devices_and_two_threads() {
    let Some((_, [first, second])) = devices(4, [data(), data_model()]) else { return };
    let _alone = common::alone();
    let run = |device: TpuDevice, launches: usize| {
        let x = Tensor::<F32, 2>::ones([8, 16], &device);
        let mut sum = x.clone();
        for _ in 0..launches {
            sum = sum + x.clone().matmul(x.clone().transpose()).matmul(x.clone()) / 128.0;
            device.mark_step();
        }
        assert_eq!(value(sum.slice([0..1, 0..1])), [1.0 + launches as f32]);
    };
    std::thread::scope(|scope| {
        for device in [first, first, second] {
            scope.spawn(move || run(device, LAUNCHES));
        }
    });
}

#[test]
fn what_the_plugin_cannot_split_runs_on_the_host_and_is_counted() {
    let Some((one, [])) = devices(4, []) else { return };
    let mesh = TpuDevice::mesh(data().on(Platform::Cpu).devices([5, 6, 7, 0, 1, 2, 3, 4]));
    TpuOptions::training().cpu_devices(8).interpret_from(0).fallback(FallbackPolicy::Allow).install(&mesh).unwrap();
    let _alone = common::alone();
    let run = |device: &TpuDevice| {
        let x = TensorData::new((0..128).map(|i| (i % 7) as f32).collect::<Vec<f32>>(), [8, 16]);
        let (real, _) = burn::tensor::signal::rfft(Tensor::<F32, 2>::from_data(x, device) * 2.0, 1, None);
        value(real + 1.0)
    };
    let before = mesh.metrics().host_fallbacks;
    let (expected, found) = (run(&one), run(&mesh));
    assert!(expected.iter().zip(&found).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} instead of {expected:?}");
    assert!(
        mesh.metrics().host_fallbacks > before && mesh.metrics().host_fallbacks_by_op.contains_key("stablehlo.fft")
    );
}

#[test]
fn records_are_global_values_that_load_anywhere() {
    let Some((one, [fsdp])) = devices(4, [Mesh::new().axis("fsdp", 8)]) else { return };
    let _alone = common::alone();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let predict = |model: &Mlp<F32>, device: &TpuDevice| {
        let images = Images::<F32>::synthetic(BATCH, 0, device).images;
        model.forward(images).into_data().to_vec::<f32>().unwrap()
    };
    F32::seed(&fsdp, 5);
    let rule = Fsdp { axis: "fsdp", min_bytes: 1024 };
    let model = place(Mlp::<F32>::new(&fsdp), &rule).unwrap();
    let expected = predict(&model, &fsdp);
    let record = recorder.record(model.into_record(), ()).unwrap();
    let load = |device: &TpuDevice| Mlp::<F32>::new(device).load_record(recorder.load(record.clone(), device).unwrap());
    let near = |found: Vec<f32>| found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5);
    assert!(near(predict(&load(&one), &one)), "on one device");
    assert!(near(predict(&load(&fsdp), &fsdp)), "on the mesh");
    assert!(near(predict(&place(load(&fsdp), &rule).unwrap(), &fsdp)), "placed again");
}
