//! `burn_tpu::fit`: a step is recorded once and evaluated for every generation; a step that does not fit is a result that
//! lists its buffers.

use crate::common;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::tensor::activation::{relu, softmax};
use burn::tensor::backend::Backend;
use burn::tensor::ops::QuantizedTensor;
use burn::tensor::quantization::{QTensorPrimitive, QuantValue};
use burn::tensor::{Distribution, Tensor};
use burn_tpu::fit::{BufferKind, Fit, FitReport, Specs, Verdict};
use burn_tpu::{DeviceAdamW, Generation, Topology, Tpu, TpuDevice, compile_step};

#[derive(Module, Debug)]
struct Mlp<B: Backend> {
    layers: Vec<Linear<B>>,
}

/// Trains layers of one width with Adam, one step after another.
fn train(fit: &Fit, layers: usize, width: usize, batch: usize) -> FitReport {
    type B = Autodiff<Tpu>;
    let build = |device: &TpuDevice| {
        let layers = (0..layers).map(|_| LinearConfig::new(width, width).init(device)).collect();
        (Mlp::<B> { layers }, AdamConfig::new().init(), None)
    };
    let step = |(model, mut optimizer, _): (Mlp<B>, _, Option<Tensor<B, 1>>), device: &TpuDevice| {
        let x = Tensor::<B, 2>::random([batch, width], Distribution::Default, device);
        let y = model.layers.iter().fold(x, |x, layer| relu(layer.forward(x)));
        let loss = softmax(y, 1).powf_scalar(2.0).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let model = Optimizer::<Mlp<B>, B>::step(&mut optimizer, 1e-3, model, gradients);
        (model, optimizer, Some(loss))
    };
    fit.run(build, step).expect("the step computes something")
}

fn one(generation: Generation) -> [Topology; 1] {
    [generation.chip()]
}

#[test]
fn the_memory_speed_price_and_buffers_of_a_step_that_fits_agree() {
    if !common::has_libtpu() {
        return;
    }
    let (layers, width, batch) = (2, 260, 512);
    let fit = Fit::new().unwrap().slices(one(Generation::V5e)).samples(batch as u64);
    let report = train(&fit, layers, width, batch);
    assert!(report.step.settled && report.step.programs == 1, "{:?}", report.step);
    // The forward pass, and two products per layer in the backward pass, except the gradient of the input.
    let product = 2 * (batch * width * width) as u64;
    assert_eq!(report.step.matrix_flops, product * (3 * layers as u64 - 1));
    let [slice] = &report.slices[..] else { panic!("{report:?}") };
    assert_eq!(slice.verdict, Verdict::Fits);
    let memory = &slice.memory;
    // Weights and two moments; bf16 in tiles of 8 x 128.
    let weight = (264 * 384 * 2) as u64;
    assert!(memory.argument_bytes >= 3 * layers as u64 * weight, "{memory:?}");
    assert!(memory.alias_bytes >= 3 * layers as u64 * weight, "the state is donated: {memory:?}");
    assert!(memory.peak_bytes >= memory.argument_bytes && memory.peak_bytes < memory.limit_bytes, "{memory:?}");
    let buffers = &slice.buffers;
    assert!(buffers.len() == 10 && buffers.is_sorted_by(|a, b| a.bytes >= b.bytes), "{buffers:?}");
    let weights =
        buffers.iter().filter(|buffer| buffer.shape == "bf16[260,260]" && buffer.kind == BufferKind::Argument);
    assert!(weights.clone().count() > 0, "{buffers:?}");
    assert!(weights.clone().all(|buffer| buffer.bytes == weight && buffer.padding_bytes == weight - 260 * 260 * 2));
    assert!(weights.clone().any(|buffer| buffer.op == "linear"), "{buffers:?}");
    let speed = slice.speed.expect("it compiled");
    assert!(speed.fusions > 0 && speed.hbm_bytes > 0 && speed.hbm_bytes <= speed.bytes_accessed, "{speed:?}");
    assert!(speed.mfu > 0.0 && speed.mfu <= 1.0 + 1e-9, "{speed:?}");
    let cycles = speed.estimated_cycles.expect("the compiler estimates its instructions");
    assert!((speed.estimated_seconds.unwrap() / (cycles as f64 / 1.5e9) - 1.0).abs() < 1e-9, "{speed:?}");
    let costliest = &slice.costliest;
    assert!(costliest.len() == 10 && costliest.is_sorted_by(|a, b| a.cycles >= b.cycles), "{costliest:?}");
    assert!(costliest.iter().map(|costly| costly.cycles).sum::<u64>() <= cycles, "{costliest:?}");
    assert!(costliest.iter().any(|costly| costly.op.starts_with("linear") && costly.runs > 0), "{costliest:?}");
    // Each op has its line: those of the forward pass, those of the gradients, and the optimizer's.
    let lines: Vec<_> = costliest.iter().map(|costly| &costly.line).chain(buffers.iter().map(|b| &b.line)).collect();
    assert!(lines.iter().all(|line| line.starts_with("tests/ahead_of_time/fit.rs:")), "{lines:?}");
    assert!(lines.iter().any(|line| line.ends_with(", optimizer")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(", gradient of linear")), "{lines:?}");
    assert!(lines.iter().any(|line| !line.contains(", ")), "{lines:?}");
    assert_eq!(report.step.rewrites.get("linear_activation"), Some(&2), "{:?}", report.step.rewrites);
    let price = slice.price.expect("v5e has a price");
    let expected = 1.2 / 3600.0 * speed.roofline_seconds / batch as f64 * 1e6;
    assert!((price.usd_per_million_samples.unwrap() / expected - 1.0).abs() < 1e-9, "{price:?}");
    assert_eq!(price.usd_per_million_tokens, None);
    assert!(slice.advice.iter().any(|advice| advice.advice.contains("260 is 4 above 256")), "{:?}", slice.advice);
    let table = report.to_string();
    assert!(
        table.contains("v5e:1x1")
            && table.contains("largest buffers")
            && table.contains("rewrites: linear_activation 2"),
        "{table}"
    );
}

#[test]
fn a_compiled_step_fits_as_the_recorded_one() {
    if !common::has_libtpu() {
        return;
    }
    type B = Autodiff<Tpu>;
    let (layers, width, batch) = (2, 260, 512);
    let fit = Fit::new().unwrap().slices(one(Generation::V5e));
    let build = |device: &TpuDevice| {
        let layers = (0..layers).map(|_| LinearConfig::new(width, width).init(device)).collect();
        let training = compile_step(Mlp::<B> { layers }, DeviceAdamW::new(), |model: &Mlp<B>, x: Tensor<Tpu, 2>| {
            let x = Tensor::<B, 2>::from_inner(x);
            let y = model.layers.iter().fold(x, |x, layer| relu(layer.forward(x)));
            let loss = softmax(y, 1).powf_scalar(2.0).mean();
            (loss.clone(), loss.inner())
        });
        (training, None)
    };
    let report = fit.run(build, |(mut training, _), device| {
        let x = Tensor::random([batch, width], Distribution::Default, device);
        let loss = training.run(1e-3, x).expect("it compiles");
        (training, Some(loss))
    });
    let report = report.expect("the step computes something");
    let product = 2 * (batch * width * width) as u64;
    assert_eq!(report.step.matrix_flops, product * (3 * layers as u64 - 1), "{:?}", report.step);
    let [slice] = &report.slices[..] else { panic!("{report:?}") };
    assert_eq!(slice.verdict, Verdict::Fits);
    // A weight in bf16, its master copy and two moments in f32, all updated in place.
    let weight = (264 * 384 * (2 + 3 * 4)) as u64;
    assert!(slice.memory.alias_bytes >= layers as u64 * weight, "{:?}", slice.memory);
}

#[test]
fn a_step_that_does_not_fit_lists_its_buffers_and_fits_a_larger_slice() {
    if !common::has_libtpu() {
        return;
    }
    // Activations of 600000 x 4096 in bf16 are 4.6 GiB each: 28 GiB on a v5e of 16, and v5p has 95.
    let fit = Fit::new().unwrap().slices([Generation::V5e.chip(), Generation::V5p.chip()]);
    let report = train(&fit, 6, 4096, 600_000);
    let [small, large] = &report.slices[..] else { panic!("{report:?}") };
    assert!(matches!(&small.verdict, Verdict::OutOfMemory { message } if message.contains("15.75G")), "{small:?}");
    assert!(small.memory.peak_bytes > small.memory.limit_bytes, "{:?}", small.memory);
    let of = |op: &str| small.buffers.iter().any(|b| b.shape == "bf16[600000,4096]" && b.op == op);
    assert!(of("linear") && of("linear_x_backward"), "{:?}", small.buffers);
    let suggestions = small.suggestions.join("\n");
    assert!(suggestions.contains("BalancedCheckpointing") && suggestions.contains("v5p"), "{suggestions}");
    assert!(small.speed.is_none() && small.price.is_none());
    assert!(large.fits(), "{large:?}");
    assert_eq!(report.by_cost()[0].topology, "v5p:1x1x1");
}

#[test]
fn a_refusal_of_libtpu_is_an_entry_of_the_report_and_the_next_slice_works() {
    if !common::has_libtpu() {
        return;
    }
    let fit = Fit::new().unwrap().slices(one(Generation::V6e)).compiler_flag("xla_tpu_no_such_option", "1");
    let report = train(&fit, 1, 8, 8);
    let Verdict::Failed { message } = &report.slices[0].verdict else { panic!("{report:?}") };
    assert!(message.contains("xla_tpu_no_such_option"), "{message}");
    let unknown: Topology = "v6e:3x3".parse().unwrap();
    let report = train(&Fit::new().unwrap().slices([unknown, Generation::V6e.chip()]), 1, 8, 8);
    assert!(matches!(report.slices[0].verdict, Verdict::Failed { .. }) && report.slices[1].fits(), "{report:?}");
}

#[test]
fn a_step_without_results_is_an_error() {
    let fit = Fit::new().unwrap().slices([]);
    let nothing = fit.run(|_| (), |(), device| drop(Tensor::<Tpu<f32>, 1>::ones([3], device) + 1.0));
    assert!(matches!(nothing, Err(burn_tpu::TpuError::Step { .. })), "{nothing:?}");
}

#[test]
fn a_loop_that_never_settles_is_reported() {
    let fit = Fit::new().unwrap().slices([]);
    let grow = |x: Tensor<Tpu<f32>, 1>, device: &TpuDevice| Tensor::cat(vec![x, Tensor::ones([1], device)], 0);
    let report = fit.run(|device| Tensor::ones([1], device), grow).unwrap();
    assert!(!report.step.settled && report.to_string().contains("compiles at every step"), "{report}");
}

/// The memory limits in the built-in figures are those that libtpu reports for its devices.
#[test]
fn the_usable_memory_of_every_generation_matches_libtpu() {
    if !common::has_libtpu() {
        return;
    }
    let libtpu = burn_tpu_pjrt::Plugin::find(burn_tpu_pjrt::PluginKind::Tpu, None).unwrap();
    let specs = Specs::builtin().unwrap();
    for generation in Generation::ALL {
        let name = generation.chip().to_string();
        let topology = burn_tpu_pjrt::TopologyDescription::new(libtpu, &name, &[]).unwrap();
        let spec = specs.of(generation);
        assert_eq!(topology.devices().len(), spec.devices_per_chip as usize, "{name}");
        let limit = topology.attributes().iter().chain(topology.devices()[0].attributes.iter());
        let limit =
            limit.filter(|(name, _)| *name == "device_memory_bytes_limit").map(|(_, value)| value.clone()).next();
        let Some(burn_tpu_pjrt::Value::Int(limit)) = limit else { panic!("{name} reports no limit: {limit:?}") };
        // For v4, libtpu reports the limit of a chip.
        let devices = if generation == Generation::V4 { 2 } else { 1 };
        let difference = (limit as f64 / devices as f64 / spec.usable_bytes() as f64 - 1.0).abs();
        assert!(difference < 0.001, "{name}: {limit} and {}", spec.usable_bytes());
    }
}

/// A product of two quantized tensors is one of integers, which v5e computes at twice the rate of bf16.
#[test]
#[allow(clippy::print_stdout, reason = "the figures are for people")]
fn products_of_8_bits_take_fewer_cycles_than_those_of_16() {
    if !common::has_libtpu() {
        return;
    }
    let scheme = <QuantizedTensor<Tpu> as QTensorPrimitive>::default_scheme().with_value(QuantValue::Q8S);
    let cycles = |is_quantized: bool| {
        let build = |device: &TpuDevice| {
            let of = |dims| {
                let floats = Tensor::<Tpu, 2>::random(dims, Distribution::Default, device);
                if is_quantized { floats.quantize_dynamic(&scheme) } else { floats }
            };
            (of([2048, 4096]), of([4096, 4096]), None)
        };
        let step = |(x, w, _): (Tensor<Tpu, 2>, Tensor<Tpu, 2>, Option<_>), _: &TpuDevice| {
            let product = x.clone().matmul(w.clone());
            (x, w, Some(product))
        };
        let generations = [Generation::V5e, Generation::V6e, Generation::Tpu7x];
        let fit = Fit::new().unwrap().slices(generations.map(Generation::chip));
        let report = fit.run(build, step).expect("the step computes something");
        let cycles = report.slices.iter().map(|slice| slice.speed.as_ref()?.estimated_cycles);
        cycles.collect::<Option<Vec<_>>>().expect("the compiler estimates a product")
    };
    let (floats, integers) = (cycles(false), cycles(true));
    println!("bf16 {floats:?}, 8 bits {integers:?} cycles on v5e, v6e, tpu7x");
    assert!(integers[0] * 10 < floats[0] * 6 && integers[1] * 10 < floats[1] * 9, "{floats:?}, {integers:?}");
}
