//! The formats that tensors are stored in.
//!
//! One table says what each format is called, which number GGUF files give it, and how its weights are blocked.
//! Everything else in the workspace asks that table. What the bytes of a block mean is in [`decode`].

pub mod blocks;
pub mod decode;
pub mod encode;
pub mod scales;
pub mod tables;

use std::fmt;

pub use decode::decode_row;
pub use encode::encode_row;
pub use scales::scales_are_finite;

macro_rules! formats {
    ($($(#[doc = $doc:literal])* $variant:ident = $id:literal, $name:literal, $len:literal, $bytes:literal;)*) => {
        /// How the weights of a tensor are stored.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u32)]
        pub enum Format { $($(#[doc = $doc])* $variant = $id,)* }

        impl Format {
            /// Every format, in the order of the type ids.
            pub const ALL: &[Format] = &[$(Format::$variant,)*];

            const fn row(self) -> (&'static str, usize, usize) {
                match self { $(Format::$variant => ($name, $len, $bytes),)* }
            }

            /// The format with this type id, or `None` for an id that is unknown or no longer in use.
            pub const fn from_ggml(id: u32) -> Option<Format> {
                match id { $($id => Some(Format::$variant),)* _ => None }
            }
        }
    };
}

// variant = ggml type id, name, weights in a block, bytes of a block
formats! {
    /// 32-bit float.
    F32 = 0, "F32", 1, 4;
    /// 16-bit float, IEEE.
    F16 = 1, "F16", 1, 2;
    /// 4 bits, one scale in 32 weights.
    Q4_0 = 2, "Q4_0", 32, 18;
    /// 4 bits, one scale and one minimum in 32 weights.
    Q4_1 = 3, "Q4_1", 32, 20;
    /// 5 bits, one scale in 32 weights.
    Q5_0 = 6, "Q5_0", 32, 22;
    /// 5 bits, one scale and one minimum in 32 weights.
    Q5_1 = 7, "Q5_1", 32, 24;
    /// 8 bits, one scale in 32 weights.
    Q8_0 = 8, "Q8_0", 32, 34;
    /// 2 bits, 4-bit scales and minima in groups of 16.
    Q2_K = 10, "Q2_K", 256, 84;
    /// 3 bits, 6-bit scales in groups of 16.
    Q3_K = 11, "Q3_K", 256, 110;
    /// 4 bits, 6-bit scales and minima in groups of 32.
    Q4_K = 12, "Q4_K", 256, 144;
    /// 5 bits, 6-bit scales and minima in groups of 32.
    Q5_K = 13, "Q5_K", 256, 176;
    /// 6 bits, 8-bit scales in groups of 16.
    Q6_K = 14, "Q6_K", 256, 210;
    /// Codebook of 256 groups of 8, 2.06 bits a weight.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    /// Codebook of 512 groups of 8, 2.31 bits a weight.
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    /// Codebook of 256 groups of 4, 3.06 bits a weight.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    /// Ternary codebook of 2048 groups of 8, 1.56 bits a weight.
    IQ1_S = 19, "IQ1_S", 256, 50;
    /// 4-bit indices into 16 uneven values, one scale in 32 weights.
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    /// Codebook of 512 groups of 4, 3.44 bits a weight.
    IQ3_S = 21, "IQ3_S", 256, 110;
    /// Codebook of 1024 groups of 8, 2.56 bits a weight.
    IQ2_S = 22, "IQ2_S", 256, 82;
    /// 4-bit indices into 16 uneven values, 6-bit scales in groups of 32.
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    /// 8-bit integer, not a weight.
    I8 = 24, "I8", 1, 1;
    /// 16-bit integer, not a weight.
    I16 = 25, "I16", 1, 2;
    /// 32-bit integer, not a weight.
    I32 = 26, "I32", 1, 4;
    /// 64-bit integer, not a weight.
    I64 = 27, "I64", 1, 8;
    /// 64-bit float, not a weight.
    F64 = 28, "F64", 1, 8;
    /// Ternary codebook of 2048 groups of 8, 1.75 bits a weight.
    IQ1_M = 29, "IQ1_M", 256, 56;
    /// The upper half of a 32-bit float.
    BF16 = 30, "BF16", 1, 2;
    /// Ternary, five weights in a byte.
    TQ1_0 = 34, "TQ1_0", 256, 54;
    /// Ternary, four weights in a byte.
    TQ2_0 = 35, "TQ2_0", 256, 66;
    /// 4-bit floats, one power of two in 32 weights.
    MXFP4 = 39, "MXFP4", 32, 17;
    /// 4-bit floats, one 8-bit float scale in groups of 16.
    NVFP4 = 40, "NVFP4", 64, 36;
    /// Sign bits, one scale in 128 weights.
    Q1_0 = 41, "Q1_0", 128, 18;
    /// 2 bits, one scale in 64 weights. (Files with 128 weights under the same id exist and are refused.)
    Q2_0 = 42, "Q2_0", 64, 18;
}

impl Format {
    /// The type id in GGUF files.
    pub const fn ggml_id(self) -> u32 {
        self as u32
    }

    /// The name, as ggml writes it, in capitals.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The format called `name`, capitals or not.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// Weights in a block.
    pub const fn block_len(self) -> usize {
        self.row().1
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.row().2
    }

    /// Whether model weights are stored in this format. The plain integers and [`Format::F64`] are not weights.
    pub const fn is_weight(self) -> bool {
        !matches!(self, Format::I8 | Format::I16 | Format::I32 | Format::I64 | Format::F64)
    }

    /// The formats that model weights are stored in, in the order of [`Format::ALL`].
    pub fn weights() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|format| format.is_weight())
    }

    /// Bytes of a row of `cols` weights; `None` where `cols` is no multiple of the block or the product overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if cols.is_multiple_of(self.block_len()) {
            (cols / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
