//! Element types and sizes as the crate `xla` has them, and its errors.

use burn_tpu_runtime::TpuError;
use burn_tpu_runtime::graph::DType;
use xla::ElementType;

/// The name under which errors know the engine.
pub(crate) const ENGINE: &str = "xla-rs";

pub(crate) fn element(dtype: DType) -> ElementType {
    match dtype {
        DType::Bool => ElementType::Pred,
        DType::I8 => ElementType::S8,
        DType::I16 => ElementType::S16,
        DType::I32 => ElementType::S32,
        DType::I64 => ElementType::S64,
        DType::U8 => ElementType::U8,
        DType::U16 => ElementType::U16,
        DType::U32 => ElementType::U32,
        DType::U64 => ElementType::U64,
        DType::BF16 => ElementType::Bf16,
        DType::F16 => ElementType::F16,
        DType::F32 => ElementType::F32,
        DType::F64 => ElementType::F64,
        DType::C64 => ElementType::C64,
    }
}

/// Returns the type's name in HLO text.
pub(crate) fn hlo_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "pred",
        DType::I8 => "s8",
        DType::I16 => "s16",
        DType::I32 => "s32",
        DType::I64 => "s64",
        DType::U8 => "u8",
        DType::U16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::C64 => "c64",
    }
}

/// Returns sizes, dims or indices as the crate takes them. They are those of arrays that exist, so they fit.
pub(crate) fn i64s(numbers: &[usize]) -> Vec<i64> {
    numbers.iter().map(|&number| number as i64).collect()
}

/// Returns the error of a call into the crate.
pub(crate) fn failed(context: impl Into<String>) -> impl FnOnce(xla::Error) -> TpuError {
    let context = context.into();
    move |error| {
        // With a backtrace, the text of the error has hundreds of lines.
        let message = match error {
            xla::Error::XlaError { msg, .. } => msg,
            other => other.to_string(),
        };
        TpuError::Engine { engine: ENGINE, context, message }
    }
}
