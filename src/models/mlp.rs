//! A perceptron with two hidden layers.

use super::{CLASSES, Images, PIXELS, Supervised, cross_entropy};
use burn::module::Quantizer;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::DType;
use burn::tensor::activation::relu;
use burn::tensor::ops::QuantizedTensor;
use burn::tensor::quantization::{Calibration, QTensorPrimitive, QuantLevel, QuantScheme, QuantValue};

/// Linear layers 784-512-256-10 with ReLU between them.
#[derive(Module, Debug)]
pub struct Mlp<B: Backend> {
    hidden: [Linear<B>; 2],
    output: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// Creates a perceptron with random weights.
    pub fn new(device: &B::Device) -> Self {
        let linear = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self { hidden: [linear(PIXELS, 512), linear(512, 256)], output: linear(256, CLASSES) }
    }

    /// Maps images `[batch, 784]` to logits `[batch, 10]` in f32.
    pub fn forward(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.hidden.iter().fold(images, |x, layer| relu(layer.forward(x)));
        self.output.forward(hidden).cast(DType::F32)
    }

    /// Returns the perceptron with weights of 8 bits, for [`Mlp::forward_in_8_bits`].
    pub fn quantized(self) -> Self {
        let mut quantizer = Quantizer { calibration: Calibration::MinMax, scheme: scheme::<B>() };
        self.quantize_weights(&mut quantizer)
    }

    /// The same as [`Mlp::forward`] for quantized weights, with activations of 8 bits where they meet them.
    pub fn forward_in_8_bits(&self, images: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = self.hidden.iter().fold(images, |x, layer| relu(in_8_bits(layer, x)));
        in_8_bits(&self.output, hidden).cast(DType::F32)
    }
}

/// Symmetric integers with one scale for each tensor.
fn scheme<B: Backend>() -> QuantScheme {
    <QuantizedTensor<B> as QTensorPrimitive>::default_scheme()
        .with_value(QuantValue::Q8S)
        .with_level(QuantLevel::Tensor)
}

/// Applies a layer to its input in 8 bits. `Linear::forward` would dequantize both factors first.
fn in_8_bits<B: Backend>(layer: &Linear<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    let product = x.quantize_dynamic(&scheme::<B>()).matmul(layer.weight.val());
    match &layer.bias {
        Some(bias) => product + bias.val().dequantize().unsqueeze(),
        None => product,
    }
}

impl<B: Backend> Supervised<B> for Mlp<B> {
    type Batch = Images<B>;

    fn loss(&self, batch: Images<B>) -> Tensor<B, 1> {
        cross_entropy(self.forward(batch.images), batch.targets)
    }
}
