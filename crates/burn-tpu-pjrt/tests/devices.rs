//! Several devices on the CPU plugin: collectives in one call, placement, copies.

mod common;

use burn_tpu_pjrt::{Buffer, CompileOptions, ExecuteOptions, PjrtError, Program};
use common::*;

const ALL_REDUCE: &str = r#"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"#;

#[test]
fn one_call_runs_an_all_reduce_on_four_devices() {
    let Some(client) = cpu_client(4) else { return };
    let program = Program::stablehlo(ALL_REDUCE, [f32s(&[2])]).unwrap();
    let executable = client.compile(&program, &CompileOptions::default().replicas(4)).unwrap();
    let devices = executable.devices();
    assert_eq!(devices, client.devices());
    for round in 0..20 {
        let base = round as f32;
        let inputs: Vec<Buffer> = devices.iter().map(|device| upload(device, &[base, device.id() as f32])).collect();
        let rows: Vec<[&Buffer; 1]> = inputs.iter().map(|buffer| [buffer]).collect();
        let lists: Vec<&[&Buffer]> = rows.iter().map(|row| &row[..]).collect();
        let execution = executable.execute(&lists, &ExecuteOptions { events: true, ..Default::default() }).unwrap();
        assert_eq!((execution.outputs.len(), execution.events.len()), (4, 4));
        execution.events.iter().for_each(|event| event.wait().unwrap());
        for (outputs, device) in execution.outputs.iter().zip(&devices) {
            assert_eq!(read(&outputs[0]), [4.0 * base, 6.0]);
            assert_eq!(outputs[0].device(), *device);
        }
    }
}

#[test]
fn partitioned_programs_take_and_return_shards() {
    let Some(client) = cpu_client(4) else { return };
    let sharding = "mhlo.sharding = \"{devices=[4]<=[4]}\"";
    let text = format!(
        "func.func @main(%x: tensor<8xf32> {{{sharding}}}) -> (tensor<8xf32> {{{sharding}}}) {{\n  %0 = stablehlo.add \
         %x, %x : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}}"
    );
    let program = Program::stablehlo(text, [f32s(&[2])]).unwrap();
    let executable = client.compile(&program, &CompileOptions::default().partitions(4)).unwrap();
    let inputs: Vec<Buffer> =
        client.devices().iter().map(|device| upload(device, &[device.id() as f32, 1.0])).collect();
    let rows: Vec<[&Buffer; 1]> = inputs.iter().map(|buffer| [buffer]).collect();
    let lists: Vec<&[&Buffer]> = rows.iter().map(|row| &row[..]).collect();
    let execution = executable.execute(&lists, &ExecuteOptions::default()).unwrap();
    for (position, outputs) in execution.outputs.iter().enumerate() {
        assert_eq!(**outputs[0].spec(), outputs[0].query_spec().unwrap(), "outputs are described per shard");
        assert_eq!(read(&outputs[0]), [2.0 * position as f32, 2.0]);
    }
}

#[test]
fn a_portable_program_runs_on_the_device_that_the_call_names() {
    let Some(client) = cpu_client(2) else { return };
    let adder = client.compile(&add_program(1), &CompileOptions::default().portable(true)).unwrap();
    assert!(adder.devices().is_empty() && adder.executable().is_portable());
    for device in client.devices() {
        let x = upload(&device, &[device.id() as f32]);
        let options = ExecuteOptions { device: Some(&device), non_donatable: &[0, 1], ..Default::default() };
        let sum = adder.execute_single(&[&x, &x], &options).unwrap();
        assert_eq!(read(&sum[0]), [2.0 * device.id() as f32]);
        assert_eq!(sum[0].device(), device);
        let error = adder.execute_single(&[&x, &x], &ExecuteOptions::default()).unwrap_err();
        assert!(matches!(error, PjrtError::Usage { .. }), "{error}");
    }
}

#[test]
fn a_device_assignment_is_followed_and_a_wrong_device_is_an_error() {
    let Some(client) = cpu_client(4) else { return };
    let options = CompileOptions::default().device_assignment(vec![vec![3]]);
    let adder = client.compile(&add_program(1), &options).unwrap();
    assert_eq!(adder.devices().iter().map(|device| device.id()).collect::<Vec<_>>(), [3]);
    let there = upload(&client.device(3).unwrap(), &[5.0]);
    let options = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    assert_eq!(read(&adder.execute_single(&[&there, &there], &options).unwrap()[0]), [10.0]);
    let elsewhere = upload(&client.device(0).unwrap(), &[5.0]);
    assert!(matches!(adder.execute_single(&[&elsewhere, &there], &options).unwrap_err(), PjrtError::Call { .. }));
}

#[test]
fn buffers_are_copied_between_devices() {
    let Some(client) = cpu_client(2) else { return };
    let (first, second) = (client.device(0).unwrap(), client.device(1).unwrap());
    let x = upload(&first, &[1.0, 2.0]);
    let copy = x.copy_to_device(&second).unwrap();
    assert_eq!((read(&copy), copy.device()), (vec![1.0, 2.0], second));
    if let Ok(second_copy) = x.copy_to_device(&first) {
        assert_ne!(second_copy.address().unwrap(), x.address().unwrap(), "a copy does not share memory");
    }
}

#[test]
fn buffers_are_copied_between_memories() {
    let Some(client) = cpu_client(1) else { return };
    let x = upload(&client.device(0).unwrap(), &[1.0, 2.0]);
    assert_eq!(x.memory_kind().unwrap(), "device");
    let on_host = x.copy_to_memory("pinned_host").unwrap();
    assert_eq!((read(&on_host), on_host.memory_kind().unwrap()), (vec![1.0, 2.0], "pinned_host".to_owned()));
    let back = on_host.copy_to_memory("device").unwrap();
    assert_eq!((read(&back), back.memory_kind().unwrap()), (vec![1.0, 2.0], "device".to_owned()));
    let refused = x.copy_to_memory("disk").unwrap_err();
    assert!(refused.to_string().contains("the device has no memory `disk`"), "{refused}");
}

/// After a plugin has refused a launch on several devices, every later launch on its client hangs. So nothing that it would
/// refuse may reach it.
#[test]
fn a_launch_with_a_wrong_argument_is_refused_and_the_next_one_works() {
    let Some(client) = cpu_client(4) else { return };
    let program = Program::stablehlo(ALL_REDUCE, [f32s(&[2])]).unwrap();
    let executable = client.compile(&program, &CompileOptions::default().replicas(4)).unwrap();
    let devices = executable.devices();
    let launch = |inputs: &[&Buffer]| {
        let rows: Vec<[&Buffer; 1]> = inputs.iter().map(|&buffer| [buffer]).collect();
        let lists: Vec<&[&Buffer]> = rows.iter().map(|row| &row[..]).collect();
        let execution = executable.execute(&lists, &ExecuteOptions { events: true, ..Default::default() })?;
        execution.events.iter().for_each(|event| event.wait().unwrap());
        Ok::<_, PjrtError>(read(&execution.outputs[0][0]))
    };
    let inputs: Vec<Buffer> = devices.iter().map(|device| upload(device, &[1.0, 2.0])).collect();
    let [a, b, c, d] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]];
    let deleted = upload(&devices[3], &[1.0, 2.0]);
    deleted.delete().unwrap();
    let longer = upload(&devices[3], &[1.0, 2.0, 3.0]);
    let refused: [(&str, &[&Buffer], &str); 4] = [
        ("a list too few", &[a, b, c], "devices"),
        ("swapped devices", &[b, a, c, d], "is on device 1 of the client, not on device 0"),
        ("a deleted buffer", &[a, b, c, &deleted], "was deleted"),
        ("another shape", &[a, b, c, &longer], "f32[3]"),
    ];
    for (name, inputs, part) in refused {
        let error = launch(inputs).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
        assert_eq!(launch(&[a, b, c, d]).unwrap(), [4.0, 8.0], "after {name}");
    }
}
