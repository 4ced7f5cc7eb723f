//! A compile that exceeds its time limit: the read fails with a typed error, and a later read uses the result. The device
//! has an impossible limit.

use crate::common;

use burn::tensor::{Tensor, TensorData};
use burn_tpu::{Tpu, TpuOptions, metrics};
use std::time::Duration;

type B = Tpu<f32>;

/// Records enough different ops to keep a compiler busy.
fn long_program(x: &Tensor<B, 2>) -> Tensor<B, 2> {
    (0..100).fold(x.clone(), |y, _| y.clone().matmul(x.clone()).tanh() + y.exp().sum_dim(1))
}

#[test]
fn a_compile_past_its_time_limit_is_an_error_and_its_result_is_used_later() {
    // The program's numbers are not finite, and to find out why would be a second compile.
    let options = TpuOptions::development().check_numerics(false).compile_timeout(Duration::from_nanos(1));
    let Some(device) = common::cpu_with("an impossible limit", options) else { return };
    let x = Tensor::<B, 2>::from_data(TensorData::from([[0.5f32, -0.5], [0.25, 0.0]]), &device);
    let error = format!("{:?}", long_program(&x).try_into_data().expect_err("a nanosecond is too short"));
    for part in ["program", "nodes is not compiled after", "BURN_TPU_COMPILE_TIMEOUT_S"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    // Tensors that do not need the program are unaffected.
    assert_eq!(x.clone().into_data().to_vec::<f32>().expect("f32 data"), [0.5, -0.5, 0.25, 0.0]);
    let mut tries = 0;
    let value = loop {
        match long_program(&x).try_into_data() {
            Ok(data) => break data,
            Err(error) => assert!(format!("{error:?}").contains("not compiled after"), "{error:?}"),
        }
        tries += 1;
        assert!(tries < 60_000, "the compile never ends");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(value.num_elements(), 4);
    assert_eq!(metrics(&device).compiles, 1, "one compile for all reads");
}
