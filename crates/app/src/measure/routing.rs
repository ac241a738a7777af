//! Which experts the tokens of a bench go to: drawn at random, or as a real run chose them.

use std::path::Path;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::failure::{Failure, OrFail};
use crate::interrupt::Interrupt;
use crate::npy::{self, Array};
use crate::output;
use crate::words::counted;

/// Where the choices come from.
#[derive(Debug)]
pub enum Source {
    /// Every set of K experts is as likely as any other.
    Uniform,
    /// K different experts, drawn one after the other with probabilities 1/r^s, r being an expert's rank. Which expert
    /// has which rank differs from layer to layer.
    Zipf(f64),
    /// Chosen by a real run.
    Recorded(Array<i64>),
}

/// The axes of a record, `[layers, T, K]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// Layers with experts.
    pub layers: usize,
    /// T.
    pub tokens: usize,
    /// K.
    pub top_k: usize,
}

impl Source {
    /// From what stands behind `--routing`.
    ///
    /// # Errors
    /// An input failure: no such file, or not a record.
    pub fn parse(text: &str) -> Result<Source, Failure> {
        if text == "uniform" {
            return Ok(Source::Uniform);
        }
        if let Some(exponent) = text.strip_prefix("zipf").filter(|rest| rest.is_empty() || rest.starts_with(':')) {
            let exponent =
                if exponent.is_empty() { Some(1.0) } else { exponent.strip_prefix(':').and_then(|s| s.parse().ok()) };
            let valid = exponent.filter(|s| (0.0..=8.0).contains(s));
            let refused = || {
                Failure::input(format_args!("--routing {text}: the exponent must be a number from 0 to 8 (zipf:1.2)"))
            };
            return valid.map(Source::Zipf).ok_or_else(refused);
        }
        let what = || format!("--routing {text} (not uniform, zipf or zipf:S, so a file)");
        let array = npy::read::<i64>(Path::new(text)).map_err(|error| Failure::Input(error.context(what())))?;
        if array.shape.len() != 3 || array.data.is_empty() {
            return Err(Failure::input(format_args!("{}: its shape is {:?}, not [layers, T, K]", what(), array.shape)));
        }
        Ok(Source::Recorded(array))
    }

    /// The axes of a record.
    pub fn recorded(&self) -> Option<Recorded> {
        match self {
            Source::Recorded(array) => match array.shape[..] {
                [layers, tokens, top_k] => Some(Recorded { layers, tokens, top_k }),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A way to route chunks of any length.
#[derive(Debug)]
pub struct Routing {
    source: Source,
    experts: usize,
    top_k: usize,
    seed: u64,
}

impl Routing {
    /// K of E experts for each token; K is at most E.
    ///
    /// # Errors
    /// An input failure if a record names an expert that is not there.
    pub fn new(source: Source, experts: usize, top_k: usize, seed: u64) -> Result<Routing, Failure> {
        if let Source::Recorded(array) = &source {
            let outside = |id: &&i64| !(-1..experts as i64).contains(*id);
            if let Some(id) = array.data.iter().find(outside) {
                return Err(Failure::input(format_args!(
                    "--routing: expert {id} is not one of the {experts} of --experts"
                )));
            }
        }
        Ok(Routing { source, experts, top_k, seed })
    }

    /// E.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// K.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// The layers that were recorded.
    pub fn layers(&self) -> Option<usize> {
        self.source.recorded().map(|shape| shape.layers)
    }

    /// In a few words.
    pub fn name(&self) -> String {
        match &self.source {
            Source::Uniform => "uniform".into(),
            Source::Zipf(exponent) => format!("zipf:{exponent}"),
            Source::Recorded(array) => {
                format!("recorded ({}, {})", counted(array.shape[0], "layer"), counted(array.shape[1], "token"))
            }
        }
    }

    /// The same where one layer is measured.
    pub fn name_of_one(&self) -> String {
        match self.layers() {
            Some(2..) => format!("{}, the first layer's", self.name()),
            _ => self.name(),
        }
    }

    /// The choices `[T*K]` of a layer's chunk of `tokens` tokens, at most as many as were recorded: always the same.
    pub fn ids(&self, tokens: usize, layer: usize) -> Vec<i32> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed ^ (layer as u64) << 32 ^ tokens as u64);
        match &self.source {
            Source::Uniform => uniform(tokens, self.top_k, self.experts, &mut random),
            Source::Zipf(exponent) => zipf(tokens, self.top_k, self.experts, *exponent, &mut random),
            Source::Recorded(array) => {
                let (layers, recorded) = (array.shape[0], array.shape[1]);
                let first = (layer % layers) * recorded * self.top_k;
                array.data[first..first + tokens * self.top_k].iter().map(|&id| id as i32).collect()
            }
        }
    }
}

/// A number below `n`.
fn below(random: &mut Pcg64Mcg, n: usize) -> usize {
    ((u128::from(random.next_u64()) * n as u128) >> 64) as usize
}

/// The first K of a shuffle that is never undone: any order is as good a start as any other.
fn uniform(tokens: usize, top_k: usize, experts: usize, random: &mut Pcg64Mcg) -> Vec<i32> {
    let mut all: Vec<i32> = (0..experts as i32).collect();
    let mut ids = Vec::with_capacity(tokens * top_k);
    for _ in 0..tokens {
        for i in 0..top_k {
            all.swap(i, i + below(random, experts - i));
        }
        ids.extend_from_slice(&all[..top_k]);
    }
    ids
}

/// Draws from the cumulated weights; what was drawn before is drawn again, until it would take too long: then the likeliest
/// of the rest are taken.
fn zipf(tokens: usize, top_k: usize, experts: usize, exponent: f64, random: &mut Pcg64Mcg) -> Vec<i32> {
    let mut expert_of_rank: Vec<i32> = (0..experts as i32).collect();
    for i in 0..experts {
        expert_of_rank.swap(i, i + below(random, experts - i));
    }
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=experts)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut ids = Vec::with_capacity(tokens * top_k);
    let mut drawn = vec![usize::MAX; experts];
    for token in 0..tokens {
        let (end, mut tries) = (ids.len() + top_k, 0);
        while ids.len() < end && tries < 64 * top_k {
            tries += 1;
            let point = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * sum;
            let rank = sums.partition_point(|&sum| sum <= point).min(experts - 1);
            if drawn[rank] != token {
                drawn[rank] = token;
                ids.push(expert_of_rank[rank]);
            }
        }
        for rank in 0..experts {
            if ids.len() < end && drawn[rank] != token {
                drawn[rank] = token;
                ids.push(expert_of_rank[rank]);
            }
        }
    }
    ids
}

/// Writes choices `[layers, T, K]`, for [`Source::parse`] to read.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, shape: Recorded, ids: &[i32], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    npy::write_i32(&mut bytes, &[shape.layers, shape.tokens, shape.top_k], ids).or_work(path.display())?;
    output::write(path, bytes, interrupt).or_work(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing(how: &str, experts: usize, top_k: usize) -> Routing {
        Routing::new(Source::parse(how).unwrap(), experts, top_k, 1).unwrap()
    }

    #[test]
    fn every_token_meets_different_experts() {
        for how in ["uniform", "zipf", "zipf:0", "zipf:8"] {
            for (experts, top_k) in [(1, 1), (7, 7), (64, 3), (512, 10)] {
                let ids = routing(how, experts, top_k).ids(50, 0);
                assert_eq!(ids.len(), 50 * top_k);
                for token in ids.chunks(top_k) {
                    let mut token = token.to_vec();
                    token.sort_unstable();
                    token.dedup();
                    assert_eq!(token.len(), top_k, "{how}: {experts} experts");
                    assert!(token.iter().all(|id| (0..experts as i32).contains(id)));
                }
            }
        }
    }

    fn loads(how: &str) -> Vec<usize> {
        let mut loads = vec![0; 64];
        routing(how, 64, 4).ids(4000, 0).iter().for_each(|&id| loads[id as usize] += 1);
        loads.sort_unstable();
        loads
    }

    #[test]
    fn skewed_is_skewed_and_uniform_is_not() {
        let (uniform, skewed) = (loads("uniform"), loads("zipf:1"));
        // 16,000 draws of 64: 250 each, with a deviation of 15.
        assert!(uniform[0] > 175 && uniform[63] < 325, "{uniform:?}");
        assert!(skewed[63] > 8 * skewed[31], "{skewed:?}");
    }

    #[test]
    fn layers_differ_and_repeat() {
        let routing = routing("zipf", 64, 4);
        assert_eq!(routing.ids(16, 3), routing.ids(16, 3));
        assert_ne!(routing.ids(16, 3), routing.ids(16, 4));
    }

    #[test]
    fn what_was_recorded_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.npy");
        let ids: Vec<i32> = (0..2 * 3 * 2).map(|i| i % 5 - 1).collect();
        write(&path, Recorded { layers: 2, tokens: 3, top_k: 2 }, &ids, &Interrupt::default()).unwrap();
        let source = Source::parse(path.to_str().unwrap()).unwrap();
        assert_eq!(source.recorded(), Some(Recorded { layers: 2, tokens: 3, top_k: 2 }));
        let routing = Routing::new(source, 4, 2, 0).unwrap();
        assert_eq!(routing.name_of_one(), "recorded (2 layers, 3 tokens), the first layer's");
        assert_eq!(routing.ids(3, 0), ids[..6]);
        assert_eq!(routing.ids(2, 1), ids[6..10]);
        assert_eq!(routing.ids(2, 2), ids[..4], "the layers take turns");
        let source = Source::parse(path.to_str().unwrap()).unwrap();
        assert!(matches!(Routing::new(source, 3, 2, 0), Err(Failure::Input(_))));
    }
}
