//! A full device is an ordinary error, and the next program runs.

mod common;

use burn_tpu_pjrt::{CompileOptions, ExecuteOptions, Program, TensorSpec};
use common::*;

#[test]
fn a_program_that_needs_too_much_memory_fails_and_the_next_one_runs() {
    let Some(client) = cpu_client(1) else { return };
    let none = Vec::<TensorSpec>::new();
    let huge = "tensor<1099511627776xf32>";
    let output = format!("func.func @main() -> {huge} {{ %0 = stablehlo.iota dim = 0 : {huge}\n return %0 : {huge} }}");
    let scratch = format!(
        "func.func @main() -> tensor<f32> {{\n %0 = stablehlo.iota dim = 0 : {huge}\n %z = stablehlo.constant \
         dense<0.0> : tensor<f32>\n %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] : \
         ({huge}, tensor<f32>) -> tensor<f32>\n return %1 : tensor<f32>\n}}"
    );
    for text in [output, scratch] {
        let executable = client.compile(&Program::stablehlo(text, none.clone()).unwrap(), &CompileOptions::default());
        let outputs = executable.unwrap().execute_single(&[], &ExecuteOptions::default());
        let error = outputs.and_then(|outputs| outputs[0].wait()).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
    let adder = client.compile(&add_program(1), &CompileOptions::default()).unwrap();
    let x = upload(&client.device(0).unwrap(), &[1.0]);
    let options = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    assert_eq!(read(&adder.execute_single(&[&x, &x], &options).unwrap()[0]), [2.0]);
}
