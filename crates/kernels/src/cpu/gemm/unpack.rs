//! Weights as integers: what every integer product starts from.
//!
//! Each quantised format is, in every group of 16 or 32 weights, a scale times a small integer, some with a minimum:
//! `weight = scale * (code - zero) + min`, exactly. This module and its children say so once for each format ([`Coded`]),
//! and unpack [`LANES`] rows side by side into a [`Panel`]. What a format's bytes mean is defined by
//! `argon_gguf::quant::decode`; a test holds the two together.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
mod iq;
mod k;
mod legacy;
mod other;

use std::marker::PhantomData;
use std::ops::Range;

use argon_gguf::Format;
use argon_gguf::quant::blocks::*;
use bytemuck::Pod;

use super::ahead::Ahead;
use crate::cpu::isa::{Codes, Floats, Isa, Kernel, LANES, Simd};

/// How a format's weights are integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coding {
    /// Weights that share a scale: 16 or 32.
    pub group: usize,
    /// The code of weight 0 (without a minimum).
    pub zero: u8,
    /// Whether groups have a minimum; `zero` is 0 then.
    pub min: bool,
    /// Which columns share a quad of the panel.
    pub order: Order,
    /// The capability by which lanes are blocks of a weight row, where they are.
    pub across: Option<Across>,
}

/// Which columns of 16 share a quad: four columns that one byte product takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "all are plain without AVX-512"))]
pub(super) enum Order {
    /// Quad q has columns `4q..4q + 4`.
    Plain,
    /// Quad q has columns `q, q + 8, q + 4, q + 12`: what comes of unpacking two octets side by side.
    Pairs,
    /// Quad q has columns `q, q + 4, q + 8, q + 12`: what comes of unpacking four quads side by side.
    Fours,
}

#[cfg(test)]
impl Order {
    /// The column, of 16, of byte `i` of the quads.
    pub fn column(self, i: usize) -> usize {
        match self {
            Order::Plain => i,
            Order::Pairs => i / 4 + [0, 8, 4, 12][i % 4],
            Order::Fours => i / 4 + 4 * (i % 4),
        }
    }
}

/// A block of `N` weights as integers.
pub(super) trait Coded<const N: usize>: Pod {
    /// The code of weight 0.
    const ZERO: u8;
    /// Weights that share a scale: 16 or 32.
    const GROUP: usize;
    /// Whether groups have a minimum.
    const MIN: bool = false;

    /// The codes of the weights, in order.
    fn codes(&self, codes: &mut [u8; N]);

    /// Scale of a group.
    fn scale(&self, group: usize) -> f32;

    /// Minimum of a group.
    fn min(&self, _group: usize) -> f32 {
        0.0
    }
}

/// `$then` with the block type of a quantised format, `$plain` for a format of plain floats (or no weights).
macro_rules! with_block {
    ($format:expr, $B:ident => $then:expr, $plain:expr) => {
        with_block!(@ $format, $B => $then, $plain; Q8_0 BlockQ8_0, Q4_0 BlockQ4_0, Q4_1 BlockQ4_1, Q5_0 BlockQ5_0,
            Q5_1 BlockQ5_1, Q2_K BlockQ2_K, Q3_K BlockQ3_K, Q4_K BlockQ4_K, Q5_K BlockQ5_K, Q6_K BlockQ6_K, IQ1_S BlockIQ1_S,
            IQ1_M BlockIQ1_M, IQ2_XXS BlockIQ2_XXS, IQ2_XS BlockIQ2_XS, IQ2_S BlockIQ2_S, IQ3_XXS BlockIQ3_XXS,
            IQ3_S BlockIQ3_S, IQ4_NL BlockIQ4_NL, IQ4_XS BlockIQ4_XS, TQ1_0 BlockTQ1_0, TQ2_0 BlockTQ2_0, Q1_0 BlockQ1_0,
            Q2_0 BlockQ2_0, MXFP4 BlockMXFP4, NVFP4 BlockNVFP4)
    };
    (@ $format:expr, $B:ident => $then:expr, $plain:expr; $($variant:ident $block:ident),*) => {
        match $format {
            $(Format::$variant => { type $B = $block; $then })*
            Format::F32 | Format::F16 | Format::BF16 | Format::F64 | Format::I8 | Format::I16 | Format::I32 | Format::I64 => $plain,
        }
    };
}

/// How a format's weights are integers; `None` for plain floats.
pub(super) fn coding(isa: Isa, format: Format) -> Option<Coding> {
    fn of<B: Coded<N>, const N: usize>(across: Option<(Across, Order)>) -> Option<Coding> {
        let order = across.map_or(Order::Plain, |(_, order)| order);
        Some(Coding { group: B::GROUP, zero: B::ZERO, min: B::MIN, order, across: across.map(|(across, _)| across) })
    }
    with_block!(format, B => of::<B, _>(across(isa, format)), None)
}

/// What proves that [`super::across`] can run.
#[cfg(target_arch = "x86_64")]
pub(super) type Across = crate::cpu::isa::Avx512;

/// It cannot.
#[cfg(not(target_arch = "x86_64"))]
pub(super) type Across = std::convert::Infallible;

/// The capability and the order of columns for a format whose lanes are blocks of a weight row.
#[cfg(target_arch = "x86_64")]
fn across(isa: Isa, format: Format) -> Option<(Across, Order)> {
    isa.avx512().zip(super::across::order(format))
}

/// None are, without AVX-512.
#[cfg(not(target_arch = "x86_64"))]
fn across(_: Isa, _: Format) -> Option<(Across, Order)> {
    None
}

/// [`LANES`] weight rows side by side, some of their columns.
pub(super) struct Panel<'a> {
    /// `[columns / 4][lane][4]`
    pub codes: &'a mut [Codes],
    /// `[columns / group][lane]`
    pub scales: &'a mut [Floats],
    /// `[columns / group][lane]`, empty for a format without minima.
    pub mins: &'a mut [Floats],
}

/// The memory of panels.
#[derive(Default)]
pub(super) struct Memory {
    codes: Vec<Codes>,
    scales: Vec<Floats>,
    mins: Vec<Floats>,
}

impl Memory {
    /// A panel of `cols` columns, holding whatever it held.
    pub fn panel(&mut self, coding: &Coding, cols: usize) -> Panel<'_> {
        let groups = cols / coding.group;
        Panel {
            codes: grown(&mut self.codes, cols / 4),
            scales: grown(&mut self.scales, groups),
            mins: grown(&mut self.mins, if coding.min { groups } else { 0 }),
        }
    }
}

/// The first `len` elements of a buffer that only ever grows.
pub(super) fn grown<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    &mut buffer[..len]
}

/// Columns of a panel that is unpacked at once: a multiple of every block, and of the transposition.
const CHUNK: usize = 256;

/// Some columns of up to [`LANES`] encoded weight rows. They begin and end between blocks.
pub(super) struct Stretch<'a> {
    /// How the rows are encoded.
    pub format: Format,
    /// From the first row to the end of the last one.
    pub bytes: &'a [u8],
    /// Bytes from a row to the next.
    pub stride: usize,
    /// Number of rows, at least 1.
    pub lanes: usize,
    /// Which of their columns.
    pub cols: Range<usize>,
}

impl<'a> Stretch<'a> {
    /// Its columns, at most `depth` at a time.
    pub fn cut(&self, depth: usize) -> impl Iterator<Item = Stretch<'a>> {
        let Stretch { format, bytes, stride, lanes, ref cols } = *self;
        let Range { start, end } = *cols;
        let part = move |first| Stretch { format, bytes, stride, lanes, cols: first..end.min(first + depth) };
        (start..end).step_by(depth).map(part)
    }

    /// The bytes of those columns, of each row.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        let at = |col: usize| col / self.format.block_len() * self.format.block_bytes();
        let (bytes, stride, cols) = (self.bytes, self.stride, at(self.cols.start)..at(self.cols.end));
        (0..self.lanes).map(move |row| &bytes[row * stride..][cols.clone()])
    }
}

/// Unpacks a stretch into a panel as long as it; lanes without a row are zero.
pub(super) fn unpack(isa: Isa, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
    fn blocks<B: Coded<N>, const N: usize>(isa: Isa, weights: &Stretch, ahead: &mut Ahead, panel: &mut Panel) {
        isa.run(Blocks::<B, N> { weights, ahead, panel, block: PhantomData });
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = avx512_for(isa, weights.format) {
        return avx512::unpack(avx512, weights, ahead, panel);
    }
    with_block!(weights.format, B => blocks::<B, _>(isa, weights, ahead, panel), unreachable!("plain floats have no codes"));
}

/// The capability by which a format is unpacked with instructions of its own.
#[cfg(target_arch = "x86_64")]
pub(super) fn avx512_for(isa: Isa, format: Format) -> Option<crate::cpu::isa::Avx512> {
    isa.avx512().filter(|_| avx512::takes(format))
}

/// Unpacks any format: blocks to rows of codes, sixteen rows to a panel.
struct Blocks<'a, 'b, 'c, B, const N: usize> {
    weights: &'a Stretch<'a>,
    ahead: &'a mut Ahead<'b>,
    panel: &'a mut Panel<'c>,
    block: PhantomData<B>,
}

impl<B: Coded<N>, const N: usize> Kernel for Blocks<'_, '_, '_, B, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Blocks { weights, ahead, panel, .. } = self;
        let mut lanes = [[0; CHUNK]; LANES];
        for (chunk, codes) in panel.codes.chunks_mut(CHUNK / 4).enumerate() {
            ahead.step(CHUNK / 32);
            let (first, blocks) = (chunk * (CHUNK / N), codes.len() * 4 / N);
            let group = chunk * (CHUNK / B::GROUP);
            for (lane, row) in weights.rows().enumerate() {
                let row = &bytemuck::cast_slice::<u8, B>(row)[first..first + blocks];
                for (i, (block, codes)) in row.iter().zip(lanes[lane].as_chunks_mut::<N>().0).enumerate() {
                    block.codes(codes);
                    let groups = group + i * (N / B::GROUP)..group + (i + 1) * (N / B::GROUP);
                    spread(N / B::GROUP, |g| block.scale(g), lane, &mut panel.scales[groups.clone()]);
                    if B::MIN {
                        spread(N / B::GROUP, |g| block.min(g), lane, &mut panel.mins[groups]);
                    }
                }
            }
            simd.interleave(&lanes, codes);
        }
        clear_from(weights.lanes, panel);
    }
}

/// Puts what `of` says of each group into a lane. It says so into an array first: after a store to the panel, which could be
/// anywhere, the compiler reads and converts the block's own scale anew.
#[inline(always)]
fn spread(count: usize, of: impl Fn(usize) -> f32, lane: usize, groups: &mut [Floats]) {
    let mut values = [0.0; CHUNK / 16];
    for (g, value) in values.iter_mut().enumerate().take(count) {
        *value = of(g);
    }
    for (lanes, value) in groups.iter_mut().zip(values) {
        lanes.0[lane] = value;
    }
}

/// Lanes without a row keep whatever codes they have: their scales and minima are zero.
fn clear_from(lane: usize, panel: &mut Panel) {
    if lane < LANES {
        for lanes in panel.scales.iter_mut().chain(panel.mins.iter_mut()) {
            lanes.0[lane..].fill(0.0);
        }
    }
}

/// The value of a half: `F16::to_f32`, in a form that is vector code. Scales are often subnormal halves, and a subnormal float
/// on the way would take a processor as long as all the rest of a block.
#[inline(always)]
fn half(value: F16) -> f32 {
    let bits = u32::from(u16::from_le_bytes(value.0));
    // Exponent and mantissa in the place of f32's; the exponents' biases differ by 112.
    let normal = ((bits & 0x7fff) << 13) + (112 << 23);
    let subnormal = ((bits & 0x3ff) as f32 * 2f32.powi(-24)).to_bits();
    let size = if bits & 0x7c00 == 0 { subnormal } else { normal };
    let top = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(size | top | (bits & 0x8000) << 16)
}

/// The low nibbles of some bytes, then the high ones.
#[inline(always)]
fn nibbles<const N: usize>(bytes: &[u8; N], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(N);
    for i in 0..N {
        low[i] = bytes[i] & 15;
        high[i] = bytes[i] >> 4;
    }
}

#[cfg(test)]
mod tests {
    use argon_gguf::decode_row;

    use super::*;

    /// Bytes of every kind, with half-precision numbers that are neither infinite nor NaN wherever they may be.
    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 & 0xbf
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn halves_are_exact() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half(F16(bits.to_le_bytes())), F16(bits.to_le_bytes()).to_f32());
            assert!(got == want || got.is_nan() && want.is_nan(), "{bits:#x}");
        }
    }

    /// Every code of every lane, less its zero, times its scale, and its minimum, is the weight that the definition decodes.
    #[test]
    fn panels_are_the_decoded_weights() {
        for isa in Isa::available() {
            for (format, coding) in Format::ALL.iter().filter_map(|&format| Some((format, coding(isa, format)?))) {
                if coding.across.is_some() {
                    continue; // Never in a panel: `across` has a test of its own.
                }
                for (lanes, cols) in [(LANES, 768), (LANES, format.block_len()), (5, 256 + format.block_len())] {
                    let row_bytes = format.row_bytes(cols).unwrap();
                    let bytes = bytes(row_bytes * lanes);
                    let rows: Vec<&[u8]> = bytes.chunks_exact(row_bytes).collect();
                    let first = if cols > 512 { 256 } else { 0 };
                    let mut memory = Memory::default();
                    let mut panel = memory.panel(&coding, cols - first);
                    let stretch = Stretch { format, bytes: &bytes, stride: row_bytes, lanes, cols: first..cols };
                    unpack(isa, &stretch, &mut Ahead::new(&[], 1), &mut panel);
                    let mut want = vec![0.0; cols];
                    for lane in 0..LANES {
                        if let Some(row) = rows.get(lane) {
                            decode_row(format, row, &mut want);
                        } else {
                            want.fill(0.0);
                        }
                        for i in 0..cols - first {
                            let k = i / 16 * 16 + coding.order.column(i % 16);
                            let want = want[first + k];
                            let scale = panel.scales[k / coding.group].0[lane];
                            let min = panel.mins.get(k / coding.group).map_or(0.0, |mins| mins.0[lane]);
                            let code = f64::from(panel.codes[i / 4].0[4 * lane + i % 4]) - f64::from(coding.zero);
                            let got = f64::from(scale) * code + f64::from(min);
                            // The definition rounds the product and the sum to f32.
                            let bound = (f64::from(scale) * code).abs().max(f64::from(min).abs()) * 2f64.powi(-23);
                            assert!((got - f64::from(want)).abs() <= bound, "{format} lane {lane} k {k}: {got} {want}");
                        }
                    }
                }
            }
        }
    }
}
