//! `argon run`: prefill a prompt, continue it, say how fast; or chat.
//!
//! Standard output gets the continuation and nothing else; everything about the run goes to standard error.

mod chat;
mod saved;
pub mod template;
mod writer;

use std::time::Instant;

use argon_engine::sampler::Sampler;
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_gguf::Gguf;

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::measure::load;
use crate::measure::profile::Profiler;
use crate::progress::Timings;
use crate::prompt::{Prompt, Source};
use crate::settings::{CHAT_CONTEXT, Run};
use crate::words::one_line;
use crate::{model, output};
use chat::Chat;
use saved::{Contents, Saved, save};
use writer::{End, Writer};

/// Runs the command.
///
/// # Errors
/// Of the input, of the work, or [`Failure::Interrupted`]; the timings of what was done are printed in each case.
pub fn run(settings: Run) -> Result<(), Failure> {
    let path = settings.model.as_deref();
    let start = Instant::now();
    let gguf = model::open(path)?;
    let opened = start.elapsed();
    let saved = settings.session_file.as_deref().map(Saved::open).transpose()?.flatten();
    check_files(&settings, &gguf)?;
    let held = saved.as_ref().map_or(0, Saved::tokens);
    let prompt = prompt(&settings, saved.as_ref(), model::example(path, &gguf)?)?;
    let busy = settings.profile.as_ref().and_then(|_| load::warning(settings.device.threads()));
    let start = Instant::now();
    let engine = model::load(&gguf, path, &settings.device)?;
    let timings = Timings { load: opened + start.elapsed(), ..Timings::default() };
    model::introduce(&engine, path);
    busy.iter().for_each(|busy| eprintln!("warning: {busy}"));

    let name = model::name(path);
    let tokenizer = engine.tokenizer().map_err(|error| model::failure(error, &name))?;
    let mut job = match &settings.chat {
        Some(chat) => {
            let messages = saved.as_ref().map_or(Ok(Vec::new()), Saved::messages)?;
            Job::Chat(
                Box::new(Chat::new(chat, messages, gguf.metadata(), tokenizer, &name)?),
                prompt.map(|prompt| prompt.text),
            )
        }
        None => Job::Prompt(encode(tokenizer, prompt.as_ref(), held > 0)?),
    };
    let context = context(&settings, &job, held, engine.info().context)?;
    let sampler = Sampler::new(settings.sampling.options(gguf.metadata(), context)?).or_input(&name)?;
    let options = settings.session.with_context(context);
    let told = settings
        .session_file
        .as_ref()
        .map(|file| saved.as_ref().map_or_else(|| format!("new, in {}", file.display()), Saved::describe));
    let (session, pending) = match saved {
        Some(saved) => {
            model::warn_beyond_training(&engine, context);
            saved.restore(&engine, options)?
        }
        None => (model::session(&engine, options, "--ctx-size")?, Vec::new()),
    };
    told.iter().for_each(|told| eprintln!("session: {told}"));
    let history = [session.tokens(), &pending].concat();
    let (predict, ignore_eos) = (settings.predict, settings.ignore_eos);
    let watched = settings.profile.is_some() || settings.record_routing.is_some();
    let profiler = watched.then(|| Profiler::new(&engine));
    // Until here there is nothing to be finished: Ctrl-C ends the process as it does any other.
    let interrupt = Interrupt::catch();
    let stop = interrupt.flag().clone();
    let is_gpu = ["cuda:", "wgpu:"].iter().any(|gpu| engine.device().info().id.starts_with(gpu));
    let at_first = if is_gpu { "kernels are compiled when they are first used" } else { "" };
    let mut writer =
        Writer { session, sampler, tokenizer, history, predict, ignore_eos, stop, timings, at_first, profiler };
    let end = job.run(&mut writer, &interrupt);
    eprintln!("{}", writer.timings);
    // Whatever ended the text, and whichever file cannot be written: the others are.
    let told = if writer.prompt_is_read() { tell(&settings, &writer, busy, &interrupt) } else { Ok(()) };
    let saved = match (&settings.session_file, &end) {
        // The work may have failed in the middle of a chunk.
        (None, _) | (Some(_), Err(Failure::Work(_))) => Ok(()),
        (Some(_), _) if writer.session.is_empty() => Ok(()),
        (Some(file), _) => save(file, &job.contents(&writer), &interrupt),
    };
    saved.and(told).and(end)
}

/// That every file can be written, and for itself: before anything is computed in vain.
fn check_files(settings: &Run, gguf: &Gguf) -> Result<(), Failure> {
    let profile = settings.profile.as_ref().and_then(Option::as_deref);
    let outputs = [
        ("--session", settings.session_file.as_deref()),
        ("--profile", profile),
        ("--record-routing", settings.record_routing.as_deref()),
    ];
    let inputs = model::files(gguf).chain(settings.prompt.file().map(|path| ("the prompt", path)));
    output::check(outputs.into_iter().filter_map(|(flag, path)| Some((flag, path?))), inputs)
}

/// Says and writes what was to be found out about the prompt.
fn tell(settings: &Run, writer: &Writer, busy: Option<String>, interrupt: &Interrupt) -> Result<(), Failure> {
    let Some(profiler) = &writer.profiler else { return Ok(()) };
    let mut profiled = Ok(());
    if let Some(file) = &settings.profile {
        let name = model::name(settings.model.as_deref());
        let mut profile = profiler.profile(name, writer.timings.prefill.tokens, writer.session.chunk());
        profile.warnings.extend(busy);
        eprintln!("\n{}", profile.table());
        profiled = file.as_deref().map_or(Ok(()), |file| profile.write(file, interrupt));
    }
    let recorded = settings.record_routing.as_deref().map_or(Ok(()), |file| profiler.write_routing(file, interrupt));
    profiled.and(recorded)
}

/// What is to be done.
enum Job {
    /// Continue these ids behind those that the session holds.
    Prompt(Vec<u32>),
    /// Chat; the first message may be known.
    Chat(Box<Chat>, Option<String>),
}

impl Job {
    fn run(&mut self, writer: &mut Writer, interrupt: &Interrupt) -> Result<(), Failure> {
        match self {
            Job::Prompt(ids) => continue_prompt(writer, ids),
            Job::Chat(chat, first) => chat.run(writer, interrupt, first.take()),
        }
    }

    /// What to save when it is done.
    fn contents<'a>(&'a self, writer: &'a Writer) -> Contents<'a> {
        let session = &writer.session;
        match self {
            Job::Prompt(_) => Contents { session, pending: &writer.history[session.len()..], messages: None },
            Job::Chat(chat, _) => Contents { session, pending: &[], messages: Some(&chat.messages) },
        }
    }
}

/// The text to begin with: none where a chat reads it line by line, or where a saved session goes on as it is.
fn prompt(settings: &Run, saved: Option<&Saved>, example: Option<&str>) -> Result<Option<Prompt>, Failure> {
    if settings.chat.is_some() {
        return match settings.prompt {
            Source::Unsaid => Ok(None),
            _ => settings.prompt.read(None).map(Some),
        };
    }
    saved.map_or(Ok(()), Saved::expect_no_chat)?;
    settings.prompt.note_unread();
    match saved {
        Some(saved) if saved.tokens() > 0 => Ok(Some(settings.prompt.read(Some(""))?).filter(|prompt| !prompt.example)),
        _ => settings.prompt.read(example).map(Some),
    }
}

/// Writes the continuation of `ids`.
fn continue_prompt(writer: &mut Writer, ids: &[u32]) -> Result<(), Failure> {
    let prompt = [&writer.history, ids].concat();
    let logits = writer.read(prompt, None)?;
    match writer.write_answer(logits)?.1 {
        End::Interrupted => Err(Failure::Interrupted),
        _ => Ok(()),
    }
}

/// The ids of the prompt. An example is shown, so that its continuation reads on. Behind a saved session there may be none,
/// and no BOS comes before them.
fn encode(tokenizer: &Tokenizer, prompt: Option<&Prompt>, saved: bool) -> Result<Vec<u32>, Failure> {
    let Some(prompt) = prompt else { return Ok(Vec::new()) };
    let ids = match saved {
        true => tokenizer.encode(&prompt.text, Special::Parse).or_input("the prompt")?,
        false => tokenizer.encode_prompt(&prompt.text, Special::Parse).or_input("the prompt")?,
    };
    if ids.is_empty() {
        return Err(Failure::input("the prompt is empty"));
    }
    if prompt.example {
        eprintln!("no prompt given; continuing the model's own example:");
        ending(&prompt.text).lines().for_each(|line| eprintln!("{}", one_line(line)));
        eprintln!();
    }
    Ok(ids)
}

/// The last lines of a text, enough to see what is being continued.
fn ending(text: &str) -> &str {
    const LINES: usize = 3;
    text.rmatch_indices('\n').nth(LINES - 1).map_or(text, |(at, _)| &text[at + 1..])
}

/// Tokens that the session needs room for: checked here against the prompt, so that nothing is computed in vain.
fn context(settings: &Run, job: &Job, held: usize, trained: usize) -> Result<usize, Failure> {
    let (prompt, wanted) = match job {
        Job::Chat(..) => (held, CHAT_CONTEXT.max(held)),
        Job::Prompt(ids) => {
            let prompt = held.saturating_add(ids.len());
            (prompt, settings.predict.map_or(usize::MAX, |predict| prompt.saturating_add(predict)))
        }
    };
    let what = match (held, job) {
        (0, _) => "the prompt has",
        (_, Job::Chat(..)) => "the saved chat has",
        (_, Job::Prompt(_)) => "the saved session and the prompt have",
    };
    settings.context.tokens(what, prompt, wanted, trained)
}
