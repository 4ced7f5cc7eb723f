//! Test cases for ops that move, repeat, drop or transform whole dims.

use super::{Cases, MOVED, Recorder};
use crate::op::{FftKind, MemorySpace};
use crate::{Builder, DType, NodeId, Result, Sharding};

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for dtype in MOVED {
        cases.add(format!("movement/shape/{dtype}"), |r| shape(r, dtype))?;
        cases.add(format!("movement/order/{dtype}"), |r| order(r, dtype))?;
        cases.add(format!("movement/pad/{dtype}"), |r| pad(r, dtype))?;
        cases.add(format!("movement/concatenate/{dtype}"), |r| concatenate(r, dtype))?;
        cases.add(format!("movement/barrier/{dtype}"), |r| {
            let x = r.parameter(dtype, &[3])?;
            Ok(vec![r.graph.optimization_barrier(x)?])
        })?;
        cases.add(format!("movement/sharding_constraint/{dtype}"), |r| {
            let x = r.parameter(dtype, &[4])?;
            Ok(vec![r.graph.sharding_constraint(x, Sharding::first_dim(1, &[0]))?])
        })?;
    }
    for (memory, dtype) in [(MemorySpace::PinnedHost, DType::F32), (MemorySpace::Device, DType::BF16)] {
        cases.add(format!("movement/move_to_{}/{dtype}", memory.name()), |r| {
            let x = r.parameter(dtype, &[4])?;
            Ok(vec![r.graph.move_to(x, memory)?])
        })?;
    }
    cases.add("fft/real", |r| {
        let x = r.parameter(DType::F32, &[2, 6])?;
        let spectrum = r.graph.fft(x, FftKind::Rfft, 6)?;
        let (real, imag) = (r.graph.real(spectrum)?, r.graph.imag(spectrum)?);
        let back = r.graph.complex(real, imag)?;
        Ok(vec![real, imag, r.graph.fft(back, FftKind::Irfft, 6)?])
    })?;
    cases.add("fft/complex", |r| {
        let (real, imag) = (r.parameter(DType::F32, &[5])?, r.parameter(DType::F32, &[5])?);
        let x = r.graph.complex(real, imag)?;
        let spectrum = r.graph.fft(x, FftKind::Fft, 5)?;
        let back = r.graph.fft(spectrum, FftKind::Ifft, 5)?;
        Ok(vec![r.graph.real(spectrum)?, r.graph.imag(back)?])
    })
}

fn shape(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, one, none) = (r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[1])?, r.parameter(dtype, &[0, 2])?);
    let scalar = r.graph.reshape(one, &[])?;
    Ok(vec![
        r.graph.broadcast_in_dim(x, &[2, 4, 3], &[0, 2])?,
        r.graph.broadcast_to(one, &[4])?,
        r.graph.broadcast_to(scalar, &[2, 2])?,
        r.graph.broadcast_to(scalar, &[0])?,
        scalar,
        r.graph.reshape(x, &[3, 1, 2])?,
        r.graph.reshape(none, &[3, 0])?,
    ])
}

fn order(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, none) = (r.parameter(dtype, &[2, 3, 4])?, r.parameter(dtype, &[0, 2])?);
    Ok(vec![
        r.graph.transpose(x, &[2, 0, 1])?,
        r.graph.transpose(none, &[1, 0])?,
        r.graph.reverse(x, &[0, 2])?,
        r.graph.slice(x, &[0, 1, 0], &[2, 3, 4], &[1, 1, 3])?,
        r.graph.slice(x, &[1, 1, 1], &[1, 1, 4], &[1, 1, 2])?,
    ])
}

fn pad(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, none) = (r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[0])?);
    let value = r.slot(dtype)?;
    Ok(vec![
        r.graph.pad(x, value, &[1, -1], &[0, 2], &[0, 1])?,
        r.graph.pad(x, value, &[-1, 0], &[-1, 0], &[0, 0])?,
        r.graph.pad(none, value, &[2], &[1], &[1])?,
    ])
}

fn concatenate(r: &mut Recorder, dtype: DType) -> Result<Vec<NodeId>> {
    let (x, y, none) = (r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[2, 1])?, r.parameter(dtype, &[2, 0])?);
    Ok(vec![r.graph.concatenate(&[x, y, none, x], 1)?, r.graph.concatenate(&[x, x], 0)?])
}
