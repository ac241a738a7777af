//! Chats: messages, through the template in the file, to a prompt.
//!
//! Templates are programs that come with the file and are not trusted: they run with a budget of work and memory in
//! proportion to the messages. They render as in Hugging Face's `transformers`, which they are written for.
//!
//! The budget is minijinja's, and does not cover everything: a list that holds the same list twice on each of fifty levels
//! costs nothing to make and no end of time to compare, and a chain of a hundred thousand operators exhausts the stack of
//! the parser. Where the file is somebody else's, a template belongs into a process of its own with limits of its own,
//! which is where `argon run` puts it.

mod environment;

use std::time::SystemTime;

use argon_gguf::Metadata;
use minijinja::{Environment, ErrorKind, Value, context};
use thiserror::Error;

use crate::tokenizer::{Special, Tokenizer, TokenizerError};

/// One turn of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or whatever else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template is told besides the messages.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatOptions {
    /// Whether the prompt ends with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// The switch `enable_thinking` of models that have one; `None` leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// The time for templates that write the date, which is read in UTC. Without it, such a template fails.
    pub now: Option<SystemTime>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, enable_thinking: None, now: None }
    }
}

/// A chat that cannot become a prompt.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ChatError {
    /// The key `tokenizer.chat_template` holds no text.
    #[error(transparent)]
    Gguf(#[from] argon_gguf::Error),
    /// The template is not one.
    #[error("tokenizer.chat_template, line {line}: {reason}")]
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// The template refuses these messages, in its own words.
    #[error("the chat template refuses the messages: {message}")]
    Refused {
        /// What it says.
        message: String,
    },
    /// The template does not come to an end, or makes too much text, within its budget.
    #[error("tokenizer.chat_template takes too much work for these messages")]
    TooMuchWork,
    /// The template does something impossible.
    #[error("tokenizer.chat_template, line {line}: {reason}")]
    Render {
        /// Where, from 1.
        line: usize,
        /// What went wrong there.
        reason: String,
    },
    /// The prompt has no ids.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// A model's chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// The template's name inside its environment.
const NAME: &str = "chat_template";

/// Work that any chat may cost: about as many instructions, or 64 bytes each.
const FUEL: u64 = 1_000_000;
/// Work for each message on top of it.
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Work for each byte of the messages on top of it.
const FUEL_PER_BYTE: u64 = 1;

impl ChatTemplate {
    /// Compiles a template. `bos_token` and `eos_token` are the texts that it may write.
    ///
    /// # Errors
    /// [`ChatError::Syntax`] with its line.
    pub fn new(source: &str, bos_token: Option<&str>, eos_token: Option<&str>) -> Result<Self, ChatError> {
        let mut environment = environment::transformers();
        environment.add_template_owned(NAME, environment::without_generation_tags(source)).map_err(|error| {
            ChatError::Syntax { line: error.line().unwrap_or(0), reason: environment::describe(&error) }
        })?;
        Ok(Self { environment, bos_token: bos_token.map(String::from), eos_token: eos_token.map(String::from) })
    }

    /// The template in a file, if it has one.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for a key of the wrong type.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>, ChatError> {
        let Some(source) = metadata.str("tokenizer.chat_template")? else { return Ok(None) };
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id).ok());
        Self::new(source, text(tokenizer.bos()), text(tokenizer.eos())).map(Some)
    }

    /// The chat as text.
    ///
    /// # Errors
    /// [`ChatError::Refused`] if the template refuses the chat, [`ChatError::TooMuchWork`], and [`ChatError::Render`] with its line.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, ChatError> {
        let mut environment = self.environment.clone();
        let bytes: usize = messages.iter().map(|message| message.role.len() + message.content.len()).sum();
        environment.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * messages.len() as u64 + FUEL_PER_BYTE * bytes as u64));
        environment.add_function("strftime_now", environment::strftime_at(options.now));
        let pairs = |message: &Message| {
            Value::from_pairs([("role", message.role.as_str()), ("content", message.content.as_str())])
        };
        let optional = |value: Option<Value>| value.unwrap_or(Value::UNDEFINED);
        let context = context! {
            messages => messages.iter().map(pairs).collect::<Vec<_>>(),
            tools => (),
            documents => (),
            add_generation_prompt => options.add_generation_prompt,
            enable_thinking => optional(options.enable_thinking.map(Value::from)),
            bos_token => optional(self.bos_token.clone().map(Value::from)),
            eos_token => optional(self.eos_token.clone().map(Value::from)),
        };
        let rendered = environment.get_template(NAME).and_then(|template| template.render(context));
        rendered.map_err(|error| match environment::refusal(&error) {
            Some(message) => ChatError::Refused { message },
            None if error.kind() == ErrorKind::OutOfFuel => ChatError::TooMuchWork,
            None => ChatError::Render { line: error.line().unwrap_or(0), reason: environment::describe(&error) },
        })
    }

    /// The chat as ids: BOS in front where the file asks for it and the template does not write it, the template's
    /// control tokens as tokens, those in the messages as text.
    ///
    /// # Errors
    /// As [`render`](Self::render), and as [`Tokenizer::encode`].
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<Vec<u32>, ChatError> {
        let text = self.render(&hide_control(tokenizer, messages), options)?;
        Ok(tokenizer.encode_with_bos(&text, Special::ParseShown)?)
    }
}

/// The messages with the control tokens in them disguised, so that [`Special::ParseShown`] knows them from those of the
/// template that renders these messages.
pub fn hide_control(tokenizer: &Tokenizer, messages: &[Message]) -> Vec<Message> {
    let hidden = |message: &Message| {
        Message::new(tokenizer.hide_control(&message.role), tokenizer.hide_control(&message.content))
    };
    messages.iter().map(hidden).collect()
}

/// How many ids at the front are the same in both: what a session that has read `before` need not read again for `after`.
pub fn common_prefix(before: &[u32], after: &[u32]) -> usize {
    before.iter().zip(after).take_while(|(a, b)| a == b).count()
}
