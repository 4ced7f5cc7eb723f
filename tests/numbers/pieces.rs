//! Programs of more nodes than `TpuOptions::program_cap` run in pieces: equal pieces are compiled once, values that pass
//! between them are freed, and nothing changes for the caller.
#![allow(clippy::print_stderr, reason = "prints what was measured")]

use crate::common;
mod measure;

use super::rolling::recurrent::{self, BATCH, INPUTS, Layer, Model, WIDTH, sequences};
use burn::backend::Autodiff;
use burn::module::Module;
use burn::optim::AdamConfig;
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_flex::Flex;
use burn_tpu::{Tpu, TpuDevice, TpuOptions, mark_step, metrics};
use burn_tpu_fusion::Optimization;
use burn_tpu_runtime::testing::with_level;
use common::{alone, counted};

type B = Tpu<f32>;

/// The most nodes of a program on the device with pieces.
const CAP: usize = 200;

/// Returns the device whose programs run in pieces, and one that runs them whole; `None` if there is no plugin.
fn devices() -> Option<[TpuDevice; 2]> {
    Some([common::cpu_with("pieces", common::development().program_cap(CAP))?, common::cpu()?])
}

/// Returns the number of pieces that `work` runs on a device.
fn pieces<T>(device: &TpuDevice, work: impl FnOnce() -> T) -> (T, u64) {
    let before = metrics(device).pieces;
    let result = work();
    (result, metrics(device).pieces - before)
}

fn row(device: &TpuDevice, start: f32) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..32).map(|i| start + (0.3 * i as f32).sin()).collect();
    Tensor::from_data(TensorData::new(values, [4, 8]), device)
}

fn read<const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32 data")
}

/// A loop over time whose steps have another number each, read another row of the input, and do not roll: a few of its steps
/// are read at the end.
fn unequal_steps(steps: usize, x: &Tensor<B, 2>, input: &Tensor<B, 2>) -> Tensor<B, 2> {
    let mut state = x.clone();
    let mut sum = x.clone();
    for step in 0..steps {
        let taken = input.clone().slice([step..step + 1, 0..8]);
        state = state * (1.0 + 1e-3 * step as f32) + taken;
        for _ in 0..6 {
            state = (state.clone().sin() * 0.5 + state.tanh()).clamp(-1.0, 1.0) - 0.1;
        }
        if step % 16 == 5 {
            sum = sum + state.clone().exp();
        }
    }
    sum + state
}

fn input(device: &TpuDevice, rows: usize) -> Tensor<B, 2> {
    let values: Vec<f32> = (0..8 * rows).map(|i| (0.11 * i as f32).cos()).collect();
    Tensor::from_data(TensorData::new(values, [rows, 8]), device)
}

#[test]
fn a_loop_compiles_its_distinct_pieces_only() {
    let Some([device, whole]) = devices() else { return };
    let _alone = alone();
    let run = |steps: usize, device: &TpuDevice| {
        with_level(Optimization::Off, || read(unequal_steps(steps, &row(device, 0.5), &input(device, 80))))
    };
    let ((found, short), number) = pieces(&device, || counted(&device, || run(64, &device)));
    assert!(short.nodes > 10 * CAP as u64 && number >= short.nodes / CAP as u64, "{short:?}, {number} pieces");
    assert!(short.compiles <= 8, "{short:?} for {number} pieces");
    assert_eq!((short.executions, short.fallbacks), (1, 0));
    assert_eq!(found, run(64, &whole), "the same ops in the same order");
    // The same recording again, and one that is longer: the pieces are in memory.
    assert_eq!(counted(&device, || run(64, &device)).1.compiles, 0);
    let (long, again) = counted(&device, || run(80, &device));
    assert!(again.compiles <= 3, "{again:?}");
    assert_eq!(long, run(80, &whole));
}

/// A step updates its state in place, whatever number of pieces it has, and holds no value longer than it is read.
#[test]
fn memory_passes_from_piece_to_piece() {
    let Some([device, _]) = devices() else { return };
    let _alone = alone();
    let mut state = row(&device, 0.0);
    let mut step = |kept: Option<&mut Vec<Tensor<B, 2>>>| {
        if let Some(kept) = kept {
            kept.push(state.clone());
        }
        state = (0..150).fold(state.clone(), |state, _| (state.sin() + 0.5).tanh() * 0.9);
        mark_step(&device);
    };
    step(None);
    let ((_, owned), number) = pieces(&device, || counted(&device, || step(None)));
    assert!(number >= 3, "{number} pieces");
    assert_eq!(owned.donated, number, "each piece takes the memory of the state");
    let mut kept = Vec::new();
    let (_, shared) = counted(&device, || step(Some(&mut kept)));
    assert_eq!(shared.donated, number - 1, "all but the first, whose state is kept");
    assert_eq!((shared.compiles, owned.compiles), (0, 0));
    let expected = read(kept.remove(0));
    assert!(expected.iter().all(|value| value.is_finite()));
}

#[test]
fn a_frozen_device_refuses_pieces_and_loses_nothing() {
    let Some([device, whole]) = devices() else { return };
    let _alone = alone();
    let long = |device: &TpuDevice| (0..90).fold(row(device, 0.3), |x, i| (x.cos() + i as f32).sin() * 1.5 - 0.25);
    let x = long(&device);
    device.freeze();
    let (refused, number) = pieces(&device, || x.clone().try_into_data());
    device.unfreeze();
    assert!(format!("{refused:?}").contains("is frozen"), "{refused:?}");
    assert_eq!(number, 0, "no piece ran");
    let (found, number) = pieces(&device, || read(x));
    assert!(number > 1);
    assert_eq!(found, read(long(&whole)));
}

/// A scalar and an offset that change from run to run are no new programs.
#[test]
fn numbers_that_change_compile_once_more_at_most() {
    let Some([device, whole]) = devices() else { return };
    let _alone = alone();
    let run = |device: &TpuDevice, at: usize, scale: f32| {
        let rows = input(device, 16);
        let step = |x: Tensor<B, 2>, i: usize| {
            let taken = rows.clone().slice([(at + i) % 16..(at + i) % 16 + 1, 0..8]);
            ((x * scale).sin() + taken).tanh().exp() * 0.5
        };
        read((0..60).fold(row(device, 0.1), step))
    };
    for (at, scale) in [(0, 1.0), (1, 0.9), (2, 0.8), (7, 0.7)] {
        let (found, count) = with_level(Optimization::Off, || counted(&device, || run(&device, at, scale)));
        assert!(at == 0 || count.compiles <= 3 / at as u64, "{at}: {count:?}");
        assert_eq!(found, with_level(Optimization::Off, || run(&whole, at, scale)));
    }
}

/// Returns the losses of some steps of training.
fn losses<A: burn::tensor::backend::AutodiffBackend>(mut model: Model<A>, device: &A::Device) -> Vec<f32> {
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for _ in 0..4 {
        let (next, loss) = recurrent::step(model, &mut optimizer, sequences::<A>([BATCH, 20, INPUTS], device));
        model = next;
        losses.push(loss.into_data().convert::<f32>().to_vec::<f32>().expect("f32")[0]);
    }
    losses
}

#[test]
fn training_in_pieces_has_the_same_losses() {
    let Some([device, whole]) = devices() else { return };
    let _alone = alone();
    let host = Default::default();
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let model = || Model::<Autodiff<Flex>>::new(Layer::Lstm, INPUTS, WIDTH, &host);
    let bytes = recorder.record(model().into_record(), ()).expect("a record");
    let reference = model().load_record(recorder.load(bytes.clone(), &host).expect("the record"));
    let on = |device: &TpuDevice| {
        let record = recorder.load(bytes.clone(), device).expect("the record");
        let model = Model::<Autodiff<B>>::new(Layer::Lstm, INPUTS, WIDTH, device).load_record(record);
        with_level(Optimization::Off, || losses(model, device))
    };
    let ((found, count), number) = pieces(&device, || counted(&device, || on(&device)));
    assert!(number > 20 && count.compiles < number / 2, "{count:?}, {number} pieces");
    for expected in [losses(reference, &host), on(&whole)] {
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
        }
    }
}

/// Without a plugin, the interpreter runs pieces too.
#[test]
fn pieces_run_in_the_interpreter() {
    let _alone = alone();
    let device = common::interpreter_with("pieces", TpuOptions::training().program_cap(20));
    let x = Tensor::<B, 1>::from_data([0.1f32, 0.2, 0.3], &device);
    let run = || (0..40).fold(x.clone(), |y, i| (y + i as f32).sin());
    let (found, number) = pieces(&device, || read(run()));
    assert!(number > 2, "{number} pieces");
    let mut expected = vec![0.1f32, 0.2, 0.3];
    (0..40).for_each(|i| expected.iter_mut().for_each(|value| *value = (*value + i as f32).sin()));
    assert_eq!(found, expected);
    B::sync(&device).expect("it runs");
}
