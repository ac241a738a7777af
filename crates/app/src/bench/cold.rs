//! Cold weights: as many copies as more than fill the caches, taking turns, so that none is in a cache when its turn comes.
//! In a model that is so by itself: all other layers are read in between.

use argon_gguf::{Bytes, Format};
use argon_kernels::{Device, DeviceError, Weight};
use serde::Serialize;

use crate::failure::{Failure, OrFail};
use crate::synth::weights::{self, Values};

/// How weights are kept out of caches.
#[derive(Clone, Debug, Serialize)]
pub struct Cold {
    /// Copies of the weights, each of other random bits.
    pub copies: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// The most copies.
const MOST: usize = 4096;

impl Cold {
    /// Enough copies of `one` bytes to make `pool` bytes, two at least, and not so many that their handles take more than they.
    pub fn new(one: usize, pool: usize) -> Cold {
        let copies = pool.div_ceil(one.max(1)).clamp(2, MOST);
        Cold { copies, bytes: copies.saturating_mul(one) }
    }

    /// That weights are not cold of which each set has `used` bytes in use: both may be in the cache when their turn comes.
    pub fn warning(&self, used: f64, cache: Option<u64>) -> Option<String> {
        let (used, cache) = (self.copies as f64 * used, cache? as f64);
        (used < 2.0 * cache).then(|| {
            let (used, cache) = (used / 1e6, cache / 1e6);
            format!("weights are not cold: the {used:.1} MB in use may be in the cache of {cache:.1} MB (--pool)")
        })
    }

    /// In a sentence.
    pub fn describe(&self, cache: Option<u64>) -> String {
        let mb = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
        let than = cache.map_or_else(String::new, |cache| format!(", the last cache holds {}", mb(cache)));
        format!("{} sets of weights take turns, {} in all{than}", self.copies, mb(self.bytes as u64))
    }
}

/// E matrices of random weights of mean 0 and standard deviation 1/sqrt(cols), so that a product is as large as its input.
///
/// # Errors
/// Of the device.
pub fn weight(
    device: &dyn Device,
    format: Format,
    [experts, rows, cols]: [usize; 3],
    seed: u64,
    name: &str,
) -> Result<Weight, Failure> {
    let what = || format!("weights {name}");
    let mut bytes = Vec::new();
    let len = format.row_bytes(cols).and_then(|row| row.checked_mul(rows)?.checked_mul(experts));
    let refused = || DeviceError::OutOfMemory { device: "host".into(), bytes: len.unwrap_or(usize::MAX) };
    bytes.try_reserve_exact(len.unwrap_or(usize::MAX)).map_err(|_| refused()).or_work(what())?;
    let values = Values::Weights { std: 1.0 / (cols as f32).sqrt() };
    weights::write(values, format, experts * rows * cols, &mut weights::rng(seed, name), &mut bytes).or_work(what())?;
    let buffer = device.constant(Bytes::from(bytes)).or_work(what())?;
    Weight::dense(buffer, format, experts, rows, cols).ok_or_else(refused).or_work(what())
}

#[cfg(test)]
mod tests {
    use super::Cold;

    #[test]
    fn a_pool_that_fits_the_cache_is_not_cold() {
        let warning = |cache| Cold::new(1_000_000, 0).warning(1e6, cache);
        assert_eq!(warning(None).or(warning(Some(1_000_000))), None);
        assert!(warning(Some(1_500_000)).unwrap().contains("the 2.0 MB in use may be in the cache of 1.5 MB (--pool)"));
    }

    #[test]
    fn more_than_the_pool_and_two_at_least() {
        let found = |one, pool| {
            let cold = Cold::new(one, pool);
            (cold.copies, cold.bytes)
        };
        assert_eq!(found(100, 1000), (10, 1000));
        assert_eq!(found(300, 1000), (4, 1200));
        assert_eq!(found(1000, 10), (2, 2000));
        assert_eq!(found(1, 0), (2, 2));
        assert_eq!(found(1, 1 << 28), (4096, 4096));
    }
}
