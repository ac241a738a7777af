//! The QSA indexer.

use super::Array;

/// `out[b] = mean of x[b*ratio .. (b+1)*ratio]` for `blocks` blocks.
pub fn mean_pool(x: &Array, ratio: usize, blocks: usize) -> Array {
    Array::from_fn([blocks, 1, x.shape[2]], |b, _, c| {
        (b * ratio..(b + 1) * ratio).map(|r| x[[r, 0, c]]).sum::<f64>() / ratio as f64
    })
}

/// Of the blocks complete at each query, the `n` of the highest `sum_h max(0, q[t, h] · keys[b])`, ties to the lower block;
/// ascending, then -1.
pub fn select_blocks(q: &Array, keys: &Array, pos0: usize, ratio: usize, n: usize) -> Array<i32> {
    let [tokens, heads, _] = q.shape;
    let mut out = Array::from_fn([tokens, 1, n], |_, _, _| -1);
    for t in 0..tokens {
        let dot = |h: usize, b: usize| q.at(t, h).iter().zip(keys.at(b, 0)).map(|(q, k)| q * k).sum::<f64>();
        let score = |b: usize| (0..heads).map(|h| dot(h, b).max(0.0)).sum::<f64>();
        let mut blocks: Vec<(f64, usize)> = (0..(pos0 + t + 1) / ratio).map(|b| (score(b), b)).collect();
        // A stable sort leaves ties in the order of the blocks.
        blocks.sort_by(|a, b| b.0.total_cmp(&a.0));
        blocks.truncate(n);
        blocks.sort_by_key(|&(_, b)| b);
        for (i, &(_, b)) in blocks.iter().enumerate() {
            out[[t, 0, i]] = b as i32;
        }
    }
    out
}
