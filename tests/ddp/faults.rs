//! A device that does not come, and a thread that panics: the others get an error.

use super::training::{Data, Model, fit};
use super::{Inner, all_reduce, devices, impatient};
use burn::backend::Autodiff;
use burn::tensor::Tensor;
use burn::tensor::backend::distributed::ReduceOperation;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_device_that_does_not_come_is_an_error_of_the_read() {
    let Some(devices) = impatient() else { return };
    let _alone = super::common::alone();
    let x = Tensor::<Inner, 1>::from_floats([1.0, 2.0], &devices[0]);
    let result = all_reduce(x.clone(), ReduceOperation::Sum, &devices);
    let error = format!("{:?}", (result.clone() + 1.0).try_into_data().expect_err("the other device did not call"));
    assert!(error.contains("cpu:5 did not call all_reduce within 2 s"), "{error}");
    assert!(result.try_into_data().is_err());
    // What does not depend on it is not concerned, and the group works again.
    assert_eq!(super::values(x.clone()), [1.0, 2.0]);
    let y = Tensor::<Inner, 1>::from_floats([3.0, 4.0], &devices[1]);
    let results = [x, y].map(|x| all_reduce(x, ReduceOperation::Sum, &devices));
    assert_eq!(results.map(super::values), [[4.0, 6.0], [4.0, 6.0]]);
}

#[test]
fn devices_that_give_different_shapes_get_an_error() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let results = [2, 3]
        .into_iter()
        .zip(&devices)
        .map(|(size, device)| all_reduce(Tensor::<Inner, 1>::ones([size], device), ReduceOperation::Sum, &devices));
    for result in results.collect::<Vec<_>>() {
        let error = format!("{:?}", result.try_into_data().expect_err("the shapes differ"));
        assert!(error.contains("asks for the Sum of f32[3]"), "{error}");
    }
}

/// A part whose program fails concerns its reduction alone.
#[test]
fn a_failed_part_fails_its_reduction() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    let failed = |device| {
        let data = burn::tensor::TensorData::new(vec![1.0f32; 2], [2]);
        let x = Tensor::<Inner, 1>::from_data(data, device);
        // The group has another device, so the tensor is on none of it.
        all_reduce(x, ReduceOperation::Sum, &super::impatient().expect("the plugin is there"))
    };
    let good =
        devices.iter().map(|device| all_reduce(Tensor::<Inner, 1>::ones([2], device), ReduceOperation::Sum, &devices));
    let good: Vec<_> = good.collect();
    let bad: Vec<_> = devices.iter().map(|device| all_reduce(failed(device), ReduceOperation::Sum, &devices)).collect();
    assert!(bad.into_iter().all(|x| x.try_into_data().is_err()));
    assert!(good.into_iter().all(|x| super::values(x) == [2.0, 2.0]));
}

/// In Burn's Learner, a thread panics in its step; the training ends with an error, and the next one works.
#[test]
fn a_thread_that_panics_ends_the_training() {
    let Some(devices) = devices(2) else { return };
    let _alone = super::common::alone();
    for panics_on in [0, 1] {
        let model = Model::<Autodiff<Inner>>::new(&devices[0]);
        let data = Data { items: 32, panics_at: Some((devices[panics_on].index(), 3)), ..Data::default() };
        let outcome = catch_unwind(AssertUnwindSafe(|| fit(model.clone(), data, &devices)));
        assert!(outcome.is_err(), "the training went on without device {panics_on}");
        let (losses, _) = fit(model, Data { items: 32, ..Data::default() }, &devices);
        assert_eq!(losses.len(), 8);
    }
}
