//! Equal blocks as one loop: values and gradients are those of the blocks one after another, in every tier, on a mesh,
//! and with everything that may be kept.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use burn::backend::Autodiff;
use burn::module::{AutodiffModule, Module, ModuleVisitor, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{Distribution, FloatDType, Tolerance};
use burn_tpu::{
    DeviceAdamW, Keep, Layers, LayersBackend, Replicate, Tpu, TpuDevice, TpuError, TpuOptimizer, autocast,
    compile_step, keep, place,
};
use burn_tpu_graph::Op;
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_runtime::layers::{LayerInputs, LayerLoop, LayerResults};
use std::slice::from_ref;

type I = Tpu<f32>;
type B = Autodiff<I>;

const WIDTH: usize = 8;

/// A block of a transformer with one head, whose attention is added to a bias.
#[derive(Module, Debug)]
struct Block<B: Backend> {
    before: LayerNorm<B>,
    mixed: Linear<B>,
    out: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
    dropout: Dropout,
}

impl<B: Backend> Block<B> {
    fn new(dropout: f64, device: &B::Device) -> Self {
        Self {
            before: LayerNormConfig::new(WIDTH).init(device),
            mixed: LinearConfig::new(WIDTH, 3 * WIDTH).init(device),
            out: LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(device),
            up: LinearConfig::new(WIDTH, 2 * WIDTH).init(device),
            down: LinearConfig::new(2 * WIDTH, WIDTH).init(device),
            dropout: DropoutConfig::new(dropout).init(),
        }
    }
}

impl<B: LayersBackend> Block<B> {
    /// `x` is `[batch, sequence, width]`, `bias` `[1, sequence, sequence]`.
    fn forward(&self, x: Tensor<B, 3>, bias: Tensor<B, 3>) -> Tensor<B, 3> {
        let x = keep("input", x);
        let parts = self.mixed.forward(self.before.forward(x.clone())).chunk(3, 2);
        let scores = parts[0].clone().matmul(parts[1].clone().swap_dims(1, 2)) * 0.35 + bias;
        let attention = keep("attention", softmax(scores, 2).matmul(parts[2].clone()));
        let x = x + self.dropout.forward(self.out.forward(attention));
        let hidden = keep("hidden", gelu(self.up.forward(x.clone())));
        x + self.dropout.forward(self.down.forward(hidden))
    }
}

/// Loss and gradients of a model, as vectors of numbers.
type Found = (f32, Vec<Vec<f32>>);

struct Collect<'g, B: AutodiffBackend> {
    gradients: &'g GradientsParams,
    found: Vec<Vec<f32>>,
    model: std::marker::PhantomData<B>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<B, D>>) {
        let gradient = self.gradients.get::<B::InnerBackend, D>(parameter.id).unwrap();
        self.found.push(gradient.into_data().convert::<f32>().to_vec().unwrap());
    }
}

fn numbers<B: AutodiffBackend, M: AutodiffModule<B>>(
    loss: Tensor<B, 1>,
    model: &M,
    x: Tensor<B, 3>,
    bias: Tensor<B, 3>,
) -> Found {
    let mut gradients = loss.backward();
    let of = |tensor: Tensor<B, 3>, gradients: &mut B::Gradients| {
        tensor.grad_remove(gradients).unwrap().into_data().convert::<f32>().to_vec().unwrap()
    };
    let inputs = [of(x, &mut gradients), of(bias, &mut gradients)];
    let gradients = GradientsParams::from_grads(gradients, model);
    let mut collect = Collect::<B> { gradients: &gradients, found: Vec::new(), model: std::marker::PhantomData };
    model.visit(&mut collect);
    collect.found.extend(inputs);
    (loss.into_scalar().elem(), collect.found)
}

fn close(a: &Found, b: &Found, tolerance: f32) {
    let is_close = |a: f32, b: f32| (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()));
    assert!(is_close(a.0, b.0), "losses {} and {}", a.0, b.0);
    assert_eq!(a.1.len(), b.1.len());
    for (place, (a, b)) in a.1.iter().zip(&b.1).enumerate() {
        assert_eq!(a.len(), b.len(), "gradient {place}");
        let other = a.iter().zip(b).position(|(a, b)| !is_close(*a, *b));
        assert_eq!(other, None, "gradient {place}: {:?}", other.map(|at| (a[at], b[at])));
    }
    assert!(a.1.iter().all(|gradient| gradient.iter().any(|number| *number != 0.0)), "a gradient is zero");
}

fn model(layers: usize, dropout: f64, device: &TpuDevice) -> Layers<B, Block<B>> {
    B::seed(device, 3);
    let model = Layers::init(layers, |_| Block::new(dropout, device)).unwrap();
    B::seed(device, 5);
    model
}

fn inputs(device: &TpuDevice) -> (Tensor<B, 3>, Tensor<B, 3>) {
    let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
    let data = |dims: [usize; 3]| TensorData::new((0..dims.iter().product()).map(number).collect::<Vec<f32>>(), dims);
    let x = Tensor::from_data(data([2, 5, WIDTH]), device).require_grad();
    (x, Tensor::from_data(data([1, 5, 5]), device).require_grad())
}

/// Runs the layers as a loop, or one after another, and returns loss and gradients.
fn run(model: &Layers<B, Block<B>>, as_loop: bool, device: &TpuDevice) -> Found {
    let (x, bias) = inputs(device);
    let block = |block: &Block<B>, (x, bias): (Tensor<B, 3>, Tensor<B, 3>)| (block.forward(x, bias.clone()), bias);
    let input = (x.clone(), bias.clone());
    let (y, _) = if as_loop { model.forward(input, block).unwrap() } else { model.forward_each(input, block) };
    numbers((y.clone() * y).mean(), model, x, bias)
}

const KEEPS: [fn() -> Keep; 5] = [
    || Keep::Nothing,
    || Keep::Products,
    || Keep::Everything,
    || Keep::Names(vec!["attention"]),
    || Keep::Offload { host: vec!["input", "hidden"], device: vec!["attention"] },
];

#[test]
fn a_loop_has_the_values_and_gradients_of_its_blocks_one_after_another() {
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let model = model(3, 0.0, &device);
    let each = run(&model, false, &device);
    for keep in KEEPS {
        close(&each, &run(&model.clone().with_keep(keep()), true, &device), 1e-6);
    }
}

/// Each layer's elements are dropped as if the layers ran one by one, in the backward pass too.
#[test]
fn random_numbers_are_those_of_the_blocks_one_after_another() {
    let _alone = common::alone();
    // Another device than the other tests', which draw too.
    let device = common::interpreter_with("drawn", common::development());
    let model = model(3, 0.5, &device);
    B::seed(&device, 11);
    let each = run(&model, false, &device);
    for keep in KEEPS {
        B::seed(&device, 11);
        close(&each, &run(&model.clone().with_keep(keep()), true, &device), 1e-6);
        // What is drawn next is the same too.
        let next = Tensor::<B, 1>::random([4], Distribution::Default, &device).into_data();
        B::seed(&device, 11);
        run(&model, false, &device);
        next.assert_eq(&Tensor::<B, 1>::random([4], Distribution::Default, &device).into_data(), true);
    }
}

/// What is recorded, and what is compiled, does not grow with the layers; a step of them compiles as often as any other.
#[test]
fn a_loop_records_as_much_for_any_number_of_layers() {
    let _alone = common::alone();
    let Some(device) = common::cpu() else { return };
    // One program draws each block's parameters.
    let block = |_| {
        let block = place(Block::new(0.1, &device), &Replicate).unwrap();
        device.mark_step();
        block
    };
    let nodes = [2, 126].map(|layers| {
        let model = model_of(&Layers::init(layers, block).unwrap());
        device.sync().unwrap();
        let before = device.metrics();
        let found = run(&model, true, &device);
        let recorded = device.metrics().recorded_nodes - before.recorded_nodes;
        if layers == 2 {
            close(&run(&model_of(&model), false, &device), &found, 1e-5);
        }
        recorded
    });
    assert_eq!(nodes[0], nodes[1]);
}

/// What a block captures is dropped by who runs the blocks, though it is dropped while the block is recorded: it is no
/// result.
#[test]
fn what_a_block_captures_is_no_result_of_the_step() {
    let _alone = common::alone();
    type State = (Option<Layers<B, Block<B>>>, Option<Tensor<I, 1>>);
    let step = |(model, _): State, device: &burn_tpu_runtime::Device| {
        let device = TpuDevice::from(*device);
        let model = model.unwrap_or_else(|| Layers::init(2, |_| Block::new(0.0, &device)).unwrap());
        let mask = Tensor::<B, 3>::random([3, 5, 5], Distribution::Default, &device);
        let x = Tensor::<B, 3>::ones([3, 5, WIDTH], &device);
        let y = model.forward(x, |block, x| block.forward(x, mask.clone())).unwrap();
        let loss = y.mean();
        drop(loss.backward());
        (Some(model), Some(loss.inner()))
    };
    let programs = burn_tpu_runtime::testing::recorded(|_| (None, None), step).unwrap();
    let masks = programs.iter().flat_map(|program| program.output_types().filter(|ty| ty.dims[..] == [3, 5, 5]));
    assert_eq!(masks.count(), 0);
}

/// Returns the model with the random numbers that it was made with.
fn model_of(model: &Layers<B, Block<B>>) -> Layers<B, Block<B>> {
    B::seed(&model.devices()[0], 5);
    model.clone()
}

/// Trained by an optimizer for modules, and as a compiled step.
#[test]
fn layers_are_trained_as_blocks_are() {
    let _alone = common::alone();
    let device = common::interpreter_with("trained", common::development());
    let config = AdamWConfig::new().with_weight_decay(0.1);
    let loss_of = |model: &Layers<B, Block<B>>, as_loop: bool, x: Tensor<B, 3>| {
        let bias = Tensor::zeros([1, 5, 5], &device);
        let block = |block: &Block<B>, x| block.forward(x, bias.clone());
        let y = if as_loop { model.forward(x, block).unwrap() } else { model.forward_each(x, block) };
        (y.clone() * y).mean()
    };
    let train = |as_loop: bool| {
        let mut model = model(3, 0.0, &device);
        let mut optimizer = TpuOptimizer::new(config.init());
        let mut losses = Vec::new();
        let mut programs = Vec::new();
        for _ in 0..6 {
            programs.push(burn_tpu::program_keys(&device).len());
            let loss = loss_of(&model, as_loop, inputs(&device).0);
            losses.push(loss.clone().into_scalar());
            model = optimizer.step(1e-2, model.clone(), GradientsParams::from_grads(loss.backward(), &model));
        }
        assert_eq!(programs[3..], [programs[3]; 3], "a step is a program that is known");
        (losses, model)
    };
    let (each, blocks) = train(false);
    let (looped, trained) = train(true);
    for (a, b) in each.iter().zip(&looped) {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{each:?} {looped:?}");
    }
    assert!(looped[5] < 0.9 * looped[0]);

    let step = |model: &Layers<B, Block<B>>, x: Tensor<I, 3>| {
        let bias = Tensor::zeros([1, 5, 5], &x.device());
        let y = model.forward(Tensor::<B, 3>::from_inner(x), |block, x| block.forward(x, bias.clone())).unwrap();
        let loss = (y.clone() * y).mean();
        (loss.clone(), loss.inner())
    };
    let mut training = compile_step(model(3, 0.0, &device), DeviceAdamW::new().with_weight_decay(0.1), step);
    for expected in &looped {
        let loss: Tensor<I, 1> = training.run(1e-2, inputs(&device).0.inner()).unwrap();
        let loss: f32 = loss.into_scalar();
        assert!((loss - expected).abs() <= 1e-4 * expected.abs(), "{loss} {expected}");
    }
    // A record is that of the blocks.
    let loaded = blocks.clone().into_blocks().load_record(trained.clone().into_record());
    assert_eq!(loaded.len(), 3);
    let again = Layers::new(loaded).unwrap();
    assert_eq!(ids(&again), ids(&trained));
    let again = blocks.load_record(trained.clone().into_record());
    let (a, b) = (loss_of(&again, true, inputs(&device).0), loss_of(&trained, true, inputs(&device).0));
    assert_eq!(a.into_scalar(), b.into_scalar());
    assert_eq!(ids(&again), ids(&trained));
}

fn ids(model: &Layers<B, Block<B>>) -> Vec<String> {
    burn::module::list_param_ids(model).iter().map(ToString::to_string).collect()
}

/// Without a gradient, and as a function that is compiled once.
#[test]
fn layers_are_run_without_a_gradient() {
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let model = model(3, 0.5, &device).valid();
    let x = inputs(&device).0.inner();
    let bias = inputs(&device).1.inner();
    let block = |block: &Block<I>, x| block.forward(x, bias.clone());
    let each = model.forward_each(x.clone(), block).into_data();
    let looped = model.forward(x.clone(), block).unwrap().into_data();
    looped.assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-6));
    let other = bias.clone();
    let compiled = burn_tpu::compile(move |(model, x): (Layers<I, Block<I>>, Tensor<I, 3>)| {
        model.forward(x, |block, x| block.forward(x, other.clone())).unwrap()
    });
    for _ in 0..3 {
        let y = compiled.call((model.clone(), x.clone())).unwrap();
        y.into_data().assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-6));
    }
}

/// The state of a layer is what its last call returned: a cache, to which each call writes a row, and a counter.
#[test]
fn state_is_that_of_each_layer() {
    let _alone = common::alone();
    let cpu = common::cpu();
    for device in [Some(TpuDevice::ndarray()), cpu].into_iter().flatten() {
        let model = model(3, 0.0, &device).valid();
        let blocks = model.clone().into_blocks();
        let step = |block: &Block<I>, x: Tensor<I, 3>, rows: Tensor<I, 2>, calls: Tensor<I, 1, Int>, call: usize| {
            let new = x.clone().mean_dim(0).mean_dim(1).reshape([1, WIDTH]) + rows.clone().slice_dim(0, 0..1);
            let rows = rows.slice_assign([call..call + 1, 0..WIDTH], new);
            let bias = rows.clone().sum().reshape([1, 1, 1]) * 0.01;
            (block.forward(x + bias.clone(), bias.expand([1, 5, 5])), rows, calls + 1)
        };
        let inputs = [0.5, 1.0, -0.5].map(|scale| inputs(&device).0.inner() * scale);
        let mut rows = vec![Tensor::<I, 2>::zeros([4, WIDTH], &device); 3];
        let mut state = (Tensor::<I, 3>::zeros([3, 4, WIDTH], &device), Tensor::<I, 2, Int>::zeros([3, 1], &device));
        for (call, input) in inputs.into_iter().enumerate() {
            let mut expected = input.clone();
            for (block, rows) in blocks.iter().zip(&mut rows) {
                let none = Tensor::zeros([1], &device);
                (expected, *rows, _) = step(block, expected, rows.clone(), none, call);
            }
            let looped = model.forward_with_state(input, state, |block, x, (rows, calls)| {
                let (x, rows, calls) = step(block, x, rows, calls, call);
                (x, (rows, calls))
            });
            let (found, next) = looped.unwrap();
            state = next;
            let tolerance = Tolerance::<f32>::absolute(1e-5);
            found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
            state.0.to_data().assert_approx_eq(&Tensor::stack::<3>(rows.clone(), 0).into_data(), tolerance);
        }
        state.1.into_data().assert_eq(&TensorData::from([[3], [3], [3]]), false);
    }
}

/// A row that a layer writes to its part of a state is written to the state of all layers: nothing as large as a part is
/// written.
#[test]
fn a_row_of_a_state_is_written_in_place() {
    use burn_tpu_graph::DType;
    use burn_tpu_runtime::ops::movement::Slice;
    use burn_tpu_runtime::ops::{arithmetic, data, movement};
    use burn_tpu_runtime::{Device, Tensor, testing};
    let layer = |mut inputs: LayerInputs| {
        let (x, mut cache) = (inputs.carries.remove(0), inputs.slices.remove(0));
        for row in [2, 5] {
            cache = movement::slice_assign(cache, &[Slice { range: row..row + 1, step: 1 }], x.clone());
        }
        let last = movement::slice(cache.clone(), &[Slice { range: 0..1, step: 1 }]);
        let carries = vec![arithmetic::binary("float_add", BinaryOp::Add, x, last)];
        LayerResults { carries, parts: vec![Some(cache)], ..LayerResults::default() }
    };
    let build = |device: &Device| {
        let ones = |dims: &[usize]| data::splat("float_ones", dims, DType::F32, 1, device);
        (ones(&[1, 4]), ones(&[3, 8, 4]))
    };
    let step = |(x, cache): (Tensor, Tensor), _: &Device| {
        let mut layers = LayerLoop::record(3, from_ref(&x), from_ref(&cache), &Keep::Nothing, layer).unwrap();
        let (mut carries, mut stacked) = layers.replace(vec![x], vec![cache], &[]).unwrap();
        (carries.remove(0), stacked.remove(0))
    };
    let _alone = common::alone();
    let programs = testing::recorded(build, step).unwrap();
    let bodies = programs.iter().flat_map(|program| program.graph().nodes()).filter_map(|node| match &node.op {
        Op::For { body, .. } => Some(body.graph()),
        _ => None,
    });
    let bodies: Vec<_> = bodies.collect();
    let written = bodies.iter().flat_map(|body| body.nodes()).filter(|node| node.op == Op::DynamicUpdateSlice);
    let dims: Vec<Vec<usize>> = written.map(|node| node.ty.dims.to_vec()).collect();
    assert_eq!(dims, [[3, 8, 4], [3, 8, 4]]);
}

/// Layers in the blocks of layers, and weights in bf16.
#[test]
fn layers_are_nested_and_cast() {
    #[derive(Module, Debug)]
    struct Outer<B: Backend> {
        norm: LayerNorm<B>,
        inner: Layers<B, Linear<B>>,
    }
    impl<B: LayersBackend> Outer<B> {
        fn forward(&self, x: Tensor<B, 2>, as_loop: bool) -> Tensor<B, 2> {
            let x = self.norm.forward(x);
            let layer = |linear: &Linear<B>, x| gelu(linear.forward(x));
            if as_loop { self.inner.forward(x, layer).unwrap() } else { self.inner.forward_each(x, layer) }
        }
    }
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let linear = || LinearConfig::new(WIDTH, WIDTH).init(&device);
    let outer =
        |_| Outer { norm: LayerNormConfig::new(WIDTH).init(&device), inner: Layers::init(3, |_| linear()).unwrap() };
    let model = Layers::<B, Outer<B>>::init(2, outer).unwrap();
    let run = |model: &Layers<B, Outer<B>>, of: &Layers<B, Outer<B>>, dtype: FloatDType, as_loop: bool| {
        let x = inputs(&device).0.reshape([10, WIDTH]).detach().cast(dtype);
        let block = |block: &Outer<B>, x| block.forward(x, as_loop);
        let y = if as_loop { model.forward(x.clone(), block).unwrap() } else { model.forward_each(x.clone(), block) };
        let loss = (y.clone() * y).cast(FloatDType::F32).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), of);
        let mut collect = Collect::<B> { gradients: &gradients, found: Vec::new(), model: std::marker::PhantomData };
        of.visit(&mut collect);
        (loss.into_scalar(), collect.found)
    };
    let [each, wide] = [false, true].map(|as_loop| run(&model, &model, FloatDType::F32, as_loop));
    close(&each, &wide, 1e-6);
    // The first block takes what the others do.
    let [each, looped] = [false, true].map(|as_loop| run(&autocast(&model), &model, FloatDType::BF16, as_loop));
    close(&each, &looped, 2e-2);
    assert_ne!(looped.0, wide.0, "nothing was cast");
}

/// Blocks with a tensor that is no parameter: a table that all share, or one of each layer.
#[test]
fn tensors_beside_parameters_are_those_of_each_layer() {
    #[derive(Module, Debug)]
    struct Scaled<B: Backend> {
        linear: Linear<B>,
        scale: Tensor<B, 1>,
    }
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let table = Tensor::<B, 1>::from_floats([0.5], &device);
    for shares in [true, false] {
        let scale = |layer: usize| if shares { table.clone() } else { table.clone() + layer as f32 };
        let blocks = (0..3).map(|layer| Scaled { linear: LinearConfig::new(2, 2).init(&device), scale: scale(layer) });
        let layers = Layers::new(blocks.collect()).unwrap();
        let x = Tensor::<B, 2>::from_floats([[1.0, -2.0]], &device);
        let block = |block: &Scaled<B>, x: Tensor<B, 2>| block.linear.forward(x) * block.scale.clone().unsqueeze();
        let each = layers.forward_each(x.clone(), block).into_data();
        let looped = layers.forward(x, block).unwrap().into_data();
        looped.assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-6));
    }
}

/// They are stacked once, as floats are, and not at each call.
#[test]
fn integers_of_a_block_are_parameters_of_the_stack() {
    #[derive(Module, Debug)]
    struct Chosen<B: Backend> {
        linear: Linear<B>,
        columns: Param<Tensor<B, 1, Int>>,
    }
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let block = |layer: i32| Chosen {
        linear: LinearConfig::new(3, 3).init(&device),
        columns: Param::initialized(ParamId::new(), Tensor::from_ints([layer, 2 - layer, 1], &device)),
    };
    let layers = Layers::<B, Chosen<B>>::new((0..3).map(block).collect()).unwrap();
    let chosen = |block: &Chosen<B>, x: Tensor<B, 2>| block.linear.forward(x).select(1, block.columns.val());
    let x = || Tensor::<B, 2>::from_floats([[1.0, -2.0, 0.5]], &device);
    let each = layers.forward_each(x(), chosen).into_data();
    layers.forward(x(), chosen).unwrap().into_data().assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-6));

    #[derive(Default)]
    struct Integers(Vec<Vec<usize>>);
    impl ModuleVisitor<B> for Integers {
        fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<B, D, Int>>) {
            self.0.push(parameter.dims().to_vec());
        }
    }
    let mut integers = Integers::default();
    layers.visit(&mut integers);
    assert_eq!(integers.0, [[3, 3]]);
    let columns = layers.layer(2).columns.val().into_data();
    columns.assert_eq(&TensorData::from([2, 0, 1]), false);

    let gradient = |as_loop: bool| {
        let x = x().require_grad();
        let y =
            if as_loop { layers.forward(x.clone(), chosen).unwrap() } else { layers.forward_each(x.clone(), chosen) };
        x.grad(&y.powi_scalar(2).sum().backward()).unwrap().into_data()
    };
    gradient(true).assert_approx_eq::<f32>(&gradient(false), Tolerance::absolute(1e-5));
}

/// What the gradient alone reads is kept by its name: the forward loop computes it, and the backward loop does not.
#[test]
fn what_only_the_gradient_reads_is_kept_by_its_name() {
    use burn_tpu_graph::DType;
    use burn_tpu_runtime::ops::{arithmetic, data};
    use burn_tpu_runtime::{Device, Tensor, layers, testing};
    let layer = |mut inputs: LayerInputs| {
        let (x, gradient) = (inputs.carries.remove(0), inputs.gradients.remove(0));
        let slope = arithmetic::unary("float_cos", UnaryOp::Cos, x.clone());
        layers::name("slope", &slope);
        let gradient = arithmetic::binary("float_mul", BinaryOp::Mul, gradient, slope);
        let carries = vec![arithmetic::unary("float_sin", UnaryOp::Sin, x)];
        LayerResults { carries, gradients: vec![Some(gradient)], ..LayerResults::default() }
    };
    let cosines = |keep: Keep| {
        let step = |x: Tensor, device: &Device| {
            let sine = LayerLoop::record(3, from_ref(&x), &[], &keep, layer).unwrap();
            let (y, residuals) = sine.forward(vec![x], Vec::new()).unwrap();
            let one = data::splat("float_ones", &[4], DType::F32, 1, device);
            let gradients = sine.backward(&residuals, &[Some(one)]).unwrap();
            arithmetic::binary("float_add", BinaryOp::Add, y[0].clone(), gradients.carries[0].clone().unwrap())
        };
        let build = |device: &Device| data::splat("float_ones", &[4], DType::F32, 1, device);
        let programs = testing::recorded(build, step).unwrap();
        let nodes = programs.iter().flat_map(|program| program.graph().nodes());
        let loops = nodes.filter_map(|node| match &node.op {
            Op::For { body, .. } => Some(body.graph().nodes().iter()),
            _ => None,
        });
        loops.map(|nodes| nodes.filter(|node| node.op == Op::Unary(UnaryOp::Cos)).count()).collect::<Vec<_>>()
    };
    let _alone = common::alone();
    assert_eq!(cosines(Keep::Nothing), [0, 1]);
    assert_eq!(cosines(Keep::Names(vec!["slope"])), [1, 0]);
}

#[test]
fn what_is_no_loop_is_refused_with_its_reason() {
    #[derive(Module, Debug)]
    struct Normed<B: Backend> {
        norm: BatchNorm<B>,
    }
    let _alone = common::alone();
    let device = TpuDevice::ndarray();
    let refused = |error: TpuError, words: &str| assert!(error.to_string().contains(words), "{error}");
    let widths = |widths: [usize; 2]| widths.map(|width| LinearConfig::new(2, width).init::<B>(&device)).to_vec();
    refused(Layers::<B, Linear<B>>::new(Vec::new()).unwrap_err(), "there are none");
    refused(Layers::new(widths([2, 3])).unwrap_err(), "layer 1 differs from layer 0: its parameter `weight`");
    let rates = [0.1, 0.2].map(|rate| Block::<B>::new(rate, &device)).to_vec();
    refused(Layers::new(rates).unwrap_err(), "layer 1 differs from layer 0 in more than its tensors");
    let wide = Layers::new(widths([3, 3])).unwrap();
    let x = Tensor::<B, 2>::ones([1, 2], &device);
    let given = wide.forward(x.clone(), |linear, x| linear.forward(x));
    refused(given.unwrap_err(), "a layer takes (f32[1,2]) and gives (f32[1,3])");
    let square = Layers::new(widths([2, 2])).unwrap();
    let read = square.forward(x.clone(), |linear, x| {
        let _number: f32 = x.clone().sum().into_scalar();
        linear.forward(x)
    });
    refused(read.unwrap_err(), "it reads a value");
    let state = |layers| Tensor::<B, 3>::ones([layers, 1, 2], &device);
    let given =
        square.forward_with_state(x.clone(), state(2), |linear, x, state: Tensor<B, 2>| (linear.forward(x), state));
    refused(given.unwrap_err(), "state has no gradient");
    let plain = square.valid();
    let (x, state) = (x.inner(), |layers| state(layers).inner());
    let given =
        plain.forward_with_state(x.clone(), state(3), |linear, x, state: Tensor<I, 2>| (linear.forward(x), state));
    refused(given.unwrap_err(), "an operand of 2 layers is f32[3,1,2]");
    let given = plain.forward_with_state(x.clone(), state(2), |linear, x, state: Tensor<I, 2>| {
        (linear.forward(x), state.repeat_dim(0, 2))
    });
    refused(given.unwrap_err(), "the new value of f32[1,2] is f32[2,2]");
    let given =
        plain.forward_with_state(x, state(2), |linear, x, states: [Tensor<I, 2>; 2]| (linear.forward(x), states));
    refused(given.unwrap_err(), "another list of tensors");
    let norms = (0..2).map(|_| Normed { norm: BatchNormConfig::new(2).init(&device) }).collect();
    refused(Layers::<B, Normed<B>>::new(norms).unwrap_err(), "a block has running statistics");
}
