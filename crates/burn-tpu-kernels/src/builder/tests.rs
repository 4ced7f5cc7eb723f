use super::*;
use crate::op::{Comparison, Reduction};

const F32: Element = Element::F32;

fn builder() -> (KernelBuilder, Ref, Ref) {
    let mut k = KernelBuilder::new("test", &[Axis::parallel(4)]);
    let x = k.operand(Window::whole(F32, &[32, 128]).block(&[8, 128], [Index::grid(0), 0.into()]));
    let y = k.result(Window::whole(F32, &[32, 128]).block(&[8, 128], [Index::grid(0), 0.into()]));
    (k, x, y)
}

/// Asserts that building fails with an error that says this.
fn refuses<T: std::fmt::Debug>(result: Result<T>, expected: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn ops_refuse_what_they_do_not_take() {
    let (mut k, x, y) = builder();
    let v = k.load(x).unwrap();
    let (half, one, truth) = (k.cast(v, Element::BF16).unwrap(), k.int(1), k.iota(&[8, 128], 1).unwrap());
    let truth = k.compare(Comparison::Less, truth, one).unwrap();
    refuses(k.add(half, half), "binary(bf16[8, 128], bf16[8, 128]): Add takes f32 or i32");
    refuses(k.add(v, one), "binary(f32[8, 128], i32[]): the operands differ in element type");
    refuses(k.exp(half), "Exp takes an f32 vector");
    refuses(k.compare(Comparison::Less, truth, truth), "takes f32 or i32");
    refuses(k.select(v, v, v), "takes a bool");
    refuses(k.cast(v, Element::I8), "there is no cast to i8");
    refuses(k.broadcast(v, &[8, 256]), "it has no broadcast to [8, 256]");
    refuses(k.reduce(Reduction::Sum, half, 1), "takes an f32 matrix");
    refuses(k.reduce(Reduction::Sum, v, 2), "dim 2");
    refuses(k.transpose(half), "takes an f32 matrix");
    refuses(k.matmul(v, v), "matmul(f32[8, 128], f32[8, 128]): the contracted sizes differ");
    refuses(k.matmul_transposed(v, half), "two f32, two bf16 or two i8");
    refuses(k.iota(&[8], 0), "dim 0 of a matrix");
    refuses(k.index(&Index::grid(1)), "axis 1 of a grid of 1");
    refuses(k.store(y, half), "store(bf16[8, 128], f32[8, 128]): the value has not the type of the block");
    refuses(k.store(x, v), "only results and scratch memory");
    refuses(k.when(truth, |_| Ok(())), "the condition is not a scalar bool");
    refuses(k.load_scalar(x, &0.into()), "not an i32 array of one dim in the memory of scalars");
    refuses(k.load(Ref(9)), "a block of another kernel");
}

#[test]
fn values_end_with_the_body_that_defines_them() {
    let (mut k, x, y) = builder();
    let (step, zero) = (k.index(&Index::grid(0)).unwrap(), k.int(0));
    let first = k.compare(Comparison::Equal, step, zero).unwrap();
    let mut leaked = None;
    k.when(first, |k| {
        leaked = Some(k.load(x)?);
        Ok(())
    })
    .unwrap();
    refuses(k.store(y, leaked.unwrap()), "the body that defined it has ended");
}

#[test]
fn windows_stay_inside_their_arrays() {
    let build = |block: &[usize], index: Vec<Index>| {
        let mut k = KernelBuilder::new("test", &[Axis::parallel(4)]);
        k.result(Window::whole(F32, &[32, 128]).block(block, index));
        k.build()
    };
    build(&[8, 128], vec![Index::grid(0), 0.into()]).unwrap();
    refuses(
        build(&[16, 128], vec![Index::grid(0), 0.into()]),
        "block 2 of 2 blocks of 16 along a dim of f32[32, 128], at step [2]",
    );
    refuses(build(&[8, 128], vec![Index::grid(0) - 1, 0.into()]), "block -1 of 4 blocks");
    refuses(build(&[7, 128], vec![Index::grid(0), 0.into()]), "blocks [7, 128] do not divide f32[32, 128]");
    refuses(build(&[8], vec![Index::grid(0)]), "blocks [8] at 1 indices");
    refuses(build(&[8, 128], vec![Index::grid(1), 0.into()]), "reads more than the 1 axes");
    refuses(KernelBuilder::new("test", &[]).build(), "a grid of []");
    refuses(KernelBuilder::new("test", &[Axis::parallel(1)]).build(), "no result");
    refuses(KernelBuilder::new("a b", &[Axis::parallel(1)]).build(), "kernel `a b`: a name is letters, digits and `_`");
}
