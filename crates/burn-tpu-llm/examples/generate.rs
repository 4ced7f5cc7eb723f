//! Writes on from a text: `cargo run --release -p burn-tpu-llm --example generate -- FILE|DIR "Once upon a time"`.
//!
//! The program `burn-tpu generate` does this with options.
#![allow(clippy::print_stdout, reason = "an example")]

use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_llm::{GenerateOptions, Sampling, Session, Source, TextStream};
use std::error::Error;
use std::io::Write;

/// Any backend of Burn writes the same.
type B = Tpu<f32>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("usage: generate FILE|DIR TEXT".into());
    };
    let source = Source::open(path.as_ref())?;
    let model = source.load::<B>(&TpuDevice::default())?;
    let tokenizer = source.tokenizer()?;

    let sampling = Sampling { temperature: 0.8, top_p: 0.95, seed: 1, ..Sampling::default() };
    let end_tokens = source.end_tokens(&tokenizer)?;
    let options = GenerateOptions { tokens: 60, sampling, end_tokens, ..GenerateOptions::default() };

    let prompt = tokenizer.encode(&text)?;
    let mut session = Session::new(&model, prompt.len() + options.tokens)?;
    let mut written = TextStream::new(&tokenizer, vec![]);
    print!("{text}");
    for token in session.generate(&prompt, &options)? {
        print!("{}", written.push(token?.id)?);
        std::io::stdout().flush()?;
    }
    println!("{}", written.finish()?);
    Ok(())
}
