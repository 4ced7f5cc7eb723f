//! Rewrites on real compilers: tests that they never lose accuracy or change bits that they may not change, and
//! measurements of their gain, which run by hand.
//!
//! `cargo test --release --test fusion -- --ignored --nocapture` prints the measurements that `docs/decisions` quotes.

use crate::common;

use burn::backend::Autodiff;
use burn::nn::DropoutConfig;
use burn::nn::attention::generate_autoregressive_mask;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::activation::softmax;
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::module::{attention, linear};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Int, Tensor, TensorData};
use burn_tpu::{Tpu, TpuDevice, TpuFloat, metrics};
use burn_tpu_fusion::{GatherFirst, Optimization, Pass, Pipeline, QueryBlocks, RowBlocks, ScatterSum, SoftmaxGradient};
use burn_tpu_graph::op::{BinaryOp, Combine, Direction, DotAttrs, UnaryOp};
use burn_tpu_graph::{Builder, DType, Graph, NodeId, Number, Op, Program, TensorType, lower, verify};
use burn_tpu_pjrt::{
    Attributes, Buffer, Client, ClientOptions, CompileOptions, ElementType, ExecuteOptions, OptimizationLevel,
    TensorSpec, TopologyDescription, Value,
};
use burn_tpu_runtime::Device;
use burn_tpu_runtime::testing::{interpret_program, recorded, with_level};
use common::programs;
use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use std::path::Path;
use std::time::Instant;

#[allow(clippy::print_stderr, reason = "a skipped test reports the reason, and a measurement prints its result")]
fn print(text: &str) {
    eprintln!("{text}");
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Activation {
    None,
    Relu,
    Tanh,
    Gelu,
}

/// Returns `layers` times `activation(x @ weight + bias)` as burn-tpu records it: in bf16 with f32 accumulation and
/// activations computed in f32, or, as the reference, all in f32 from the same bf16 inputs.
fn mlp(dtype: DType, layers: u32, [rows, width]: [usize; 2], activation: Activation) -> Program {
    let mut g = Graph::new();
    let parameter = |g: &mut Graph, index, dims: &[usize]| {
        let id = g.add(Op::Parameter { index, ty: TensorType::new(DType::BF16, dims) }, &[]).unwrap();
        g.convert(id, dtype).unwrap()
    };
    let mut x = parameter(&mut g, 0, &[rows, width]);
    for layer in 0..layers {
        let weight = parameter(&mut g, 2 * layer + 1, &[width, width]);
        let bias = parameter(&mut g, 2 * layer + 2, &[width]);
        let attrs = DotAttrs::new([&[], &[]], [&[1], &[0]], DType::F32);
        let sums = g.dot_general(x, weight, attrs).unwrap();
        let rounded = g.convert(sums, dtype).unwrap();
        let biased = g.binary(BinaryOp::Add, rounded, bias).unwrap();
        x = activate(&mut g, biased, activation);
    }
    Program::extract(&g, &[x]).unwrap()
}

fn activate(g: &mut Graph, x: NodeId, activation: Activation) -> NodeId {
    let dtype = g.dtype(x);
    let wide = |g: &mut Graph| g.convert(x, DType::F32).unwrap();
    let result = match activation {
        Activation::None => x,
        Activation::Relu => g.binary_const(BinaryOp::Max, x, 0.0).unwrap(),
        Activation::Tanh => {
            let wide = wide(g);
            g.unary(UnaryOp::Tanh, wide).unwrap()
        }
        Activation::Gelu => {
            let wide = wide(g);
            let scaled = g.binary_const(BinaryOp::Mul, wide, std::f64::consts::FRAC_1_SQRT_2).unwrap();
            let erf = g.unary(UnaryOp::Erf, scaled).unwrap();
            let sum = g.binary_const(BinaryOp::Add, erf, 1.0).unwrap();
            let below = g.binary_const(BinaryOp::Mul, sum, 0.5).unwrap();
            g.binary(BinaryOp::Mul, wide, below).unwrap()
        }
    };
    g.convert(result, dtype).unwrap()
}

fn fused(program: &Program) -> Program {
    let optimized = Pipeline::new(Optimization::Balanced).verify(true).run(program.clone()).unwrap();
    assert!(optimized.applied.iter().any(|(_, count)| *count > 0), "{program}");
    optimized.program
}

fn spec(ty: &TensorType) -> TensorSpec {
    let element = ElementType::ALL.iter().find(|element| element.name() == ty.dtype.name());
    TensorSpec::new(*element.expect("every element type has a buffer type"), &ty.dims).unwrap()
}

fn pjrt_program(program: &Program) -> burn_tpu_pjrt::Program {
    let lowered = lower(program).unwrap();
    let parameters = lowered.arguments.iter().map(|argument| spec(argument.ty()));
    burn_tpu_pjrt::Program::stablehlo(lowered.text.as_str(), parameters).unwrap()
}

/// Returns roughly normal bf16 numbers (a sum of uniforms), scaled so that a layer keeps the magnitude of its input.
fn inputs(program: &Program) -> Vec<Vec<u8>> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut fill = |(index, ty): (u32, &TensorType)| {
        let scale = if index % 2 == 1 { 1.7 / (ty.dims[0] as f32).sqrt() } else { 1.7 };
        let mut number = || bf16::from_f32((uniform() + uniform() + uniform() + uniform()) * scale).to_le_bytes();
        (0..ty.elements()).flat_map(|_| number()).collect()
    };
    program.parameters().map(&mut fill).collect()
}

struct Run {
    values: Vec<f32>,
    /// The shortest and the median wall time of a launch, in microseconds.
    micros: [f64; 2],
}

fn run(client: &Client, program: &Program, launches: usize) -> Run {
    let executable = client.compile(&pjrt_program(program), &CompileOptions::default()).unwrap();
    let device = client.device(0).unwrap();
    let types = program.parameters().map(|(_, ty)| ty);
    let upload = |(ty, bytes): (&TensorType, Vec<u8>)| Buffer::from_host(&device, spec(ty), &bytes).unwrap();
    let buffers: Vec<Buffer> = types.zip(inputs(program)).map(upload).collect();
    let arguments: Vec<&Buffer> = buffers.iter().collect();
    let kept: Vec<i64> = (0..buffers.len() as i64).collect();
    let options = ExecuteOptions { non_donatable: &kept, ..ExecuteOptions::default() };
    let mut times = Vec::new();
    let mut output = None;
    for _ in 0..launches {
        let started = Instant::now();
        let results = executable.execute_single(&arguments, &options).unwrap();
        results[0].wait().unwrap();
        times.push(started.elapsed().as_secs_f64() * 1e6);
        output = results.into_iter().next();
    }
    times.sort_by(f64::total_cmp);
    let output = output.unwrap();
    let bytes = output.to_host().unwrap();
    let values = match output.spec().element_type() {
        ElementType::BF16 => {
            bytes.chunks_exact(2).map(|chunk| bf16::from_le_bytes(chunk.try_into().unwrap()).to_f32()).collect()
        }
        _ => bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect(),
    };
    Run { values, micros: [times[0], times[times.len() / 2]] }
}

/// Returns the root mean square of the difference, divided by that of the reference.
fn relative_error(values: &[f32], reference: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let error: f64 = values.iter().zip(reference).map(|(a, b)| square(f64::from(a - b))).sum();
    (error / reference.iter().map(|&b| square(f64::from(b))).sum::<f64>()).sqrt()
}

#[test]
fn rewritten_layers_are_at_least_as_accurate() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let client = Client::new(plugin, &ClientOptions::cpu(1).unwrap()).unwrap();
    for activation in [Activation::None, Activation::Relu, Activation::Tanh, Activation::Gelu] {
        let reference = run(&client, &mlp(DType::F32, 2, [32, 64], activation), 1).values;
        let plain = mlp(DType::BF16, 2, [32, 64], activation);
        let before = relative_error(&run(&client, &plain, 1).values, &reference);
        let after = relative_error(&run(&client, &fused(&plain), 1).values, &reference);
        assert!(after <= before * 1.05 && after < 4e-3, "{activation:?}: {before} -> {after}");
    }
}

/// Counts the instructions and fusions of the optimised module, `(all, fusions)`, in the text that XLA dumps.
fn counts(folder: &Path) -> (usize, usize) {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_final = |path: &std::path::PathBuf| path.to_string_lossy().ends_with("after_optimizations.txt");
    let texts = files.filter(is_final).map(|path| std::fs::read_to_string(path).unwrap());
    let text: String = texts.collect();
    let instructions = text.lines().filter(|line| line.starts_with("  ") && line.contains(" = "));
    (instructions.clone().count(), instructions.filter(|line| line.contains(" fusion(")).count())
}

fn float(attributes: &Attributes, name: &str) -> f64 {
    match attributes.get(name) {
        Some(Value::Float(value)) => f64::from(*value),
        _ => f64::NAN,
    }
}

fn dumping(folder: &Path) -> CompileOptions {
    CompileOptions::default().set("xla_dump_to", folder.to_string_lossy().into_owned())
}

const SHAPES: [(u32, [usize; 2]); 3] = [(1, [256, 512]), (4, [512, 1024]), (4, [8, 1024])];

const ROWS: usize = 12;
const CLASSES: usize = 70;

/// Returns the program of a loss and its gradient, as recorded, for logits `[ROWS, CLASSES]`.
fn loss_program<F: TpuFloat>(config: &CrossEntropyLossConfig) -> Program {
    type B<F> = Autodiff<Tpu<F>>;
    type Inputs<F> = (Tensor<B<F>, 2>, Tensor<B<F>, 1, Int>);
    let inputs = |device: &Device| {
        let device = TpuDevice::from(*device);
        let logits = TensorData::new(vec![0f32; ROWS * CLASSES], [ROWS, CLASSES]).convert::<F>();
        let targets = TensorData::new(vec![0i32; ROWS], [ROWS]);
        let inputs =
            (Tensor::<B<F>, 2>::from_data(logits, &device), Tensor::<B<F>, 1, Int>::from_data(targets, &device));
        (inputs, None)
    };
    let step = |((logits, targets), _): (Inputs<F>, Option<_>), _: &Device| {
        let leaf = logits.clone().detach().require_grad();
        let loss = config.init(&logits.device()).forward(leaf.clone(), targets.clone());
        let gradient = leaf.grad(&loss.backward());
        ((logits, targets), Some((loss, gradient)))
    };
    let programs = with_level(Optimization::Off, || recorded(inputs, step)).expect("a step");
    let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
    Program::clone(program)
}

/// Returns what the interpreter computes, for inputs that depend on their places. Some classes are out of range. Vectors
/// are positive, since the weights of classes are among them: a loss that is a difference of large terms has no digits.
fn interpreted(program: &Program) -> Vec<Vec<u8>> {
    let number = |ty: &TensorType, place: usize| match (ty.dtype, (0.37 * place as f64).sin() * 4.0) {
        (DType::I32, _) => Number::Int((place as i64 * 29) % (CLASSES as i64 + 4) - 2),
        (_, float) if ty.dims.len() == 1 => Number::Float(float.abs() + 0.25),
        (_, float) => Number::Float(float),
    };
    let bytes =
        |ty: &TensorType, place| number(ty, place).bits(ty.dtype).to_le_bytes()[..ty.dtype.size_bytes()].to_vec();
    let mut parameters = Vec::new();
    for (index, ty) in program.parameters() {
        parameters.resize(parameters.len().max(index as usize + 1), Vec::new());
        parameters[index as usize] = (0..ty.elements()).flat_map(|place| bytes(ty, place)).collect();
    }
    let mut slots = Vec::new();
    for (_, index, dtype) in program.slots() {
        slots.resize(slots.len().max(index as usize + 1), 0);
        slots[index as usize] = Number::Float(0.25).bits(dtype);
    }
    interpret_program(program, &parameters, &slots).expect("the interpreter runs every op")
}

/// `gather_first` and `scatter_sum` find their places in a loss of the classes as they are, weighted, with rows left
/// out, and with smoothed labels, and change no bit of it.
#[test]
fn a_cross_entropy_loss_is_rewritten_and_keeps_its_bits() {
    let plain = CrossEntropyLossConfig::new();
    let weights = (0..CLASSES).map(|class| 0.5 + class as f32 / 50.0).collect();
    let configs = [
        plain.clone(),
        plain.clone().with_weights(Some(weights)),
        plain.clone().with_pad_tokens(Some(vec![3, 5])),
        plain.with_smoothing(Some(0.1)),
    ];
    for (place, config) in configs.iter().enumerate() {
        for program in [loss_program::<f32>(config), loss_program::<bf16>(config)] {
            let gathers_first = GatherFirst.run(&program).unwrap();
            let rewritten = ScatterSum.run(&gathers_first.program).unwrap();
            // With smoothed labels nothing is gathered.
            let counts = (gathers_first.count > 0, rewritten.count > 0);
            assert_eq!(counts, (place != 3, place != 3), "{config:?}\n{program}");
            assert_eq!(interpreted(&program), interpreted(&rewritten.program), "{config:?}");
        }
    }
}

/// The loss of a language model: a head without or with a bias, a cap of the logits, and a loss of some kind.
#[derive(Clone, Debug)]
struct Head {
    /// Sequences, tokens of each, width, classes.
    dims: [usize; 4],
    has_bias: bool,
    softcap: Option<f32>,
    loss: CrossEntropyLossConfig,
    /// The factor of the loss, a number of the recording.
    scale: f32,
}

impl Head {
    fn forward<B: Backend>(
        &self,
        x: Tensor<B, 3>,
        weight: Tensor<B, 2>,
        bias: Tensor<B, 1>,
        targets: Tensor<B, 2, Int>,
    ) -> Tensor<B, 1> {
        let [sequences, tokens, _, classes] = self.dims;
        let logits = linear(x, weight, self.has_bias.then_some(bias));
        let logits = match self.softcap {
            Some(cap) => logits.div_scalar(cap).tanh().mul_scalar(cap),
            None => logits,
        };
        let logits = logits.reshape([sequences * tokens, classes]);
        self.loss.init(&logits.device()).forward(logits, targets.reshape([sequences * tokens])).mul_scalar(self.scale)
    }

    /// Returns the program of the loss and its gradients for the inputs of the head, as recorded.
    fn program<F: TpuFloat>(&self) -> Program {
        type B<F> = Autodiff<Tpu<F>>;
        type Floats<F> = (Tensor<Tpu<F>, 3>, Tensor<Tpu<F>, 2>, Tensor<Tpu<F>, 1>);
        type Inputs<F> = (Floats<F>, Tensor<Tpu<F>, 2, Int>);
        let [sequences, tokens, width, classes] = self.dims;
        let inputs = |device: &Device| {
            let device = TpuDevice::from(*device);
            let zeros = |dims: &[usize]| TensorData::zeros::<f32, _>(dims).convert::<F>();
            let floats = (
                Tensor::from_data(zeros(&[sequences, tokens, width]), &device),
                Tensor::from_data(zeros(&[width, classes]), &device),
                Tensor::from_data(zeros(&[classes]), &device),
            );
            let targets = Tensor::from_data(TensorData::zeros::<i32, _>([sequences, tokens]), &device);
            ((floats, targets), None)
        };
        let step = |((floats, targets), _): (Inputs<F>, Option<_>), _: &Device| {
            let (x, weight, bias) = floats.clone();
            let (x, weight) =
                (Tensor::<B<F>, 3>::from_inner(x).require_grad(), Tensor::<B<F>, 2>::from_inner(weight).require_grad());
            let bias = Tensor::<B<F>, 1>::from_inner(bias).require_grad();
            let given = Tensor::<B<F>, 2, Int>::from_inner(targets.clone());
            let loss = self.forward(x.clone(), weight.clone(), bias.clone(), given);
            let gradients = loss.backward();
            let bias = self.has_bias.then(|| bias.grad(&gradients)).flatten();
            ((floats, targets), Some((loss.inner(), x.grad(&gradients), weight.grad(&gradients), bias)))
        };
        let programs = with_level(Optimization::Off, || recorded(inputs, step)).expect("a step");
        let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
        Program::clone(program)
    }
}

/// Returns the numbers of a result.
fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::BF16 => bytes.chunks(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        DType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        other => panic!("{other} is no type of a loss"),
    }
}

/// Returns the head of these sizes, with a loss of these kinds: weighted, with padding tokens, with smoothed labels.
fn head(dims: [usize; 4], has_bias: bool, softcap: Option<f32>, kinds: (bool, bool, bool), scale: f32) -> Head {
    let (is_weighted, is_padded, is_smoothed) = kinds;
    let weights = (0..dims[3]).map(|class| 0.5 + class as f32 / 50.0).collect();
    let loss = CrossEntropyLossConfig::new()
        .with_weights(is_weighted.then_some(weights))
        .with_pad_tokens(is_padded.then(|| vec![3, 5]))
        .with_smoothing(is_smoothed.then_some(0.1));
    Head { dims, has_bias, softcap, loss, scale }
}

/// Checks that `row_blocks` takes a head's loss, in f32 and in bf16, and keeps its values and those of its gradients.
fn check_in_blocks(head: &Head) -> Result<(), TestCaseError> {
    let [sequences, tokens, _, classes] = head.dims;
    let wide = sequences * tokens * classes;
    for program in [head.program::<f32>(), head.program::<bf16>()] {
        let before = Pipeline::new(Optimization::Balanced).verify(true).run(program).unwrap().program;
        let after = RowBlocks::of(wide, wide.div_ceil(2)).run(&before).unwrap();
        prop_assert_eq!(after.count, 1, "{:?}\n{}", head, before);
        verify(&after.program).unwrap();
        // The sums of the smoothed labels' gradients need no logits: they are computed before the loop.
        let is_wide = |node: &burn_tpu_graph::Node| head.loss.smoothing.is_none() && node.ty.elements() >= wide;
        prop_assert!(!after.program.graph().nodes().iter().any(is_wide), "{}", after.program);
        let results = interpreted(&before).into_iter().zip(interpreted(&after.program));
        for ((before, after), ty) in results.zip(before.output_types()) {
            let error = relative_error(&numbers(ty.dtype, &after), &numbers(ty.dtype, &before));
            let most = if ty.dtype == DType::F32 { 1e-5 } else { 1e-2 };
            prop_assert!(error < most, "{:?}: {}", head, error);
        }
    }
    Ok(())
}

/// `row_blocks` keeps the values of a loss and its gradients: random heads of random sizes, in f32 and in bf16.
#[test]
fn a_loss_in_blocks_of_rows_has_the_values_of_the_loss() {
    let heads = (
        (1usize..4, prop::sample::select(vec![4usize, 6, 8, 16]), 1usize..4, 20usize..70),
        any::<bool>(),
        prop::option::of(2f32..30.0),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        0.5f32..2.0,
    );
    let mut runner = TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
    let found = runner.run(&heads, |((sequences, tokens, width, classes), has_bias, softcap, kinds, scale)| {
        check_in_blocks(&head([sequences, tokens, width, classes], has_bias, softcap, kinds, scale))
    });
    found.unwrap();
}

/// Attention as people write it, `[1, heads, sequence, width]` to the same.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attention {
    /// Scale, causal mask, softmax.
    Causal,
    /// The same, with dropout of the weights.
    Dropout,
    /// A causal mask and a padding mask of data.
    Padded,
    /// The last 100 keys.
    Window,
    /// The op of that name.
    Op,
    /// The same with a softcap.
    Capped,
}

impl Attention {
    const ALL: [Self; 6] = [Self::Causal, Self::Dropout, Self::Padded, Self::Window, Self::Op, Self::Capped];

    /// Returns whether `query_blocks` divides it with its gradients.
    fn is_divided(self) -> bool {
        self != Self::Capped
    }

    fn forward<B: Backend>(self, [q, k, v]: [Tensor<B, 4>; 3]) -> Tensor<B, 4> {
        let ([_, _, size, width], device) = (q.dims(), q.device());
        if matches!(self, Self::Op | Self::Capped) {
            let softcap = (self == Self::Capped).then_some(20.0);
            let options = AttentionModuleOptions { scale: None, softcap, is_causal: true };
            return attention(q, k, v, None, None, options);
        }
        let scores = q.matmul(k.clone().swap_dims(2, 3)).div_scalar((width as f64).sqrt());
        let future = generate_autoregressive_mask::<B>(1, size, &device).unsqueeze_dim::<4>(1);
        // Beside dropout, only what -inf masks is left out.
        let fill = if self == Self::Dropout { f64::NEG_INFINITY } else { -1e4 };
        let scores = scores.mask_fill(future.expand([1, HEADS, size, size]), fill);
        let scores = match self {
            Self::Padded => {
                // The same number as the causal mask's.
                let padding = k.slice([0..1, 0..HEADS, 0..size, 1..2]).swap_dims(2, 3).greater_elem(1.6);
                scores.mask_fill(padding.expand([1, HEADS, size, size]), -1e4)
            }
            Self::Window => {
                let places = Tensor::<B, 1, Int>::arange(0..size as i64, &device);
                let (query, key) = (places.clone().reshape([1, 1, size, 1]), places.reshape([1, 1, 1, size]));
                let age = query.expand([1, HEADS, size, size]) - key.expand([1, HEADS, size, size]);
                scores.mask_fill(age.greater_elem(100), f32::NEG_INFINITY)
            }
            _ => scores,
        };
        let weights = softmax(scores, 3);
        let weights = if self == Self::Dropout { DropoutConfig::new(0.25).init().forward(weights) } else { weights };
        weights.matmul(v)
    }

    /// Returns the result of attention over `size` tokens and the gradients of its arguments.
    fn train<B: AutodiffBackend>(self, [q, k, v]: [Tensor<B::InnerBackend, 4>; 3]) -> Vec<Tensor<B::InnerBackend, 4>> {
        let leaves = [q, k, v].map(|x| Tensor::<B, 4>::from_inner(x).require_grad());
        let result = self.forward(leaves.clone());
        let weights = result.clone().detach().sin();
        let gradients = (result.clone() * weights).sum().backward();
        let gradients = leaves.into_iter().map(|leaf| leaf.grad(&gradients).expect("a gradient"));
        [result.inner()].into_iter().chain(gradients).collect()
    }
}

const HEADS: usize = 2;
const HEAD_WIDTH: usize = 8;

fn qkv<F: TpuFloat>(size: usize, device: &TpuDevice) -> [Tensor<Tpu<F>, 4>; 3] {
    [0.37, 0.83, 1.29].map(|step: f64| {
        let values = (0..HEADS * size * HEAD_WIDTH).map(|place| 2.0 * (step * place as f64).sin());
        let values = TensorData::new(values.collect(), [1, HEADS, size, HEAD_WIDTH]);
        Tensor::from_data(values.convert::<F>(), device)
    })
}

/// `softmax_gradient` and `query_blocks` keep the values of attention in each form: in f32 up to the order of sums, in bf16
/// about as close to f32 as without them (how close depends on the numbers, both ways).
#[test]
fn attention_in_blocks_has_the_values_of_attention() {
    if !common::has_cpu_plugin() {
        return;
    }
    // A device each: Burn has one default type of floats for a device.
    let levels = [
        Optimization::Off,
        Optimization::Conservative,
        Optimization::Balanced,
        Optimization::Off,
        Optimization::Balanced,
    ];
    let names = ["off", "conservative", "balanced", "off in bf16", "balanced in bf16"];
    let device = |(name, level)| common::cpu_with(name, common::development().optimization(level)).expect("a plugin");
    let devices: Vec<TpuDevice> = names.into_iter().zip(levels).map(device).collect();
    let size = 640;
    for attention in Attention::ALL {
        let start = |index: usize| {
            let device = devices[index];
            Tpu::<f32>::seed(&device, 7);
            device
        };
        let values = |results: Vec<TensorData>| -> Vec<Vec<f32>> {
            results.into_iter().map(|data| data.convert::<f32>().to_vec().expect("f32")).collect()
        };
        let f32_values = |index: usize| {
            let results = attention.train::<Autodiff<Tpu<f32>>>(qkv(size, &start(index)));
            values(results.into_iter().map(Tensor::into_data).collect())
        };
        let bf16_values = |index: usize| {
            let results = attention.train::<Autodiff<Tpu<bf16>>>(qkv(size, &start(index)));
            values(results.into_iter().map(Tensor::into_data).collect())
        };
        let [plain, conservative, blocks] = [0, 1, 2].map(f32_values);
        let [rounded, rounded_blocks] = [3, 4].map(bf16_values);
        assert_eq!(plain, conservative, "{attention:?}");
        for result in 0..4 {
            let error = relative_error(&blocks[result], &plain[result]);
            assert!(error < 1e-5, "{attention:?}, result {result}: {error}");
            let before = relative_error(&rounded[result], &plain[result]);
            let after = relative_error(&rounded_blocks[result], &plain[result]);
            assert!(after < 1.5 * before, "{attention:?} in bf16, result {result}: {before} -> {after}");
        }
    }
    let rewrites = |index: usize| metrics(&devices[index]).rewrites;
    assert_eq!((rewrites(0).len(), rewrites(1).len(), rewrites(3).len()), (0, 0, 0));
    for index in [2, 4] {
        let divided = Attention::ALL.iter().filter(|attention| attention.is_divided()).count() as u64;
        let all = Attention::ALL.len() as u64;
        let mut found = rewrites(index);
        assert_eq!(found.remove("round_once").is_some(), index == 4, "in bf16 alone");
        assert_eq!(found.remove("few_rows").is_some(), index == 2, "gradients of small heads, in f32 alone");
        assert_eq!(found, [("query_blocks", divided), ("softmax_gradient", all)].into());
    }
}

/// A weight that a batch of matrices is multiplied with has the gradient that a linear layer's weight has, bit for bit,
/// whether products are rounded on the way or not.
#[test]
fn a_batch_of_products_has_the_gradient_of_a_linear_layer() {
    let device = |name| common::cpu_with(name, common::development().optimization(Optimization::Balanced));
    let (Some(wide), Some(narrow)) = (device("products"), device("products in bf16")) else { return };
    weight_gradients::<Tpu<f32>>(&wide);
    weight_gradients::<Tpu<bf16>>(&narrow);
    for device in [wide, narrow] {
        assert_eq!(metrics(&device).rewrites["product_sum"], 1);
    }
}

fn weight_gradients<B: Backend<Device = TpuDevice>>(device: &TpuDevice) {
    let formula = |elements: usize, scale: f32| (0..elements).map(|i| (i as f32 * scale).sin()).collect::<Vec<_>>();
    let x = Tensor::<B, 3>::from_data(TensorData::new(formula(4 * 24 * 40, 0.7), [4, 24, 40]), device);
    let weight = || Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(formula(40 * 16, 1.3), [40, 16]), device);
    let x = || Tensor::from_inner(x.clone());
    let gradient = |weight: Tensor<Autodiff<B>, 2>, y: Tensor<Autodiff<B>, 3>| {
        let gradients = (y.clone() * y).sum().backward();
        weight.grad(&gradients).expect("a gradient").into_data()
    };
    let (one, many) = (weight().require_grad(), weight().require_grad());
    let of_layer = gradient(one.clone(), linear(x(), one, None));
    let of_batch = gradient(many.clone(), x().matmul(many.unsqueeze()));
    assert_eq!(of_layer, of_batch);
}

/// Attention with its gradients as a graph: `[heads, queries, width]` and `[heads, keys, width]`.
struct AttentionGraph {
    graph: Graph,
    scores: [usize; 3],
    width: usize,
    parameters: u32,
}

/// What random attention is made of.
#[derive(Clone, Debug)]
struct Form {
    dims: [usize; 4],
    /// The keys after a query that it sees, and how many before them if there is a window.
    ahead: i64,
    window: Option<i64>,
    /// The number that masks a score, and how: 0 selects it, 1 selects the others.
    fill: f64,
    how: usize,
    has_bias: bool,
    drops: bool,
    /// Whether the result is `[queries, heads * width]`.
    merges: bool,
}

impl AttentionGraph {
    fn parameter(&mut self, dims: &[usize]) -> NodeId {
        self.parameters += 1;
        let op = Op::Parameter { index: self.parameters - 1, ty: TensorType::new(DType::F32, dims) };
        self.graph.add(op, &[]).unwrap()
    }

    fn dot(&mut self, lhs: NodeId, rhs: NodeId, [left, right]: [usize; 2]) -> NodeId {
        let attrs = DotAttrs::new([&[0], &[0]], [&[left], &[right]], DType::F32);
        self.graph.dot_general(lhs, rhs, attrs).unwrap()
    }

    /// Returns whether a key is further than `ahead` after a query, or more than `window` before that.
    fn hidden(&mut self, form: &Form) -> NodeId {
        let g = &mut self.graph;
        let [query, key] = [1, 2].map(|dim| g.iota(DType::I32, &self.scores, dim).unwrap());
        let last = g.binary_const(BinaryOp::Add, query, form.ahead).unwrap();
        let after = g.compare(Direction::Gt, key, last).unwrap();
        let Some(window) = form.window else { return after };
        let first = g.binary_const(BinaryOp::Sub, last, window).unwrap();
        let before = g.compare(Direction::Lt, key, first).unwrap();
        g.binary(BinaryOp::Or, after, before).unwrap()
    }

    fn masked(&mut self, form: &Form, scores: NodeId) -> NodeId {
        let hidden = self.hidden(form);
        let g = &mut self.graph;
        let fill = g.splat_like(scores, form.fill).unwrap();
        match form.how {
            0 => g.select(hidden, fill, scores).unwrap(),
            _ => {
                let seen = g.unary(UnaryOp::Not, hidden).unwrap();
                g.select(seen, scores, fill).unwrap()
            }
        }
    }

    /// Returns the program of attention and the gradients of its arguments.
    fn program(form: &Form) -> Program {
        let [heads, queries, keys, width] = form.dims;
        let mut g = Self { graph: Graph::new(), scores: [heads, queries, keys], width, parameters: 0 };
        let [q, gradient] = [(); 2].map(|()| g.parameter(&[heads, queries, g.width]));
        let [k, v] = [(); 2].map(|()| g.parameter(&[heads, keys, g.width]));
        let mut scores = g.dot(q, k, [2, 2]);
        if form.has_bias {
            let bias = g.parameter(&[heads, queries, keys]);
            scores = g.graph.binary(BinaryOp::Add, scores, bias).unwrap();
        }
        let masked = g.masked(form, scores);
        let largest = g.graph.accumulate_keepdim(Combine::Max, masked, 2).unwrap();
        let largest = g.graph.broadcast_like(largest, masked).unwrap();
        let shifted = g.graph.binary(BinaryOp::Sub, masked, largest).unwrap();
        let exponentials = g.graph.unary(UnaryOp::Exp, shifted).unwrap();
        let sum = g.graph.accumulate_keepdim(Combine::Sum, exponentials, 2).unwrap();
        let sum = g.graph.broadcast_like(sum, masked).unwrap();
        let weights = g.graph.binary(BinaryOp::Div, exponentials, sum).unwrap();
        let kept = form.drops.then(|| g.parameter(&[heads, queries, keys]));
        let kept = kept.map(|kept| {
            let is_kept = g.graph.compare_const(Direction::Gt, kept, 0.0).unwrap();
            g.graph.convert(is_kept, DType::F32).unwrap()
        });
        let drop = |g: &mut Graph, x| kept.map_or(x, |kept| g.binary(BinaryOp::Mul, x, kept).unwrap());
        let dropped = drop(&mut g.graph, weights);
        let mut result = g.dot(dropped, v, [2, 1]);
        if form.merges {
            let turned = g.graph.transpose(result, &[1, 0, 2]).unwrap();
            result = g.graph.reshape(turned, &[queries, heads * width]).unwrap();
        }
        let dv = g.dot(dropped, gradient, [1, 1]);
        let dp = g.dot(gradient, v, [2, 2]);
        let dp = drop(&mut g.graph, dp);
        let product = g.graph.binary(BinaryOp::Mul, dp, weights).unwrap();
        let sums = g.graph.accumulate_keepdim(Combine::Sum, product, 2).unwrap();
        let sums = g.graph.broadcast_like(sums, dp).unwrap();
        let centered = g.graph.binary(BinaryOp::Sub, dp, sums).unwrap();
        let ds = g.graph.binary(BinaryOp::Mul, weights, centered).unwrap();
        let hidden = g.hidden(form);
        let zeros = g.graph.splat_like(ds, 0.0).unwrap();
        let ds = g.graph.select(hidden, zeros, ds).unwrap();
        let (dq, dk) = (g.dot(ds, k, [2, 1]), g.dot(ds, q, [1, 1]));
        Program::extract(&g.graph, &[result, dq, dk, dv]).unwrap()
    }
}

fn forms() -> impl Strategy<Value = Form> {
    let dims = (1usize..3, 3usize..24, 3usize..24, 1usize..5);
    let fill = prop_oneof![Just(-1e4), Just(-1e9), Just(f64::NEG_INFINITY)];
    let mask = (-2i64..8, proptest::option::of(0i64..6), fill, 0usize..2);
    let mask = (mask, any::<bool>(), any::<bool>(), any::<bool>());
    (dims, mask).prop_map(|(dims, ((ahead, window, fill, how), has_bias, drops, merges))| {
        let dims = [dims.0, dims.1, dims.2, dims.3];
        // Every query sees a key, since -inf makes NaN of other rows. `burn-tpu-fusion` tests those.
        let ahead = ahead.max(0).min(dims[2] as i64 - 1);
        let last = (dims[1] as i64 - 1 + ahead).max(0);
        let window = window.map(|window| window.max(last - (dims[2] as i64 - 1)));
        // What another number masks is not left out beside dropout.
        let fill = if drops { f64::NEG_INFINITY } else { fill };
        Form { dims, ahead, window, fill, how, has_bias, drops, merges }
    })
}

/// Blocks of three queries, and the sum over the width, give what the whole of attention gives.
#[test]
fn random_attention_keeps_its_values() {
    let (all, cut) = (Cell::new(0), Cell::new(0));
    let check = |form: Form| {
        let program = AttentionGraph::program(&form);
        let gradient = SoftmaxGradient.run(&program).unwrap();
        prop_assert_eq!(gradient.count, 1);
        let blocks = QueryBlocks::of(3).run(&gradient.program).unwrap();
        verify(&blocks.program).unwrap();
        all.set(all.get() + 1);
        cut.set(cut.get() + blocks.count);
        let (plain, found) = (floats(interpreted(&program)), floats(interpreted(&blocks.program)));
        // Gradients are differences of products that are larger than the largest result.
        let largest = plain.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (plain, found) in plain.iter().zip(&found) {
            prop_assert!((plain - found).abs() <= 1e-4 * largest, "{} is {}: {:?}", plain, found, form);
        }
        Ok(())
    };
    TestRunner::new(common::cases(256)).run(&forms(), check).unwrap();
    let (all, cut) = (all.get(), cut.get());
    assert!(2 * cut > all, "{cut} of {all} in blocks");
}

fn floats(results: Vec<Vec<u8>>) -> Vec<f32> {
    let bytes: Vec<_> = results.into_iter().flatten().collect();
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// Returns the program of attention in bf16, as recorded, with gradients or without.
fn attention_program(attention: Attention, size: usize, trains: bool) -> Program {
    let inputs = |device: &Device| (qkv::<bf16>(size, &TpuDevice::from(*device)), Vec::new());
    let step = |(qkv, _): ([Tensor<Tpu<bf16>, 4>; 3], Vec<_>), _: &Device| {
        let results = match trains {
            true => attention.train::<Autodiff<Tpu<bf16>>>(qkv.clone()),
            false => vec![attention.forward(qkv.clone())],
        };
        (qkv, results)
    };
    let programs = with_level(Optimization::Off, || recorded(inputs, step)).expect("a step");
    let [program] = &programs[..] else { panic!("{} programs", programs.len()) };
    Program::clone(program)
}

#[test]
fn attention_is_found_in_each_form() {
    for attention in Attention::ALL {
        let program = attention_program(attention, 640, true);
        let gradient = SoftmaxGradient.run(&program).unwrap();
        let blocks = QueryBlocks::default().run(&gradient.program).unwrap();
        let divided = usize::from(attention.is_divided());
        assert_eq!((gradient.count, blocks.count), (1, divided), "{attention:?}\n{program}");
        let short = QueryBlocks::default().run(&attention_program(attention, 128, true)).unwrap();
        let forward = QueryBlocks::default().run(&attention_program(attention, 640, false)).unwrap();
        assert_eq!((short.count, forward.count), (0, 1), "{attention:?}");
    }
}

#[test]
#[ignore = "a measurement, by hand"]
fn measure_linear_activation_on_the_cpu_plugin() {
    let Some(plugin) = programs::cpu_plugin() else { return };
    let client = Client::new(plugin, &ClientOptions::cpu(1).unwrap()).unwrap();
    for (layers, shape) in SHAPES {
        for activation in [Activation::None, Activation::Relu, Activation::Tanh, Activation::Gelu] {
            let reference = run(&client, &mlp(DType::F32, layers, shape, activation), 1).values;
            let plain = mlp(DType::BF16, layers, shape, activation);
            for (name, program) in [("as recorded", plain.clone()), ("rewritten", fused(&plain))] {
                let folder = tempfile::tempdir().unwrap();
                client.compile(&pjrt_program(&program), &dumping(folder.path())).unwrap();
                let (instructions, fusions) = counts(folder.path());
                let run = run(&client, &program, 41);
                let error = relative_error(&run.values, &reference);
                print(&format!(
                    "cpu {layers} x {shape:?} {activation:?} {name}: {:.0} us at best, {:.0} median, {instructions} \
                     instructions, {fusions} fusions, relative error {error:.3e}",
                    run.micros[0], run.micros[1]
                ));
            }
        }
    }
}

#[test]
#[ignore = "a measurement, by hand"]
fn measure_linear_activation_ahead_of_time() {
    let Some(libtpu) = programs::libtpu() else { return };
    let topology = TopologyDescription::new(libtpu, "v5e:1x1", &[]).unwrap();
    for (layers, shape) in SHAPES {
        for activation in [Activation::None, Activation::Relu, Activation::Tanh, Activation::Gelu] {
            let plain = mlp(DType::BF16, layers, shape, activation);
            for (name, program) in [("as recorded", plain.clone()), ("rewritten", fused(&plain))] {
                let folder = tempfile::tempdir().unwrap();
                let options = dumping(folder.path()).optimization_level(OptimizationLevel::O1);
                let executable = topology.compile(&pjrt_program(&program), &options).unwrap();
                let (instructions, fusions) = counts(folder.path());
                let costs = executable.cost_analysis().unwrap();
                print(&format!(
                    "v5e {layers} x {shape:?} {activation:?} {name}: {instructions} instructions, {fusions} fusions, \
                     {:.3} MB accessed, {:.2} us estimated, {} bytes of temporaries",
                    float(&costs, "bytes accessed") / 1e6,
                    float(&costs, "optimal_seconds") * 1e6,
                    executable.memory_stats().unwrap().temporary_bytes
                ));
            }
        }
    }
}
