//! Test cases for ops without operands, for results and for outputs.

use super::{Cases, dtypes};
use crate::{Builder, DType, DTypeClass, Literal, Result, TensorType};

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    parameters(cases)?;
    slots(cases)?;
    constants(cases)?;
    iotas(cases)?;
    cases.add("leaf/rng_bit_generator", |r| {
        let state = r.parameter(DType::U64, &[2])?;
        let (state, narrow) = r.graph.rng_bit_generator(state, DType::U32, &[3, 5])?;
        let (state, wide) = r.graph.rng_bit_generator(state, DType::U64, &[4])?;
        let (state, empty) = r.graph.rng_bit_generator(state, DType::U32, &[0])?;
        let (state, scalar) = r.graph.rng_bit_generator(state, DType::U32, &[])?;
        Ok(vec![state, narrow, wide, empty, scalar])
    })
}

fn parameters(cases: &mut Cases) -> Result<()> {
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("leaf/parameter/{dtype}"), |r| {
            Ok(vec![r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[])?, r.parameter(dtype, &[0, 3])?])
        })?;
    }
    cases.add("leaf/outputs", |r| {
        let x = r.parameter(DType::F32, &[4])?;
        Ok(vec![x, x])
    })?;
    cases.add("leaf/no_outputs", |_| Ok(Vec::new()))
}

fn slots(cases: &mut Cases) -> Result<()> {
    cases.add("leaf/slot", |r| {
        let all: Result<Vec<_>> = dtypes(DTypeClass::Any).map(|dtype| r.slot(dtype)).collect();
        all
    })?;
    cases.add("leaf/slot_alone", |r| Ok(vec![r.slot(DType::F32)?]))
}

fn constants(cases: &mut Cases) -> Result<()> {
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("leaf/constant/{dtype}"), |r| {
            let size = dtype.size_bytes();
            // Bools need bytes 0 and 1; other types take any bytes, including NaNs.
            let limit = if dtype == DType::Bool { 2 } else { 251 };
            let bytes: Vec<u8> = (0..6 * size).map(|i| ((i * 37 + 1) % limit) as u8).collect();
            Ok(vec![
                r.graph.constant(Literal::dense(TensorType::new(dtype, [3, 2]), bytes))?,
                r.graph.constant(Literal::dense(TensorType::new(dtype, [0, 2]), Vec::new()))?,
                r.graph.splat(dtype, &[2, 2], -1.5)?,
                r.graph.splat(dtype, &[0], 1.0)?,
                r.graph.scalar(dtype, f64::NAN)?,
                r.graph.scalar(dtype, f64::NEG_INFINITY)?,
                r.graph.scalar(dtype, -0.0)?,
                r.graph.scalar(dtype, 0.1)?,
            ])
        })?;
    }
    Ok(())
}

fn iotas(cases: &mut Cases) -> Result<()> {
    for dtype in dtypes(DTypeClass::Numeric) {
        cases.add(format!("leaf/iota/{dtype}"), |r| {
            Ok(vec![
                r.graph.iota(dtype, &[2, 3], 1)?,
                r.graph.iota(dtype, &[2, 3], 0)?,
                r.graph.iota(dtype, &[0, 3], 0)?,
            ])
        })?;
    }
    Ok(())
}
