//! Sets of key blocks.

/// A set of block numbers.
#[derive(Clone)]
pub(super) struct BlockSet(Vec<u64>);

impl BlockSet {
    /// None of the blocks below `end`.
    pub(super) fn new(end: usize) -> Self {
        Self(vec![0; end.div_ceil(64)])
    }

    /// Adds a block below the `end` that the set was made for.
    pub(super) fn insert(&mut self, block: usize) {
        self.0[block / 64] |= 1 << (block % 64);
    }

    /// Whether a block, any block, is in the set.
    pub(super) fn contains(&self, block: usize) -> bool {
        self.0.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// How many blocks there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Adds the blocks of `other`.
    pub(super) fn unite(&mut self, other: &BlockSet) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// Leaves the blocks that `other` has too.
    pub(super) fn intersect(&mut self, other: &BlockSet) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= other);
    }

    /// Its blocks, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|&block| self.contains(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(end: usize, blocks: &[usize]) -> BlockSet {
        let mut set = BlockSet::new(end);
        blocks.iter().for_each(|&block| set.insert(block));
        set
    }

    #[test]
    fn sets_of_different_ends() {
        let (short, long) = (set(65, &[0, 63, 64]), set(300, &[63, 64, 65, 299]));
        for (a, b) in [(&short, &long), (&long, &short)] {
            let (mut any, mut all) = (a.clone(), a.clone());
            any.unite(b);
            all.intersect(b);
            assert_eq!(any.iter().collect::<Vec<_>>(), [0, 63, 64, 65, 299]);
            assert_eq!(all.iter().collect::<Vec<_>>(), [63, 64]);
            assert_eq!((any.len(), all.len()), (5, 2));
        }
        assert!(!short.contains(1) && !short.contains(299) && long.contains(299));
    }
}
