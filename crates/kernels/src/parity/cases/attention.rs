//! Attention over f32 and f16 caches, all keys or chosen blocks; and the indexer, whose choices are exact.

use std::ops::Range;

use super::{F32, List};
use crate::op::{Attention, MeanPool, Op, SelectBlocks, Selection};
use crate::parity::{Arena, Bound, Result};
use crate::tensor::DType;

/// Attention of random queries over random caches.
#[derive(Clone, Copy, Debug)]
pub struct Queries {
    /// T.
    pub tokens: usize,
    /// Position of the first.
    pub pos0: usize,
    /// Of queries, and of keys.
    pub heads: [usize; 2],
    /// Of keys, and of values.
    pub widths: [usize; 2],
    /// Types of keys and of values.
    pub caches: [DType; 2],
    /// Whether outputs are gated.
    pub gate: bool,
    /// The keys that each sees, if not all.
    pub select: Option<Blocks>,
}

/// Blocks of keys, chosen for each query.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Blocks for each query, at most.
    pub n: usize,
    /// Tokens in a block.
    pub ratio: usize,
    /// Whether neighbouring queries have other blocks.
    pub unlike: bool,
}

pub(super) fn cases(list: &mut List) {
    let tokens = list.request.tokens.unwrap_or(70);
    let usual = Queries {
        tokens,
        pos0: 9,
        heads: [4, 2],
        widths: [64, 64],
        caches: [DType::F32; 2],
        gate: false,
        select: None,
    };
    let chosen = |n, ratio| Some(Blocks { n, ratio, unlike: true });
    let mut add = |what: &str, case: Queries| {
        list.add(format!("attention, T {} from {}{what}", case.tokens, case.pos0), F32, move |a| {
            a.run_all(case.ops(a, &[0, case.tokens])?)
        });
    };
    add("", usual);
    add(", f16 cache", Queries { caches: [DType::F16; 2], pos0: 200, ..usual });
    add(", gated", Queries { gate: true, ..usual });
    add(", heads [6, 2] of [33, 17]", Queries { heads: [6, 2], widths: [33, 17], ..usual });
    add(", heads of [256, 128]", Queries { widths: [256, 128], tokens: 17, ..usual });
    add("", Queries { tokens: 1, pos0: 0, ..usual });
    add(", 3 blocks of 7", Queries { select: chosen(3, 7), pos0: 129, caches: [DType::F16; 2], ..usual });
    add(", 2 blocks of 64", Queries { select: chosen(2, 64), pos0: 300, ..usual });

    for [blocks, ratio, cols] in [[1, 1, 1], [33, 4, 65]] {
        list.add(format!("mean_pool, {blocks} blocks of {ratio}"), F32, move |a| mean_pool(a, [blocks, ratio, cols]));
    }
    for [pos0, tokens, ratio, n] in [[0, 40, 4, 5], [300, 20, 3, 64], [1000, 9, 2, 16]] {
        let name = format!("select_blocks, {n} blocks of {ratio}, T {tokens} from {pos0}");
        list.add(name, Bound::Exact, move |a| {
            a.run_all(Choice { pos0, ratio, n, heads: 4, cols: 16 }.ops(a, &[0, tokens])?)
        });
    }
}

impl Queries {
    /// The op in several calls.
    ///
    /// # Errors
    /// Those of the device, here and in what follows.
    pub fn ops(&self, a: &Arena, cuts: &[usize]) -> Result<Vec<Op>> {
        let Queries { tokens, pos0, heads: [heads, kv_heads], widths: [width, v_width], caches: [k, v], .. } = *self;
        let q = a.input(DType::F32, [tokens, heads, width], |_| 4.0 * a.unit())?;
        // Three rows of the cache are beyond what any query may see.
        let rows = pos0 + tokens + 3;
        let (k, v) = (a.units(k, [rows, kv_heads, width])?, a.units(v, [rows, kv_heads, v_width])?);
        let gate = || a.input(DType::F32, [tokens, heads, v_width], |_| 8.0 * a.unit());
        let gate = self.gate.then(gate).transpose()?;
        let select = self.select.map(|blocks| blocks.of(a, pos0, tokens)).transpose()?;
        let out = a.output("out", DType::F32, [tokens, heads, v_width])?;
        let part = |part: Range<usize>| Attention {
            q: q.rows(part.clone()),
            k: k.clone(),
            v: v.clone(),
            gate: gate.as_ref().map(|gate| gate.rows(part.clone())),
            select: select.as_ref().map(|all| Selection { blocks: all.blocks.rows(part.clone()), ratio: all.ratio }),
            pos0: pos0 + part.start,
            scale: (width as f32).sqrt().recip(),
            out: out.rows(part),
        };
        Ok(cuts.windows(2).map(|cut| part(cut[0]..cut[1]).into()).collect())
    }
}

impl Blocks {
    /// Some of the complete blocks of each query, ascending, then -1: as the indexer writes them.
    fn of(self, a: &Arena, pos0: usize, tokens: usize) -> Result<Selection> {
        let Blocks { n, ratio, unlike } = self;
        let mut blocks = Vec::new();
        for t in 0..tokens {
            let complete = ((pos0 + t + 1) / ratio) as u64;
            let seed = if unlike { 1000 * t as u64 } else { 0 };
            let mut order: Vec<u64> = (0..complete).collect();
            order.sort_by_key(|block| (block + 1 + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32);
            let mut chosen: Vec<i32> = order.iter().take(n).map(|&block| block as i32).collect();
            chosen.sort_unstable();
            chosen.resize(n, -1);
            blocks.extend(chosen);
        }
        Ok(Selection { blocks: a.ints([tokens, 1, n], &blocks)?, ratio })
    }
}

/// The means of so many blocks of rows of so many columns: blocks, rows in each, columns.
///
/// # Errors
/// Those of the device.
pub fn mean_pool(a: &Arena, [blocks, ratio, cols]: [usize; 3]) -> Result {
    let x = a.units(DType::F32, [blocks * ratio, 1, cols])?;
    a.run(MeanPool { x, ratio, out: a.output("out", DType::F32, [blocks, 1, cols])? })
}

/// The indexer's choice of blocks, between integers, so that scores are exact and many are tied: the lower block wins.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Position of the first query.
    pub pos0: usize,
    /// Tokens in a block.
    pub ratio: usize,
    /// Blocks for each query.
    pub n: usize,
    /// Of queries.
    pub heads: usize,
    /// Of queries and keys.
    pub cols: usize,
}

impl Choice {
    /// The op in several calls.
    ///
    /// # Errors
    /// Those of the device.
    pub fn ops(&self, a: &Arena, cuts: &[usize]) -> Result<Vec<Op>> {
        let Choice { pos0, ratio, n, heads, cols } = *self;
        let tokens = cuts[cuts.len() - 1];
        let whole = |rows, groups| a.input(DType::F32, [rows, groups, cols], |_| (2.0 * a.unit()).round());
        let (q, keys) = (whole(tokens, heads)?, whole((pos0 + tokens) / ratio + 1, 1)?);
        let out = a.output("blocks", DType::I32, [tokens, 1, n])?;
        let part = |part: Range<usize>| {
            let (q, out) = (q.rows(part.clone()), out.rows(part.clone()));
            SelectBlocks { q, keys: keys.clone(), pos0: pos0 + part.start, ratio, out }
        };
        Ok(cuts.windows(2).map(|cut| part(cut[0]..cut[1]).into()).collect())
    }
}
