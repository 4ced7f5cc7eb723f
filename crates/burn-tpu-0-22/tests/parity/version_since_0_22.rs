//! What the rows need to know of Burn since 0.22: the same for 0.22 and 0.23, whose `version.rs` names the crate.

use super::{Device, TpuDevice, TpuOptions};
use burn_backend::quantization::{QuantScheme, QuantStore, QuantizationParametersPrimitive, ScaleDtype};
use burn_backend::tensor::{FloatTensor, IndexingUpdateOp, IntTensor};
use burn_backend::{Backend, DType, Shape, TensorData};
use burn_tpu_runtime::IndexChecks;

/// The number of cases of each row, if the user names none.
pub const CASES: usize = 16;

/// Returns the CPU plugin's device, if the plugin is there.
pub fn device() -> Option<TpuDevice> {
    burn_tpu_pjrt::testing::plugin(burn_tpu_pjrt::PluginKind::Cpu)?;
    let device = Device::cpu(0);
    // Host fallback is denied; `ok` since another test may have installed the options.
    let options = TpuOptions::development().check_indices(IndexChecks::Host).check_numerics(false);
    options.install(&device).ok();
    Some(device.into())
}

pub fn shape(data: &TensorData) -> Shape {
    data.shape().clone()
}

pub fn dtype(data: &TensorData) -> DType {
    data.dtype()
}

/// Returns the scheme of 8 bits with one scale.
#[allow(clippy::extra_unused_type_parameters, reason = "the scheme of Burn 0.21 depends on the backend")]
pub fn scheme<B: Backend>() -> QuantScheme {
    QuantScheme::default().with_store(QuantStore::Native)
}

/// Returns the scheme with a scale for each block of so many values.
pub fn in_blocks(scheme: QuantScheme, size: u8) -> QuantScheme {
    scheme.per_block([size], ScaleDtype::F32)
}

pub fn parameters<B: Backend>(scales: FloatTensor<B>) -> QuantizationParametersPrimitive<B> {
    QuantizationParametersPrimitive { scales, global: None }
}

pub fn quantized(values: Vec<i8>, dims: &[usize], scheme: QuantScheme, scale: f32) -> TensorData {
    TensorData::quantized(values, dims.to_vec(), scheme, &[scale], None)
}

pub fn scatter_add<B: Backend>(
    dim: usize,
    x: FloatTensor<B>,
    at: IntTensor<B>,
    values: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_scatter(dim, x, at, values, IndexingUpdateOp::Add)
}

pub fn select_add<B: Backend>(
    x: FloatTensor<B>,
    dim: usize,
    at: IntTensor<B>,
    values: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_select_assign(x, dim, at, values, IndexingUpdateOp::Add)
}
