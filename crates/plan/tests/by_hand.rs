//! Plans written out by hand, so that a mistake that the definition in `reference` shares with the
//! variants is seen.

mod common;

use argon_plan::{Plan, Shape, compare, reference};
use common::{all_agree, weights};

/// Checks the definition and every variant against a plan of the given words.
fn check(shape: Shape, ids: &[i32], fill: impl FnOnce(&mut Plan)) {
    let mut expected = Plan::filled(shape, 0, 0);
    fill(&mut expected);
    compare(&expected, &reference::plan(shape, ids, &weights(ids.len()))).unwrap();
    all_agree(shape, ids, &expected).unwrap();
}

/// Four tokens of three entries, five experts, tiles of two rows. Token 2 has expert 4 twice; one
/// entry is skipped, one has id 5 and one -2; expert 2 has no entry.
#[test]
fn four_tokens() {
    let ids = [
        3, 0, 4, //
        0, -1, 3, //
        4, 4, 0, //
        5, 1, -2, //
    ];
    let shape = Shape::new(4, 3, 5, 2).unwrap();
    check(shape, &ids, |plan| {
        let w = weights(12);
        let out = plan.buffers();
        // Expert                     0  1  2  3  4
        out.bcnt.copy_from_slice(&[3, 1, 0, 2, 3]);
        out.boff.copy_from_slice(&[0, 4, 6, 6, 8]);
        out.eoff.copy_from_slice(&[0, 4, 6, 6, 8, 12]);
        out.tiles[..18].copy_from_slice(&[
            0, 0, 2, //
            0, 2, 1, //
            1, 4, 1, //
            3, 6, 2, //
            4, 8, 2, //
            4, 10, 1, //
        ]);
        // Row                            0  1  2   3  4   5  6  7  8  9 10  11
        out.stok[..12].copy_from_slice(&[0, 1, 2, -1, 3, -1, 0, 1, 0, 2, 2, -1]);
        let sw = [w[1], w[3], w[8], 0, w[10], 0, w[0], w[5], w[2], w[6], w[7], 0];
        out.sw[..12].copy_from_slice(&sw);
        out.pos.copy_from_slice(&[
            6, 0, 8, //
            1, -1, 7, //
            9, 10, 2, //
            -1, 4, -1, //
        ]);
        // n, R, kept, active, largest, tm, blocks, entries, skipped, rejected, 0
        out.meta.copy_from_slice(&[6, 12, 9, 4, 3, 2, 1, 12, 1, 2, 0]);
    });
}

/// Two blocks: a whole block of expert 1, then one entry each of experts 0 and 1.
#[test]
fn two_blocks() {
    let ids = [vec![1; 1024], vec![0, 1]].concat();
    let shape = Shape::new(1026, 1, 2, 1000).unwrap();
    check(shape, &ids, |plan| {
        let w = weights(1026);
        let out = plan.buffers();
        out.bcnt.copy_from_slice(&[0, 1024, 1, 1]);
        out.boff.copy_from_slice(&[0, 1000, 0, 2024]);
        out.eoff.copy_from_slice(&[0, 1000, 3000]);
        out.tiles.copy_from_slice(&[0, 0, 1, 1, 1000, 1000, 1, 2000, 25]);
        out.stok.fill(-1);
        out.stok[0] = 1024;
        out.sw[0] = w[1024];
        out.stok[1000..2024].copy_from_slice(&Vec::from_iter(0..1024));
        out.sw[1000..2024].copy_from_slice(&w[..1024]);
        out.pos[..1024].copy_from_slice(&Vec::from_iter(1000..2024));
        out.stok[2024] = 1025;
        out.sw[2024] = w[1025];
        out.pos[1024..].copy_from_slice(&[0, 2024]);
        out.meta.copy_from_slice(&[3, 3000, 1026, 2, 1025, 1000, 2, 1026, 0, 0, 0]);
    });
}

/// Nothing to do: no row, no tile, every entry accounted for.
#[test]
fn all_skipped_or_rejected() {
    let shape = Shape::new(2, 2, 3, 4).unwrap();
    check(shape, &[-1, 3, i32::MIN, -1], |plan| {
        let out = plan.buffers();
        out.pos.fill(-1);
        out.meta.copy_from_slice(&[0, 0, 0, 0, 0, 4, 1, 4, 2, 2, 0]);
    });
}
