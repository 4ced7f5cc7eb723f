//! Reductions by threads that come in any order.

use super::{Inner, all_reduce, devices, ids, values};
use burn::tensor::backend::distributed::{DistributedBackend, ReduceOperation};
use burn::tensor::{Tensor, TensorPrimitive};
use burn_tpu::{Mesh, Platform, TpuDevice};
use std::time::Duration;

fn tensor(numbers: &[f32], device: &TpuDevice) -> Tensor<Inner, 1> {
    Tensor::from_floats(numbers, device)
}

/// As the test of Burn's own suite: one thread asks for one device after the other.
#[test]
fn one_thread_asks_for_one_device_after_the_other() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    for (op, expected) in [(ReduceOperation::Sum, [5.0, 7.0, 9.0]), (ReduceOperation::Mean, [2.5, 3.5, 4.5])] {
        let parts = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let given = parts.iter().zip(&devices).map(|(part, device)| tensor(part, device));
        let results: Vec<_> = given.map(|x| all_reduce(x, op, &devices)).collect();
        for (result, device) in results.into_iter().zip(&devices) {
            assert_eq!(result.device(), *device);
            assert_eq!(values(result), expected, "{op:?}");
        }
    }
}

#[test]
fn a_group_of_one_device_and_values_of_every_shape() {
    let Some(devices) = devices(3) else { return };
    let _alone = super::common::alone();
    assert_eq!(values(all_reduce(tensor(&[1.0, 2.0], &devices[0]), ReduceOperation::Sum, &devices[..1])), [1.0, 2.0]);
    let results = devices.iter().map(|device| {
        let x = Tensor::<Inner, 3>::ones([2, 3, 5], device) * (device.index() as f32 + 1.0);
        (all_reduce(x, ReduceOperation::Sum, &devices), all_reduce(tensor(&[], device), ReduceOperation::Sum, &devices))
    });
    for (full, empty) in results.collect::<Vec<_>>() {
        assert_eq!(values(full), [6.0; 30]);
        assert!(values(empty).is_empty());
    }
}

/// What is recorded with a result that is not there yet waits for it; nothing waits before the read.
#[test]
fn a_result_may_be_used_before_the_other_device_is_asked() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    for round in 0..3 {
        let x = |device: &TpuDevice| tensor(&[1.0, 2.0], device) * (device.index() as f32 + 1.0 + round as f32);
        let first = all_reduce(x(&devices[0]), ReduceOperation::Sum, &devices) * 10.0;
        let second = all_reduce(x(&devices[1]), ReduceOperation::Sum, &devices) * 10.0;
        let again = all_reduce(first.clone(), ReduceOperation::Sum, &devices) + 1.0;
        let later = all_reduce(second, ReduceOperation::Sum, &devices) + 1.0;
        let sum = 10.0 * (3.0 + 2.0 * round as f32);
        assert_eq!(values(again), [2.0 * sum + 1.0, 4.0 * sum + 1.0]);
        assert_eq!(values(later), [2.0 * sum + 1.0, 4.0 * sum + 1.0]);
        assert_eq!(values(first), [sum, 2.0 * sum]);
    }
}

/// Threads of four devices, which start each round after different pauses, reduce over all devices and over pairs; the two
/// pairs of a device in either order.
#[test]
fn threads_in_any_order() {
    let Some(devices) = devices(4) else { return };
    let _alone = super::common::alone();
    let pairs =
        [[devices[0], devices[1]], [devices[2], devices[3]], [devices[0], devices[2]], [devices[1], devices[3]]];
    let compiles = || TpuDevice::mesh(Mesh::new().axis("data", 4).on(Platform::Cpu).devices(0..4)).metrics().compiles;
    let mut warm = 0;
    for round in 0..12 {
        std::thread::scope(|scope| {
            for (rank, device) in devices.iter().enumerate() {
                let (devices, pairs) = (&devices, &pairs);
                scope.spawn(move || {
                    for step in 0..4 {
                        let pause = (round * 7919 + rank * 104_729 + step * 15_485_863) % 3000;
                        std::thread::sleep(Duration::from_micros(pause as u64));
                        let x = Tensor::<Inner, 2>::ones([4, 3], device) * (rank as f32 + 1.0);
                        let mut own: Vec<_> = pairs.iter().filter(|pair| pair.contains(device)).collect();
                        if (round + rank) % 2 == 0 {
                            own.reverse();
                        }
                        let all = |x: &Tensor<Inner, 2>, op| all_reduce(x.clone(), op, devices);
                        let (sum, mean) =
                            (all(&x, ReduceOperation::Sum), all(&(x.clone() * 2.0), ReduceOperation::Mean));
                        let of_pairs =
                            own.into_iter().map(|pair| (pair, all_reduce(x.clone(), ReduceOperation::Sum, pair)));
                        let of_pairs: Vec<_> = of_pairs.collect();
                        assert_eq!(values(sum * 2.0), [20.0; 12], "round {round}, step {step}");
                        assert_eq!(values(mean), [5.0; 12], "round {round}, step {step}");
                        for (pair, result) in of_pairs {
                            let expected = pair.iter().map(|device| device.index() as f32 + 1.0).sum::<f32>();
                            assert_eq!(values(result), [expected; 12], "round {round}, step {step}");
                        }
                    }
                });
            }
        });
        if round == 0 {
            warm = compiles();
        }
    }
    assert!(warm > 0 && compiles() <= warm + 1, "{warm} programs in the first round, {} in all", compiles());
}

/// All of a step's reductions are one program, whichever order they come in.
#[test]
fn a_batch_is_one_program() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let mesh = TpuDevice::mesh(Mesh::new().axis("data", 2).on(Platform::Cpu).devices(0..2));
    let mut seen = Vec::new();
    for round in 0..4_usize {
        let before = mesh.metrics();
        let parts = |device: &TpuDevice| -> Vec<Tensor<Inner, 2>> {
            (1..6).map(|rows| Tensor::<Inner, 2>::ones([rows, 2], device) + rows as f32).collect()
        };
        let parts: Vec<_> = devices.iter().map(parts).collect();
        let mut results = vec![Vec::new(); 2];
        for i in 0..5 {
            // Another order in every round.
            let which = (i * 2 + round) % 5;
            for (device, results) in results.iter_mut().enumerate() {
                let x = parts[device][which].clone().into_primitive().tensor();
                let result = Inner::all_reduce(x, ReduceOperation::Sum, ids(&devices));
                results.push((which, result));
            }
        }
        devices.iter().for_each(Inner::sync_collective);
        for (which, result) in results.into_iter().flatten() {
            let result = Tensor::<Inner, 2>::from_primitive(TensorPrimitive::Float(result.resolve()));
            assert_eq!(values(result), vec![2.0 * (which as f32 + 2.0); 2 * (which + 1)]);
        }
        let after = mesh.metrics();
        seen.push((after.executions - before.executions, after.compiles - before.compiles));
    }
    assert!(seen.iter().all(|(executions, _)| *executions == 1), "{seen:?}");
    assert!(seen[1..].iter().all(|(_, compiles)| *compiles == 0), "{seen:?}");
}
