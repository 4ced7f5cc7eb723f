use super::*;
use crate::{Axis, Binary, Comparison, Element, Index, KernelBuilder, Reduction, Window};

const F32: Element = Element::F32;

/// Returns sums of blocks `[1, 4]` of `[8, 4]` along an axis of these semantics, four at a time.
fn sums(inner: fn(usize) -> Axis) -> Kernel {
    let mut k = KernelBuilder::new("sums", &[Axis::parallel(2), inner(4)]);
    let row = Index::grid(0) * 4 + Index::grid(1);
    let x = k.operand(Window::whole(F32, &[8, 4]).block(&[1, 4], [row, 0.into()]));
    let y = k.result(Window::whole(F32, &[2, 4]).block(&[1, 4], [Index::grid(0), 0.into()]));
    let sum = k.scratch(F32, &[1, 4]);
    let (step, zero, none) = (k.index(&Index::grid(1)).unwrap(), k.int(0), k.float(0.0));
    let first = k.compare(Comparison::Equal, step, zero).unwrap();
    k.when(first, |k| k.store(sum, none)).unwrap();
    let (before, added) = (k.load(sum).unwrap(), k.load(x).unwrap());
    let after = k.add(before, added).unwrap();
    k.store(sum, after).unwrap();
    k.store(y, after).unwrap();
    k.build().unwrap()
}

#[test]
fn scratch_memory_is_kept_along_an_axis_in_order_alone() {
    let x = Array::floats(F32, &[8, 4], (0..32).map(|value| value as f32));
    let y = interpret(&sums(Axis::arbitrary), std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(y.as_floats(), [24.0, 28.0, 32.0, 36.0, 88.0, 92.0, 96.0, 100.0]);
    let error = interpret(&sums(Axis::parallel), &[x]).unwrap_err().to_string();
    assert!(error.contains("two parallel steps see one block of result"), "{error}");
}

#[test]
fn a_block_of_a_result_is_written_once() {
    let mut k = KernelBuilder::new("back", &[Axis::arbitrary(4)]);
    let even = (Index::grid(0) / 2) * 2;
    let y = k.result(Window::whole(F32, &[2, 4]).block(&[1, 4], [Index::grid(0) - even, 0.into()]));
    let zero = k.float(0.0);
    k.store(y, zero).unwrap();
    let error = interpret(&k.build().unwrap(), &[]).unwrap_err().to_string();
    assert!(error.contains("the grid comes back to block [0, 0] of result 0"), "{error}");
}

#[test]
fn operands_have_the_types_of_the_kernel() {
    let error = interpret(&sums(Axis::arbitrary), &[Array::ints(Element::I32, &[8, 4], [])]).unwrap_err().to_string();
    assert_eq!(error, "interpreting `sums`: given [i32[8, 4]], it takes [f32[8, 4]]");
}

/// Runs a body on one operand and returns its result.
fn run(x: Array, result: (Element, &[usize]), body: impl Fn(&mut KernelBuilder, Value) -> Result<Value>) -> Array {
    let mut k = KernelBuilder::new("test", &[Axis::parallel(1)]);
    let input = k.operand(Window::whole(x.ty().element, &x.ty().dims));
    let output = k.result(Window::whole(result.0, result.1));
    let x_value = k.load(input).unwrap();
    let y = body(&mut k, x_value).unwrap();
    k.store(output, y).unwrap();
    interpret(&k.build().unwrap(), &[x]).unwrap().remove(0)
}

#[test]
fn ops_compute_what_they_say() {
    let x = || Array::floats(F32, &[2, 3], [1.0, 2.0, 3.0, -4.0, 5.0, -6.0]);
    let out = |dims: &'static [usize], body: fn(&mut KernelBuilder, Value) -> Result<Value>| {
        run(x(), (F32, dims), body).as_floats().to_vec()
    };
    assert_eq!(out(&[3, 2], |k, x| k.transpose(x)), [1.0, -4.0, 2.0, 5.0, 3.0, -6.0]);
    assert_eq!(out(&[2, 1], |k, x| k.reduce(Reduction::Sum, x, 1)), [6.0, -5.0]);
    assert_eq!(out(&[1, 3], |k, x| k.reduce(Reduction::Max, x, 0)), [1.0, 5.0, 3.0]);
    assert_eq!(out(&[2, 2], |k, x| k.matmul_transposed(x, x)), [14.0, -12.0, -12.0, 77.0]);
    assert_eq!(out(&[3, 3], |k, x| k.transposed_matmul(x, x))[..3], [17.0, -18.0, 27.0]);
    let centred = |k: &mut KernelBuilder, x| {
        let max = k.reduce(Reduction::Max, x, 1)?;
        k.sub(x, max)
    };
    assert_eq!(out(&[2, 3], centred), [-2.0, -1.0, 0.0, -9.0, 0.0, -11.0]);
    let upper = |k: &mut KernelBuilder, x| {
        let (row, column, zero) = (k.iota(&[2, 3], 0)?, k.iota(&[2, 3], 1)?, k.float(0.0));
        let is_upper = k.compare(Comparison::LessEqual, row, column)?;
        k.select(is_upper, x, zero)
    };
    assert_eq!(out(&[2, 3], upper), [1.0, 2.0, 3.0, 0.0, 5.0, -6.0]);
    assert_eq!(out(&[2, 3], |k, x| k.binary(Binary::Min, x, x)), x().as_floats());
}

#[test]
fn casts_round_to_bf16_and_small_integers_multiply_exactly() {
    let rounded =
        run(Array::floats(F32, &[1, 2], [1.001, 3.15]), (Element::BF16, &[1, 2]), |k, x| k.cast(x, Element::BF16));
    assert_eq!(rounded.as_floats(), [1.0, 3.15625]);
    let x = Array::ints(Element::I8, &[2, 2], [127, -128, 3, 4]);
    let y = run(x, (Element::I32, &[2, 2]), |k, x| k.matmul(x, x));
    assert_eq!(y.as_ints(), [15745, -16768, 393, -368]);
}
