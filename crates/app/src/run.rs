//! `argon run`: prefill a prompt, continue it, say how fast.
//!
//! Standard output gets the continuation and nothing else; everything about the run goes to standard error.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use argon_engine::sampler::Sampler;
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_engine::{Engine, EngineError, Logits, LogitsOut, Session};

use crate::failure::{Failure, OrFail, stdout_failure};
use crate::model;
use crate::progress::{Phase, PrefillBar, Timings};
use crate::prompt::Prompt;
use crate::settings::{Context, Run};

/// Runs the command.
///
/// # Errors
/// Of the input, of the work, or [`Failure::Interrupted`]; the timings of what was done are printed in each case.
pub fn run(settings: Run) -> Result<(), Failure> {
    let stop = stop_on_ctrl_c()?;
    let path = settings.model.as_deref();
    let start = Instant::now();
    let gguf = model::open(path)?;
    let opened = start.elapsed();
    let prompt = settings.prompt.read(model::example(path, &gguf)?)?;
    let start = Instant::now();
    let engine = model::load(&gguf, path, &settings.device)?;
    let timings = Timings { load: opened + start.elapsed(), ..Timings::default() };
    introduce(&engine, path);

    let tokenizer = engine.tokenizer().map_err(|error| model::failure(error, &model::name(path)))?;
    let tokens = encode(tokenizer, &prompt)?;
    let context = context(&settings, tokens.len(), engine.info().context)?;
    let sampler = Sampler::new(settings.sampling.options(gguf.metadata(), context)?).or_input(model::name(path))?;
    let options = settings.session.with_context(context);
    let session = engine.session(options).map_err(|error| model::failure(error, "a session"))?;

    let mut writer = Writer { session, sampler, tokenizer, history: tokens, stop, timings };
    let end = writer.prefill().and_then(|logits| writer.generate(logits, &settings));
    eprintln!("{}", writer.timings);
    end
}

/// A flag that Ctrl-C sets; a second Ctrl-C ends the process at once.
pub fn stop_on_ctrl_c() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })
    .or_work("catching Ctrl-C")?;
    Ok(stop)
}

/// One line on what runs, and the loader's warnings.
fn introduce(engine: &Engine, path: Option<&Path>) {
    let (info, device) = (engine.info(), engine.device().info());
    eprintln!(
        "{}: {}, {} layers, {} of {} experts per token; {} ({}), precision {}",
        model::name(path),
        info.architecture,
        info.layers,
        info.experts_used,
        info.experts,
        device.id,
        device.name,
        info.precision.name(),
    );
    for warning in &info.warnings {
        eprintln!("warning: {warning}");
    }
}

/// The ids of the prompt; at least one. An example is shown, so that its continuation reads on.
fn encode(tokenizer: &Tokenizer, prompt: &Prompt) -> Result<Vec<u32>, Failure> {
    let ids = tokenizer.encode_prompt(&prompt.text, Special::Parse).or_input("the prompt")?;
    if ids.is_empty() {
        return Err(Failure::input("the prompt is empty"));
    }
    if prompt.example {
        eprintln!("no prompt given; continuing the model's own example:\n{}\n", ending(&prompt.text));
    }
    Ok(ids)
}

/// The last lines of a text, enough to see what is being continued.
fn ending(text: &str) -> &str {
    const LINES: usize = 3;
    text.rmatch_indices('\n').nth(LINES - 1).map_or(text, |(at, _)| &text[at + 1..])
}

/// Tokens that the session needs room for: checked here against the prompt, so that nothing is computed in vain.
fn context(settings: &Run, prompt: usize, trained: usize) -> Result<usize, Failure> {
    let context = match settings.context {
        Context::Tokens(tokens) => tokens,
        Context::Trained => trained,
        Context::Needed => match settings.predict {
            Some(predict) => prompt.saturating_add(predict).min(trained),
            None => trained,
        },
    };
    if prompt > context {
        return Err(Failure::input(format_args!(
            "the prompt has {prompt} tokens, the context room for {context} (-c)"
        )));
    }
    if context > trained {
        eprintln!("warning: the context of {context} tokens is beyond the {trained} that the model was trained for");
    }
    Ok(context)
}

/// How a continuation came to its end.
enum End {
    /// By an end-of-text token, or by as many tokens as were asked for.
    Said,
    /// There is no room for more.
    ContextFull,
    /// By Ctrl-C.
    Interrupted,
}

/// A prompt on its way through the model, and what follows it.
struct Writer<'a> {
    session: Session,
    sampler: Sampler,
    tokenizer: &'a Tokenizer,
    /// The ids so far, prompt and continuation.
    history: Vec<u32>,
    stop: Arc<AtomicBool>,
    timings: Timings,
}

impl Writer<'_> {
    /// Takes the prompt through the model; the logits are those of its last token.
    fn prefill(&mut self) -> Result<LogitsOut, Failure> {
        let bar = PrefillBar::new(self.history.len());
        let (stop, start) = (&self.stop, Instant::now());
        let logits = self.session.prefill(&self.history, Logits::Last, &mut |progress| {
            bar.set(progress.work());
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.leave();
        self.timings.prefill = Phase { tokens: self.session.len(), time: start.elapsed() };
        expect_logits(logits)
    }

    /// Writes the continuation, and a newline where it ends.
    fn generate(&mut self, logits: LogitsOut, settings: &Run) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let end = self.generate_tokens(&mut out, logits, settings)?;
        write(&mut out, "\n")?;
        match end {
            End::Said => Ok(()),
            End::ContextFull => {
                eprintln!("the context of {} tokens is full", self.session.context());
                Ok(())
            }
            End::Interrupted => Err(Failure::Interrupted),
        }
    }

    /// Writes the continuation token by token.
    fn generate_tokens(&mut self, out: &mut impl Write, mut logits: LogitsOut, settings: &Run) -> Result<End, Failure> {
        let mut text = self.tokenizer.stream_decoder();
        let mut left = settings.predict.unwrap_or(usize::MAX);
        while left > 0 {
            let id = self.sampler.sample(logits.last(), &self.history).or_work("sampling")?;
            if !settings.ignore_eos && self.tokenizer.is_end_of_generation(id) {
                break;
            }
            write(out, &text.push(id).or_work("decoding")?)?;
            self.history.push(id);
            left -= 1;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(End::Interrupted);
            }
            if left > 0 && self.session.len() == self.session.context() {
                return Ok(End::ContextFull);
            }
            if left > 0 {
                logits = self.step(id)?;
            }
        }
        write(out, &text.finish())?;
        Ok(End::Said)
    }

    /// Takes one generated token through the model.
    fn step(&mut self, id: u32) -> Result<LogitsOut, Failure> {
        let start = Instant::now();
        let logits = self.session.prefill(&[id], Logits::Last, &mut |_| ControlFlow::Continue(()));
        self.timings.generate.tokens += 1;
        self.timings.generate.time += start.elapsed();
        expect_logits(logits)
    }
}

/// The logits that were asked for.
fn expect_logits(logits: Result<Option<LogitsOut>, EngineError>) -> Result<LogitsOut, Failure> {
    match logits {
        Ok(Some(logits)) => Ok(logits),
        Ok(None) => Err(Failure::work("the model gave no logits")),
        Err(EngineError::Stopped { .. }) => Err(Failure::Interrupted),
        Err(error) => Err(model::failure(error, "prefill")),
    }
}

/// Writes at once, so that a reader sees each token when it is there.
fn write(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_failure)
}
