//! `argon perplexity`: how well a model foretells a text, by the definition of `llama-perplexity`.
//!
//! The ids of the whole text are cut into windows of `-c` tokens; what is left at the end is not used. Each window goes
//! through the model alone, its first token replaced by BOS where the file asks for BOS. Of every token of its second
//! half but the first one, the negative logarithm of the probability counts. Perplexity is the exponential of their mean,
//! its error the standard error of that mean times the perplexity.

use std::io::{self, Write};
use std::ops::ControlFlow;

use argon_engine::compare::log_softmax;
use argon_engine::tokenizer::{Special, Tokenizer};
use argon_engine::{EngineError, Logits, Session};

use crate::failure::{Failure, OrFail, stdout_failure};
use crate::model;
use crate::prompt::Source;
use crate::settings;

/// Tokens whose logits are held at a time: a row is a whole vocabulary.
const ROWS: usize = 256;

/// Runs the command: a line per window on standard error, the estimate on standard output.
///
/// # Errors
/// Of the input, or of the work.
pub fn run(settings: settings::Perplexity) -> Result<(), Failure> {
    let path = settings.model.as_deref();
    let text = Source::from_file(settings.text).read(None)?.text;
    let gguf = model::open(path)?;
    let engine = model::load(&gguf, path, &settings.device)?;
    model::introduce(&engine, path);
    let tokenizer = engine.tokenizer().map_err(|error| model::failure(error, &model::name(path)))?;
    let tokens = tokenizer.encode_prompt(&text, Special::AsText).or_input("the text")?;
    let windows = windows(&tokens, settings.window)?.take(settings.windows.unwrap_or(usize::MAX));
    let options = settings.session.with_context(settings.window);
    let mut session = model::session(&engine, options, "--ctx-size")?;
    let mut losses = Losses::default();
    let all = windows.len();
    for (i, window) in windows.enumerate() {
        read_window(&mut session, tokenizer, window, &mut losses)
            .map_err(|error| model::failure(error, &format!("window {}", i + 1)))?;
        if !losses.sum.is_finite() {
            return Err(Failure::work(format_args!("window {}: the model's logits are not numbers", i + 1)));
        }
        eprintln!("[{}/{all}] {:.4}", i + 1, losses.perplexity());
    }
    let error = losses.error().map(|error| format!(" +/- {error:.5}")).unwrap_or_default();
    let mut out = io::stdout().lock();
    writeln!(out, "Final estimate: PPL = {:.4}{error}", losses.perplexity()).map_err(stdout_failure)
}

/// The whole windows of a text; as many tokens as two of them have are the least that says anything.
fn windows(tokens: &[u32], length: usize) -> Result<std::slice::ChunksExact<'_, u32>, Failure> {
    if tokens.len() < 2 * length {
        return Err(Failure::input(format_args!(
            "the text has {} tokens; two windows of {length} (-c) need {}",
            tokens.len(),
            2 * length
        )));
    }
    Ok(tokens.chunks_exact(length))
}

/// Takes a window through the model and counts what its second half loses.
fn read_window(
    session: &mut Session,
    tokenizer: &Tokenizer,
    window: &[u32],
    losses: &mut Losses,
) -> Result<(), EngineError> {
    let mut tokens = window.to_vec();
    if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos()) {
        tokens[0] = bos;
    }
    let half = tokens.len() / 2;
    let go_on = &mut |_| ControlFlow::Continue(());
    session.reset()?;
    session.prefill(&tokens[..half], Logits::None, go_on)?;
    // The last token foretells one of the next window.
    for start in (half..tokens.len() - 1).step_by(ROWS) {
        let end = (start + ROWS).min(tokens.len() - 1);
        let logits = session.prefill(&tokens[start..end], Logits::All, go_on)?;
        for (row, &next) in logits.iter().flat_map(|logits| logits.rows()).zip(&tokens[start + 1..]) {
            losses.add(-log_softmax(row)[next as usize]);
        }
    }
    Ok(())
}

/// Negative logarithms of probabilities.
#[derive(Debug, Default)]
struct Losses {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Losses {
    fn add(&mut self, loss: f64) {
        self.count += 1;
        self.sum += loss;
        self.squares += loss * loss;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// Standard error of the perplexity; a single token has none.
    fn error(&self) -> Option<f64> {
        let variance = (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0);
        (self.count > 1).then(|| (variance / (self.count as f64 - 1.0)).sqrt() * self.perplexity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_perplexity_of_known_probabilities() {
        let mut losses = Losses::default();
        for probability in [0.5f64, 0.125, 0.5, 0.125] {
            losses.add(-probability.ln());
        }
        // Losses of 1 and 3 bits: mean 2 bits, standard deviation 1 bit, standard error 1 / sqrt(3) bit.
        assert!((losses.perplexity() - 4.0).abs() < 1e-12); // a few roundings of f64
        assert!((losses.error().unwrap() - 4.0 * 2f64.ln() / 3f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_single_token_has_no_error() {
        let mut losses = Losses::default();
        losses.add(1.0);
        assert_eq!(losses.error(), None);
    }

    #[test]
    fn whole_windows_and_two_of_them_at_least() {
        let tokens: Vec<u32> = (0..11).collect();
        let starts: Vec<u32> = windows(&tokens, 4).unwrap().map(|window| window[0]).collect();
        assert_eq!(starts, [0, 4]);
        let Err(Failure::Input(error)) = windows(&tokens, 6) else { panic!("accepted") };
        assert_eq!(error.to_string(), "the text has 11 tokens; two windows of 6 (-c) need 12");
    }
}
