//! How two engines' logits are compared: the largest difference, the argmax, the Kullback-Leibler divergence.

/// How far the rows of one set of logits are from another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Rows compared.
    pub rows: usize,
    /// Largest absolute difference of all; infinite where only one side is not a number.
    pub max_abs: f64,
    /// Median over the rows of each row's largest absolute difference.
    pub median_abs: f64,
    /// Largest divergence of a row, in nats.
    pub max_kl: f64,
    /// Median of the rows' divergences, in nats.
    pub median_kl: f64,
    /// Rows whose largest logit is at the same column.
    pub same_argmax: usize,
}

impl Comparison {
    /// Compares two sets of rows of `width` logits; the divergence is of `found` from `expected`.
    ///
    /// # Panics
    /// If they do not hold the same number of whole rows.
    pub fn new(expected: &[f32], found: &[f32], width: usize) -> Self {
        assert_eq!(expected.len(), found.len());
        assert!(width > 0 && expected.len().is_multiple_of(width));
        let pairs = || expected.chunks_exact(width).zip(found.chunks_exact(width));
        let abs: Vec<f64> = pairs().map(|(a, b)| max_abs(a, b)).collect();
        let kl: Vec<f64> = pairs().map(|(a, b)| divergence(a, b)).collect();
        Self {
            rows: abs.len(),
            max_abs: abs.iter().copied().fold(0.0, f64::max),
            median_abs: median(abs),
            max_kl: kl.iter().copied().fold(0.0, f64::max),
            median_kl: median(kl),
            same_argmax: pairs().filter(|(a, b)| argmax(a) == argmax(b)).count(),
        }
    }
}

/// The largest absolute difference; infinite where only one side is not a number.
pub fn max_abs(a: &[f32], b: &[f32]) -> f64 {
    let difference = |(&a, &b): (&f32, &f32)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (f64::from(a) - f64::from(b)).abs(),
        _ => f64::INFINITY,
    };
    a.iter().zip(b).map(difference).fold(0.0, f64::max)
}

/// The column of the largest logit, the first of equals.
pub fn argmax(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, &logit)| if logit > row[best] { i } else { best })
}

/// The logarithms of the probabilities that a row of logits stands for.
pub fn log_softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted = row.iter().map(|&logit| f64::from(logit) - f64::from(max));
    let log_sum = shifted.clone().map(f64::exp).sum::<f64>().ln();
    shifted.map(|logit| logit - log_sum).collect()
}

/// The Kullback-Leibler divergence of `found`'s probabilities from `expected`'s, in nats.
pub fn divergence(expected: &[f32], found: &[f32]) -> f64 {
    let (expected, found) = (log_softmax(expected), log_softmax(found));
    expected.iter().zip(&found).map(|(a, b)| a.exp() * (a - b)).sum()
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_do_not_differ() {
        let rows = [1.0, 3.0, -2.0, 0.5, 0.25, 7.0];
        let c = Comparison::new(&rows, &rows, 3);
        assert_eq!((c.rows, c.max_abs, c.max_kl, c.same_argmax), (2, 0.0, 0.0, 2));
    }

    #[test]
    fn the_divergence_of_known_probabilities() {
        let (p, q) = ([0.5f32.ln(), 0.5f32.ln()], [0.25f32.ln(), 0.75f32.ln()]);
        let expected = 0.5 * (0.5f64 / 0.25).ln() + 0.5 * (0.5f64 / 0.75).ln();
        // f32 logarithms: 1e-7 of error.
        assert!((divergence(&p, &q) - expected).abs() < 1e-6);
        assert!((divergence(&p.map(|x| x + 50.0), &q) - expected).abs() < 1e-5); // a shift of all logits means nothing
    }

    #[test]
    fn medians_and_argmax() {
        let (a, b) = ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [0.0, 1.5, 3.0, 1.0, 0.0, 1.25]);
        let c = Comparison::new(&a, &b, 2);
        assert_eq!((c.max_abs, c.median_abs, c.same_argmax), (3.0, 0.5, 2));
        assert_eq!(argmax(&[1.0, 2.0, 2.0]), 1);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
    }

    #[test]
    fn not_a_number_is_infinitely_far() {
        assert_eq!(max_abs(&[1.0, f32::NAN], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(max_abs(&[f32::INFINITY], &[f32::INFINITY]), 0.0);
        assert_eq!(max_abs(&[f32::INFINITY], &[1.0]), f64::INFINITY);
    }
}
