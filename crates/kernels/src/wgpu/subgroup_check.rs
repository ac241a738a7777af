//! Whether an adapter's subgroup operations do what their names say, whatever the size of its subgroups: decides whether any
//! kernel uses them.

use super::device::WgpuDevice;
use super::shader::{File, Kernel};
use super::tier::Sizes;
use crate::device::{Device, DeviceError, tensor};
use crate::tensor::DType;

/// Threads of a workgroup, as in subgroup_check.wgsl.
const THREADS: usize = 256;
/// Words of a thread, as there.
const WORDS: usize = 20;
/// Workgroups that are looked at.
const WORKGROUPS: usize = 8;

/// The sizes of the subgroups seen; `None` where an operation gave anything else than it must.
pub(super) fn sizes(device: &WgpuDevice) -> Result<Option<Sizes>, DeviceError> {
    let found = tensor(device, DType::U32, WORKGROUPS, THREADS, WORDS)?;
    let window = device.core().window(&found, true)?.0;
    let call = device.call(Kernel::plain(File::SubgroupCheck, "subgroup_check")).buffer(&window);
    call.groups(&mut device.exclusive(), WORKGROUPS)?;
    let mut words = vec![0u32; found.len()];
    device.read(&found, bytemuck::cast_slice_mut(&mut words))?;
    Ok(verdict(&words))
}

/// A thread and the words it wrote.
#[derive(Clone, Copy)]
struct Member<'a> {
    thread: u32,
    words: &'a [u32],
}

impl Member<'_> {
    fn id(&self) -> u32 {
        self.words[1]
    }

    fn number(&self) -> u32 {
        number_of(self.thread)
    }
}

fn number_of(thread: u32) -> u32 {
    thread.wrapping_mul(2_654_435_761) >> 20
}

/// The sizes of the subgroups that all workgroups' words show, if every one of them is right.
fn verdict(words: &[u32]) -> Option<Sizes> {
    let mut sizes: Option<Sizes> = None;
    for group in words.chunks_exact(THREADS * WORDS) {
        let members = || group.chunks_exact(WORDS).zip(0..).map(|(words, thread)| Member { thread, words });
        for leader in members().filter(|member| member.words[2] == member.thread) {
            let mut subgroup: Vec<Member> = members().filter(|member| member.words[2] == leader.thread).collect();
            subgroup.sort_by_key(Member::id);
            if subgroup[0].thread != leader.thread || !is_right(&subgroup) {
                return None;
            }
            let size = subgroup.len() as u32;
            let Sizes { least, most } = sizes.unwrap_or(Sizes { least: size, most: size });
            sizes = Some(Sizes { least: least.min(size), most: most.max(size) });
        }
        if members().any(|member| group.get(member.words[2] as usize * WORDS + 2) != Some(&member.words[2])) {
            return None; // a thread whose first thread is none
        }
    }
    sizes
}

/// Whether each member of a subgroup has all words as they must be. Members are in the order of their numbers in it.
fn is_right(subgroup: &[Member]) -> bool {
    let size = subgroup.len() as u32;
    let numbers = || subgroup.iter().map(Member::number);
    let sum: u32 = numbers().sum();
    let ballot = subgroup
        .iter()
        .filter(|member| member.number() & 1 == 1)
        .fold(0u128, |bits, member| bits | 1u128.checked_shl(member.id()).unwrap_or(0));
    let turned = |n: u32| (0..n % 5).map(|turn| n + turn).sum::<u32>();
    let first = subgroup[0].number();
    let shared = [
        (3, size),
        (5, sum),
        (7, numbers().max().unwrap_or(0)),
        (8, numbers().min().unwrap_or(0)),
        (9, ballot as u32),
        (10, (ballot >> 32) as u32),
        (11, (ballot >> 64) as u32),
        (12, (ballot >> 96) as u32),
        (13, (sum as f32 * 0.25).to_bits()),
        (14, (-(numbers().min().unwrap_or(0) as f32)).to_bits()),
        (16, numbers().map(turned).sum()),
        (17, numbers().map(|n| if n & 2 == 2 { n } else { 1 }).sum()),
        (18, if first & 1 == 0 { sum + 1 } else { 0 }),
        (19, first),
    ];
    let mut before = 0;
    subgroup.iter().zip(0..).all(|(member, lane)| {
        let other = if (member.id() ^ 1) < size { member.id() ^ 1 } else { member.id() };
        let beside = subgroup.get(other as usize).map_or(0, Member::number);
        let own = [(0, size), (1, lane), (4, lane), (6, before), (15, beside)];
        before += member.number();
        own.iter().chain(&shared).all(|&(word, must)| member.words[word] == must)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Subgroups of the sizes given, one after the other until all threads have one; a workgroup's words.
    fn workgroup(sizes: &[usize]) -> Vec<u32> {
        let mut words = Vec::new();
        let mut first = 0;
        for &size in sizes.iter().cycle() {
            let numbers: Vec<u32> = (first..first + size).map(|thread| number_of(thread as u32)).collect();
            let odd: u128 = numbers.iter().zip(0..).map(|(n, lane)| u128::from(n & 1) << lane).sum();
            let sum: u32 = numbers.iter().sum();
            let (least, most) = (numbers.iter().min().unwrap(), numbers.iter().max().unwrap());
            let turned: u32 = numbers.iter().map(|n| (0..n % 5).map(|turn| n + turn).sum::<u32>()).sum();
            let branched: u32 = numbers.iter().map(|n| if n & 2 == 0 { 1 } else { *n }).sum();
            for lane in 0..size {
                let before: u32 = numbers[..lane].iter().sum();
                let beside = numbers.get(lane ^ 1).unwrap_or(&numbers[lane]);
                words.extend([size as u32, lane as u32, first as u32, size as u32, lane as u32]);
                words.extend([sum, before, *most, *least]);
                words.extend([0, 32, 64, 96].map(|shift| (odd >> shift) as u32));
                words.extend([(sum as f32 / 4.0).to_bits(), (-(*least as f32)).to_bits(), *beside, turned, branched]);
                words.extend([if numbers[0] & 1 == 0 { sum + 1 } else { 0 }, numbers[0]]);
            }
            first += size;
            if first == THREADS {
                return words;
            }
        }
        words
    }

    #[test]
    fn the_kernel_writes_as_many_words() {
        let source = Kernel::plain(File::SubgroupCheck, "subgroup_check").source();
        assert!(source.contains(&format!("const WORDS = {WORDS}u;")));
        assert!(source.contains(&format!("@workgroup_size({THREADS})")));
    }

    #[test]
    fn every_size_passes() {
        for size in [1, 2, 4, 8, 16, 32, 64, 128] {
            let words = [workgroup(&[size]), workgroup(&[size])].concat();
            assert_eq!(verdict(&words), Some(Sizes { least: size as u32, most: size as u32 }));
        }
    }

    #[test]
    fn sizes_may_differ() {
        let words = [workgroup(&[8]), workgroup(&[16, 48]), workgroup(&[32])].concat();
        assert_eq!(verdict(&words), Some(Sizes { least: 8, most: 48 }));
    }

    /// Whatever word of whatever thread is wrong.
    #[test]
    fn every_wrong_word_is_found() {
        let right = workgroup(&[16]);
        for at in (0..right.len()).step_by(7) {
            let mut words = right.clone();
            words[at] ^= 1;
            assert_eq!(verdict(&words), None, "word {} of thread {}", at % WORDS, at / WORDS);
        }
        assert_eq!(verdict(&vec![0; right.len()]), None);
    }
}
