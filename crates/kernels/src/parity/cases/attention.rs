//! Attention over f32 and f16 caches, all keys or chosen blocks; and the indexer, whose choices are exact.

use super::{F32, List};
use crate::op::{Attention, MeanPool, SelectBlocks, Selection};
use crate::parity::desk::Made;
use crate::parity::{Bound, Desk};
use crate::tensor::DType;

#[derive(Clone, Copy)]
struct Heads {
    tokens: usize,
    pos0: usize,
    /// Of queries, and of keys.
    heads: [usize; 2],
    /// Of keys, and of values.
    widths: [usize; 2],
    cache: DType,
    gate: bool,
    /// Blocks for each query, and their tokens.
    select: Option<[usize; 2]>,
}

pub(super) fn cases(list: &mut List) {
    let tokens = list.request.tokens.unwrap_or(70);
    let usual =
        Heads { tokens, pos0: 9, heads: [4, 2], widths: [64, 64], cache: DType::F32, gate: false, select: None };
    let mut add = |what: &str, case: Heads| {
        list.add(format!("attention, T {} from {}{what}", case.tokens, case.pos0), F32, move |desk| case.work(desk));
    };
    add("", usual);
    add(", f16 cache", Heads { cache: DType::F16, pos0: 200, ..usual });
    add(", gated", Heads { gate: true, ..usual });
    add(", heads [6, 2] of [33, 17]", Heads { heads: [6, 2], widths: [33, 17], ..usual });
    add(", heads of [256, 128]", Heads { widths: [256, 128], tokens: 17, ..usual });
    add("", Heads { tokens: 1, pos0: 0, ..usual });
    add(", 3 blocks of 7", Heads { select: Some([3, 7]), pos0: 129, cache: DType::F16, ..usual });
    add(", 2 blocks of 64", Heads { select: Some([2, 64]), pos0: 300, ..usual });

    for [blocks, ratio, cols] in [[1, 1, 1], [33, 4, 65]] {
        list.add(format!("mean_pool, {blocks} blocks of {ratio}"), F32, move |desk| {
            let x = desk.units([blocks * ratio, 1, cols])?;
            desk.run(MeanPool { x, ratio, out: desk.output("out", DType::F32, [blocks, 1, cols])? })
        });
    }
    for [pos0, tokens, ratio, n] in [[0, 40, 4, 5], [300, 20, 3, 64], [1000, 9, 2, 16]] {
        let name = format!("select_blocks, {n} blocks of {ratio}, T {tokens} from {pos0}");
        list.add(name, Bound::Exact, move |desk| {
            // Integers, so that scores are exact and many are tied: the lower block wins.
            let whole = |desk: &Desk, rows, groups| {
                desk.floats([rows, groups, 16], &desk.numbers(rows * groups * 16, |_| (2.0 * desk.unit()).round()))
            };
            let (q, keys) = (whole(desk, tokens, 4)?, whole(desk, (pos0 + tokens) / ratio + 1, 1)?);
            desk.run(SelectBlocks { q, keys, pos0, ratio, out: desk.output("blocks", DType::I32, [tokens, 1, n])? })
        });
    }
}

impl Heads {
    fn work(&self, desk: &Desk) -> Made<()> {
        let Heads { tokens, pos0, heads: [heads, kv_heads], widths: [width, v_width], .. } = *self;
        let cache = |shape| if self.cache == DType::F16 { desk.halves(shape) } else { desk.units(shape) };
        let q = desk.numbers(tokens * heads * width, |_| 4.0 * desk.unit());
        let q = desk.floats([tokens, heads, width], &q)?;
        // Three rows of the cache are beyond what any query may see.
        let rows = pos0 + tokens + 3;
        let (k, v) = (cache([rows, kv_heads, width])?, cache([rows, kv_heads, v_width])?);
        desk.run(Attention {
            q,
            k,
            v,
            gate: if self.gate { Some(desk.units([tokens, heads, v_width])?) } else { None },
            select: self.select.map(|select| self.selection(desk, select)).transpose()?,
            pos0,
            scale: (width as f32).sqrt().recip(),
            out: desk.output("out", DType::F32, [tokens, heads, v_width])?,
        })
    }

    /// Some of the complete blocks of each query, ascending, then -1: as the indexer writes them.
    fn selection(&self, desk: &Desk, [n, ratio]: [usize; 2]) -> Made<Selection> {
        let mut blocks = Vec::new();
        for t in 0..self.tokens {
            let complete = (self.pos0 + t + 1) / ratio;
            let mut chosen: Vec<i32> = (0..n.min(complete)).map(|_| desk.below(complete) as i32).collect();
            chosen.sort_unstable();
            chosen.dedup();
            chosen.resize(n, -1);
            blocks.extend(chosen);
        }
        Ok(Selection { blocks: desk.ints([self.tokens, 1, n], &blocks)?, ratio })
    }
}
