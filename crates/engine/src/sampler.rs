//! Picks the next token from logits.
//!
//! The steps, their meaning and their order are llama.cpp's: repetition penalty, top-k, top-p, min-p, temperature, and a
//! draw from what is left. A temperature of 0 takes the best token after the penalty. The same seed and logits give the
//! same tokens on every machine.

use std::cmp::Ordering;
use std::collections::HashSet;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use thiserror::Error;

/// How to pick. The defaults are llama.cpp's.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits before the draw: below 1 sharpens, above 1 flattens, 0 takes the best token. At least 0.
    pub temperature: f32,
    /// Keeps the `top_k` best tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest best tokens that together have at least this probability; 1 keeps all. From 0 to 1.
    pub top_p: f32,
    /// Keeps the tokens with at least this share of the best one's probability; 0 keeps all. From 0 to 1.
    pub min_p: f32,
    /// Divides the positive and multiplies the negative logits of recent tokens; 1 changes nothing. Above 0.
    pub repeat_penalty: f32,
    /// How many tokens back count as recent.
    pub repeat_last_n: usize,
    /// Begins the sequence of random numbers.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.0, repeat_last_n: 64, seed: 0 }
    }
}

impl SamplerOptions {
    /// The best token, always.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }
}

/// Options or logits that no token can be picked with.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SamplerError {
    /// An option outside its range.
    #[error("{option} is {value}; it must be {range}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: f32,
        /// What it may be.
        range: &'static str,
    },
    /// A logit is NaN or plus infinity: the forward pass went wrong.
    #[error("the logit of token {id} is {value}")]
    Logit {
        /// The token, the first of them.
        id: usize,
        /// `NaN` or `inf`.
        value: String,
    },
    /// There are no logits, or all are minus infinity.
    #[error("no token of {count} has a logit above minus infinity")]
    NoToken {
        /// How many logits there are.
        count: usize,
    },
}

/// Picks tokens by its options, one after the other.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    random: Pcg32,
    /// Kept for its allocation.
    candidates: Vec<Candidate>,
}

/// A token that may still be picked. `f64` holds any penalised `f32` logit without overflow.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f64,
}

impl Candidate {
    /// The better one first, the lower id among equals.
    fn best_first(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.id.cmp(&other.id))
    }
}

impl Sampler {
    /// Checks the options and seeds the random numbers.
    ///
    /// # Errors
    /// [`SamplerError::Option`] names the one that is outside its range.
    pub fn new(options: SamplerOptions) -> Result<Self, SamplerError> {
        let SamplerOptions { temperature, top_p, min_p, repeat_penalty, .. } = options;
        for (option, value, valid, range) in [
            ("temperature", temperature, (0.0..f32::INFINITY).contains(&temperature), "a number of at least 0"),
            ("top_p", top_p, (0.0..=1.0).contains(&top_p), "from 0 to 1"),
            ("min_p", min_p, (0.0..=1.0).contains(&min_p), "from 0 to 1"),
            ("repeat_penalty", repeat_penalty, repeat_penalty > 0.0 && repeat_penalty.is_finite(), "above 0"),
        ] {
            if !valid {
                return Err(SamplerError::Option { option, value, range });
            }
        }
        let random = Pcg32::seed_from_u64(options.seed);
        Ok(Self { options, random, candidates: Vec::new() })
    }

    /// Picks a token.
    ///
    /// `logits [vocabulary]`: of the next token, by id; minus infinity excludes one. `history`: the ids so far, the latest
    /// last; it is read for the repetition penalty only.
    ///
    /// # Errors
    /// [`SamplerError`] for logits that are not numbers or leave no token to pick.
    pub fn sample(&mut self, logits: &[f32], history: &[u32]) -> Result<u32, SamplerError> {
        self.gather(logits)?;
        self.penalise(history);
        if self.options.temperature == 0.0 {
            let best = self.candidates.iter().min_by(|a, b| a.best_first(b));
            return best.map(|best| best.id).ok_or(SamplerError::NoToken { count: logits.len() });
        }
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        self.draw().ok_or(SamplerError::NoToken { count: logits.len() })
    }

    fn gather(&mut self, logits: &[f32]) -> Result<(), SamplerError> {
        if let Some(id) = logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
            return Err(SamplerError::Logit { id, value: logits[id].to_string() });
        }
        self.candidates.clear();
        let possible = (0..).zip(logits).filter(|(_, logit)| **logit != f32::NEG_INFINITY);
        // Adding zero turns -0.0 into 0.0, so that the two are equal in order, too.
        self.candidates.extend(possible.map(|(id, &logit)| Candidate { id, logit: f64::from(logit) + 0.0 }));
        Ok(())
    }

    fn penalise(&mut self, history: &[u32]) {
        let penalty = f64::from(self.options.repeat_penalty);
        let recent = &history[history.len().saturating_sub(self.options.repeat_last_n)..];
        if penalty == 1.0 || recent.is_empty() {
            return;
        }
        let recent: HashSet<u32> = recent.iter().copied().collect();
        for candidate in self.candidates.iter_mut().filter(|candidate| recent.contains(&candidate.id)) {
            // Dividing a negative logit would make its token likelier.
            candidate.logit *= if candidate.logit > 0.0 { penalty.recip() } else { penalty };
        }
    }

    /// Sorts the candidates, the best first, and cuts them to the `top_k` best.
    fn keep_top_k(&mut self) {
        let k = self.options.top_k;
        if k != 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k, Candidate::best_first);
            self.candidates.truncate(k);
        }
        self.candidates.sort_unstable_by(Candidate::best_first);
    }

    /// Cuts the sorted candidates once their probabilities add up to `top_p`.
    fn keep_top_p(&mut self) {
        let top_p = f64::from(self.options.top_p);
        if top_p >= 1.0 {
            return;
        }
        let total: f64 = self.weights(1.0).sum();
        let enough = self.weights(1.0).scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum >= top_p * total)
        });
        let kept = enough.take_while(|enough| !enough).count() + 1;
        self.candidates.truncate(kept);
    }

    /// Cuts off the sorted candidates that have less than `min_p` of the best one's probability.
    fn keep_min_p(&mut self) {
        let min_p = f64::from(self.options.min_p);
        let kept = self.weights(1.0).take_while(|&weight| weight >= min_p).count();
        self.candidates.truncate(kept);
    }

    /// Each sorted candidate's probability at `temperature`, relative to the best one's.
    fn weights(&self, temperature: f64) -> impl Iterator<Item = f64> {
        let best = self.candidates.first().map_or(0.0, |best| best.logit);
        self.candidates.iter().map(move |candidate| ((candidate.logit - best) / temperature).exp())
    }

    /// Draws one of the sorted candidates by its probability.
    fn draw(&mut self) -> Option<u32> {
        let temperature = f64::from(self.options.temperature);
        let total: f64 = self.weights(temperature).sum();
        // 53 random bits: a number from 0 to 1, 1 excluded.
        let mut left = (self.random.next_u64() >> 11) as f64 * 2f64.powi(-53) * total;
        let drawn = self.weights(temperature).position(|weight| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a crumb behind the last candidate.
        let candidate = drawn.map_or(self.candidates.last(), |at| self.candidates.get(at));
        candidate.map(|candidate| candidate.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits whose softmax is these probabilities.
    fn logits(probabilities: &[f32]) -> Vec<f32> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    /// No step but the draw at temperature 1.
    fn plain() -> SamplerOptions {
        SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplerOptions::default() }
    }

    /// How often each id comes up in `draws` draws.
    fn counts(options: SamplerOptions, logits: &[f32], draws: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(options).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..draws {
            counts[sampler.sample(logits, &[]).unwrap() as usize] += 1;
        }
        counts
    }

    /// The ids that ever come up.
    fn possible(options: SamplerOptions, logits: &[f32]) -> Vec<usize> {
        let counts = counts(options, logits, 2000);
        (0..counts.len()).filter(|&id| counts[id] > 0).collect()
    }

    const FIVE: [f32; 5] = [0.1, 0.4, 0.05, 0.25, 0.2];

    #[test]
    fn temperature_zero_takes_the_best_and_the_lower_id_among_equals() {
        let pick = |logits: &[f32]| Sampler::new(SamplerOptions::greedy()).unwrap().sample(logits, &[]);
        assert_eq!(pick(&[1.0, 3.0, 2.0]), Ok(1));
        assert_eq!(pick(&[1.0, 3.0, 3.0, 3.0]), Ok(1));
        assert_eq!(pick(&[-0.0, 0.0]), Ok(0));
        assert_eq!(pick(&[f32::NEG_INFINITY, f32::MIN]), Ok(1));
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let counts = counts(plain(), &logits(&FIVE), 100_000);
        for (count, p) in counts.into_iter().zip(FIVE) {
            // Five standard deviations.
            let allowed = 5.0 * (100_000.0 * p * (1.0 - p)).sqrt();
            assert!((count as f32 - 100_000.0 * p).abs() < allowed, "{count} of {p}");
        }
    }

    #[test]
    fn temperature_sharpens_and_flattens() {
        let logits = logits(&[0.8, 0.2]);
        // At temperature 0.5 the odds are squared: 16 to 1. At 2 they are 2 to 1.
        for (temperature, share) in [(0.5, 16.0 / 17.0), (2.0, 2.0 / 3.0)] {
            let counts = counts(SamplerOptions { temperature, ..plain() }, &logits, 100_000);
            assert!((counts[0] as f64 / 100_000.0 - share).abs() < 0.01, "{counts:?} at {temperature}");
        }
        assert_eq!(possible(SamplerOptions { temperature: 1e-30, ..plain() }, &logits), [0]);
    }

    #[test]
    fn top_k_keeps_the_best() {
        let top_k = |top_k| possible(SamplerOptions { top_k, ..plain() }, &logits(&FIVE));
        assert_eq!(top_k(1), [1]);
        assert_eq!(top_k(3), [1, 3, 4]);
        assert_eq!(top_k(5), [0, 1, 2, 3, 4]);
        assert_eq!(top_k(0), [0, 1, 2, 3, 4]);
        assert_eq!(top_k(usize::MAX), [0, 1, 2, 3, 4]);
        assert_eq!(possible(SamplerOptions { top_k: 2, ..plain() }, &[1.0; 5]), [0, 1]);
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it() {
        let top_p = |top_p| possible(SamplerOptions { top_p, ..plain() }, &logits(&FIVE));
        assert_eq!(top_p(0.0), [1]);
        assert_eq!(top_p(0.39), [1]);
        assert_eq!(top_p(0.41), [1, 3]);
        assert_eq!(top_p(0.64), [1, 3]);
        assert_eq!(top_p(0.84), [1, 3, 4]);
        assert_eq!(top_p(1.0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn top_p_is_of_what_top_k_left() {
        // Of 0.4 and 0.25, the first has 0.615.
        let options = |top_p| SamplerOptions { top_k: 2, top_p, ..plain() };
        assert_eq!(possible(options(0.6), &logits(&FIVE)), [1]);
        assert_eq!(possible(options(0.63), &logits(&FIVE)), [1, 3]);
    }

    #[test]
    fn min_p_keeps_a_share_of_the_best() {
        let min_p = |min_p| possible(SamplerOptions { min_p, ..plain() }, &logits(&FIVE));
        assert_eq!(min_p(1.0), [1]);
        assert_eq!(min_p(0.6), [1, 3]);
        assert_eq!(min_p(0.49), [1, 3, 4]);
        assert_eq!(min_p(0.0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn cuts_come_before_temperature() {
        // Flattened first, all five would pass.
        let options = SamplerOptions { min_p: 0.6, temperature: 100.0, ..plain() };
        assert_eq!(possible(options, &logits(&FIVE)), [1, 3]);
    }

    #[test]
    fn recent_tokens_are_penalised_once_each() {
        let options = SamplerOptions { repeat_penalty: 2.0, repeat_last_n: 3, ..SamplerOptions::greedy() };
        let mut sampler = Sampler::new(options).unwrap();
        let mut pick = |logits: &[f32], history: &[u32]| sampler.sample(logits, history).unwrap();
        assert_eq!(pick(&[4.0, 3.0], &[]), 0);
        assert_eq!(pick(&[4.0, 3.0], &[0]), 1);
        // Twice in the history divides by 2, not by 4.
        assert_eq!(pick(&[4.0, 1.5], &[0, 0]), 0);
        assert_eq!(pick(&[-1.0, -1.5], &[0]), 1);
        // Four back is no longer recent; an id without a logit is nothing.
        assert_eq!(pick(&[4.0, 3.0], &[0, 7, 7, 7]), 0);
        assert_eq!(pick(&[4.0, 3.0], &[0, 7, 7]), 1);
    }

    #[test]
    fn extreme_penalties_do_not_overflow() {
        let options = SamplerOptions { repeat_penalty: f32::MIN_POSITIVE, ..plain() };
        let mut sampler = Sampler::new(options).unwrap();
        assert_eq!(sampler.sample(&[f32::MAX, 1.0], &[0]), Ok(0));
    }

    #[test]
    fn a_seed_fixes_the_sequence() {
        let draws = |seed| {
            let mut sampler = Sampler::new(SamplerOptions { seed, ..plain() }).unwrap();
            (0..12).map(|_| sampler.sample(&logits(&FIVE), &[]).unwrap()).collect::<Vec<_>>()
        };
        // Computed apart from this code, from the definitions of PCG32 and of rand_core's seeding.
        assert_eq!(draws(0), [2, 1, 1, 4, 3, 1, 3, 1, 1, 3, 4, 4]);
        assert_eq!(draws(1), [3, 1, 1, 1, 1, 1, 1, 4, 1, 3, 1, 1]);
    }

    #[test]
    fn logits_that_are_no_numbers_are_errors() {
        for options in [plain(), SamplerOptions::greedy(), SamplerOptions::default()] {
            let mut sampler = Sampler::new(options).unwrap();
            let mut pick = |logits: &[f32]| sampler.sample(logits, &[]);
            assert_eq!(pick(&[0.0, f32::NAN, 1.0]), Err(SamplerError::Logit { id: 1, value: "NaN".into() }));
            assert_eq!(pick(&[f32::INFINITY]), Err(SamplerError::Logit { id: 0, value: "inf".into() }));
            assert_eq!(pick(&[]), Err(SamplerError::NoToken { count: 0 }));
            assert_eq!(pick(&[f32::NEG_INFINITY; 2]), Err(SamplerError::NoToken { count: 2 }));
        }
    }

    #[test]
    fn options_outside_their_range_are_errors() {
        let bad = |change: fn(&mut SamplerOptions)| {
            let mut options = SamplerOptions::default();
            change(&mut options);
            match Sampler::new(options) {
                Err(SamplerError::Option { option, .. }) => option,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(bad(|options| options.temperature = -0.1), "temperature");
        assert_eq!(bad(|options| options.temperature = f32::NAN), "temperature");
        assert_eq!(bad(|options| options.temperature = f32::INFINITY), "temperature");
        assert_eq!(bad(|options| options.top_p = 1.1), "top_p");
        assert_eq!(bad(|options| options.min_p = -0.1), "min_p");
        assert_eq!(bad(|options| options.repeat_penalty = 0.0), "repeat_penalty");
        assert_eq!(bad(|options| options.repeat_penalty = f32::INFINITY), "repeat_penalty");
    }
}
