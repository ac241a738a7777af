//! The cases of each group of kernels. Sizes are small and no multiple of anything; a [`Request`] changes them.
//!
//! A module's public functions make the operands of an op and the op itself; tests call them with every edge of a size. Where
//! one takes `cuts`, the first tokens of its calls and the end, `[0, T]` is one call.

pub mod attention;
pub mod delta;
mod dense;
pub mod elementwise;
pub mod gather;
pub mod hyper;
mod moe;
pub mod plan;
pub mod route;

use argon_gguf::Format;

use super::{Arena, Bound, Case, Kernel, Request, Result};
use crate::op::Precision;

/// The bound of everything that computes in f32: the design's for a whole layer, far above what one op needs.
const F32: Bound = Bound::Within { a: 5e-6, b: None };

/// Distance to float64 on a device's own operands: only sums in f32 and their order are left. Measured 2.4e-5 for a layer.
const SUMS: Option<f64> = Some(3e-5);

/// The bound of products: f16 rounds two operands to 2^-12 of them on average (5.4e-4 for a layer of products of products);
/// 8-bit activations are at least as exact as llama.cpp's, 1.3e-2.
fn product(precision: Precision) -> Bound {
    match precision {
        Precision::F32 => F32,
        Precision::F16 => Bound::Within { a: 6e-4, b: SUMS },
        Precision::Int8 => Bound::Within { a: 1.3e-2, b: SUMS },
    }
}

/// The bound of `silu(gate) * up` and of a whole layer of `tokens` tokens, with weights of these formats.
///
/// f16: 6e-4 where a weight is rounded once. In Q2_K, Q4_K and Q5_K a device may round it twice, what is multiplied and what is
/// subtracted: three roundings of 2^-11 / sqrt(3) at most are in each factor, the row's in both of them, and silu's slope is up to
/// 1.28 of its value: 9.7e-4 (5.9e-4 seen with Q6_K). IQ4_XS has the same bound: 6.3e-4 seen where one column of
/// 1e5 is nearly the whole sum, so that the rounding of single weights does not average out.
///
/// int8: as accurate as llama.cpp's path on the processor, 1.3e-2 (1.11e-2 to 1.22e-2 seen, over 16 seeds).
///
/// Where a few numbers are the whole result, a rounding is what it is at most and not what it is on average, a root of three less.
fn layer(formats: &[Format], tokens: usize) -> impl Fn(Precision) -> Bound {
    let twice =
        formats.iter().any(|format| matches!(format, Format::Q2_K | Format::Q4_K | Format::Q5_K | Format::IQ4_XS));
    let few = if tokens < 48 { 3f64.sqrt() } else { 1.0 };
    move |precision| match precision {
        Precision::F32 => F32,
        Precision::F16 => Bound::Within { a: few * if twice { 9.7e-4 } else { 6e-4 }, b: SUMS },
        Precision::Int8 => Bound::Within { a: few * 1.3e-2, b: SUMS },
    }
}

/// Cases as they are made.
struct List<'a> {
    kernel: Kernel,
    request: &'a Request,
    precisions: &'a [Precision],
    cases: Vec<Case>,
}

impl List<'_> {
    fn add(&mut self, name: impl Into<String>, bound: Bound, work: impl Fn(&Arena) -> Result + 'static) {
        self.push(name.into(), bound, None, work);
    }

    /// The case in every precision, within the bound of products.
    fn products(&mut self, name: &str, work: impl Fn(&Arena) -> Result + Clone + 'static) {
        self.within(product, name, work);
    }

    /// The case in every precision, within the bound of each.
    fn within(
        &mut self,
        bound: impl Fn(Precision) -> Bound,
        name: &str,
        work: impl Fn(&Arena) -> Result + Clone + 'static,
    ) {
        for &precision in self.precisions {
            self.push(name.into(), bound(precision), Some(precision), work.clone());
        }
    }

    fn push(
        &mut self,
        name: String,
        bound: Bound,
        precision: Option<Precision>,
        work: impl Fn(&Arena) -> Result + 'static,
    ) {
        // Every case has numbers of its own, the same in every precision.
        let number = self.cases.iter().filter(|case| case.precision == precision).count() as u64;
        let seed = self.request.seed.wrapping_mul(1009).wrapping_add(number);
        self.cases.push(Case { kernel: self.kernel, name, precision, bound, seed, large: false, work: Box::new(work) });
    }

    /// Of the last case: it is compared with the processor, as the reference would take too long.
    fn large(&mut self) {
        if let Some(case) = self.cases.last_mut() {
            case.large = true;
        }
    }
}

/// The cases of a group in these precisions.
pub fn of(kernel: Kernel, request: &Request, precisions: &[Precision]) -> Vec<Case> {
    let mut list = List { kernel, request, precisions, cases: Vec::new() };
    match kernel {
        Kernel::Plan => plan::cases(&mut list),
        Kernel::Gather => gather::cases(&mut list),
        Kernel::Dense => dense::cases(&mut list),
        Kernel::Moe => moe::cases(&mut list),
        Kernel::Route => route::cases(&mut list),
        Kernel::Elementwise => elementwise::cases(&mut list),
        Kernel::Hyper => hyper::cases(&mut list),
        Kernel::Delta => delta::cases(&mut list),
        Kernel::Attention => attention::cases(&mut list),
    }
    list.cases
}
