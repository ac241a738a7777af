//! The definition of a plan, as plain as it can be said. Slow; every pipeline is compared with it.

// Index by index, as the definition is written.
#![allow(clippy::needless_range_loop)]

use crate::buffers::meta;
use crate::plan::Plan;
use crate::shape::{BLOCK, Shape};

/// The plan that `ids` and `weights` (one word for each entry) define, bad ids skipped and counted.
///
/// Each word is computed for itself, by its definition, from the ids alone: O((T*K)^2).
pub fn plan(shape: Shape, ids: &[i32], weights: &[u32]) -> Plan {
    let (entries, experts, tm) = (shape.entries(), shape.experts(), shape.tile());
    assert_eq!((ids.len(), weights.len()), (entries, entries), "one id and one weight for each entry");
    let mut plan = Plan::filled(shape, 0, 0);

    // count(e) = the number of i with ids[i] = e.
    let among = |ids: &[i32], e: usize| ids.iter().filter(|&&id| id == e as i32).count();
    let count: Vec<usize> = (0..experts).map(|e| among(ids, e)).collect();
    // tiles(e) = ceil(count(e) / tm).
    let tiles: Vec<usize> = count.iter().map(|count| count.div_ceil(tm)).collect();
    // r0(e) = tm * the sum of tiles(e') for e' < e; R = r0(E).
    let r0 = |e: usize| tm * tiles[..e].iter().sum::<usize>();
    let first_row: Vec<usize> = (0..=experts).map(r0).collect();
    let n: usize = tiles.iter().sum();
    let rows = first_row[experts];

    for e in 0..=experts {
        plan.eoff[e] = first_row[e] as u32;
    }
    // Of block b: its count of e, and the row of its first entry of e.
    for (b, block) in ids.chunks(BLOCK).enumerate() {
        for e in 0..experts {
            plan.bcnt[b * experts + e] = among(block, e) as u32;
            plan.boff[b * experts + e] = (first_row[e] + among(&ids[..b * BLOCK], e)) as u32;
        }
    }
    // In expert order: expert, first row, valid rows.
    let every_tile = (0..experts).flat_map(|e| (0..tiles[e]).map(move |t| (e, t)));
    for (i, (e, t)) in every_tile.enumerate() {
        let tile = [e, first_row[e] + t * tm, (count[e] - t * tm).min(tm)];
        plan.tiles[3 * i..3 * i + 3].copy_from_slice(&tile.map(|word| word as u32));
    }
    // A row is padding unless an entry has it.
    plan.stok[..rows].fill(-1);
    plan.sw[..rows].fill(0);
    for i in 0..entries {
        plan.pos[i] = -1;
        if (0..experts as i32).contains(&ids[i]) {
            // rank(i) = the number of j < i with ids[j] = ids[i]; pos[i] = r0(ids[i]) + rank(i).
            let e = ids[i] as usize;
            let row = first_row[e] + among(&ids[..i], e);
            plan.pos[i] = row as i32;
            plan.stok[row] = (i / shape.top_k()) as i32;
            plan.sw[row] = weights[i];
        }
    }
    let skipped = ids.iter().filter(|&&id| id == -1).count();
    let kept: usize = count.iter().sum();
    let words = [
        (meta::TILES, n),
        (meta::ROWS, rows),
        (meta::KEPT, kept),
        (meta::ACTIVE, count.iter().filter(|&&count| count > 0).count()),
        (meta::LARGEST, count.iter().copied().max().unwrap_or(0)),
        (meta::TILE, tm),
        (meta::BLOCKS, entries.div_ceil(BLOCK)),
        (meta::ENTRIES, entries),
        (meta::SKIPPED, skipped),
        (meta::REJECTED, entries - kept - skipped),
        (meta::RESERVED, 0),
    ];
    for (index, word) in words {
        plan.meta[index] = word as u32;
    }
    plan
}
