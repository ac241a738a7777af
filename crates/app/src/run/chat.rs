//! `argon run --chat`: turns of a conversation, through the chat template in the file.
//!
//! Each turn renders the whole conversation anew, as templates want it, and the session keeps what it has in common with
//! what was read before: usually everything. Where a template rewrites the last answer (it takes the thinking out), a
//! mark in front of the answer saves reading the conversation before it again.

use std::io::{self, IsTerminal};
use std::time::SystemTime;

use argon_engine::chat::{ChatOptions, Message, common_prefix, hide_control};
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_gguf::Metadata;

use super::template::Template;
use super::writer::{End, Writer, write};
use crate::failure::{Failure, OrFail};
use crate::prompt::Lines;
use crate::settings;

/// Ends a chat.
const EXIT: &str = "/exit";

/// A conversation.
pub struct Chat {
    template: Template,
    think: Option<bool>,
    /// Everything said so far; the last message is an answer, but at the start.
    pub messages: Vec<Message>,
}

impl Chat {
    /// Goes on from `messages`, with the template of the file `name`.
    ///
    /// # Errors
    /// Of the input: no template, or one that is malformed; another system message than at the start.
    pub fn new(
        settings: &settings::Chat,
        mut messages: Vec<Message>,
        metadata: &Metadata,
        tokenizer: &Tokenizer,
        name: &str,
    ) -> Result<Chat, Failure> {
        let template = Template::from_gguf(metadata, tokenizer)?;
        let none = || Failure::input(format_args!("{name}: no chat template (tokenizer.chat_template)"));
        let template = template.ok_or_else(none)?;
        if let Some(system) = &settings.system {
            let system = Message::new("system", system);
            match messages.first() {
                None => messages.push(system),
                Some(first) if *first == system => {}
                Some(_) => return Err(Failure::input("--system: the saved chat began without this message")),
            }
        }
        Ok(Chat { template, think: settings.think, messages })
    }

    /// Takes turns until `/exit` or the end of standard input. `first` is the first message, if it is known already.
    ///
    /// # Errors
    /// Of the input, of the work, or [`Failure::Interrupted`].
    pub fn run(&mut self, writer: &mut Writer, first: Option<String>) -> Result<(), Failure> {
        let lines = Lines::start();
        if let Some(text) = first {
            self.turn(writer, text)?;
        }
        loop {
            if io::stdin().is_terminal() {
                eprint!("> ");
            }
            match lines.next(&writer.stop)? {
                Some(text) if text.trim() == EXIT => return Ok(()),
                Some(text) if text.trim().is_empty() => {}
                Some(text) => self.turn(writer, text)?,
                None => return Ok(()),
            }
        }
    }

    /// Reads what the user says and writes an answer. Only both together become part of the conversation.
    fn turn(&mut self, writer: &mut Writer, text: String) -> Result<(), Failure> {
        let before = self.messages.len();
        self.messages.push(Message::new("user", text));
        match self.answer(writer) {
            Ok((text, end)) => {
                self.messages.push(Message::new("assistant", text));
                if end == End::Interrupted { Err(Failure::Interrupted) } else { Ok(()) }
            }
            Err(failure) => {
                self.messages.truncate(before);
                Err(failure)
            }
        }
    }

    fn answer(&self, writer: &mut Writer) -> Result<(String, End), Failure> {
        let prompt = self.encode(writer.tokenizer, true)?;
        let (tokens, context) = (prompt.len(), writer.session.context());
        if tokens == 0 {
            return Err(Failure::input("the chat template makes an empty prompt"));
        }
        if tokens > context {
            return Err(Failure::input(format_args!(
                "the chat has {tokens} tokens, the context room for {context} (-c)"
            )));
        }
        let said = common_prefix(&self.encode(writer.tokenizer, false)?, &prompt);
        let logits = writer.read(prompt, Some(said))?;
        let mut out = io::stdout().lock();
        let answer = writer.generate(&mut out, logits)?;
        write(&mut out, "\n")?;
        if answer.1 == End::ContextFull {
            eprintln!("the context of {context} tokens is full");
        }
        Ok(answer)
    }

    /// The ids of the conversation, with or without the beginning of an answer.
    fn encode(&self, tokenizer: &Tokenizer, answer: bool) -> Result<Vec<u32>, Failure> {
        let options =
            ChatOptions { add_generation_prompt: answer, enable_thinking: self.think, now: Some(SystemTime::now()) };
        let text = self.template.render(&hide_control(tokenizer, &self.messages), &options)?;
        tokenizer.encode_with_bos(&text, Special::ParseShown).or_input("the chat")
    }
}
