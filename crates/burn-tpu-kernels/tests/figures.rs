//! The figures of `docs/kernels.md` and `docs/decisions/0029`: `cargo test -p burn-tpu-kernels --test figures -- --ignored
//! --nocapture` prints them. They need libtpu, and no TPU.

mod common;

use burn_tpu_kernels::kernels::attention::{Attention, Band};
use burn_tpu_kernels::kernels::{int8_matmul, softmax};
use burn_tpu_kernels::{ArrayType, CustomCall, Element};
use burn_tpu_pjrt::{HloModule, TopologyDescription};
use common::{attention_kernels, compile, compile_program, custom_call, everything, libtpu, tensor};

/// Returns the least VMEM, in KiB, that libtpu compiles the call with.
fn least_vmem_kib(topology: &TopologyDescription, call: &CustomCall) -> usize {
    let with = |kib: usize| {
        let mut config: serde_json::Value = serde_json::from_str(&call.backend_config).unwrap();
        config["scoped_memory_configs"] = serde_json::json!([{ "memory_space": 1, "offset": 0, "size": kib << 10 }]);
        CustomCall { backend_config: config.to_string(), ..call.clone() }
    };
    let (mut fails, mut works) = (0, 64 << 10);
    while works - fails > 64 {
        let middle = (fails + works) / 2;
        match compile(topology, &with(middle)) {
            Ok(_) => works = middle,
            Err(_) => fails = middle,
        }
    }
    works
}

#[test]
#[ignore = "prints the figures of docs/kernels.md"]
#[allow(clippy::print_stdout, reason = "the figures are what it is for")]
fn figures() {
    let Some(libtpu) = libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    let gpt = Attention { band: Band::CAUSAL, ..Attention::new(Element::BF16, 8, 12, 1024, 1024, 64) };
    let long = Attention { band: Band::CAUSAL, ..Attention::new(Element::BF16, 1, 8, 8192, 8192, 128) };
    let mut kernels = vec![("softmax f32 [4096, 1024]".into(), softmax(Element::F32, 4096, 1024).unwrap())];
    kernels.push((
        "int8 product bf16 [256, 4096] x [4096, 4096]".into(),
        int8_matmul(Element::BF16, 256, 4096, 4096).unwrap(),
    ));
    kernels.extend(attention_kernels("causal bf16 [8, 12, 1024, 64]", &gpt));
    kernels.extend(attention_kernels("causal bf16 [1, 8, 8192, 128]", &long));
    kernels.extend(attention_kernels("everything bf16", &everything(Element::BF16)));
    println!("| kernel | text, KiB | compile, s | VMEM: windows, scratch, values; least, MiB | GFLOP | exp, M | MB |");
    for (name, kernel) in kernels {
        let (call, vmem, start) = (kernel.custom_call().unwrap(), kernel.vmem(), std::time::Instant::now());
        compile(&topology, &call).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {name} | {:.1} | {seconds:.2} | {:.2}, {:.2}, {:.2}; {:.2} | {:.2} | {:.1} | {:.1} |",
            kernel.text().len() as f64 / 1024.0,
            mib(vmem.window_bytes),
            mib(vmem.scratch_bytes),
            mib(vmem.value_bytes),
            least_vmem_kib(&topology, &call) as f64 / 1024.0,
            call.cost.flops as f64 / 1e9,
            call.cost.transcendentals as f64 / 1e6,
            call.cost.bytes_accessed as f64 / 1e6,
        );
    }
}

/// Compiles attention and its gradient on `[batch, sequence, heads, head_dim]`, as they are in a step, and returns the
/// cycles of what XLA puts around the kernels, for which it has no estimate.
fn cycles_around(topology: &TopologyDescription, attention: &Attention) -> (u64, i64) {
    let Attention { batch, heads, queries, head_dim, .. } = *attention;
    let outer = ArrayType::new(attention.element, [batch, queries, heads, head_dim]);
    let inner = attention.query_type();
    let transpose = |to: &str, from: &str, [of, ty]: [&ArrayType; 2]| {
        let types = format!("({}) -> {}", tensor(of), tensor(ty));
        format!("{to} = stablehlo.transpose {from}, dims = [0, 2, 1, 3] : {types}\n")
    };
    let calls = [attention.forward(), attention.query_gradient(), attention.key_gradient()];
    let [forward, of_queries, of_keys] = calls.map(|kernel| kernel.unwrap().custom_call().unwrap());
    let mut body: String = ["q", "k", "v", "g"]
        .iter()
        .map(|name| transpose(&format!("%{name}t"), &format!("%{name}"), [&outer, &inner]))
        .collect();
    body += &custom_call(&forward, "%f", &["%qt", "%kt", "%vt"]);
    let (wide, row) = (tensor(&ArrayType::new(Element::F32, inner.dims.clone())), tensor(&attention.row_type()));
    let (narrow, sums) = (tensor(&inner), format!("tensor<{batch}x{heads}x{queries}xf32>"));
    body += &format!(
        "%o = stablehlo.convert %f#0 : ({narrow}) -> {wide}\n%gw = stablehlo.convert %gt : ({narrow}) -> {wide}\n\
         %p = stablehlo.multiply %o, %gw : {wide}\n%zero = stablehlo.constant dense<0.0> : tensor<f32>\n\
         %s = stablehlo.reduce(%p init: %zero) applies stablehlo.add across dimensions = [3] : ({wide}, tensor<f32>) -> \
         {sums}\n%d = stablehlo.reshape %s : ({sums}) -> {row}\n"
    );
    let operands = ["%qt", "%kt", "%vt", "%gt", "%f#1", "%d"];
    body += &custom_call(&of_queries, "%dq", &operands);
    body += &custom_call(&of_keys, "%dk", &operands);
    let results = [("%r0", "%f#0"), ("%r1", "%dq#0"), ("%r2", "%dk#0"), ("%r3", "%dk#1")];
    body.extend(results.iter().map(|(to, from)| transpose(to, from, [&inner, &outer])));
    let parameters = ["%q", "%k", "%v", "%g"].map(|name| (name, &outer));
    let executable = compile_program(topology, &parameters, &body, &results.map(|(name, _)| (name, &outer))).unwrap();
    let module = HloModule::parse(&executable.optimized_program().unwrap().code).unwrap();
    (module.cycles().unwrap_or_default(), executable.memory_stats().unwrap().temporary_bytes)
}

#[test]
#[ignore = "prints the figures of docs/decisions/0029"]
#[allow(clippy::print_stdout, reason = "the figures are what it is for")]
fn figures_of_what_is_around_the_kernels() {
    let Some(libtpu) = libtpu() else { return };
    for (slice, batch, sequence, heads, width) in [
        ("v5e:1x1", 8, 1024, 12, 64),
        ("v5e:1x1", 2, 4096, 12, 64),
        ("v5e:1x1", 1, 8192, 12, 64),
        ("v5e:1x1", 8, 1024, 6, 128),
        ("v6e:1x1", 8, 1024, 12, 64),
        ("v6e:1x1", 1, 8192, 12, 64),
    ] {
        let topology = TopologyDescription::new(libtpu, slice, &[]).unwrap();
        let all = Attention::new(Element::BF16, batch, heads, sequence, sequence, width);
        let (cycles, bytes) = cycles_around(&topology, &Attention { band: Band::CAUSAL, ..all });
        println!("| {slice}, {batch} x {sequence} x {heads} x {width} | {cycles} | {} MB |", bytes / 1_000_000);
    }
}
