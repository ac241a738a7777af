//! A device for tests: it runs what it is given in another order, any that the declared reads and writes permit.
//!
//! A model whose ops declare all that they read and write gives the same bytes on it, whatever the order. One that
//! forgot something gives other bytes with some seed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::device::{Device, DeviceError};
use crate::op::{Access, Op};
use crate::parity::weights::Rng;
use crate::tensor::Tensor;
use crate::wrapper::Wrapper;

/// Records ops and writes, and runs them on `D` when something is read, in a random order.
///
/// Two of them keep their order if one writes what the other reads or writes ([`Op::accesses`]), or if one is a
/// [`Device::write`] to the memory of the other's weight ([`Op::weights`]). All other pairs may change places.
pub struct ShuffleDevice<D> {
    device: D,
    state: Mutex<State>,
}

struct State {
    random: Rng,
    recorded: Vec<Work>,
}

impl<D: Device> ShuffleDevice<D> {
    /// Wraps `device`; `seed` chooses the orders.
    pub fn new(device: D, seed: u64) -> Self {
        Self { device, state: Mutex::new(State { random: Rng::new(seed), recorded: Vec::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what is recorded. After an error the rest is dropped, as results that depend on it are worth nothing.
    fn flush(&self) -> Result<(), DeviceError> {
        let State { random, recorded } = &mut *self.state();
        let work = std::mem::take(recorded);
        for i in permitted_order(&work, random) {
            match &work[i] {
                Work::Op(op) => self.device.enqueue(op)?,
                Work::Write(dst, bytes) => self.device.write(dst, bytes)?,
            }
        }
        self.device.sync()
    }
}

impl<D: Device> Wrapper for ShuffleDevice<D> {
    fn inner(&self) -> &dyn Device {
        &self.device
    }

    fn write(&self, dst: &Tensor, bytes: &[u8]) -> Result<(), DeviceError> {
        self.state().recorded.push(Work::Write(dst.clone(), bytes.into()));
        Ok(())
    }

    fn read(&self, src: &Tensor, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.flush()?;
        self.device.read(src, bytes)
    }

    fn enqueue(&self, op: &Op) -> Result<(), DeviceError> {
        op.check()?;
        self.state().recorded.push(Work::Op(Box::new(op.clone())));
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.flush()
    }
}

enum Work {
    Op(Box<Op>),
    Write(Tensor, Box<[u8]>),
}

impl Work {
    fn accesses(&self) -> Vec<(&Tensor, Access)> {
        match self {
            Work::Op(op) => op.accesses(),
            Work::Write(dst, _) => vec![(dst, Access::Write)],
        }
    }

    /// Whether the two have to keep their order.
    fn conflicts(&self, other: &Work) -> bool {
        let meet = |(a, a_access): &(&Tensor, Access), (b, b_access): &(&Tensor, Access)| {
            (*a_access == Access::Write || *b_access == Access::Write) && a.overlaps(b)
        };
        let theirs = other.accesses();
        self.accesses().iter().any(|mine| theirs.iter().any(|theirs| meet(mine, theirs)))
            || self.writes_weight_of(other)
            || other.writes_weight_of(self)
    }

    fn writes_weight_of(&self, other: &Work) -> bool {
        match (self, other) {
            (Work::Write(dst, _), Work::Op(op)) => op.weights().iter().any(|weight| weight.buffer.same(&dst.buffer)),
            _ => false,
        }
    }
}

/// An order in which each comes behind all earlier ones that it conflicts with.
fn permitted_order(work: &[Work], random: &mut Rng) -> Vec<usize> {
    let mut after = vec![Vec::new(); work.len()];
    let mut waits_for = vec![0; work.len()];
    for later in 0..work.len() {
        for earlier in (0..later).filter(|&earlier| work[earlier].conflicts(&work[later])) {
            after[earlier].push(later);
            waits_for[later] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..work.len()).filter(|&i| waits_for[i] == 0).collect();
    let mut order = Vec::with_capacity(work.len());
    while !ready.is_empty() {
        let next = ready.swap_remove(random.below(ready.len()));
        for &later in &after[next] {
            waits_for[later] -= 1;
            if waits_for[later] == 0 {
                ready.push(later);
            }
        }
        order.push(next);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Add, Fill};
    use crate::reference::ReferenceDevice;
    use crate::tensor::DType;

    fn tensors(n: usize) -> Vec<Tensor> {
        let device = ReferenceDevice::default();
        (0..n).map(|_| crate::device::tensor(&device, DType::F32, 2, 1, 1).unwrap()).collect()
    }

    fn fill(dst: &Tensor) -> Work {
        Work::Op(Box::new(Fill { dst: dst.clone(), value: 0.0 }.into()))
    }

    fn add(src: &Tensor, dst: &Tensor) -> Work {
        Work::Op(Box::new(Add { src: src.clone(), dst: dst.clone() }.into()))
    }

    fn orders(work: &[Work]) -> std::collections::BTreeSet<Vec<usize>> {
        (0..200).map(|seed| permitted_order(work, &mut Rng::new(seed))).collect()
    }

    #[test]
    fn work_on_other_memory_changes_places() {
        let t = tensors(3);
        assert_eq!(orders(&[fill(&t[0]), fill(&t[1]), fill(&t[2])]).len(), 6);
        assert_eq!(orders(&[add(&t[0], &t[1]), add(&t[0], &t[2])]).len(), 2, "both only read the first");
        assert_eq!(orders(&[fill(&t[0].rows(0..1)), fill(&t[0].rows(1..2))]).len(), 2, "other rows");
    }

    #[test]
    fn work_on_the_same_memory_stays() {
        let t = tensors(3);
        let only = |work: &[Work]| {
            assert_eq!(orders(work).into_iter().collect::<Vec<_>>(), [(0..work.len()).collect::<Vec<_>>()])
        };
        only(&[fill(&t[0]), fill(&t[0])]);
        only(&[fill(&t[0]), add(&t[0], &t[1]), add(&t[1], &t[2])]);
        only(&[add(&t[0], &t[1]), fill(&t[0])]);
        only(&[Work::Write(t[0].clone(), Box::default()), add(&t[0], &t[1])]);
    }
}
