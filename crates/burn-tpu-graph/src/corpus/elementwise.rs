//! Test cases for element-wise ops.

use super::{Cases, dtypes};
use crate::op::{BinaryOp, Direction, UnaryOp};
use crate::{Builder, DType, DTypeClass, Result};

pub(super) fn add(cases: &mut Cases) -> Result<()> {
    for &op in UnaryOp::ALL {
        for dtype in dtypes(op.class()) {
            cases.add(format!("unary/{op:?}/{dtype}"), |r| {
                let x = r.parameter(dtype, &[3])?;
                Ok(vec![r.graph.unary(op, x)?])
            })?;
        }
    }
    for &op in BinaryOp::ALL {
        for dtype in dtypes(op.class()) {
            cases.add(format!("binary/{op:?}/{dtype}"), |r| {
                let (lhs, rhs) = (r.parameter(dtype, &[2, 3])?, r.parameter(dtype, &[1, 3])?);
                Ok(vec![r.graph.binary(op, lhs, rhs)?])
            })?;
        }
    }
    relations(cases)?;
    choices(cases)?;
    conversions(cases)
}

fn relations(cases: &mut Cases) -> Result<()> {
    let directions = [Direction::Eq, Direction::Ne, Direction::Lt, Direction::Le, Direction::Gt, Direction::Ge];
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("compare/{dtype}"), |r| {
            let (lhs, rhs) = (r.parameter(dtype, &[3])?, r.parameter(dtype, &[3])?);
            directions.iter().map(|&direction| r.graph.compare(direction, lhs, rhs)).collect()
        })?;
    }
    for dtype in dtypes(DTypeClass::Float) {
        cases.add(format!("compare/is_finite/{dtype}"), |r| {
            let x = r.parameter(dtype, &[3])?;
            Ok(vec![r.graph.is_finite(x)?])
        })?;
    }
    Ok(())
}

fn choices(cases: &mut Cases) -> Result<()> {
    for dtype in dtypes(DTypeClass::Any) {
        cases.add(format!("choice/select/{dtype}"), |r| {
            let predicate = r.parameter(DType::Bool, &[3])?;
            let (x, y) = (r.parameter(dtype, &[3])?, r.parameter(dtype, &[3])?);
            Ok(vec![r.graph.select(predicate, x, y)?])
        })?;
    }
    for dtype in dtypes(DTypeClass::Numeric) {
        cases.add(format!("choice/clamp/{dtype}"), |r| {
            let (low, high) = (r.slot(dtype)?, r.slot(dtype)?);
            let x = r.parameter(dtype, &[3])?;
            Ok(vec![r.graph.clamp(low, x, high)?])
        })?;
    }
    Ok(())
}

fn conversions(cases: &mut Cases) -> Result<()> {
    for from in dtypes(DTypeClass::Any) {
        cases.add(format!("convert/{from}"), |r| {
            let x = r.parameter(from, &[3])?;
            dtypes(DTypeClass::Any).filter(|&to| to != from).map(|to| r.graph.convert(x, to)).collect()
        })?;
    }
    for from in dtypes(DTypeClass::Numeric) {
        let alike = |to: &DType| to.size_bytes() == from.size_bytes() && *to != from;
        cases.add(format!("bitcast/{from}"), |r| {
            let x = r.parameter(from, &[3])?;
            dtypes(DTypeClass::Numeric).filter(alike).map(|to| r.graph.bitcast_convert(x, to)).collect()
        })?;
    }
    Ok(())
}
