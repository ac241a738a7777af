//! The body of the fuzz target on files spoilt at random, the same ones each time.

mod common;

use cap::Cap;
use common::exercise::exercise;
use common::fixture;
use common::raw::good_file;
use std::alloc::System;

/// No malformed file makes the reader allocate more than this; the files are small.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, 32 << 20);

const EXECUTIONS: u64 = 100_000;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 32) as usize % limit.max(1)
    }

    /// Lengths and offsets that are near some limit, or any.
    fn word(&mut self) -> u64 {
        let near = (self.next() % 5).wrapping_sub(2);
        match self.below(4) {
            0 => near,
            1 => (1u64 << self.below(64)).wrapping_add(near),
            2 => self.below(256) as u64,
            _ => self.next(),
        }
    }
}

/// One random change.
fn spoil(file: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(file.len());
    let len = 1 + random.below(40);
    let end = (at + len).min(file.len());
    match random.below(8) {
        0 => file[at..end].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => overwrite(file, at, &[random.next() as u8]),
        2 => overwrite(file, at, &(random.word() as u32).to_le_bytes()),
        3 => overwrite(file, at, &random.word().to_le_bytes()),
        4 => file.truncate(at),
        5 => drop(file.drain(at..end)),
        6 => file.splice(at..at, vec![random.next() as u8; len]).for_each(drop),
        _ => {
            let copied = file[at..end].to_vec();
            let to = random.below(file.len());
            file.splice(to..to, copied).for_each(drop);
        }
    }
}

fn overwrite(file: &mut [u8], at: usize, bytes: &[u8]) {
    for (old, new) in file[at..].iter_mut().zip(bytes) {
        *old = *new;
    }
}

#[test]
fn no_spoilt_file_breaks_the_reader() {
    let files = [good_file(), fixture("writer.gguf")];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for execution in 0..EXECUTIONS {
        let mut file = files[execution as usize % files.len()].clone();
        for _ in 0..1 + random.below(3) {
            spoil(&mut file, &mut random);
        }
        accepted += u64::from(exercise(&file));
    }
    println!("{accepted} of {EXECUTIONS} accepted");
    // Or else the changes would be too crude to get beyond the first checks.
    assert!((EXECUTIONS / 20..EXECUTIONS / 2).contains(&accepted));
}
