//! A Whisper model from CTranslate2's file. All sizes are those of the file's arrays.

use crate::ct2::Ct2File;
use crate::model::{Attention, Decoder, DecoderLayer, Encoder, EncoderLayer, Mlp, Whisper};
use anyhow::{Result, ensure};
use burn::module::Param;
use burn::nn::conv::{Conv1d, Conv1dConfig};
use burn::nn::{Embedding, LayerNorm, LayerNormConfig, Linear, PaddingConfig1d};
use burn::prelude::*;

/// Returns the model with the file's weights, in f32.
pub fn load<B: Backend>(file: &Ct2File, device: &B::Device) -> Result<Whisper<B>> {
    ensure!(file.kind() == "WhisperSpec", "the file has a model of kind `{}`, not `WhisperSpec`", file.kind());
    let weights = Weights { file, device };
    Ok(Whisper { encoder: weights.encoder()?, decoder: weights.decoder()? })
}

/// Makes modules of a file's arrays.
struct Weights<'a, B: Backend> {
    file: &'a Ct2File,
    device: &'a B::Device,
}

impl<B: Backend> Weights<'_, B> {
    fn encoder(&self) -> Result<Encoder<B>> {
        let [width, mels, _] = self.file.sizes("encoder/conv1/weight")?;
        let heads = self.heads("encoder", width)?;
        let layer = |name: &str| {
            Ok(EncoderLayer {
                attention_norm: self.norm(&format!("{name}/self_attention/layer_norm"), width)?,
                attention: self.self_attention(name, width, heads)?,
                mlp_norm: self.norm(&format!("{name}/ffn/layer_norm"), width)?,
                mlp: self.mlp(name, width)?,
            })
        };
        Ok(Encoder {
            conv1: self.conv("encoder/conv1", [mels, width], 1)?,
            conv2: self.conv("encoder/conv2", [width, width], 2)?,
            positions: self.positions("encoder", width)?,
            layers: self.layers("encoder", layer)?,
            norm: self.norm("encoder/layer_norm", width)?,
        })
    }

    fn decoder(&self) -> Result<Decoder<B>> {
        let [vocabulary, width] = self.file.sizes("decoder/embeddings/weight")?;
        let heads = self.heads("decoder", width)?;
        let layer = |name: &str| {
            Ok(DecoderLayer {
                attention_norm: self.norm(&format!("{name}/self_attention/layer_norm"), width)?,
                attention: self.self_attention(name, width, heads)?,
                cross_norm: self.norm(&format!("{name}/attention/layer_norm"), width)?,
                cross: self.cross_attention(name, width, heads)?,
                mlp_norm: self.norm(&format!("{name}/ffn/layer_norm"), width)?,
                mlp: self.mlp(name, width)?,
            })
        };
        Ok(Decoder {
            tokens: Embedding { weight: self.param("decoder/embeddings/weight", [vocabulary, width])? },
            positions: self.positions("decoder", width)?,
            layers: self.layers("decoder", layer)?,
            norm: self.norm("decoder/layer_norm", width)?,
        })
    }

    /// Returns an encoder's or a decoder's layers, as many as the file has.
    fn layers<L>(&self, of: &str, layer: impl Fn(&str) -> Result<L>) -> Result<Vec<L>> {
        let names = (0..).map(|index| format!("{of}/layer_{index}"));
        names
            .take_while(|name| self.file.has(&format!("{name}/ffn/linear_0/weight")))
            .map(|name| layer(&name))
            .collect()
    }

    fn heads(&self, of: &str, width: usize) -> Result<usize> {
        let heads = self.file.integer(&format!("{of}/num_heads"))?;
        ensure!(heads > 0 && width.is_multiple_of(heads), "`{of}/num_heads` is {heads}, which does not divide {width}");
        Ok(heads)
    }

    fn positions(&self, of: &str, width: usize) -> Result<Param<Tensor<B, 2>>> {
        let name = format!("{of}/position_encodings/encodings");
        let [length, _] = self.file.sizes(&name)?;
        self.param(&name, [length, width])
    }

    /// The first matrix has the rows of queries, keys and values, one after another.
    fn self_attention(&self, layer: &str, width: usize, heads: usize) -> Result<Attention<B>> {
        let [query, key, value] = self.linears(&format!("{layer}/self_attention/linear_0"), width)?;
        let [output] = self.linears(&format!("{layer}/self_attention/linear_1"), width)?;
        Ok(Attention { query, key, value, output, heads })
    }

    /// The second matrix has the rows of keys and values.
    fn cross_attention(&self, layer: &str, width: usize, heads: usize) -> Result<Attention<B>> {
        let [query] = self.linears(&format!("{layer}/attention/linear_0"), width)?;
        let [key, value] = self.linears(&format!("{layer}/attention/linear_1"), width)?;
        let [output] = self.linears(&format!("{layer}/attention/linear_2"), width)?;
        Ok(Attention { query, key, value, output, heads })
    }

    fn mlp(&self, layer: &str, width: usize) -> Result<Mlp<B>> {
        let (up, down) = (format!("{layer}/ffn/linear_0"), format!("{layer}/ffn/linear_1"));
        let [inner, _] = self.file.sizes(&format!("{up}/weight"))?;
        Ok(Mlp { up: self.linear(&up, [width, inner])?, down: self.linear(&down, [inner, width])? })
    }

    /// Returns a layer of `[inputs, outputs]`.
    fn linear(&self, name: &str, [inputs, outputs]: [usize; 2]) -> Result<Linear<B>> {
        let weight = self.tensor(&format!("{name}/weight"), [outputs, inputs])?;
        let bias = self.param(&format!("{name}/bias"), [outputs])?;
        Ok(Linear { weight: Param::from_tensor(weight.transpose()), bias: Some(bias) })
    }

    /// Returns the layers, each of `[width, width]`, whose rows are in one matrix.
    fn linears<const N: usize>(&self, name: &str, width: usize) -> Result<[Linear<B>; N]> {
        let weight: Tensor<B, 2> = self.tensor(&format!("{name}/weight"), [N * width, width])?;
        let bias: Tensor<B, 1> = self.tensor(&format!("{name}/bias"), [N * width])?;
        Ok(std::array::from_fn(|index| {
            let rows = index * width..(index + 1) * width;
            let weight = Param::from_tensor(weight.clone().slice([rows.clone()]).transpose());
            let bias = Some(Param::from_tensor(bias.clone().slice([rows])));
            Linear { weight, bias }
        }))
    }

    /// Returns a convolution of three frames, from and to so many `channels`.
    fn conv(&self, name: &str, channels: [usize; 2], stride: usize) -> Result<Conv1d<B>> {
        const SIZE: usize = 3;
        let [inputs, outputs] = channels;
        let config = Conv1dConfig::new(inputs, outputs, SIZE).with_stride(stride);
        let conv = config.with_padding(PaddingConfig1d::Explicit(1, 1)).init(self.device);
        let weight = self.param(&format!("{name}/weight"), [outputs, inputs, SIZE])?;
        Ok(Conv1d { weight, bias: Some(self.param(&format!("{name}/bias"), [outputs])?), ..conv })
    }

    fn norm(&self, name: &str, width: usize) -> Result<LayerNorm<B>> {
        let mut norm = LayerNormConfig::new(width).init(self.device);
        norm.gamma = self.param(&format!("{name}/gamma"), [width])?;
        norm.beta = Some(self.param(&format!("{name}/beta"), [width])?);
        Ok(norm)
    }

    fn param<const D: usize>(&self, name: &str, sizes: [usize; D]) -> Result<Param<Tensor<B, D>>> {
        Ok(Param::from_tensor(self.tensor(name, sizes)?))
    }

    fn tensor<const D: usize>(&self, name: &str, sizes: [usize; D]) -> Result<Tensor<B, D>> {
        let found = self.file.sizes::<D>(name)?;
        ensure!(found == sizes, "`{name}` has sizes {found:?} instead of {sizes:?}");
        Ok(Tensor::from_data(self.file.floats(name)?, self.device))
    }
}
