//! Sums and functions that every compiler turns into vector code, with the same bits on every instruction set.

use super::isa::{Kernel, LANES, Simd};

/// `sum of f(a, b)` over two slices of one length. The order of additions depends on the number of lanes alone.
#[inline(always)]
fn sum_by(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += f(a[i], b[i]);
        }
    }
    for (i, (&a, &b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[i] += f(a, b);
    }
    total(lanes)
}

/// Sum of the lanes, halves first.
#[inline(always)]
pub(super) fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `x · x`.
#[inline(always)]
pub(super) fn sum_squares(x: &[f32]) -> f32 {
    sum_by(x, x, |a, b| a * b)
}

/// Sum of the elements.
#[inline(always)]
pub(super) fn sum(x: &[f32]) -> f32 {
    sum_by(x, x, |x, _| x)
}

/// `y += a x`.
pub(super) struct AddScaled<'a> {
    pub y: &'a mut [f32],
    pub a: f32,
    pub x: &'a [f32],
}

impl Kernel for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y += self.a * x;
        }
    }
}

/// `a · b`.
pub(super) struct Dot<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
}

impl Kernel for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f32 {
        sum_by(self.a, self.b, |a, b| a * b)
    }
}

/// `e^x`, within 2 units in the last place; subnormal results are kept, NaN stays NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Beyond these the result is infinite or zero; NaN passes both comparisons.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    // x = n ln 2 + r: adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts, the first so short that n times it is exact.
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    // Minimax polynomial of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2 (Cephes).
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5e-1;
    let y = p * (r * r) + r + 1.0;
    // Times 2^n in two steps, as 2^n itself may be out of range.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    y * power(n >> 1) * power(n - (n >> 1))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `ln(1 + e^x)`, without overflow.
pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::super::isa::Isa;
    use super::*;

    /// Distance in units of the last place of the float64 result rounded to f32.
    fn ulps(got: f32, want: f64) -> i64 {
        let order = |x: f32| i64::from(x.to_bits() as i32);
        (order(got) - order(want as f32)).abs()
    }

    #[test]
    fn exp_is_within_two_ulps() {
        // Every 97th float from 0 to 105, both signs.
        let mut worst = (0, 0.0);
        for bits in (0..105f32.to_bits()).step_by(97) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let error = ulps(exp(x), f64::from(x).exp());
                worst = if error > worst.0 { (error, x) } else { worst };
            }
        }
        assert!(worst.0 <= 2, "{} ulp at {}", worst.0, worst.1);
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(88.8), f32::INFINITY);
        assert_eq!(exp(-150.0), 0.0);
        assert!(exp(-103.0) > 0.0, "the smallest subnormal");
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn gates_at_the_edges() {
        assert_eq!((sigmoid(-200.0), sigmoid(0.0), sigmoid(200.0)), (0.0, 0.5, 1.0));
        assert_eq!((silu(-200.0), silu(0.0), silu(200.0)), (-0.0, 0.0, 200.0));
        assert_eq!((softplus(-200.0), softplus(200.0)), (0.0, 200.0));
        assert!(sigmoid(f32::NAN).is_nan() && silu(f32::NAN).is_nan());
    }

    #[test]
    fn sums_take_every_element() {
        for len in [0, 1, 15, 16, 17, 33] {
            let a: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let want: f32 = a.iter().map(|x| x * x).sum(); // integers: exact in any order
            let dot = Isa::detect().run(Dot { a: &a, b: &a });
            assert_eq!((dot, sum_squares(&a)), (want, want), "{len}");
        }
    }
}
