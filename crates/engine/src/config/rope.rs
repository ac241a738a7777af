//! Rotary position embedding: how far each pair of columns turns from one position to the next.

use std::f64::consts::TAU;

use super::Result;
use super::keys::{Keys, refuse};

const DIMS: &str = "rope.dimension_count";
const SCALING: &str = "rope.scaling.type";
const BASE: &str = "rope.freq_base";

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RopeConfig {
    /// Columns that turn, in pairs.
    pub dims: usize,
    /// Base of the frequencies.
    pub base: f32,
    /// Positions are divided by it, with YaRN for the slow pairs alone.
    pub factor: f32,
    /// YaRN, if the model is extended so.
    pub yarn: Option<YarnConfig>,
    /// Turned columns are multiplied by it.
    pub magnitude: f32,
}

/// YaRN: pairs that turn often within the original context keep their frequency, slow ones are divided by the factor, and
/// those between are mixed (Peng et al. 2023, <https://arxiv.org/abs/2309.00071>).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct YarnConfig {
    /// Positions that the model was trained for before it was extended.
    pub context: usize,
    /// Turns within `context` from which on a pair keeps its frequency.
    pub fast: f32,
    /// Turns within `context` up to which a pair is divided by the whole factor.
    pub slow: f32,
}

impl RopeConfig {
    pub(super) fn read(keys: &Keys, key_dim: usize) -> Result<Self> {
        let dims = keys.get(DIMS, 2..=key_dim)?.unwrap_or(key_dim);
        if !dims.is_multiple_of(2) {
            return refuse(keys.full(DIMS), format!("is {dims}, an odd number"));
        }
        let factor = match keys.positive("rope.scaling.factor")? {
            Some(factor) => factor,
            None => keys.positive("rope.scale_linear")?.unwrap_or(1.0),
        };
        let base = keys.positive(BASE)?.unwrap_or(10_000.0);
        let magnitude = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let plain = Self { dims, base, factor, yarn: None, magnitude };
        match keys.str(SCALING)? {
            None | Some("linear") => Ok(plain),
            Some("none") => Ok(Self { factor: 1.0, ..plain }),
            Some("yarn") if base <= 1.0 => refuse(keys.full(BASE), format!("is {base}, which YaRN cannot mix")),
            Some("yarn") => {
                let own = keys.positive("rope.scaling.yarn_attn_factor")?.unwrap_or_else(|| yarn_magnitude(factor));
                Ok(Self { yarn: Some(YarnConfig::read(keys)?), magnitude: magnitude * own, ..plain })
            }
            Some(other) => refuse(
                keys.full(SCALING),
                format!("is {other:?}, which is not supported (supported: none, linear, yarn)"),
            ),
        }
    }

    /// Radians per position of each pair, whose frequency is divided by its of `factors`: `[dims / 2]`.
    ///
    /// Exponent, period and frequency are each rounded to f32, as where models are trained: the exact frequencies are other
    /// numbers, and what they differ by grows with the position.
    pub fn freqs(&self, factors: &[f32]) -> Vec<f32> {
        let ramp = self.yarn.as_ref().map(|yarn| yarn.ramp(self));
        let freq = |(pair, divisor): (usize, &f32)| {
            let exponent = (2 * pair) as f32 / self.dims as f32;
            let period = f64::from(self.base).powf(f64::from(exponent)) as f32;
            let trained = 1.0 / period / divisor;
            let slowed = trained / self.factor;
            let kept = ramp.as_ref().map_or(0.0, |ramp| ramp(pair) as f32);
            slowed * (1.0 - kept) + trained * kept
        };
        factors.iter().enumerate().map(freq).collect()
    }
}

impl YarnConfig {
    fn read(keys: &Keys) -> Result<Self> {
        const CONTEXT: &str = "rope.scaling.original_context_length";
        keys.refuse_unless_neutral("rope.scaling.yarn_ext_factor", 1.0)?;
        keys.refuse_unless_neutral("rope.scaling.yarn_log_multiplier", 0.0)?;
        let longest = i32::MAX as usize;
        let context = match keys.get(CONTEXT, 1..=longest)? {
            Some(context) => context,
            None => keys.require("context_length", 1..=longest)?,
        };
        Ok(Self {
            context,
            fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        })
    }

    /// How much of its frequency each pair keeps, 1 to 0.
    fn ramp(&self, rope: &RopeConfig) -> impl Fn(usize) -> f64 + use<> {
        let dims = rope.dims as f64;
        // The pair that turns so often within the context.
        let pair = |turns: f32| {
            let positions = self.context as f64 / (f64::from(turns) * TAU);
            dims * positions.ln() / (2.0 * f64::from(rope.base).ln())
        };
        let first = pair(self.fast).floor().max(0.0);
        let last = pair(self.slow).ceil().min(dims - 1.0);
        move |pair| 1.0 - ((pair as f64 - first) / (last - first).max(0.001)).clamp(0.0, 1.0)
    }
}

/// What YaRN multiplies turned columns by, so that softmax is as sharp as over the original context.
fn yarn_magnitude(factor: f32) -> f32 {
    if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of eight pairs: the first turn too often to be slowed down, the last by the whole factor.
    #[test]
    fn yarn_slows_down_what_turns_rarely() {
        let yarn = YarnConfig { context: 1024, fast: 32.0, slow: 1.0 };
        let rope = RopeConfig { dims: 16, base: 10_000.0, factor: 4.0, yarn: Some(yarn), magnitude: 1.0 };
        // 1024 / (2 pi 32) = 5.09 positions at pair 16 ln(5.09) / (2 ln 10000) = 1.41, thus from pair 1; 163 at 4.42, thus to 5.
        let trained = |pair: i32| 10f64.powf(-f64::from(pair) / 2.0);
        let mixed = |pair: i32, kept: f64| (trained(pair) * (kept + (1.0 - kept) / 4.0)) as f32;
        let expected = [
            mixed(0, 1.0),
            mixed(1, 1.0),
            mixed(2, 0.75),
            mixed(3, 0.5),
            mixed(4, 0.25),
            mixed(5, 0.0),
            mixed(6, 0.0),
            mixed(7, 0.0),
        ];
        for (pair, (found, expected)) in rope.freqs(&[1.0; 8]).iter().zip(expected).enumerate() {
            // Both are rounded to f32 once, from sums in another order.
            assert!((found - expected).abs() <= f32::EPSILON * expected, "pair {pair}: {found}, not {expected}");
        }
    }

    /// To the nearest f32, 500 to the power of -1/10, -6/10 and -7/10 are 0.5371592, 0.024022488 and 0.0129039.
    #[test]
    fn frequencies_are_rounded_as_where_models_are_trained() {
        let rope = RopeConfig { dims: 20, base: 500.0, factor: 1.0, yarn: None, magnitude: 1.0 };
        let freqs = rope.freqs(&[1.0; 10]);
        assert_eq!([freqs[0], freqs[1], freqs[6], freqs[7]], [1.0, 0.537_159_14, 0.024_022_486, 0.012_903_902]);
    }

    #[test]
    fn without_yarn_every_pair_is_divided_by_the_factor_and_its_own() {
        let rope = RopeConfig { dims: 4, base: 100.0, factor: 2.0, yarn: None, magnitude: 1.0 };
        assert_eq!(rope.freqs(&[1.0, 4.0]), [0.5, 0.0125]);
    }

    #[test]
    fn the_magnitude_grows_with_the_logarithm_of_the_factor() {
        assert_eq!(yarn_magnitude(1.0), 1.0);
        assert_eq!(yarn_magnitude(0.5), 1.0);
        assert_eq!(yarn_magnitude(std::f32::consts::E), 1.1);
    }
}
