//! `argon run --chat`: turns of a conversation, through the chat template in the file.
//!
//! Each turn renders the whole conversation anew, as templates want it, and the session keeps what it has in common with
//! what was read before: usually everything. Where a template rewrites the last answer (it takes the thinking out), a
//! mark in front of the answer saves reading the conversation before it again.
//!
//! Whatever a turn comes to, the conversation goes on: a message that has no room is refused, Ctrl-C ends an answer. Only
//! where it waits for a message does Ctrl-C end the chat.

use std::io::{self, IsTerminal};
use std::time::SystemTime;

use argon_engine::chat::{ChatOptions, Message, common_prefix, hide_control};
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_gguf::Metadata;

use super::template::Template;
use super::writer::{End, Writer};
use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::prompt::Lines;
use crate::settings;
use crate::words::counted;

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
    /// Of the input, also if it ends after messages that had no room; of the work, or [`Failure::Interrupted`].
    pub fn run(&mut self, writer: &mut Writer, interrupt: &Interrupt, first: Option<String>) -> Result<(), Failure> {
        eprintln!("chat: {EXIT} or the end of input ends it, Ctrl-C ends an answer");
        let (lines, mut next, mut refused) = (Lines::start()?, first, 0);
        loop {
            let text = match next.take() {
                Some(text) => text,
                None => match ask(&lines, interrupt)? {
                    Some(text) => text,
                    None => break,
                },
            };
            match self.turn(writer, text)? {
                Turn::Taken => {}
                Turn::Refused => refused += 1,
                Turn::Interrupted => interrupt.forget(),
            }
        }
        // Who typed them has seen it.
        if refused > 0 && !io::stdin().is_terminal() {
            return Err(Failure::input(format_args!("{} had no room in the chat", counted(refused, "message"))));
        }
        Ok(())
    }

    /// Reads what the user says and writes an answer. Only both together become part of the conversation.
    fn turn(&mut self, writer: &mut Writer, text: String) -> Result<Turn, Failure> {
        let before = self.messages.len();
        self.messages.push(Message::new("user", text));
        let answer = self.answer(writer);
        if let Ok(Some((text, end))) = answer {
            self.messages.push(Message::new("assistant", text));
            return Ok(if end == End::Interrupted { Turn::Interrupted } else { Turn::Taken });
        }
        self.messages.truncate(before);
        match answer {
            Ok(_) => Ok(Turn::Refused),
            Err(Failure::Interrupted) => {
                eprintln!("stopped before the answer: the message is not part of the chat");
                Ok(Turn::Interrupted)
            }
            Err(failure) => Err(failure),
        }
    }

    /// The answer to the last message; none, and why on standard error, if there is no room for the message.
    fn answer(&self, writer: &mut Writer) -> Result<Option<(String, End)>, Failure> {
        let prompt = self.encode(writer.tokenizer, true)?;
        let (tokens, context) = (prompt.len(), writer.session.context());
        if tokens == 0 {
            return Err(Failure::input("the chat template makes an empty prompt"));
        }
        if tokens > context {
            eprintln!(
                "no room for this message: the chat has {tokens} tokens with it, the context has room for {context}; \
                 say less, or start with a larger -c"
            );
            return Ok(None);
        }
        let said = common_prefix(&self.encode(writer.tokenizer, false)?, &prompt);
        let logits = writer.read(prompt, Some(said))?;
        writer.write_answer(logits).map(Some)
    }

    /// The ids of the conversation, with or without the beginning of an answer.
    fn encode(&self, tokenizer: &Tokenizer, answer: bool) -> Result<Vec<u32>, Failure> {
        let options =
            ChatOptions { add_generation_prompt: answer, enable_thinking: self.think, now: Some(SystemTime::now()) };
        let text = self.template.render(&hide_control(tokenizer, &self.messages), &options)?;
        tokenizer.encode_with_bos(&text, Special::ParseShown).or_input("the chat")
    }
}

/// What became of a message.
enum Turn {
    /// It has an answer.
    Taken,
    /// There was no room for it.
    Refused,
    /// Ctrl-C came: it has a part of an answer, or is no part of the chat.
    Interrupted,
}

/// The next message, `None` where there is no other. A line that looks like a command and is none is not sent.
fn ask(lines: &Lines, interrupt: &Interrupt) -> Result<Option<String>, Failure> {
    loop {
        if io::stdin().is_terminal() {
            eprint!("> ");
        }
        let Some(line) = lines.next(interrupt.flag())? else { return Ok(None) };
        match line.trim() {
            EXIT => return Ok(None),
            "" => {}
            _ => match command(&line) {
                Some(command) => {
                    eprintln!("there is no {command}: {EXIT} ends the chat; a message may begin with a space");
                }
                None => return Ok(Some(line)),
            },
        }
    }
}

/// The word of a line that is to be a command: a slash and letters. A path has more slashes.
fn command(line: &str) -> Option<&str> {
    let word = line.split_whitespace().next().filter(|word| line.starts_with(word))?;
    let letters = word.strip_prefix('/')?;
    (!letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn a_command_is_a_slash_and_letters() {
        assert_eq!(command("/help me"), Some("/help"));
        for line in ["help", " /help", "/", "/usr/bin is a path", "/* a comment */", "a /b", ""] {
            assert_eq!(command(line), None, "{line}");
        }
    }
}
