//! `chat`: a conversation on the terminal.

use super::{Loaded, ModelArgs, Outcome, WriteArgs, generate};
use burn_tpu::TpuFloat;
use burn_tpu_llm::{ChatTemplate, LlmError, Message};
use std::io::{BufRead, Write};

/// What `chat` takes.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// Ask this and end; without it, questions are lines of standard input
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    write: WriteArgs,
}

/// Runs the command.
pub fn run<F: TpuFloat>(args: &Args, loaded: &Loaded<F>) -> Outcome {
    let template = loaded.source.template()?;
    let mut session = loaded.session(loaded.context(&args.write), 1)?;
    if args.prompt.is_none() {
        // What is compiled here does not stop the first answers. One answer alone needs fewer programs.
        session.warm_up(&loaded.options(&args.write)?)?;
    }
    let mut messages = beginning(args);
    let mut ask = |messages: &mut Vec<Message>, question: &str| -> Outcome {
        messages.push(Message::new("user", question));
        let prompt = prompt(&template, messages, loaded)?;
        let answer = generate::write(&mut session, &prompt, &args.write, loaded)?;
        messages.push(Message::new("assistant", &answer));
        Ok(())
    };
    if let Some(question) = &args.prompt {
        return ask(&mut messages, question);
    }
    for line in questions() {
        match line?.trim() {
            "" => {}
            "/quit" => break,
            "/reset" => messages = beginning(args),
            question => {
                if let Err(error) = ask(&mut messages, question) {
                    // A question that does not fit can be asked shorter, or after /reset.
                    let known = error.downcast::<LlmError>()?;
                    let LlmError::Prompt(reason) = *known else { return Err(known) };
                    eprintln!("{reason}; /reset begins a new conversation");
                    messages.pop();
                }
            }
        }
    }
    Ok(())
}

fn beginning(args: &Args) -> Vec<Message> {
    args.system.iter().map(|text| Message::new("system", text)).collect()
}

fn prompt<F: TpuFloat>(template: &ChatTemplate, messages: &[Message], loaded: &Loaded<F>) -> Outcome<Vec<u32>> {
    Ok(loaded.tokenizer.encode_templated(&template.render(messages)?)?)
}

/// Returns the lines of standard input, each after a sign that it is awaited.
fn questions() -> impl Iterator<Item = std::io::Result<String>> {
    let mut lines = std::io::stdin().lock().lines();
    std::iter::from_fn(move || {
        eprint!("> ");
        std::io::stderr().flush().ok()?;
        lines.next()
    })
}
