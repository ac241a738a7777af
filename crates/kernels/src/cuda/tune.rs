//! The tile of a product: a pure function of the product and the card, with the measurements that set its constants.

use std::fmt;

use argon_gguf::Format;

use super::driver::Machine;

/// What a tile is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Of the weights.
    pub format: Format,
    /// Rows that share one expert's weights: the plan's tile height, or all rows of a dense product.
    pub rows: usize,
    /// Tiles of that height to expect at least.
    pub tiles: usize,
    /// Gate and up at once.
    pub swiglu: bool,
    /// Outputs.
    pub outputs: usize,
    /// Columns.
    pub columns: usize,
}

/// How a product is cut, and what a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Rows (tokens) that a block of threads multiplies at once.
    pub tokens: u32,
    /// Columns of a pipeline stage.
    pub chunk: u32,
    /// Pipeline stages.
    pub stages: u32,
    /// Blocks of threads that share a multiprocessor.
    pub blocks: u32,
    /// Blocks of weight rows that a block of threads walks through.
    pub walk: u32,
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { tokens, chunk, stages, blocks, walk } = self;
        write!(f, "{tokens} tokens, {stages} stages of {chunk} columns, {blocks} blocks, walk {walk}")
    }
}

/// Tiles that were asked for, in place of those that would be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// Of gate and up, and of dense products, with weights of a format.
    pub first: Option<(Format, Tile)>,
    /// Of down, with weights of a format.
    pub down: Option<(Format, Tile)>,
}

/// Why a tile cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpossibleTile {
    /// No kernel is that high.
    #[error("TM is {0}, not one of 8, 16, 32, 64, 96, 128 and 192 tokens")]
    Tokens(u32),
    /// Weight rows are fixed.
    #[error("TN is {0}; a block of threads takes 128 weight rows (64 of gate and 64 of up)")]
    Rows(u32),
    /// Columns are whole blocks of the format, in a power of two.
    #[error("TK is {columns}; columns of {format} come in powers of two from {least} to 512")]
    Columns {
        /// TK.
        columns: u32,
        /// Of the weights.
        format: Format,
        /// The fewest.
        least: u32,
    },
    /// Warps are fixed.
    #[error("SG is {0}; a block of threads is 8 warps")]
    Warps(u32),
    /// A card has only so much.
    #[error("two stages of {tokens} tokens and {columns} columns of {format} exceed the card's shared memory")]
    Shared {
        /// TM.
        tokens: u32,
        /// TK.
        columns: u32,
        /// Of the weights.
        format: Format,
    },
}

impl Tile {
    /// The tile of TM tokens, TN weight rows and TK columns by SG warps, with two stages.
    ///
    /// # Errors
    /// [`ImpossibleTile`], but for what depends on format and card: [`Tile::possible`].
    pub fn asked([tokens, rows, chunk, warps]: [u32; 4]) -> Result<Self, ImpossibleTile> {
        match (TOKENS.contains(&tokens), rows as usize == ROWS, warps == WARPS) {
            (false, ..) => Err(ImpossibleTile::Tokens(tokens)),
            (_, false, _) => Err(ImpossibleTile::Rows(rows)),
            (.., false) => Err(ImpossibleTile::Warps(warps)),
            _ => Ok(Self { tokens, chunk, stages: 2, blocks: 1, walk: 1 }),
        }
    }

    /// Whether weights of a format can be multiplied in this tile on a card.
    ///
    /// # Errors
    /// [`ImpossibleTile::Columns`], [`ImpossibleTile::Shared`].
    pub fn possible(&self, machine: &Machine, format: Format) -> Result<(), ImpossibleTile> {
        let (tokens, columns, least) = (self.tokens, self.chunk, unit(format));
        if !columns.is_power_of_two() || !columns.is_multiple_of(least) || columns > 512 {
            return Err(ImpossibleTile::Columns { columns, format, least });
        }
        if fits(machine, format, self) { Ok(()) } else { Err(ImpossibleTile::Shared { tokens, columns, format }) }
    }
}

/// A choice of tiles.
pub type Choose = fn(&Machine, &Product) -> Tile;

/// Heights that the kernel is written for.
pub const TOKENS: [u32; 7] = [8, 16, 32, 64, 96, 128, 192];

/// Weight rows of a block of threads.
pub const ROWS: usize = 128;

/// Warps of a block of threads.
const WARPS: u32 = 8;

/// Tokens whose product costs as much as decoding the weights once: what one more tile costs beside its rows.
const DECODE: usize = 64;

/// Columns that a stage must be a multiple of: whole blocks of the format, whole planes of activations.
fn unit(format: Format) -> u32 {
    if format.block_len() > 64 { format.block_len() as u32 } else { 64 }
}

/// Bytes of shared memory of one stage, as gemm.cu lays it out.
pub fn stage_bytes(format: Format, tokens: u32, chunk: u32) -> u32 {
    // Plain numbers are taken as blocks of 32.
    let segment = chunk as usize / format.block_len() * format.block_bytes();
    let pieces = ((segment + 30) / 16) | 1;
    (tokens * chunk * 2 + (ROWS * pieces * 16) as u32).next_multiple_of(1024)
}

/// Bytes of shared memory that a block of threads takes beside its stages: look-up tables, a row and a power of two for
/// each token, whole kilobytes as the stages are aligned to them; and one that the driver takes.
fn fixed_bytes(format: Format, tokens: u32) -> u32 {
    let tables = match format {
        Format::IQ2_S => 8192,
        Format::IQ2_XS => 4096,
        Format::IQ2_XXS | Format::IQ3_S => 2048,
        Format::IQ3_XXS => 1024,
        _ => 0,
    };
    (tables + 8 * tokens).next_multiple_of(KILOBYTE) + KILOBYTE
}

const KILOBYTE: u32 = 1024;

/// Whether so many blocks of threads fit a multiprocessor side by side. It has a kilobyte more than one block may have.
pub fn fits(machine: &Machine, format: Format, tile: &Tile) -> bool {
    let stages = tile.stages * stage_bytes(format, tile.tokens, tile.chunk);
    tile.blocks * (stages + fixed_bytes(format, tile.tokens)) <= machine.shared + KILOBYTE
}

/// The tile for a product on a card.
///
/// Measured on an H200 for IQ2_XS (gate and up) and IQ4_NL (down), see docs/cuda.md; other formats follow the one that
/// their blocks are like. A card with less shared memory gets fewer blocks, then shorter stages, then fewer tokens.
pub fn choose(machine: &Machine, product: &Product) -> Tile {
    let mut tokens = tokens(product);
    loop {
        if let Some(tile) = fitting(machine, product, tokens) {
            return tile;
        }
        let smaller = TOKENS.into_iter().rev().find(|&t| t < tokens);
        tokens = smaller.unwrap_or(TOKENS[0]);
        if smaller.is_none() {
            // Two stages of 8 tokens and the widest blocks are 70 KB: less than any card has.
            return Tile { tokens, chunk: unit(product.format), stages: 2, blocks: 1, walk: 1 };
        }
    }
}

/// The height that costs least: rows, rounded up to whole tiles, and a decoding of the weights for each tile.
fn tokens(product: &Product) -> u32 {
    let cost = |tokens: u32| product.rows.div_ceil(tokens as usize) * (tokens as usize + DECODE);
    TOKENS.into_iter().min_by_key(|&tokens| cost(tokens)).unwrap_or(TOKENS[0])
}

fn fitting(machine: &Machine, product: &Product, tokens: u32) -> Option<Tile> {
    let format = product.format;
    let superblock = format.block_len() > 64;
    let wanted_blocks = match (superblock, tokens) {
        (_, 128..) => 1,
        (false, ..=16) => 4,
        (false, ..=64) => 3,
        (true, 16) if format == Format::IQ2_XS => 4,
        (true, 96..) => 1,
        _ => 2,
    };
    let wanted_chunk: u32 = match (superblock, tokens) {
        (true, 8) => 512,
        (true, _) => 256,
        (false, _) => 128,
    };
    let most = if superblock || tokens == 16 || tokens == 64 { 2 } else { 3 };
    for blocks in (1..=wanted_blocks).rev() {
        let chunks = [wanted_chunk, 256, 128, 64].into_iter().filter(|c| *c <= wanted_chunk && c % unit(format) == 0);
        let tiles = chunks.flat_map(|chunk| (2..=most).rev().map(move |stages| (chunk, stages)));
        let walk = walk(machine, product, tokens, blocks);
        let mut tiles = tiles.map(|(chunk, stages)| Tile { tokens, chunk, stages, blocks, walk });
        if let Some(tile) = tiles.find(|tile| fits(machine, format, tile)) {
            return Some(tile);
        }
    }
    None
}

/// Walking on, a block of threads fills the next stage while it stores; with one block on a multiprocessor nobody else
/// would. It is worth it only while there still are enough blocks to fill the card several times.
fn walk(machine: &Machine, product: &Product, tokens: u32, blocks: u32) -> u32 {
    let row_blocks = product.outputs.div_ceil(if product.swiglu { ROWS / 2 } else { ROWS });
    let enough = 4 * (machine.processors * blocks) as usize;
    let wanted = match tokens {
        8 => 2,
        128.. => 5,
        _ => 1,
    };
    (1..=wanted).rev().find(|&walk| product.tiles * row_blocks / walk as usize >= enough).unwrap_or(1)
}

/// The plan's tile height for `entries` rows over `experts`: the least of the kernel's heights that holds the mean and
/// a fifth, since a second tile of an expert costs a whole decoding and a wider one little.
pub fn tile_rows(machine: &Machine, entries: usize, experts: usize) -> usize {
    let mean = entries.div_ceil(experts.max(1));
    let largest = if machine.shared >= 160 << 10 { 192 } else { 64 };
    let heights = [8, 16, 32, 64, 128, 192].into_iter().filter(|&height| height <= largest);
    heights.clone().find(|&height| height >= mean + mean / 5).or(heights.max()).unwrap_or(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Machine = Machine { capability: 90, processors: 132, shared: 232_448 };
    const SMALL: Machine = Machine { capability: 86, processors: 28, shared: 101_376 };

    fn product(format: Format, rows: usize) -> Product {
        Product { format, rows, tiles: 512, swiglu: false, outputs: 2560, columns: 2560 }
    }

    #[test]
    fn tiles_of_the_report_s_layer() {
        let heights = [128, 512, 2048, 8192].map(|tokens| tile_rows(&H200, tokens * 10, 512));
        assert_eq!(heights, [8, 16, 64, 192]);
        let gate_up = |rows| choose(&H200, &Product { swiglu: true, outputs: 640, ..product(Format::IQ2_XS, rows) });
        let down = |rows| choose(&H200, &product(Format::IQ4_NL, rows));
        assert_eq!(gate_up(8).to_string(), "8 tokens, 2 stages of 512 columns, 2 blocks, walk 2");
        assert_eq!(gate_up(16).to_string(), "16 tokens, 2 stages of 256 columns, 4 blocks, walk 1");
        assert_eq!(gate_up(64).to_string(), "64 tokens, 2 stages of 256 columns, 2 blocks, walk 1");
        assert_eq!(gate_up(192).to_string(), "192 tokens, 2 stages of 256 columns, 1 blocks, walk 5");
        assert_eq!(down(8).to_string(), "8 tokens, 3 stages of 128 columns, 4 blocks, walk 2");
        assert_eq!(down(16).to_string(), "16 tokens, 2 stages of 128 columns, 4 blocks, walk 1");
        assert_eq!(down(192).to_string(), "192 tokens, 3 stages of 128 columns, 1 blocks, walk 5");
    }

    #[test]
    fn every_tile_fits_every_card() {
        for machine in [H200, SMALL] {
            for format in Format::ALL.iter().copied().filter(|format| format.is_weight()) {
                for rows in [1, 7, 8, 9, 64, 100, 192, 193, 2048, 100_000] {
                    let tile = choose(&machine, &product(format, rows));
                    assert!(TOKENS.contains(&tile.tokens), "{format} {rows}: {tile}");
                    assert_eq!(tile.chunk % unit(format), 0, "{format} {rows}: {tile}");
                    assert!(tile.chunk.is_power_of_two() && tile.chunk <= 512, "{format} {rows}: {tile}");
                    assert!(fits(&machine, format, &tile), "{format} {rows}: {tile}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_asked_for_is_said() {
        let fails = |tile, format| match Tile::asked(tile) {
            Ok(tile) => tile.possible(&SMALL, format).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        assert_eq!(fails([64, 128, 256, 8], Format::IQ2_XS), None);
        assert!(fails([24, 128, 256, 8], Format::IQ2_XS).unwrap().starts_with("TM is 24"));
        assert!(fails([16, 32, 32, 4], Format::IQ2_XS).unwrap().starts_with("TN is 32"));
        assert!(fails([16, 128, 256, 4], Format::IQ2_XS).unwrap().starts_with("SG is 4"));
        for columns in [0, 64, 128, 384, 1024] {
            let why = fails([16, 128, columns, 8], Format::IQ2_XS).unwrap();
            assert_eq!(why, format!("TK is {columns}; columns of IQ2_XS come in powers of two from 256 to 512"));
        }
        assert!(fails([192, 128, 512, 8], Format::F16).unwrap().contains("shared memory"));
    }

    #[test]
    fn a_dense_product_wastes_few_rows() {
        for (rows, tokens) in [(1, 8), (16, 16), (65, 96), (128, 128), (2048, 192)] {
            assert_eq!(choose(&H200, &product(Format::IQ4_NL, rows)).tokens, tokens, "{rows}");
        }
    }
}
