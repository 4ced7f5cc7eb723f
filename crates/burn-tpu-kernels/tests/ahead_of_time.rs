//! Every kernel, compiled by libtpu for TPUs that are not attached. Skipped where libtpu is missing, unless
//! `BURN_TPU_REQUIRE_LIBTPU=1`.

mod common;

use burn_tpu_kernels::kernels::attention::{Attention, Band};
use burn_tpu_kernels::kernels::{int8_matmul, softmax};
use burn_tpu_kernels::{
    Axis, Binary, Comparison, CustomCall, Element, Index, Kernel, KernelBuilder, Reduction, Window,
};
use burn_tpu_pjrt::{Code, TopologyDescription, Value};
use common::{attention_kernels, compile, everything, libtpu};

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
#[ignore = "a minute; v5e has its own test"]
fn all_compile_for_v4() {
    all_compile_for("v4:1x1x1");
}

#[test]
fn all_compile_for_v5e() {
    all_compile_for("v5e:1x1");
}

#[test]
#[ignore = "a minute; v5e has its own test"]
fn all_compile_for_v5p() {
    all_compile_for("v5p:1x1x1");
}

#[test]
#[ignore = "a minute; v5e has its own test"]
fn all_compile_for_v6e() {
    all_compile_for("v6e:1x1");
}

#[test]
#[ignore = "a minute; v5e has its own test"]
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
