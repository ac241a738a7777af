//! How a product is cut into tiles and units: a pure function of its shape and the instruction set.

use std::ops::Range;

use crate::cpu::isa::Isa;

/// What the cutting depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    /// Rows of each segment.
    pub segments: &'a [usize],
    /// Panels of [`LANES`] output columns.
    ///
    /// [`LANES`]: crate::cpu::isa::LANES
    pub panels: usize,
    /// Bytes of an input row as the kernels read it.
    pub row_bytes: usize,
    /// Bytes of the output.
    pub out_bytes: usize,
    /// Threads that share the work.
    pub threads: usize,
}

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Most rows of a tile: as many sums as the registers hold.
    pub tile_rows: usize,
    /// Most rows of a block: they stay in the L2 cache while the panels pass.
    pub block_rows: usize,
    /// Panels of a unit: few enough that threads finish together.
    pub unit_panels: usize,
    /// Columns of a panel that are unpacked at once, and then used for all rows of the block: they stay in the L1 cache.
    pub depth: usize,
    /// Whether the output goes past the caches, which it would not survive in.
    pub stream: bool,
}

/// Bytes of input rows that a block may have.
const BLOCK_BYTES: usize = 512 << 10;

/// An output up to this size may still be in a cache when it is read.
const CACHE_BYTES: usize = 2 << 20;

/// Units that each thread gets at least, where the product is large enough.
const UNITS_A_THREAD: usize = 8;

/// The cutting of a product.
pub(super) fn config(shape: &Shape, isa: Isa) -> Config {
    let tile_rows = isa.tile_rows();
    let block_rows = (BLOCK_BYTES / shape.row_bytes.max(1)).clamp(tile_rows, 256);
    let blocks: usize = shape.segments.iter().map(|rows| rows.div_ceil(block_rows)).sum();
    let runs = (shape.threads * UNITS_A_THREAD).div_ceil(blocks.max(1));
    let unit_panels = shape.panels.div_ceil(runs).max(1);
    Config { tile_rows, block_rows, unit_panels, depth: 1024, stream: shape.out_bytes > CACHE_BYTES }
}

/// Rows of one expert in a tile of the plan. The products here join the tiles of an expert, so that low tiles cost
/// nothing and save padding.
pub(in crate::cpu) fn tile_rows(_entries: usize, _experts: usize) -> usize {
    8
}

/// Cuts `rows` into the fewest tiles of at most `most` rows, of heights that differ by at most one.
pub(super) fn tiles(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = rows.div_ceil(most);
    (0..tiles).map(move |i| i * rows / tiles..(i + 1) * rows / tiles)
}

/// Runs `$body` with the constant `$R` equal to the height of a tile of rows.
macro_rules! for_height {
    ($rows:expr, $R:ident => $body:expr) => {
        match $rows.len() {
            0 => {}
            1 => {
                const $R: usize = 1;
                $body
            }
            2 => {
                const $R: usize = 2;
                $body
            }
            3 => {
                const $R: usize = 3;
                $body
            }
            4 => {
                const $R: usize = 4;
                $body
            }
            5 => {
                const $R: usize = 5;
                $body
            }
            6 => {
                const $R: usize = 6;
                $body
            }
            7 => {
                const $R: usize = 7;
                $body
            }
            8 => {
                const $R: usize = 8;
                $body
            }
            higher => unreachable!("a tile of {higher} rows"),
        }
    };
}
pub(super) use for_height;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_cut_by_its_caches_and_threads() {
        let shape = |segments| Shape { segments, panels: 160, row_bytes: 3520, out_bytes: 1 << 20, threads: 2 };
        let isa = Isa::detect();
        let config = |segments| config(&shape(segments), isa);
        assert_eq!(config(&[100; 64]).block_rows, 148, "512 KiB of rows");
        assert_eq!(config(&[100; 64]).unit_panels, 160, "segments enough for all threads");
        assert_eq!(config(&[100; 4]).unit_panels, 40, "four segments, sixteen units");
        assert_eq!(config(&[592]).unit_panels, 40, "four blocks of one segment");
        assert_eq!(config(&[]).unit_panels, 10, "no rows at all");
        assert!(!config(&[1]).stream && super::config(&Shape { out_bytes: 3 << 20, ..shape(&[1]) }, isa).stream);
    }

    #[test]
    fn tiles_follow_each_other_and_their_heights_differ_by_at_most_one() {
        for (most, rows) in (1..=8).flat_map(|most| (0..=50).map(move |rows| (most, rows))) {
            let tiles: Vec<_> = tiles(rows, most).collect();
            assert_eq!(tiles.len(), rows.div_ceil(most));
            assert_eq!(tiles.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
            let heights = tiles.iter().map(|tile| tile.len());
            assert!(heights.clone().all(|h| 1 <= h && h <= most));
            assert!(heights.clone().max().unwrap_or(0) - heights.min().unwrap_or(0) <= 1);
        }
    }
}
