//! Softmax of the rows of a matrix in one pass: a row is read once and written once.
//!
//! `x [rows, columns]`, f32 or bf16, gives `exp(x - max(x)) / sum(exp(x - max(x)))` of each row, computed in f32. The
//! maximum keeps the exponentials from overflowing (Milakov and Gimelshein, *Online normalizer calculation for softmax*,
//! 2018, algorithm 2). It is the example of `docs/kernels.md`.

use crate::{ArrayType, Axis, Element, Index, Kernel, KernelBuilder, KernelError, Reduction, Result, Window};

/// The largest block, in bytes of f32: some of them fit into VMEM at the same time.
const BLOCK_BYTES: usize = 1 << 20;

/// Returns the kernel of softmax along the rows of a matrix.
///
/// # Errors
/// Another element type than f32 or bf16, and rows of which 8 take more than a megabyte.
pub fn softmax(element: Element, rows: usize, columns: usize) -> Result<Kernel> {
    let block = [block_rows(element, rows, columns)?, columns];
    let mut k = KernelBuilder::new("softmax", &[Axis::parallel(rows / block[0])]);
    let window = || Window::whole(element, &[rows, columns]).block(&block, [Index::grid(0), 0.into()]);
    let (input, output) = (k.operand(window()), k.result(window()));

    let x = k.load(input)?;
    let x = k.cast(x, Element::F32)?;
    let max = k.reduce(Reduction::Max, x, 1)?;
    let shifted = k.sub(x, max)?;
    let exp = k.exp(shifted)?;
    let sum = k.reduce(Reduction::Sum, exp, 1)?;
    let y = k.div(exp, sum)?;
    let y = k.cast(y, element)?;
    k.store(output, y)?;
    k.build()
}

/// Returns the most rows that divide all rows into blocks of whole tiles.
fn block_rows(element: Element, rows: usize, columns: usize) -> Result<usize> {
    let what = || ArrayType::new(element, [rows, columns]).to_string();
    let fails = |rule| KernelError::Unsupported { kernel: "softmax", what: what(), rule };
    if !element.is_float() || rows * columns == 0 {
        return Err(fails("it takes f32 or bf16 with at least one element"));
    }
    let fits = |block: usize| block * columns.next_multiple_of(128) * 4 <= BLOCK_BYTES;
    let blocks = (1..=rows).rev().filter(|&block| rows.is_multiple_of(block) && (block == rows || block % 8 == 0));
    blocks.into_iter().find(|&block| fits(block)).ok_or_else(|| fails("no block of its rows fits into VMEM"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, interpret};

    #[test]
    fn rows_are_softmaxed() {
        for (element, rows, columns, tolerance) in
            [(Element::F32, 24, 40, 1e-6), (Element::BF16, 16, 128, 4e-3), (Element::F32, 4096, 1024, 1e-6)]
        {
            let kernel = softmax(element, rows, columns).unwrap();
            let values = (0..rows * columns).map(|place| ((place * 37 % 101) as f32 - 50.0) * 2.0);
            let x = Array::floats(element, &[rows, columns], values);
            let y = interpret(&kernel, std::slice::from_ref(&x)).unwrap().remove(0);
            for (x, y) in x.as_floats().chunks(columns).zip(y.as_floats().chunks(columns)) {
                let max = x.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
                let sum: f64 = x.iter().map(|&x| f64::from(x - max).exp()).sum();
                let close = |(&x, &y): (&f32, &f32)| (f64::from(x - max).exp() / sum - f64::from(y)).abs() < tolerance;
                assert!(x.iter().zip(y).all(close), "{element:?} {x:?} {y:?}");
            }
        }
    }

    #[test]
    fn a_kernel_knows_its_cost_and_memory() {
        let kernel = softmax(Element::F32, 4096, 1024).unwrap();
        let (cost, elements) = (kernel.cost(), 4096 * 1024);
        assert_eq!((cost.transcendentals, cost.bytes_accessed), (elements, 2 * 4 * elements));
        assert_eq!(kernel.steps(), 16);
        assert_eq!(kernel.vmem().window_bytes, 4 << 20, "two blocks of each");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (element, rows, columns) in [(Element::I32, 8, 8), (Element::F32, 8, 1 << 20), (Element::F32, 1009, 1024)] {
            let error = softmax(element, rows, columns).unwrap_err();
            assert!(matches!(error, KernelError::Unsupported { kernel: "softmax", .. }), "{error}");
        }
    }
}
