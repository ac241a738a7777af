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

impl Cold {
    /// Enough copies of `one` bytes to make `pool` bytes, two at least.
    pub fn new(one: usize, pool: usize) -> Cold {
        let copies = pool.div_ceil(one.max(1)).max(2);
        Cold { copies, bytes: copies.saturating_mul(one) }
    }

    /// In a sentence.
    pub fn describe(&self, cache: Option<u64>) -> String {
        let mb = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
        let than = cache.map_or_else(String::new, |cache| format!(", the last cache holds {}", mb(cache)));
        format!("cold: {} sets of weights take turns, {} in all{than}", self.copies, mb(self.bytes as u64))
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
    fn more_than_the_pool_and_two_at_least() {
        let found = |one, pool| {
            let cold = Cold::new(one, pool);
            (cold.copies, cold.bytes)
        };
        assert_eq!(found(100, 1000), (10, 1000));
        assert_eq!(found(300, 1000), (4, 1200));
        assert_eq!(found(1000, 10), (2, 2000));
        assert_eq!(found(1, 0), (2, 2));
    }
}
