//! Weights through burn-store and safetensors files, between `Tpu` in bf16 and f32 and Burn's own backends.

use crate::common;

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn_ndarray::NdArray;
use burn_store::{
    BurnToPyTorchAdapter, ModuleAdapter, ModuleSnapshot, ModuleStore, PyTorchToBurnAdapter, SafetensorsStore,
};
use burn_tpu::Tpu;
use burn_tpu::store::CastFloats;
use half::bf16;
use std::path::Path;

/// One layer of each kind whose parameters differ in name or layout between PyTorch and Burn.
#[derive(Module, Debug)]
struct Layers<B: Backend> {
    embedding: Embedding<B>,
    linear: Linear<B>,
    layer_norm: LayerNorm<B>,
    convolution: Conv2d<B>,
    batch_norm: BatchNorm<B>,
}

impl<B: Backend> Layers<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(7, 5).init(device),
            linear: LinearConfig::new(5, 3).init(device),
            layer_norm: LayerNormConfig::new(3).init(device),
            convolution: Conv2dConfig::new([2, 4], [3, 3]).init(device),
            batch_norm: BatchNormConfig::new(4).init(device),
        }
    }

    /// Every parameter with its name, in the order of names, as f32.
    fn numbers(&self) -> Vec<(String, Vec<f32>)> {
        let mut all: Vec<_> = self.collect(None, None, false);
        all.sort_by_key(|tensor| tensor.full_path());
        all.iter().map(|tensor| (tensor.full_path(), tensor.to_data().unwrap().iter::<f32>().collect())).collect()
    }

    fn dtypes(&self) -> Vec<DType> {
        let mut dtypes: Vec<_> = self.collect(None, None, false).iter().map(|tensor| tensor.dtype).collect();
        dtypes.dedup();
        dtypes
    }
}

/// Loads a file with every float converted to the backend's type.
fn load<B: Backend>(file: &Path, device: &B::Device) -> Layers<B> {
    let mut layers = Layers::new(device);
    let mut store = SafetensorsStore::from_file(file).with_from_adapter(CastFloats::to_those_of::<B>());
    layers.load_from(&mut store).unwrap();
    layers
}

fn save<B: Backend>(layers: &Layers<B>, file: &Path) {
    layers.save_into(&mut SafetensorsStore::from_file(file)).unwrap();
}

#[test]
fn weights_in_bf16_make_the_round_trip() {
    let _alone = common::alone();
    let (Some(device), Some(narrow)) = (common::cpu(), common::bf16_cpu()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, again) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    let layers = Layers::<Tpu<bf16>>::new(&narrow);
    assert_eq!(layers.dtypes(), [DType::BF16]);
    save(&layers, &file);

    let same = load::<Tpu<bf16>>(&file, &narrow);
    assert_eq!((same.numbers(), same.dtypes()), (layers.numbers(), vec![DType::BF16]));
    let wide = load::<Tpu<f32>>(&file, &device);
    assert_eq!((wide.numbers(), wide.dtypes()), (layers.numbers(), vec![DType::F32]));
    let host = load::<NdArray<f32>>(&file, &Default::default());
    assert_eq!((host.numbers(), host.dtypes()), (layers.numbers(), vec![DType::F32]));

    // Every bf16 is an f32, so nothing is lost on the way back.
    save(&host, &again);
    assert_eq!(load::<Tpu<bf16>>(&again, &narrow).numbers(), layers.numbers());
}

#[test]
fn a_file_in_f32_is_rounded_for_a_model_in_bf16() {
    let _alone = common::alone();
    let Some(narrow) = common::bf16_cpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.safetensors");
    let layers = Layers::<NdArray<f32>>::new(&Default::default());
    save(&layers, &file);
    let rounded = load::<Tpu<bf16>>(&file, &narrow);
    assert_eq!(rounded.dtypes(), [DType::BF16]);
    for ((name, wide), (_, narrow)) in layers.numbers().into_iter().zip(rounded.numbers()) {
        let expected: Vec<f32> = wide.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
        assert_eq!(narrow, expected, "{name}");
    }
}

/// The reason for `CastFloats`: burn-store keeps the dtype of the file.
#[test]
fn without_the_adapter_a_model_has_the_dtype_of_the_file() {
    let _alone = common::alone();
    let Some(narrow) = common::bf16_cpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.safetensors");
    save(&Layers::<NdArray<f32>>::new(&Default::default()), &file);
    let mut layers = Layers::<Tpu<bf16>>::new(&narrow);
    layers.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
    assert_eq!(layers.dtypes(), [DType::F32]);
}

/// The other reason: what burn-store would make for burn-ndarray, which has no bf16.
#[test]
#[should_panic(expected = "BF16")]
fn burn_ndarray_refuses_bf16() {
    let _alone = common::alone();
    let data = TensorData::from([1.0f32, 2.0]).convert_dtype(DType::BF16);
    Tensor::<NdArray<f32>, 1>::from_data(data, (&Default::default(), DType::BF16)).into_data();
}

/// A file in the names and layouts of PyTorch, in f32, and back.
#[test]
fn layouts_and_types_are_converted_together() {
    let _alone = common::alone();
    let Some(narrow) = common::bf16_cpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.safetensors");
    let layers = Layers::<Tpu<bf16>>::new(&narrow);
    let to_pytorch = BurnToPyTorchAdapter.chain(CastFloats::to(DType::F32));
    layers.save_into(&mut SafetensorsStore::from_file(&file).with_to_adapter(to_pytorch)).unwrap();

    let mut raw = SafetensorsStore::from_file(&file);
    let linear = raw.get_snapshot("linear.weight").unwrap().unwrap();
    assert_eq!((&linear.shape[..], linear.dtype), (&[3, 5][..], DType::F32));
    assert!(raw.get_snapshot("layer_norm.weight").unwrap().is_some());

    let mut back = Layers::<Tpu<bf16>>::new(&narrow);
    let to_burn = PyTorchToBurnAdapter.chain(CastFloats::to_those_of::<Tpu<bf16>>());
    back.load_from(&mut SafetensorsStore::from_file(&file).with_from_adapter(to_burn)).unwrap();
    assert_eq!(back.numbers(), layers.numbers());
}
