//! From an expert's row count to its tiles: the arithmetic of padding.
//!
//! An expert with `count` rows gets `ceil(count / tm)` tiles. All of them are full but the last one,
//! whose missing rows are padding.

/// One unit of work of a grouped GEMM: up to `tm` rows of one expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// The expert whose weights these rows meet.
    pub expert: u32,
    /// The tile's first row, a multiple of `tm`.
    pub first_row: u32,
    /// Rows that belong to a token, 1..=tm; the tile's other rows are padding.
    pub rows: u32,
}

impl Tile {
    /// Words of a tile in the buffer `tiles`.
    pub const WORDS: usize = 3;

    /// The tile as it lies in the buffer: expert, first row, valid rows.
    pub fn to_words(self) -> [u32; Self::WORDS] {
        [self.expert, self.first_row, self.rows]
    }

    /// The tile that lies in the buffer as these words.
    pub fn from_words([expert, first_row, rows]: [u32; Self::WORDS]) -> Self {
        Self { expert, first_row, rows }
    }
}

/// The tiles of an expert with `count` rows, the first of them at row `first_row`.
pub(crate) fn cut(expert: u32, first_row: u32, count: u32, tile: u32) -> impl Iterator<Item = Tile> {
    (0..count.div_ceil(tile)).map(move |i| Tile {
        expert,
        first_row: first_row + i * tile,
        rows: tile.min(count - i * tile),
    })
}

/// The most tiles that `entries` entries over `experts` experts can need.
///
/// An active expert's first entry opens a tile, and of the others each full `tile` opens one more.
/// So the worst case has as many active experts as it can, and all further entries on one of them.
pub(crate) fn max_tiles(entries: usize, experts: usize, tile: usize) -> usize {
    let active = entries.min(experts);
    active + (entries - active) / tile
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiles(count: u32, tile: u32) -> Vec<[u32; 3]> {
        cut(7, 100, count, tile).map(Tile::to_words).collect()
    }

    #[test]
    fn only_the_last_tile_is_padded() {
        assert_eq!(tiles(0, 8), [[0; 3]; 0]);
        assert_eq!(tiles(1, 8), [[7, 100, 1]]);
        assert_eq!(tiles(8, 8), [[7, 100, 8]]);
        assert_eq!(tiles(9, 8), [[7, 100, 8], [7, 108, 1]]);
        assert_eq!(tiles(3, 1), [[7, 100, 1], [7, 101, 1], [7, 102, 1]]);
    }

    #[test]
    fn words_and_back() {
        let tile = Tile { expert: 1, first_row: 2, rows: 3 };
        assert_eq!(Tile::from_words(tile.to_words()), tile);
    }

    /// Every way to spread up to 6 entries over 3 experts: the bound holds and is reached.
    #[test]
    fn the_bound_is_tight() {
        for tile in 1..=4 {
            for entries in 0..=6usize {
                let needed = |counts: [usize; 3]| counts.iter().map(|c| c.div_ceil(tile)).sum::<usize>();
                let splits = (0..=entries).flat_map(|a| (0..=entries - a).map(move |b| [a, b, entries - a - b]));
                assert_eq!(splits.map(needed).max(), Some(max_tiles(entries, 3, tile)), "{entries} / {tile}");
            }
        }
    }
}
