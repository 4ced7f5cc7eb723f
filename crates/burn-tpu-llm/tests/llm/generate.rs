//! The loop that writes, with small random models.

use crate::families::TinyWeights;
use burn::module::{ModuleMapper, Param};
use burn::prelude::*;
use burn_flex::{Flex, FlexDevice};
use burn_tpu::{Mesh, Platform, Tpu, TpuDevice, place};
use burn_tpu_llm::{Config, Decoder, End, GenerateOptions, Prompt, Sampling, Session, Source};

fn config_json(family: &str) -> serde_json::Value {
    serde_json::json!({
        "model_type": family, "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 160, "sliding_window": 12,
    })
}

fn config(family: &str) -> Config {
    Config::from_hugging_face(&config_json(family).to_string()).unwrap()
}

/// Larger weights than a model starts with, so that tokens differ.
struct Spread;

impl<B: Backend> ModuleMapper<B> for Spread {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|weight| weight * 12.0)
    }
}

fn model<B: Backend>(device: &B::Device) -> Decoder<B> {
    B::seed(device, 5);
    config("mistral").init::<B>(device).unwrap().map(&mut Spread)
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length as u32).map(|at| at * 7 % 40).collect()
}

fn options(tokens: usize) -> GenerateOptions {
    GenerateOptions { tokens, ..GenerateOptions::default() }
}

/// Returns the likeliest continuation, from a pass over the whole text for each token.
fn without_cache<B: Backend>(model: &Decoder<B>, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let (mut text, device) = (prompt.to_vec(), model.device());
    for _ in 0..tokens {
        let ids: Vec<i32> = text.iter().map(|id| *id as i32).collect();
        let logits = model.forward(Tensor::<B, 1, Int>::from_data(ids.as_slice(), &device).unsqueeze());
        let last = logits.slice_dim(1, text.len() - 1..text.len()).argmax(2);
        text.extend(last.into_data().iter::<u32>());
    }
    text.split_off(prompt.len())
}

fn written<B: Backend>(session: &mut Session<'_, B>, prompt: &[u32], options: &GenerateOptions) -> Vec<u32> {
    session.generate(prompt, options).unwrap().map(|token| token.unwrap().id).collect()
}

#[test]
fn chunks_and_steps_write_what_whole_passes_write() {
    let model = model::<Flex>(&FlexDevice);
    let mut session = Session::new(&model, 160).unwrap();
    // One chunk, one chunk that is full, and three.
    for length in [5, 64, 131] {
        let prompt = prompt(length);
        assert_eq!(written(&mut session, &prompt, &options(6)), without_cache(&model, &prompt, 6), "{length}");
    }
}

#[test]
fn a_prompt_that_goes_on_is_read_from_there_and_another_one_anew() {
    let model = model::<Flex>(&FlexDevice);
    let mut session = Session::new(&model, 160).unwrap();
    let mut conversation = prompt(30);
    for extra in [3, 70] {
        let answer = written(&mut session, &conversation, &options(5));
        assert_eq!(answer, without_cache(&model, &conversation, 5));
        conversation.extend(answer);
        conversation.extend(prompt(extra));
    }
    let other: Vec<u32> = conversation.iter().map(|id| (id + 1) % 40).collect();
    assert_eq!(written(&mut session, &other, &options(5)), without_cache(&model, &other, 5));
    assert_eq!(written(&mut session, &other, &options(5)), without_cache(&model, &other, 5), "the same again");
}

#[test]
fn an_answer_ends_at_a_token_a_count_or_a_full_context_and_when_it_is_dropped() {
    let model = model::<Flex>(&FlexDevice);
    let mut session = Session::new(&model, 20).unwrap();
    let all = without_cache(&model, &prompt(10), 10);
    let mut generation = session.generate(&prompt(10), &options(100)).unwrap();
    assert_eq!(generation.by_ref().map(|token| token.unwrap().id).collect::<Vec<_>>()[..10], all);
    assert_eq!(generation.end(), Some(End::Context));

    let end = *all.iter().find(|id| **id != all[0]).unwrap();
    let with_end = GenerateOptions { end_tokens: vec![end], ..options(100) };
    let mut generation = session.generate(&prompt(10), &with_end).unwrap();
    let before: Vec<_> = all.iter().copied().take_while(|id| *id != end).collect();
    assert_eq!(generation.by_ref().map(|token| token.unwrap().id).collect::<Vec<_>>(), before);
    assert_eq!(generation.end(), Some(End::Token(end)));

    let mut generation = session.generate(&prompt(10), &options(2)).unwrap();
    assert_eq!(generation.next().unwrap().unwrap().id, all[0]);
    drop(generation);
    let mut generation = session.generate(&prompt(10), &options(2)).unwrap();
    assert_eq!((generation.by_ref().count(), generation.end()), (2, Some(End::Tokens)));
}

fn written_together<B: Backend>(
    session: &mut Session<'_, B>,
    prompts: &[Prompt<'_>],
    options: &GenerateOptions,
) -> Vec<Vec<u32>> {
    let mut answers = vec![Vec::new(); prompts.len()];
    for step in session.generate_batch(prompts, options).unwrap() {
        for (answer, token) in answers.iter_mut().zip(step.unwrap()) {
            answer.extend(token.map(|token| token.id));
        }
    }
    answers
}

#[test]
fn texts_of_a_batch_are_what_they_are_alone() {
    let model = model::<Flex>(&FlexDevice);
    let [mut session, mut alone] = [3, 1].map(|rows| Session::with_rows(&model, 160, rows).unwrap());
    let prompts = [5, 70, 12].map(prompt);
    let prompts: Vec<_> = prompts.iter().zip([8, 9, 8]).map(|(tokens, seed)| Prompt { tokens, seed }).collect();
    let sampling = Sampling { temperature: 1.0, top_k: 9, presence_penalty: 0.3, ..Sampling::default() };
    for sampling in [Sampling::default(), sampling] {
        let mut options = GenerateOptions { sampling, ..options(20) };
        let unended = written_together(&mut session, &prompts, &options);
        options.end_tokens = vec![unended[0][4], unended[1][9]];
        let mut lengths = Vec::new();
        // All of them, then fewer than there are rows.
        for prompts in [&prompts[..], &prompts[..2]] {
            let together = written_together(&mut session, prompts, &options);
            for (prompt, answer) in prompts.iter().zip(&together) {
                let sampling = Sampling { seed: prompt.seed, ..options.sampling.clone() };
                let options = GenerateOptions { sampling, ..options.clone() };
                assert_eq!(*answer, written(&mut alone, prompt.tokens, &options));
            }
            lengths.extend(together.iter().map(Vec::len));
        }
        assert!(lengths.iter().any(|length| *length != lengths[0]), "each ends by itself: {lengths:?}");
    }
    // What was read stays read if the texts go on together.
    let longer: Vec<_> = prompts.iter().map(|prompt| [prompt.tokens, &[3, 4][..]].concat()).collect();
    let longer: Vec<_> = longer.iter().map(|tokens| Prompt { tokens, seed: 0 }).collect();
    let first = written_together(&mut session, &prompts, &options(3));
    assert_eq!(written_together(&mut session, &longer, &options(3)), {
        let mut fresh = Session::with_rows(&model, 160, 3).unwrap();
        written_together(&mut fresh, &longer, &options(3))
    });
    assert_eq!(written_together(&mut session, &prompts, &options(3)), first);
}

/// Weights and caches are split over heads, and texts over the other axis, as far as they divide.
#[test]
fn texts_on_a_mesh_are_those_of_one_chip() {
    let Some((_, _alone)) = crate::cpu() else { return };
    let device = TpuDevice::mesh(Mesh::new().axis("data", 2).axis("tensor", 2).on(Platform::Cpu));
    crate::options().install(&device).ok();
    let files = TinyWeights::new(&config_json("mistral"));
    let source = Source::open(files.path()).unwrap();
    let model = source.load::<Tpu<f32>>(&device).unwrap();
    let model = place(model, &source.config().placement(Some("tensor"), None, None)).unwrap();
    let reference = source.load::<Flex>(&FlexDevice).unwrap();
    let prompts = [11, 64, 30].map(prompt);
    let prompts = prompts.each_ref().map(|tokens| Prompt { tokens, seed: 0 });
    let expected = prompts.map(|prompt| without_cache(&reference, prompt.tokens, 6));
    for rows in [2, 3] {
        let session = Session::with_rows(&model, 160, rows).unwrap();
        let mut session = session.split(Some("data"), Some("tensor")).unwrap();
        assert_eq!(written_together(&mut session, &prompts[..rows], &options(6)), expected[..rows]);
    }
    let session = Session::with_rows(&model, 160, 2).unwrap();
    assert!(session.split(Some("rows"), None).unwrap_err().to_string().contains("rows"));
}

#[test]
fn an_answer_of_a_batch_ends_alone() {
    let model = model::<Flex>(&FlexDevice);
    let mut session = Session::with_rows(&model, 20, 2).unwrap();
    let [first, second] = [4, 9].map(prompt);
    let prompts = [&first, &second].map(|tokens| Prompt { tokens, seed: 0 });
    let mut generation = session.generate_batch(&prompts, &options(100)).unwrap();
    generation.next().unwrap().unwrap();
    generation.stop(1);
    let steps: Vec<_> = generation.by_ref().map(Result::unwrap).collect();
    assert!(steps.iter().all(|step| step[0].is_some() && step[1].is_none()));
    // As many as the longer prompt leaves, with the last one that is not read.
    assert_eq!((steps.len(), generation.end(0), generation.end(1)), (11, Some(End::Context), Some(End::Stopped)));
    let error = |prompts: &[Prompt<'_>]| {
        let mut session = Session::with_rows(&model, 20, 2).unwrap();
        session.generate_batch(prompts, &options(1)).err().unwrap().to_string()
    };
    assert_eq!(error(&[]), "0 prompts for a session of 2 rows");
    assert_eq!(error(&[prompts[0]; 3]), "3 prompts for a session of 2 rows");
    assert_eq!(error(&[prompts[0], Prompt { tokens: &[], seed: 0 }]), "the prompt is empty");
    assert!(Session::with_rows(&model, 20, 0).err().unwrap().to_string().contains("0 rows"));
}

#[test]
fn a_batch_compiles_nothing_after_the_warm_up_on_the_tpu_backend() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let files = TinyWeights::new(&config_json("mistral"));
    let source = Source::open(files.path()).unwrap();
    let model = source.load::<Tpu<f32>>(&device).unwrap();
    let mut session = Session::with_rows(&model, 160, 2).unwrap();
    session.warm_up(&options(4)).unwrap();
    let warm = device.metrics().compiles;
    let reference = source.load::<Flex>(&FlexDevice).unwrap();
    for lengths in [[11, 64], [90, 65], [7, 7]] {
        let prompts = lengths.map(prompt);
        let prompts = [&prompts[0], &prompts[1]].map(|tokens| Prompt { tokens, seed: 0 });
        let expected = prompts.map(|prompt| without_cache(&reference, prompt.tokens, 3));
        assert_eq!(written_together(&mut session, &prompts, &options(3)), expected, "{lengths:?}");
    }
    assert!(warm > 0);
    let metrics = device.metrics();
    assert_eq!(metrics.compiles, warm, "{metrics}");
}

#[test]
fn probabilities_are_those_of_the_logits() {
    let model = model::<Flex>(&FlexDevice);
    let mut session = Session::new(&model, 32).unwrap();
    let with = GenerateOptions { log_probabilities: true, ..options(1) };
    let token = session.generate(&prompt(4), &with).unwrap().next().unwrap().unwrap();
    let ids: Vec<i32> = prompt(4).iter().map(|id| *id as i32).collect();
    let logits = model.forward(Tensor::<Flex, 1, Int>::from_data(ids.as_slice(), &FlexDevice).unsqueeze());
    let logits: Vec<f32> = logits.slice_dim(1, 3..4).into_data().to_vec().unwrap();
    let sum: f32 = logits.iter().map(|logit| logit.exp()).sum();
    assert!((token.log_probability.unwrap() - (logits[token.id as usize] - sum.ln())).abs() < 1e-4);
}

#[test]
fn the_loss_is_the_mean_of_the_tokens_and_training_lowers_it() {
    use burn::backend::Autodiff;
    use burn::optim::{AdamConfig, GradientsParams, Optimizer};
    type Trained = Autodiff<Flex>;
    let mut model = config("mistral").init::<Trained>(&FlexDevice).unwrap();
    let ids: Vec<i32> = prompt(12).iter().map(|id| *id as i32).collect();
    let tokens = || Tensor::<Trained, 1, Int>::from_data(ids.as_slice(), &FlexDevice).unsqueeze();
    let logits: Vec<f32> = model.forward(tokens()).into_data().to_vec().unwrap();
    let nats = |at: usize| {
        let row = &logits[at * 40..(at + 1) * 40];
        row.iter().map(|logit| logit.exp()).sum::<f32>().ln() - row[ids[at + 1] as usize]
    };
    let first: f32 = model.loss(tokens()).into_scalar();
    assert!((first - (0..11).map(nats).sum::<f32>() / 11.0).abs() < 1e-4);

    let mut optimizer = AdamConfig::new().init();
    for _ in 0..20 {
        let gradients = GradientsParams::from_grads(model.loss(tokens()).backward(), &model);
        model = optimizer.step(0.02, model, gradients);
    }
    let last: f32 = model.loss(tokens()).into_scalar();
    assert!(last < 0.5 * first, "{first} to {last}");
}

#[test]
fn prompts_that_do_not_fit_are_errors() {
    let model = model::<Flex>(&FlexDevice);
    let error = |context, prompt: &[u32]| {
        let mut session = Session::new(&model, context).unwrap();
        session.generate(prompt, &options(1)).err().unwrap().to_string()
    };
    let message = error(20, &prompt(20));
    assert_eq!(message, "the prompt has 20 tokens, and the context 20: at most 19 leave room for an answer");
    assert_eq!(error(20, &[]), "the prompt is empty");
    assert_eq!(error(20, &[3, 40]), "the prompt has the token 40; the model knows 40");
    for context in [0, 161] {
        let message = Session::new(&model, context).err().unwrap().to_string();
        assert_eq!(message, format!("a context of {context} tokens: the model takes 1 to 160"));
    }
    let mut session = Session::new(&model, 20).unwrap();
    let wrong = GenerateOptions { sampling: Sampling { top_p: 2.0, ..Sampling::default() }, ..options(1) };
    assert!(session.generate(&prompt(3), &wrong).err().unwrap().to_string().contains("top-p is 2"));
}

#[test]
fn the_device_is_at_most_a_step_ahead_on_the_tpu_backend() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let model = model::<Tpu<f32>>(&device);
    let mut session = Session::new(&model, 160).unwrap();
    let whole = written(&mut session, &prompt(9), &options(12));
    let mut steps = |taken: usize, with: &GenerateOptions| {
        let before = device.metrics().executions;
        let generation = session.generate(&prompt(9), with).unwrap();
        let ids: Vec<_> = generation.take(taken).map(|token| token.unwrap().id).collect();
        assert_eq!(ids, whole[..ids.len()]);
        (ids.len(), device.metrics().executions - before)
    };
    let (_, prompt_alone) = steps(1, &options(12));
    // Dropped after five tokens: the four steps after the first one, and one more.
    assert_eq!(steps(5, &options(12)), (5, prompt_alone + 5));
    // Nobody needs a step after the last token that was asked for.
    assert_eq!(steps(12, &options(5)), (5, prompt_alone + 4));
    let at = (1..12).find(|at| !whole[..*at].contains(&whole[*at])).unwrap();
    let ends = GenerateOptions { end_tokens: vec![whole[at]], ..options(12) };
    let (written, programs) = steps(12, &ends);
    assert!(written == at && programs <= prompt_alone + at as u64 + 1, "{written} of {at} tokens, {programs} programs");
}

#[test]
fn nothing_compiles_after_the_warm_up_on_the_tpu_backend() {
    let Some((device, _alone)) = crate::cpu() else { return };
    let model = model::<Tpu<f32>>(&device);
    let mut session = Session::new(&model, 160).unwrap();
    let sampling = Sampling { temperature: 0.8, top_k: 10, top_p: 0.9, repetition_penalty: 1.1, ..Sampling::default() };
    for sampling in [Sampling::default(), sampling] {
        let options =
            |tokens| GenerateOptions { sampling: sampling.clone(), log_probabilities: true, ..options(tokens) };
        session.warm_up(&options(4)).unwrap();
        let warm = device.metrics().compiles;
        for length in [11, 64, 65, 120] {
            written(&mut session, &prompt(length), &options(8));
        }
        // A conversation, and then another one that begins in the same way.
        for extra in [20, 3, 75] {
            let mut conversation = prompt(9);
            conversation.extend(written(&mut session, &prompt(9), &options(8)));
            conversation.extend(prompt(extra));
            written(&mut session, &conversation, &options(8));
        }
        assert!(warm > 0);
        let metrics = device.metrics();
        assert_eq!(metrics.compiles, warm, "{metrics}");
    }
}
