//! Which of two streams an op goes to, and when one waits for the other: derived from what ops declare that they read and write
//! ([`Op::accesses`](crate::op::Op::accesses)), and from nothing else.
//!
//! The main stream takes ops in program order. An op that has nothing to do with the op that the main stream took last goes
//! beside it, on the side stream: a shared expert beside the routed ones, a gate beside a convolution. Whichever stream gets an
//! op first waits for the other if that holds work that the op conflicts with and that has not been waited for.

use crate::op::Access;
use crate::tensor::Tensor;

/// The main stream's index.
pub(super) const MAIN: usize = 0;
/// The side stream's.
pub(super) const SIDE: usize = 1;

/// What an op does to its operands.
type Accesses<'a> = [(&'a Tensor, Access)];

/// Where an op goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub stream: usize,
    /// Whether that stream first waits for all that the other has been given.
    pub waits: bool,
}

/// What the streams have been given since they last waited for each other.
pub(super) struct Streams {
    streams: [Given; 2],
    /// Everything goes to the main stream.
    one: bool,
}

/// The work of one stream.
#[derive(Default)]
struct Given {
    /// Of the last op.
    last: Vec<(Tensor, Access)>,
    /// Of all ops that the other stream has not waited for.
    unseen: Vec<(Tensor, Access)>,
    /// There is also work that nobody declared.
    undeclared: bool,
}

/// Operands that are remembered; beyond, an op is taken to conflict with all of them.
const REMEMBERED: usize = 96;

impl Streams {
    /// Nothing given yet. `one`: everything goes to the main stream.
    pub fn new(one: bool) -> Self {
        Self { streams: Default::default(), one }
    }

    /// Where an op goes.
    pub fn place(&mut self, accesses: &Accesses) -> Place {
        let main = &self.streams[MAIN];
        let beside = !self.one && !main.last.is_empty() && !conflict(&main.last, accesses);
        self.give(if beside { SIDE } else { MAIN }, accesses)
    }

    fn give(&mut self, stream: usize, accesses: &Accesses) -> Place {
        let other = &mut self.streams[1 - stream];
        let waits = other.undeclared || conflict(&other.unseen, accesses);
        if waits {
            other.seen();
        }
        let given = &mut self.streams[stream];
        given.last = accesses.iter().map(|(t, access)| ((*t).clone(), *access)).collect();
        given.unseen.extend(given.last.iter().cloned());
        given.undeclared |= given.unseen.len() > REMEMBERED;
        if given.undeclared {
            given.unseen.clear();
        }
        Place { stream, waits }
    }

    /// The main stream is given something that no op declares: copies from the host, which may be to weights.
    pub fn undeclared(&mut self) {
        let main = &mut self.streams[MAIN];
        (main.last, main.undeclared) = (Vec::new(), true);
    }

    /// Whether the main stream has to wait, if everything so far is to come before what it is given next.
    pub fn join(&mut self) -> bool {
        let side = &mut self.streams[SIDE];
        let waits = side.undeclared || !side.unseen.is_empty();
        side.seen();
        waits
    }

    /// Both streams have done everything.
    pub fn idle(&mut self) {
        *self = Self::new(self.one);
    }
}

impl Given {
    /// The other stream has waited.
    fn seen(&mut self) {
        (self.unseen, self.undeclared) = (Vec::new(), false);
    }
}

/// Whether an op has to keep its order with what was given: one writes what the other touches.
fn conflict(given: &[(Tensor, Access)], accesses: &Accesses) -> bool {
    let meet = |(a, first): &(Tensor, Access), (b, second): &(&Tensor, Access)| {
        (*first == Access::Write || *second == Access::Write) && a.overlaps(b)
    };
    given.iter().any(|given| accesses.iter().any(|access| meet(given, access)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Access::Read, Access::Write};
    use crate::reference::ReferenceDevice;
    use crate::tensor::DType;

    const ON_MAIN: Place = Place { stream: MAIN, waits: false };

    fn tensors<const N: usize>() -> [Tensor; N] {
        let device = ReferenceDevice::default();
        std::array::from_fn(|_| crate::device::tensor(&device, DType::F32, 4, 1, 1).unwrap())
    }

    /// The ops of a layer of experts: the shared one runs beside the routed ones, and the sum waits for both.
    #[test]
    fn a_shared_expert_runs_beside_the_routed_ones() {
        let [x, ids, plan, hidden, rows, shared_hidden, shared, y] = tensors();
        let mut streams = Streams::new(false);
        assert_eq!(streams.place(&[(&x, Write)]), ON_MAIN);
        assert_eq!(streams.place(&[(&x, Read), (&ids, Write)]), ON_MAIN);
        assert_eq!(streams.place(&[(&x, Read), (&shared_hidden, Write)]), Place { stream: SIDE, waits: true });
        assert_eq!(streams.place(&[(&shared_hidden, Read), (&shared, Write)]), Place { stream: SIDE, waits: false });
        assert_eq!(streams.place(&[(&ids, Read), (&plan, Write)]), ON_MAIN);
        assert_eq!(streams.place(&[(&x, Read), (&plan, Read), (&hidden, Write)]), ON_MAIN);
        assert_eq!(streams.place(&[(&hidden, Read), (&plan, Read), (&rows, Write)]), ON_MAIN);
        let sum = [(&rows, Read), (&shared, Read), (&y, Write)];
        assert_eq!(streams.place(&sum), Place { stream: MAIN, waits: true });
        assert!(!streams.join(), "the sum has waited");
    }

    #[test]
    fn who_overwrites_what_the_other_stream_reads_waits() {
        let [x, a, b] = tensors();
        let mut streams = Streams::new(false);
        streams.place(&[(&x, Write)]);
        streams.place(&[(&x, Read), (&a, Write)]);
        assert_eq!(streams.place(&[(&x, Read), (&b, Write)]).stream, SIDE);
        assert_eq!(streams.place(&[(&a, Read), (&x, Write)]), Place { stream: MAIN, waits: true });
    }

    #[test]
    fn parts_of_a_buffer_are_told_apart() {
        let [x] = tensors();
        let mut streams = Streams::new(false);
        streams.place(&[(&x.rows(0..2), Write)]);
        assert_eq!(streams.place(&[(&x.rows(2..4), Write)]), Place { stream: SIDE, waits: false });
        assert_eq!(streams.place(&[(&x, Read)]), Place { stream: MAIN, waits: true });
    }

    #[test]
    fn what_nobody_declared_is_waited_for() {
        let [x, y] = tensors();
        let mut streams = Streams::new(false);
        streams.undeclared();
        assert_eq!(streams.place(&[(&x, Write)]), ON_MAIN, "after it, on the same stream");
        assert_eq!(streams.place(&[(&y, Write)]), Place { stream: SIDE, waits: true });
        assert!(streams.join());
        assert!(!streams.join());
    }

    #[test]
    fn more_than_is_remembered_conflicts_with_everything() {
        let [x, y, z] = tensors();
        let mut streams = Streams::new(false);
        (0..=REMEMBERED).for_each(|_| assert_eq!(streams.place(&[(&x, Write)]), ON_MAIN));
        assert_eq!(streams.place(&[(&y, Write)]), Place { stream: SIDE, waits: true });
        assert_eq!(
            streams.place(&[(&z, Write)]),
            Place { stream: SIDE, waits: false },
            "the same work is not waited for twice"
        );
    }

    #[test]
    fn one_stream_if_so_wanted() {
        let [x, y] = tensors();
        let mut streams = Streams::new(true);
        for t in [&x, &y, &x] {
            assert_eq!(streams.place(&[(t, Write)]), ON_MAIN);
        }
    }
}
