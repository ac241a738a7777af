//! How a product is cut into tiles and units: a pure function of its shape and the instruction set.

use crate::cpu::isa::Isa;

/// What the cutting depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Panels of [`LANES`] output columns.
    pub panels: usize,
    /// Input features.
    pub k: usize,
    /// Segments of the product.
    pub segments: usize,
    /// Rows of the largest segment.
    pub largest: usize,
    /// Threads that share the work.
    pub threads: usize,
}

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    /// Most rows of a tile: as many sums as the registers hold.
    pub tile_rows: usize,
    /// Most rows of a block: its packed rows stay in the L2 cache while the panels pass.
    pub block_rows: usize,
    /// Panels of a unit: few enough that threads finish together, many enough to be worth packing the rows.
    pub unit_panels: usize,
}

/// Bytes of packed rows that a block may have.
const BLOCK_BYTES: usize = 512 << 10;

/// Units that each thread gets at least, where the product is large enough.
const UNITS_A_THREAD: usize = 8;

/// The cutting of a product.
pub(super) fn config(shape: &Shape, isa: Isa) -> Config {
    let tile_rows = isa.tile_rows();
    let most = (BLOCK_BYTES / (4 * shape.k.max(1))).clamp(tile_rows, 256);
    let blocks = shape.largest.div_ceil(most).max(1);
    let block_rows = shape.largest.div_ceil(blocks).max(1);
    let runs = (shape.threads * UNITS_A_THREAD).div_ceil((shape.segments * blocks).max(1));
    let unit_panels = shape.panels.div_ceil(runs).max(1);
    Config { tile_rows, block_rows, unit_panels }
}

/// Rows of one expert in a tile of the plan. The products here join the tiles of an expert, so that low tiles cost
/// nothing and save padding.
pub(in crate::cpu) fn tile_rows(_entries: usize, _experts: usize) -> usize {
    8
}

/// Cuts `rows` into the fewest tiles of at most `most` rows, of heights that differ by at most one.
pub(super) fn tile_heights(rows: usize, most: usize, heights: &mut Vec<usize>) {
    heights.clear();
    let tiles = rows.div_ceil(most);
    heights.extend((0..tiles).map(|i| (rows + i) / tiles));
}

/// Runs `$body` with the constant `$R` equal to the height of a tile.
macro_rules! for_height {
    ($height:expr, $R:ident => $body:expr) => {
        match $height {
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
    fn heights_add_up_and_differ_by_at_most_one() {
        for most in 1..=8 {
            for rows in 0..=50 {
                let mut heights = vec![];
                tile_heights(rows, most, &mut heights);
                assert_eq!(heights.iter().sum::<usize>(), rows);
                assert_eq!(heights.len(), rows.div_ceil(most));
                let (low, high) = (heights.iter().min(), heights.iter().max());
                assert!(low.is_none_or(|low| *low >= 1 && high.is_some_and(|high| high - low <= 1 && *high <= most)));
            }
        }
    }
}
