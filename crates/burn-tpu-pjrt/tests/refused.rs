//! Inputs that would crash the process or be misread are refused before the plugin sees them, with the right error.

mod common;

use burn_tpu_pjrt::{
    Buffer, ClientOptions, Code, CompileOptions, ElementType, ExecuteOptions, Fault, PjrtError, Program, TensorSpec,
};
use common::*;

#[test]
fn wrong_byte_lengths_are_refused() {
    let Some(client) = cpu_client(1) else { return };
    let device = client.device(0).unwrap();
    for length in [0, 11, 13] {
        let error = Buffer::from_host(&device, f32s(&[3]), &vec![0; length]).unwrap_err();
        assert!(matches!(error, PjrtError::ByteLength { expected: 12, given, .. } if given == length), "{error}");
    }
    let buffer = upload(&device, &[1.0, 2.0]);
    let error = buffer.read_into(&mut [0; 7]).unwrap_err();
    assert!(matches!(error, PjrtError::ByteLength { expected: 8, given: 7, .. }), "{error}");
}

#[test]
fn arguments_of_another_type_shape_or_number_are_refused() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(4), &CompileOptions::default()).unwrap();
    let device = client.device(0).unwrap();
    let x = upload(&device, &[1.0; 4]);
    // The size in bytes matches the program's: the plugin would read the integers as floats.
    let ints = TensorSpec::new(ElementType::S32, [4]).unwrap();
    let ints = Buffer::from_host(&device, ints, &[0; 16]).unwrap();
    let square = Buffer::from_host(&device, f32s(&[2, 2]), &[0; 16]).unwrap();
    for wrong in [&ints, &square] {
        let error = adder.execute_single(&[&x, wrong], &ExecuteOptions::default()).unwrap_err();
        assert!(matches!(error, PjrtError::Argument { device: 0, index: 1, .. }), "{error}");
        assert!(error.to_string().contains("f32[4]"), "{error}");
        assert_eq!(error.fault(), Fault::Bug);
    }
    let error = adder.execute_single(&[&x], &ExecuteOptions::default()).unwrap_err();
    assert!(matches!(error, PjrtError::Count { what: "arguments", expected: 2, given: 1, .. }), "{error}");
    let error = adder.execute(&[&[&x, &x], &[&x, &x]], &ExecuteOptions::default()).unwrap_err();
    assert!(matches!(error, PjrtError::Count { what: "devices", expected: 1, given: 2, .. }), "{error}");
    for index in [-1, 2] {
        let options = ExecuteOptions { non_donatable: &[index], ..Default::default() };
        assert!(matches!(adder.execute_single(&[&x, &x], &options).unwrap_err(), PjrtError::Usage { .. }));
    }
    assert!(!x.is_deleted().unwrap(), "a refused call donates nothing");
}

#[test]
fn handles_of_another_client_are_refused() {
    let (Some(ours), Some(other)) = (cpu_client(1), cpu_client(1)) else { return };
    let adder = ours.compile(&add_program(1), &CompileOptions::default()).unwrap();
    let (device, other) = (ours.device(0).unwrap(), other.device(0).unwrap());
    let (x, foreign) = (upload(&device, &[1.0]), upload(&other, &[1.0]));
    let foreign_argument = adder.execute_single(&[&x, &foreign], &ExecuteOptions::default()).unwrap_err();
    let options = ExecuteOptions { device: Some(&other), ..Default::default() };
    let foreign_device = adder.execute_single(&[&x, &x], &options).unwrap_err();
    let foreign_copy = x.copy_to_device(&other).unwrap_err();
    for error in [foreign_argument, foreign_device, foreign_copy] {
        assert!(error.to_string().contains("another client"), "{error}");
    }
    assert!(matches!(ours.device(1).unwrap_err(), PjrtError::Usage { .. }));
}

#[test]
fn compile_options_are_checked_against_the_client() {
    let Some(client) = cpu_client(2) else { return };
    let program = add_program(1);
    for options in [
        CompileOptions::default().partitions(0),
        CompileOptions::default().replicas(0),
        CompileOptions::default().replicas(3),
        CompileOptions::default().device_assignment(vec![vec![2]]),
    ] {
        let error = client.compile(&program, &options).unwrap_err();
        assert!(matches!(error, PjrtError::CompileOptions { .. }), "{error}");
    }
}

#[test]
fn a_compilers_own_errors_keep_code_and_text() {
    let Some(client) = cpu_client(1) else { return };
    let none: [TensorSpec; 0] = [];
    let broken = "func.func @main() -> tensor<2xf32> {\n  %0 = stablehlo.no_such_op : tensor<2xf32>\n}";
    let error = client.compile(&Program::stablehlo(broken, none).unwrap(), &CompileOptions::default()).unwrap_err();
    let PjrtError::Call { call, code, message, path } = &error else { panic!("{error}") };
    assert_eq!((*call, *code), ("PJRT_Client_Compile", Code::Unknown));
    assert!(message.contains("no_such_op") && message.contains(":2:"), "{message}");
    assert_eq!(*path, client.plugin().path());
    // Options that plugins reject themselves: a misspelt one, and one with a wrong type.
    for (options, part) in [
        (CompileOptions::default().set("xla_no_such_option", true), "xla_no_such_option"),
        (CompileOptions::default().set("xla_backend_optimization_level", "high"), "xla_backend_optimization_level"),
    ] {
        let error = client.compile(&add_program(1), &options).unwrap_err();
        assert_eq!(error.code(), Some(Code::InvalidArgument));
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn overrides_of_every_type_reach_the_compiler() {
    let Some(client) = cpu_client(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = CompileOptions::default()
        .set("xla_dump_to", folder.path().to_str().unwrap())
        .set("xla_backend_optimization_level", 1)
        .set("xla_cpu_enable_fast_math", false);
    client.compile(&add_program(1), &options).unwrap();
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 0, "the dump folder is empty");
}

#[test]
fn wrongly_typed_client_options_are_refused() {
    for wrong in [
        ClientOptions::default().set("cpu_device_count", "2"),
        ClientOptions::default().set("cpu_device_count", 0),
        ClientOptions::cpu(0),
        ClientOptions::default().set("num_devices", 2),
    ] {
        assert!(matches!(wrong.unwrap_err(), PjrtError::Option { .. }));
    }
}

#[test]
fn an_unknown_xla_flag_is_an_error_and_all_allowed_ones_are_known() {
    if is_child() {
        let folder = std::env::var("XLA_FLAGS").unwrap().contains("dump_to");
        match cpu_client_or_error() {
            Some(Err(error)) => assert!(matches!(error, PjrtError::XlaFlag { .. }) && !folder, "{error}"),
            Some(Ok(_)) => assert!(folder),
            None => {}
        }
        return;
    }
    let test = "an_unknown_xla_flag_is_an_error_and_all_allowed_ones_are_known";
    passes_in_child(test, &[("XLA_FLAGS", "--xla_no_such_flag=1")]);
    let folder = tempfile::tempdir().unwrap();
    passes_in_child(test, &[("XLA_FLAGS", &allowed_flags(folder.path()))]);
}

fn cpu_client_or_error() -> Option<Result<burn_tpu_pjrt::Plugin, PjrtError>> {
    let found = burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let plugin = burn_tpu_pjrt::Plugin::load(found);
    // The plugin reads the variable when it first compiles, or earlier.
    let compiled = |plugin| {
        let client = burn_tpu_pjrt::Client::new(plugin, &ClientOptions::cpu(1)?)?;
        client.compile(&add_program(1), &CompileOptions::default()).map(|_| plugin)
    };
    Some(plugin.and_then(compiled))
}
