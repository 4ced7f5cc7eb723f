//! Where a mask is true, and the elements there: ops whose result has as many elements as the mask has true ones.
//!
//! A program's shapes are part of it, so the count has to be read first: one integer. Everything else stays on the device:
//! a stable sort brings the true places to the front, in their order, and the first `count` of them are taken. Each count
//! compiles a program of its own; in a loop, prefer `mask_where`, which has the shape of its operands.

use super::{arithmetic, data, index, movement, reduce};
use crate::Tensor;
use crate::error::{Result, TpuError};
use crate::trace::{Recorder, record, record_many};
use burn_tpu_graph::op::{BinaryOp, UnaryOp};
use burn_tpu_graph::{Builder, DType, GraphError, NodeId, TensorType};

/// Returns the elements of `x` where `mask`, of the same dims, is true: `[count]`, in row-major order. Reads the count; if
/// that fails, the result's read returns the error.
pub fn mask_select(x: Tensor, mask: Tensor) -> Tensor {
    if x.dims() != mask.dims() {
        let rule = format!("the mask has the dims {:?}", mask.dims());
        let source = GraphError { op: "gather", operands: x.ty().to_string(), rule };
        let error = TpuError::Operation { op: "mask_select", source };
        return data::failed(TensorType::new(x.element(), [0]), error, &x.device());
    }
    let (element, device, all) = (x.element(), x.device(), mask.ty().elements());
    match true_places(mask) {
        Ok(places) => index::select(movement::reshape(x, &[all]), 0, places),
        Err(error) => data::failed(TensorType::new(element, [0]), error, &device),
    }
}

/// Returns the coordinates of the true elements of `mask`, `[count, rank]`, in row-major order. Reads the count; if that
/// fails, the result's read returns the error.
pub fn argwhere(mask: Tensor, index: DType) -> Tensor {
    let (dims, device) = (mask.ty().dims.clone(), mask.device());
    match true_places(mask) {
        Ok(places) => coordinates(places, &dims, index),
        Err(error) => data::failed(TensorType::new(index, [0, dims.len()]), error, &device),
    }
}

/// Returns the places of the true elements in row-major order, i32 (or i64) `[count]`.
fn true_places(mask: Tensor) -> Result<Tensor> {
    let count = count(&mask)?;
    let [ordered] = record_many("true_places", &[&mask], |r, nodes| {
        let all = r.ty(nodes[0]).elements();
        let flat = r.reshape(nodes[0], &[all])?;
        let not = r.unary(UnaryOp::Not, flat)?;
        let places = r.iota(place_type(all), &[all], 0)?;
        Ok([r.sort(&[not, places], 0, false)?[1]])
    });
    Ok(record("true_places", [&ordered], |r, [ordered]| r.slice_dim(ordered, 0, 0, count)))
}

fn place_type(all: usize) -> DType {
    if i32::try_from(all).is_ok() { DType::I32 } else { DType::I64 }
}

/// Reads the number of true elements.
fn count(mask: &Tensor) -> Result<usize> {
    let ones = arithmetic::cast(mask.clone(), place_type(mask.ty().elements()));
    let bytes = data::into_bytes(&arithmetic::cast(reduce::sum(ones), DType::I64))?;
    let mut count = [0; 8];
    count.copy_from_slice(bytes.get(..8).unwrap_or(&[0; 8]));
    Ok(i64::from_le_bytes(count) as usize)
}

/// Splits places into coordinates.
fn coordinates(places: Tensor, dims: &[usize], index: DType) -> Tensor {
    record("argwhere", [&places], |r, [places]| {
        let count = r.ty(places).elements();
        if dims.is_empty() {
            return r.splat(index, &[count, 0], 0i64);
        }
        let columns: Vec<NodeId> =
            (0..dims.len()).map(|dim| coordinate(r, places, dims, dim)).collect::<std::result::Result<_, _>>()?;
        let joined = r.concatenate(&columns, 1)?;
        r.convert(joined, index)
    })
}

/// Returns one coordinate of places, `[count, 1]`.
fn coordinate(r: &mut Recorder, places: NodeId, dims: &[usize], dim: usize) -> burn_tpu_graph::Result<NodeId> {
    let count = r.ty(places).elements();
    let stride: usize = dims[dim + 1..].iter().product();
    let above = r.binary_const(BinaryOp::Div, places, stride.max(1) as i64)?;
    let within = r.binary_const(BinaryOp::Rem, above, dims[dim].max(1) as i64)?;
    r.reshape(within, &[count, 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{devices, tensor, values};

    #[test]
    fn finds_and_takes_what_is_true() {
        for device in devices() {
            let mask = || data::to_device(tensor([false, true, true, false, false, true], &[2, 3]), &device);
            let x = data::to_device(tensor([0.5f32, 1.5, 2.5, 3.5, 4.5, 5.5], &[2, 3]), &device);
            let taken = mask_select(x, mask());
            assert_eq!((taken.dims(), values(taken.clone())), (&[3][..], vec![1.5, 2.5, 5.5]));
            let places = argwhere(mask(), DType::I64);
            assert_eq!((places.dims(), places.element()), (&[3, 2][..], DType::I64));
            assert_eq!(values(places), [0.0, 1.0, 0.0, 2.0, 1.0, 2.0]);
            let none = data::to_device(tensor([false, false], &[2]), &device);
            assert_eq!(argwhere(none.clone(), DType::I32).dims(), [0, 1]);
            assert_eq!(mask_select(none.clone(), none).dims(), [0]);
        }
    }

    #[test]
    fn a_mask_of_other_dims_is_an_error_of_the_read() {
        let result = mask_select(tensor([1.0f32, 2.0], &[2]), tensor([true], &[1]));
        assert!(data::into_bytes(&result).unwrap_err().to_string().contains("mask_select"));
    }
}
