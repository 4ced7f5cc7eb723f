//! Module operations against Burn's CPU backends, over random attributes: convolutions, pools, interpolation, attention,
//! linear layers, norms, Fourier transforms, and the gradients of all of them, called as autodiff calls them.
//!
//! The oracle is burn-ndarray, or burn-flex where burn-ndarray lacks the op. Values are eighths between -2 and 2: exact in
//! bf16, with ties for the pools.

mod common;

use burn_backend::ops::*;
use burn_backend::tensor::{BoolTensor, Device, FloatTensor, IntTensor};
use burn_backend::{Backend, FloatDType, TensorData, TensorMetadata};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use burn_tpu::{Tpu, TpuDevice};
use proptest::prelude::*;

type Cpu = NdArray<f32, i32>;

/// Creates the same operands on every backend.
struct Feed<B: Backend> {
    device: Device<B>,
    dtype: FloatDType,
    seed: u64,
}

/// The dims and values of a result.
type Value = (Vec<usize>, Vec<f32>);

impl<B: Backend> Feed<B> {
    fn new(device: Device<B>, dtype: FloatDType) -> Self {
        Self { device, dtype, seed: 0 }
    }

    /// Returns the next number of a fixed sequence, below `end` (SplitMix64).
    fn next(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn from(&mut self, dims: &[usize], values: Vec<f32>) -> FloatTensor<B> {
        let tensor = B::float_from_data(TensorData::new(values, dims.to_vec()), &self.device);
        B::float_cast(tensor, self.dtype)
    }

    fn float(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let count = dims.iter().product();
        let values = (0..count).map(|_| self.next(33) as f32 / 8.0 - 2.0).collect();
        self.from(dims, values)
    }

    /// Returns offsets that never fall on a pixel, where the slope of a bilinear read jumps.
    fn offsets(&mut self, dims: &[usize]) -> FloatTensor<B> {
        let count = dims.iter().product();
        let values = (0..count).map(|_| self.next(13) as f32 / 4.0 - 1.5 + 0.125).collect();
        self.from(dims, values)
    }

    fn int(&mut self, dims: &[usize], end: u64) -> IntTensor<B> {
        let count: usize = dims.iter().product();
        let values: Vec<i32> = (0..count).map(|_| self.next(end) as i32).collect();
        B::int_from_data(TensorData::new(values, dims.to_vec()), &self.device)
    }

    fn bool(&mut self, dims: &[usize]) -> BoolTensor<B> {
        let count: usize = dims.iter().product();
        let values: Vec<bool> = (0..count).map(|_| self.next(3) == 0).collect();
        B::bool_from_data(TensorData::new(values, dims.to_vec()), &self.device)
    }

    fn maybe(&mut self, wanted: bool, dims: &[usize]) -> Option<FloatTensor<B>> {
        wanted.then(|| self.float(dims))
    }

    fn read(&self, tensor: FloatTensor<B>) -> Value {
        let dims = tensor.shape().to_vec();
        let data = burn_backend::read_sync(B::float_into_data(tensor)).expect("the program must run");
        (dims, data.iter::<f32>().collect())
    }

    fn read_int(&self, tensor: IntTensor<B>) -> Value {
        let dims = tensor.shape().to_vec();
        let data = burn_backend::read_sync(B::int_into_data(tensor)).expect("the program must run");
        (dims, data.iter::<f32>().collect())
    }
}

/// Checks that some number within the tolerance of each of their elements rounds to ours.
fn close(ours: &[Value], theirs: &[Value], (dtype, tolerance): (FloatDType, f32)) -> Result<(), TestCaseError> {
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
const ONE_ROUNDING: f32 = 1e-5;

/// The tolerance where a product's operand was computed by the op itself: matrix units take 16 bits.
const ROUNDED_OPERAND: f32 = 2e-2;

/// Returns the devices under test: the CPU plugin in f32 and bf16, and the interpreter in f64, each with its tolerance.
fn runs(half: f32) -> Vec<(TpuDevice, FloatDType, f32)> {
    let plugin = common::cpu().map(|device| [(device, FloatDType::F32, 1e-5), (device, FloatDType::BF16, half)]);
    plugin.into_iter().flatten().chain([(TpuDevice::ndarray(), FloatDType::F64, 1e-5)]).collect()
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
                type B = Tpu<f32>;
                let mut feed = Feed::<B>::new(device, dtype);
                let $feed = &mut feed;
                $body
            };
            close(&ours, &theirs, (dtype, tolerance))?;
        }
    }};
}

/// Each case is a program to compile, so the default number is small.
fn cases() -> ProptestConfig {
    common::cases(10)
}

#[path = "module_parity/conv.rs"]
mod conv;
#[path = "module_parity/layers.rs"]
mod layers;
#[path = "module_parity/pool.rs"]
mod pool;
