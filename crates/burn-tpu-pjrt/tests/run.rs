//! Programs on the CPU plugin: upload, compile, run and read, in every way that the API offers.

mod common;

use burn_tpu_pjrt::{Buffer, CompileOptions, ElementType, ExecuteOptions, HostUse, PjrtError, Program, TensorSpec};
use common::*;

#[test]
fn an_add_program_adds() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(3), &CompileOptions::default()).unwrap();
    let device = client.device(0).unwrap();
    let (x, y) = (upload(&device, &[1.0, 2.0, 3.0]), upload(&device, &[10.0, 20.0, 30.0]));
    let sums = adder.execute_single(&[&x, &y], &ExecuteOptions::default()).unwrap();
    assert_eq!(read(&sums[0]), [11.0, 22.0, 33.0]);
    assert_eq!(**sums[0].spec(), sums[0].query_spec().unwrap());
    assert_eq!(sums[0].device(), device);
}

#[test]
fn arrays_of_every_type_and_rank_survive_the_round_trip() {
    let Some(client) = cpu_client(1) else { return };
    let device = client.device(0).unwrap();
    let mut random = Xorshift(7);
    for &element_type in ElementType::ALL {
        for dims in [&[][..], &[0], &[1], &[5], &[2, 3], &[4, 0, 2], &[2, 3, 1, 5], &[1; 9]] {
            let spec = TensorSpec::new(element_type, dims).unwrap();
            let limit = if element_type == ElementType::Pred { 2 } else { 256 };
            let bytes: Vec<u8> = (0..spec.byte_len()).map(|_| (random.next() % limit) as u8).collect();
            let buffer = Buffer::from_host(&device, spec.clone(), &bytes).unwrap();
            assert_eq!(buffer.to_host().unwrap(), bytes, "{spec}");
            assert_eq!(buffer.query_spec().unwrap(), spec);
            let mut into = vec![0; spec.byte_len()];
            buffer.read_into(&mut into).unwrap();
            assert_eq!(into, bytes, "{spec}");
        }
    }
}

#[test]
fn output_specs_are_known_at_compile_time_and_match_the_results() {
    let Some(client) = cpu_client(1) else { return };
    let text =
        "func.func @main(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<i32>, tensor<2x3xi1>, tensor<0xbf16>) {
        %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
        %1 = stablehlo.constant dense<7> : tensor<i32>
        %2 = stablehlo.compare GT, %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
        %3 = stablehlo.constant dense<> : tensor<0xbf16>
        return %0, %1, %2, %3 : tensor<3x2xf32>, tensor<i32>, tensor<2x3xi1>, tensor<0xbf16>
    }";
    let program = Program::stablehlo(text, [f32s(&[2, 3])]).unwrap();
    let executable = client.compile(&program, &CompileOptions::default()).unwrap();
    let texts: Vec<String> = executable.executable().outputs().iter().map(|spec| spec.to_string()).collect();
    assert_eq!(texts, ["f32[3, 2]", "i32[]", "i1[2, 3]", "bf16[0]"]);
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let x = Buffer::from_host(&client.device(0).unwrap(), f32s(&[2, 3]), &bytes(&x)).unwrap();
    let outputs = executable.execute_single(&[&x], &ExecuteOptions::default()).unwrap();
    assert_eq!(read(&outputs[0]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(outputs[1].to_host().unwrap(), 7i32.to_ne_bytes());
    assert_eq!(outputs[2].to_host().unwrap(), [0; 6]);
    for output in &outputs {
        assert_eq!(**output.spec(), output.query_spec().unwrap());
    }
}

#[test]
fn the_call_can_prevent_donations_that_the_program_declares() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(4096), &CompileOptions::default()).unwrap();
    let device = client.device(0).unwrap();
    let (x, y) = (upload(&device, &[1.0; 4096]), upload(&device, &[2.0; 4096]));
    let keep_both = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    let kept = adder.execute_single(&[&x, &y], &keep_both).unwrap();
    assert!(!x.is_deleted().unwrap() && !y.is_deleted().unwrap());
    let (address, keep_y) = (x.address().unwrap(), ExecuteOptions { non_donatable: &[1], ..Default::default() });
    let donated = adder.execute_single(&[&x, &y], &keep_y).unwrap();
    assert!(x.is_deleted().unwrap() && !y.is_deleted().unwrap());
    assert_eq!(donated[0].address().unwrap(), address, "the output reuses the donated memory");
    assert_eq!(read(&kept[0]), read(&donated[0]));
    let again = adder.execute_single(&[&x, &y], &keep_y).unwrap_err();
    assert!(matches!(&again, PjrtError::Call { .. }) && again.to_string().contains("donated"), "{again}");
    assert!(x.to_host().is_err(), "a donated buffer is empty");
    // f(donate(a), a) works if the second use forbids the donation.
    let both = adder.execute_single(&[&y, &y], &ExecuteOptions { non_donatable: &[0, 1], ..Default::default() });
    assert_eq!(read(&both.unwrap()[0])[0], 4.0);
}

#[test]
fn owned_host_memory_is_read_correctly() {
    let Some(client) = cpu_client(1) else { return };
    let device = client.device(0).unwrap();
    let data = bytes(&vec![1.5; 1 << 20]);
    for keep in [HostUse::UntilTransferred, HostUse::ZeroCopy] {
        let spec = f32s(&[1 << 20]);
        let buffer = Buffer::from_host_owned(&device, spec, data.clone(), keep).unwrap();
        assert_eq!(buffer.to_host().unwrap(), data, "{keep:?}");
        drop(buffer);
    }
}

#[test]
fn the_last_client_may_be_dropped_on_a_plugins_thread() {
    for _ in 0..20 {
        let Some(client) = cpu_client(1) else { return };
        let device = client.device(0).unwrap();
        let data = bytes(&vec![1.0; 1 << 20]);
        let buffer = Buffer::from_host_owned(&device, f32s(&[1 << 20]), data, HostUse::UntilTransferred).unwrap();
        // The last owner, this thread or the transfer's callback, drops the client.
        drop((buffer, device, client));
    }
}

#[test]
fn reads_can_run_in_the_background_and_be_dropped() {
    let Some(client) = cpu_client(1) else { return };
    let device = client.device(0).unwrap();
    let buffer = upload(&device, &vec![3.0; 1 << 18]);
    let first = buffer.start_read().unwrap();
    drop(buffer.start_read().unwrap());
    drop(buffer);
    assert_eq!(floats(&first.wait().unwrap()), vec![3.0; 1 << 18]);
}

#[test]
fn events_report_completion_and_call_back() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(2), &CompileOptions::default()).unwrap();
    let x = upload(&client.device(0).unwrap(), &[1.0, 2.0]);
    let options = ExecuteOptions { events: true, non_donatable: &[0, 1], ..Default::default() };
    let execution = adder.execute(&[&[&x, &x]], &options).unwrap();
    let event = execution.events.into_iter().next().unwrap();
    event.wait().unwrap();
    assert!(event.is_ready().unwrap() && event.error().unwrap().is_none());
    let (send, receive) = std::sync::mpsc::channel();
    event.on_ready(move |result| send.send(result.is_ok()).unwrap()).unwrap();
    assert!(receive.recv_timeout(std::time::Duration::from_secs(10)).unwrap());
    execution.outputs[0][0].wait().unwrap();
}

#[test]
fn threads_share_a_client() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(64), &CompileOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (adder, device) = (&adder, client.device(0).unwrap());
            scope.spawn(move || {
                for step in 0..300 {
                    let value = (thread * 1000 + step) as f32;
                    let (x, y) = (upload(&device, &[value; 64]), upload(&device, &[1.0; 64]));
                    let sum = adder.execute_single(&[&x, &y], &ExecuteOptions::default()).unwrap();
                    assert_eq!(read(&sum[0]), [value + 1.0; 64]);
                }
            });
        }
    });
}

#[test]
fn a_compiled_program_reports_its_properties() {
    let Some(client) = cpu_client(1) else { return };
    let adder = client.compile(&add_program(1024), &CompileOptions::default()).unwrap();
    let program = adder.executable();
    assert!(program.name().contains("adder"), "{}", program.name());
    assert_eq!((program.replicas(), program.partitions(), program.is_portable()), (1, 1, false));
    let memory = program.memory_stats().unwrap();
    assert_eq!((memory.argument_bytes, memory.output_bytes), (8192, 4096));
    assert_eq!(memory.alias_bytes, 4096, "one donor is used");
    assert!(program.cost_analysis().unwrap().get("flops").is_some());
    assert!(!program.fingerprint().unwrap().is_empty());
    let optimized = program.optimized_program().unwrap();
    assert!(optimized.format == "hlo_with_config" && !optimized.code.is_empty());
    assert_eq!(program.code_size().unwrap(), 0, "the CPU plugin reports 0");
}

#[test]
fn the_plugin_and_its_devices_describe_themselves() {
    let Some(client) = cpu_client(2) else { return };
    let plugin = client.plugin();
    assert_eq!(plugin, burn_tpu_pjrt::Plugin::load(plugin.path()).unwrap(), "loaded once");
    assert!(plugin.version() >= burn_tpu_pjrt::Version::OLDEST);
    assert!(plugin.attributes().get("xla_version").is_some() && plugin.stablehlo_version().is_some());
    assert_eq!((client.platform_name(), client.process_index(), client.device_count()), ("cpu", 0, 2));
    let devices = client.devices();
    assert_eq!(devices.iter().map(|device| device.id()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(devices[0].description().kind, "cpu");
    let kinds: Vec<&str> = devices[0].memories().iter().map(|memory| memory.kind.as_str()).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    assert_eq!(devices[0].memories().iter().filter(|memory| memory.is_default).count(), 1);
    let stats = devices[0].memory_stats().unwrap_err();
    assert_eq!(stats.code(), Some(burn_tpu_pjrt::Code::Unimplemented));
}
