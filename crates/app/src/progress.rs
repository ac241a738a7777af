//! What `argon run` says on standard error while and after it works.

use std::fmt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar over the tokens of a prompt with speed and time left; nothing is drawn where standard error is no terminal.
pub struct PrefillBar(ProgressBar);

impl PrefillBar {
    /// A bar over `tokens` tokens, drawn at once.
    pub fn new(tokens: usize) -> Self {
        const TEMPLATE: &str = "prefill [{bar:32}] {pos}/{len} tokens  {rate} tokens/s  {eta} left";
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{:.1}", state.per_sec());
        };
        let style = ProgressStyle::with_template(TEMPLATE).expect("a constant template").with_key("rate", rate);
        let bar = ProgressBar::with_draw_target(Some(tokens as u64), ProgressDrawTarget::stderr());
        bar.set_style(style.progress_chars("=> "));
        bar.tick();
        Self(bar)
    }

    /// `tokens` tokens are done in all.
    pub fn set(&self, tokens: usize) {
        self.0.set_position(tokens as u64);
    }

    /// Takes the bar away.
    pub fn finish(self) {
        self.0.finish_and_clear();
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
    fn timings_read_well() {
        let phase = |tokens, ms| Phase { tokens, time: Duration::from_millis(ms) };
        let timings = Timings { load: Duration::from_millis(120), prefill: phase(512, 2000), generate: phase(0, 0) };
        let text = "load      0.12 s\nprefill   512 tokens in 2.00 s, 256.0 tokens/s\ngenerate  0 tokens in 0.00 s";
        assert_eq!(timings.to_string(), text);
    }
}
