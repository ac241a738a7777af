//! What is said on standard error while commands work, and of `argon run` after it.

use std::cell::Cell;
use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::words::counted;

/// A bar over the tokens of a prompt with speed and time left. It comes when the prompt has taken a moment already, also where
/// its first chunk is not through yet, and never where standard error is no terminal.
pub struct PrefillBar {
    bar: ProgressBar,
    start: Instant,
    /// Milliseconds until the last tokens were through: what its speed is of.
    through: Arc<AtomicU64>,
    /// Dropped when the prompt is through.
    going_on: Sender<()>,
    /// Shows the bar in a moment; where the system has no thread for it, nobody does.
    shows: Option<JoinHandle<()>>,
}

/// A prompt that is read in less needs no bar.
const MOMENT: Duration = Duration::from_millis(500);

/// How often a bar is drawn where nothing else has it drawn.
const TICK: Duration = Duration::from_millis(250);

impl PrefillBar {
    /// A bar over `tokens` tokens, not yet drawn; `at_first` is said until some are through.
    pub fn new(tokens: usize, at_first: &'static str) -> Self {
        const TEMPLATE: &str = "prefill [{wide_bar}] {pos}/{len} tokens  {rate}";
        let style = ProgressStyle::with_template(TEMPLATE).expect("a constant template");
        let through = Arc::new(AtomicU64::new(0));
        let until = through.clone();
        let style = style.with_key("rate", move |state: &ProgressState, out: &mut dyn fmt::Write| {
            let elapsed = Duration::from_millis(until.load(Ordering::Relaxed));
            let _ = match state.pos() {
                0 => out.write_str(at_first),
                done => write!(out, "{}", rate(done, state.len().unwrap_or(0), elapsed)),
            };
        });
        let bar = ProgressBar::with_draw_target(Some(tokens as u64), ProgressDrawTarget::hidden());
        bar.set_style(style.progress_chars("=> "));
        let (going_on, over) = mpsc::channel();
        let shown = bar.clone();
        let show = move || {
            if over.recv_timeout(MOMENT) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
            }
        };
        let shows = thread::Builder::new().spawn(show).ok();
        Self { bar, start: Instant::now(), through, going_on, shows }
    }

    /// The work of `tokens` tokens is done in all.
    pub fn set(&self, tokens: usize) {
        self.through.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.bar.set_position(tokens as u64);
    }

    /// Leaves the bar as it is, on a line of its own.
    pub fn leave(self) {
        drop(self.going_on);
        // It cannot have failed, and there would be no bar then.
        let _ = self.shows.map(JoinHandle::join);
        self.bar.abandon();
        if !self.bar.is_hidden() {
            eprintln!();
        }
    }
}

/// How far a list of cases is: a bar that names the one at hand, or, where standard error is no terminal, a line now and then.
pub struct Cases {
    bar: ProgressBar,
    said: Cell<Instant>,
}

/// How long a reader of a log waits for a line.
const SILENCE: Duration = Duration::from_secs(10);

impl Cases {
    /// Of so many.
    pub fn new(all: usize) -> Self {
        const TEMPLATE: &str = "{pos}/{len}  {wide_msg}";
        let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("a constant template"));
        Self { bar, said: Cell::new(Instant::now()) }
    }

    /// The next one begins.
    pub fn begin(&self, case: &str) {
        self.bar.set_message(case.to_owned());
        if self.bar.is_hidden() && self.said.get().elapsed() > SILENCE {
            self.said.set(Instant::now());
            eprintln!("{}/{}  {case}", self.bar.position(), self.bar.length().unwrap_or(0));
        }
    }

    /// One is over.
    pub fn end(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Speed so far, of one token at least, and the time that is left at this speed.
fn rate(done: u64, all: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds == 0.0 {
        return String::new();
    }
    let speed = done as f64 / seconds;
    match all.saturating_sub(done) {
        0 => format!("{speed:.1} tokens/s"),
        left => format!("{speed:.1} tokens/s, {:.0} s left", (left as f64 / speed).ceil()),
    }
}

/// How long the parts of a run took.
#[derive(Debug, Default)]
pub struct Timings {
    /// Opening the file and readying the weights.
    pub load: Duration,
    /// The prompt's way through the model.
    pub prefill: Phase,
    /// Tokens of text that were generated.
    pub generated: usize,
    /// Their way through the model, one at a time. The first of a text is chosen from the prompt's logits and the last is
    /// not needed for another, so N tokens of one text are N - 1 steps.
    pub steps: Phase,
}

/// Tokens that went through the model, and the time that took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phase {
    /// How many.
    pub tokens: usize,
    /// How long.
    pub time: Duration,
}

impl AddAssign for Phase {
    fn add_assign(&mut self, more: Phase) {
        self.tokens += more.tokens;
        self.time += more.time;
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        write!(f, "{} in {seconds:.2} s", counted(self.tokens, "token"))?;
        if self.tokens > 0 && seconds > 0.0 {
            write!(f, ", {:.1} tokens/s", self.tokens as f64 / seconds)?;
        }
        Ok(())
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "load      {:.2} s", self.load.as_secs_f64())?;
        writeln!(f, "prefill   {}", self.prefill)?;
        write!(f, "generate  {}", counted(self.generated, "token"))?;
        let seconds = self.steps.time.as_secs_f64();
        if self.steps.tokens > 0 && seconds > 0.0 {
            let speed = self.steps.tokens as f64 / seconds;
            write!(f, ", those after the first in {seconds:.2} s, {speed:.1} tokens/s")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_what_is_done() {
        let second = Duration::from_secs(1);
        assert_eq!(rate(1, 500, Duration::ZERO), "");
        assert_eq!(rate(100, 500, second), "100.0 tokens/s, 4 s left");
        assert_eq!(rate(500, 500, 2 * second), "250.0 tokens/s");
    }

    #[test]
    fn timings_read_well() {
        let phase = |tokens, ms| Phase { tokens, time: Duration::from_millis(ms) };
        let load = Duration::from_millis(120);
        let told = |prefill, generated, steps| Timings { load, prefill, generated, steps }.to_string();
        assert_eq!(
            told(phase(512, 2000), 17, phase(16, 500)),
            "load      0.12 s\nprefill   512 tokens in 2.00 s, 256.0 tokens/s\n\
             generate  17 tokens, those after the first in 0.50 s, 32.0 tokens/s"
        );
        assert!(
            told(phase(1, 500), 1, phase(0, 0))
                .ends_with("prefill   1 token in 0.50 s, 2.0 tokens/s\ngenerate  1 token")
        );
        assert!(told(phase(0, 0), 0, phase(0, 0)).ends_with("prefill   0 tokens in 0.00 s\ngenerate  0 tokens"));
    }
}
