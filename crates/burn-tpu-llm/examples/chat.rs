//! A conversation: `cargo run --release -p burn-tpu-llm --example chat -- FILE|DIR`. An empty line ends it.
//!
//! The program `burn-tpu chat` does this with options.
#![allow(clippy::print_stdout, reason = "an example")]

use burn_tpu::{Tpu, TpuDevice};
use burn_tpu_llm::{GenerateOptions, Message, Session, Source, TextStream};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: chat FILE|DIR")?;
    let source = Source::open(path.as_ref())?;
    let model = source.load::<Tpu<f32>>(&TpuDevice::default())?;
    let (tokenizer, template) = (source.tokenizer()?, source.template()?);
    let options = GenerateOptions { end_tokens: source.end_tokens(&tokenizer)?, ..GenerateOptions::default() };

    let mut session = Session::new(&model, 2048.min(source.config().context))?;
    let mut messages: Vec<Message> = Vec::new();
    for question in std::io::stdin().lines() {
        let question = question?;
        if question.is_empty() {
            break;
        }
        messages.push(Message::new("user", &question));
        // The session has read all but the question: only that is read now.
        let prompt = tokenizer.encode_templated(&template.render(&messages)?)?;

        let (mut written, mut answer) = (TextStream::new(&tokenizer, vec![]), String::new());
        for token in session.generate(&prompt, &options)? {
            let piece = written.push(token?.id)?;
            print!("{piece}");
            std::io::stdout().flush()?;
            answer.push_str(&piece);
        }
        let rest = written.finish()?;
        println!("{rest}");
        messages.push(Message::new("assistant", &(answer + &rest)));
    }
    Ok(())
}
