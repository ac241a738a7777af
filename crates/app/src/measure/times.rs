//! How long something takes: the median of several runs, and how far they spread.

use serde::Serialize;

/// Seconds of one piece of work, measured several times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Half of the runs took less.
    #[serde(rename = "median_s")]
    pub median: f64,
    /// A tenth of the runs took less.
    #[serde(rename = "p10_s")]
    pub p10: f64,
    /// A tenth of the runs took more.
    #[serde(rename = "p90_s")]
    pub p90: f64,
    /// Runs.
    pub runs: usize,
}

/// Runs before the first that counts: they touch memory for the first time, and compile what is compiled late.
pub const UNMEASURED: usize = 2;

/// Where nobody says how often: for so long, within these bounds.
const SECONDS: f64 = 0.5;
const LEAST: usize = 7;
const MOST: usize = 201;

impl Times {
    /// Of these seconds, one at least.
    pub fn of(mut seconds: Vec<f64>) -> Times {
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len() - 1;
        let at = |share: f64| seconds[(share * last as f64).round() as usize];
        Times { median: at(0.5), p10: at(0.1), p90: at(0.9), runs: seconds.len() }
    }

    /// Of `once`, which gets the number of the run and returns its seconds.
    ///
    /// # Errors
    /// Those of `once`.
    pub fn measure<E>(repetitions: Option<usize>, mut once: impl FnMut(usize) -> Result<f64, E>) -> Result<Times, E> {
        for run in 0..UNMEASURED {
            once(run)?;
        }
        let (mut seconds, mut total) = (Vec::new(), 0.0);
        let enough = |runs: usize, total: f64| match repetitions {
            Some(wanted) => runs >= wanted,
            None => runs >= MOST || runs >= LEAST && total >= SECONDS,
        };
        while !enough(seconds.len(), total) {
            let took = once(UNMEASURED + seconds.len())?;
            total += took;
            seconds.push(took);
        }
        Ok(Times::of(seconds))
    }

    /// The same for one of `parts` equal parts.
    pub fn part(self, parts: usize) -> Times {
        let part = |seconds: f64| seconds / parts as f64;
        Times { median: part(self.median), p10: part(self.p10), p90: part(self.p90), runs: self.runs }
    }
}

/// Seconds as a person reads them, in a unit that suits their size.
pub fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// The unit that suits times up to `most` seconds on an axis, the same as [`time`]'s: how many of it are a second, and its name.
pub fn unit(most: f64) -> (f64, &'static str) {
    match most {
        s if s < 1e-3 => (1e6, "µs"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    }
}

/// A number with about three digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_tenths() {
        let times = Times::of((0..=10).rev().map(f64::from).collect());
        assert_eq!(times, Times { median: 5.0, p10: 1.0, p90: 9.0, runs: 11 });
        assert_eq!(Times::of(vec![2.0]), Times { median: 2.0, p10: 2.0, p90: 2.0, runs: 1 });
        assert_eq!(times.part(2).median, 2.5);
    }

    #[test]
    fn as_often_as_asked_or_as_time_allows() {
        let mut calls = Vec::new();
        let mut run = |repetitions, seconds: f64| {
            calls.clear();
            let times = Times::measure(repetitions, |i| -> Result<f64, ()> {
                calls.push(i);
                Ok(seconds)
            });
            (times.unwrap().runs, calls.len())
        };
        assert_eq!(run(Some(3), 1.0), (3, 5));
        assert_eq!(run(None, 1.0), (7, 9));
        assert_eq!(run(None, 0.01), (50, 52));
        assert_eq!(run(None, 0.0), (201, 203));
        assert_eq!(Times::measure(Some(1), |i| if i == 1 { Err(i) } else { Ok(0.0) }), Err(1));
    }

    #[test]
    fn times_read_well() {
        assert_eq!(
            [1.2345e-6, 0.0123456, 12.345, 2e-4, 0.0].map(time),
            ["1.23 µs", "12.3 ms", "12.3 s", "200 µs", "0 µs"]
        );
    }
}
