//! The blocks as they lie in a file.
//!
//! Every field is made of bytes, so that a block has alignment 1 and any byte slice of the right length can be viewed
//! as blocks (`bytemuck::cast_slice`), wherever it lies. Numbers wider than a byte are little-endian [`F16`] and
//! [`U16`]. The sizes are asserted against the one table in [`Format`].

use super::Format;
use bytemuck::{Pod, Zeroable};

/// An IEEE half as it lies in a file.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct F16(pub [u8; 2]);

impl F16 {
    /// Nearest half to `value`, ties to even.
    pub fn from_f32(value: f32) -> F16 {
        F16(half::f16::from_f32(value).to_le_bytes())
    }

    /// The value, exactly.
    pub fn to_f32(self) -> f32 {
        half::f16::from_le_bytes(self.0).to_f32()
    }
}

/// A 16-bit word as it lies in a file.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct U16(pub [u8; 2]);

impl U16 {
    /// The value.
    pub const fn get(self) -> u16 {
        u16::from_le_bytes(self.0)
    }
}

macro_rules! blocks {
    ($($(#[doc = $doc:literal])* $name:ident ($format:ident) {
        $($(#[doc = $field_doc:literal])* $field:ident: $ty:ty,)*
    })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name { $($(#[doc = $field_doc])* pub $field: $ty,)* }

        const _: () = assert!(size_of::<$name>() == Format::$format.block_bytes() && align_of::<$name>() == 1);
    )*};
}

blocks! {
    /// Block of [`Format::Q8_0`].
    BlockQ8_0 (Q8_0) {
        /// Scale.
        d: F16,
        /// Weights.
        qs: [i8; 32],
    }
    /// Block of [`Format::Q4_0`].
    BlockQ4_0 (Q4_0) {
        /// Scale.
        d: F16,
        /// Weights 0 to 15 in the low nibbles, 16 to 31 in the high ones, offset by 8.
        qs: [u8; 16],
    }
    /// Block of [`Format::Q4_1`].
    BlockQ4_1 (Q4_1) {
        /// Scale.
        d: F16,
        /// Minimum.
        m: F16,
        /// Weights 0 to 15 in the low nibbles, 16 to 31 in the high ones.
        qs: [u8; 16],
    }
    /// Block of [`Format::Q5_0`].
    BlockQ5_0 (Q5_0) {
        /// Scale.
        d: F16,
        /// Bit `j` is the fifth bit of weight `j` (a little-endian word).
        qh: [u8; 4],
        /// Low bits, nibbles as in [`BlockQ4_0`]; the weights are offset by 16.
        qs: [u8; 16],
    }
    /// Block of [`Format::Q5_1`].
    BlockQ5_1 (Q5_1) {
        /// Scale.
        d: F16,
        /// Minimum.
        m: F16,
        /// Bit `j` is the fifth bit of weight `j` (a little-endian word).
        qh: [u8; 4],
        /// Low bits, nibbles as in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Block of [`Format::Q1_0`].
    BlockQ1_0 (Q1_0) {
        /// Scale.
        d: F16,
        /// Bit `j` set: weight `j` is positive.
        qs: [u8; 16],
    }
    /// Block of [`Format::Q2_0`].
    BlockQ2_0 (Q2_0) {
        /// Scale.
        d: F16,
        /// Four weights a byte, lowest bits first, offset by 1.
        qs: [u8; 16],
    }
    /// Block of [`Format::MXFP4`].
    BlockMXFP4 (MXFP4) {
        /// Exponent (E8M0): the scale is 2^(e - 127).
        e: u8,
        /// Indices into [`FP4_VALUES`](super::tables::FP4_VALUES), nibbles as in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Block of [`Format::NVFP4`].
    BlockNVFP4 (NVFP4) {
        /// Scales of the four groups of 16, unsigned 8-bit floats (E4M3).
        d: [u8; 4],
        /// Eight bytes a group: its weights 0 to 7 in the low nibbles, 8 to 15 in the high ones.
        qs: [u8; 32],
    }
    /// Block of [`Format::TQ1_0`].
    BlockTQ1_0 (TQ1_0) {
        /// Five ternary digits a byte.
        qs: [u8; 48],
        /// Four ternary digits a byte, the last 16 weights.
        qh: [u8; 4],
        /// Scale.
        d: F16,
    }
    /// Block of [`Format::TQ2_0`].
    BlockTQ2_0 (TQ2_0) {
        /// Four weights a byte, 32 apart, offset by 1.
        qs: [u8; 64],
        /// Scale.
        d: F16,
    }
    /// Block of [`Format::Q2_K`].
    BlockQ2_K (Q2_K) {
        /// Scale (low nibble) and minimum (high nibble) of each group of 16.
        scales: [u8; 16],
        /// Four weights a byte, 32 apart, within each half of 128.
        qs: [u8; 64],
        /// Scale of the scales.
        d: F16,
        /// Scale of the minima.
        dmin: F16,
    }
    /// Block of [`Format::Q3_K`].
    BlockQ3_K (Q3_K) {
        /// Third bits: bit `i` of byte `l` belongs to weight `32 i + l`; clear means 4 less.
        hmask: [u8; 32],
        /// Low two bits, as in [`BlockQ2_K`].
        qs: [u8; 64],
        /// Sixteen 6-bit scales: low nibbles in 8 bytes, then high bits in 4; offset by 32.
        scales: [u8; 12],
        /// Scale of the scales.
        d: F16,
    }
    /// Block of [`Format::Q4_K`].
    BlockQ4_K (Q4_K) {
        /// Scale of the scales.
        d: F16,
        /// Scale of the minima.
        dmin: F16,
        /// Eight 6-bit scales and eight 6-bit minima, interleaved.
        scales: [u8; 12],
        /// In each run of 64: weights 0 to 31 in the low nibbles, 32 to 63 in the high ones.
        qs: [u8; 128],
    }
    /// Block of [`Format::Q5_K`].
    BlockQ5_K (Q5_K) {
        /// Scale of the scales.
        d: F16,
        /// Scale of the minima.
        dmin: F16,
        /// Scales and minima, as in [`BlockQ4_K`].
        scales: [u8; 12],
        /// Fifth bits: bit `i` of byte `l` belongs to weight `32 i + l`.
        qh: [u8; 32],
        /// Low bits, as in [`BlockQ4_K`].
        qs: [u8; 128],
    }
    /// Block of [`Format::Q6_K`].
    BlockQ6_K (Q6_K) {
        /// Low four bits.
        ql: [u8; 128],
        /// High two bits.
        qh: [u8; 64],
        /// Scales of the groups of 16.
        scales: [i8; 16],
        /// Scale of the scales.
        d: F16,
    }
    /// Block of [`Format::IQ4_NL`].
    BlockIQ4_NL (IQ4_NL) {
        /// Scale.
        d: F16,
        /// Indices into [`IQ4_NL_VALUES`](super::tables::IQ4_NL_VALUES), nibbles as in [`BlockQ4_0`].
        qs: [u8; 16],
    }
    /// Block of [`Format::IQ4_XS`].
    BlockIQ4_XS (IQ4_XS) {
        /// Scale of the scales.
        d: F16,
        /// High two bits of the eight scales.
        scales_h: U16,
        /// Low four bits of the eight scales, which are offset by 32.
        scales_l: [u8; 4],
        /// Eight runs of 32 weights, nibbles as in [`BlockIQ4_NL`].
        qs: [u8; 128],
    }
    /// Block of [`Format::IQ2_XXS`].
    BlockIQ2_XXS (IQ2_XXS) {
        /// Scale of the scales.
        d: F16,
        /// In each 32 weights: four grid indices, then a word of four 7-bit sign masks and a 4-bit scale.
        qs: [u8; 64],
    }
    /// Block of [`Format::IQ2_XS`].
    BlockIQ2_XS (IQ2_XS) {
        /// Scale of the scales.
        d: F16,
        /// In each 8 weights: a 9-bit grid index and a 7-bit sign mask.
        qs: [U16; 32],
        /// 4-bit scales of the groups of 16.
        scales: [u8; 8],
    }
    /// Block of [`Format::IQ2_S`].
    BlockIQ2_S (IQ2_S) {
        /// Scale of the scales.
        d: F16,
        /// Low eight bits of the grid indices, one in 8 weights.
        qs: [u8; 32],
        /// Sign masks, one in 8 weights.
        signs: [u8; 32],
        /// High two bits of the grid indices, four in a byte.
        qh: [u8; 8],
        /// 4-bit scales of the groups of 16.
        scales: [u8; 8],
    }
    /// Block of [`Format::IQ3_XXS`].
    BlockIQ3_XXS (IQ3_XXS) {
        /// Scale of the scales.
        d: F16,
        /// Grid indices, one in 4 weights.
        qs: [u8; 64],
        /// In each 32 weights: a word of four 7-bit sign masks and a 4-bit scale.
        scales_and_signs: [u8; 32],
    }
    /// Block of [`Format::IQ3_S`].
    BlockIQ3_S (IQ3_S) {
        /// Scale of the scales.
        d: F16,
        /// Low eight bits of the grid indices, one in 4 weights.
        qs: [u8; 64],
        /// Ninth bits of the grid indices, eight in a byte.
        qh: [u8; 8],
        /// Sign masks, one in 8 weights.
        signs: [u8; 32],
        /// 4-bit scales of the groups of 32.
        scales: [u8; 4],
    }
    /// Block of [`Format::IQ1_S`].
    BlockIQ1_S (IQ1_S) {
        /// Scale of the scales.
        d: F16,
        /// Low eight bits of the grid indices, one in 8 weights.
        qs: [u8; 32],
        /// In each 32 weights: four 3-bit rests of the indices, a 3-bit scale and the sign of the shift.
        qh: [U16; 8],
    }
    /// Block of [`Format::IQ1_M`].
    BlockIQ1_M (IQ1_M) {
        /// Low eight bits of the grid indices, one in 8 weights.
        qs: [u8; 32],
        /// In each 8 weights: three high bits of the index and the sign of the shift.
        qh: [u8; 16],
        /// Sixteen 3-bit scales; the four top nibbles make up the scale of the scales.
        scales: [U16; 4],
    }
}
