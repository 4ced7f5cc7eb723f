//! The communication of a step on a mesh, as golden numbers: on the CPU plugin, and ahead of time for a slice.

use crate::common;

use burn::backend::Autodiff;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::optim::{GradientsParams, Optimizer};
use burn::tensor::{Tensor, TensorData};
use burn_tpu::fit::{Collective, Costly, Fit, FitReport, SliceFit, Verdict};
use burn_tpu::{Fsdp, Mesh, Optimization, Patterns, PlacementRule, Replicate, Tpu, TpuDevice, place};
use burn_tpu_graph::lower::{Argument, lower};
use burn_tpu_pjrt::{Client, ClientOptions, CompileOptions, HloModule};
use burn_tpu_runtime::testing::{self, with_level};
use burn_tpu_workspace::models::{Images, Mlp, adam, train_step};
use common::programs;

type B = Autodiff<Tpu<f32>>;

const BATCH: usize = 128;

/// The parameters of the [`Mlp`].
const PARAMETERS: u64 = 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10;

fn data(devices: usize) -> Mesh {
    Mesh::new().axis("data", devices)
}

fn model(device: &TpuDevice, rule: &impl PlacementRule) -> Mlp<B> {
    place(Mlp::new(device), rule).unwrap()
}

#[test]
fn data_parallel_training_is_one_all_reduce() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let build = |device: &burn_tpu_runtime::Device| (model(&(*device).into(), &Replicate), adam(), None);
    let step = |(model, mut optimizer, _), device: &burn_tpu_runtime::Device| {
        let batch = Images::synthetic(BATCH, 0, &(*device).into());
        let (model, loss) = train_step(model, &mut optimizer, 1e-3, batch);
        (model, optimizer, Some(loss))
    };
    let programs = testing::recorded_on(data(8), build, step).unwrap();
    let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
    let placement = program.placement().unwrap();
    let lowered = lower(program).unwrap();
    let local = |argument: &Argument| match argument {
        Argument::Parameter { index, ty, .. } => placement.parameters[*index as usize].local(ty, &placement.mesh),
        Argument::Slots { ty, .. } => ty.clone(),
    };
    let specs: Vec<_> = lowered.arguments.iter().map(|argument| programs::spec(&local(argument))).collect();
    let text = burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), specs).unwrap();
    let client = Client::new(plugin, &ClientOptions::cpu(8).unwrap()).unwrap();
    let options = CompileOptions::default().partitions(8).shardy(true);
    let executable = client.compile(&text, &options).unwrap();
    let code = executable.executable().optimized_program().unwrap().code;
    let found = HloModule::parse(&code).unwrap().collectives;
    // All gradients and the loss.
    let [one] = &found[..] else { panic!("{found:?}") };
    assert_eq!((one.kind, one.operand_bytes), ("all-reduce", 4 * (PARAMETERS + 1)), "{one:?}");
}

fn fit(slice: &str, mesh: Mesh, rule: &impl PlacementRule) -> FitReport {
    let build = |device: &TpuDevice| (model(device, rule), adam(), None);
    let step = |(model, mut optimizer, _), device: &TpuDevice| {
        let (model, loss) = train_step(model, &mut optimizer, 1e-3, Images::synthetic(BATCH, 0, device));
        (model, optimizer, Some(loss))
    };
    let fit = Fit::new().unwrap().slices([slice.parse().unwrap()]).samples(BATCH as u64).mesh(mesh);
    fit.run(build, step).unwrap()
}

/// Attention that is trained on a slice whose axis `data` divides the sequences and `tensor` the heads, at a level of
/// rewrites.
fn attention(level: Optimization) -> SliceFit {
    type B = Autodiff<Tpu>;
    let [heads, width, sequence, batch] = [4, 256, 1024, 4];
    let rule = ["query", "key", "value"].iter().fold(Patterns::new(), |rule, layer| {
        let bias = rule.add(format!("{layer}.bias"), [Some("tensor")]);
        bias.add(format!("{layer}.weight"), [None, Some("tensor")])
    });
    let rule = rule.add("output.weight", [Some("tensor"), None]);
    let build = |device: &TpuDevice| {
        let model = MultiHeadAttentionConfig::new(width, heads).with_dropout(0.1).init::<B>(device);
        (place(model, &rule).unwrap(), adam(), None)
    };
    let step = |(model, mut optimizer, _), device: &TpuDevice| {
        let x = Tensor::from_data(TensorData::zeros::<f32, _>([batch, sequence, width]), device);
        let seen = MhaInput::self_attn(x).mask_attn(generate_autoregressive_mask(batch, sequence, device));
        let loss = MultiHeadAttention::<B>::forward(&model, seen).context.powf_scalar(2.0).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let model = Optimizer::step(&mut optimizer, 1e-3, model, gradients);
        (model, optimizer, Some(loss))
    };
    let mesh = Mesh::new().axis("data", 2).axis("tensor", 2);
    let fit = Fit::new().unwrap().slices(["v5e:2x2".parse().unwrap()]).mesh(mesh);
    let report = with_level(level, || fit.run(build, step)).unwrap();
    let kernels = report.step.rewrites.get("flash_attention").copied();
    assert_eq!(kernels, (level == Optimization::Aggressive).then_some(1), "{:?}", report.step.rewrites);
    report.slices.into_iter().next().unwrap()
}

/// Every chip runs the kernels on its sequences and heads, and exchanges no more than without them.
#[test]
fn attention_in_kernels_is_divided_over_a_slice() {
    if !common::has_libtpu() {
        return;
    }
    let [plain, kernels] = [Optimization::Balanced, Optimization::Aggressive].map(attention);
    assert_eq!((&plain.verdict, &kernels.verdict), (&Verdict::Fits, &Verdict::Fits));
    let exchanged = |slice: &SliceFit| -> Vec<(String, u64)> {
        slice.collectives.iter().map(|of| (of.kind.clone(), of.operand_bytes)).collect()
    };
    assert_eq!(exchanged(&kernels), exchanged(&plain));
    let is_kernel = |costly: &Costly| costly.instruction.starts_with("kernel flash_attention");
    assert!(kernels.costliest.iter().any(is_kernel), "{:?}", kernels.costliest);
    assert!(kernels.memory.temporary_bytes < plain.memory.temporary_bytes);
}

fn total(collectives: &[Collective], kind: &str) -> (usize, u64) {
    let of_kind = || collectives.iter().filter(|collective| collective.kind == kind);
    (of_kind().map(|collective| collective.count).sum(), of_kind().map(|collective| collective.operand_bytes).sum())
}

#[test]
fn memory_and_communication_on_a_slice_follow_the_layout() {
    if !common::has_libtpu() {
        return;
    }
    let whole = fit("v5e:2x2", data(4), &Replicate);
    let split = fit("v5e:2x2", data(4), &Fsdp { axis: "data", min_bytes: 1024 });
    let [whole, split] = [&whole.slices[0], &split.slices[0]];
    assert_eq!((&whole.verdict, &split.verdict), (&Verdict::Fits, &Verdict::Fits));
    // All gradients and the loss.
    let [one] = &whole.collectives[..] else { panic!("{:?}", whole.collectives) };
    let expected = ("all-reduce", 1, 4 * (PARAMETERS + 1));
    assert_eq!((one.kind.as_str(), one.count, one.operand_bytes), expected);
    assert_eq!(one.axes, ["data"]);
    // The batch is smaller than the weights, so some of the products exchange it instead.
    for (kind, most_count, most_bytes) in [
        ("all-reduce", 2, 14_380),
        ("all-gather", 6, 285_056),
        ("all-to-all", 2, 98_304),
        ("reduce-scatter", 1, 2_228_224),
    ] {
        let (count, bytes) = total(&split.collectives, kind);
        assert!(count <= most_count && bytes <= most_bytes, "{kind}: {:?}", split.collectives);
    }
    // Weights and two moments in f32, nearly all of them split in four.
    assert!(whole.memory.argument_bytes > 12 * PARAMETERS, "{:?}", whole.memory);
    assert!(split.memory.argument_bytes < 12 * PARAMETERS / 3, "{:?}", split.memory);
    let speed = whole.speed.unwrap();
    assert!(speed.communication_seconds > 0.0 && whole.mesh.as_deref() == Some("data=4"));
}

/// libtpu names the devices of an exchange by the axes of a mesh.
#[test]
fn weights_are_gathered_along_their_axis_alone() {
    if !common::has_libtpu() {
        return;
    }
    let mesh = data(4).axis("fsdp", 4);
    let report = fit("v5e:4x4", mesh, &Fsdp { axis: "fsdp", min_bytes: 1024 });
    let collectives = &report.slices[0].collectives;
    let gathers: Vec<_> = collectives.iter().filter(|collective| collective.kind == "all-gather").collect();
    assert!(!gathers.is_empty() && gathers.iter().all(|gather| gather.axes == ["fsdp"]), "{collectives:?}");
    assert!(gathers.iter().all(|gather| gather.moved_bytes == 3 * gather.operand_bytes), "{collectives:?}");
}

#[test]
fn slices_communicate_over_the_data_centers_network() {
    if !common::has_libtpu() {
        return;
    }
    let report = fit("2xv5e:2x2", Mesh::new().axis("slice", 2).axis("data", 4), &Replicate);
    let report = &report.slices[0];
    assert_eq!((&report.verdict, report.chips, report.devices), (&Verdict::Fits, 8, 8));
    let between = report.collectives.iter().filter(|collective| collective.across_slices);
    let [between] = &between.collect::<Vec<_>>()[..] else { panic!("{:?}", report.collectives) };
    assert_eq!((between.kind.as_str(), &between.axes[..]), ("all-reduce", &["slice".to_owned()][..]));
    // The gradients and the loss are first added within a slice, so that each device sends a quarter of them, and padding.
    let quarter = PARAMETERS + 1;
    assert!((quarter..quarter * 11 / 10).contains(&between.operand_bytes), "{:?}", report.collectives);
    let within = report.collectives.iter().filter(|collective| !collective.across_slices);
    assert!(within.clone().count() > 0 && within.clone().all(|c| c.axes == ["data"]), "{:?}", report.collectives);
    // The network is slower than the links.
    let seconds = between.moved_bytes as f64 / 3.125e9;
    assert_eq!(report.speed.unwrap().communication_seconds, seconds);
}
