//! A product with weights of 8 bits, which are widened in VMEM: main memory is read for one byte a weight.
//!
//! `x [rows, depth]`, f32 or bf16, weights `[depth, columns]` i8 and scales `[1, columns]` f32 give
//! `y [rows, columns] = (x w) * scales`, in the element type of `x`. Weights of 8 bits are exact in bf16, products are
//! summed in f32, and a scale belongs to a column, so it is multiplied once, at the end (the *per-channel* scheme of
//! Nagel et al., *A White Paper on Neural Network Quantization*, 2021, section 2.4).

use crate::{Axis, Comparison, Element, Index, Kernel, KernelBuilder, KernelError, Result, Value, Window};

/// Returns the kernel of a product with weights of 8 bits. Operands: `x`, the weights, the scales.
///
/// # Errors
/// Another element type than f32 or bf16, and sizes above 512 that 128 does not divide.
pub fn int8_matmul(element: Element, rows: usize, depth: usize, columns: usize) -> Result<Kernel> {
    let what = format!("{} [{rows}, {depth}] x [{depth}, {columns}]", element.name());
    let fails = |rule| KernelError::Unsupported { kernel: "int8_matmul", what: what.clone(), rule };
    if !element.is_float() {
        return Err(fails("x is f32 or bf16"));
    }
    let size = |size| block(size).ok_or_else(|| fails("sizes are up to 512, or multiples of 128"));
    let [m, n, d] = [size(rows)?, size(columns)?, size(depth)?];
    let steps = depth / d;
    let axes = [Axis::parallel(rows / m), Axis::parallel(columns / n), Axis::arbitrary(steps)];
    let [row, column, step] = [0, 1, 2].map(Index::grid);
    let mut k = KernelBuilder::new("int8_matmul", &axes);
    let x = k.operand(Window::whole(element, &[rows, depth]).block(&[m, d], [row.clone(), step.clone()]));
    let weights = Window::whole(Element::I8, &[depth, columns]).block(&[d, n], [step.clone(), column.clone()]);
    let weights = k.operand(weights);
    let scales = k.operand(Window::whole(Element::F32, &[1, columns]).block(&[1, n], [0.into(), column.clone()]));
    let y = k.result(Window::whole(element, &[rows, columns]).block(&[m, n], [row, column]));
    let sum = k.scratch(Element::F32, &[m, n]);

    let (first, zero) = (is_step(&mut k, &step, 0)?, k.float(0.0));
    k.when(first, |k| k.store(sum, zero))?;
    let (x, weights, before) = (k.load(x)?, k.load(weights)?, k.load(sum)?);
    let weights = widened(&mut k, weights, element)?;
    let product = k.matmul(x, weights)?;
    let after = k.add(before, product)?;
    k.store(sum, after)?;
    let last = is_step(&mut k, &step, steps - 1)?;
    k.when(last, |k| {
        let (sum, scales) = (k.load(sum)?, k.load(scales)?);
        let scaled = k.mul(sum, scales)?;
        let rounded = k.cast(scaled, element)?;
        k.store(y, rounded)
    })?;
    k.build()
}

fn block(size: usize) -> Option<usize> {
    let whole = (1..=512).contains(&size).then_some(size);
    [512, 256, 128].into_iter().find(|&block| size > 0 && size.is_multiple_of(block)).or(whole)
}

fn is_step(k: &mut KernelBuilder, step: &Index, at: usize) -> Result<Value> {
    let (step, at) = (k.index(step)?, k.int(at as i32));
    k.compare(Comparison::Equal, step, at)
}

/// Returns integers of 8 bits as floats.
fn widened(k: &mut KernelBuilder, weights: Value, element: Element) -> Result<Value> {
    let ints = k.cast(weights, Element::I32)?;
    let floats = k.cast(ints, Element::F32)?;
    k.cast(floats, element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, interpret};

    #[test]
    fn products_are_those_of_the_scaled_weights() {
        for (element, tolerance) in [(Element::F32, 1e-5), (Element::BF16, 4e-3)] {
            let [rows, depth, columns] = [16, 384, 24];
            let number = |place: usize| (place * 73 % 255) as i32 - 127;
            let x = Array::floats(element, &[rows, depth], (0..rows * depth).map(|at| number(at) as f32 / 64.0));
            let w = Array::ints(Element::I8, &[depth, columns], (0..depth * columns).map(|at| number(at + 5)));
            let scales = Array::floats(Element::F32, &[1, columns], (0..columns).map(|at| 0.01 + at as f32 * 1e-3));
            let kernel = int8_matmul(element, rows, depth, columns).unwrap();
            let y = interpret(&kernel, &[x.clone(), w.clone(), scales.clone()]).unwrap().remove(0);
            for (at, &found) in y.as_floats().iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let term = |d: usize| x.as_floats()[row * depth + d] as f64 * w.as_ints()[d * columns + column] as f64;
                let scale = f64::from(scales.as_floats()[column]);
                let expected: f64 = (0..depth).map(|d| term(d) * scale).sum();
                let size: f64 = (0..depth).map(|d| (term(d) * scale).abs()).sum();
                assert!((f64::from(found) - expected).abs() < tolerance * size, "{element:?} {at}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_weight_is_read_as_one_byte_for_each_block_of_rows() {
        let cost = int8_matmul(Element::BF16, 8, 4096, 4096).unwrap().cost();
        let (weights, others) = (4096 * 4096, 8 * 8 * 4096 * 2 + 4 * 4096 + 8 * 4096 * 2);
        assert_eq!(cost.bytes_accessed, weights + others, "x is read for each of 8 blocks of columns");
    }

    #[test]
    fn odd_sizes_are_refused() {
        for (element, rows, depth) in [(Element::I8, 8, 128), (Element::F32, 1000, 128), (Element::F32, 8, 0)] {
            let error = int8_matmul(element, rows, depth, 128).unwrap_err();
            assert!(matches!(error, KernelError::Unsupported { kernel: "int8_matmul", .. }), "{error}");
        }
    }
}
