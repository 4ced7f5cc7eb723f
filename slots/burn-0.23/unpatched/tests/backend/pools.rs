//! Pools in three dims and averages of windows with gaps, and their gradients.

use crate::rows::*;
use crate::version::Ours;
use burn_backend::ops::*;
use burn_backend::{FloatDType, IntDType, TensorMetadata};
use burn_flex::Flex;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// The attributes of a pool.
#[derive(Clone, Debug)]
struct Pool {
    dims: [usize; 5],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    ceil: bool,
    include: bool,
}

fn pool() -> impl Strategy<Value = Pool> {
    let dim = |range: std::ops::Range<usize>| prop::array::uniform3(range);
    ((1..3usize, 1..3usize), dim(1..4), dim(1..4), dim(0..2), dim(1..3), dim(0..4), any::<bool>(), any::<bool>())
        .prop_map(|((n, c), kernel, stride, padding, dilation, extra, ceil, include)| {
            let size = |i: usize| (kernel[i] - 1) * dilation[i] + 1 + extra[i];
            let padding = std::array::from_fn(|i| padding[i].min(kernel[i] / 2));
            Pool { dims: [n, c, size(0), size(1), size(2)], kernel, stride, padding, dilation, ceil, include }
        })
}

proptest! {
    #![proptest_config(crate::version::cases())]

    #[test]
    fn averages(p in pool()) {
        agree!(Flex, feed, {
            let volume = feed.float(&p.dims);
            let (k, s, e, d) = (p.kernel, p.stride, p.padding, p.dilation);
            let y = B::avg_pool3d(volume.clone(), k, s, e, d, p.include, p.ceil);
            let grad = feed.float(&y.shape().to_vec());
            let dx = B::avg_pool3d_backward(volume, grad, k, s, e, d, p.include, p.ceil);
            vec![feed.read(y), feed.read(dx)]
        });
    }

    #[test]
    fn averages_of_images_and_lines(p in pool()) {
        agree!(Flex, feed, {
            let (image, line) = (feed.float(&p.dims[..4]), feed.float(&p.dims[..3]));
            let [k, s, e, d] = [p.kernel, p.stride, p.padding, p.dilation].map(|[a, b, _]| [a, b]);
            let y = B::avg_pool2d(image.clone(), k, s, e, d, p.include, p.ceil);
            let grad = feed.float(&y.shape().to_vec());
            let dx = B::avg_pool2d_backward(image, grad, k, s, e, d, p.include, p.ceil);
            let z = B::avg_pool1d(line.clone(), k[0], s[0], e[0], d[0], p.include, p.ceil);
            let grad = feed.float(&z.shape().to_vec());
            let dl = B::avg_pool1d_backward(line, grad, k[0], s[0], e[0], d[0], p.include, p.ceil);
            vec![feed.read(y), feed.read(dx), feed.read(z), feed.read(dl)]
        });
    }

    #[test]
    fn maxima(p in pool()) {
        agree!(Flex, feed, {
            let x = feed.float(&p.dims);
            let (k, s, e, d) = (p.kernel, p.stride, p.padding, p.dilation);
            let y = B::max_pool3d(x.clone(), k, s, e, d, p.ceil);
            let with = B::max_pool3d_with_indices(x.clone(), k, s, e, d, p.ceil, IntDType::I32);
            let grad = feed.float(&y.shape().to_vec());
            let indices = with.indices.clone();
            let dx = B::max_pool3d_with_indices_backward(x, k, s, e, d, p.ceil, grad, indices).x_grad;
            vec![feed.read(y), feed.read(with.output), feed.read_int(with.indices), feed.read(dx)]
        });
    }
}

/// Ceil mode's one window that is larger than its input, and a window that would begin in the padding after it.
#[test]
fn windows_at_the_end() {
    let compare = || {
        agree!(Flex, feed, {
            let x = feed.float(&[1, 2, 5]);
            let larger = B::max_pool1d(x.clone(), 6, 2, 0, 1, true);
            let inside = B::max_pool1d(x.clone(), 2, 2, 1, 1, true);
            let averages = B::avg_pool1d(x, 2, 2, 1, 1, true, true);
            vec![feed.read(larger), feed.read(inside), feed.read(averages)]
        });
        Ok::<(), TestCaseError>(())
    };
    compare().unwrap();
}
