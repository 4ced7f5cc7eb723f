//! burn-collective, which is made of Burn's tensor operations, over several devices.

use super::{Inner, devices};
use burn::tensor::{Tensor, TensorPrimitive};
use burn_collective::{
    AllReduceStrategy, BroadcastStrategy, CollectiveConfig, PeerId, ReduceOperation, ReduceStrategy, all_reduce,
    broadcast, finish_collective, reduce, register, reset_collective,
};
use burn_tpu::TpuDevice;

type Primitive = <Inner as burn::tensor::backend::BackendTypes>::FloatTensorPrimitive;

const ROWS: usize = 6;

fn part(rank: usize, device: &TpuDevice) -> Primitive {
    let x = Tensor::<Inner, 2>::ones([ROWS, 3], device) * (rank as f32 + 1.0);
    x.into_primitive().tensor()
}

fn values(x: Primitive) -> Vec<f32> {
    super::values(Tensor::<Inner, 2>::from_primitive(TensorPrimitive::Float(x)))
}

/// Runs `work` on a thread per device, all of which are peers.
fn peers(config: &CollectiveConfig, devices: &[TpuDevice], work: impl Fn(usize, &TpuDevice) + Sync) {
    reset_collective::<Inner>();
    std::thread::scope(|scope| {
        for (rank, device) in devices.iter().enumerate() {
            let (config, work) = (config.clone(), &work);
            scope.spawn(move || {
                let id = PeerId::from(rank);
                register::<Inner>(id, *device, config).expect("each peer registers once");
                work(rank, device);
                finish_collective::<Inner>(id).expect("the peer is registered");
            });
        }
    });
}

#[test]
fn all_reduces_of_every_strategy() {
    let Some(devices) = devices(4) else { return };
    let _alone = super::common::alone();
    for strategy in [AllReduceStrategy::Centralized, AllReduceStrategy::Tree(2), AllReduceStrategy::Ring] {
        let config = CollectiveConfig::default().with_num_devices(4).with_local_all_reduce_strategy(strategy);
        peers(&config, &devices, |rank, device| {
            for (op, expected) in [(ReduceOperation::Sum, 10.0), (ReduceOperation::Mean, 2.5)] {
                let result = all_reduce::<Inner>(PeerId::from(rank), part(rank, device), op).expect("all peers call");
                assert_eq!(result.device(), *device);
                assert_eq!(values(result), [expected; 3 * ROWS], "{strategy:?} {op:?}");
            }
        });
    }
}

#[test]
fn reductions_to_one_device_and_broadcasts_from_one() {
    let Some(devices) = devices(4) else { return };
    let _alone = super::common::alone();
    let strategies = [
        (ReduceStrategy::Centralized, BroadcastStrategy::Centralized),
        (ReduceStrategy::Tree(2), BroadcastStrategy::Tree(2)),
    ];
    for (of_reduce, of_broadcast) in strategies {
        let config = CollectiveConfig::default().with_num_devices(4);
        let config = config.with_local_reduce_strategy(of_reduce).with_local_broadcast_strategy(of_broadcast);
        peers(&config, &devices, |rank, device| {
            let (id, root) = (PeerId::from(rank), PeerId::from(1));
            let reduced = reduce::<Inner>(id, part(rank, device), ReduceOperation::Sum, root).expect("all peers call");
            assert_eq!(reduced.map(values), (rank == 1).then(|| vec![10.0; 3 * ROWS]), "{of_reduce:?}");
            let given = (rank == 2).then(|| part(6, device));
            // burn-collective 0.21 gives the peer that it takes for the root the sender's tensor, on the sender's device.
            let received = broadcast::<Inner>(id, given).expect("one peer gives a tensor");
            assert_eq!(values(received), [7.0; 3 * ROWS], "{of_broadcast:?}");
        });
    }
}
