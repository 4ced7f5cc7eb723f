//! Random values of attention, and how far rounding may move its results.

use super::attention::{Attention, RandomAttention};
use burn_tpu_graph::{DType, Number, TensorType};
use burn_tpu_interpreter::HostTensor;
use std::collections::BTreeMap;

/// The values of the parameters.
pub(super) struct Values {
    pub(super) parameters: Vec<HostTensor>,
}

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, number: u64) -> u64 {
        self.next() % number
    }

    /// Returns a number from -1 to 1.
    fn uniform(&mut self) -> f64 {
        self.below(2001) as f64 / 1000.0 - 1.0
    }
}

/// Of these, products of four are finite in f32.
const SPECIAL: [f64; 9] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 1e3, -1e3, 1e7, -1e7];

impl Values {
    pub(super) fn new(form: &RandomAttention, attention: &Attention) -> Self {
        let mut random = Random(form.seed | 1);
        let parameters = attention.parameters.iter().map(|ty| value(&mut random, ty)).collect();
        Self { parameters }
    }

    /// Returns the bound of rounding for each result of attention.
    pub(super) fn bounds(&self, attention: &Attention) -> Vec<f64> {
        let largest: BTreeMap<&str, f64> = attention
            .terms
            .iter()
            .map(|&(name, _)| name)
            .zip(super::results(&attention.program_of(&attention.terms), self))
            .map(|(name, values)| (name, values.into_iter().filter(|x| x.is_finite()).fold(0.0, |m, x| x.abs().max(m))))
            .collect();
        let of = |names: &[&str]| names.iter().filter_map(|name| largest.get(name)).fold(0.0, |m: f64, &x| x.max(m));
        let gradient = of(&["dp", "direct", "through sum", "de", "shifted", "ds"]);
        let epsilon = match attention.parameters[0].dtype {
            DType::F64 => 1e-12,
            DType::F32 => 1e-4,
            _ => 0.1,
        };
        let bound = |name: &str| match name {
            "result" => of(&["p"]) * of(&["v"]),
            "weights" | "scores" => of(&[name]),
            "dv" => of(&["p"]) * of(&["do"]),
            "dq" => gradient * of(&["k"]),
            "dk" => gradient * of(&["q"]),
            _ => gradient,
        };
        attention.outputs.iter().map(|(name, _)| epsilon * bound(name)).collect()
    }
}

/// Returns a random value: numbers of one magnitude, in one of three a few special ones.
fn value(random: &mut Random, ty: &TensorType) -> HostTensor {
    let scale = [1.0, 1.0, 3.0, 1e-3, 1e5][random.below(5) as usize];
    let specials = if random.below(3) == 0 { 1 + random.below(3) } else { 0 };
    let elements = ty.elements();
    // Masks that hide nothing, everything, or some.
    let hidden = [1, 3, 5, 6][random.below(4) as usize];
    let mut numbers: Vec<Number> = (0..elements)
        .map(|_| match ty.dtype {
            DType::Bool => Number::Bool(random.below(6) < hidden),
            _ => Number::Float(scale * random.uniform()),
        })
        .collect();
    for _ in (0..specials).filter(|_| ty.dtype.is_float()) {
        let place = random.below(elements as u64) as usize;
        numbers[place] = Number::Float(SPECIAL[random.below(SPECIAL.len() as u64) as usize]);
    }
    let bytes = numbers.iter().flat_map(|number| number.bits(ty.dtype).to_le_bytes()[..ty.dtype.size_bytes()].to_vec());
    HostTensor::from_bytes(ty.clone(), bytes.collect::<Vec<u8>>())
}

/// Returns the elements of a value as numbers.
pub(super) fn numbers(value: &HostTensor) -> Vec<f64> {
    let (dtype, bytes) = (value.ty().dtype, value.to_bytes());
    let bits = |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks_exact(dtype.size_bytes()).map(|bytes| Number::of_bits(bits(bytes), dtype).to_f64()).collect()
}
