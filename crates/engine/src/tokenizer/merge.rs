//! The merge loop that both kinds of tokenizer share.
//!
//! A word is a row of symbols. Again and again the best pair of neighbours is replaced by what it merges to, the
//! leftmost among equals. A linked list of symbols and a heap of candidate pairs make that O(n log n), so that a
//! megabyte without a break costs little more per byte than a sentence does.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Which symbols merge, how urgently, and to what.
pub(super) trait Rules {
    /// What a row is made of.
    type Symbol: Copy + PartialEq;

    /// What `left` and `right` merge to, and the rank of that merge: the lowest rank goes first.
    fn merge(&self, left: Self::Symbol, right: Self::Symbol) -> Option<(u32, Self::Symbol)>;
}

/// Merges `symbols`, fewer than `u32::MAX` of them, until no two neighbours merge.
pub(super) fn merge_all<R: Rules>(rules: &R, symbols: impl Iterator<Item = R::Symbol>) -> Vec<R::Symbol> {
    let nodes = (0u32..).zip(symbols).map(|(at, symbol)| Node {
        symbol: Some(symbol),
        prev: at.checked_sub(1),
        next: Some(at + 1),
    });
    let mut row = Row { rules, nodes: nodes.collect(), candidates: BinaryHeap::new() };
    if let Some(last) = row.nodes.last_mut() {
        last.next = None;
    }
    for at in 0..row.nodes.len() as u32 {
        row.propose(Some(at));
    }
    while let Some(best) = row.candidates.pop() {
        row.apply(&best);
    }
    row.nodes.into_iter().filter_map(|node| node.symbol).collect()
}

struct Node<S> {
    /// `None` once it was merged into its left neighbour.
    symbol: Option<S>,
    prev: Option<u32>,
    next: Option<u32>,
}

/// Neighbours that may merge: `pair.0` at `left`, `pair.1` next to it. Stale once either has changed.
struct Candidate<S> {
    rank: u32,
    left: u32,
    pair: (S, S),
    merged: S,
}

struct Row<'r, R: Rules> {
    rules: &'r R,
    nodes: Vec<Node<R::Symbol>>,
    candidates: BinaryHeap<Candidate<R::Symbol>>,
}

impl<R: Rules> Row<'_, R> {
    /// Makes a candidate of the node at `left` and its right neighbour, if both exist and merge.
    fn propose(&mut self, left: Option<u32>) {
        let candidate = left.and_then(|left| {
            let node = &self.nodes[left as usize];
            let pair = (node.symbol?, self.nodes[node.next? as usize].symbol?);
            let (rank, merged) = self.rules.merge(pair.0, pair.1)?;
            Some(Candidate { rank, left, pair, merged })
        });
        self.candidates.extend(candidate);
    }

    /// Merges the candidate's pair, unless it is stale.
    fn apply(&mut self, candidate: &Candidate<R::Symbol>) {
        let left = &self.nodes[candidate.left as usize];
        let Some(right_at) = left.next.filter(|_| left.symbol == Some(candidate.pair.0)) else { return };
        let prev = left.prev;
        let right = &mut self.nodes[right_at as usize];
        if right.symbol != Some(candidate.pair.1) {
            return;
        }
        right.symbol = None;
        let next = right.next;
        if let Some(next) = next {
            self.nodes[next as usize].prev = Some(candidate.left);
        }
        let left = &mut self.nodes[candidate.left as usize];
        left.symbol = Some(candidate.merged);
        left.next = next;
        self.propose(prev);
        self.propose(Some(candidate.left));
    }
}

/// The heap's greatest is the candidate of the lowest rank, the leftmost among equals.
impl<S> Ord for Candidate<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.rank, other.left).cmp(&(self.rank, self.left))
    }
}

impl<S> PartialOrd for Candidate<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> PartialEq for Candidate<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S> Eq for Candidate<S> {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Symbols are letters; `ab -> c` is `("ab", 'c')`, best first.
    struct Table {
        rules: Vec<(char, char, char)>,
        lookups: Cell<usize>,
    }

    impl Table {
        fn new(rules: &[(char, char, char)]) -> Self {
            Self { rules: rules.to_vec(), lookups: Cell::new(0) }
        }

        fn run(&self, text: &str) -> String {
            merge_all(self, text.chars()).into_iter().collect()
        }
    }

    impl Rules for Table {
        type Symbol = char;

        fn merge(&self, left: char, right: char) -> Option<(u32, char)> {
            self.lookups.set(self.lookups.get() + 1);
            let rank = self.rules.iter().position(|rule| (rule.0, rule.1) == (left, right))?;
            Some((rank as u32, self.rules[rank].2))
        }
    }

    /// The definition: find the best pair, leftmost among equals, replace it, start again.
    fn by_definition(table: &Table, text: &str) -> String {
        let mut row: Vec<char> = text.chars().collect();
        loop {
            let best = (1..row.len())
                .filter_map(|at| table.merge(row[at - 1], row[at]).map(|(rank, merged)| (rank, at, merged)))
                .min();
            let Some((_, at, merged)) = best else { return row.into_iter().collect() };
            row[at - 1] = merged;
            row.remove(at);
        }
    }

    #[test]
    fn the_lowest_rank_goes_first_and_the_leftmost_among_equals() {
        let table = Table::new(&[('b', 'c', 'X'), ('a', 'b', 'Y'), ('a', 'a', 'Z'), ('Z', 'Z', 'W')]);
        assert_eq!(table.run("abc"), "aX");
        assert_eq!(table.run("aaa"), "Za");
        assert_eq!(table.run("aaaaa"), "Wa");
        assert_eq!(table.run("ab"), "Y");
        assert_eq!(table.run(""), "");
        assert_eq!(table.run("q"), "q");
    }

    #[test]
    fn the_number_of_lookups_is_linear() {
        let table = Table::new(&[('a', 'a', 'b'), ('b', 'b', 'c'), ('c', 'c', 'd')]);
        let length = 100_000;
        table.run(&"a".repeat(length));
        // One for each pair at the start, and two for each of the fewer than `length` merges.
        assert!(table.lookups.get() < 3 * length, "{}", table.lookups.get());
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_definition(
            rules in prop::collection::vec(("[a-e]", "[a-e]", "[a-e]"), 0..12),
            text in "[a-e]{0,24}",
        ) {
            let letter = |text: String| text.chars().next().unwrap();
            let rules: Vec<_> = rules.into_iter().map(|(a, b, c)| (letter(a), letter(b), letter(c))).collect();
            let table = Table::new(&rules);
            prop_assert_eq!(table.run(&text), by_definition(&table, &text));
        }
    }
}
