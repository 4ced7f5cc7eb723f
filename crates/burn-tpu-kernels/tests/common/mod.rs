//! Shared code of the integration tests: libtpu, and programs of one kernel.

#![allow(dead_code, reason = "each test file uses only some of it")]

use burn_tpu_kernels::kernels::attention::{Attention, Band, Bias, Dropout, Dropped};
use burn_tpu_kernels::{ArrayType, CustomCall, Element, Kernel};
use burn_tpu_pjrt::{
    CompileOptions, ElementType, Executable, PjrtError, Plugin, Program, TensorSpec, TopologyDescription,
};

/// Returns libtpu, or `None` (after printing a line about it) if there is none and none is required.
pub fn libtpu() -> Option<Plugin> {
    burn_tpu_pjrt::testing::libtpu().map(|file| Plugin::load(file).expect("a plugin that was found must load"))
}

/// Returns the three kernels of attention, named.
pub fn attention_kernels(name: &str, attention: &Attention) -> Vec<(String, Kernel)> {
    let kernels = [attention.forward(), attention.query_gradient(), attention.key_gradient()];
    let names = ["forward", "query gradient", "key gradient"];
    names.into_iter().zip(kernels).map(|(part, kernel)| (format!("{name}, {part}"), kernel.unwrap())).collect()
}

/// Returns attention of one sequence with everything at once.
pub fn everything(element: Element) -> Attention {
    Attention {
        key_heads: 2,
        softcap: Some(50.0),
        band: Band { left: Some(700), right: Some(0), offset: 256 },
        has_lengths: true,
        biases: vec![
            Bias { element, batch: 1, heads: 4, queries: 512 },
            Bias { element: Element::F32, batch: 2, heads: 1, queries: 1 },
        ],
        dropout: Some(Dropout::new(1 << 31, Dropped::Weights)),
        ..Attention::new(element, 2, 4, 512, 768, 128)
    }
}

/// Compiles a program that is one custom call.
pub fn compile(topology: &TopologyDescription, call: &CustomCall) -> Result<Executable, PjrtError> {
    let names: Vec<String> = (0..call.operands.len()).map(|place| format!("%a{place}")).collect();
    let parameters: Vec<_> = names.iter().map(String::as_str).zip(&call.operands).collect();
    let returned: Vec<String> = (0..call.results.len()).map(|place| format!("%r#{place}")).collect();
    let returned: Vec<_> = returned.iter().map(String::as_str).zip(&call.results).collect();
    let operands: Vec<_> = names.iter().map(String::as_str).collect();
    compile_program(topology, &parameters, &custom_call(call, "%r", &operands), &returned)
}

/// Compiles a program of these named parameters, of a body, and of these named results.
pub fn compile_program(
    topology: &TopologyDescription,
    parameters: &[(&str, &ArrayType)],
    body: &str,
    returned: &[(&str, &ArrayType)],
) -> Result<Executable, PjrtError> {
    let specs = parameters.iter().map(|(_, ty)| TensorSpec::new(element_type(ty.element), &ty.dims).unwrap());
    let declared = list(parameters.iter().map(|(name, ty)| format!("{name}: {}", tensor(ty))));
    let names = list(returned.iter().map(|(name, _)| name.to_string()));
    let types = list(returned.iter().map(|(_, ty)| tensor(ty)));
    let text = format!("func.func @main({declared}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}");
    topology.compile(&Program::stablehlo(text, specs).unwrap(), &CompileOptions::default())
}

/// Returns the text of a custom call on named operands, whose results are `{result}#0` and so on.
pub fn custom_call(call: &CustomCall, result: &str, operands: &[&str]) -> String {
    let types = |types: &[ArrayType]| list(types.iter().map(tensor));
    let layouts = |types: &[ArrayType]| list(types.iter().map(layout));
    let config = call.backend_config.replace('\\', "\\5C").replace('"', "\\22");
    format!(
        "{result}:{} = stablehlo.custom_call @{}({}) {{backend_config = \"{config}\", operand_layouts = [{}], \
         result_layouts = [{}]}} : ({}) -> ({})\n",
        call.results.len(),
        call.target,
        operands.join(", "),
        layouts(&call.operands),
        layouts(&call.results),
        types(&call.operands),
        types(&call.results),
    )
}

fn element_type(element: Element) -> ElementType {
    match element {
        Element::Bool => ElementType::Pred,
        Element::I8 => ElementType::S8,
        Element::I32 => ElementType::S32,
        Element::BF16 => ElementType::BF16,
        Element::F32 => ElementType::F32,
    }
}

pub fn tensor(ty: &ArrayType) -> String {
    let dims: String = ty.dims.iter().map(|dim| format!("{dim}x")).collect();
    format!("tensor<{dims}{}>", ty.element.name())
}

fn layout(ty: &ArrayType) -> String {
    let dims = list((0..ty.dims.len()).rev().map(|dim| dim.to_string()));
    format!("dense<[{dims}]> : tensor<{}xindex>", ty.dims.len())
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}
