//! Interpolation, linear layers, norms, attention, unfolding, embeddings.

use super::*;

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn interpolation(
        size in prop::array::uniform2(1..8usize),
        out in prop::array::uniform2(1..12usize),
        mode in 0..4usize,
        align in any::<bool>(),
    ) {
        let mode = || match mode {
            0 => InterpolateMode::Nearest,
            1 => InterpolateMode::Bilinear,
            2 => InterpolateMode::Bicubic,
            _ => InterpolateMode::Lanczos3,
        };
        agree!(Flex, feed, {
            let options = InterpolateOptions::new(mode()).with_align_corners(align);
            let x = feed.float(&[2, 2, size[0], size[1]]);
            vec![feed.read(B::interpolate(x, out, options))]
        });
    }

    #[test]
    fn interpolation_gradients(
        size in prop::array::uniform2(1..8usize),
        out in prop::array::uniform2(1..12usize),
        mode in 0..3usize,
        align in any::<bool>(),
    ) {
        let mode = || match mode {
            0 => InterpolateMode::Nearest,
            1 => InterpolateMode::Bilinear,
            _ => InterpolateMode::Bicubic,
        };
        agree!(Flex, feed, {
            let options = InterpolateOptions::new(mode()).with_align_corners(align);
            let x = feed.float(&[2, 2, size[0], size[1]]);
            let grad = feed.float(&[2, 2, out[0], out[1]]);
            vec![feed.read(B::interpolate_backward(x, grad, out, options))]
        });
    }

    #[test]
    fn linear_layers(
        lead in prop::collection::vec(1..4usize, 1..4),
        d in prop::array::uniform2(1..9usize),
        with in any::<bool>(),
    ) {
        agree!(Cpu, feed, {
            let of = |last: usize| lead.iter().copied().chain([last]).collect::<Vec<_>>();
            let (x, weight) = (feed.float(&of(d[0])), feed.float(&d));
            let bias = feed.maybe(with, &[d[1]]);
            let y = B::linear(x.clone(), weight.clone(), bias);
            let grad = feed.float(&of(d[1]));
            let dx = B::linear_x_backward(weight, grad.clone());
            let dw = B::linear_weight_backward(x, grad.clone());
            let db = B::linear_bias_backward(grad);
            vec![feed.read(y), feed.read(dx), feed.read(dw), feed.read(db)]
        });
    }

    #[test]
    fn layer_norms(dims in prop::collection::vec(1..9usize, 1..4), with in any::<bool>(), epsilon in 1e-5..1e-2f64) {
        agree!(Cpu, feed, {
            let last = dims[dims.len() - 1];
            let (x, gamma) = (feed.float(&dims), feed.float(&[last]));
            let beta = feed.maybe(with, &[last]);
            vec![feed.read(B::layer_norm(x, gamma, beta, epsilon))]
        });
    }

    #[test]
    fn attentions(
        sizes in prop::array::uniform4(1..4usize),
        lengths in prop::array::uniform2(1..7usize),
        with in prop::array::uniform3(any::<bool>()),
        scale in prop::option::of(0.1..2.0f64),
        softcap in prop::option::of(0.5..20.0f64),
        shared in any::<bool>(),
    ) {
        let [batch, heads, d, d_v] = sizes;
        let [queries, keys] = lengths;
        agree!(Cpu, feed, ROUNDED_OPERAND, {
            let query = feed.float(&[batch, heads, queries, d]);
            let (key, value) = (feed.float(&[batch, heads, keys, d]), feed.float(&[batch, heads, keys, d_v]));
            let mask = with[0].then(|| feed.bool(&[batch, heads, queries, keys]));
            let lead = if shared { [1, 1] } else { [batch, heads] };
            let bias = feed.maybe(with[1], &[lead[0], lead[1], queries, keys]);
            let options = version::attention_options(scale, softcap, with[2]);
            vec![feed.read(B::attention(query, key, value, mask, bias, options))]
        });
    }

    #[test]
    fn unfolding(
        lead in prop::array::uniform2(1..4usize),
        kernel in prop::array::uniform2(1..4usize),
        stride in prop::array::uniform2(1..4usize),
        padding in prop::array::uniform2(0..3usize),
        dilation in prop::array::uniform2(1..3usize),
        extra in prop::array::uniform2(0..4usize),
        tiles in any::<bool>(),
    ) {
        let (stride, padding, dilation) = if tiles { (kernel, [0, 0], [1, 1]) } else { (stride, padding, dilation) };
        let size = |i: usize| (kernel[i] - 1) * dilation[i] + 1 + if tiles { extra[i] * kernel[i] } else { extra[i] };
        agree!(Cpu, feed, {
            let x = feed.float(&[lead[0], lead[1], size(0), size(1)]);
            vec![feed.read(B::unfold4d(x, kernel, UnfoldOptions::new(stride, padding, dilation)))]
        });
    }

    #[test]
    fn embeddings(dims in prop::array::uniform4(1..7usize)) {
        let [rows, width, batch, length] = dims;
        agree!(Cpu, feed, {
            let (weights, indices) = (feed.float(&[rows, width]), feed.int(&[batch, length], rows as u64));
            let y = B::embedding(weights.clone(), indices.clone());
            let grad = feed.float(&[batch, length, width]);
            let dw = B::embedding_backward(weights, grad, indices);
            vec![feed.read(y), feed.read(dw)]
        });
    }
}

/// Cases that random attributes never reach: a row without any key, and an infinity beside other values.
#[test]
fn masked_rows_are_zero_and_infinities_stay_where_they_are() {
    for (device, dtype, _) in runs(ONE_ROUNDING) {
        type B = Ours;
        let mut feed = Feed::<B>::new(device, dtype);
        let q = feed.float(&[1, 1, 2, 3]);
        let mask = B::bool_from_data(TensorData::new(vec![true, true, false, true], [1, 1, 2, 2]), &device);
        let value = feed.from(&[1, 1, 2, 1], vec![1.0, 2.0]);
        let y = B::attention(q.clone(), q, value, Some(mask), None, AttentionModuleOptions::default());
        assert_eq!(feed.read(y).1, [0.0, 1.0]);

        let x = feed.from(&[1, 1, 1, 3], vec![1.0, f32::INFINITY, -2.0]);
        let infinite = [1.0, 1.0, f32::INFINITY, -2.0];
        let y = B::interpolate(x, [1, 4], InterpolateOptions::new(InterpolateMode::Nearest));
        assert_eq!(feed.read(y).1, infinite);
    }
}
