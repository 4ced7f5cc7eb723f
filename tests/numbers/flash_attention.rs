//! Attention in kernels: that what people write becomes calls of kernels, and that the calls compute what was recorded.
//!
//! The second is shown with the kernels' own interpreter: each call of a rewritten program is run by it on the values that
//! the program gives it, so operand order, layouts, scale, masks and saved rows are all part of the comparison.

use crate::common;
mod recorded_forms;

use burn::backend::Autodiff;
use burn::nn::DropoutConfig;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig, generate_autoregressive_mask};
use burn::tensor::activation::softmax;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_fusion::{FlashAttention, Optimization, Pass, kernel_call};
use burn_tpu_graph::{Builder, CustomCall, DType, KernelCall, Mesh, NodeId, Number, Op, Partition, Placement, Program};
use burn_tpu_graph::{DimAxes, Sharding, TensorType, custom_calls, verify};
use burn_tpu_kernels::kernels::attention::{Attention, Dropped};
use burn_tpu_kernels::{Array, Element, Kernel, interpret};
use burn_tpu_runtime::Device;
use burn_tpu_runtime::testing::{interpret_program, recorded, with_level};
use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use recorded_forms::{Form, Recorded, SLOT};

type B = Autodiff<Tpu<bf16>>;
type Tensors = Vec<Tensor<Tpu<bf16>, 4>>;

const SIZE: usize = 1024;
const HEADS: usize = 2;
const WIDTH: usize = 64;

/// Attention as people write it, `[1, HEADS, SIZE, WIDTH]` to the same.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Written {
    Open,
    Causal,
    Window,
    /// A mask of padding `[1, 1, 1, SIZE]`, of data.
    Padded,
    /// The same, added to the scores.
    Added,
    /// A mask of data for each query.
    Sparse,
    /// A head of keys for all heads of queries.
    Grouped,
    /// Burn's op, with a mask, a bias and a cap.
    Op,
    Dropout,
    /// A bias with a gradient, which stays as it is.
    Learned,
}

impl Written {
    fn forward(self, [q, k, v]: [Tensor<B, 4>; 3]) -> Tensor<B, 4> {
        let all = [1, HEADS, SIZE, SIZE];
        // What no gradient passes through.
        let data = if self == Self::Learned { k.clone() } else { k.clone().detach() };
        let data = data.slice([0..1, 0..1, 0..SIZE, 1..2]).swap_dims(2, 3);
        if self == Self::Op {
            let options = AttentionModuleOptions { scale: None, softcap: Some(20.0), is_causal: true };
            let bias = data.clone().expand(all);
            return attention(q, k, v, Some(data.greater_elem(1.6).expand(all)), Some(bias), options);
        }
        let [k, v] = match self {
            Self::Grouped => [k, v].map(|x| x.slice([0..1, 0..1]).repeat_dim(1, HEADS)),
            _ => [k, v],
        };
        let scores = q.matmul(k.clone().swap_dims(2, 3)).div_scalar((WIDTH as f64).sqrt());
        let weights = softmax(self.masked(scores, data), 3);
        let weights = if self == Self::Dropout { DropoutConfig::new(0.25).init().forward(weights) } else { weights };
        weights.matmul(v)
    }

    fn masked(self, scores: Tensor<B, 4>, data: Tensor<B, 4>) -> Tensor<B, 4> {
        let device = scores.device();
        let all = [1, HEADS, SIZE, SIZE];
        match self {
            Self::Open => scores,
            Self::Window => {
                let places = Tensor::<B, 1, Int>::arange(0..SIZE as i64, &device);
                let (query, key) = (places.clone().reshape([1, 1, SIZE, 1]), places.reshape([1, 1, 1, SIZE]));
                let age = query.expand(all) - key.expand(all);
                let scores = scores.mask_fill(age.clone().greater_elem(100), f32::NEG_INFINITY);
                scores.mask_fill(age.lower_elem(0), f32::NEG_INFINITY)
            }
            Self::Learned => scores + data.expand(all),
            Self::Padded => scores.mask_fill(data.greater_elem(1.6).expand(all), f32::NEG_INFINITY),
            Self::Added => scores + data.greater_elem(1.6).float().mul_scalar(-1e9),
            Self::Sparse => {
                let seen = data.clone().swap_dims(2, 3).expand([1, 1, SIZE, SIZE]) - data.expand([1, 1, SIZE, SIZE]);
                scores.mask_fill(seen.greater_elem(1.2).expand(all), -1e4)
            }
            _ => {
                let future = generate_autoregressive_mask::<B>(1, SIZE, &device).unsqueeze_dim::<4>(1);
                scores.mask_fill(future.expand(all), -1e4)
            }
        }
    }
}

/// Returns the program of attention with its gradients, or without, at a level of the rewrites.
fn program(written: Written, trains: bool, level: Optimization) -> Program {
    let inputs = |device: &Device| {
        let device = TpuDevice::from(*device);
        let of = |step: f64| {
            let values = (0..HEADS * SIZE * WIDTH).map(|place| (step * place as f64).sin());
            let values = TensorData::new(values.collect(), [1, HEADS, SIZE, WIDTH]);
            Tensor::<Tpu<bf16>, 4>::from_data(values.convert::<bf16>(), &device)
        };
        ([0.37, 0.83, 1.29].map(of), Tensors::new())
    };
    let step = |(qkv, _): ([Tensor<Tpu<bf16>, 4>; 3], Tensors), _: &Device| {
        let leaves = qkv.clone().map(|x| Tensor::<B, 4>::from_inner(x).set_require_grad(trains));
        let result = written.forward(leaves.clone());
        let mut results = vec![result.clone().inner()];
        if trains {
            let gradients = (result.clone() * result.detach().sin()).sum().backward();
            results.extend(leaves.iter().map(|leaf| leaf.grad(&gradients).expect("a gradient")));
        }
        (qkv, results)
    };
    let programs = with_level(level, || recorded(inputs, step)).expect("a step");
    let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
    Program::clone(program)
}

fn names(program: &Program) -> Vec<&str> {
    let mut names: Vec<_> = custom_calls(program).into_iter().map(|call| call.name()).collect();
    names.sort();
    names
}

const ALL: [&str; 3] = ["flash_attention", "flash_attention_key_gradient", "flash_attention_query_gradient"];

#[test]
fn attention_as_people_write_it_becomes_kernels() {
    use Written::{Added, Causal, Dropout, Grouped, Learned, Op, Open, Padded, Sparse, Window};
    for written in [Open, Causal, Window, Padded, Added, Sparse, Grouped, Op, Dropout] {
        let trained = program(written, true, Optimization::Aggressive);
        assert_eq!(names(&trained), ALL, "{written:?}\n{}", program(written, true, Optimization::Off));
        let inferred = program(written, false, Optimization::Aggressive);
        assert_eq!(names(&inferred), ALL[..1], "{written:?}\n{}", program(written, false, Optimization::Off));
        // No value has the dims of the scores any more, but for masks.
        let is_scores =
            |node: &burn_tpu_graph::Node| node.ty.elements() >= HEADS * SIZE * SIZE && node.ty.dtype.is_float();
        assert!(!trained.graph().nodes().iter().any(is_scores), "{written:?}");
        assert!(names(&program(written, true, Optimization::Balanced)).is_empty());
    }
    assert!(names(&program(Learned, true, Optimization::Aggressive)).is_empty());
}

/// Burn's own module with masks, in a step with a batch. Its dropout is one of scores, before the softmax.
#[test]
fn a_multi_head_attention_module_trains_with_kernels() {
    let inputs = |device: &Device| {
        let device = TpuDevice::from(*device);
        let config = MultiHeadAttentionConfig::new(HEADS * WIDTH, HEADS).with_dropout(0.1);
        let x = Tensor::<B, 3>::ones([2, SIZE, HEADS * WIDTH], &device);
        ((config.init::<B>(&device), x), None)
    };
    let step = |((module, x), _): ((_, Tensor<B, 3>), Option<_>), device: &Device| {
        let module: burn::nn::attention::MultiHeadAttention<B> = module;
        let mask = generate_autoregressive_mask::<B>(2, SIZE, &TpuDevice::from(*device));
        let padding = x.clone().slice([0..2, 0..SIZE, 0..1]).squeeze_dim::<2>(2).greater_elem(1.0);
        let input = MhaInput::self_attn(x.clone()).mask_attn(mask).mask_pad(padding);
        let result = module.forward(input).context;
        let gradients = result.clone().sum().backward();
        let weights = [&module.query, &module.key, &module.value].map(|linear| linear.weight.grad(&gradients));
        ((module, x), Some((result, weights)))
    };
    let programs = with_level(Optimization::Aggressive, || recorded(inputs, step)).expect("a step");
    let found: Vec<_> = programs.iter().flat_map(|program| names(program)).collect();
    assert_eq!(found, ALL, "{}", programs[0]);
}

/// Returns the arguments of a program: numbers that depend on their places.
fn arguments(program: &Program) -> (Vec<Vec<u8>>, Vec<u64>) {
    let number = |dtype: DType, place: usize| match dtype {
        DType::I32 => Number::Int(place as i64 * 29),
        _ => Number::Float((0.37 * place as f64).sin() * 2.0),
    };
    let bytes = |dtype: DType, place| number(dtype, place).bits(dtype).to_le_bytes()[..dtype.size_bytes()].to_vec();
    let mut parameters = Vec::new();
    for (index, ty) in program.parameters() {
        parameters.resize(parameters.len().max(index as usize + 1), Vec::new());
        let first = 1000 * index as usize;
        parameters[index as usize] = (0..ty.elements()).flat_map(|place| bytes(ty.dtype, first + place)).collect();
    }
    let mut slots = Vec::new();
    for (_, index, dtype) in program.slots() {
        slots.resize(slots.len().max(index as usize + 1), 0);
        slots[index as usize] = Number::Float(SLOT).bits(dtype);
    }
    (parameters, slots)
}

fn interpreted(program: &Program, (parameters, slots): &(Vec<Vec<u8>>, Vec<u64>)) -> Vec<Vec<f32>> {
    let results = interpret_program(program, parameters, slots).expect("the interpreter runs every op");
    let floats =
        |bytes: Vec<u8>| bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect();
    results.into_iter().map(floats).collect()
}

/// Returns the kernel that a call runs on each device: its text must be that of one of attention's.
fn kernel_of(call: &CustomCall, attention: &Attention) -> Kernel {
    let kernels = [attention.forward(), attention.query_gradient(), attention.key_gradient()].map(Result::unwrap);
    let called = call.kernel().unwrap();
    let local = KernelCall {
        operands: called.local_operands(),
        results: called.local_results(),
        partition: None,
        ..called.clone()
    };
    let found = kernels.into_iter().find(|kernel| kernel_call(kernel).unwrap() == local);
    found.unwrap_or_else(|| panic!("{} is no kernel of {attention:?}", call.name()))
}

/// Returns the mesh of a call, which may be one device.
fn mesh(partition: Option<&Partition>) -> Mesh {
    let one = || Mesh::new(&[("one".to_owned(), 1)]).unwrap();
    partition.map_or_else(one, |partition| partition.mesh.clone())
}

/// Returns which elements of a whole are those of a device's part, in the order of the part.
fn places(ty: &TensorType, sharding: &Sharding, mesh: &Mesh, device: usize) -> Vec<usize> {
    let (part, start) = (sharding.local(ty, mesh), sharding.start(ty, mesh, device));
    let mut places = vec![0];
    for dim in 0..ty.rank() {
        let along = |place: &usize| (0..part.dims[dim]).map(|at| place * ty.dims[dim] + start[dim] + at).collect();
        places = places.iter().flat_map(|place| -> Vec<usize> { along(place) }).collect();
    }
    places
}

/// Runs a call by the interpreter of kernels: on every device of a mesh, with its parts of the operands.
fn run_by_kernel(call: &CustomCall, attention: &Attention, given: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (called, kernel) = (call.kernel().unwrap(), kernel_of(call, attention));
    let partition = called.partition.as_ref();
    let mesh = mesh(partition);
    let whole = |types: &[TensorType]| types.iter().map(|ty| Sharding::replicated(ty.rank())).collect::<Vec<_>>();
    let of_operands = partition.map_or_else(|| whole(&called.operands), |partition| partition.operands.clone());
    let of_results = partition.map_or_else(|| whole(&called.results), |partition| partition.results.clone());
    let mut results: Vec<Vec<u8>> = called.results.iter().map(|ty| vec![0; ty.bytes()]).collect();
    for device in 0..mesh.devices() {
        let part = |((ty, bytes), sharding): ((&TensorType, &Vec<u8>), &Sharding)| {
            let size = ty.dtype.size_bytes();
            let places = places(ty, sharding, &mesh, device);
            let own: Vec<u8> = places.iter().flat_map(|place| bytes[place * size..][..size].to_vec()).collect();
            array(&sharding.local(ty, &mesh), &own)
        };
        let given: Vec<Array> = called.operands.iter().zip(given).zip(&of_operands).map(part).collect();
        let computed = interpret(&kernel, &given).unwrap();
        for (((ty, whole), sharding), part) in called.results.iter().zip(&mut results).zip(&of_results).zip(&computed) {
            let size = ty.dtype.size_bytes();
            let part = bytes(ty, part);
            for (place, element) in places(ty, sharding, &mesh, device).into_iter().zip(part.chunks_exact(size)) {
                whole[place * size..][..size].copy_from_slice(element);
            }
        }
    }
    results
}

fn array(ty: &TensorType, bytes: &[u8]) -> Array {
    match ty.dtype {
        DType::BF16 => {
            let values = bytes.chunks_exact(2).map(|chunk| bf16::from_le_bytes(chunk.try_into().unwrap()).to_f32());
            Array::floats(Element::BF16, &ty.dims, values)
        }
        DType::I32 => {
            let values = bytes.chunks_exact(4).map(|chunk| i32::from_le_bytes(chunk.try_into().unwrap()));
            Array::ints(Element::I32, &ty.dims, values)
        }
        DType::F32 => {
            let values = bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap()));
            Array::floats(Element::F32, &ty.dims, values)
        }
        other => panic!("no operand of attention is {other}"),
    }
}

fn bytes(ty: &TensorType, array: &Array) -> Vec<u8> {
    let number = |value: &f32| Number::Float(f64::from(*value)).bits(ty.dtype).to_le_bytes();
    array.as_floats().iter().flat_map(|value| number(value)[..ty.dtype.size_bytes()].to_vec()).collect()
}

/// Returns what a program computes if the interpreter of kernels runs its calls, one after the other.
fn by_kernels(program: &Program, attention: &Attention, arguments: &(Vec<Vec<u8>>, Vec<u64>)) -> Vec<Vec<f32>> {
    let (mut program, (mut parameters, slots)) = (program.clone(), arguments.clone());
    loop {
        let nodes = program.graph().nodes().iter().enumerate();
        let call = nodes.filter_map(|(id, node)| match &node.op {
            Op::CustomCall(call) => Some((NodeId(id as u32), call.clone(), node.operands.clone())),
            _ => None,
        });
        let Some((id, call, operands)) = call.into_iter().next() else {
            return interpreted(&program, &(parameters, slots));
        };
        let given = Program::extract(program.graph(), &operands).unwrap();
        let given = interpret_program(&given, &parameters, &slots).unwrap();
        let first = parameters.len();
        parameters.extend(run_by_kernel(&call, attention, &given));
        let result = |place: usize| {
            let index = (first + place) as u32;
            Op::Parameter { index, ty: call.form().results()[place].clone() }
        };
        program = program
            .rewrite(|graph, at, node, operands| match node.op {
                _ if at == id => graph.add(result(0), &[]),
                Op::GetResult { index } if node.operands[0] == id => graph.add(result(index), &[]),
                _ => graph.add(node.op.clone(), operands),
            })
            .unwrap();
    }
}

fn forms() -> impl Strategy<Value = Form> {
    let dims = (1usize..3, 1usize..4, 2usize..20, 2usize..20, 1usize..6);
    let fill = prop_oneof![Just(-1e4), Just(-1e9), Just(f64::NEG_INFINITY)];
    let mask = (proptest::option::weighted(0.8, 0i64..8), proptest::option::of(0i64..6), fill, 0usize..3);
    let cap = proptest::option::weighted(0.3, Just(16.0));
    let dtype = prop_oneof![Just(DType::F32), Just(DType::BF16)];
    let lengths = proptest::option::weighted(0.3, 0usize..2);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), lengths);
    let dropped = prop_oneof![Just(None), Just(Some(Dropped::Weights)), Just(Some(Dropped::Scores))];
    let data = (proptest::option::weighted(0.5, any::<[bool; 3]>()), 0usize..3, dropped);
    (dims, mask, cap, dtype, flags, data).prop_map(
        |(
            (b, h, q, k, w),
            (ahead, window, fill, how),
            cap,
            dtype,
            (has_bias, is_slot, is_quotient, is_turned, lengths),
            (of_data, how_data, dropped),
        )| {
            // Every query sees a key: rows that are masked as a whole are not kept.
            let ahead = ahead.map(|ahead| ahead.min(k as i64 - 1));
            let last = ahead.map_or(0, |ahead| (q as i64 - 1 + ahead).max(0));
            let window = ahead.and(window).map(|window| window.max(last - (k as i64 - 1)));
            let window = window.filter(|_| lengths.is_none() && of_data.is_none());
            let dims = [b, h, q, k, w];
            Form {
                dims,
                ahead,
                window,
                fill,
                how,
                has_bias,
                cap,
                lengths,
                of_data,
                how_data,
                dropped,
                is_slot,
                is_quotient,
                is_turned,
                dtype,
            }
        },
    )
}

/// Asserts that the rewritten program computes what was recorded, in its plain form and by its kernels.
fn agrees(form: &Form) -> Result<(), TestCaseError> {
    agrees_on(form, None)
}

/// The same on a mesh, of which each device runs the kernels on a half of the sequences and a half of the heads.
fn agrees_on_mesh(form: Form) -> Result<(), TestCaseError> {
    let [b, h, q, k, w] = form.dims;
    let axes = ["data", "tensor"].map(|name| (name.to_owned(), 2));
    agrees_on(&Form { dims: [2 * b, 2 * h, q, k, w], ..form }, Some(Mesh::new(&axes).unwrap()))
}

/// Places a program on a mesh: its first argument has its heads on the last axis, as if a layer had divided them.
fn placed(program: Program, mesh: Mesh) -> Program {
    let replicated = |ty: &TensorType| Sharding::replicated(ty.rank());
    let mut parameters: Vec<Sharding> = program.parameters().map(|(_, ty)| replicated(ty)).collect();
    parameters[0] = Sharding::new([&[], &[1][..], &[], &[]].map(DimAxes::from));
    let results = program.output_types().map(replicated).collect();
    program.placed(Placement { mesh, batch: vec![0], parameters, results })
}

fn agrees_on(form: &Form, mesh: Option<Mesh>) -> Result<(), TestCaseError> {
    let [recorded, exact] = [form.dtype, DType::F32].map(|dtype| Recorded::program(form, dtype));
    let mut attention = Recorded::attention(form);
    let recorded = match mesh {
        Some(mesh) => {
            attention = attention.part(2, 2).unwrap();
            placed(recorded, mesh)
        }
        None => recorded,
    };
    let rewritten = FlashAttention::of_any_size(form.dims[4]).run(&recorded).unwrap();
    prop_assert_eq!(rewritten.count, 1, "{:?}\n{}", form, recorded);
    verify(&rewritten.program).unwrap();
    prop_assert_eq!(names(&rewritten.program), ALL);
    let arguments = arguments(&exact);
    let expected = interpreted(&exact, &arguments);
    let plain = interpreted(&rewritten.program, &arguments);
    let kernels = by_kernels(&rewritten.program, &attention, &arguments);
    let tolerance = if form.dtype == DType::F32 { 1e-4 } else { 3e-2 };
    // Gradients are differences of products that are larger than the largest result.
    let size = expected.iter().flatten().fold(1f32, |largest, value| largest.max(value.abs()));
    for (name, found) in [("plain form", plain), ("kernels", kernels)] {
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for (found, expected) in found.iter().zip(expected) {
                let is_near = (found - expected).abs() <= tolerance * size;
                prop_assert!(is_near, "{}, result {}: {} is {}: {:?}", name, place, expected, found, form);
            }
        }
    }
    Ok(())
}

#[test]
fn random_attention_in_kernels_keeps_its_values() {
    TestRunner::new(common::cases(128)).run(&forms(), |form| agrees(&form)).unwrap();
}

#[test]
fn random_attention_in_kernels_on_a_mesh_keeps_its_values() {
    TestRunner::new(common::cases(64)).run(&forms(), agrees_on_mesh).unwrap();
}

/// Several blocks of queries and keys, of which a mask hides some.
#[test]
fn attention_in_blocks_of_a_tpu_keeps_its_values() {
    for (ahead, window, dtype) in [(0, None, DType::F32), (128, Some(100), DType::F32), (0, Some(40), DType::BF16)] {
        let form = Form {
            dims: [1, 2, 256, 384, 8],
            ahead: Some(ahead),
            window,
            fill: f64::NEG_INFINITY,
            how: 0,
            has_bias: false,
            cap: None,
            lengths: None,
            of_data: None,
            how_data: 0,
            dropped: window.map(|_| Dropped::Weights),
            is_slot: true,
            is_quotient: true,
            is_turned: true,
            dtype,
        };
        agrees(&form).unwrap();
    }
}
