//! libtpu on a machine without a TPU: topologies and compiling ahead of time. Skipped where libtpu is missing, unless
//! `BURN_TPU_REQUIRE_LIBTPU=1`. Every test runs in a separate process: libtpu takes over signal handlers and reads its
//! environment once.

mod common;

use burn_tpu_pjrt::{
    Client, ClientOptions, Code, CompileOptions, HloModule, OptimizationLevel, PjrtError, Plugin, Program,
    TopologyDescription, Value,
};
use common::*;

/// Returns libtpu in a child process; `None` in the parent, after the child has run.
fn libtpu(test: &str, variables: &[(&str, &str)]) -> Option<Plugin> {
    if !is_child() {
        passes_in_child(test, variables);
        return None;
    }
    common::libtpu()
}

#[test]
fn topologies_are_described_by_name() {
    let Some(libtpu) = libtpu("topologies_are_described_by_name", &[]) else { return };
    assert_eq!(std::env::var("TPU_SKIP_MDS_QUERY").as_deref(), Ok("1"), "loading set the environment");
    for (name, devices) in [("v5e:2x2", 4), ("v5e:1x1", 1), ("v6e:2x2", 4), ("v5p:2x2x1", 4), ("tpu7x:2x2x1", 8)] {
        let topology = TopologyDescription::new(libtpu, name, &[]).unwrap();
        assert_eq!((topology.platform_name(), topology.devices().len()), ("tpu", devices), "{name}");
        assert!(!topology.serialize().unwrap().is_empty());
    }
    let v5e = TopologyDescription::new(libtpu, "v5e:2x2", &[]).unwrap();
    assert!(v5e.devices()[0].kind.contains("v5"), "{}", v5e.devices()[0].kind);
    let coords = v5e.devices()[3].attributes.get("coords");
    assert!(matches!(coords, Some(Value::Ints(coords)) if coords.len() == 3), "{coords:?}");
    let megacore = TopologyDescription::new(libtpu, "v4:2x2x1", &[("chip_config_name", "megacore".into())]).unwrap();
    assert_eq!(megacore.devices().len(), 4);
    let unknown = TopologyDescription::new(libtpu, "v99:2x2", &[]).unwrap_err();
    assert_eq!(unknown.code(), Some(Code::InvalidArgument), "{unknown}");
    assert!(matches!(TopologyDescription::new(libtpu, "", &[]).unwrap_err(), PjrtError::Option { .. }));
}

#[test]
fn programs_compile_for_tpus_that_are_not_attached() {
    let Some(libtpu) = libtpu("programs_compile_for_tpus_that_are_not_attached", &[]) else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:2x2", &[]).unwrap();
    let options = CompileOptions::default().optimization_level(OptimizationLevel::O1);
    let executable = topology.compile(&add_program(1024), &options).unwrap();
    assert_eq!(executable.outputs()[0].to_string(), "f32[1024]");
    let memory = executable.memory_stats().unwrap();
    assert!(memory.code_bytes > 0 && memory.peak_bytes > 0 && memory.alias_bytes == 4096, "{memory:?}");
    assert!(executable.cost_analysis().unwrap().get("optimal_seconds").is_some());
    assert!(!executable.fingerprint().unwrap().is_empty() && executable.code_size().unwrap() > 0);
    assert!(!executable.optimized_program().unwrap().code.is_empty());
    assert!(!executable.serialize().unwrap().is_empty());
    let typo = CompileOptions::default().set("xla_tpu_no_such_option", true);
    assert_eq!(topology.compile(&add_program(1), &typo).unwrap_err().code(), Some(Code::InvalidArgument));
    let many = CompileOptions::default().replicas(5);
    assert!(matches!(topology.compile(&add_program(1), &many).unwrap_err(), PjrtError::CompileOptions { .. }));
    let large = "func.func @main(%x: tensor<100000x100000xf32>) -> tensor<100000x100000xf32> {
        %0 = stablehlo.add %x, %x : tensor<100000x100000xf32>
        return %0 : tensor<100000x100000xf32>
    }";
    let large = Program::stablehlo(large, [f32s(&[100_000, 100_000])]).unwrap();
    let full = topology.compile(&large, &CompileOptions::default()).unwrap_err();
    assert_eq!(full.code(), Some(Code::ResourceExhausted), "{full}");
    assert_eq!(full.fault(), burn_tpu_pjrt::Fault::Environment);
}

/// Returns a program that runs the same body `trips` times.
fn loop_program(trips: u32) -> Program {
    let text = format!(
        "func.func @main(%x: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {{
            %zero = stablehlo.constant dense<0> : tensor<i32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %trips = stablehlo.constant dense<{trips}> : tensor<i32>
            %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<1024x1024xf32>
            cond {{
                %c = stablehlo.compare LT, %i, %trips : (tensor<i32>, tensor<i32>) -> tensor<i1>
                stablehlo.return %c : tensor<i1>
            }} do {{
                %d = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
                    : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
                %n = stablehlo.add %i, %one : tensor<i32>
                stablehlo.return %n, %d : tensor<i32>, tensor<1024x1024xf32>
            }}
            return %r#1 : tensor<1024x1024xf32>
        }}"
    );
    Program::stablehlo(text.as_str(), [f32s(&[1024, 1024])]).unwrap()
}

#[test]
fn estimated_cycles_count_every_trip_of_a_loop() {
    let Some(libtpu) = libtpu("estimated_cycles_count_every_trip_of_a_loop", &[]) else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    let cycles = |trips| {
        let executable = topology.compile(&loop_program(trips), &CompileOptions::default()).unwrap();
        let module = HloModule::parse(&executable.optimized_program().unwrap().code).unwrap();
        let body = module.instructions.iter().filter(|node| !node.in_entry && node.cycles.is_some_and(|c| c > 1000));
        assert!(body.clone().count() > 0 && body.clone().all(|node| node.runs == u64::from(trips)), "{module:#?}");
        module.cycles().unwrap() as f64
    };
    let (few, many) = (cycles(50), cycles(5000));
    assert!((80.0..=100.5).contains(&(many / few)), "{few} and {many} cycles");
}

#[test]
fn a_missing_tpu_is_an_error_at_once_and_the_cpu_plugin_still_runs() {
    let Some(libtpu) = libtpu("a_missing_tpu_is_an_error_at_once_and_the_cpu_plugin_still_runs", &[]) else { return };
    let error = Client::new(libtpu, &ClientOptions::default()).unwrap_err();
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    let Some(client) = cpu_client(1) else { return };
    assert_ne!(client.plugin(), libtpu);
    let adder = client.compile(&add_program(1), &CompileOptions::default()).unwrap();
    let x = upload(&client.device(0).unwrap(), &[1.0]);
    let sum = adder
        .execute_single(&[&x, &x], &burn_tpu_pjrt::ExecuteOptions { non_donatable: &[0, 1], ..Default::default() });
    assert_eq!(read(&sum.unwrap()[0]), [2.0]);
    // A platform refuses another platform's bytes before its plugin sees them.
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    let bytes = topology.compile(&add_program(1), &CompileOptions::default()).unwrap().serialize().unwrap();
    let error = client.load_serialized(&bytes).unwrap_err();
    assert!(matches!(error, PjrtError::Serialized { .. }) && error.to_string().contains("written by [tpu"), "{error}");
}

#[test]
fn the_allowed_flags_are_known_to_libtpu() {
    let folder = tempfile::tempdir().unwrap();
    let flags = allowed_flags(folder.path());
    let Some(libtpu) = libtpu("the_allowed_flags_are_known_to_libtpu", &[("XLA_FLAGS", &flags)]) else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    topology.compile(&add_program(1), &CompileOptions::default()).unwrap();
}
