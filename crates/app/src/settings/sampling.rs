//! How `argon run` chooses tokens: what the user said, else what the file recommends.

use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use argon_engine::sampler::SamplerOptions;
use argon_gguf::Metadata;

use super::refused;
use crate::args;
use crate::failure::{Failure, OrFail};

/// A number that says how the next token is chosen.
struct SamplingNumber {
    flag: &'static str,
    /// The key of a file that recommends it.
    key: &'static str,
    valid: RangeInclusive<f32>,
    /// The same in words.
    range: &'static str,
}

const TEMP: SamplingNumber =
    SamplingNumber { flag: "--temp", key: "general.sampling.temp", valid: 0.0..=f32::MAX, range: "a number from 0" };
const TOP_P: SamplingNumber =
    SamplingNumber { flag: "--top-p", key: "general.sampling.top_p", valid: 0.0..=1.0, range: "from 0 to 1" };
const MIN_P: SamplingNumber =
    SamplingNumber { flag: "--min-p", key: "general.sampling.min_p", valid: 0.0..=1.0, range: "from 0 to 1" };
const REPEAT_PENALTY: SamplingNumber = SamplingNumber {
    flag: "--repeat-penalty",
    key: "general.sampling.penalty_repeat",
    valid: f32::MIN_POSITIVE..=f32::MAX,
    range: "a number above 0",
};

impl SamplingNumber {
    /// `value`, which `name` gave.
    fn check(&self, name: &str, value: f32) -> Result<f32, Failure> {
        if self.valid.contains(&value) { Ok(value) } else { Err(refused(name, value, self.range)) }
    }
}

const PENALTY_LAST_N: &str = "general.sampling.penalty_last_n";

/// Of a whole number of which -1 says something else: that it is one, or absent.
fn check_whole(name: &str, said: Option<i64>) -> Result<(), Failure> {
    match said {
        Some(n) if n < -1 => Err(refused(name, n, "a number from 0, or -1")),
        _ => Ok(()),
    }
}

/// How the next token is chosen, as far as the user said.
#[derive(Debug)]
pub struct Sampling(args::SamplingArgs);

impl Sampling {
    /// What the user said.
    ///
    /// # Errors
    /// Names a flag that is out of its range.
    pub fn new(args: args::SamplingArgs) -> Result<Self, Failure> {
        for (number, said) in
            [(TEMP, args.temp), (TOP_P, args.top_p), (MIN_P, args.min_p), (REPEAT_PENALTY, args.repeat_penalty)]
        {
            said.map(|value| number.check(number.flag, value)).transpose()?;
        }
        check_whole("--seed", args.seed)?;
        check_whole("--repeat-last-n", args.repeat_last_n)?;
        Ok(Sampling(args))
    }

    /// The options for a file with this metadata: what the user said, else what the file recommends in its
    /// `general.sampling.*` and `argon.default_seed`, else the defaults of llama.cpp. `context` is what -1 recent tokens means.
    ///
    /// # Errors
    /// Names a key of the file that holds something else than a number, or one that the flag would refuse.
    pub fn options(&self, metadata: &Metadata, context: usize) -> Result<SamplerOptions, Failure> {
        let Sampling(said) = self;
        let defaults = SamplerOptions::default();
        let number = |said: Option<f32>, number: SamplingNumber, default| match said {
            Some(value) => Ok(value),
            None => match metadata.f32(number.key).or_input(UNUSABLE)? {
                Some(value) => number.check(number.key, value),
                None => Ok(default),
            },
        };
        let count = |said: Option<i64>, key| match said {
            Some(value) => Ok(Some(value)),
            None => Ok(metadata.i32(key).or_input(UNUSABLE)?.map(i64::from)),
        };
        let top_k = count(said.top_k, "general.sampling.top_k")?;
        let last_n = count(said.repeat_last_n, PENALTY_LAST_N)?;
        check_whole(PENALTY_LAST_N, last_n)?;
        let seed = match said.seed {
            Some(seed) => u64::try_from(seed).ok(),
            None => metadata.u64("argon.default_seed").or_input(UNUSABLE)?,
        };
        Ok(SamplerOptions {
            temperature: number(said.temp, TEMP, defaults.temperature)?,
            top_k: top_k.map_or(defaults.top_k, |n| usize::try_from(n).unwrap_or(0)),
            top_p: number(said.top_p, TOP_P, defaults.top_p)?,
            min_p: number(said.min_p, MIN_P, defaults.min_p)?,
            repeat_penalty: number(said.repeat_penalty, REPEAT_PENALTY, defaults.repeat_penalty)?,
            repeat_last_n: last_n.map_or(defaults.repeat_last_n, |n| usize::try_from(n).unwrap_or(context)),
            seed: seed.unwrap_or_else(any_seed),
        })
    }
}

const UNUSABLE: &str = "the file's recommended sampling";

/// Another seed each time: the standard library seeds its hash maps from the system.
fn any_seed() -> u64 {
    std::hash::RandomState::new().hash_one(()) >> 1
}

#[cfg(test)]
mod tests {
    use argon_gguf::{Gguf, Value, Writer};

    use super::*;

    /// How sampling is refused where a file recommends `value` under `key`.
    fn refusal(key: &str, value: Value<'_>) -> String {
        let mut file = Vec::new();
        Writer::new().metadata(key, value).write(&mut file).unwrap();
        let file = Gguf::from_bytes(file).unwrap();
        let Err(Failure::Input(error)) = Sampling(args::SamplingArgs::default()).options(file.metadata(), 8) else {
            panic!("{key} is accepted")
        };
        error.to_string()
    }

    #[test]
    fn what_a_file_recommends_is_refused_by_its_key() {
        let nan = refusal("general.sampling.temp", Value::F32(f32::NAN));
        assert_eq!(nan, "general.sampling.temp is NaN; it must be a number from 0");
        let above = refusal("general.sampling.top_p", Value::F32(1.5));
        assert_eq!(above, "general.sampling.top_p is 1.5; it must be from 0 to 1");
        let negative = refusal("general.sampling.penalty_last_n", Value::I32(-2));
        assert_eq!(negative, "general.sampling.penalty_last_n is -2; it must be a number from 0, or -1");
    }
}
