//! How products are cut into workgroups: pure functions of an adapter's facts, the weights' format and the rows of an expert.

use argon_gguf::Format;

use super::tier::Products;

/// Heights of a product's tiles.
pub const TILE_ROWS: [u32; 3] = [16, 32, 64];

/// Weight rows of a workgroup of the portable product.
const SLOTS: u32 = 64;

/// Columns of the output of a workgroup of the product of few rows.
const FEW_COLUMNS: u32 = 8;

/// Rows that the product of few rows sums at a time.
pub const FEW: [u32; 3] = [1, 4, 8];

/// Columns of k at a time of the product by matrices.
pub(super) const DEPTH: u32 = 32;

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
    /// What the product by matrices has beside that.
    pub matrices: Option<Matrices>,
    /// What the product of few rows has: rows that a subgroup sums at a time.
    pub few: Option<u32>,
    /// The portable product stages its operands in f16, twice as many columns of k at a time.
    pub halves: bool,
}

/// How a workgroup is made of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrices {
    /// What it is made of.
    pub matrix: Matrix,
    /// Subgroups that share its rows, and its columns.
    pub warps: [u32; 2],
    /// Columns of k whose weights are fetched together: whole blocks.
    pub chunk: u32,
    /// Subgroups that store their sums at a time.
    pub regions: u32,
}

/// The tile height that suits a plan: the least of the kernel's that holds an expert's rows on average. A taller tile
/// decodes weights less often, and rows that are padding cost a product little.
pub(super) fn tile_rows(entries: usize, experts: usize) -> usize {
    height(entries.div_ceil(experts.max(1)))
}

/// The least height of a tile that holds so many rows, or the largest.
pub(super) fn height(rows: usize) -> usize {
    TILE_ROWS.into_iter().map(|height| height as usize).find(|&height| rows <= height).unwrap_or(64)
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
    /// The tile of a height for products with weights of a format. By matrices it has as many weight rows, then columns of a
    /// chunk, then stores at a time as shared memory holds; a low one, which waits more than it multiplies, is small instead, so
    /// that up to three of them share a processor.
    pub fn new(format: Format, rows: u32, swiglu: bool, matrix: Option<Matrix>) -> Self {
        let Some(matrix) = matrix else {
            return Self { rows, slots: SLOTS, swiglu, matrices: None, few: None, halves: false };
        };
        let tile = |(slots, matrices)| Self { rows, slots, swiglu, matrices: Some(matrices), few: None, halves: false };
        let at_once = |tile: &Self| (matrix.shared / tile.shared_bytes(format)).min(3);
        let small = choices(format, rows, 64, matrix).into_iter().map(tile);
        let large = choices(format, rows, 128, matrix).into_iter().map(tile);
        // The first of those that are best: `max_by_key` gives the last.
        let best = small.clone().rev().max_by_key(at_once).expect("there are choices");
        if rows <= 16 && at_once(&best) > 1 {
            return best;
        }
        large.chain(small).find(|tile| at_once(tile) > 0).unwrap_or(best)
    }

    /// The tile of a height, of a device that makes its products so.
    pub fn of(products: Products, format: Format, rows: u32, swiglu: bool) -> Self {
        match products {
            Products::Cooperative(matrix) => Self::new(format, rows, swiglu, Some(matrix)),
            Products::F16Tiles => Self { halves: true, ..Self::new(format, rows, swiglu, None) },
            Products::F32Tiles => Self::new(format, rows, swiglu, None),
        }
    }

    /// Whether its operands are f16.
    pub fn is_half(&self) -> bool {
        self.halves || self.matrices.is_some()
    }

    /// The product of few rows, `at_once` of them by a subgroup at a time.
    pub const fn few(at_once: u32, swiglu: bool) -> Self {
        let slots = if swiglu { 2 * FEW_COLUMNS } else { FEW_COLUMNS };
        Self { rows: 64, slots, swiglu, matrices: None, few: Some(at_once), halves: false }
    }

    /// Columns of the output that a workgroup makes.
    pub fn columns(&self) -> u32 {
        if self.swiglu { self.slots / 2 } else { self.slots }
    }

    /// Bytes of shared memory that gemm_coop.wgsl declares; none for the portable product.
    pub fn shared_bytes(&self, format: Format) -> u32 {
        let Some(matrices) = self.matrices else { return 0 };
        let tiles = (self.rows + self.slots) * (DEPTH + 8) * 2;
        let raw = self.slots * ((matrices.raw_words(format) + 1) | 1) * 4;
        let products = matrices.products() * matrices.matrix.size.pow(2) * 4;
        let tables = match format {
            Format::IQ2_XS => (512 + 128) * 16,
            Format::IQ4_NL => 256 * 4,
            _ => 0,
        };
        let rest = 4 * self.slots + 8 * self.rows + 12;
        tiles + raw + products + tables + rest
    }
}

impl Matrices {
    /// Threads of a workgroup.
    pub(super) fn threads(&self) -> u32 {
        self.warps[0] * self.warps[1] * self.matrix.subgroup
    }

    /// Bytes of a row's chunk.
    pub(super) fn chunk_bytes(&self, format: Format) -> u32 {
        self.chunk / format.block_len() as u32 * format.block_bytes() as u32
    }

    /// Words that a row's chunk touches, at most.
    pub(super) fn raw_words(&self, format: Format) -> u32 {
        (self.chunk_bytes(format) + 6) / 4
    }

    /// Fragments that there is room for when sums are stored: one more than are read, unless all are.
    pub(super) fn products(&self) -> u32 {
        self.regions + u32::from(self.regions < self.warps[0] * self.warps[1])
    }
}

/// Ways to make a workgroup with so many weight rows, the largest first.
fn choices(format: Format, rows: u32, slots: u32, matrix: Matrix) -> Vec<(u32, Matrices)> {
    let block = format.block_len() as u32;
    let warps = warps(rows, slots, matrix);
    let chunks = [128, 64, 32].map(|chunk: u32| chunk.max(block));
    let stores = [1, 2, 4, 8].map(|share| (warps[0] * warps[1] / share).max(1));
    let all = chunks.into_iter().flat_map(|chunk| stores.map(|regions| Matrices { matrix, warps, chunk, regions }));
    all.map(|matrices| (slots, matrices)).collect()
}

/// Subgroups that share a workgroup's rows and its columns: eight, or as many as have sixteen weights of a step to decode each
/// thread.
fn warps(rows: u32, slots: u32, matrix: Matrix) -> [u32; 2] {
    let all = (slots * DEPTH / 16 / matrix.subgroup).clamp(1, 8);
    let rows = (rows / matrix.size).min(2).min(all);
    [rows, (slots / matrix.size).min(all / rows)]
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

    /// Weight rows, subgroups, columns of a chunk, stores at a time: what docs/wgpu.md has the times of.
    fn answer(format: Format, rows: u32, swiglu: bool, matrix: Matrix) -> (u32, [u32; 2], u32, u32) {
        let tile = Tile::new(format, rows, swiglu, Some(matrix));
        let matrices = tile.matrices.expect("by matrices");
        (tile.slots, matrices.warps, matrices.chunk, matrices.regions)
    }

    #[test]
    fn tiles_of_an_nvidia_card() {
        let card = MATRICES[2];
        assert_eq!(answer(Format::IQ2_XS, 64, true, card), (128, [2, 4], 256, 8));
        assert_eq!(answer(Format::IQ2_XS, 16, true, card), (64, [1, 4], 256, 1));
        assert_eq!(answer(Format::IQ4_NL, 64, false, card), (128, [2, 4], 128, 8));
        assert_eq!(answer(Format::IQ4_NL, 16, false, card), (64, [1, 4], 128, 2));
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
                    let tile = Tile::new(format, rows, swiglu, Some(matrix));
                    let bytes = tile.shared_bytes(format);
                    assert!(bytes <= matrix.shared, "{format:?} {rows} rows {matrix:?}: {bytes} bytes");
                }
            }
        }
    }

    #[test]
    fn the_portable_tile_depends_on_its_rows_alone() {
        let tile = Tile::new(Format::Q4_K, 32, true, None);
        assert_eq!(tile, Tile { rows: 32, slots: 64, swiglu: true, matrices: None, few: None, halves: false });
        assert_eq!((tile.columns(), tile.shared_bytes(Format::Q4_K)), (32, 0));
    }
}
