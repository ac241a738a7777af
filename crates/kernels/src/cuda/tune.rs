//! The tile of a product: a pure function of the product and the card, with the measurements that set its constants.

use std::fmt;

use argon_gguf::Format;

use super::driver::Machine;
use super::host::End;

/// What a tile is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Of the weights.
    pub format: Format,
    /// Rows that share one expert's weights: the plan's tile height, or all rows of a dense product.
    pub rows: usize,
    /// What becomes of it.
    pub end: End,
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
    /// Warpgroups of a block of threads.
    pub groups: u32,
    /// Whether all columns of the tokens stay in shared memory, fetched once.
    pub resident: bool,
    /// How often each word of the format's look-up tables is in shared memory, so that lanes find it in different banks.
    pub copies: u32,
}

impl Tile {
    /// Weight rows of a block of threads.
    pub fn rows(&self) -> usize {
        64 * self.groups as usize
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        128 * self.groups
    }

    /// Bytes of shared memory that a launch asks for, as gemm.cu lays them out, for weights of so many columns.
    pub fn shared_bytes(&self, format: Format, columns: usize, end: End) -> usize {
        let resident = if self.resident { columns.div_ceil(64) * self.tokens as usize * 128 } else { 0 };
        let tables = if self.copied(format) { self.table_bytes(format) } else { 0 };
        tables + resident + self.stages as usize * self.stage_bytes(format, end)
    }

    /// Bytes of the format's look-up tables.
    pub(super) fn table_bytes(&self, format: Format) -> usize {
        let once = match format {
            Format::IQ2_S => 4096,
            Format::IQ2_XS | Format::IQ3_S => 2048,
            Format::IQ2_XXS | Format::IQ3_XXS => 1024,
            _ => 0,
        };
        once * self.copies as usize
    }

    /// Whether few.cuh decodes the format's weights, with its tables in what a launch asks for.
    fn copied(&self, format: Format) -> bool {
        self.tokens <= FEW && matches!(format, Format::IQ2_XXS | Format::IQ2_XS | Format::IQ2_S)
    }

    /// Bytes of a pipeline stage.
    pub(super) fn stage_bytes(&self, format: Format, end: End) -> usize {
        let chunk = self.chunk as usize;
        // Plain numbers are taken as blocks of 32.
        let segment = chunk / format.block_len() * format.block_bytes();
        let pieces = ((segment + 30) / 16) | 1;
        let tokens = if self.resident { 0 } else { self.tokens as usize * chunk * 2 };
        let streams = if end == End::GateMean { self.tokens as usize * self.rows() * 4 } else { 0 };
        (tokens + streams + self.rows() * pieces * 16).next_multiple_of(KILOBYTE)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { tokens, chunk, stages, blocks, groups, resident, .. } = self;
        let kept = if *resident { "kept" } else { "staged" };
        write!(f, "{tokens} tokens {kept}, {stages} stages of {chunk} columns, {blocks} blocks of {groups}")
    }
}

/// Tiles that were asked for, in place of those that would be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forced {
    /// Of gate and up, and of dense products, with weights of a format; not of means of gated streams.
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
        match (TOKENS.contains(&tokens), rows == ROWS, warps == WARPS) {
            (false, ..) => Err(ImpossibleTile::Tokens(tokens)),
            (_, false, _) => Err(ImpossibleTile::Rows(rows)),
            (.., false) => Err(ImpossibleTile::Warps(warps)),
            _ => Ok(Self { tokens, chunk, stages: 2, blocks: 1, groups: 2, resident: false, copies: 1 }),
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
        let product = Product { format, rows: tokens as usize, end: End::Store, columns: columns as usize };
        if fits(machine, &product, self) { Ok(()) } else { Err(ImpossibleTile::Shared { tokens, columns, format }) }
    }
}

/// A choice of tiles.
pub type Choose = fn(&Machine, &Product) -> Tile;

/// Heights that the kernel is written for.
pub const TOKENS: [u32; 7] = [8, 16, 32, 64, 96, 128, 192];

/// Weight rows of a block of threads that was asked for.
const ROWS: u32 = 128;

/// Warps of a block of threads that was asked for.
const WARPS: u32 = 8;

/// Tokens whose product costs as much as decoding the weights once: what one more tile costs beside its rows.
const DECODE: usize = 64;

/// Tokens beyond which the streams of gated means leave no room for stages of 128 columns.
const MOST_OF_STREAMS: u32 = 96;

/// Tokens of a tile whose weights are decoded as few.cuh says.
const FEW: u32 = 8;

/// Columns that a stage must be a multiple of: whole blocks of the format, whole planes of activations.
fn unit(format: Format) -> u32 {
    if format.block_len() > 64 { format.block_len() as u32 } else { 64 }
}

/// Bytes of shared memory that a block of threads takes beside what its launch asks for: look-up tables, a row and a power of
/// two for each token, whole kilobytes as the rest is aligned to them; and one that the driver takes.
fn fixed_bytes(format: Format, tile: &Tile) -> usize {
    let tables = if tile.copied(format) { 0 } else { tile.table_bytes(format) };
    (tables + 8 * tile.tokens as usize).next_multiple_of(KILOBYTE) + KILOBYTE
}

const KILOBYTE: usize = 1024;

/// Whether so many blocks of threads fit a multiprocessor side by side. It has a kilobyte more than one block may have.
pub fn fits(machine: &Machine, product: &Product, tile: &Tile) -> bool {
    let Product { format, columns, end, .. } = *product;
    let block = tile.shared_bytes(format, columns, end) + fixed_bytes(format, tile);
    tile.blocks as usize * block <= machine.shared as usize + KILOBYTE
}

/// The tile for a product on a card.
///
/// Measured on an H200 for IQ2_XS (gate and up) and IQ4_NL (down), see docs/cuda.md; other formats follow the one that
/// their blocks are like. A card with less shared memory gets fewer blocks, then shorter stages, then fewer tokens.
pub fn choose(machine: &Machine, product: &Product) -> Tile {
    let tokens = tokens(product);
    let lower = TOKENS.into_iter().rev().filter(|&height| height <= tokens);
    let tiles = lower.flat_map(|tokens| tiles(product, tokens));
    let mut fitting = tiles.filter(|tile| fits(machine, product, tile));
    // Two stages of 8 tokens and the widest blocks are 70 KB: less than any card has.
    fitting.next().unwrap_or(Tile {
        tokens: TOKENS[0],
        chunk: unit(product.format),
        stages: 2,
        blocks: 1,
        groups: 2,
        resident: false,
        copies: 1,
    })
}

/// The height that costs least: rows, rounded up to whole tiles, and a decoding of the weights for each tile.
fn tokens(product: &Product) -> u32 {
    let cost = |tokens: u32| product.rows.div_ceil(tokens as usize) * (tokens as usize + DECODE);
    let heights = TOKENS.into_iter().filter(|&tokens| product.end != End::GateMean || tokens <= MOST_OF_STREAMS);
    heights.min_by_key(|&tokens| cost(tokens)).unwrap_or(TOKENS[0])
}

/// Tiles of one height, the best first.
///
/// Few tokens stay in shared memory whole; then what counts is how many warps find place beside them, and after that copies
/// of the look-up tables. Many are fetched with each stage, and their sums leave registers for two blocks of threads or one.
/// Means of gated streams have few columns, which stay, and their streams fill the rest.
fn tiles(product: &Product, tokens: u32) -> Vec<Tile> {
    let unit = unit(product.format);
    let superblock = unit > 64;
    // (columns, stages, blocks, groups)
    let mean: &[(u32, u32, u32, u32)] = if superblock { &[(256, 2, 1, 2)] } else { &[(128, 2, 1, 2), (64, 2, 1, 2)] };
    let kept: &[(u32, u32, u32, u32)] = match (superblock, tokens) {
        _ if product.end == End::GateMean => mean,
        (true, ..=32) => &[(512, 2, 1, 4), (256, 2, 1, 4)],
        (false, ..=64) => &[(320, 2, 1, 4), (128, 2, 1, 4)],
        _ => &[],
    };
    let staged: &[(u32, u32, u32, u32)] = match (superblock, tokens) {
        _ if product.end == End::GateMean => mean,
        (true, ..=64) => &[(512, 2, 1, 4), (256, 2, 2, 2), (256, 2, 1, 2)],
        (true, _) => &[(256, 2, 1, 2)],
        (false, ..=64) => &[(128, 2, 3, 2), (128, 2, 2, 2), (128, 2, 1, 2), (64, 2, 1, 2)],
        (false, _) => &[(128, 3, 1, 2), (128, 2, 1, 2), (64, 2, 1, 2)],
    };
    let tile = |resident| {
        move |&(chunk, stages, blocks, groups): &(u32, u32, u32, u32)| Tile {
            tokens,
            chunk,
            stages,
            blocks,
            groups,
            resident,
            copies: 1,
        }
    };
    let whole = |tile: &Tile| tile.chunk != 320 || product.columns.is_multiple_of(320);
    // One copy for each lane of a warp, or one for all.
    let copies =
        |tile: Tile| if tile.copied(product.format) { vec![Tile { copies: 32, ..tile }, tile] } else { vec![tile] };
    let kept = kept.iter().map(tile(true)).filter(whole).flat_map(copies);
    kept.chain(staged.iter().map(tile(false))).filter(|tile| tile.chunk.is_multiple_of(unit)).collect()
}

/// Into how many shares the columns of a dense product of few pieces (tiles times blocks of weight rows) are cut, so that more
/// of the card has work: whole stages, the same number in each.
pub fn shares(machine: &Machine, tile: &Tile, pieces: usize, columns: usize) -> usize {
    let chunk = tile.chunk as usize;
    let (room, chunks) = ((machine.processors * tile.blocks) as usize / pieces.max(1), columns / chunk);
    let most = if columns.is_multiple_of(chunk) { room.min(chunks).min(MOST_SHARES) } else { 1 };
    (1..=most).rev().find(|&shares| chunks.is_multiple_of(shares)).unwrap_or(1)
}

/// Shares beyond which adding up their sums costs more than they gain.
const MOST_SHARES: usize = 16;

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

    fn product(format: Format, rows: usize, columns: usize) -> Product {
        Product { format, rows, end: End::Store, columns }
    }

    #[test]
    fn tiles_of_the_report_s_layer() {
        let heights = [128, 512, 2048, 8192].map(|tokens| tile_rows(&H200, tokens * 10, 512));
        assert_eq!(heights, [8, 16, 64, 192]);
        let gate_up =
            |rows| choose(&H200, &Product { end: End::SwiGlu, ..product(Format::IQ2_XS, rows, 2560) }).to_string();
        let down = |rows| choose(&H200, &product(Format::IQ4_NL, rows, 640)).to_string();
        assert_eq!(gate_up(8), "8 tokens kept, 2 stages of 512 columns, 1 blocks of 4");
        assert_eq!(gate_up(16), "16 tokens kept, 2 stages of 512 columns, 1 blocks of 4");
        assert_eq!(gate_up(64), "64 tokens staged, 2 stages of 512 columns, 1 blocks of 4");
        assert_eq!(gate_up(192), "192 tokens staged, 2 stages of 256 columns, 1 blocks of 2");
        assert_eq!(down(8), "8 tokens kept, 2 stages of 320 columns, 1 blocks of 4");
        assert_eq!(down(16), "16 tokens kept, 2 stages of 320 columns, 1 blocks of 4");
        assert_eq!(down(64), "64 tokens kept, 2 stages of 320 columns, 1 blocks of 4");
        assert_eq!(down(192), "192 tokens staged, 3 stages of 128 columns, 1 blocks of 2");
    }

    #[test]
    fn tiles_of_gated_means_hold_their_streams() {
        let mean = |machine, rows| {
            choose(machine, &Product { end: End::GateMean, ..product(Format::BF16, rows, 128) }).to_string()
        };
        assert_eq!(mean(&H200, 1), "8 tokens kept, 2 stages of 128 columns, 1 blocks of 2");
        assert_eq!(mean(&H200, 128), "64 tokens kept, 2 stages of 128 columns, 1 blocks of 2");
        assert_eq!(mean(&H200, 2048), "96 tokens kept, 2 stages of 128 columns, 1 blocks of 2");
        assert_eq!(mean(&SMALL, 2048), "32 tokens kept, 2 stages of 64 columns, 1 blocks of 2");
    }

    #[test]
    fn each_lane_has_its_copy_of_a_table_where_there_is_room() {
        let copies = |machine, format, rows| choose(machine, &product(format, rows, 2560)).copies;
        assert_eq!(copies(&H200, Format::IQ2_XS, 8), 32);
        assert_eq!(copies(&H200, Format::IQ2_XS, 16), 1, "decoded in another way");
        assert_eq!(copies(&H200, Format::IQ3_S, 8), 1, "no copies of these are made");
        assert_eq!(copies(&SMALL, Format::IQ2_XS, 8), 1);
    }

    #[test]
    fn every_tile_fits_every_card() {
        for machine in [H200, SMALL] {
            for format in Format::ALL.iter().copied().filter(|format| format.is_weight()) {
                let rows = [1, 7, 8, 9, 64, 100, 192, 193, 2048, 100_000];
                for (rows, end) in rows.into_iter().flat_map(|rows| [(rows, End::Store), (rows, End::GateMean)]) {
                    let product = Product { end, ..product(format, rows, 2560) };
                    let tile = choose(&machine, &product);
                    assert!(TOKENS.contains(&tile.tokens), "{format} {rows}: {tile}");
                    assert_eq!(tile.chunk % unit(format), 0, "{format} {rows}: {tile}");
                    assert!(
                        (tile.resident || tile.chunk.is_power_of_two()) && tile.chunk <= 512,
                        "{format} {rows}: {tile}"
                    );
                    assert!(fits(&machine, &product, &tile), "{format} {rows}: {tile}");
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
    fn only_products_of_few_pieces_are_shared_out() {
        // The low-rank down projection of 2048 tokens, a projection of one token, and a product that fills the card.
        let tile = |rows, columns| choose(&H200, &product(Format::Q8_0, rows, columns));
        assert_eq!(shares(&H200, &tile(2048, 10240), 11 * 3, 10240), 4);
        assert_eq!(shares(&H200, &tile(1, 2560), 10, 2560), 8);
        assert_eq!(shares(&H200, &tile(2048, 2560), 11 * 20, 2560), 1);
        assert_eq!(shares(&H200, &tile(2048, 160), 1, 160), 1, "no whole stages");
    }

    #[test]
    fn a_dense_product_wastes_few_rows() {
        for (rows, tokens) in [(1, 8), (16, 16), (65, 96), (128, 128), (2048, 192)] {
            assert_eq!(choose(&H200, &product(Format::IQ4_NL, rows, 2560)).tokens, tokens, "{rows}");
        }
    }
}
