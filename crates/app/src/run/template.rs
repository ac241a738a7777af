//! Chat templates, each rendering in a process of its own.
//!
//! A template is a program that comes with the file. The engine gives it a budget, but a budget inside the process cannot
//! hold every one: see [`argon_engine::chat`]. So `argon` starts itself once more for each rendering (2 ms), with limits on
//! memory and processor time, and ends that process when its time is up. Whatever a template does, the conversation and
//! the model are in another process.

use std::io::{self, Write};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use argon_engine::chat::{ChatOptions, ChatTemplate, Message};
use argon_engine::tokenizer::Tokenizer;
use argon_gguf::Metadata;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OrFail};
use crate::prompt::read_all;

/// The only argument of a process that renders.
const ARGUMENT: &str = "--render-chat-template";

/// Time that any chat may take. Templates of real models take a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time for each megabyte of messages on top of it.
const PATIENCE_PER_MEGABYTE: Duration = Duration::from_millis(100);

/// A file's chat template.
pub struct Template {
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
}

/// What a process that renders reads.
#[derive(Serialize, Deserialize)]
struct Request {
    source: String,
    bos_token: Option<String>,
    eos_token: Option<String>,
    /// `None`: only see whether it is a template.
    chat: Option<Chat>,
}

#[derive(Serialize, Deserialize)]
struct Chat {
    /// Role and content of each.
    messages: Vec<(String, String)>,
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
    now: Option<SystemTime>,
}

/// What it answers: the text, or why there is none.
type Answer = Result<String, String>;

impl Template {
    /// The template in a file, if it has one.
    ///
    /// # Errors
    /// Of the input, if it is none.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>, Failure> {
        let Some(source) = metadata.str("tokenizer.chat_template").or_input("the chat")? else { return Ok(None) };
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.token_text(id).ok()).map(str::to_owned);
        let (bos_token, eos_token) = (text(tokenizer.bos()), text(tokenizer.eos()));
        let template = Self { source: source.to_owned(), bos_token, eos_token };
        template.ask(None)?;
        Ok(Some(template))
    }

    /// The chat as text.
    ///
    /// # Errors
    /// Of the input, if the template refuses it, fails, or does not come to an end.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Result<String, Failure> {
        self.ask(Some(Chat {
            messages: messages.iter().map(|message| (message.role.clone(), message.content.clone())).collect(),
            add_generation_prompt: options.add_generation_prompt,
            enable_thinking: options.enable_thinking,
            now: options.now,
        }))
    }

    fn ask(&self, chat: Option<Chat>) -> Result<String, Failure> {
        let (source, bos_token, eos_token) = (self.source.clone(), self.bos_token.clone(), self.eos_token.clone());
        let request = Request { source, bos_token, eos_token, chat };
        let request = serde_json::to_vec(&request).or_work("the chat")?;
        let patience = PATIENCE + PATIENCE_PER_MEGABYTE * (request.len() >> 20) as u32;
        let (status, bytes) = converse(request, patience).or_work("starting a process for the chat template")?;
        if was_interrupted(status) {
            return Err(Failure::Interrupted);
        }
        let answer = bytes.and_then(|bytes| serde_json::from_slice::<Answer>(&bytes).ok());
        // Ended from the outside, or by one of its limits.
        let unended = || Err("tokenizer.chat_template takes too much work for these messages".to_owned());
        answer.unwrap_or_else(unended).map_err(|reason| Failure::input(format_args!("the chat: {reason}")))
    }
}

/// Has a process of its own answer `request`; `None` where it does not within `patience`.
fn converse(request: Vec<u8>, patience: Duration) -> io::Result<(ExitStatus, Option<Vec<u8>>)> {
    let mut child = start()?;
    let (mut input, output) = (child.stdin.take(), child.stdout.take());
    let (send, answer) = mpsc::sync_channel(1);
    // Both end when the process does.
    thread::Builder::new().spawn(move || input.take().map(|mut input| input.write_all(&request)))?;
    thread::Builder::new().spawn(move || send.send(output.map(read_all)))?;
    let answer = answer.recv_timeout(patience);
    if answer.is_err() {
        child.kill()?;
    }
    Ok((child.wait()?, answer.ok().flatten().and_then(Result::ok)))
}

fn start() -> io::Result<Child> {
    // On Linux also there where the program's file has been replaced meanwhile.
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut command = Command::new(program);
    command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Whether Ctrl-C ended it: that reaches every process of the terminal.
#[cfg(unix)]
fn was_interrupted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::INT.as_raw())
}

#[cfg(not(unix))]
fn was_interrupted(_: ExitStatus) -> bool {
    false
}

/// Does the work of a process that renders, if this is one.
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT || arguments.next().is_some() {
        return None;
    }
    limit();
    let served = serde_json::from_reader(io::stdin().lock())
        .and_then(|request| serde_json::to_writer(io::stdout().lock(), &answer(request)));
    Some(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn answer(request: Request) -> Answer {
    let Request { source, bos_token, eos_token, chat } = request;
    let template = ChatTemplate::new(&source, bos_token.as_deref(), eos_token.as_deref());
    let template = template.map_err(|error| error.to_string())?;
    let Some(Chat { messages, add_generation_prompt, enable_thinking, now }) = chat else { return Ok(String::new()) };
    let messages: Vec<Message> = messages.into_iter().map(|(role, content)| Message::new(role, content)).collect();
    let options = ChatOptions { add_generation_prompt, enable_thinking, now };
    template.render(&messages, &options).map_err(|error| error.to_string())
}

/// Limits this process, so that it ends by itself even where nobody is left to end it. A system that does not know one of
/// the limits is left with the others and with the time.
#[cfg(unix)]
fn limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    const MEMORY: u64 = 2 << 30;
    const SECONDS: u64 = 60;
    for (resource, most) in [(Resource::As, MEMORY), (Resource::Cpu, SECONDS), (Resource::Core, 0)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
}

#[cfg(not(unix))]
fn limit() {}
