//! A session that reads prompts and writes their continuations.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use argon_engine::sampler::Sampler;
use argon_engine::tokenizer::Tokenizer;
use argon_engine::{EngineError, Logits, LogitsOut, Progress, Session};

use crate::failure::{Failure, OrFail, stdout_failure};
use crate::measure::profile::Profiler;
use crate::model;
use crate::progress::{Phase, PrefillBar, Timings};
use crate::words::counted;

/// How a continuation came to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// By an end-of-text token.
    Said,
    /// There are as many tokens as were asked for.
    Limit,
    /// There is no room for more.
    ContextFull,
    /// By Ctrl-C.
    Interrupted,
}

/// A prompt on its way through the model, and what follows it.
pub struct Writer<'a> {
    /// What the model has read.
    pub session: Session,
    /// Chooses the next token.
    pub sampler: Sampler,
    /// The model's.
    pub tokenizer: &'a Tokenizer,
    /// The ids so far, prompt and continuation; of the last ones the session may not know yet.
    pub history: Vec<u32>,
    /// Tokens to generate at most for one prompt; as many as fit where absent.
    pub predict: Option<usize>,
    /// Whether an end-of-text token is a token like any other.
    pub ignore_eos: bool,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    /// How long everything took, all prompts together.
    pub timings: Timings,
    /// What is said of a prompt that takes its time while none of it is through.
    pub at_first: &'static str,
    /// Who watches the prompts.
    pub profiler: Option<Profiler>,
}

impl Writer<'_> {
    /// Makes `prompt` the history and takes through the model what it has not read of it; the logits are those of the
    /// last token. With `mark`, remembers the place behind so many tokens of the prompt.
    pub fn read(&mut self, prompt: Vec<u32>, mark: Option<usize>) -> Result<LogitsOut, Failure> {
        self.history = prompt;
        let kept = self.session.keep(&self.history).map_err(|error| model::failure(error, "prefill"))?;
        let bar = PrefillBar::new(self.history.len() - kept, self.at_first);
        let start = Instant::now();
        self.profiler.iter_mut().for_each(Profiler::start);
        let logits = self.read_from(kept, mark, &bar);
        let watched = self.profiler.as_mut().map_or(Ok(()), Profiler::stop);
        bar.leave();
        self.timings.prefill += Phase { tokens: self.session.len() - kept, time: start.elapsed() };
        let logits = logits?;
        watched.or_work("prefill")?;
        Ok(logits)
    }

    /// Whether the model has read the whole prompt.
    pub fn prompt_is_read(&self) -> bool {
        self.timings.generated > 0 || self.session.len() == self.history.len()
    }

    fn read_from(&mut self, kept: usize, mark: Option<usize>, bar: &PrefillBar) -> Result<LogitsOut, Failure> {
        let (history, session, stop) = (&self.history, &mut self.session, &self.stop);
        let profiler = &mut self.profiler;
        let mut prefill = |session: &mut Session, to: usize, logits| {
            let from = session.len();
            let mut progress = |progress: Progress| {
                bar.set(from - kept + progress.work());
                if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            match profiler {
                Some(profiler) => session.prefill_watched(&history[from..to], logits, &mut progress, profiler),
                None => session.prefill(&history[from..to], logits, &mut progress),
            }
        };
        if let Some(mark) = mark.filter(|mark| (kept..history.len()).contains(mark)) {
            let marked = prefill(session, mark, Logits::None).and_then(|_| session.mark());
            marked.map_err(|error| engine_failure(error, "prefill"))?;
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
        }
        expect_logits(prefill(session, history.len(), Logits::Last), "prefill")
    }

    /// Writes the continuation to standard output, and a newline where it ends, and says why it ends if the model would
    /// go on.
    pub fn write_answer(&mut self, logits: LogitsOut) -> Result<(String, End), Failure> {
        let mut out = io::stdout().lock();
        let answer = self.generate(&mut out, logits);
        let newline = write(&mut out, "\n");
        let answer = answer?;
        newline?;
        match (answer.1, self.predict) {
            (End::ContextFull, _) => eprintln!("the context of {} tokens is full (-c)", self.session.context()),
            (End::Limit, Some(limit)) if limit > 0 => {
                eprintln!("stopped at the limit of {} (-n)", counted(limit, "token"));
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Writes the continuation to `out`, token by token, and gives it back.
    fn generate(&mut self, out: &mut impl Write, mut logits: LogitsOut) -> Result<(String, End), Failure> {
        let (mut decoder, mut text) = (self.tokenizer.stream_decoder(), String::new());
        let mut say = |piece: &str| {
            text.push_str(piece);
            write(out, piece)
        };
        let mut left = self.predict.unwrap_or(usize::MAX);
        let mut end = End::Limit;
        while left > 0 {
            let id = self.sampler.sample(logits.last(), &self.history).or_work("sampling")?;
            if !self.ignore_eos && self.tokenizer.is_end_of_generation(id) {
                end = End::Said;
                break;
            }
            say(&decoder.push(id).or_work("decoding")?)?;
            self.history.push(id);
            self.timings.generated += 1;
            left -= 1;
            if self.stop.load(Ordering::Relaxed) {
                end = End::Interrupted;
                break;
            }
            if left > 0 && self.session.len() == self.session.context() {
                end = End::ContextFull;
                break;
            }
            if left > 0 {
                logits = self.step(id)?;
            }
        }
        if matches!(end, End::Said | End::Limit) {
            say(&decoder.finish())?;
        }
        Ok((text, end))
    }

    /// Takes one generated token through the model.
    fn step(&mut self, id: u32) -> Result<LogitsOut, Failure> {
        let start = Instant::now();
        let logits = self.session.prefill(&[id], Logits::Last, &mut |_| ControlFlow::Continue(()));
        self.timings.steps += Phase { tokens: 1, time: start.elapsed() };
        expect_logits(logits, "generation")
    }
}

/// The logits that were asked for; `doing` is what an error happened in.
fn expect_logits(logits: Result<Option<LogitsOut>, EngineError>, doing: &str) -> Result<LogitsOut, Failure> {
    let logits = logits.map_err(|error| engine_failure(error, doing))?;
    logits.ok_or_else(|| Failure::work("the model gave no logits"))
}

fn engine_failure(error: EngineError, doing: &str) -> Failure {
    match error {
        EngineError::Stopped { .. } => Failure::Interrupted,
        error => model::failure(error, doing),
    }
}

/// Writes at once, so that a reader sees each token when it is there.
fn write(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(stdout_failure)
}
