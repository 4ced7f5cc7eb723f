//! The CUDA plugin: it loads on any machine and reports clearly that there is no GPU. Skipped where it is missing.

mod common;

use burn_tpu_pjrt::{Client, ClientOptions, CompileOptions, ExecuteOptions, PluginKind, presence};
use common::*;

#[test]
fn the_cuda_plugin_loads_and_runs_if_it_can() {
    const TEST: &str = "the_cuda_plugin_loads_and_runs_if_it_can";
    if !is_child() {
        return passes_in_child(TEST, &[]);
    }
    let Some(plugin) = plugin(PluginKind::Cuda) else { return };
    let client = match Client::new(plugin, &ClientOptions::cuda_memory(0.1, false).unwrap()) {
        Ok(client) => client,
        Err(error) => {
            assert!(!presence::nvidia_gpu_present(), "{error}");
            assert!(error.code().is_some(), "{error}");
            return;
        }
    };
    let adder = client.compile(&add_program(2), &CompileOptions::default()).unwrap();
    let x = upload(&client.device(0).unwrap(), &[1.0, 2.0]);
    let options = ExecuteOptions { non_donatable: &[0, 1], ..Default::default() };
    assert_eq!(read(&adder.execute_single(&[&x, &x], &options).unwrap()[0]), [2.0, 4.0]);
}
