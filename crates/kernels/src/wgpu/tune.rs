//! How products are cut into workgroups: pure functions of an adapter's facts, the weights' format and the rows of an expert.

use argon_gguf::Format;

use super::tier::Products;

/// Heights of a product's tiles.
pub const TILE_ROWS: [u32; 3] = [16, 32, HIGHEST];

/// The largest of them.
const HIGHEST: u32 = 64;

/// Weight rows of a workgroup of the portable product.
const SLOTS: u32 = 64;

/// Columns of the output of a workgroup of the product of few rows.
const FEW_COLUMNS: u32 = 8;

/// Rows that the product of few rows sums at a time.
pub const FEW: [u32; 3] = [1, 4, 8];

/// Columns of k at a time of the portable product in f16 (staged_f16.wgsl).
const STAGED_DEPTH: u32 = 32;

/// Parts of a step of k of the product by matrices: the input of all is loaded before the weights of the first are decoded.
pub(super) const PARTS: u32 = 2;

/// Shared memory that is enough for the product by matrices, whatever the format.
pub(super) const LEAST_SHARED: u32 = 31 << 10;

/// A cooperative matrix of f16 factors and f32 sums, and what bounds a workgroup that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Rows, columns and depth: 8 or 16.
    pub size: u32,
    /// Threads that share one.
    pub subgroup: u32,
    /// Bytes of shared memory that a workgroup can have.
    pub shared: u32,
}

/// Cooperative matrices that kernels are translated for, as tests see to: Apple's, a software driver's, NVIDIA's, AMD's.
pub const MATRICES: [Matrix; 4] = [
    Matrix { size: 8, subgroup: 32, shared: 32 << 10 },
    Matrix { size: 8, subgroup: 8, shared: 32 << 10 },
    Matrix { size: 16, subgroup: 32, shared: 48 << 10 },
    Matrix { size: 16, subgroup: 64, shared: 64 << 10 },
];

/// What a product is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Output rows of a workgroup: 16, 32 or 64.
    pub rows: u32,
    /// Weight rows of a workgroup.
    pub slots: u32,
    /// Half of them belong to a second weight.
    pub swiglu: bool,
    /// How they are multiplied.
    pub way: Way,
}

/// How a workgroup multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Operands are staged in shared memory, in f32.
    F32Tiles,
    /// They are staged in f16, twice as many columns of k at a time.
    F16Tiles,
    /// By cooperative matrices.
    Matrices(Matrices),
    /// By subgroups that decode for themselves and sum so many rows at a time.
    Few(u32),
}

/// How a workgroup is made of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrices {
    /// What it is made of.
    pub matrix: Matrix,
    /// Weight rows of a subgroup.
    pub strip: u32,
    /// Columns of k whose weights are decoded at a time.
    pub part: u32,
    /// Columns of k whose weights are fetched together: whole blocks.
    pub chunk: u32,
}

/// The tile height that suits a plan: the least of the kernel's that holds an expert's rows on average. A taller tile
/// decodes weights less often, and rows that are padding cost a product little.
pub(super) fn tile_rows(entries: usize, experts: usize) -> usize {
    height(entries.div_ceil(experts.max(1)))
}

/// The least height of a tile that holds so many rows, or the largest.
pub(super) fn height(rows: usize) -> usize {
    TILE_ROWS.into_iter().map(|height| height as usize).find(|&height| rows <= height).unwrap_or(HIGHEST as usize)
}

/// Rows to sum at a time, where a product has so few that weights are better decoded by subgroups, each for itself, than shared:
/// `tokens` rows of the input, or their `entries` among `experts`.
pub(super) fn few(tokens: usize, entries: usize, experts: usize) -> Option<u32> {
    let rows = entries.div_ceil(experts.max(1));
    if tokens > 8 {
        return None;
    }
    FEW.into_iter().find(|&at_once| rows <= at_once as usize)
}

impl Tile {
    /// The tile of a height for products with weights of a format, of a device that makes its products so.
    pub fn new(products: Products, format: Format, rows: u32, swiglu: bool) -> Self {
        match products {
            Products::Cooperative(matrix) => Self::by_matrices(matrix, format, rows, swiglu),
            Products::F16Tiles => Self { rows, slots: SLOTS, swiglu, way: Way::F16Tiles },
            Products::F32Tiles => Self { rows, slots: SLOTS, swiglu, way: Way::F32Tiles },
        }
    }

    /// The tile of which most subgroups have room in shared memory at a time, several workgroups of it if need be: they wait for
    /// memory, and for each other nowhere.
    fn by_matrices(matrix: Matrix, format: Format, rows: u32, swiglu: bool) -> Self {
        let all = choices(format, matrix).map(|(warps, matrices)| {
            let tile = Self { rows, slots: warps * matrices.strip, swiglu, way: Way::Matrices(matrices) };
            (matrix.shared / tile.shared_bytes(format) * warps, tile)
        });
        // The first of those that are best: `max_by_key` gives the last.
        all.rev().max_by_key(|&(warps_at_once, _)| warps_at_once).expect("there are choices").1
    }

    /// The product of few rows, `at_once` of them by a subgroup at a time.
    pub const fn few(at_once: u32, swiglu: bool) -> Self {
        let slots = if swiglu { 2 * FEW_COLUMNS } else { FEW_COLUMNS };
        Self { rows: HIGHEST, slots, swiglu, way: Way::Few(at_once) }
    }

    /// How it is made of matrices, where it is.
    pub fn matrices(&self) -> Option<Matrices> {
        match self.way {
            Way::Matrices(matrices) => Some(matrices),
            Way::F32Tiles | Way::F16Tiles | Way::Few(_) => None,
        }
    }

    /// Columns of k of a step, where its operands are f16.
    pub(super) fn half_depth(&self) -> Option<u32> {
        match self.way {
            Way::F16Tiles => Some(STAGED_DEPTH),
            Way::Matrices(matrices) => Some(matrices.depth()),
            Way::F32Tiles | Way::Few(_) => None,
        }
    }

    /// Columns of the output that a workgroup makes.
    pub fn columns(&self) -> u32 {
        if self.swiglu { self.slots / 2 } else { self.slots }
    }

    /// Bytes of shared memory that gemm_coop.wgsl declares; none for the portable product.
    pub fn shared_bytes(&self, format: Format) -> u32 {
        let Some(matrices) = self.matrices() else { return 0 };
        let weights = self.slots * (matrices.part + 8) * 2;
        let raw = self.slots * ((matrices.raw_words(format) + 1) | 1) * 4;
        let products = self.slots / matrices.strip * matrices.matrix.size.pow(2) * 4;
        let tables = match format {
            Format::IQ2_XS => 512 * 8 + 128 * 4,
            Format::IQ4_NL => 256 * 4,
            _ => 0,
        };
        let rest = 4 * self.slots + 8 * self.rows + 12;
        weights + raw + products + tables + rest
    }
}

impl Matrices {
    /// Columns of k of a step.
    pub(super) fn depth(&self) -> u32 {
        PARTS * self.part
    }

    /// Bytes of a row's chunk.
    pub(super) fn chunk_bytes(&self, format: Format) -> u32 {
        self.chunk / format.block_len() as u32 * format.block_bytes() as u32
    }

    /// Words that a row's chunk touches, at most.
    pub(super) fn raw_words(&self, format: Format) -> u32 {
        (self.chunk_bytes(format) + 6) / 4
    }
}

/// Ways to make a workgroup and its subgroups, the largest first. A subgroup has sixteen weights of a part to decode each thread.
fn choices(format: Format, matrix: Matrix) -> impl DoubleEndedIterator<Item = (u32, Matrices)> {
    let strip = matrix.subgroup.clamp(16, 32);
    let part = (16 * matrix.subgroup / strip).max(16);
    let least = (format.block_len() as u32).max(PARTS * part);
    let chunk = move |chunk: u32| Matrices { matrix, strip, part, chunk: chunk.max(least) };
    [8, 4, 2, 1].into_iter().flat_map(move |warps| [128, 64, 32].map(|columns| (warps, chunk(columns))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_hold_an_experts_rows() {
        let found = [(1, 512), (1280, 512), (5120, 512), (10_240, 512), (20_480, 512), (81_920, 512), (7, 0)]
            .map(|(entries, experts)| tile_rows(entries, experts));
        assert_eq!(found, [16, 16, 16, 32, 64, 64, 16]);
    }

    /// Weight rows, those of a subgroup, columns of a part and of a chunk: what docs/wgpu.md has the times of.
    fn answer(format: Format, rows: u32, swiglu: bool, matrix: Matrix) -> [u32; 4] {
        let tile = Tile::new(Products::Cooperative(matrix), format, rows, swiglu);
        let matrices = tile.matrices().expect("by matrices");
        [tile.slots, matrices.strip, matrices.part, matrices.chunk]
    }

    #[test]
    fn tiles_of_an_nvidia_card() {
        for rows in TILE_ROWS {
            assert_eq!(answer(Format::IQ2_XS, rows, true, MATRICES[2]), [256, 32, 16, 256]);
            assert_eq!(answer(Format::IQ4_NL, rows, false, MATRICES[2]), [128, 32, 16, 32]);
        }
    }

    /// Sixteen weights of a part for each thread, or more where a fragment of sums needs them.
    #[test]
    fn subgroups_of_any_size_have_their_weights() {
        let parts = MATRICES.map(|matrix| answer(Format::IQ2_XS, 64, true, matrix)[1..3].to_vec());
        assert_eq!(parts, [[32, 16], [16, 16], [32, 16], [32, 32]]);
    }

    #[test]
    fn few_rows_are_those_of_few_tokens() {
        let dense = [1, 2, 4, 5, 8, 9, 2048].map(|tokens| few(tokens, tokens, 1));
        assert_eq!(dense, [Some(1), Some(4), Some(4), Some(8), Some(8), None, None]);
        let routed = [1, 8, 9].map(|tokens| few(tokens, 10 * tokens, 512));
        assert_eq!(routed, [Some(1), Some(1), None]);
        assert_eq!([few(8, 16, 4), few(8, 80, 4), few(1, 0, 0)], [Some(4), None, Some(1)]);
    }

    #[test]
    fn tiles_fit_the_shared_memory_of_every_matrix() {
        for format in Format::ALL.iter().copied().filter(|format| format.is_weight()) {
            for (matrix, rows) in MATRICES.iter().flat_map(|&matrix| TILE_ROWS.map(|rows| (matrix, rows))) {
                for swiglu in [false, true] {
                    let tile = Tile::new(Products::Cooperative(matrix), format, rows, swiglu);
                    let bytes = tile.shared_bytes(format);
                    assert!(bytes <= matrix.shared, "{format:?} {rows} rows {matrix:?}: {bytes} bytes");
                }
            }
        }
    }

    #[test]
    fn the_portable_tile_depends_on_its_rows_alone() {
        let tile = Tile::new(Products::F32Tiles, Format::Q4_K, 32, true);
        assert_eq!(tile, Tile { rows: 32, slots: 64, swiglu: true, way: Way::F32Tiles });
        assert_eq!((tile.columns(), tile.shared_bytes(Format::Q4_K)), (32, 0));
        let half = Tile::new(Products::F16Tiles, Format::Q4_K, 32, true);
        assert_eq!(half, Tile { way: Way::F16Tiles, ..tile });
    }
}
