//! `Packed`: an entry's rank in its block, from two short looks back instead of a long one.
//!
//! A block of 1024 entries is 32 sub-blocks of 32. The rank is the count of the expert in the earlier
//! sub-blocks, plus its count among the earlier entries of the same sub-block. The first comes from
//! counters, one for each expert and sub-block, packed eight to a word:
//!
//! ```text
//!  word of expert e   | s7 | s6 | s5 | s4 | s3 | s2 | s1 | s0 |     4 bits each
//!                                    '------ summed -----'          for an entry of sub-block 4
//! ```
//!
//! Four bits hold 15. Among 32 entries of distinct experts within each token no expert occurs more often
//! if K >= 3; otherwise it may, up to 32 times. A block where one does is counted in bytes, four to a word.

use crate::buffers::Buffers;
use crate::shape::{BLOCK, Shape};
use crate::stages::{expert_of, fill_rows, find_rows};

use super::serial::count_of;

/// Entries of a sub-block: the lanes of a warp.
const LANES: usize = 32;

/// The largest count that a four-bit counter holds.
const NIBBLE_MAX: i32 = 15;

/// As [`stages::place`](crate::stages::place).
pub fn place(shape: &Shape, ids: &[i32], weights: &[u32], out: &mut Buffers<'_>) {
    let experts = shape.experts();
    let mut counters = Counters::default();
    find_rows(shape, ids, out, |ids, first_rows, pos| {
        // `pos` holds an entry's rank in its sub-block until the counters are complete.
        let most = rank_in_sub_blocks(ids, experts, pos);
        counters.clear(experts, if most <= NIBBLE_MAX { 4 } else { 8 });
        for (sub_block, ids) in ids.chunks(LANES).enumerate() {
            for expert in ids.iter().filter_map(|&id| expert_of(id, experts)) {
                counters.add(expert, sub_block);
            }
        }
        for (i, (pos, &id)) in pos.iter_mut().zip(ids).enumerate() {
            *pos = match expert_of(id, experts) {
                Some(expert) => (first_rows[expert] + counters.before(expert, i / LANES)) as i32 + *pos,
                None => -1,
            };
        }
    });
    fill_rows(shape, weights, out);
}

/// Writes each entry's rank in its sub-block, and returns the most entries that an expert has in one.
fn rank_in_sub_blocks(ids: &[i32], experts: usize, ranks: &mut [i32]) -> i32 {
    let mut most = 0;
    for (ids, ranks) in ids.chunks(LANES).zip(ranks.chunks_mut(LANES)) {
        for (lane, (rank, &id)) in ranks.iter_mut().zip(ids).enumerate() {
            *rank = count_of(id, &ids[..lane]);
            if expert_of(id, experts).is_some() {
                most = most.max(*rank + 1);
            }
        }
    }
    most
}

/// A counter for each expert and sub-block of one block: `[E, 32]` fields of 4 or 8 bits.
#[derive(Default)]
struct Counters {
    /// The width of a field, and so also the words of an expert: 32 fields are `bits` words.
    bits: usize,
    words: Vec<u32>,
}

impl Counters {
    fn clear(&mut self, experts: usize, bits: usize) {
        self.bits = bits;
        self.words.clear();
        self.words.resize(experts * bits, 0);
    }

    /// The word that holds a counter, and the counter's lowest bit in it.
    fn locate(&self, expert: usize, sub_block: usize) -> (usize, usize) {
        let bit = sub_block * self.bits;
        (expert * self.bits + bit / 32, bit % 32)
    }

    fn add(&mut self, expert: usize, sub_block: usize) {
        let (word, bit) = self.locate(expert, sub_block);
        self.words[word] += 1 << bit;
    }

    /// The sum of an expert's counters for the sub-blocks before this one.
    fn before(&self, expert: usize, sub_block: usize) -> u32 {
        let (word, bit) = self.locate(expert, sub_block);
        let full = &self.words[expert * self.bits..word];
        let partial = self.words[word] & ((1 << bit) - 1);
        full.iter().map(|&word| self.sum_of_fields(word)).sum::<u32>() + self.sum_of_fields(partial)
    }

    /// At most 8 * 15 or 4 * 32, so a byte holds it.
    fn sum_of_fields(&self, word: u32) -> u32 {
        let bytes = match self.bits {
            4 => (word & 0x0F0F_0F0F) + (word >> 4 & 0x0F0F_0F0F),
            _ => word,
        };
        bytes.wrapping_mul(0x0101_0101) >> 24
    }
}

const _: () = assert!(BLOCK == LANES * 32, "a block is 32 sub-blocks, as many as Counters has fields");
