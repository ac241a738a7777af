//! The best of many: keys with their indices as single integers, which compare fast and without exceptions.

/// Larger for a higher key, and of equal keys for the lower index. Both zeros are equal; what is not a number is lowest.
pub(super) fn rank(key: f32, index: usize) -> u64 {
    let bits = (key + 0.0).to_bits(); // -0 + 0 is 0
    let ordered = match bits >> 31 {
        _ if key.is_nan() => 0,
        0 => bits | 1 << 31,
        _ => !bits,
    };
    u64::from(ordered) << 32 | u64::from(!(index as u32))
}

/// The index in a [`rank`].
pub(super) fn index(rank: u64) -> usize {
    !(rank as u32) as usize
}

/// Keeps the `n` highest ranks, in any order.
pub(super) fn keep_best(ranks: &mut Vec<u64>, n: usize) {
    if n < ranks.len() {
        ranks.select_nth_unstable_by(n, |a, b| b.cmp(a));
        ranks.truncate(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_keys_then_lower_indices() {
        let inf = f32::INFINITY;
        let keys = [inf, 3.0, 1e-45, 0.0, -1e-45, -2.5, -inf, f32::NAN];
        for pair in keys.windows(2) {
            assert!(rank(pair[0], 9) > rank(pair[1], 0), "{pair:?}");
        }
        assert!(rank(0.0, 1) > rank(-0.0, 2) && rank(-0.0, 1) > rank(0.0, 2));
        assert_eq!(index(rank(-7.0, 123_456)), 123_456);
    }

    #[test]
    fn the_best_are_kept() {
        for n in 0..6 {
            let mut ranks: Vec<u64> = [2.0, 5.0, 5.0, 1.0].iter().enumerate().map(|(i, &key)| rank(key, i)).collect();
            keep_best(&mut ranks, n);
            let mut kept: Vec<usize> = ranks.into_iter().map(index).collect();
            kept.sort_unstable();
            let mut want = [1, 2, 0, 3][..n.min(4)].to_vec();
            want.sort_unstable();
            assert_eq!(kept, want);
        }
    }
}
