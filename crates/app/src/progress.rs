//! What `argon run` says on standard error while and after it works.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar over the tokens of a prompt with speed and time left; nothing is drawn where standard error is no terminal.
pub struct PrefillBar(ProgressBar);

impl PrefillBar {
    /// A bar over `tokens` tokens, drawn at once.
    pub fn new(tokens: usize) -> Self {
        const TEMPLATE: &str = "prefill [{bar:32}] {pos}/{len} tokens  {rate}";
        let style = ProgressStyle::with_template(TEMPLATE).expect("a constant template");
        let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}", rate(state.pos(), state.len().unwrap_or(0), state.elapsed()));
        });
        let bar = ProgressBar::with_draw_target(Some(tokens as u64), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.tick();
        Self(bar)
    }

    /// The work of `tokens` tokens is done in all.
    pub fn set(&self, tokens: usize) {
        self.0.set_position(tokens as u64);
    }

    /// Leaves the bar as it is, on a line of its own.
    pub fn leave(self) {
        self.0.abandon();
        if !self.0.is_hidden() {
            eprintln!();
        }
    }
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
    /// The generated tokens' way through the model, one at a time. The first of them is chosen from the prompt's logits
    /// and the last is not needed for another, so N tokens of text are N - 1 here.
    pub generate: Phase,
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
        write!(f, "{} tokens in {seconds:.2} s", self.tokens)?;
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
        write!(f, "generate  {}", self.generate)
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
        let timings = Timings { load: Duration::from_millis(120), prefill: phase(512, 2000), generate: phase(0, 0) };
        let text = "load      0.12 s\nprefill   512 tokens in 2.00 s, 256.0 tokens/s\ngenerate  0 tokens in 0.00 s";
        assert_eq!(timings.to_string(), text);
    }
}
