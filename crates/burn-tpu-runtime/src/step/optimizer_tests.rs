//! Optimizers beside the references of `benches/optimizers.py`.

use super::tensors::TensorList;
use super::{Computed, DeviceOptimizer, Parameter, TrainingStep};
use crate::leaves::Leaves;
use crate::ops::testing::{devices, tensor, values};
use crate::ops::{arithmetic::cast, data::to_device};
use crate::{Device, Tensor};
use burn_tpu_graph::DType;
use serde_json::Value;

const STEPS: usize = 20;
const RATE: f32 = 2e-3;
const PARAMETERS: [(&str, &[usize]); 3] = [("wide", &[64, 80]), ("tall", &[40, 24]), ("vector", &[96])];

type Step = TrainingStep<TensorList, TensorList>;

fn parameter(name: &str, dims: &[usize]) -> Tensor {
    let count = dims.iter().product::<usize>();
    tensor((0..count).map(|at| (((at * 7919 + name.len() * 13) % 1009) as f32 - 504.0) / 504.0), dims)
}

fn gradient(name: &str, dims: &[usize], step: usize) -> Tensor {
    let noise = |at: usize| (((at * 6007 + step * 3571 + name.len() * 101) % 997) as f64 - 498.0) / 498.0;
    let count = dims.iter().product::<usize>();
    tensor((0..count).map(|at| (noise(at) * 10f64.powi(-((at % 4) as i32))) as f32), dims)
}

fn list() -> Leaves<TensorList> {
    Leaves::new(TensorList::visit, |list: TensorList, device| list.moved(device))
}

/// A step whose batch is its gradients.
fn step(optimizer: DeviceOptimizer, dtype: DType, device: Device) -> Step {
    step_of(&PARAMETERS, optimizer, dtype, device)
}

/// A step of these parameters. Those of three dims are stacked layers.
fn step_of(parameters: &[(&str, &[usize])], optimizer: DeviceOptimizer, dtype: DType, device: Device) -> Step {
    let parameter = |&(name, dims): &(&str, &[usize])| {
        let value = to_device(cast(parameter(name, dims), dtype), &device);
        Parameter { path: name.to_owned(), layers: usize::from(dims.len() == 3), value, is_trained: true }
    };
    let parameters = parameters.iter().map(parameter).collect();
    TrainingStep::new(device, parameters, optimizer, list(), list(), |parameters, batch: TensorList, _| Computed {
        gradients: batch.0.into_iter().map(Some).collect(),
        parameters,
        result: TensorList::default(),
    })
}

fn run(step: &mut Step, number: usize, device: Device) {
    run_of(&PARAMETERS, step, number, device);
}

fn run_of(parameters: &[(&str, &[usize])], step: &mut Step, number: usize, device: Device) {
    let gradients = parameters.iter().map(|(name, dims)| to_device(gradient(name, dims, number), &device));
    step.run(RATE, TensorList(gradients.collect())).expect("a step");
}

fn optimizers() -> [(&'static str, DeviceOptimizer); 5] {
    let optimizers = [
        ("adam", DeviceOptimizer::new()),
        ("eight_bits", DeviceOptimizer::eight_bits()),
        ("lion", DeviceOptimizer::lion()),
        ("adafactor", DeviceOptimizer::adafactor()),
        ("muon", DeviceOptimizer::muon(|_, _| true)),
    ];
    optimizers.map(|(name, optimizer)| (name, optimizer.with_epsilon(1e-8).with_weight_decay(0.1)))
}

#[test]
fn each_optimizer_is_that_of_its_paper() {
    let references: Value = serde_json::from_str(include_str!("optimizers.json")).expect("the references");
    for device in devices() {
        for (name, optimizer) in optimizers() {
            let mut step = step(optimizer, DType::F32, device);
            (1..=STEPS).for_each(|number| run(&mut step, number, device));
            for ((parameter, dims), found) in PARAMETERS.into_iter().zip(step.parameters()) {
                let every = if dims.len() == 1 { 7 } else { 97 };
                let found = values(found).into_iter().step_by(every);
                let expected = references[name][parameter].as_array().expect("numbers");
                assert!(expected.len() > 9);
                for (found, expected) in found.zip(expected) {
                    let expected = expected.as_f64().expect("a number");
                    assert!(
                        (found - expected).abs() < 1e-5,
                        "{name}, {parameter} on {device}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Returns the bytes of the state of the parameters.
fn bytes(step: &Step) -> usize {
    let of_parameter = |(name, tensor): &(String, Tensor)| {
        let count = tensor.dims().iter().product::<usize>() * tensor.element().size_bytes();
        if name.contains('.') { count } else { 0 }
    };
    step.optimizer_state().iter().map(of_parameter).sum()
}

#[test]
fn the_state_of_an_optimizer_takes_what_it_says() {
    let (wide, tall, vector) = (64 * 80, 40 * 24, 96);
    let all = wide + tall + vector;
    let expected = [
        8 * all,
        // Two bytes and two scales of each block, of which there are three.
        2 * 3 * 2048 + 3 * 8 + 8 * (tall + vector),
        4 * all,
        4 * (64 + 80 + 40 + 24 + 96),
        4 * (wide + tall) + 8 * vector,
    ];
    for ((name, optimizer), expected) in optimizers().into_iter().zip(expected) {
        let device = Device::ndarray();
        assert_eq!(bytes(&step(optimizer.clone(), DType::F32, device)), expected, "{name}");
        assert_eq!(bytes(&step(optimizer, DType::BF16, device)), expected + 4 * all, "{name} with masters");
    }
}

#[test]
fn a_step_goes_on_from_the_state_of_each_optimizer() {
    let device = Device::ndarray();
    for (name, optimizer) in optimizers() {
        let [mut whole, mut second] = [(); 2].map(|()| step(optimizer.clone(), DType::BF16, device));
        run(&mut whole, 1, device);
        second.load(whole.parameters(), whole.optimizer_state());
        [&mut whole, &mut second].into_iter().for_each(|step| run(step, 2, device));
        for (whole, second) in whole.parameters().into_iter().zip(second.parameters()) {
            assert_eq!(values(whole), values(second), "{name}");
        }
    }
}

/// Stacked layers are updated one after another, and a table in parts.
#[test]
fn state_in_the_hosts_memory_changes_no_value() {
    let parameters: [(&str, &[usize]); 3] = [("stack", &[3, 24, 16]), ("table", &[256, 64]), ("vector", &[96])];
    for device in devices() {
        for (name, optimizer) in optimizers() {
            // A table is a matrix to the others, and has no parts.
            let parameters = if matches!(name, "adam" | "lion") { &parameters[..] } else { &parameters[..1] };
            let [there, here] = [optimizer.clone().with_state_on_host(), optimizer].map(|optimizer| {
                let mut step = step_of(parameters, optimizer, DType::BF16, device);
                (1..=2).for_each(|number| run_of(parameters, &mut step, number, device));
                step
            });
            let state = |step: &Step| step.optimizer_state().into_iter().collect::<std::collections::BTreeMap<_, _>>();
            let (there, here) = (state(&there), state(&here));
            assert_eq!(there.keys().collect::<Vec<_>>(), here.keys().collect::<Vec<_>>());
            for (of, tensor) in there {
                let pairs = values(tensor).into_iter().zip(values(here[&of].clone()));
                let furthest = pairs.map(|(there, here)| (there - here).abs()).fold(0.0, f64::max);
                assert!(furthest <= 1e-6, "{name}, {of} on {device}: {furthest}");
            }
        }
    }
}
