//! Greedy generation: the sequence grows by one token per step, and each token is read.

use crate::decoder::{Decoder, POSITIONS};
use burn::prelude::*;

const PROMPT: [i32; 4] = [5, 17, 42, 99];

/// Generates tokens and returns them. With `cached`, Burn's cache of keys and values is used.
pub fn run<B: Backend>(tokens: usize, cached: bool, device: &B::Device) -> Vec<f64> {
    assert!(PROMPT.len() + tokens <= POSITIONS, "the model knows {POSITIONS} positions");
    let model = Decoder::<B>::new(device);
    let mut cache = model.cache();
    let mut sequence = Tensor::<B, 1, Int>::from_ints(PROMPT, device).unsqueeze::<2>();
    let mut generated = Vec::new();
    for _ in 0..tokens {
        let logits = if cached {
            model.forward_cached(sequence.clone(), &mut cache)
        } else {
            model.forward(sequence.clone(), None)
        };
        let [_, length, _] = logits.dims();
        let token = logits.slice([0..1, length - 1..length]).argmax(2).reshape([1, 1]);
        generated.push(token.clone().into_scalar().elem());
        sequence = Tensor::cat(vec![sequence, token], 1);
    }
    generated
}
