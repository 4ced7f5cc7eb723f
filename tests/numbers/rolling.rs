//! Loops over time are recorded unrolled and rolled again: few nodes for any number of steps, and the same values.
//!
//! `cargo test --release --test rolling -- --ignored --nocapture` prints the measurements that `docs/decisions` quotes.
#![allow(clippy::print_stderr, reason = "prints what was measured")]

mod bodies;
use crate::common;
mod measure;
pub mod recurrent;

use burn::backend::Autodiff;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn_flex::Flex;
use burn_tpu::{Tpu, TpuDevice, TpuOptimizer};
use burn_tpu_fusion::{Optimization, Pass, Roll};
use burn_tpu_graph::{DType, Op, Program, verify};
use burn_tpu_runtime::Device;
use burn_tpu_runtime::testing::{interpret_program, recorded, with_level};
use burn_tpu_workspace::models::{Gpt, GptConfig, Tokens, adamw, train_step};
use common::{alone, counted};
use half::bf16;
use proptest::test_runner::TestRunner;
use recurrent::{BATCH, INPUTS, Layer, Model, WIDTH, sequences, step};
use std::time::Instant;

type F32 = Autodiff<Tpu<f32>>;

/// Returns the program of one training step (forward, backward, Adam) on `[batch, steps, inputs]`, after the rewrites of a
/// level.
fn step_program(layer: Layer, dims: [usize; 3], width: usize, level: Optimization) -> Program {
    step_program_of::<F32>(layer, dims, width, level)
}

fn step_program_of<B: AutodiffBackend<Device = TpuDevice>>(
    layer: Layer,
    dims: [usize; 3],
    width: usize,
    level: Optimization,
) -> Program {
    let build = |device: &Device| {
        let model = Model::<B>::new(layer, dims[2], width, &TpuDevice::from(*device));
        (model, AdamConfig::new().init(), None)
    };
    let train = |(model, mut optimizer, _): (Model<B>, _, Option<_>), device: &Device| {
        let (model, loss) = step(model, &mut optimizer, sequences::<B>(dims, &TpuDevice::from(*device)));
        (model, optimizer, Some(loss))
    };
    let mut programs = with_level(level, || recorded(build, train)).expect("a step");
    assert_eq!(programs.len(), 1);
    Program::clone(&programs.remove(0))
}

/// Returns the trip counts of a program's loops, in order.
fn loops(program: &Program) -> Vec<usize> {
    let trips = program.graph().nodes().iter().filter_map(|node| match node.op {
        Op::For { trips, .. } => Some(trips.most()),
        _ => None,
    });
    trips.collect()
}

/// Returns the results of a program for inputs that depend on their indices only. All NaNs have the same bits: those that
/// arithmetic gives a NaN depend on how the interpreter's loops were compiled.
fn interpreted(program: &Program) -> Vec<Vec<u8>> {
    let number = |index: usize, element: usize| (0.13 * index as f32 + 0.71 * element as f32).sin() * 0.4;
    let count = |indices: &mut dyn Iterator<Item = u32>| indices.max().map_or(0, |index| index as usize + 1);
    let mut parameters = vec![Vec::new(); count(&mut program.parameters().map(|(index, _)| index))];
    for (index, ty) in program.parameters() {
        assert_eq!(ty.dtype, DType::F32);
        let values = (0..ty.elements()).map(|element| number(index as usize, element));
        parameters[index as usize] = values.flat_map(f32::to_le_bytes).collect();
    }
    let mut slots = vec![0; count(&mut program.slots().map(|(_, index, _)| index))];
    for (_, index, dtype) in program.slots() {
        assert_eq!(dtype, DType::F32);
        slots[index as usize] = u64::from((0.1 + number(index as usize, 0).abs()).to_bits());
    }
    let mut results = interpret_program(program, &parameters, &slots).expect("the interpreter runs every op");
    let floats = program.output_types().zip(&mut results).filter(|(ty, _)| ty.dtype == DType::F32);
    for bytes in floats.flat_map(|(_, bytes)| bytes.as_chunks_mut::<4>().0) {
        if f32::from_le_bytes(*bytes).is_nan() {
            *bytes = f32::NAN.to_le_bytes();
        }
    }
    results
}

#[test]
fn time_steps_become_loops_of_a_size_that_does_not_depend_on_their_number() {
    for (layer, count) in [(Layer::Lstm, 3), (Layer::Gru, 5), (Layer::BiLstm, 5)] {
        let [short, long] =
            [20, 44].map(|steps| step_program(layer, [BATCH, steps, INPUTS], WIDTH, Optimization::Balanced));
        eprintln!("{layer:?}: {} nodes, loops of {:?} and {:?} trips", long.graph().len(), loops(&short), loops(&long));
        assert_eq!((loops(&short).len(), loops(&long).len()), (count, count), "{layer:?}");
        assert!(loops(&long).iter().all(|&trips| trips >= 40), "{layer:?}: {:?}", loops(&long));
        let [short, long] = [short, long].map(|program| program.graph().len());
        assert!(long.abs_diff(short) <= 4, "{layer:?}: {short} and {long} nodes");
    }
}

/// A transformer's layers repeat in kind, but have weights of their own.
#[test]
fn a_transformer_is_left_alone() {
    let config = GptConfig::new().with_width(32).with_feed_forward(64).with_sequence(16).with_batch(2);
    let build = |device: &Device| (config.init::<F32>(&TpuDevice::from(*device)), adamw(), None);
    let train = |(model, mut optimizer, _): (Gpt<F32>, _, Option<_>), device: &Device| {
        let tokens = Tokens::synthetic(&config, 0, &TpuDevice::from(*device));
        let (model, loss) = train_step(model, &mut optimizer, 1e-3, tokens);
        (model, optimizer, Some(loss))
    };
    let programs = recorded(build, train).expect("a step");
    let start = Instant::now();
    let counts: Vec<usize> = programs.iter().map(|program| Roll.run(program).expect("a program").count).collect();
    eprintln!("{} nodes: {:.1?}", programs[0].graph().len(), start.elapsed());
    assert_eq!((counts.as_slice(), loops(&programs[0]).as_slice()), (&[0][..], &[][..]));
}

#[test]
fn steps_in_bf16_are_rolled_too() {
    let program =
        step_program_of::<Autodiff<Tpu<bf16>>>(Layer::Lstm, [BATCH, 40, INPUTS], WIDTH, Optimization::Balanced);
    assert_eq!(loops(&program).len(), 3, "{:?}", loops(&program));
}

#[test]
fn a_step_with_loops_computes_the_same_bits() {
    for layer in [Layer::Lstm, Layer::Gru, Layer::BiLstm] {
        let [rolled, unrolled] = [Optimization::Balanced, Optimization::Off]
            .map(|level| step_program(layer, [BATCH, 20, INPUTS], WIDTH, level));
        assert!(loops(&unrolled).is_empty());
        assert!(!loops(&rolled).is_empty());
        assert_eq!(interpreted(&rolled), interpreted(&unrolled), "{layer:?}");
    }
}

/// Creates models with the same random weights on two backends.
fn twins<A: AutodiffBackend, B: AutodiffBackend>(layer: Layer, a: &A::Device, b: &B::Device) -> (Model<A>, Model<B>) {
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let bytes = recorder.record(Model::<A>::new(layer, INPUTS, WIDTH, a).into_record(), ()).expect("a record");
    let first =
        Model::<A>::new(layer, INPUTS, WIDTH, a).load_record(recorder.load(bytes.clone(), a).expect("the record"));
    let second = Model::<B>::new(layer, INPUTS, WIDTH, b).load_record(recorder.load(bytes, b).expect("the record"));
    (first, second)
}

/// Returns the losses of some steps of training.
fn losses<B: AutodiffBackend>(mut model: Model<B>, steps: usize, device: &B::Device) -> Vec<f32> {
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..4 {
        let (next, loss) = step(model, &mut optimizer, sequences::<B>([BATCH, steps, INPUTS], device));
        model = next;
        losses.push(loss.into_data().convert::<f32>().to_vec::<f32>().expect("f32")[0]);
    }
    losses
}

#[test]
fn training_on_the_plugin_equals_burn_flex() {
    let Some(device) = common::device() else { return };
    let _alone = alone();
    for layer in [Layer::Lstm, Layer::Gru] {
        let host = Default::default();
        let (model, reference) = twins::<F32, Autodiff<Flex>>(layer, &device, &host);
        let (found, count) = counted(&device, || losses(model, 28, &device));
        let expected = losses(reference, 28, &host);
        assert_eq!(count.fallbacks, 0);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{layer:?}: {found} and {expected}");
        }
    }
}

#[test]
fn a_step_with_loops_compiles_for_a_tpu() {
    if !common::has_libtpu() {
        return;
    }
    // A slice that no other test of the program uses: options are installed on those.
    let device = TpuDevice::topology("v5e:2x4").expect("a slice's name");
    let _alone = alone();
    let mut model = Model::<F32>::new(Layer::Lstm, INPUTS, WIDTH, &device);
    let mut optimizer = TpuOptimizer::new(AdamConfig::new().init());
    for _ in 0..2 {
        (model, _) = step(model, &mut optimizer, sequences::<F32>([BATCH, 28, INPUTS], &device));
    }
    F32::sync(&device).expect("libtpu compiles loops");
}

#[test]
fn random_pieces_are_rolled_and_compute_the_same_bits() {
    let (mut pieces, mut nodes) = (0, 0);
    let mut runner = TestRunner::new(common::cases(64));
    let strategy = bodies::recipes();
    let result = runner.run(&strategy, |recipe| {
        let program = recipe.program();
        verify(&program).expect("a program");
        let rolled = Roll.run(&program).expect("it follows the rules of the ops");
        verify(&rolled.program).expect("a program");
        assert_eq!(Roll.run(&rolled.program).expect("a program").count, 0, "{}", rolled.program);
        assert!(interpreted(&rolled.program) == interpreted(&program), "{program}\n{}", rolled.program);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    // How many of the same programs were rolled at all.
    for _ in 0..32 {
        let tree = proptest::strategy::Strategy::new_tree(&strategy, &mut runner).expect("a recipe");
        let recipe = proptest::strategy::ValueTree::current(&tree);
        let rolled = Roll.run(&recipe.program()).expect("a program");
        (pieces, nodes) = (pieces + rolled.count, nodes + rolled.program.graph().len());
        assert!(loops(&rolled.program).iter().all(|&trips| trips <= recipe.trips()));
    }
    assert!(pieces >= 48, "{pieces} loops in 32 programs of {nodes} nodes after rolling");
}
