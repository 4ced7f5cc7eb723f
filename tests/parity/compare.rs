//! Defines when a result agrees with the reference: one table of tolerances by class of op and float type.

use crate::case::{Case, Values, largest, least, rounded, wrapped};
use crate::feed::Read;
use burn_backend::{DType, FloatDType, IntDType};

/// The rounding that an op may apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// None: moves, selects, comparisons, counts, and ops that every processor rounds correctly.
    Exact,
    /// Per element, relative to that element.
    Elementwise,
    /// Sums of products over a dim or a window, relative to the largest element of the result (at least 1).
    Contraction,
    /// Quantized again: a step of the scale, relative to the largest element.
    Quantized,
}

/// Returns the relative tolerance of the computation. A result within it is then rounded to the result's type: a 16-bit
/// float is an f32 number that is rounded once.
fn tolerance(class: Class, dtype: FloatDType) -> f64 {
    match (class, dtype) {
        (Class::Exact, _) => 0.0,
        (Class::Quantized, _) => 0.01,
        (Class::Elementwise, FloatDType::F64) => 1e-12,
        (Class::Elementwise, _) => 1e-5,
        (Class::Contraction, FloatDType::F64) => 1e-11,
        (Class::Contraction, _) => 1e-4,
    }
}

/// Checks that our results agree with the reference's, element by element. An element may also agree with `flushed`, the
/// reference's results for operands with subnormals replaced by zeros.
pub fn agree<A>(
    case: &Case<A>,
    class: Class,
    ours: &[Read],
    reference: &[Read],
    flushed: Option<&[Read]>,
) -> Result<(), String> {
    if ours.len() != reference.len() {
        return Err(format!("{} results instead of {}", ours.len(), reference.len()));
    }
    for (n, (our, their)) in ours.iter().zip(reference).enumerate() {
        let other = flushed.and_then(|reads| reads.get(n));
        same(case, class, our, their, other).map_err(|error| format!("result {n}: {error}"))?;
    }
    Ok(())
}

fn same<A>(case: &Case<A>, class: Class, our: &Read, their: &Read, other: Option<&Read>) -> Result<(), String> {
    if our.dims != their.dims {
        return Err(format!("dims {:?} instead of {:?}", our.dims, their.dims));
    }
    if our.dtype != our.wanted {
        return Err(format!("{:?} instead of {:?}", our.dtype, our.wanted));
    }
    let expected = expected(their, our.dtype)?;
    let other = other.map(|read| self::expected(read, our.dtype)).transpose()?.unwrap_or_else(|| expected.clone());
    let wrong = match (&our.values, &expected, &other) {
        (Values::Float(ours), Values::Float(theirs), Values::Float(others)) => {
            let dtype = float_type(our.dtype).unwrap_or(case.float);
            let scale = |values: &[f64]| match class {
                Class::Quantized => values.iter().fold(0.0, |m: f64, v| m.max(v.abs())),
                Class::Contraction => values.iter().filter(|v| v.is_finite()).fold(1.0, |m: f64, v| m.max(v.abs())),
                Class::Exact | Class::Elementwise => 0.0,
            };
            let scales = (scale(theirs), scale(others));
            (0..ours.len()).find(|&k| {
                !close(ours[k], theirs[k], scales.0, class, dtype) && !close(ours[k], others[k], scales.1, class, dtype)
            })
        }
        (Values::Int(ours), Values::Int(theirs), Values::Int(others)) => {
            (0..ours.len()).find(|&k| ours[k] != theirs[k] && ours[k] != others[k])
        }
        (Values::Bool(ours), Values::Bool(theirs), Values::Bool(others)) => {
            (0..ours.len()).find(|&k| ours[k] != theirs[k] && ours[k] != others[k])
        }
        _ => return Err(format!("{:?} against a reference of {:?}", our.dtype, their.dtype)),
    };
    match wrong {
        Some(k) => Err(format!("element {k} is wrong\n     ours {:?}\nreference {:?}", our.values, expected)),
        None => Ok(()),
    }
}

/// Returns the reference's result in our element type.
fn expected(their: &Read, dtype: DType) -> Result<Values, String> {
    Ok(match &their.values {
        Values::Float(values) => {
            float_type(dtype).ok_or("the reference is a float tensor")?;
            Values::Float(values.clone())
        }
        Values::Int(values) => {
            let dtype = int_type(dtype).ok_or("the reference is an integer tensor")?;
            Values::Int(values.iter().map(|&v| wrapped(v, dtype)).collect())
        }
        Values::Bool(values) => Values::Bool(values.clone()),
    })
}

/// Returns whether some number within the tolerance of the reference rounds to ours.
fn close(ours: f64, theirs: f64, scale: f64, class: Class, dtype: FloatDType) -> bool {
    if ours == theirs || (ours.is_nan() && theirs.is_nan()) {
        return true;
    }
    // Results below the normal numbers, and intermediate ones, may be flushed to zero.
    let least = least(dtype);
    if ours.abs() < least && theirs.abs() < least {
        return true;
    }
    // Near the largest number, an error within the tolerance may overflow.
    let relative = tolerance(class, dtype);
    let theirs = if theirs.is_infinite() && relative > 0.0 { largest(dtype).copysign(theirs) } else { theirs };
    let slack = relative * theirs.abs().max(scale) + if class == Class::Exact { 0.0 } else { least };
    (rounded(theirs - slack, dtype)..=rounded(theirs + slack, dtype)).contains(&ours)
}

fn float_type(dtype: DType) -> Option<FloatDType> {
    dtype.is_float().then(|| dtype.into())
}

fn int_type(dtype: DType) -> Option<IntDType> {
    (dtype.is_int() || dtype.is_uint()).then(|| dtype.into())
}

/// Checks that the comparison can fail.
pub fn rejects_what_differs() -> Result<(), String> {
    let case = Case { float: FloatDType::F32, int: IntDType::I32, operands: vec![], attr: () };
    let read = |dtype, values| Read { dims: vec![1], dtype, wanted: dtype, values };
    let float = |v: f64| [read(DType::F32, Values::Float(vec![v]))];
    let differs = |ours: &[Read], theirs: &[Read]| agree(&case, Class::Elementwise, ours, theirs, None).is_err();
    let nan = f64::NAN;
    let pairs = [(1.0, 1.0001), (nan, 1.0), (1.0, nan), (1e30, f64::INFINITY), (0.0, 1e-30), (1.0, -1.0)];
    if let Some(pair) = pairs.iter().find(|(a, b)| !differs(&float(*a), &float(*b))) {
        return Err(format!("{pair:?} passes as equal"));
    }
    let int = |v: i128| [read(DType::I32, Values::Int(vec![v]))];
    let bf16 = [read(DType::BF16, Values::Float(vec![1.0]))];
    let wrong_type = Read { wanted: DType::F32, ..bf16[0].clone() };
    let passes = !differs(&int(1), &int(2)) || !differs(&[wrong_type], &bf16) || !differs(&float(1.0), &[]);
    if passes { Err("an integer, a type or a missing result passes as equal".into()) } else { Ok(()) }
}
