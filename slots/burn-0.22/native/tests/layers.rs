//! Equal blocks as one loop, in programs of Burn 0.22 and 0.23: values and gradients are those of the blocks one after
//! another, with everything that may be kept. The interpreter runs all but the training.

use burn::module::{Lora, Module, ModuleVisitor, Param, ParamId};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Distribution, FloatDType, TensorData, Tolerance};
use burn_tpu::{
    DeviceAdamW, Keep, Layers, Platform, TpuDevice, TpuError, TpuOptimizer, TpuOptions, autocast, compile,
    compile_step, keep,
};
use burn_tpu_runtime::Device as RuntimeDevice;

const WIDTH: usize = 8;

/// Returns a device of a test, which others neither draw on nor count, and Burn's name for it with autodiff.
fn device(index: u16) -> (TpuDevice, Device) {
    let tpu = TpuDevice::from(RuntimeDevice::new(Platform::NdArray, index));
    (tpu, Device::from(tpu).autodiff())
}

/// A block of a transformer with one head, whose attention is added to a bias.
#[derive(Module, Debug)]
struct Block {
    before: LayerNorm,
    mixed: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
    dropout: Dropout,
}

impl Block {
    fn new(dropout: f64, device: &Device) -> Self {
        Self {
            before: LayerNormConfig::new(WIDTH).init(device),
            mixed: LinearConfig::new(WIDTH, 3 * WIDTH).init(device),
            out: LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(device),
            up: LinearConfig::new(WIDTH, 2 * WIDTH).init(device),
            down: LinearConfig::new(2 * WIDTH, WIDTH).init(device),
            dropout: DropoutConfig::new(dropout).init(),
        }
    }

    /// `x` is `[batch, sequence, width]`, `bias` `[1, sequence, sequence]`.
    fn forward(&self, x: Tensor<3>, bias: Tensor<3>) -> Tensor<3> {
        let x = keep("input", x);
        let parts = self.mixed.forward(self.before.forward(x.clone())).chunk(3, 2);
        let scores = parts[0].clone().matmul(parts[1].clone().swap_dims(1, 2)) * 0.35 + bias;
        let attention = keep("attention", softmax(scores, 2).matmul(parts[2].clone()));
        let x = x + self.dropout.forward(self.out.forward(attention));
        let hidden = keep("hidden", gelu(self.up.forward(x.clone())));
        x + self.dropout.forward(self.down.forward(hidden))
    }
}

type Model = Layers<Block>;

fn model(layers: usize, dropout: f64, device: &Device) -> Model {
    device.seed(3);
    let model = Layers::init(layers, |_| Block::new(dropout, device)).unwrap();
    device.seed(5);
    model
}

fn inputs(device: &Device) -> (Tensor<3>, Tensor<3>) {
    let number = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 50.0;
    let data = |dims: [usize; 3]| TensorData::new((0..dims.iter().product()).map(number).collect::<Vec<f32>>(), dims);
    let [x, bias] = [data([2, 5, WIDTH]), data([1, 5, 5])].map(|data| Tensor::from_data(data, device));
    if device.is_autodiff() { (x.require_grad(), bias.require_grad()) } else { (x, bias) }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Loss and gradients of a model, as vectors of numbers.
type Found = (f32, Vec<Vec<f32>>);

struct Collect<'g>(&'g GradientsParams, Vec<Vec<f32>>);

impl ModuleVisitor for Collect<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.1.push(numbers(self.0.get::<D>(parameter.id).unwrap()));
    }
}

fn gradients_of<M: Module>(gradients: GradientsParams, model: &M) -> Vec<Vec<f32>> {
    let mut collect = Collect(&gradients, Vec::new());
    model.visit(&mut collect);
    collect.1
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

/// Runs the layers as a loop, or one after another, and returns loss and gradients, those of the inputs last.
fn run(model: &Model, as_loop: bool, device: &Device) -> Found {
    let (x, bias) = inputs(device);
    let block = |block: &Block, (x, bias): (Tensor<3>, Tensor<3>)| (block.forward(x, bias.clone()), bias);
    let input = (x.clone(), bias.clone());
    let (y, _) = if as_loop { model.forward(input, block).unwrap() } else { model.forward_each(input, block) };
    let loss = (y.clone() * y).mean();
    let mut gradients = loss.backward();
    let inputs = [x, bias].map(|input| numbers(input.grad_remove(&mut gradients).unwrap()));
    let mut found = gradients_of(GradientsParams::from_grads(gradients, model), model);
    found.extend(inputs);
    (loss.into_scalar(), found)
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
    let (_, device) = device(0);
    for device in [device.clone(), device.gradient_checkpointing()] {
        let model = model(3, 0.0, &device);
        let each = run(&model, false, &device);
        for keep in KEEPS {
            close(&each, &run(&model.clone().with_keep(keep()), true, &device), 1e-5);
        }
    }
}

/// Each layer's elements are dropped as if the layers ran one by one, in the backward pass too.
#[test]
fn random_numbers_are_those_of_the_blocks_one_after_another() {
    let (_, device) = device(1);
    let model = model(3, 0.5, &device);
    device.seed(11);
    let each = run(&model, false, &device);
    for keep in KEEPS {
        device.seed(11);
        close(&each, &run(&model.clone().with_keep(keep()), true, &device), 1e-5);
        // What is drawn next is the same too.
        let next = Tensor::<1>::random([4], Distribution::Default, &device).into_data();
        device.seed(11);
        run(&model, false, &device);
        next.assert_eq(&Tensor::<1>::random([4], Distribution::Default, &device).into_data(), true);
    }
}

#[test]
fn a_loop_records_as_much_for_any_number_of_layers() {
    let (tpu, device) = device(2);
    let nodes = [2, 6].map(|layers| {
        let model = model(layers, 0.1, &device);
        // The parameters are made.
        tpu.sync().unwrap();
        let before = tpu.metrics();
        run(&model, true, &device);
        tpu.metrics().recorded_nodes - before.recorded_nodes
    });
    assert_eq!(nodes[0], nodes[1]);
}

/// Trained by an optimizer for modules, and as a compiled step, on the CPU plugin if it is there; what a record has of it
/// is loaded.
#[test]
fn layers_are_trained_as_blocks_are() {
    let tpu = TpuDevice::default();
    TpuOptions::training().strict(true).disk_cache(false).install(&tpu).unwrap();
    let device = Device::from(tpu).autodiff();
    let loss_of = |model: &Model, as_loop: bool, x: Tensor<3>| {
        let bias = Tensor::zeros([1, 5, 5], &x.device());
        let block = |block: &Block, x| block.forward(x, bias.clone());
        let y = if as_loop { model.forward(x, block).unwrap() } else { model.forward_each(x, block) };
        (y.clone() * y).mean()
    };
    let x = || inputs(&device).0.detach();
    let train = |as_loop: bool| {
        let mut model = model(3, 0.0, &device);
        let mut optimizer = TpuOptimizer::new(AdamWConfig::new().with_weight_decay(0.1).build());
        let mut losses = Vec::new();
        let mut programs = Vec::new();
        for _ in 0..6 {
            programs.push(tpu.program_keys().len());
            let loss = loss_of(&model, as_loop, x());
            losses.push(loss.clone().into_scalar::<f32>());
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
    let mut training =
        compile_step(model(3, 0.0, &device), DeviceAdamW::new().with_weight_decay(0.1), move |model: &Model, x| {
            let loss = loss_of(model, true, x);
            (loss.clone(), loss)
        });
    for expected in &looped {
        let loss: f32 = training.run(1e-2, x()).unwrap().into_scalar();
        assert!((loss - expected).abs() <= 1e-4 * expected.abs(), "{loss} {expected}");
    }
    let numbers = |model: Model| {
        let weight = model.into_blocks().remove(2).down.weight;
        (weight.id, numbers(weight.val()))
    };
    let loaded = blocks.load_record(trained.clone().into_record());
    assert_eq!(numbers(loaded).1, numbers(trained.clone()).1);
    assert_eq!(numbers(Layers::new(trained.clone().into_blocks()).unwrap()), numbers(trained));
}

/// The state of a layer is what its last call returned: a cache, to which each call writes a row, and flags.
#[test]
fn state_is_that_of_each_layer() {
    let (tpu, device) = device(9);
    let trained = model(3, 0.0, &device);
    let (model, device) = (trained.valid(), Device::from(tpu));
    let blocks = model.clone().into_blocks();
    let step = |block: &Block, x: Tensor<3>, rows: Tensor<2>, call: usize| {
        let new = x.clone().mean_dim(0).mean_dim(1).reshape([1, WIDTH]) + rows.clone().slice_dim(0, 0..1);
        let rows = rows.slice_assign([call..call + 1, 0..WIDTH], new);
        let bias = (rows.clone().sum().reshape([1, 1, 1]) * 0.01).expand([1, 5, 5]);
        (block.forward(x, bias), rows)
    };
    let mut rows = vec![Tensor::<2>::zeros([4, WIDTH], &device); 3];
    let flags = Tensor::<2, Bool>::from_data([[true], [false], [true]], &device);
    let mut state = (Tensor::<3>::zeros([3, 4, WIDTH], &device), flags);
    for (call, scale) in [0.5, 1.0, -0.5].into_iter().enumerate() {
        let input = inputs(&device).0 * scale;
        let mut expected = input.clone();
        for (block, rows) in blocks.iter().zip(&mut rows) {
            (expected, *rows) = step(block, expected, rows.clone(), call);
        }
        let looped = model.forward_with_state(input, state, |block, x, (rows, flag): (_, Tensor<1, Bool>)| {
            let (x, rows) = step(block, x, rows, call);
            (x, (rows, flag.bool_not()))
        });
        let (found, next) = looped.unwrap();
        state = next;
        let tolerance = Tolerance::<f32>::absolute(1e-5);
        found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
        state.0.to_data().assert_approx_eq(&Tensor::stack::<3>(rows.clone(), 0).into_data(), tolerance);
    }
    state.1.into_data().assert_eq(&TensorData::from([[false], [true], [false]]), false);
    let device = device.autodiff();
    let rows = Tensor::<3>::zeros([3, 4, WIDTH], &device);
    let given = trained.forward_with_state(inputs(&device).0, rows, |_, x, rows: Tensor<2>| (x, rows));
    assert!(given.unwrap_err().to_string().contains("state has no gradient"));
}

/// In validation nothing is dropped and nothing tracked, also in a function that is compiled once. Training goes on
/// after it.
#[test]
fn layers_are_validated_and_frozen_as_their_blocks_are() {
    let (tpu, device) = device(4);
    let model = model(3, 0.5, &device);
    let (x, bias) = inputs(&Device::from(tpu));
    let block = |block: &Block, x| block.forward(x, bias.clone());
    let valid = model.valid();
    let each = valid.forward_each(x.clone(), block).into_data();
    let looped = valid.forward(x.clone(), block).unwrap();
    assert!(!looped.is_autodiff());
    looped.into_data().assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-5));
    let other = bias.clone();
    let compiled = compile(move |(model, x): (Model, Tensor<3>)| {
        model.forward(x, |block, x| block.forward(x, other.clone())).unwrap()
    });
    for _ in 0..3 {
        let y = compiled.call((valid.clone(), x.clone())).unwrap();
        y.into_data().assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-5));
    }
    let trained = |model: &Model| model.layer(1).down.weight.val().is_require_grad();
    assert!(trained(&model) && !trained(&valid) && trained(&valid.clone().train()));
    // Frozen, its dropout drops nothing though the device has autodiff.
    let frozen = valid.train().freeze();
    assert!(!trained(&frozen) && !frozen.layer(0).dropout.training.is_enabled());
    let dropped = frozen.forward(inputs(&device).0, |block, x| block.forward(x, inputs(&device).1)).unwrap();
    dropped.into_data().assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-5));
}

/// Layers in the blocks of layers, and weights in bf16.
#[test]
fn layers_are_nested_and_cast() {
    #[derive(Module, Debug)]
    struct Outer {
        norm: LayerNorm,
        inner: Layers<Linear>,
    }
    impl Outer {
        fn forward(&self, x: Tensor<2>, as_loop: bool) -> Tensor<2> {
            // Of Burn 0.23, layers take one type.
            let x = self.norm.forward(x);
            let layer = |linear: &Linear, x| gelu(linear.forward(x));
            if as_loop { self.inner.forward(x, layer).unwrap() } else { self.inner.forward_each(x, layer) }
        }
    }
    let (_, device) = device(5);
    device.seed(3);
    let linear = || LinearConfig::new(WIDTH, WIDTH).init(&device);
    let outer =
        |_| Outer { norm: LayerNormConfig::new(WIDTH).init(&device), inner: Layers::init(3, |_| linear()).unwrap() };
    let model = Layers::init(2, outer).unwrap();
    let run = |model: &Layers<Outer>, of: &Layers<Outer>, dtype: FloatDType, as_loop: bool| {
        let x = inputs(&device).0.reshape([10, WIDTH]).detach().cast(dtype);
        let block = |block: &Outer, x| block.forward(x, as_loop);
        let y = if as_loop { model.forward(x.clone(), block).unwrap() } else { model.forward_each(x.clone(), block) };
        let loss = (y.clone() * y).cast(FloatDType::F32).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), of);
        (loss.into_scalar::<f32>(), gradients_of(gradients, of))
    };
    let [each, wide] = [false, true].map(|as_loop| run(&model, &model, FloatDType::F32, as_loop));
    close(&each, &wide, 1e-5);
    // The first block takes what the others do.
    let [each, looped] = [false, true].map(|as_loop| run(&autocast(&model), &model, FloatDType::BF16, as_loop));
    close(&each, &looped, 2e-2);
    assert_ne!(looped.0, wide.0, "nothing was cast");
}

/// Burn's adapters on the weights of blocks: their factors are stacked too.
#[test]
fn adapters_are_those_of_each_layer() {
    let (_, device) = device(6);
    device.seed(3);
    let blocks: Vec<Linear> = (0..3)
        .map(|_| LinearConfig::new(WIDTH, WIDTH).init(&device).apply_lora(Lora::new(2, 4.0)))
        .map(|block| block.map(&mut Ones))
        .collect();
    let layers = Layers::new(blocks.clone()).unwrap();
    let x = inputs(&device).0.detach();
    let layer = |linear: &Linear, x| gelu(linear.forward(x));
    let each = blocks.iter().fold(x.clone(), |x, block| layer(block, x));
    let looped = layers.forward(x.clone(), layer).unwrap();
    looped.clone().into_data().assert_approx_eq::<f32>(&each.into_data(), Tolerance::absolute(1e-5));
    let gradients = GradientsParams::from_grads(looped.sum().backward(), &layers);
    assert_eq!(gradients.len(), 2, "those of the two factors alone");
    let merged = layers.valid().materialize();
    let y = merged.forward(x.inner(), layer).unwrap();
    y.into_data().assert_approx_eq::<f32>(&looped_data(&blocks, &device), Tolerance::absolute(1e-5));
}

fn looped_data(blocks: &[Linear], device: &Device) -> TensorData {
    blocks.iter().fold(inputs(device).0, |x, block| gelu(block.forward(x))).into_data()
}

/// Sets what is zero to a tenth: an adapter begins with a factor of zeros.
struct Ones;

impl burn::module::ModuleMapper for Ones {
    fn map_float<const D: usize>(&mut self, parameter: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let trained = parameter.val().is_require_grad();
        parameter.map(|value| {
            let is_zero = value.clone().inner().equal_elem(0.0);
            Tensor::from_inner(value.inner().mask_fill(is_zero, 0.1)).set_require_grad(trained)
        })
    }
}

/// Blocks with a tensor that is no parameter: a table that all share, or one of each layer.
#[test]
fn tensors_beside_parameters_are_those_of_each_layer() {
    #[derive(Module, Debug)]
    struct Scaled {
        linear: Linear,
        scale: Tensor<1>,
    }
    let (_, device) = device(7);
    let table = Tensor::<1>::from_floats([0.5], &device);
    for shares in [true, false] {
        let scale = |layer: usize| if shares { table.clone() } else { table.clone() + layer as f32 };
        let blocks = (0..3).map(|layer| Scaled { linear: LinearConfig::new(2, 2).init(&device), scale: scale(layer) });
        let layers = Layers::new(blocks.collect()).unwrap();
        let x = Tensor::<2>::from_floats([[1.0, -2.0]], &device);
        let block = |block: &Scaled, x: Tensor<2>| block.linear.forward(x) * block.scale.clone().unsqueeze();
        let each = layers.forward_each(x.clone(), block).into_data();
        let looped = layers.forward(x, block).unwrap().into_data();
        looped.assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-5));
    }
}

/// They are stacked once, as floats are, and not at each call.
#[test]
fn integers_of_a_block_are_parameters_of_the_stack() {
    #[derive(Module, Debug)]
    struct Chosen {
        linear: Linear,
        columns: Param<Tensor<1, Int>>,
    }
    let (_, device) = device(58);
    let block = |layer: i32| Chosen {
        linear: LinearConfig::new(3, 3).init(&device),
        columns: Param::initialized(ParamId::new(), Tensor::from_ints([layer, 2 - layer, 1], &device)),
    };
    let layers = Layers::<Chosen>::new((0..3).map(block).collect()).unwrap();
    let chosen = |block: &Chosen, x: Tensor<2>| block.linear.forward(x).select(1, block.columns.val());
    let x = || Tensor::<2>::from_floats([[1.0, -2.0, 0.5]], &device).require_grad();
    let run = |as_loop: bool| {
        let x = x();
        let y =
            if as_loop { layers.forward(x.clone(), chosen).unwrap() } else { layers.forward_each(x.clone(), chosen) };
        (y.clone().into_data(), x.grad(&y.powi_scalar(2).sum().backward()).unwrap().into_data())
    };
    let [(looped, gradient), (each, of_each)] = [true, false].map(run);
    looped.assert_approx_eq::<f32>(&each, Tolerance::absolute(1e-6));
    gradient.assert_approx_eq::<f32>(&of_each, Tolerance::absolute(1e-5));

    #[derive(Default)]
    struct Integers(Vec<Vec<usize>>);
    impl ModuleVisitor for Integers {
        fn visit_int<const D: usize>(&mut self, parameter: &Param<Tensor<D, Int>>) {
            self.0.push(parameter.dims().to_vec());
        }
    }
    let mut integers = Integers::default();
    layers.visit(&mut integers);
    assert_eq!(integers.0, [[3, 3]]);
    layers.layer(2).columns.val().into_data().assert_eq(&TensorData::from([2, 0, 1]), false);
}

#[test]
fn what_is_no_loop_is_refused_with_its_reason() {
    #[derive(Module, Debug)]
    struct Normed {
        norm: BatchNorm,
    }
    let device = Device::from(TpuDevice::ndarray()).autodiff();
    let refused = |error: TpuError, words: &str| assert!(error.to_string().contains(words), "{error}");
    let widths = |widths: [usize; 2]| widths.map(|width| LinearConfig::new(2, width).init(&device)).to_vec();
    refused(Layers::<Linear>::new(Vec::new()).unwrap_err(), "there are none");
    refused(Layers::new(widths([2, 3])).unwrap_err(), "layer 1 differs from layer 0: its parameter `weight`");
    let rates = [0.1, 0.2].map(|rate| Block::new(rate, &device)).to_vec();
    refused(Layers::new(rates).unwrap_err(), "layer 1 differs from layer 0 in more than its tensors");
    let flags = [0.1; 2].map(|rate| Block::new(rate, &device)).to_vec();
    let flags = flags.into_iter().enumerate().map(|(i, block)| if i == 1 { block.valid().train() } else { block });
    assert_eq!(Layers::new(flags.collect()).unwrap().len(), 2, "the ids of flags are no difference");
    let wide = Layers::new(widths([3, 3])).unwrap();
    let x = Tensor::<2>::ones([1, 2], &device);
    let given = wide.forward(x.clone(), |linear, x| linear.forward(x));
    refused(given.unwrap_err(), "a layer takes (f32[1,2]) and gives (f32[1,3])");
    let square = Layers::new(widths([2, 2])).unwrap();
    let read = square.forward(x.clone(), |linear, x| {
        let _number: f32 = x.clone().sum().into_scalar();
        linear.forward(x)
    });
    refused(read.unwrap_err(), "it reads a value");
    let norms = (0..2).map(|_| Normed { norm: BatchNormConfig::new(2).init(&device) }).collect();
    refused(Layers::<Normed>::new(norms).unwrap_err(), "a block has running statistics");
}
