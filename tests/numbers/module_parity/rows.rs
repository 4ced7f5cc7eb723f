//! The rows: operands that are equal on every backend, the comparison of results, and the files of each family. Compiled
//! against both versions of Burn, which `version.rs` beside the test tells apart.

use super::version::{self, Cpu, Ours, TpuDevice, cases};
use burn_backend::ops::*;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{Backend, FloatDType, TensorData, TensorMetadata};
use burn_flex::Flex;
use proptest::prelude::*;

/// Creates the same operands on every backend.
pub struct Feed<B: Backend> {
    device: Device<B>,
    dtype: FloatDType,
    seed: u64,
}

/// The dims and values of a result.
pub type Value = (Vec<usize>, Vec<f32>);

impl<B: Backend> Feed<B> {
    pub fn new(device: Device<B>, dtype: FloatDType) -> Self {
        Self { device, dtype, seed: 0 }
    }

    /// Returns the next number of a fixed sequence, below `end` (SplitMix64).
    fn next(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub fn from(&mut self, dims: &[usize], values: Vec<f32>) -> FloatTensor<B> {
        let tensor = B::float_from_data(TensorData::new(values, dims.to_vec()), &self.device);
        B::float_cast(tensor, self.dtype)
    }

    pub fn float(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let count = dims.iter().product();
        let values = (0..count).map(|_| self.next(33) as f32 / 8.0 - 2.0).collect();
        self.from(dims, values)
    }

    /// Returns offsets that never fall on a pixel, where the slope of a bilinear read jumps.
    pub fn offsets(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let count = dims.iter().product();
        let values = (0..count).map(|_| self.next(13) as f32 / 4.0 - 1.5 + 0.125).collect();
        self.from(dims, values)
    }

    pub fn int(&mut self, dims: &[usize], end: u64) -> IntTensor<B> {
        let count: usize = dims.iter().product();
        let values: Vec<i32> = (0..count).map(|_| self.next(end) as i32).collect();
        B::int_from_data(TensorData::new(values, dims.to_vec()), &self.device)
    }

    pub fn bool(&mut self, dims: &[usize]) -> BoolTensor<B> {
        let count: usize = dims.iter().product();
        let values: Vec<bool> = (0..count).map(|_| self.next(3) == 0).collect();
        B::bool_from_data(TensorData::new(values, dims.to_vec()), &self.device)
    }

    pub fn maybe(&mut self, wanted: bool, dims: &[usize]) -> Option<FloatTensor<B>> {
        wanted.then(|| self.float(dims))
    }

    pub fn read(&self, tensor: FloatTensor<B>) -> Value {
        let dims = tensor.shape().to_vec();
        let data = burn_backend::read_sync(B::float_into_data(tensor)).expect("the program must run");
        (dims, data.iter::<f32>().collect())
    }

    pub fn read_int(&self, tensor: IntTensor<B>) -> Value {
        let dims = tensor.shape().to_vec();
        let data = burn_backend::read_sync(B::int_into_data(tensor)).expect("the program must run");
        (dims, data.iter::<f32>().collect())
    }
}

/// Checks that some number within the tolerance of each of their elements rounds to ours.
pub fn close(ours: &[Value], theirs: &[Value], (dtype, tolerance): (FloatDType, f32)) -> Result<(), TestCaseError> {
    let rounded = |value: f32| if dtype == FloatDType::BF16 { half::bf16::from_f32(value).to_f32() } else { value };
    prop_assert_eq!(ours.len(), theirs.len());
    for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        prop_assert_eq!(&ours.0, &theirs.0, "dims of result {}", i);
        let scale = theirs.1.iter().fold(1.0f32, |m, v| if v.is_finite() { m.max(v.abs()) } else { m });
        for (k, (a, b)) in ours.1.iter().zip(&theirs.1).enumerate() {
            let slack = tolerance * scale;
            let near = (rounded(b - slack)..=rounded(b + slack)).contains(a);
            let same = a == b || near || (a.is_nan() && b.is_nan());
            prop_assert!(same, "result {} at {}: {} instead of {}\n{:?}\n{:?}", i, k, a, b, ours, theirs);
        }
    }
    Ok(())
}

/// The tolerance in bf16 before its one rounding: the same as in f32.
pub const ONE_ROUNDING: f32 = 1e-5;

/// The tolerance where a product's operand was computed by the op itself: matrix units take 16 bits.
const ROUNDED_OPERAND: f32 = 2e-2;

/// Returns the devices under test: the CPU plugin in f32 and bf16, and the interpreter in f64, each with its tolerance.
pub fn runs(half: f32) -> Vec<(TpuDevice, FloatDType, f32)> {
    let plugin = version::device().map(|device| [(device, FloatDType::F32, 1e-5), (device, FloatDType::BF16, half)]);
    plugin.into_iter().flatten().chain([(version::interpreter(), FloatDType::F64, 1e-5)]).collect()
}

/// Runs `$body` with `B` as the oracle and as this backend on each device under test, and compares the results.
macro_rules! agree {
    ($oracle:ty, $feed:ident, $body:expr) => {
        agree!($oracle, $feed, ONE_ROUNDING, $body)
    };
    ($oracle:ty, $feed:ident, $half:expr, $body:expr) => {{
        let theirs = {
            type B = $oracle;
            let mut feed = Feed::<B>::new(Default::default(), FloatDType::F32);
            let $feed = &mut feed;
            $body
        };
        for (device, dtype, tolerance) in runs($half) {
            let ours = {
                type B = Ours;
                let mut feed = Feed::<B>::new(device, dtype);
                let $feed = &mut feed;
                $body
            };
            close(&ours, &theirs, (dtype, tolerance))?;
        }
    }};
}

mod conv;
mod layers;
mod pool;
