//! SmolLM2-135M-Instruct, whose file `cargo xtask data smollm2` fetches, writes what other implementations write:
//!
//!     cargo test -p burn-tpu-llm smollm2 -- --ignored --nocapture
#![allow(clippy::print_stdout, reason = "these tests also measure")]

use burn::prelude::*;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Tpu, TpuDevice, TpuFloat};
use burn_tpu_llm::{Decoder, End, GenerateOptions, Message, Session, Source};
use half::bf16;
use std::path::PathBuf;

const TEXT: &str = "Once upon a time, there was a little";
const TEXT_IDS: [u32; 9] = [6403, 1980, 253, 655, 28, 665, 436, 253, 1838];
const CONTINUATION: &str = " girl named Emma who loved to play in the sun";
const ANSWER: [u32; 7] = [504, 3575, 282, 4649, 314, 7042, 30];

fn file() -> PathBuf {
    let cache = burn_tpu_pjrt::discovery::cache_dir().expect("a cache folder");
    cache.join("smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
}

fn written<B: Backend>(model: &Decoder<B>, prompt: &[u32], tokens: usize, ends: Vec<u32>) -> (Vec<u32>, Option<End>) {
    let mut session = Session::new(model, 256).unwrap();
    let options = GenerateOptions { tokens, end_tokens: ends, ..GenerateOptions::default() };
    let mut generation = session.generate(prompt, &options).unwrap();
    let ids = generation.by_ref().map(|token| token.unwrap().id).collect();
    (ids, generation.end())
}

fn check<B: Backend>(source: &Source, device: &B::Device) -> Decoder<B> {
    let (tokenizer, template) = (source.tokenizer().unwrap(), source.template().unwrap());
    let ends = source.end_tokens(&tokenizer).unwrap();
    assert_eq!(tokenizer.encode(TEXT).unwrap(), TEXT_IDS);
    let chat = template.render(&[Message::new("user", "What is the capital of France?")]).unwrap();
    let chat = tokenizer.encode_templated(&chat).unwrap();
    assert_eq!(chat.len(), 37);

    let model = source.load::<B>(device).unwrap();
    let tokens = Tensor::<B, 1, Int>::from_data(TEXT_IDS.map(|id| id as i32), device).unsqueeze();
    let logits: Vec<f32> = model.forward(tokens).slice_dim(1, 8..9).into_data().iter::<f32>().collect();
    println!("logits {} {}", logits[8180], logits[3102]);
    assert!((logits[8180] - 17.5509).abs() < 1e-3 && (logits[3102] - 17.0577).abs() < 1e-3);

    let (ids, end) = written(&model, &chat, 20, ends.clone());
    assert_eq!((ids.as_slice(), end), (&ANSWER[..], Some(End::Token(tokenizer.token("<|im_end|>").unwrap()))));
    let (ids, end) = written(&model, &TEXT_IDS, 10, ends);
    assert_eq!((tokenizer.decode(&ids).unwrap().as_str(), end), (CONTINUATION, Some(End::Tokens)));
    model
}

#[test]
#[ignore = "needs SmolLM2's file"]
fn it_writes_what_others_write_on_the_tpu_backend_also_from_safetensors() {
    let (device, _alone) = crate::cpu().expect("the CPU plugin");
    let source = Source::open(&file()).unwrap();
    let model = check::<Tpu<f32>>(&source, &device);
    let folder = tempfile::tempdir().unwrap();
    source.save(&model, folder.path()).unwrap();
    drop(model);
    check::<Tpu<f32>>(&Source::open(folder.path()).unwrap(), &device);
}

/// Returns the first choice after each token of windows of a text.
fn choices<F: TpuFloat>(source: &Source, windows: &[&[u32]], device: &TpuDevice) -> Vec<u32> {
    let model = source.load::<Tpu<F>>(device).unwrap();
    let mut choices = Vec::new();
    for window in windows {
        let ids: Vec<i32> = window.iter().map(|id| *id as i32).collect();
        let ids = Tensor::<Tpu<F>, 1, Int>::from_data(ids.as_slice(), device).unsqueeze();
        choices.extend(model.forward(ids).argmax(2).into_data().iter::<u32>());
    }
    choices
}

#[test]
#[ignore = "needs SmolLM2's file"]
fn first_choices_in_bf16_are_those_in_f32() {
    let (device, _alone) = crate::cpu().expect("the CPU plugin");
    let source = Source::open(&file()).unwrap();
    let text = include_str!("../../../../docs/architecture.md");
    let tokens = source.tokenizer().unwrap().encode(text).unwrap();
    let windows: Vec<_> = tokens.chunks_exact(250).take(4).collect();
    let (wide, narrow) = (choices::<f32>(&source, &windows, &device), choices::<bf16>(&source, &windows, &device));
    let same = wide.iter().zip(&narrow).filter(|(a, b)| a == b).count();
    println!("{same} of {} first choices agree", wide.len());
    assert!(wide.len() == 1000 && same >= 980);
}

#[test]
#[ignore = "needs SmolLM2's file"]
fn it_writes_what_others_write_on_burn_flex() {
    check::<Flex>(&Source::open(&file()).unwrap(), &FlexDevice);
}
