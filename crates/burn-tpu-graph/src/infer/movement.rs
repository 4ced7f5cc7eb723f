//! Rules of ops that move, repeat, drop or transform whole dims.

use super::{Rule, check_dim, check_distinct, check_increasing, check_len};
use crate::op::{FftKind, PadAttrs, SliceAttrs};
use crate::{DType, Dims, TensorType};

pub(super) fn iota(ty: &TensorType, dim: usize) -> Rule {
    check_dim(dim, ty.rank())?;
    if matches!(ty.dtype, DType::Bool | DType::C64) {
        return Err(format!("the element type must be an integer or a float, not {}", ty.dtype));
    }
    Ok(ty.clone())
}

pub(super) fn broadcast_in_dim(x: &TensorType, dims: &[usize], mapping: &[usize]) -> Rule {
    check_len("the mapping", mapping.len(), x.rank())?;
    check_increasing("the mapping", mapping, dims.len())?;
    for (&size, &to) in x.dims.iter().zip(mapping) {
        if size != 1 && size != dims[to] {
            return Err(format!("size {size} cannot be broadcast to dim {to} of {dims:?}"));
        }
    }
    Ok(TensorType::new(x.dtype, dims))
}

pub(super) fn reshape(x: &TensorType, dims: &[usize]) -> Rule {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    if count != Some(x.elements()) {
        return Err(format!("{} elements cannot take the dims {dims:?}", x.elements()));
    }
    Ok(TensorType::new(x.dtype, dims))
}

pub(super) fn transpose(x: &TensorType, permutation: &[usize]) -> Rule {
    check_len("the permutation", permutation.len(), x.rank())?;
    check_distinct(permutation, x.rank())?;
    let dims: Dims = permutation.iter().map(|&from| x.dims[from]).collect();
    Ok(TensorType { dtype: x.dtype, dims })
}

pub(super) fn reverse(x: &TensorType, dims: &[usize]) -> Rule {
    check_distinct(dims, x.rank())?;
    Ok(x.clone())
}

pub(super) fn slice(x: &TensorType, attrs: &SliceAttrs) -> Rule {
    let SliceAttrs { start, limit, stride } = attrs;
    check_len("start", start.len(), x.rank())?;
    check_len("limit", limit.len(), x.rank())?;
    check_len("stride", stride.len(), x.rank())?;
    let mut dims = Dims::new();
    for i in 0..x.rank() {
        if start[i] > limit[i] || limit[i] > x.dims[i] || stride[i] == 0 {
            let (start, limit, stride, size) = (start[i], limit[i], stride[i], x.dims[i]);
            return Err(format!("dim {i}: [{start}, {limit}) with stride {stride} is out of range for size {size}"));
        }
        dims.push((limit[i] - start[i]).div_ceil(stride[i]));
    }
    Ok(TensorType { dtype: x.dtype, dims })
}

pub(super) fn pad(x: &TensorType, value: &TensorType, attrs: &PadAttrs) -> Rule {
    check_len("low", attrs.low.len(), x.rank())?;
    check_len("high", attrs.high.len(), x.rank())?;
    check_len("interior", attrs.interior.len(), x.rank())?;
    if *value != TensorType::scalar(x.dtype) {
        return Err(format!("the padding value must be {}[]", x.dtype));
    }
    let mut dims = Dims::new();
    for i in 0..x.rank() {
        let inner = x.dims[i].saturating_sub(1).checked_mul(attrs.interior[i]);
        let spread = inner.and_then(|n| n.checked_add(x.dims[i])).ok_or("the interior padding overflows")?;
        let size = spread.checked_add_signed(attrs.low[i]).and_then(|n| n.checked_add_signed(attrs.high[i]));
        dims.push(size.ok_or_else(|| format!("dim {i} of size {} would get a negative size", x.dims[i]))?);
    }
    Ok(TensorType { dtype: x.dtype, dims })
}

pub(super) fn concatenate(types: &[&TensorType], dim: usize) -> Rule {
    check_dim(dim, types[0].rank())?;
    let mut result = types[0].clone();
    for ty in &types[1..] {
        let fits = ty.dtype == result.dtype
            && ty.rank() == result.rank()
            && (0..ty.rank()).all(|i| i == dim || ty.dims[i] == result.dims[i]);
        if !fits {
            return Err(format!("operands must agree but along dim {dim}: {} and {ty}", types[0]));
        }
        result.dims[dim] += ty.dims[dim];
    }
    Ok(result)
}

pub(super) fn fft(x: &TensorType, kind: FftKind, length: usize) -> Rule {
    let Some(&last) = x.dims.last() else { return Err("the operand needs a dim".into()) };
    let (takes, gives, input, output) = match kind {
        FftKind::Fft | FftKind::Ifft => (DType::C64, DType::C64, length, length),
        FftKind::Rfft => (DType::F32, DType::C64, length, length / 2 + 1),
        FftKind::Irfft => (DType::C64, DType::F32, length / 2 + 1, length),
    };
    if x.dtype != takes || last != input || length == 0 {
        return Err(format!("a {kind:?} of length {length} takes {takes} with a last dim of {input}"));
    }
    let mut result = x.with_dtype(gives);
    *result.dims.last_mut().ok_or("the operand needs a dim")? = output;
    Ok(result)
}
