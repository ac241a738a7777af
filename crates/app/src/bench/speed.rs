//! How fast something is, by the mean of several runs, as `llama-bench` tells it.

use std::fmt;

/// Speeds of the same work done several times, in units of work per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of one run; 0 of a single one.
    pub deviation: f64,
}

impl Speed {
    /// Of `work` units of work that took each of `seconds`.
    pub fn new(work: usize, seconds: &[f64]) -> Self {
        let (runs, speeds) = (seconds.len() as f64, seconds.iter().map(|seconds| work as f64 / seconds));
        let mean = speeds.clone().sum::<f64>() / runs;
        let squares = speeds.map(|speed| (speed - mean).powi(2)).sum::<f64>();
        Speed { mean, deviation: (squares / (runs - 1.0).max(1.0)).sqrt() }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ± {:.2}", self.mean, self.deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::Speed;

    #[test]
    fn mean_and_deviation_of_known_speeds() {
        let speed = Speed::new(12, &[6.0, 3.0, 2.0]); // 2, 4 and 6 per second
        assert_eq!(speed, Speed { mean: 4.0, deviation: 2.0 });
        assert_eq!(Speed::new(10, &[2.0]), Speed { mean: 5.0, deviation: 0.0 });
        assert_eq!(speed.to_string(), "4.00 ± 2.00");
    }
}
