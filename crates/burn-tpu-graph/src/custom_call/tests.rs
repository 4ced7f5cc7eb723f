//! Tests of what a custom call accepts, and of the text of functions.

use super::*;
use crate::lower::{LowerOptions, lower, lower_with};
use crate::op::{BinaryOp, UnaryOp};
use crate::{Builder, Graph, Mesh, Placement, Sharding, cost};
use std::sync::Arc;

fn f32s(dims: &[usize]) -> TensorType {
    TensorType::new(DType::F32, dims)
}

/// `exp(x)` of `f32[2,3]`.
fn exp() -> Program {
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[2, 3]) }, &[]).unwrap();
    let y = graph.unary(UnaryOp::Exp, x).unwrap();
    Program::extract(&graph, &[y]).unwrap()
}

fn kernel(operands: &[TensorType], results: &[TensorType]) -> CallForm {
    let (operands, results) = (operands.to_vec(), results.to_vec());
    CallForm::Kernel(KernelCall {
        target: "tpu_custom_call".into(),
        backend_config: "{}".into(),
        operands,
        results,
        cost: KernelCost::default(),
        partition: None,
    })
}

fn exp_kernel() -> Arc<CustomCall> {
    Arc::new(CustomCall::new("exp", kernel(&[f32s(&[2, 3])], &[f32s(&[2, 3])]), exp()).unwrap())
}

/// A program that calls a kernel twice.
fn twice() -> Program {
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[2, 3]) }, &[]).unwrap();
    graph.set_label("my_exp");
    let y = graph.custom_call(exp_kernel(), &[x]).unwrap()[0];
    let z = graph.custom_call(exp_kernel(), &[y]).unwrap()[0];
    Program::extract(&graph, &[z]).unwrap()
}

fn refused(name: &str, form: CallForm, plain: Program, why: &str) {
    let error = CustomCall::new(name, form, plain).unwrap_err().to_string();
    assert!(error.contains(why) && error.contains(&format!("`{name}`")), "{error}");
}

#[test]
fn forms_have_the_same_types() {
    let [small, large] = [f32s(&[2, 3]), f32s(&[4, 3])];
    let one = std::slice::from_ref::<TensorType>;
    refused("a b", kernel(one(&small), one(&small)), exp(), "a name is letters");
    refused("", kernel(one(&small), one(&small)), exp(), "a name is letters");
    refused(
        "exp",
        kernel(one(&large), one(&small)),
        exp(),
        "the kernel takes f32[4,3] as operand 0, the plain form f32[2,3]",
    );
    refused("exp", kernel(one(&small), one(&large)), exp(), "the kernel returns (f32[4,3]), the plain form (f32[2,3])");
    refused(
        "exp",
        kernel(one(&small), &[small.clone(), small.clone()]),
        exp(),
        "returns (f32[2,3], f32[2,3]), the plain form (f32[2,3])",
    );
    refused("exp", kernel(&[], one(&small)), exp(), "has 0 operands");
    refused("exp", kernel(one(&small), &[]), exp(), "has 1 operands and 0 results");
    let mut graph = exp().graph().clone();
    let slot = graph.add(Op::Slot { index: 5, dtype: DType::F32 }, &[]).unwrap();
    let slot = graph.broadcast_to(slot, &[2, 3]).unwrap();
    refused("exp", kernel(one(&small), one(&small)), Program::extract(&graph, &[slot]).unwrap(), "reads slot 5");
    // An operand that the plain form does not read.
    assert!(CustomCall::new("exp", kernel(&[small.clone(), large], one(&small)), exp()).is_ok());
}

#[test]
fn a_kernel_is_a_call_for_tpus_and_its_plain_form_for_others() {
    let program = twice();
    let plain = lower(&program).unwrap().text;
    assert!(!plain.contains("custom_call @") && plain.matches("func.func private @exp_").count() == 1, "{plain}");
    assert_eq!(plain.matches("\"func.call\"").count(), 2);
    assert!(plain.contains("stablehlo.exponential") && plain.contains("loc(\"my_exp\")"), "{plain}");
    let kernels = LowerOptions { kernels: true, ..LowerOptions::default() };
    let called = lower_with(&program, kernels).unwrap().text;
    assert!(!called.contains("func.call") && !called.contains("exponential"), "{called}");
    assert_eq!(called.matches("call_target_name = \"tpu_custom_call\"").count(), 2);
    assert!(called.contains("operand_layouts = [dense<[1, 0]> : tensor<2xindex>]"), "{called}");
    assert!(called.contains("loc(\"my_exp\")"), "{called}");
}

#[test]
fn a_mesh_of_several_devices_has_the_plain_form() {
    let placed = |devices: usize| {
        let mesh = Mesh::new(&[("data".to_owned(), devices)]).unwrap();
        let split = Sharding::first_dim(2, &[0]);
        let (parameters, results) = (vec![split.clone()], vec![split]);
        let placed = twice().placed(Placement { mesh, batch: vec![0], parameters, results });
        lower_with(&placed, LowerOptions { kernels: true, ..LowerOptions::default() }).unwrap().text
    };
    assert!(placed(2).contains("func.call") && !placed(2).contains("tpu_custom_call"));
    assert!(placed(1).contains("tpu_custom_call"));
}

/// `exp` of `rows` x 3, of which each device has some.
fn divided(devices: usize, rows: usize) -> Result<CustomCall> {
    let mesh = Mesh::new(&[("data".to_owned(), devices)]).unwrap();
    let split = vec![Sharding::first_dim(2, &[0])];
    let partition = Some(Partition { mesh, operands: split.clone(), results: split });
    let CallForm::Kernel(kernel) = kernel(&[f32s(&[rows, 3])], &[f32s(&[rows, 3])]) else { unreachable!() };
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[rows, 3]) }, &[])?;
    let y = graph.unary(UnaryOp::Exp, x)?;
    CustomCall::new("exp", CallForm::Kernel(KernelCall { partition, ..kernel }), Program::extract(&graph, &[y])?)
}

#[test]
fn a_mesh_runs_a_kernel_with_a_partition_on_every_devices_part() {
    let program = |devices: usize| {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[4, 3]) }, &[]).unwrap();
        let y = graph.custom_call(Arc::new(divided(2, 4).unwrap()), &[x]).unwrap()[0];
        let program = Program::extract(&graph, &[y]).unwrap();
        let mesh = Mesh::new(&[("data".to_owned(), devices)]).unwrap();
        let split = vec![Sharding::first_dim(2, &[0])];
        program.placed(Placement { mesh, batch: vec![0], parameters: split.clone(), results: split })
    };
    let kernels = LowerOptions { kernels: true, ..LowerOptions::default() };
    let text = lower_with(&program(2), kernels).unwrap().text;
    for line in [
        r#""sdy.manual_computation"(%arg0) ({"#,
        "^bb0(%a0: tensor<2x3xf32>):",
        r#"%part = "stablehlo.custom_call"(%a0) {call_target_name = "tpu_custom_call""#,
        r#""sdy.return"(%part) : (tensor<2x3xf32>) -> ()"#,
        r#"in_shardings = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>"#,
        r#"manual_axes = #sdy<manual_axes{"data"}>} : (tensor<4x3xf32>) -> tensor<4x3xf32>"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // Another mesh, one device, and platforms without kernels have the plain form.
    for text in [lower_with(&program(4), kernels), lower_with(&program(1), kernels), lower(&program(2))] {
        assert!(!text.unwrap().text.contains("tpu_custom_call"));
    }
    let uneven = divided(2, 3).unwrap_err().to_string();
    assert!(uneven.contains("2 equal parts"), "{uneven}");
}

/// A call of `f32[4,3]` whose parts are `part` of `f32[2,3]`, placed on `devices` devices.
fn in_parts(part: Program, devices: usize) -> Program {
    let mesh = |devices: usize| Mesh::new(&[("data".to_owned(), devices)]).unwrap();
    let split = vec![Sharding::first_dim(2, &[0])];
    let partition = Partition { mesh: mesh(2), operands: split.clone(), results: split.clone() };
    let types = vec![f32s(&[4, 3])];
    let parts = Parts::new(types.clone(), types.clone(), partition, part).unwrap();
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[4, 3]) }, &[]).unwrap();
    let y = graph.unary(UnaryOp::Exp, x).unwrap();
    let plain = Program::extract(&graph, &[y]).unwrap();
    let call = CustomCall::new("exp", CallForm::Parts(parts), plain).unwrap();
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[4, 3]) }, &[]).unwrap();
    let y = graph.custom_call(Arc::new(call), &[x]).unwrap()[0];
    let program = Program::extract(&graph, &[y]).unwrap();
    crate::verify(&program).unwrap();
    program.placed(Placement { mesh: mesh(devices), batch: vec![0], parameters: split.clone(), results: split })
}

/// A device's part may be a plain form, a kernel or a function.
#[test]
fn a_mesh_runs_every_devices_part_of_any_form() {
    let alone = |form: CallForm| {
        let mut graph = Graph::new();
        let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[2, 3]) }, &[]).unwrap();
        let y = graph.custom_call(Arc::new(CustomCall::new("exp", form, exp()).unwrap()), &[x]).unwrap()[0];
        Program::extract(&graph, &[y]).unwrap()
    };
    let function = "func.func @f(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
        %0 = stablehlo.exponential %x : tensor<2x3xf32>
        return %0 : tensor<2x3xf32>
    }";
    let function = CallForm::Function(StableHlo::parse(function).unwrap());
    let kernels = LowerOptions { kernels: true, ..LowerOptions::default() };
    for (part, is_kernel, computes) in [
        (exp(), false, "\"stablehlo.exponential\"(%arg0)"),
        (alone(kernel(&[f32s(&[2, 3])], &[f32s(&[2, 3])])), true, "\"stablehlo.custom_call\"(%arg0)"),
        (alone(function), false, "stablehlo.exponential %x : tensor<2x3xf32>"),
    ] {
        let text = lower_with(&in_parts(part.clone(), 2), kernels).unwrap().text;
        for line in [
            r#""sdy.manual_computation"(%arg0) ({"#,
            "^bb0(%a0: tensor<2x3xf32>):",
            r#"%part = "func.call"(%a0) {callee = @exp_"#,
            r#""sdy.return"(%part) : (tensor<2x3xf32>) -> ()"#,
            r#"in_shardings = #sdy.sharding_per_value<[<@mesh, [{"data"}, {}]>]>"#,
            r#"manual_axes = #sdy<manual_axes{"data"}>} : (tensor<4x3xf32>) -> tensor<4x3xf32>"#,
            computes,
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        // Without kernels, a part of a kernel is plain.
        let text = lower(&in_parts(part.clone(), 2)).unwrap().text;
        assert!(text.contains("sdy.manual_computation") && !text.contains("tpu_custom_call"), "{text}");
        // Another mesh and one device have the whole plain form.
        for devices in [1, 4] {
            let text = lower_with(&in_parts(part.clone(), devices), kernels).unwrap().text;
            assert!(!text.contains("manual_computation") && text.contains("tensor<4x3xf32>"), "{text}");
        }
        assert_eq!(custom_calls(&in_parts(part, 2)).len(), if computes.contains("arg0") && !is_kernel { 1 } else { 2 });
    }
}

#[test]
fn parts_have_the_types_of_a_device() {
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
    let split = vec![Sharding::first_dim(2, &[0])];
    let partition = Partition { mesh, operands: split.clone(), results: split };
    let refused = |rows: usize, columns: usize, why: &str| {
        let types = vec![f32s(&[rows, columns])];
        let error = Parts::new(types.clone(), types, partition.clone(), exp()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(3, 3, "2 equal parts");
    refused(6, 3, "a device has f32[3,3] of operand 0, and its program takes f32[2,3]");
}

/// The rows of an operand stay those of the result, as the plain form says.
#[test]
fn a_batch_goes_through_a_call() {
    use crate::Arrival;
    let mesh = Mesh::new(&[("data".to_owned(), 2)]).unwrap();
    let place = |program: &Program| Placement::of(program, &mesh, &[0], &[Arrival::Host]).0;
    assert_eq!(place(&twice()).results, [Sharding::first_dim(2, &[0])]);
    let mut graph = exp().graph().clone();
    let reversed = graph.reverse(crate::NodeId(1), &[0]).unwrap();
    let form = kernel(&[f32s(&[2, 3])], &[f32s(&[2, 3])]);
    let call = CustomCall::new("turned", form, Program::extract(&graph, &[reversed]).unwrap()).unwrap();
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[2, 3]) }, &[]).unwrap();
    let y = graph.custom_call(Arc::new(call), &[x]).unwrap()[0];
    let placement = place(&Program::extract(&graph, &[y]).unwrap());
    assert_eq!(placement.parameters, [Sharding::replicated(2)]);
}

#[test]
fn a_call_costs_what_its_plain_form_does() {
    let program = twice();
    assert_eq!(cost::cost(&program).transcendentals, 12);
    assert_eq!(cost::nodes(&program), 1 + 2 * 3);
    assert_eq!(custom_calls(&program).len(), 2);
}

#[test]
fn operands_have_the_types_of_the_call() {
    let mut graph = Graph::new();
    let x = graph.add(Op::Parameter { index: 0, ty: f32s(&[3, 2]) }, &[]).unwrap();
    let error = graph.custom_call(exp_kernel(), &[x]).unwrap_err().to_string();
    assert_eq!(error, "graph.custom_call(f32[3,2]): `exp` takes f32[2,3] as operand 0, got f32[3,2]");
    let error = graph.custom_call(exp_kernel(), &[x, x]).unwrap_err().to_string();
    assert!(error.contains("`exp` takes 1 operands, got 2"), "{error}");
}

const ADD: &str = "func.func @f(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.add %x, %y : tensor<2xf32>
    return %0 : tensor<2xf32>
}";

#[test]
fn signatures_are_read() {
    let signature = |text: &str| StableHlo::parse(text).unwrap().to_string();
    assert_eq!(signature(ADD), "@f(f32[2], f32[2]) -> (f32[2])");
    let scalars = "func.func @f(%a: tensor<i1>, %b: tensor<0x3xui64>) -> (tensor<bf16>, tensor<1xi8>) {}";
    assert_eq!(signature(scalars), "@f(i1[], ui64[0,3]) -> (bf16[], i8[1])");
    let attributes =
        "func.func private @f(%a: tensor<2xf32> {a = [1, 2], b = \"x, {y\"}) -> tensor<2xf32> attributes {c = 1} {}";
    assert_eq!(signature(attributes), "@f(f32[2]) -> (f32[2])");
}

#[test]
fn what_is_called_is_main_or_the_only_public_function() {
    let function =
        |head: &str| format!("func.func {head}(%x: tensor<f32>) -> tensor<f32> {{ return %x : tensor<f32> }}\n");
    let parse = |heads: &[&str]| StableHlo::parse(heads.iter().map(|head| function(head)).collect::<String>());
    assert_eq!(parse(&["@a", "@main"]).unwrap().name(), "main");
    assert_eq!(parse(&["private @a", "@b", "private @c"]).unwrap().name(), "b");
    assert_eq!(parse(&["private @a"]).unwrap().name(), "a");
    for (heads, why) in [
        (&["@a", "public @b"][..], "both @a and @b"),
        (&["private @a", "private @b"], "no function that is not private"),
        (&["@a", "@a"], "the name @a of an earlier one"),
        (&[], "it has no function"),
    ] {
        let error = parse(heads).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_is_no_function_is_refused() {
    for (text, why) in [
        ("stablehlo.add", "found \"stablehlo.add\""),
        ("func.func @f(%x: tensor<f32>) -> tensor<f32> { return %x", "a `{` has no `}`"),
        ("func.func @f(%x: tensor<?xf32>) -> tensor<f32> {}", "\"tensor<?xf32>\" is no tensor of static sizes"),
        ("func.func @f(%x: tensor<complex<f32>>) -> tensor<f32> {}", "no tensor of static sizes"),
        ("func.func @f(%x: f32) -> tensor<f32> {}", "\"f32\" is no tensor"),
        ("func.func @f(%x: tensor<f32>) {}", "@f: it returns nothing"),
        ("func.func @f(tensor<f32>) -> tensor<f32>", "is not a parameter"),
        ("func.func (%x: tensor<f32>) -> tensor<f32>", "expected a function's `@name`"),
        ("\"func.func\"() ({}) : () -> ()", "expected `func.func @name"),
        ("module { } module { }", "is after the module"),
        ("#loc = loc(unknown)", "found \"#loc = loc(unknown)\""),
    ] {
        let error = StableHlo::parse(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn functions_get_new_names_outside_of_strings_and_comments() {
    let text = r#"func.func @f(%x: tensor<f32>) -> tensor<f32> { // @g }
        %0 = call @g(%x) {a = "@g \" @g", b = @other} : (tensor<f32>) -> tensor<f32>
        return %0 : tensor<f32>
    }
    func.func private @g(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }"#;
    let renamed = StableHlo::parse(text).unwrap().renamed("new");
    assert!(renamed.starts_with("  func.func private @new(%x: tensor<f32>) -> (tensor<f32>) {"), "{renamed}");
    assert!(renamed.contains("call @new_g(%x) {a = \"@g \\\" @g\", b = @other}"), "{renamed}");
    assert!(renamed.contains("func.func private @new_g(%x"), "{renamed}");
}

#[test]
fn the_text_of_a_function_is_part_of_its_identity() {
    let mut graph = Graph::new();
    let given = [0, 1].map(|index| graph.add(Op::Parameter { index, ty: f32s(&[2]) }, &[]).unwrap());
    let sum = graph.binary(BinaryOp::Add, given[0], given[1]).unwrap();
    let plain = Program::extract(&graph, &[sum]).unwrap();
    let call = |text: &str| {
        CustomCall::new("add", CallForm::Function(StableHlo::parse(text).unwrap()), plain.clone()).unwrap()
    };
    let (one, other) = (call(ADD), call(&ADD.replace("%x, %y", "%y, %x")));
    assert_eq!(one, call(ADD));
    assert_ne!(one, other);
    assert_ne!(one.short_hash(), other.short_hash());
}
