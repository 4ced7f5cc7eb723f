//! Convolutions, including transposed and deformable ones, and their gradients.

use super::*;

/// The attributes of a convolution of `N` spatial dims.
#[derive(Clone, Debug)]
struct Conv<const N: usize> {
    batch: usize,
    groups: usize,
    in_per_group: usize,
    out_per_group: usize,
    size: [usize; N],
    kernel: [usize; N],
    stride: [usize; N],
    padding: [usize; N],
    dilation: [usize; N],
    padding_out: [usize; N],
    bias: bool,
}

impl<const N: usize> Conv<N> {
    fn options(&self) -> ConvOptions<N> {
        ConvOptions::new(self.stride, self.padding, self.dilation, self.groups)
    }

    fn transpose_options(&self) -> ConvTransposeOptions<N> {
        ConvTransposeOptions::new(self.stride, self.padding, self.padding_out, self.dilation, self.groups)
    }

    fn dims(&self, batch: usize, features: usize, spatial: [usize; N]) -> Vec<usize> {
        [batch, features].into_iter().chain(spatial).collect()
    }

    fn input(&self) -> Vec<usize> {
        self.dims(self.batch, self.groups * self.in_per_group, self.size)
    }

    fn kernel(&self) -> Vec<usize> {
        self.dims(self.groups * self.out_per_group, self.in_per_group, self.kernel)
    }

    /// Returns the dims of the kernel of the transposed convolution from `in` to `out` features.
    fn transpose_kernel(&self) -> Vec<usize> {
        self.dims(self.groups * self.in_per_group, self.out_per_group, self.kernel)
    }

    fn features(&self) -> [usize; 1] {
        [self.groups * self.out_per_group]
    }

    fn span(&self, i: usize) -> usize {
        (self.kernel[i] - 1) * self.dilation[i] + 1
    }

    /// Returns whether the windows reach the end of the padded input: otherwise Burn's own default is wrong for grouped 1d
    /// kernel gradients.
    fn reaches_end(&self) -> bool {
        (0..N).all(|i| (self.size[i] + 2 * self.padding[i] - self.span(i)).is_multiple_of(self.stride[i]))
    }

    fn is_empty_transposed(&self) -> bool {
        let full = |i: usize| (self.size[i] - 1) * self.stride[i] + self.span(i) + self.padding_out[i];
        (0..N).any(|i| full(i) <= 2 * self.padding[i])
    }
}

fn conv<const N: usize>() -> impl Strategy<Value = Conv<N>> {
    let dim = |range: std::ops::Range<usize>| prop::array::uniform::<_, N>(range);
    let sizes = (dim(1..4), dim(1..4), dim(0..3), dim(1..3), dim(0..4), dim(0..3));
    ((1..3usize, 1..4usize, 1..3usize, 1..3usize), sizes, any::<bool>()).prop_map(
        |((batch, groups, in_per_group, out_per_group), (kernel, stride, padding, dilation, extra, out), bias)| Conv {
            batch,
            groups,
            in_per_group,
            out_per_group,
            size: std::array::from_fn(|i| (kernel[i] - 1) * dilation[i] + 1 + extra[i]),
            kernel,
            stride,
            padding,
            dilation,
            padding_out: std::array::from_fn(|i| out[i] % stride[i]),
            bias,
        },
    )
}

macro_rules! conv_tests {
    ($name:ident, $transposed:ident, $n:literal, $forward:ident, $x:ident, $weight:ident, $bias:ident,
     $t_forward:ident, $t_x:ident, $t_weight:ident, $t_bias:ident) => {
        proptest! {
            #![proptest_config(cases())]
            #[test]
            fn $name(c in conv::<$n>()) {
                prop_assume!($n != 1 || c.groups == 1 || c.reaches_end());
                agree!(Cpu, feed, {
                    let (x, kernel) = (feed.float(&c.input()), feed.float(&c.kernel()));
                    let bias = feed.maybe(c.bias, &c.features());
                    let y = B::$forward(x.clone(), kernel.clone(), bias, c.options());
                    let (grad, bias) = (feed.float(&y.shape().to_vec()), feed.float(&c.features()));
                    let dx = B::$x(x.clone(), kernel.clone(), grad.clone(), c.options());
                    let dk = B::$weight(x.clone(), kernel, grad.clone(), c.options());
                    let db = B::$bias(x, bias, grad);
                    vec![feed.read(y), feed.read(dx), feed.read(dk), feed.read(db)]
                });
            }

            #[test]
            fn $transposed(c in conv::<$n>()) {
                prop_assume!(!c.is_empty_transposed());
                agree!(Cpu, feed, {
                    let (x, kernel) = (feed.float(&c.input()), feed.float(&c.transpose_kernel()));
                    let bias = feed.maybe(c.bias, &c.features());
                    let y = B::$t_forward(x.clone(), kernel.clone(), bias, c.transpose_options());
                    let (grad, bias) = (feed.float(&y.shape().to_vec()), feed.float(&c.features()));
                    let dx = B::$t_x(kernel.clone(), grad.clone(), c.transpose_options());
                    let dk = B::$t_weight(x.clone(), kernel, grad.clone(), c.transpose_options());
                    let db = B::$t_bias(x, bias, grad);
                    vec![feed.read(y), feed.read(dx), feed.read(dk), feed.read(db)]
                });
            }
        }
    };
}

conv_tests!(
    conv1d,
    conv_transpose1d,
    1,
    conv1d,
    conv1d_x_backward,
    conv1d_weight_backward,
    conv1d_bias_backward,
    conv_transpose1d,
    conv_transpose1d_x_backward,
    conv_transpose1d_weight_backward,
    conv_transpose1d_bias_backward
);
conv_tests!(
    conv2d,
    conv_transpose2d,
    2,
    conv2d,
    conv2d_x_backward,
    conv2d_weight_backward,
    conv2d_bias_backward,
    conv_transpose2d,
    conv_transpose2d_x_backward,
    conv_transpose2d_weight_backward,
    conv_transpose2d_bias_backward
);
conv_tests!(
    conv3d,
    conv_transpose3d,
    3,
    conv3d,
    conv3d_x_backward,
    conv3d_weight_backward,
    conv3d_bias_backward,
    conv_transpose3d,
    conv_transpose3d_x_backward,
    conv_transpose3d_weight_backward,
    conv_transpose3d_bias_backward
);

/// The attributes of a deformable convolution.
#[derive(Clone, Debug)]
struct Deform {
    conv: Conv<2>,
    offset_groups: usize,
    mask: bool,
}

impl Deform {
    fn options(&self) -> DeformConvOptions<2> {
        let c = &self.conv;
        DeformConvOptions::new(c.stride, c.padding, c.dilation, c.groups, self.offset_groups)
    }

    fn out(&self) -> [usize; 2] {
        let c = &self.conv;
        std::array::from_fn(|i| (c.size[i] + 2 * c.padding[i] - c.span(i)) / c.stride[i] + 1)
    }

    /// Returns the dims of a tensor with `per_element` values for each kernel element of each output position.
    fn per_position(&self, per_element: usize) -> Vec<usize> {
        let [height, width] = self.out();
        let elements = self.conv.kernel[0] * self.conv.kernel[1];
        vec![self.conv.batch, self.offset_groups * elements * per_element, height, width]
    }
}

fn deform() -> impl Strategy<Value = Deform> {
    (conv::<2>(), 1..3usize, any::<bool>()).prop_map(|(mut conv, offset_groups, mask)| {
        conv.in_per_group *= offset_groups;
        Deform { conv, offset_groups, mask }
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn deformable_convolutions(d in deform()) {
        agree!(Flex, feed, ROUNDED_OPERAND, {
            let (x, kernel) = (feed.float(&d.conv.input()), feed.float(&d.conv.kernel()));
            let offset = feed.offsets(&d.per_position(2));
            let mask = feed.maybe(d.mask, &d.per_position(1));
            let bias = feed.maybe(d.conv.bias, &d.conv.features());
            let (all, options) = ((x, offset, kernel, mask, bias), d.options());
            let (x, offset, kernel, mask, bias) = all.clone();
            let y = B::deform_conv2d(x, offset, kernel, mask, bias, options.clone());
            let grad = feed.float(&y.shape().to_vec());
            let (x, offset, kernel, mask, bias) = all;
            let grads = B::deform_conv2d_backward(x, offset, kernel, mask, bias, grad, options);
            let mut values = vec![feed.read(y), feed.read(grads.x_grad), feed.read(grads.offset_grad)];
            values.push(feed.read(grads.weight_grad));
            values.extend(grads.mask_grad.map(|grad| feed.read(grad)));
            values.extend(grads.bias_grad.map(|grad| feed.read(grad)));
            values
        });
    }
}

/// XLA's CPU compiler ignores a window's reversal here, so the kernel must be reversed by a separate op.
#[test]
fn a_transposed_kernel_of_two_elements_that_covers_its_input() {
    let conv = Conv::<1> {
        batch: 1,
        groups: 1,
        in_per_group: 1,
        out_per_group: 1,
        size: [2],
        kernel: [2],
        stride: [1],
        padding: [1],
        dilation: [1],
        padding_out: [0],
        bias: false,
    };
    let compare = || {
        agree!(Cpu, feed, {
            let (x, kernel) = (feed.float(&conv.input()), feed.float(&conv.transpose_kernel()));
            vec![feed.read(B::conv_transpose1d(x, kernel, None, conv.transpose_options()))]
        });
        Ok::<(), TestCaseError>(())
    };
    compare().unwrap();
}

#[test]
fn an_empty_batch_of_images_gives_an_empty_result() {
    let compare = || {
        agree!(Flex, feed, ROUNDED_OPERAND, {
            let (x, offset, kernel) =
                (feed.float(&[0, 1, 4, 4]), feed.float(&[0, 18, 2, 2]), feed.float(&[2, 1, 3, 3]));
            let options = DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1);
            let y = B::deform_conv2d(x.clone(), offset.clone(), kernel.clone(), None, None, options.clone());
            let grads = B::deform_conv2d_backward(x, offset, kernel, None, None, y.clone(), options);
            let (images, places) = (feed.float(&[0, 1, 2, 2]), feed.float(&[0, 3, 2, 2]));
            let sampled = B::float_grid_sample_2d(images, places, GridSampleOptions::default());
            let all = [y, grads.x_grad, grads.offset_grad, grads.weight_grad, sampled];
            all.map(|tensor| feed.read(tensor)).to_vec()
        });
        Ok::<(), TestCaseError>(())
    };
    compare().unwrap();
}
