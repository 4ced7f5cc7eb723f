//! Attention with fewer heads of keys than of queries and with either alignment, and its gradient of a logsumexp.

use crate::rows::*;
use crate::version::{Ours, TpuDevice};
use burn_backend::FloatDType;
use burn_backend::ops::*;
use burn_flex::Flex;
use proptest::prelude::*;

/// The tolerance where a product's operand was computed by the op itself: matrix units take 16 bits.
const ROUNDED_OPERAND: f32 = 2e-2;

fn options() -> impl Strategy<Value = AttentionModuleOptions> {
    let alignment = prop_oneof![Just(CausalAlignment::BottomRight), Just(CausalAlignment::TopLeft)];
    (prop::option::of(0.1..2.0f64), prop::option::of(0.5..20.0f64), any::<bool>(), alignment).prop_map(
        |(scale, softcap, is_causal, causal_alignment)| AttentionModuleOptions {
            scale,
            softcap,
            is_causal,
            causal_alignment,
        },
    )
}

proptest! {
    #![proptest_config(crate::version::cases())]

    #[test]
    fn grouped(
        sizes in prop::array::uniform5(1..4usize),
        lengths in prop::array::uniform2(1..7usize),
        with in prop::array::uniform2(any::<bool>()),
        options in options(),
    ) {
        let ([batch, shared, groups, d, d_v], [queries, keys]) = (sizes, lengths);
        let heads = shared * groups;
        agree!(Flex, feed, ROUNDED_OPERAND, {
            let query = feed.float(&[batch, heads, queries, d]);
            let (key, value) = (feed.float(&[batch, shared, keys, d]), feed.float(&[batch, shared, keys, d_v]));
            let mask = with[0].then(|| feed.bool(&[batch, heads, queries, keys]));
            let bias = feed.maybe(with[1], &[batch, heads, queries, keys]);
            vec![feed.read(B::attention(query, key, value, mask, bias, options))]
        });
    }

    /// burn-flex has Burn's composed defaults of these two methods.
    #[test]
    fn with_logsumexp_and_gradients(
        sizes in prop::array::uniform5(1..4usize),
        lengths in prop::array::uniform2(1..7usize),
        options in options(),
    ) {
        let ([batch, shared, groups, d, d_v], [queries, keys]) = (sizes, lengths);
        let heads = shared * groups;
        agree!(Flex, feed, ROUNDED_OPERAND, {
            let query = feed.float(&[batch, heads, queries, d]);
            let (key, value) = (feed.float(&[batch, shared, keys, d]), feed.float(&[batch, shared, keys, d_v]));
            let grad = feed.float(&[batch, heads, queries, d_v]);
            let (y, logsumexp) = B::attention_with_logsumexp(query.clone(), key.clone(), value.clone(), options);
            let grads = B::attention_backward(query, key, value, y.clone(), logsumexp.clone(), grad, options);
            // A query without a key has the lowest f32, which would hide the others in the tolerance.
            let logsumexp = B::float_clamp_min(logsumexp, (-1e3).into());
            let grads = [grads.query_grad, grads.key_grad, grads.value_grad].map(|grad| feed.read(grad));
            [feed.read(y), feed.read(logsumexp)].into_iter().chain(grads).collect::<Vec<_>>()
        });
    }
}

#[test]
fn a_logsumexp_is_f32_and_backward_is_native() {
    assert!(Ours::has_attention_backward());
    let mut feed = Feed::<Ours>::new(TpuDevice::ndarray(), FloatDType::F64);
    let q = feed.float(&[1, 1, 2, 3]);
    let (y, logsumexp) = Ours::attention_with_logsumexp(q.clone(), q.clone(), q, AttentionModuleOptions::default());
    assert_eq!((y.dtype(), logsumexp.dtype()), (burn_backend::DType::F64, burn_backend::DType::F32));
}

#[test]
#[should_panic(expected = "3 query heads are no multiple of 2 heads of keys or values")]
fn heads_that_do_not_divide_are_refused() {
    let mut feed = Feed::<Ours>::new(TpuDevice::ndarray(), FloatDType::F32);
    let (query, key) = (feed.float(&[1, 3, 2, 4]), feed.float(&[1, 2, 2, 4]));
    Ours::attention(query, key.clone(), key, None, None, AttentionModuleOptions::default());
}
