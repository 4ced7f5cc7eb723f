//! Families of programs against the interpreter: the program of a bucket computes what the program of the true sizes does,
//! bit by bit, whatever is in the padding.

use super::{HostTensor, interpret};
use burn_tpu_graph::corpus::varying::{SIZES, program};
use burn_tpu_graph::family::{Family, Numbers, Padded, Size};
use burn_tpu_graph::{DType, Number, Program, TensorType};
use std::sync::Arc;

/// Numbers of a seed.
fn numbers(seed: u64) -> impl FnMut(i64) -> i64 {
    let mut state = seed + 1;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64 % bound
    }
}

/// A value of small whole numbers, some of them NaN or infinite if that is wished.
fn argument(ty: &TensorType, seed: u64, is_special: bool) -> HostTensor {
    let mut next = numbers(seed);
    let mut element = || {
        let number = match next(if is_special { 14 } else { 11 }) {
            11 if ty.dtype == DType::F32 => Number::Float(f64::NAN),
            12 if ty.dtype == DType::F32 => Number::Float(f64::INFINITY),
            13 if ty.dtype == DType::F32 => Number::Float(f64::NEG_INFINITY),
            number => Number::Int(number - 4),
        };
        number.bits(ty.dtype).to_le_bytes()[..ty.dtype.size_bytes()].to_vec()
    };
    let bytes: Vec<u8> = (0..ty.elements()).flat_map(|_| element()).collect();
    HostTensor::from_bytes(ty.clone(), bytes)
}

/// The places of an array's elements in a larger one, whose first indices they have.
fn places(dims: &[usize], capacities: &[usize]) -> Vec<usize> {
    let count: usize = dims.iter().product();
    let place = |mut element: usize| {
        let (mut place, mut inner) = (0, 1);
        for (&size, &capacity) in dims.iter().zip(capacities).rev() {
            place += element % size * inner;
            (element, inner) = (element / size, inner * capacity);
        }
        place
    };
    (0..count).map(place).collect()
}

/// Returns a value in a larger buffer, whose padding is NaN, or a position that exists.
fn in_buffer(value: &HostTensor, ty: &TensorType) -> HostTensor {
    let size = ty.dtype.size_bytes();
    let junk = if ty.dtype == DType::F32 { Number::Float(f64::NAN) } else { Number::Int(1) };
    let mut bytes = junk.bits(ty.dtype).to_le_bytes()[..size].repeat(ty.elements());
    let true_bytes = value.to_bytes();
    for (element, place) in places(&value.ty().dims, &ty.dims).into_iter().enumerate() {
        bytes[place * size..][..size].copy_from_slice(&true_bytes[element * size..][..size]);
    }
    HostTensor::from_bytes(ty.clone(), bytes)
}

/// Returns the first indices of each axis of a value.
fn true_part(value: &HostTensor, dims: &[usize]) -> Vec<u8> {
    let (size, bytes) = (value.ty().dtype.size_bytes(), value.to_bytes());
    places(dims, &value.ty().dims).into_iter().flat_map(|place| bytes[place * size..][..size].to_vec()).collect()
}

/// The bits of an element, of which all NaN are one.
fn canonical(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if dtype == DType::F32 {
        for element in bytes.chunks_mut(4) {
            if f32::from_le_bytes([element[0], element[1], element[2], element[3]]).is_nan() {
                element.copy_from_slice(&f32::NAN.to_le_bytes());
            }
        }
    }
    bytes
}

struct Trial {
    seed: u64,
    steps: usize,
}

impl Trial {
    fn program(&self, sizes: [usize; SIZES]) -> Option<Arc<Program>> {
        program(self.seed, self.steps, sizes).ok().map(Arc::new)
    }

    /// The offsets: the same numbers at every size.
    fn slots(&self, program: &Program) -> Vec<u64> {
        let mut next = numbers(self.seed ^ 77);
        program.slots().map(|(_, _, dtype)| Number::Int(next(9) - 1).bits(dtype)).collect()
    }

    fn numbers(&self, program: &Program) -> Numbers {
        Numbers::of(program, &self.slots(program))
    }

    /// Runs the program of the true sizes and that of a bucket. Returns what differs; `None` if these sizes are not of the
    /// family.
    fn disagreement(
        &self,
        family: &Family,
        padded: &Padded,
        sizes: [usize; SIZES],
        special: bool,
    ) -> Option<Option<String>> {
        let exact = self.program(sizes)?;
        let numbers = self.numbers(&exact);
        let is_like = self.program(SEEN[0]).is_some_and(|seen| self.numbers(&seen).skeleton == numbers.skeleton);
        let found = family.sizes(&numbers).filter(|_| is_like)?;
        let has_room = family.least_buckets(&found).iter().zip(BUCKETS).all(|(least, bucket)| *least <= bucket);
        if !has_room || padded.at_least_zero.iter().any(|size| size.at(&found).is_none_or(|number| number < 0)) {
            return None;
        }
        let arguments: Vec<HostTensor> =
            exact.parameters().map(|(index, ty)| argument(ty, self.seed + u64::from(index), special)).collect();
        let mut slots = self.slots(&exact);
        let expected =
            interpret(&exact, |index| arguments.get(index as usize).cloned(), &slots).expect("the exact program");
        slots.extend(found.iter().map(|&size| size as u64));
        let mut buffers: Vec<HostTensor> = Vec::new();
        for (index, ty) in padded.program.parameters() {
            assert_eq!(index as usize, buffers.len());
            buffers.push(in_buffer(&arguments[index as usize], ty));
        }
        let results = interpret(&padded.program, |index| buffers.get(index as usize).cloned(), &slots);
        let results = match results {
            Ok(results) => results,
            Err(error) => return Some(Some(error.to_string())),
        };
        for (number, (result, expected)) in results.iter().zip(&expected).enumerate() {
            let dims: Vec<usize> =
                padded.outputs[number].iter().filter_map(|size: &Size| size.at(&found)).map(|n| n as usize).collect();
            assert_eq!(dims, expected.ty().dims.to_vec());
            let dtype = expected.ty().dtype;
            let (ours, right) = (canonical(dtype, &true_part(result, &dims)), canonical(dtype, &expected.to_bytes()));
            if ours != right {
                return Some(Some(format!("output {number} of {sizes:?}: {ours:?} for {right:?}")));
            }
        }
        Some(None)
    }
}

/// The buckets of the varying sizes, whichever they are.
const BUCKETS: [i64; 4] = [16; 4];

const SEEN: [[usize; SIZES]; 3] = [[3, 5], [5, 11], [8, 13]];

fn family(trial: &Trial) -> Option<Family> {
    let recordings: Option<Vec<(Arc<Program>, Numbers)>> = SEEN
        .into_iter()
        .map(|sizes| trial.program(sizes).map(|program| (Arc::clone(&program), trial.numbers(&program))))
        .collect();
    let recordings = recordings?;
    let is_one = recordings.iter().all(|(_, numbers)| numbers.skeleton == recordings[0].1.skeleton);
    if !is_one {
        return None;
    }
    Family::of(&recordings)
}

#[test]
fn the_program_of_a_bucket_computes_what_the_exact_one_does() {
    // Several thousand in the long mode.
    let programs: u64 = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let (mut families, mut compared, mut refused, mut no_family) =
        (0, 0, std::collections::BTreeMap::<String, usize>::new(), 0);
    for seed in 0..programs {
        let mut found = None;
        // Fewer steps are tried first, so that what fails is short.
        for steps in 1..14 {
            let trial = Trial { seed, steps };
            let Some(family) = family(&trial) else {
                no_family += 1;
                continue;
            };
            families += 1;
            let padded = match family.padded(&BUCKETS) {
                Ok(padded) => padded,
                Err(error) => {
                    *refused.entry(format!("{}: {}", error.op, error.rule)).or_default() += 1;
                    break;
                }
            };
            for sizes in [[3, 5], [2, 4], [4, 13], [8, 14], [2, 7], [6, 2], [1, 6], [5, 1]] {
                let special = sizes[1] % 2 == 1;
                match trial.disagreement(&family, &padded, sizes, special) {
                    Some(None) => compared += 1,
                    Some(Some(wrong)) => found = found.or(Some((steps, sizes, wrong))),
                    None => {}
                }
            }
            if let Some((steps, sizes, wrong)) = found {
                let exact = trial.program(sizes).expect("a program");
                panic!("seed {seed}, {steps} steps: {wrong}\n{exact}\n{}", padded.program);
            }
        }
    }
    assert!(
        compared > 20 * programs,
        "{families} families, {no_family} none, {compared} comparisons, refused {refused:?}"
    );
}
