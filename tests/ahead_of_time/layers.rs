//! What a loop over layers keeps for its backward pass by a name, in the device's memory and in the host's, and state
//! that it updates in place.

use crate::common;

use burn::backend::Autodiff;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Distribution, Int, Tensor};
use burn_tpu::fit::{Fit, NamedValues};
use burn_tpu::{DeviceAdamW, Generation, Keep, Layers, Tpu, TpuDevice, compile_step, keep};

type B = Autodiff<Tpu>;
type Block = Vec<Linear<B>>;

const LAYERS: usize = 6;
const ROWS: usize = 2048;
const WIDTH: usize = 256;
const HIDDEN: usize = 1024;

/// Of a model whose state is most of what its step holds.
const STATE_WIDTH: usize = 512;
const STATE_HIDDEN: usize = 2048;
const STATE_TOKENS: usize = 8192;

/// Returns what layers can keep, and the bytes of temporaries and of host memory of a training step for a v5p.
fn of_step(kept: Keep) -> (Vec<NamedValues>, u64, u64) {
    let build = |device: &TpuDevice| {
        let linear = |sizes: [usize; 2]| LinearConfig::new(sizes[0], sizes[1]).with_bias(false).init(device);
        let blocks = Layers::init(LAYERS, |_| vec![linear([WIDTH, HIDDEN]), linear([HIDDEN, WIDTH])]);
        (blocks.unwrap().with_keep(kept), SgdConfig::new().init(), None)
    };
    let step = |(blocks, mut optimizer, _): (Layers<B, Block>, _, Option<Tensor<B, 1>>), device: &TpuDevice| {
        let x = Tensor::<B, 2>::random([ROWS, WIDTH], Distribution::Default, device);
        let block = |block: &Block, x: Tensor<B, 2>| {
            let x = keep("input", x);
            let hidden = keep("hidden", block[0].forward(x.clone()));
            x + block[1].forward(gelu(hidden))
        };
        let loss = blocks.forward(x, block).unwrap().powf_scalar(2.0).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &blocks);
        let blocks = Optimizer::<Layers<B, Block>, B>::step(&mut optimizer, 1e-3, blocks, gradients);
        (blocks, optimizer, Some(loss))
    };
    let report = Fit::new().unwrap().slices([Generation::V5p.chip()]).run(build, step).unwrap();
    let memory = report.slices[0].memory;
    (report.step.named, memory.temporary_bytes, memory.host_bytes)
}

#[test]
fn a_name_costs_its_bytes_of_temporaries_or_of_the_hosts_memory() {
    if !common::has_libtpu() {
        return;
    }
    let bytes = |width: usize| (2 * LAYERS * ROWS * width) as u64;
    let (named, nothing, on_host) = of_step(Keep::Nothing);
    let product = (2 * LAYERS * ROWS * WIDTH * HIDDEN) as u64;
    let [hidden, input] = &named[..] else { panic!("{named:?}") };
    assert_eq!(*hidden, NamedValues { name: "hidden", bytes: bytes(HIDDEN), flops: product, is_kept: false });
    assert_eq!(*input, NamedValues { name: "input", bytes: bytes(WIDTH), flops: 0, is_kept: true });
    assert_eq!(on_host, 0);

    let (named, kept, on_host) = of_step(Keep::Names(vec!["hidden"]));
    assert!(named[0].is_kept && named[0].flops == product, "{named:?}");
    let more = kept as f64 - nothing as f64;
    assert!((more / bytes(HIDDEN) as f64 - 1.0).abs() < 0.05, "{nothing} and {kept}, for {}", bytes(HIDDEN));
    assert_eq!(on_host, 0);

    let (_, offloaded, on_host) = of_step(Keep::Offload { host: vec!["hidden", "input"], device: Vec::new() });
    assert_eq!(on_host, bytes(HIDDEN) + bytes(WIDTH));
    // Two layers' values are on their way.
    assert!(offloaded + (bytes(HIDDEN) + bytes(WIDTH)) / 2 < kept, "{kept} and {offloaded}");
}

/// Returns the bytes that a training step takes of a v5p's memory, and of the host's: state is AdamW's.
fn with_state(optimizer: DeviceAdamW) -> (u64, u64) {
    let build = |device: &TpuDevice| {
        let linear = |sizes: [usize; 2]| LinearConfig::new(sizes[0], sizes[1]).with_bias(false).init(device);
        let blocks: Layers<B, Block> =
            Layers::init(LAYERS, |_| vec![linear([STATE_WIDTH, STATE_HIDDEN]), linear([STATE_HIDDEN, STATE_WIDTH])])
                .unwrap();
        let table = EmbeddingConfig::new(STATE_TOKENS, STATE_WIDTH).init(device);
        let step = compile_step((table, blocks), optimizer, |(table, blocks): &(Embedding<B>, _), tokens| {
            let block = |block: &Block, x: Tensor<B, 3>| x.clone() + block[1].forward(gelu(block[0].forward(x)));
            let x = table.forward(Tensor::from_inner(tokens));
            let loss = blocks.forward(x, block).unwrap().powf_scalar(2.0).mean();
            (loss.clone(), loss.inner())
        });
        (step, None)
    };
    let report = Fit::new().unwrap().slices([Generation::V5p.chip()]).run(build, |(mut step, _), device| {
        let tokens = Tensor::<Tpu, 2, Int>::zeros([8, 64], device);
        let loss = step.run(1e-3, tokens).unwrap();
        (step, Some(loss))
    });
    let memory = report.unwrap().slices[0].memory;
    (memory.argument_bytes + memory.temporary_bytes + memory.output_bytes - memory.alias_bytes, memory.host_bytes)
}

#[test]
fn the_state_of_an_optimizer_is_in_the_hosts_memory_and_not_in_the_devices() {
    if !common::has_libtpu() {
        return;
    }
    let weights = (2 * LAYERS * STATE_WIDTH * STATE_HIDDEN + STATE_TOKENS * STATE_WIDTH) as u64;
    // A master copy and two moments.
    let state = 12 * weights;
    let (here, none) = with_state(DeviceAdamW::new());
    let (there, on_host) = with_state(DeviceAdamW::new().with_state_on_host());
    assert_eq!(none, 0);
    // That of one layer's weight is there twice, on its way.
    let of_layer = 12 * (STATE_WIDTH * STATE_HIDDEN) as u64;
    assert!(on_host >= state && on_host <= state + of_layer, "{on_host} bytes for {state}");
    // Two layers of each weight are on the device.
    assert!(here - there > state * 17 / 20, "{here} and {there} bytes, with {state} of state");
}

/// Without the layout of its argument, libtpu copies a cache before and after the loop, and a layer's part in each trip.
#[test]
fn a_cache_is_updated_in_place_in_its_own_layout() {
    type I = Tpu;
    type Cache = Tensor<I, 4>;
    if !common::has_libtpu() {
        return;
    }
    const TEXTS: usize = 32;
    const POSITIONS: usize = 1024;
    for head in [64, 128] {
        let build = |device: &TpuDevice| {
            let layer = |_| LinearConfig::new(head, head).with_bias(false).init(device);
            let layers = Layers::<I, Linear<I>>::init(LAYERS, layer).unwrap();
            (
                layers,
                Cache::zeros([LAYERS, TEXTS, POSITIONS, head], device),
                Tensor::<I, 3>::ones([TEXTS, 1, head], device),
            )
        };
        let step = |(layers, cache, x): (Layers<I, Linear<I>>, Cache, Tensor<I, 3>), _: &TpuDevice| {
            let written = layers.forward_with_state(x, cache, |layer, x, cache: Tensor<I, 3>| {
                let cache = cache.slice_assign([0..TEXTS, 7..8, 0..head], layer.forward(x.clone()));
                let scores = softmax(x.matmul(cache.clone().swap_dims(1, 2)), 2);
                (scores.matmul(cache.clone()), cache)
            });
            let (x, cache) = written.unwrap();
            (layers, cache, x)
        };
        let report = Fit::new().unwrap().slices([Generation::V5e.chip()]).run(build, step).unwrap();
        let (memory, cache) = (report.slices[0].memory, (2 * LAYERS * TEXTS * POSITIONS * head) as u64);
        assert!(memory.alias_bytes >= cache, "{} bytes in place, of {cache}", memory.alias_bytes);
        let of_layer = cache / LAYERS as u64;
        assert!(memory.temporary_bytes < of_layer, "{} bytes of temporaries", memory.temporary_bytes);
    }
}
