//! Serialized executables: loaded in this process, in another one, and after damage.

mod common;

use burn_tpu_pjrt::{CompileOptions, ExecuteOptions, PjrtError};
use common::*;

#[test]
fn a_serialized_program_runs_again_and_still_checks_its_arguments() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(2), &CompileOptions::default()).unwrap();
    let bytes = adder.executable().serialize().unwrap();
    drop(adder);
    let adder = client.load_serialized(&bytes).unwrap();
    let device = client.device(0).unwrap();
    let x = upload(&device, &[1.0, 2.0]);
    let options = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    assert_eq!(read(&adder.execute_single(&[&x, &x], &options).unwrap()[0]), [2.0, 4.0]);
    let wrong = upload(&device, &[1.0]);
    assert!(matches!(adder.execute_single(&[&x, &wrong], &options).unwrap_err(), PjrtError::Argument { .. }));
}

#[test]
fn damaged_bytes_never_reach_the_plugin() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(2), &CompileOptions::default()).unwrap();
    let bytes = adder.executable().serialize().unwrap();
    let mut random = Xorshift(11);
    for _ in 0..200 {
        let mut damaged = bytes.clone();
        let bit = random.next() as usize % (bytes.len() * 8);
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = client.load_serialized(&damaged).unwrap_err();
        assert!(matches!(error, PjrtError::Serialized { .. }), "bit {bit}: {error}");
    }
    for length in [0, 8, 40, 100, bytes.len() - 1] {
        assert!(matches!(client.load_serialized(&bytes[..length]).unwrap_err(), PjrtError::Serialized { .. }));
    }
    client.load_serialized(&bytes).unwrap();
}

#[test]
fn a_program_for_too_many_devices_is_refused() {
    let (Some(two), Some(one)) = (cpu_client(2), cpu_client(1)) else { return };
    let adder = two.compile(&add_program(2), &CompileOptions::default().replicas(2)).unwrap();
    let error = one.load_serialized(&adder.executable().serialize().unwrap()).unwrap_err();
    assert!(error.to_string().contains("2 devices"), "{error}");
}

#[test]
fn another_process_loads_a_serialized_program() {
    const FILE: &str = "BURN_TPU_PJRT_TEST_FILE";
    let Some(client) = cpu_client(1) else { return };
    if let Some(file) = std::env::var_os(FILE) {
        let adder = client.load_serialized(&std::fs::read(file).unwrap()).unwrap();
        let x = upload(&client.device(0).unwrap(), &[4.0]);
        let options = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
        assert_eq!(read(&adder.execute_single(&[&x, &x], &options).unwrap()[0]), [8.0]);
        return;
    }
    let adder = client.compile(&add_program(1), &CompileOptions::default()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), adder.executable().serialize().unwrap()).unwrap();
    passes_in_child("another_process_loads_a_serialized_program", &[(FILE, file.path().to_str().unwrap())]);
}
