//! Whether other programs leave the machine enough to be measured.

use std::thread;
use std::time::Duration;

use sysinfo::System;

/// How long it is watched. Nothing of this program may compute meanwhile.
const MOMENT: Duration = Duration::from_millis(250);

/// The part of a processor that the system itself takes at any time.
const NOISE: f64 = 0.15;

/// Watches the machine for a moment; what to tell a reader if `threads` threads would not have a processor each.
pub fn warning(threads: usize) -> Option<String> {
    let mut system = System::new();
    system.refresh_cpu_usage();
    thread::sleep(MOMENT.max(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL));
    system.refresh_cpu_usage();
    let used = system.cpus().iter().map(|cpu| f64::from(cpu.cpu_usage()) / 100.0).sum();
    told(used, system.cpus().len(), threads)
}

/// The same of a machine of so many processors, of which `used` are at work.
fn told(used: f64, processors: usize, threads: usize) -> Option<String> {
    let free = processors as f64 - used;
    (processors > 0 && free < threads.min(processors) as f64 - NOISE).then(|| {
        format!(
            "the machine is busy: other programs use {used:.1} of its {processors} processors, so times are too long"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn others_matter_where_they_leave_too_little() {
        assert_eq!(told(0.1, 2, 2), None);
        assert_eq!(told(30.0, 64, 16), None);
        assert_eq!(told(0.9, 2, 1), None);
        assert_eq!(told(0.5, 4, 64).unwrap(), told(0.5, 4, 4).unwrap());
        assert!(told(1.25, 2, 1).unwrap().contains("other programs use 1.2 of its 2 processors"));
        assert_eq!(told(0.0, 0, 2), None);
    }
}
