//! Every kernel, compiled by libtpu for TPUs that are not attached. Skipped where libtpu is missing, unless
//! `BURN_TPU_REQUIRE_LIBTPU=1`.

mod common;

use attention::{Attention, Band, Bias};
use burn_tpu_kernels::kernels::{attention, int8_matmul, softmax};
use burn_tpu_kernels::{
    ArrayType, Axis, Binary, Comparison, CustomCall, Element, Index, Kernel, KernelBuilder, Reduction, Window,
};
use burn_tpu_pjrt::{Code, HloModule, TopologyDescription, Value};
use common::{compile, compile_program, custom_call, libtpu, tensor};

/// Returns the three kernels of attention, named.
fn attention_kernels(name: &str, attention: &Attention) -> Vec<(String, Kernel)> {
    let kernels = [attention.forward(), attention.query_gradient(), attention.key_gradient()];
    let names = ["forward", "query gradient", "key gradient"];
    names.into_iter().zip(kernels).map(|(part, kernel)| (format!("{name}, {part}"), kernel.unwrap())).collect()
}

/// Returns attention of one sequence with everything at once.
fn everything(element: Element) -> Attention {
    Attention {
        key_heads: 2,
        softcap: Some(50.0),
        band: Band { left: Some(700), right: Some(0), offset: 256 },
        has_lengths: true,
        bias: Some(Bias { element, batch: 1, heads: 4 }),
        ..Attention::new(element, 2, 4, 512, 768, 128)
    }
}

/// Returns a kernel of every op that those of the library do not use.
fn other_ops() -> burn_tpu_kernels::Result<Kernel> {
    let mut k = KernelBuilder::new("other_ops", &[Axis::arbitrary(2)]);
    let square = |element| Window::whole(element, &[256, 256]).block(&[128, 256], [Index::grid(0), 0.into()]);
    let x = k.operand(square(Element::F32));
    let y = k.result(Window::whole(Element::F32, &[512, 256]).block(&[256, 256], [Index::grid(0), 0.into()]));
    let (x, one, two) = (k.load(x)?, k.float(1.0), k.int(2));
    let half = k.cast(x, Element::BF16)?;
    let (product, of_halves) = (k.transposed_matmul(x, x)?, k.transposed_matmul(half, half)?);
    let least = k.binary(Binary::Min, product, of_halves)?;
    let is_greater = k.compare(Comparison::Greater, least, one)?;
    let (row, column) = (k.iota(&[256, 256], 0)?, k.iota(&[256, 256], 1)?);
    let (halved, smaller) = (k.binary(Binary::Mul, row, two)?, k.binary(Binary::Min, row, column)?);
    let differs = k.compare(Comparison::NotEqual, halved, smaller)?;
    let condition = k.binary(Binary::And, is_greater, differs)?;
    let position = k.cast(smaller, Element::F32)?;
    let chosen = k.select(condition, least, position)?;
    let column = k.reduce(Reduction::Sum, chosen, 0)?;
    let result = k.max(chosen, column)?;
    let scalar = k.index(&((Index::grid(0) + 7) / 3).min(5).max(1))?;
    let scalar = k.cast(scalar, Element::F32)?;
    let result = k.mul(result, scalar)?;
    k.store(y, result)?;
    k.build()
}

fn kernels() -> Vec<(String, Kernel)> {
    let (bf16, f32) = (Element::BF16, Element::F32);
    let causal_of = |attention| Attention { band: Band::CAUSAL, ..attention };
    let causal = |element, width| causal_of(Attention::new(element, 2, 4, 1024, 1024, width));
    let mut kernels = vec![
        ("softmax f32".into(), softmax(f32, 4096, 1024).unwrap()),
        ("softmax bf16".into(), softmax(bf16, 512, 1000).unwrap()),
        ("other ops".into(), other_ops().unwrap()),
        ("int8 product f32".into(), int8_matmul(f32, 8, 1024, 384).unwrap()),
        ("int8 product bf16".into(), int8_matmul(bf16, 512, 512, 1024).unwrap()),
    ];
    kernels.extend(attention_kernels("causal bf16, width 64", &causal(bf16, 64)));
    kernels.extend(attention_kernels("causal bf16, width 128", &causal(bf16, 128)));
    kernels.extend(attention_kernels("causal f32, width 64", &causal(f32, 64)));
    kernels.extend(attention_kernels("everything bf16", &everything(bf16)));
    kernels.extend(attention_kernels("everything f32", &everything(f32)));
    kernels.extend(attention_kernels("197 tokens, bf16", &Attention::new(bf16, 1, 2, 197, 197, 64)));
    kernels.extend(attention_kernels("64 and 96 tokens, f32", &Attention::new(f32, 1, 2, 64, 96, 64)));
    kernels.extend(attention_kernels("1 of 1000 tokens, bf16", &Attention::new(bf16, 1, 2, 1, 1000, 64)));
    kernels.extend(attention_kernels("1000 tokens, bf16", &Attention::new(bf16, 1, 2, 1000, 1000, 128)));
    kernels.extend(attention_kernels("1000 tokens, f32", &causal_of(Attention::new(f32, 1, 2, 1000, 1000, 128))));
    kernels.extend(attention_kernels("width 256, f32", &causal_of(Attention::new(f32, 1, 2, 512, 512, 256))));
    kernels.extend(attention_kernels("width 80, bf16", &causal_of(Attention::new(bf16, 1, 2, 512, 512, 80))));
    kernels.extend(attention_kernels("width 8, bf16", &Attention::new(bf16, 1, 2, 17, 3, 8)));
    kernels
}

/// Compiles all kernels and asserts that none fails, and that libtpu reports their cost as they do.
fn all_compile_for(topology: &str) {
    let Some(libtpu) = libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, topology, &[]).unwrap();
    let fails = |(name, kernel): (String, Kernel)| {
        let call = kernel.custom_call().unwrap();
        match compile(&topology, &call) {
            Ok(executable) => {
                let analysis = executable.cost_analysis().unwrap();
                let flops = analysis.get("flops").cloned();
                assert!(
                    matches!(flops, Some(Value::Float(flops)) if is_near(flops, call.cost.flops)),
                    "{name}: {flops:?}"
                );
                None
            }
            Err(error) => Some(format!("{name}: {error}\n")),
        }
    };
    let failures: String = kernels().into_iter().filter_map(fails).collect();
    assert!(failures.is_empty(), "{failures}");
}

fn is_near(reported: f32, counted: u64) -> bool {
    (f64::from(reported) / counted as f64 - 1.0).abs() < 1e-6
}

#[test]
fn all_compile_for_v4() {
    all_compile_for("v4:1x1x1");
}

#[test]
fn all_compile_for_v5e() {
    all_compile_for("v5e:1x1");
}

#[test]
fn all_compile_for_v5p() {
    all_compile_for("v5p:1x1x1");
}

#[test]
fn all_compile_for_v6e() {
    all_compile_for("v6e:1x1");
}

#[test]
fn all_compile_for_tpu7x() {
    all_compile_for("tpu7x:1x1x1");
}

#[test]
fn products_of_8_bits_compile_for_all_but_v4() {
    let Some(libtpu) = libtpu() else { return };
    let mut k = KernelBuilder::new("squared", &[Axis::parallel(1)]);
    let x = k.operand(Window::whole(Element::I8, &[256, 256]));
    let y = k.result(Window::whole(Element::I32, &[256, 256]));
    let value = k.load(x).unwrap();
    let product = k.matmul(value, value).unwrap();
    k.store(y, product).unwrap();
    let call = k.build().unwrap().custom_call().unwrap();
    for topology in ["v5e:1x1", "v5p:1x1x1", "v6e:1x1", "tpu7x:1x1x1"] {
        compile(&TopologyDescription::new(libtpu, topology, &[]).unwrap(), &call).unwrap();
    }
    let error = compile(&TopologyDescription::new(libtpu, "v4:1x1x1", &[]).unwrap(), &call).unwrap_err().to_string();
    // The kernel's name, the reason, and the place in the text.
    assert!(error.contains("`squared`") && error.contains("Unsupported matmul"), "{error}");
    assert!(error.contains("loc(\"-\":7:10)"), "{error}");
}

#[test]
fn a_wrong_body_is_an_error() {
    let Some(libtpu) = libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    let call = softmax(Element::F32, 8, 128).unwrap().custom_call().unwrap();
    // The first word is not `module`.
    let wrong = CustomCall { backend_config: call.backend_config.replace("bW9kdWxl", "bW9kdWxs"), ..call };
    let error = compile(&topology, &wrong).unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument), "{error}");
}

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
