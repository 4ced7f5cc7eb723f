use crate::{Axis, Comparison, Element, Index, KernelBuilder, Window};

/// A kernel with a window that moves, a condition and scratch memory.
const EXPECTED: &str = include_str!("expected.mlir");

#[test]
fn the_text_of_a_kernel_is_stable() {
    let mut k = KernelBuilder::new("test", &[Axis::arbitrary(4)]);
    let block = |dims: &[usize]| Window::whole(Element::F32, dims);
    let x = k.operand(block(&[2, 8, 128]).block(&[1, 8, 128], [Index::grid(0) / 2, 0.into(), 0.into()]));
    let y = k.result(block(&[32, 128]).block(&[8, 128], [Index::grid(0), 0.into()]));
    let scratch = k.scratch(Element::F32, &[8, 128]);
    let (step, zero) = (k.index(&Index::grid(0)).unwrap(), k.int(0));
    let first = k.compare(Comparison::Equal, step, zero).unwrap();
    k.when(first, |k| {
        let half = k.float(0.5);
        k.store(scratch, half)
    })
    .unwrap();
    let loaded = k.load(x).unwrap();
    k.store(y, loaded).unwrap();
    assert_eq!(k.build().unwrap().text(), EXPECTED);
}

#[test]
fn numbers_are_read_back_exactly() {
    let printed = |value| super::body::literal(crate::op::Number::Float(value));
    assert_eq!([0.0, -0.125, 0.1, f32::INFINITY].map(printed), ["0.0", "-0.125", "0.1", "0x7F800000"]);
    assert_eq!([-2.4e38, 1e-9].map(printed), ["0xFF348E52", "0x3089705F"]);
}
