//! A small random BERT: its vectors are burn-flex's, padding does not change them, and warm shapes never compile again.

use crate::common;

use burn::prelude::*;
use burn_flex::Flex;
use burn_ndarray::NdArray;
use burn_store::{ModuleSnapshot, SafetensorsStore};
use burn_tpu::{Buckets, Tpu};
use burn_tpu_workspace::models::{Bert, BertConfig};

const SENTENCES: [&[i32]; 3] = [&[1, 5, 9, 2], &[1, 3, 2], &[1, 8, 8, 4, 7, 6, 2]];

fn config() -> BertConfig {
    BertConfig::new(20, 16, 2, 4, 32, 12)
}

/// Returns the weights that burn-flex draws, in a store.
fn weights() -> SafetensorsStore {
    let device = Default::default();
    Flex::seed(&device, 3);
    let mut store = SafetensorsStore::from_bytes(None);
    config().init::<Flex>(&device).save_into(&mut store).unwrap();
    store
}

fn model<B: Backend>(device: &B::Device) -> Bert<B> {
    let mut model = config().init(device);
    model.load_from(&mut weights()).unwrap();
    model
}

/// Returns the vectors of sentences that are padded to `length` tokens and `rows` rows.
fn vectors<B: Backend>(model: &Bert<B>, sentences: &[&[i32]], [rows, length]: [usize; 2]) -> Vec<Vec<f32>> {
    let device = &model.devices()[0];
    let buckets = Buckets::new([length]).unwrap();
    let fill = |of: fn(i32) -> i32| {
        let row = |sentence: &[i32]| {
            let row: Vec<i32> = sentence.iter().map(|&id| of(id)).collect();
            let row = TensorData::new(row, [sentence.len()]);
            Tensor::<B, 1, Int>::from_data(buckets.pad(row, 0, 0).unwrap().0, device)
        };
        let blank: &[i32] = &[];
        let padding = std::iter::repeat_n(&blank, rows - sentences.len());
        Tensor::stack::<2>(sentences.iter().chain(padding).map(|sentence| row(sentence)).collect(), 0)
    };
    let vectors = model.forward(fill(|id| id), fill(|_| 1));
    let numbers = vectors.into_data().to_vec::<f32>().unwrap();
    numbers.chunks(16).take(sentences.len()).map(<[f32]>::to_vec).collect()
}

fn largest_difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn vectors_are_those_of_burns_own_backends() {
    let Some(device) = common::device() else { return };
    let _alone = common::alone();
    let ours = vectors(&model::<Tpu<f32>>(&device), &SENTENCES, [3, 8]);
    let flex = vectors(&model::<Flex>(&Default::default()), &SENTENCES, [3, 8]);
    let ndarray = vectors(&model::<NdArray>(&Default::default()), &SENTENCES, [3, 8]);
    assert!(largest_difference(&ours, &flex) < 1e-5, "{ours:?}\n{flex:?}");
    assert!(largest_difference(&ours, &ndarray) < 1e-5, "{ours:?}\n{ndarray:?}");
    for vector in &ours {
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "a vector of length {length}");
    }
    assert!(largest_difference(&ours[..1], &ours[1..2]) > 1e-2, "two sentences have the same vector");
}

#[test]
fn padding_does_not_change_vectors() {
    let Some(device) = common::device() else { return };
    let _alone = common::alone();
    let model = model::<Tpu<f32>>(&device);
    let whole: Vec<_> = SENTENCES.iter().flat_map(|&one| vectors(&model, &[one], [1, one.len()])).collect();
    for shape in [[3, 7], [3, 12], [5, 8]] {
        let padded = vectors(&model, &SENTENCES, shape);
        assert!(largest_difference(&whole, &padded) < 1e-5, "{shape:?}: {whole:?}\n{padded:?}");
    }
}

#[test]
fn vectors_in_bf16_point_the_same_way() {
    let (Some(device), Some(narrow)) = (common::device(), common::bf16_device()) else { return };
    let _alone = common::alone();
    let wide = vectors(&model::<Tpu<f32>>(&device), &SENTENCES, [3, 8]);
    let adapter = burn_tpu::store::CastFloats::to_those_of::<Tpu>();
    let mut model = config().init::<Tpu>(&narrow);
    model.load_from(&mut weights().with_from_adapter(adapter)).unwrap();
    for (wide, narrow) in wide.iter().zip(vectors(&model, &SENTENCES, [3, 8])) {
        let cosine: f32 = wide.iter().zip(&narrow).map(|(a, b)| a * b).sum();
        assert!(cosine > 0.999, "cosine {cosine}");
    }
}

#[test]
fn a_warm_shape_never_compiles_again() {
    let Some(device) = common::device() else { return };
    let _alone = common::alone();
    let model = model::<Tpu<f32>>(&device);
    let run = |sentences: &[&[i32]]| vectors(&model, sentences, [3, 8]);
    run(&SENTENCES);
    run(&SENTENCES[..1]);
    device.freeze();
    let (_, counted) = common::counted(&device, || [run(&SENTENCES[1..]), run(&SENTENCES[..2])]);
    device.unfreeze();
    assert_eq!(counted.compiles, 0);
}
