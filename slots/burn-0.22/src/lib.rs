//! burn-tpu in the place where Burn looks for its backend burn-flex. **This is not Tracel's crate burn-flex.** README.md
//! says how a program chooses it and how it leaves it.
//!
//! It owns the names that Burn's crates use of burn-flex. It may not know anything else: the backend is
//! `burn-tpu-0-22`, or `burn-tpu-0-23` where the slot of Burn 0.23 compiles this file.
#![forbid(unsafe_code)]

pub use burn_tpu::{Tpu as Flex, TpuDevice as FlexDevice, TpuQTensor as FlexQTensor, TpuTensor as FlexTensor};

/// Burn writes this device as a value too, since the real one has no fields.
#[allow(non_upper_case_globals, reason = "it is Burn's name for the device, as a value")]
pub const FlexDevice: burn_tpu::TpuDevice = burn_tpu::TpuDevice::BEST;

/// What Burn calls of the backend beside its traits.
#[cfg(feature = "fft")]
pub mod ops {
    /// Fourier transforms, named by the element type; all types are one method here.
    pub mod fft {
        pub use burn_tpu::fft::{
            irfft as irfft_f32, irfft as irfft_f64, irfft as irfft_f16, irfft as irfft_bf16, rfft as rfft_f32,
            rfft as rfft_f64, rfft as rfft_f16, rfft as rfft_bf16,
        };
    }
}
