//! The threads of a device, and how they share out one op.
//!
//! A generated token takes hundreds of ops of a few microseconds each. To sleep in between and be woken for the next would
//! take longer than they do. So the thread that enqueues is one of the team, an op that is too small to share out runs there
//! at once, and the others look for the next one for a while before they sleep.

use std::any::Any;
use std::hint::spin_loop;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// How often a thread looks for work, or for the others to be done, before it lets go of its core: 50 to 200 microseconds.
const LOOKS: usize = 5000;

/// Threads that work on one thing together.
pub(super) struct Team {
    /// All but the one that calls.
    others: Vec<Other>,
    /// Held while something is shared out.
    turn: Mutex<()>,
}

struct Other {
    slot: Arc<Slot>,
    thread: JoinHandle<()>,
}

/// Where a thread finds its work. Alone in two cache lines, which some processors fetch together.
#[derive(Default)]
#[repr(align(128))]
struct Slot {
    /// What is offered; [`Slot::TAKEN`] while the thread does it; null when there is nothing.
    task: AtomicPtr<Task<'static>>,
    /// Whether there will be no more.
    closed: AtomicBool,
}

/// What every thread does, given its number.
struct Task<'a> {
    work: &'a (dyn Fn(usize) + Sync),
    /// The first panic of another thread.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Team {
    /// A team of `threads` threads, the caller's among them.
    ///
    /// # Errors
    /// If the system starts no threads.
    pub(super) fn new(threads: usize) -> io::Result<Self> {
        let mut team = Self { others: Vec::new(), turn: Mutex::new(()) };
        for number in 1..threads {
            let slot = Arc::<Slot>::default();
            let thread = thread::Builder::new().name(format!("cpu-{number}")).spawn({
                let slot = slot.clone();
                move || slot.serve(number)
            })?;
            team.others.push(Other { slot, thread });
        }
        Ok(team)
    }

    /// Number of threads.
    pub(super) fn threads(&self) -> usize {
        self.others.len() + 1
    }

    /// Calls `work` with the numbers of up to `threads` threads at once, always with the caller's, which is 0: threads that
    /// have not begun when the caller is done no longer do. So what is to be done must be shared out within `work`, where there
    /// is no other `run`. On a busy machine, a thread that the system does not let run then holds nobody up.
    ///
    /// # Panics
    /// If `work` does on any thread, when all are done.
    pub(super) fn run(&self, threads: usize, work: &(dyn Fn(usize) + Sync)) {
        self.offer(threads, work, Absent::Recall);
    }

    /// The same with every thread of the team.
    pub(super) fn run_on_all(&self, work: &(dyn Fn(usize) + Sync)) {
        self.offer(self.threads(), work, Absent::Await);
    }

    fn offer(&self, threads: usize, work: &(dyn Fn(usize) + Sync), absent: Absent) {
        let others = &self.others[..threads.clamp(1, self.threads()) - 1];
        if others.is_empty() {
            return work(0);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let task = Task { work, panic: Mutex::new(None) };
        let done = Done { others, absent };
        for Other { slot, thread } in others {
            slot.task.store(ptr::from_ref(&task).cast_mut().cast(), Ordering::Release);
            thread.thread().unpark();
        }
        work(0);
        drop(done);
        if let Some(panic) = task.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }

    /// Calls `work` with every number below `count`, one after the other on whichever thread is free.
    pub(super) fn for_each(&self, count: usize, work: impl Fn(usize) + Sync) {
        let next = AtomicUsize::new(0);
        self.run(count, &|_| {
            while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < count) {
                work(i);
            }
        });
    }

    /// Calls `work` with every part of `len` elements, the last one of fewer, and its number.
    pub(super) fn for_each_chunk<T: Send>(&self, values: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let count = values.len().div_ceil(len);
        let chunks = Mutex::new(values.chunks_mut(len).enumerate());
        let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.run(count, &|_| {
            while let Some((i, chunk)) = next() {
                work(i, chunk);
            }
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for Other { slot, thread } in &self.others {
            slot.closed.store(true, Ordering::Release);
            thread.thread().unpark();
        }
    }
}

/// What happens to threads that have not begun when the caller is done.
enum Absent {
    Recall,
    Await,
}

/// Waits for the other threads when it goes, as it also does when the caller's own part panics.
struct Done<'a> {
    others: &'a [Other],
    absent: Absent,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if let Absent::Recall = self.absent {
            self.others.iter().for_each(|other| other.slot.recall());
        }
        for Other { slot, .. } in self.others {
            let mut looks = 0;
            while !slot.task.load(Ordering::Acquire).is_null() {
                looks += 1;
                if looks < LOOKS { spin_loop() } else { thread::yield_now() }
            }
        }
    }
}

impl Slot {
    /// Stands for a task that has begun: no task is there, since none is that badly aligned.
    const TAKEN: *mut Task<'static> = ptr::without_provenance_mut(1);

    /// Does what is put here until there will be no more.
    fn serve(&self, number: usize) {
        while let Some(task) = self.wait() {
            // SAFETY: `Team::offer` put the task here and does not return, nor unwind, while this is `TAKEN`.
            let task = unsafe { &*task };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (task.work)(number))) {
                task.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
            }
            self.task.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// The next task, now taken.
    fn wait(&self) -> Option<*const Task<'static>> {
        loop {
            for _ in 0..LOOKS {
                let task = self.task.load(Ordering::Relaxed);
                let taken =
                    || self.task.compare_exchange(task, Self::TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
                if !task.is_null() && taken() {
                    return Some(task);
                }
                if self.closed.load(Ordering::Acquire) {
                    return None;
                }
                spin_loop();
            }
            // Whoever puts something here unparks this thread afterwards; if that came first, it does not even sleep.
            thread::park();
        }
    }

    /// Takes a task back that has not begun.
    fn recall(&self) {
        let task = self.task.load(Ordering::Relaxed);
        if task != Self::TAKEN {
            // If it begins at this moment, it stays, and is waited for.
            let _ = self.task.compare_exchange(task, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::array;
    use std::time::Duration;

    #[test]
    fn every_number_comes_once_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let team = Team::new(threads).unwrap();
            assert_eq!(team.threads(), threads);
            for count in [0, 1, 2, 7, 1000] {
                let seen: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                team.for_each(count, |i| {
                    seen[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1));
                let mut values = vec![0; count];
                team.for_each_chunk(&mut values, 3, |i, chunk| chunk.fill(i + 1));
                assert!(values.iter().enumerate().all(|(i, &value)| value == i / 3 + 1));
            }
        }
    }

    #[test]
    fn all_threads_take_part_also_after_they_slept() {
        let team = Team::new(3).unwrap();
        for _ in 0..3 {
            let seen: [_; 3] = array::from_fn(|_| AtomicUsize::new(0));
            team.run_on_all(&|thread| {
                seen[thread].fetch_add(1, Ordering::Relaxed);
            });
            assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1));
            thread::sleep(Duration::from_millis(5));
        }
        team.run(2, &|thread| assert!(thread < 2));
        team.run(100, &|thread| assert!(thread < 3));
    }

    #[test]
    fn a_thread_that_has_not_begun_holds_nobody_up() {
        let team = Team::new(2).unwrap();
        let slot = &team.others[0].slot;
        for begun in [false, true] {
            let task = Task { work: &|_| {}, panic: Mutex::new(None) };
            let offered = ptr::from_ref(&task).cast_mut().cast();
            let slot = Slot { task: AtomicPtr::new(if begun { Slot::TAKEN } else { offered }), ..Slot::default() };
            slot.recall();
            assert_eq!(slot.task.into_inner() == Slot::TAKEN, begun);
        }
        for _ in 0..10_000 {
            let calls = AtomicUsize::new(0);
            team.run(2, &|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert!((1..=2).contains(&calls.into_inner()));
            assert!(slot.task.load(Ordering::Relaxed).is_null());
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::new(3).unwrap();
        for bad in 0..3 {
            let panic =
                catch_unwind(AssertUnwindSafe(|| team.run_on_all(&|thread| assert!(thread != bad, "on purpose"))));
            let panic = panic.unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
            let count = AtomicUsize::new(0);
            team.for_each(10, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 10);
        }
    }
}
