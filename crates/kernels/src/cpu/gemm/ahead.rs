//! Weights on their way from memory.

use crate::cpu::isa::prefetch;

/// Bytes in a cache line.
const LINE: usize = 64;

/// The bytes of the next panel. While a panel is unpacked they are asked for line by line: memory is busy all the time, and
/// nothing ever waits for it. (The processor's own prefetching is of no help, as a panel is read from sixteen rows at once.)
pub(super) struct Ahead<'a> {
    rest: &'a [u8],
    step: usize,
}

impl<'a> Ahead<'a> {
    /// To be asked for in so many steps.
    pub fn new(bytes: &'a [u8], steps: usize) -> Self {
        Self { rest: bytes, step: bytes.len().div_ceil(steps.max(1)).next_multiple_of(LINE) }
    }

    /// The next `n` steps.
    #[inline(always)]
    pub fn step(&mut self, n: usize) {
        let (now, rest) = self.rest.split_at(self.rest.len().min(n * self.step));
        self.rest = rest;
        for line in now.chunks(LINE) {
            prefetch(line);
        }
    }
}
