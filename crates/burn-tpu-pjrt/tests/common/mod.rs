//! Shared code of the integration tests: finding a plugin or skipping the test, small programs, bytes.

#![allow(dead_code, reason = "each test file uses only some of it")]

use burn_tpu_pjrt::{Buffer, Client, ClientOptions, Device, ElementType, Plugin, PluginKind, Program, TensorSpec};

/// Returns the plugin of this kind, or `None` (after printing a line about it) if there is none and none is required.
pub fn plugin(kind: PluginKind) -> Option<Plugin> {
    burn_tpu_pjrt::testing::plugin(kind).map(|file| Plugin::load(file).expect("a plugin that was found must load"))
}

/// Returns libtpu where it may compile ahead of time.
pub fn libtpu() -> Option<Plugin> {
    burn_tpu_pjrt::testing::libtpu().map(|file| Plugin::load(file).expect("a plugin that was found must load"))
}

pub fn cpu_plugin() -> Option<Plugin> {
    plugin(PluginKind::Cpu)
}

pub fn cpu_client(devices: usize) -> Option<Client> {
    Some(Client::new(cpu_plugin()?, &ClientOptions::cpu(devices).unwrap()).unwrap())
}

pub fn f32s(dims: &[usize]) -> TensorSpec {
    TensorSpec::new(ElementType::F32, dims).unwrap()
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_ne_bytes(chunk.try_into().unwrap())).collect()
}

pub fn upload(device: &Device, values: &[f32]) -> Buffer {
    Buffer::from_host(device, f32s(&[values.len()]), &bytes(values)).unwrap()
}

pub fn read(buffer: &Buffer) -> Vec<f32> {
    floats(&buffer.to_host().unwrap())
}

/// Returns a program for `x + y` on vectors of this length, with both arguments marked as possible donors.
pub fn add_program(length: usize) -> Program {
    let vector = format!("tensor<{length}xf32>");
    let donor = format!("{vector} {{jax.buffer_donor = true}}");
    let text = format!(
        "module @adder {{\n func.func @main(%x: {donor}, %y: {donor}) -> {vector} {{\n  %0 = stablehlo.add %x, %y : \
         {vector}\n  return %0 : {vector}\n }}\n}}"
    );
    Program::stablehlo(text, [f32s(&[length]), f32s(&[length])]).unwrap()
}

/// A small random number generator with the same sequence in every run.
pub struct Xorshift(pub u64);

impl Xorshift {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs one test of this test binary in a child process with these variables set, for effects that cannot be undone in this
/// process or could end it. The test distinguishes the two processes with [`is_child`].
pub fn in_child(test: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--include-ignored"]).env(CHILD, "1");
    // Loading libtpu has to set it by itself.
    command.env_remove("TPU_SKIP_MDS_QUERY").envs(variables.iter().copied());
    command.output().unwrap()
}

/// Same as [`in_child`], for tests that must pass in the child.
pub fn passes_in_child(test: &str, variables: &[(&str, &str)]) {
    let output = in_child(test, variables);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{:?}\n{text}", output.status);
}

pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

const CHILD: &str = "BURN_TPU_PJRT_TEST_CHILD";

/// Returns every flag that `XLA_FLAGS` may hold, with a folder to dump into.
pub fn allowed_flags(folder: &std::path::Path) -> String {
    let folder = folder.display();
    format!(
        "--xla_dump_to={folder} --xla_dump_hlo_as_text=true --xla_dump_hlo_as_proto=false --xla_dump_hlo_as_dot=false \
         --xla_dump_hlo_as_html=false --xla_dump_hlo_as_url=false --xla_dump_hlo_snapshots=false \
         --xla_dump_hlo_module_re=.* --xla_dump_hlo_pass_re=none --xla_dump_include_timestamp=false \
         --xla_dump_max_hlo_modules=9 --xla_dump_module_metadata=false --xla_dump_compress_protos=false \
         --xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0 \
         --xla_llvm_disable_expensive_passes=true"
    )
}
