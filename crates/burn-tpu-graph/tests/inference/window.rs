//! Ops that combine or sort the elements of a dim or of a window.

use super::{accepts, refuses};
use burn_tpu_graph::op::{Combine, WindowAttrs};
use burn_tpu_graph::{Builder, DType, Dims, Op};

fn reduce(combine: Combine, dims: &[usize]) -> Op {
    Op::Reduce { combine, dims: Dims::from_slice(dims) }
}

#[test]
fn reductions_drop_their_dims() {
    accepts(reduce(Combine::Sum, &[0, 2]), "f32[2,3,4]", "f32[3]");
    accepts(reduce(Combine::Max, &[0]), "i8[0,1]", "i8[1]");
    accepts(reduce(Combine::Or, &[1]), "i1[2,0]", "i1[2]");
    accepts(reduce(Combine::And, &[]), "ui8[]", "ui8[]");
    refuses(reduce(Combine::Sum, &[1, 1]), "f32[2,3]", "named twice");
    refuses(reduce(Combine::Sum, &[0]), "f32[]", "out of range");
    refuses(reduce(Combine::Sum, &[0]), "i1[2]", "Sum takes Numeric");
    refuses(reduce(Combine::And, &[0]), "f32[2]", "And takes Bits");
    refuses(reduce(Combine::Sum, &[0]), "complex<f32>[2]", "Sum takes Numeric");
}

#[test]
fn arg_reductions_return_an_index_for_each_value() {
    let arg = |dim| Op::ArgReduce { max: true, dim };
    accepts(arg(1), "bf16[2,3] i32[2,3]", "bf16[2] i32[2]");
    accepts(arg(0), "i1[1] ui8[1]", "i1[] ui8[]");
    accepts(arg(1), "f32[0,3] i64[0,3]", "f32[0] i64[0]");
    refuses(arg(1), "f32[2,0] i32[2,0]", "is empty");
    refuses(arg(2), "f32[2,3] i32[2,3]", "out of range");
    refuses(arg(1), "f32[2,3] i32[3,2]", "same dims");
    refuses(arg(1), "f32[2,3] f32[2,3]", "integer indices");
}

fn window(dims: &[usize]) -> WindowAttrs {
    let rank = dims.len();
    WindowAttrs {
        dims: Dims::from_slice(dims),
        strides: Dims::from_elem(1, rank),
        base_dilation: Dims::from_elem(1, rank),
        window_dilation: Dims::from_elem(1, rank),
        padding: std::iter::repeat_n((0, 0), rank).collect(),
    }
}

fn pool(dims: &[usize], change: impl FnOnce(&mut WindowAttrs)) -> Op {
    let mut attrs = window(dims);
    change(&mut attrs);
    Op::ReduceWindow { combine: Combine::Max, window: Box::new(attrs) }
}

#[test]
fn windows_have_positions_along_every_dim() {
    accepts(pool(&[1, 2], |_| ()), "f32[3,5]", "f32[3,4]");
    accepts(pool(&[1, 2], |w| w.strides[1] = 2), "f32[3,5]", "f32[3,2]");
    accepts(pool(&[5], |w| w.padding[0] = (4, 0)), "f32[5]", "f32[5]");
    accepts(pool(&[3], |w| w.window_dilation[0] = 2), "f32[6]", "f32[2]");
    accepts(pool(&[3], |w| w.base_dilation[0] = 2), "f32[3]", "f32[3]");
    accepts(pool(&[3], |_| ()), "f32[2]", "f32[0]");
    accepts(pool(&[1], |_| ()), "f32[0]", "f32[0]");
    refuses(pool(&[0], |_| ()), "f32[2]", "at least 1");
    refuses(pool(&[1], |w| w.strides[0] = 0), "f32[2]", "at least 1");
    refuses(pool(&[1, 1], |_| ()), "f32[2]", "window dims has 2 entries");
    refuses(pool(&[1], |w| w.padding.clear()), "f32[2]", "padding has 0 entries");
    refuses(pool(&[1], |_| ()), "i1[2]", "Max takes Numeric");
}

#[test]
fn select_and_scatter_takes_one_source_element_per_window() {
    let scatter = |change: fn(&mut WindowAttrs)| {
        let mut attrs = window(&[1, 2]);
        attrs.strides[1] = 2;
        change(&mut attrs);
        Op::SelectAndScatter { window: Box::new(attrs) }
    };
    accepts(scatter(|_| ()), "f32[3,4] f32[3,2]", "f32[3,4]");
    accepts(scatter(|w| w.padding[1] = (1, 1)), "f32[3,4] f32[3,3]", "f32[3,4]");
    refuses(scatter(|_| ()), "f32[3,4] f32[3,3]", "source must be f32[3,2]");
    refuses(scatter(|_| ()), "f32[3,4] bf16[3,2]", "source must be");
    refuses(scatter(|w| w.window_dilation[1] = 2), "f32[3,4] f32[3,1]", "dilation is not supported");
    refuses(scatter(|_| ()), "i1[3,4] i1[3,2]", "Sum takes Numeric");
}

#[test]
fn sorts_keep_every_operand() {
    let sort = |dim| Op::Sort { dim, descending: false };
    accepts(sort(1), "bf16[2,3] i32[2,3] i1[2,3]", "bf16[2,3] i32[2,3] i1[2,3]");
    accepts(sort(0), "f32[0]", "f32[0]");
    refuses(sort(0), "f32[]", "out of range");
    refuses(sort(0), "f32[2] i32[3]", "same dims");
    refuses(sort(0), "complex<f32>[2]", "same dims");
}

#[test]
fn top_k_shrinks_the_last_dim() {
    let top = |k| Op::TopK { k };
    accepts(top(2), "bf16[4,3]", "bf16[4,2] i32[4,2]");
    accepts(top(0), "i32[0]", "i32[0] i32[0]");
    refuses(top(4), "f32[4,3]", "3 elements along the last dim: not 4");
    refuses(top(1), "f32[]", "no dim to search");
    refuses(top(1), "i1[2]", "that have an order");
}

#[test]
fn get_result_needs_an_existing_result() {
    let take = |index| Op::GetResult { index };
    accepts(take(0), "f32[2]", "f32[2]");
    refuses(take(1), "f32[2]", "result 1 does not exist");
    let mut graph = burn_tpu_graph::Graph::new();
    let state = super::parameter(&mut graph, 0, &super::ty("ui64[2]"));
    let (_, bits) = graph.rng_bit_generator(state, DType::U32, &[3]).unwrap();
    assert_eq!(graph.ty(bits).to_string(), "ui32[3]");
}
