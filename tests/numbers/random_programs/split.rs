//! Splits a program between host and device, as a device does with values that wait on the host.

use super::trial::Trial;
use burn_tpu_graph::{Bindings, Source, Split};
use burn_tpu_runtime::testing::interpret_program;

/// Returns the device's part with its inputs and the number of its transfers, after a check that both parts compute the same
/// bits as the whole; `None` if there is nothing to split. `choice` says which parameters are on the host.
pub fn device_part(whole: &Trial, choice: usize) -> Option<(Trial, usize)> {
    let on_host = |index: u32| match choice {
        0 => true,
        1 => index.is_multiple_of(2),
        2 => !index.is_multiple_of(3),
        _ => false,
    };
    let split = Split::of(&whole.program, on_host).unwrap()?;
    let (host, host_inputs) = &split.host;
    let parameters: Vec<_> = host_inputs.parameters.iter().map(|&i| whole.parameters[i as usize].clone()).collect();
    let on_host = interpret_program(host, &parameters, &slots(host_inputs, whole)).unwrap();
    let transferred: Vec<Vec<u8>> = split
        .transfers
        .iter()
        .map(|transfer| transfer.results.iter().flat_map(|&result| on_host[result].iter().copied()).collect())
        .collect();
    let (device, inputs) = &split.device;
    let parameter = |&index: &u32| match index.checked_sub(split.first_transfer) {
        Some(transfer) => transferred[transfer as usize].clone(),
        None => whole.parameters[index as usize].clone(),
    };
    let parameters: Vec<_> = inputs.parameters.iter().map(parameter).collect();
    let slots = slots(inputs, whole);
    let on_device = interpret_program(device, &parameters, &slots).unwrap();
    let expected = interpret_program(&whole.program, &whole.parameters, &whole.slots).unwrap();
    let mut errors = Vec::new();
    for (i, (source, expected)) in split.outputs.iter().zip(&expected).enumerate() {
        let found = match *source {
            Source::Host(result) => &on_host[result],
            Source::Device(result) => {
                errors.push(whole.errors[i]);
                &on_device[result]
            }
        };
        assert_eq!(found, expected, "output {i} from {source:?} of\n{}", whole.described());
    }
    let program = (**device).clone();
    Some((Trial { program, parameters, slots, errors }, split.transfers.len()))
}

fn slots(inputs: &Bindings, whole: &Trial) -> Vec<u64> {
    inputs.slots.iter().map(|&index| whole.slots[index as usize]).collect()
}
