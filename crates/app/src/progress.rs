//! What is said on standard error while commands work, and of `argon run` after it.

use std::cell::OnceCell;
use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::words::counted;

/// A bar over the tokens of a prompt with speed and time left. It comes when the prompt has taken a moment already, and
/// never where standard error is no terminal.
pub struct PrefillBar {
    tokens: usize,
    start: Instant,
    bar: OnceCell<ProgressBar>,
}

/// A prompt that is read in less needs no bar.
const MOMENT: Duration = Duration::from_millis(500);

impl PrefillBar {
    /// A bar over `tokens` tokens, not yet drawn.
    pub fn new(tokens: usize) -> Self {
        Self { tokens, start: Instant::now(), bar: OnceCell::new() }
    }

    /// The work of `tokens` tokens is done in all.
    pub fn set(&self, tokens: usize) {
        let elapsed = self.start.elapsed();
        if elapsed > MOMENT {
            self.bar.get_or_init(|| bar(self.tokens, elapsed)).set_position(tokens as u64);
        }
    }

    /// Leaves the bar as it is, on a line of its own.
    pub fn leave(self) {
        let Some(bar) = self.bar.into_inner() else { return };
        bar.abandon();
        if !bar.is_hidden() {
            eprintln!();
        }
    }
}

fn bar(tokens: usize, elapsed: Duration) -> ProgressBar {
    const TEMPLATE: &str = "prefill [{bar:32}] {pos}/{len} tokens  {rate}";
    let style = ProgressStyle::with_template(TEMPLATE).expect("a constant template");
    let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{}", rate(state.pos(), state.len().unwrap_or(0), state.elapsed()));
    });
    let bar = ProgressBar::with_draw_target(Some(tokens as u64), ProgressDrawTarget::stderr()).with_elapsed(elapsed);
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// A bar over so many cases that names the one at hand; nothing is drawn where standard error is no terminal.
pub fn cases(all: usize) -> ProgressBar {
    const TEMPLATE: &str = "{pos}/{len}  {wide_msg}";
    let bar = ProgressBar::with_draw_target(Some(all as u64), ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template(TEMPLATE).expect("a constant template"));
    bar
}

/// Speed so far, and the time that is left at this speed.
fn rate(done: u64, all: u64, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if done == 0 || seconds == 0.0 {
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
        assert_eq!(rate(0, 500, second), "");
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
