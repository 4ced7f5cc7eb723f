//! Every handle is freed: the counters return to zero. There is one test only, since the counters are global to the
//! process.

mod common;

use std::time::{Duration, Instant};

use burn_tpu_pjrt::{
    Buffer, CompileOptions, ExecuteOptions, HostUse, LiveHandles, Program, live_buffers, live_clients, live_events,
    live_handles, live_loaded_executables,
};
use common::*;

#[test]
fn the_counters_return_to_zero() {
    let Some(client) = cpu_client(2) else { return };
    assert_eq!(live_clients(), 1);
    let adder = client.compile(&add_program(256), &CompileOptions::default()).unwrap();
    let again = client.load_serialized(&adder.executable().serialize().unwrap()).unwrap();
    assert_eq!((live_loaded_executables(), live_handles().executables), (2, 2));
    let device = client.device(0).unwrap();
    let mut x = upload(&device, &[0.0; 256]);
    let one = upload(&device, &[1.0; 256]);
    for _ in 0..1000 {
        let options = ExecuteOptions { non_donatable: &[1], events: true, ..Default::default() };
        let mut execution = adder.execute(&[&[&x, &one]], &options).unwrap();
        x = execution.outputs[0].pop().unwrap();
    }
    assert_eq!(read(&x), [1000.0; 256]);
    assert_eq!((live_buffers(), live_events()), (2, 0));
    errors_leak_nothing(&client, &adder);
    let own = |keep| Buffer::from_host_owned(&device, f32s(&[1 << 20]), bytes(&vec![1.0; 1 << 20]), keep).unwrap();
    let owned = [HostUse::ZeroCopy, HostUse::UntilTransferred].map(own);
    assert!(live_handles().host_allocations <= 2);
    // Children keep their parents alive: the client lives until the last of them is dropped.
    drop((client, device, adder));
    assert_eq!(live_clients(), 1);
    assert_eq!(read(&x)[0], 1000.0);
    drop((again, x, one, owned));
    let deadline = Instant::now() + Duration::from_secs(10);
    while live_handles() != LiveHandles::default() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(live_handles(), LiveHandles::default());
}

fn errors_leak_nothing(client: &burn_tpu_pjrt::Client, adder: &burn_tpu_pjrt::LoadedExecutable) {
    let before = live_handles();
    let x = upload(&client.device(0).unwrap(), &[1.0; 256]);
    x.delete().unwrap();
    assert!(x.is_deleted().unwrap() && x.to_host().is_err() && x.ready().and_then(|event| event.wait()).is_err());
    assert!(adder.execute_single(&[&x, &x], &ExecuteOptions::default()).is_err());
    let broken = Program::stablehlo("func.func @main() {", Vec::<burn_tpu_pjrt::TensorSpec>::new()).unwrap();
    assert!(client.compile(&broken, &CompileOptions::default()).is_err());
    drop(x);
    assert_eq!(live_handles(), before);
}
