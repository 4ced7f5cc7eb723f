//! Recording and cutting: what runs when, in how many programs, and with which identity.

use crate::common;

use burn::tensor::backend::Backend;
use burn::tensor::module::ctc_loss;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{CutReason, Metrics, Tpu, TpuDevice, TpuOptions, mark_step, metrics, program_keys};
use common::{alone, counted};
use std::sync::mpsc;

type B = Tpu<f32>;

fn vector(device: &TpuDevice, values: &[f32]) -> Tensor<B, 1> {
    Tensor::from_data(TensorData::from(values), device)
}

fn values<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32 data")
}

#[test]
fn a_read_materialises_everything_alive_in_one_program() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let x = vector(&device, &[1.0, 2.0, 3.0]);
    let (sum, product) = (x.clone() + 1.0, x.clone() * 2.0);
    let ((), count) = counted(&device, || {
        assert_eq!(values(sum), [2.0, 3.0, 4.0]);
        assert_eq!(values(product), [2.0, 4.0, 6.0]);
    });
    assert_eq!(count.executions, 1, "{count:?}");
}

#[test]
fn dead_work_never_runs_and_costs_no_program() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let ((), count) = counted(&device, || {
        let x = vector(&device, &[1.0, 2.0]);
        drop(x.clone().exp().sum());
        mark_step(&device);
        drop(x);
    });
    assert_eq!((count.executions, count.compiles), (0, 0));
}

#[test]
fn scalars_that_change_every_step_hit_the_cache() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let mut x = vector(&device, &[1.0; 16]);
    let mut expected = 1.0f32;
    let ((), count) = counted(&device, || {
        for step in 0..40 {
            // 0 and 1 are among them: no value is special.
            let rate = step as f32 / 20.0;
            x = x.clone() * rate + (1.0 - rate);
            expected = expected * rate + (1.0 - rate);
            mark_step(&device);
        }
    });
    assert_eq!(count.executions, 40);
    assert!(count.compiles <= 1, "{count:?}");
    assert!((values(x)[0] - expected).abs() < 1e-5);
}

#[test]
fn a_buffer_without_owners_is_donated_and_a_shared_one_is_not() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |x: Tensor<B, 1>| {
        let y = x * 2.0;
        mark_step(&device);
        y
    };
    let x = step(vector(&device, &[3.0; 1024]));
    let (x, owned) = counted(&device, || step(x));
    assert_eq!(owned.donated, 1);
    let kept = x.clone();
    let (y, shared) = counted(&device, || step(x));
    assert_eq!((shared.donated, shared.compiles), (0, 0), "donation is not part of the program");
    assert_eq!(values(kept)[0], 12.0);
    assert_eq!(values(y)[0], 24.0);
}

/// Another thread reads a tensor while its owner continues to record: the programs do not depend on the timing.
#[test]
fn a_read_by_another_thread_cuts_at_the_tensor() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let run = |early: bool| {
        B::memory_cleanup(&device);
        let x = vector(&device, &[1.0, 2.0, 3.0, 4.0]);
        let bias = vector(&device, &[0.5; 4]);
        let hidden = x.clone() * 3.0;
        let loss = hidden.clone().sum();
        let (to_worker, loss_of_step) = mpsc::channel::<Tensor<B, 1>>();
        let (to_main, read) = mpsc::channel();
        let worker = std::thread::spawn(move || {
            let loss = loss_of_step.recv().expect("a loss");
            to_main.send(values(loss)[0]).expect("main waits");
        });
        let rest = |hidden: Tensor<B, 1>| (hidden + bias.clone()) * x.clone();
        let (result, read_loss) = if early {
            to_worker.send(loss).expect("the worker waits");
            let read_loss = read.recv().expect("the worker reads");
            (rest(hidden), read_loss)
        } else {
            let result = rest(hidden);
            to_worker.send(loss).expect("the worker waits");
            let read_loss = read.recv().expect("the worker reads");
            (result, read_loss)
        };
        worker.join().expect("the worker ends");
        assert_eq!(read_loss, 30.0);
        assert_eq!(values(result), [3.5, 13.0, 28.5, 50.0]);
        program_keys(&device)
    };
    let (early, late) = (run(true), run(false));
    assert_eq!(early.len(), 2);
    assert_eq!(early, late);
}

#[test]
fn the_order_of_drops_does_not_matter() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let run = |reversed: bool| {
        B::memory_cleanup(&device);
        let x = vector(&device, &[1.0, 2.0]);
        let mut parts: Vec<_> = (0..6).map(|i| x.clone() + i as f32).collect();
        let total = parts.iter().cloned().reduce(|a, b| a * b).expect("parts");
        if reversed {
            parts.reverse();
        }
        drop(parts);
        mark_step(&device);
        drop(total);
        program_keys(&device)
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn a_tensor_made_on_another_thread_joins_this_one() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let made = std::thread::spawn(move || vector(&device, &[1.0, 2.0]) * 10.0).join().expect("made");
    assert_eq!(values(made + 1.0), [11.0, 21.0]);
}

#[test]
fn a_users_mistake_panics_with_op_shapes_and_rule_and_leaves_the_device_usable() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let primitive = |t: Tensor<B, 1>| t.into_primitive().tensor();
    let (x, y) = (primitive(vector(&device, &[1.0; 3])), primitive(vector(&device, &[1.0; 4])));
    let add = || <B as burn_backend::ops::FloatTensorOps<B>>::float_add(x, y);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(add));
    let text = panic.expect_err("dims differ").downcast_ref::<String>().expect("text").clone();
    for part in ["float_add", "f32[3]", "f32[4]", "dims must be equal or 1"] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    assert_eq!(values(vector(&device, &[1.0]) + 1.0), [2.0]);
}

#[test]
fn a_full_trace_is_cut_and_the_results_stay_right() {
    let _alone = common::alone();
    let device = common::interpreter_with("small traces", TpuOptions::training().trace_cap(300));
    let mut x = Tensor::<B, 1, Int>::from_data([0, 0], &device);
    for _ in 0..1_000 {
        x = x + 1;
    }
    assert_eq!(x.into_data().to_vec::<i32>().expect("i32"), [1_000, 1_000]);
    assert!(metrics(&device).cuts[&CutReason::TraceCap] >= 5);
}

/// A tensor of an element type that no device supports: the ops that use it fail with the reason, no others do.
#[test]
fn a_failed_value_only_affects_the_ops_that_use_it() {
    use burn::tensor::quantization::{QuantScheme, QuantValue};
    use burn_backend::ops::FloatTensorOps;
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let scheme = QuantScheme::default().with_value(QuantValue::Q8S);
    let quantized = TensorData::quantized(vec![1i8, 2, 3, 4], [4], scheme, &[0.5]);
    let failed = <B as FloatTensorOps<B>>::float_from_data(quantized, &device);
    let failed = Tensor::<B, 1>::from_primitive(burn::tensor::TensorPrimitive::Float(failed));
    let sound = vector(&device, &[1.0, 2.0, 3.0, 4.0]);
    let (poisoned, unharmed) = (failed + sound.clone(), sound * 2.0);
    mark_step(&device);
    let error = poisoned.try_into_data().expect_err("a quantized float").to_string();
    assert!(error.contains("QFloat") && error.contains(&format!("is not supported on {device}")), "{error}");
    assert_eq!(values(unharmed), [2.0, 4.0, 6.0, 8.0]);
}

/// Ops that run on the host have the same results, and are counted by name. (Denied ones: `tests/processes/errors.rs`.)
#[test]
fn host_fallback_is_counted_by_op() {
    let on_host = TpuOptions::training().interpret_from(0).host_ops([
        "stablehlo.tanh",
        "stablehlo.reverse",
        "stablehlo.log_plus_one",
    ]);
    let Some(device) = common::cpu_with("ops on the host", on_host) else { return };
    let _alone = alone();
    let x = vector(&device, &[0.5, -0.5, 1.0]);
    let y = (x.clone() * 2.0).tanh() + x.clone().flip([0]);
    let (numbers, count) = counted(&device, || values(y));
    let expected = [1.0f32.tanh() + 1.0, (-1.0f32).tanh() - 0.5, 2.0f32.tanh() + 0.5];
    for (number, expected) in numbers.iter().zip(expected) {
        assert!((number - expected).abs() < 1e-6, "{numbers:?}");
    }
    assert_eq!(count.fallbacks, 2);
    assert_eq!(metrics(&device).host_fallbacks_by_op["stablehlo.tanh"], 1);
    // The loss adds logarithms in its loop, which falls back as a whole, and after it.
    let log_probs = Tensor::<B, 3>::full([2, 1, 2], 0.5f32.ln(), &device);
    let length = |length: i32| Tensor::from_data([length], &device);
    let loss = ctc_loss(log_probs, Tensor::from_data([[1]], &device), length(2), length(1), 0);
    let (loss, count) = counted(&device, || values(loss)[0]);
    assert!((loss + 0.75f32.ln()).abs() < 1e-6, "{loss}");
    assert_eq!(count.fallbacks, 2);
    assert_eq!(metrics(&device).host_fallbacks_by_op["graph.for"], 1);
}

/// There are enough ops that some of them are timed.
#[test]
fn the_report_shows_the_time_of_a_step() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let before = metrics(&device);
    let x = (0..64).fold(vector(&device, &[1.0, 2.0]), |x, _| x + 1.0);
    mark_step(&device);
    assert_eq!(values(x), [65.0, 66.0]);
    let after = metrics(&device);
    assert!(after.recorded_ops - before.recorded_ops >= 64, "{after}");
    for time in [Metrics::record_time, Metrics::trace_time, Metrics::read_time] {
        assert!(time(&after) > time(&before), "{after}");
    }
    for time in
        [Metrics::key_time, Metrics::rewrite_time, Metrics::lower_time, Metrics::compile_time, Metrics::dispatch_time]
    {
        assert!(!time(&after).is_zero(), "{after}");
    }
    let report = after.to_string();
    let meter = report.lines().find(|line| line.starts_with("ms per step")).unwrap_or_else(|| panic!("{report}"));
    for part in ["trace ", "record ", "key ", "rewrite ", "lower ", "compile ", "dispatch ", "read "] {
        assert!(meter.contains(part), "{part} is not in {meter}");
    }
}

/// However many threads sync at once, each returns when all that was dispatched before has been computed.
#[test]
fn every_one_of_several_syncs_waits() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let x = Tensor::<B, 2>::full([512, 512], 1e-3, &device);
    let heavy = || (0..24).fold(x.clone(), |y, _| y.matmul(x.clone()).tanh());
    for _ in 0..4 {
        let result = heavy();
        mark_step(&device);
        let value: burn_tpu_runtime::Tensor = result.into_primitive().tensor().into();
        let together = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    together.wait();
                    B::sync(&device).expect("it runs");
                    assert!(burn_tpu_runtime::testing::is_computed(&value), "a sync returned early");
                });
            }
        });
    }
}

/// Dead work, whatever scalars it has, is no part of a program: memory finds the program all the same.
#[test]
fn dead_work_with_scalars_of_its_own_costs_no_compile() {
    let Some(device) = common::cpu() else { return };
    let _alone = alone();
    let step = |dead: usize| {
        let (x, y) = (vector(&device, &[1.0, 2.0]), vector(&device, &[3.0, 4.0]));
        for i in 0..dead {
            drop(y.clone() * i as f32);
        }
        let result = (x.clone() * 0.25 + y) * 3.0;
        mark_step(&device);
        values(result)
    };
    let expected = step(0);
    let keys = program_keys(&device);
    let ((), count) = counted(&device, || (1..4).for_each(|dead| assert_eq!(step(dead), expected)));
    assert_eq!((count.compiles, count.hits, count.executions), (0, 3, 3), "{count:?}");
    assert_eq!(program_keys(&device), keys);
}
