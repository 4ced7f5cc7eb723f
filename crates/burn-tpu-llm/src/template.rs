//! Chat templates: what a model was trained to read of a conversation.

use crate::error::{LlmError, Result};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What someone said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: &str, content: &str) -> Self {
        Self { role: role.to_owned(), content: content.to_owned() }
    }
}

/// A template in Jinja, as Hugging Face's files have it.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    begin: String,
    end: String,
}

const NAME: &str = "chat";

impl ChatTemplate {
    /// Creates a template; `begin` and `end` are the names of the tokens around a text, which some templates write.
    ///
    /// # Errors
    /// [`LlmError::Template`] for text that is no template.
    pub fn new(source: &str, begin: &str, end: &str) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let parsed = environment.add_template_owned(NAME, source.to_owned());
        parsed.map_err(|error| LlmError::Template(format!("is no template: {}", described(&error))))?;
        Ok(Self { environment, source: source.to_owned(), begin: begin.to_owned(), end: end.to_owned() })
    }

    /// Returns the text of a `tokenizer_config.json` with this template.
    pub(crate) fn to_json(&self) -> String {
        let Self { source, begin, end, .. } = self;
        serde_json::json!({"chat_template": source, "bos_token": begin, "eos_token": end}).to_string()
    }

    /// Returns the text of a conversation up to where the assistant answers.
    ///
    /// # Errors
    /// [`LlmError::Template`] for what the template refuses, such as two messages of the user in a row.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.rendered(messages, true)
    }

    /// Returns the text of a whole conversation, and where in it the assistant speaks: from where it is asked for an
    /// answer to the end of the token that ends it, in bytes.
    ///
    /// # Errors
    /// [`LlmError::Template`] for what the template refuses, and for a template that writes a message in another way
    /// when others follow: nothing then shows where the assistant speaks.
    pub fn render_whole(&self, messages: &[Message]) -> Result<(String, Vec<Range<usize>>)> {
        let whole = self.rendered(messages, false)?;
        let mut answers = Vec::new();
        for (index, _) in messages.iter().enumerate().filter(|(_, message)| message.role == "assistant") {
            let asked = self.rendered(&messages[..index], true)?;
            let answered = self.rendered(&messages[..=index], false)?;
            if !whole.starts_with(&answered) || !answered.starts_with(&asked) {
                let reason =
                    "writes messages in another way when others follow: where the assistant speaks is not known";
                return Err(LlmError::Template(reason.to_owned()));
            }
            answers.push(asked.len()..answered.trim_end().len());
        }
        Ok((whole, answers))
    }

    fn rendered(&self, messages: &[Message], asks: bool) -> Result<String> {
        let failed = |error: Error| LlmError::Template(format!("does not take these messages: {}", described(&error)));
        let template = self.environment.get_template(NAME).map_err(failed)?;
        let values = context! {
            messages, add_generation_prompt => asks, bos_token => self.begin, eos_token => self.end
        };
        template.render(values).map_err(failed)
    }
}

fn described(error: &Error) -> String {
    let line = error.line().map(|line| format!(" (line {line} of the template)")).unwrap_or_default();
    format!("{}{line}", error.detail().unwrap_or(&error.kind().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation() -> [Message; 2] {
        [Message::new("user", " Hi. "), Message::new("assistant", "Hello.")]
    }

    #[test]
    fn a_template_writes_a_conversation_as_python_does() {
        let source = "{%- for m in messages %}\n  {%- if m['role'] == 'user' %}\n\
                      {{ bos_token + m['content'].strip() }}\n  {% else %}\n\
                      {{ m.content.split('l')[0] }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}";
        let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
        assert_eq!(template.render(&conversation()).unwrap(), "<s>Hi.\nHe>");
    }

    #[test]
    fn the_assistant_speaks_from_where_it_is_asked_to_the_token_that_ends_it() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}\
                      {% if add_generation_prompt %}<assistant>{% endif %}";
        let messages = [Message::new("user", "1+1?"), Message::new("assistant", "2"), Message::new("user", "2+2?")];
        let messages = [&messages[..], &[Message::new("assistant", "4.")]].concat();
        let (text, answers) = ChatTemplate::new(source, "", "").unwrap().render_whole(&messages).unwrap();
        let answers: Vec<_> = answers.into_iter().map(|answer| &text[answer]).collect();
        assert_eq!(answers, ["2<end>", "4.<end>"]);

        let source = "{% for m in messages %}{% if loop.last %}{{ m.content }}{% endif %}{% endfor %}";
        let error = ChatTemplate::new(source, "", "").unwrap().render_whole(&messages).unwrap_err().to_string();
        assert!(error.contains("where the assistant speaks is not known"), "{error}");
    }

    #[test]
    fn what_a_template_refuses_is_said_in_its_words() {
        let source = "{% for m in messages %}\n\
                      {% if m.role != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}";
        let error = ChatTemplate::new(source, "", "").unwrap().render(&conversation()).unwrap_err().to_string();
        assert!(error.starts_with("the chat template does not take these messages: roles must alternate"), "{error}");
        let error = ChatTemplate::new("{% for m in messages %}\n{{ m.role", "", "").unwrap_err().to_string();
        assert!(error.contains("the chat template is no template") && error.contains("line 2"), "{error}");
    }
}
