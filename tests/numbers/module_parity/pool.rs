//! Pools and their gradients.

use super::*;

/// The attributes of a pool.
#[derive(Clone, Debug)]
struct Pool {
    dims: [usize; 4],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
    include: bool,
}

impl Pool {
    /// Returns whether ceil mode adds a window that begins after the input's end, as in Burn 0.21.
    fn leaves_input(&self, dilation: [usize; 2]) -> bool {
        (0..2).any(|i| {
            let (size, padding) = (self.dims[i + 2], self.padding[i]);
            let span = (self.kernel[i] - 1) * dilation[i] + 1;
            let steps = (size + 2 * padding - span).div_ceil(self.stride[i]);
            version::CEIL_LEAVES_INPUT && self.ceil && steps * self.stride[i] >= size + padding
        })
    }
}

fn pool() -> impl Strategy<Value = Pool> {
    let dim = |range: std::ops::Range<usize>| prop::array::uniform2(range);
    ((1..3usize, 1..3usize), dim(1..4), dim(1..4), dim(0..2), dim(1..3), dim(0..5), any::<bool>(), any::<bool>())
        .prop_map(|((n, c), kernel, stride, padding, dilation, extra, ceil, include)| {
            let size = |i: usize| (kernel[i] - 1) * dilation[i] + 1 + extra[i];
            // As everywhere in deep learning, a window never lies completely in the padding before the input.
            let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
            Pool { dims: [n, c, size(0), size(1)], kernel, stride, padding, dilation, ceil, include }
        })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn avg_pools(p in pool()) {
        agree!(Flex, feed, {
            let (x, line) = (feed.float(&p.dims), feed.float(&p.dims[..3]));
            let y = version::avg_pool2d::<B>(x, [p.kernel, p.stride, p.padding], p.include, p.ceil);
            let z = version::avg_pool1d::<B>(line, [p.kernel[0], p.stride[0], p.padding[0]], p.include, p.ceil);
            vec![feed.read(y), feed.read(z)]
        });
    }

    #[test]
    fn avg_pool_gradients(p in pool()) {
        // burn-flex counts elements beyond the padding here, unlike in its forward pass, and burn-ndarray does not accept
        // an empty window.
        prop_assume!(!p.leaves_input([1, 1]));
        agree!(Cpu, feed, {
            let (x, line) = (feed.float(&p.dims), feed.float(&p.dims[..3]));
            let sizes = [p.kernel, p.stride, p.padding];
            let y = version::avg_pool2d::<B>(x.clone(), sizes, p.include, p.ceil);
            let grad = feed.float(&y.shape().to_vec());
            let dx = version::avg_pool2d_backward::<B>(x, grad, sizes, p.include, p.ceil);
            let sizes = [p.kernel[0], p.stride[0], p.padding[0]];
            let z = version::avg_pool1d::<B>(line.clone(), sizes, p.include, p.ceil);
            let grad = feed.float(&z.shape().to_vec());
            let dl = version::avg_pool1d_backward::<B>(line, grad, sizes, p.include, p.ceil);
            vec![feed.read(y), feed.read(dx), feed.read(z), feed.read(dl)]
        });
    }

    #[test]
    fn max_pools(p in pool()) {
        agree!(Flex, feed, {
            let x = feed.float(&p.dims);
            let y = B::max_pool2d(x.clone(), p.kernel, p.stride, p.padding, p.dilation, p.ceil);
            let with = version::max_pool2d_with_indices::<B>(x.clone(), p.kernel, p.stride, p.padding, p.dilation, p.ceil);
            vec![feed.read(y), feed.read(with.output), feed.read_int(with.indices)]
        });
    }

    #[test]
    fn max_pool_gradients(p in pool()) {
        // burn-flex does not accept the index -1 of a window without elements, which only ceil mode creates.
        prop_assume!(!p.leaves_input(p.dilation));
        agree!(Flex, feed, {
            let x = feed.float(&p.dims);
            let with = version::max_pool2d_with_indices::<B>(x.clone(), p.kernel, p.stride, p.padding, p.dilation, p.ceil);
            let grad = feed.float(&with.output.shape().to_vec());
            let (k, s, e, d) = (p.kernel, p.stride, p.padding, p.dilation);
            let dx = B::max_pool2d_with_indices_backward(x, k, s, e, d, p.ceil, grad, with.indices).x_grad;
            vec![feed.read(dx)]
        });
    }

    #[test]
    fn max_pools_of_lines(p in pool()) {
        prop_assume!(!p.leaves_input(p.dilation));
        agree!(Flex, feed, {
            let (k, s, e, d) = (p.kernel[0], p.stride[0], p.padding[0], p.dilation[0]);
            let x = feed.float(&p.dims[..3]);
            let y = B::max_pool1d(x.clone(), k, s, e, d, p.ceil);
            let with = version::max_pool1d_with_indices::<B>(x.clone(), k, s, e, d, p.ceil);
            let grad = feed.float(&y.shape().to_vec());
            let dx = B::max_pool1d_with_indices_backward(x, k, s, e, d, p.ceil, grad, with.indices.clone()).x_grad;
            vec![feed.read(y), feed.read(with.output), feed.read_int(with.indices), feed.read(dx)]
        });
    }

    #[test]
    fn adaptive_avg_pools(dims in prop::array::uniform4(1..9usize), out in prop::array::uniform2(1..6usize)) {
        agree!(Cpu, feed, {
            let x = feed.float(&dims);
            let y = B::adaptive_avg_pool2d(x.clone(), out);
            let grad = feed.float(&y.shape().to_vec());
            let dx = B::adaptive_avg_pool2d_backward(x, grad);
            let line = feed.float(&dims[..3]);
            let z = B::adaptive_avg_pool1d(line.clone(), out[0]);
            let grad = feed.float(&z.shape().to_vec());
            let dl = B::adaptive_avg_pool1d_backward(line, grad);
            vec![feed.read(y), feed.read(dx), feed.read(z), feed.read(dl)]
        });
    }
}

/// If the plugin padded, it would select a later one of equal elements along the last dim.
#[test]
fn the_first_of_equal_elements_in_a_padded_window_gets_the_gradient() {
    let compare = || {
        agree!(Flex, feed, {
            let x = feed.from(&[1, 1, 2, 2], vec![-0.125, 3.75, 3.75, -1.25]);
            let (kernel, stride, padding, dilation) = ([2, 2], [1, 1], [0, 1], [1, 1]);
            let with = version::max_pool2d_with_indices::<B>(x.clone(), kernel, stride, padding, dilation, false);
            let grad = feed.from(&[1, 1, 1, 3], vec![1.0, 2.0, 4.0]);
            let back = B::max_pool2d_with_indices_backward;
            vec![feed.read(back(x, kernel, stride, padding, dilation, false, grad, with.indices).x_grad)]
        });
        Ok::<(), TestCaseError>(())
    };
    compare().unwrap();
}
