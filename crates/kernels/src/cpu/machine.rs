//! What the machine says about itself.

use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// The processor's brand, or its architecture where it has none to tell.
pub fn name() -> String {
    let system = System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()));
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Bytes of memory that this process may use: the machine's, or its control group's where that is less. None where the
/// system does not tell, as Linux without `/proc`.
pub fn memory() -> Option<u64> {
    let mut system = System::new();
    system.refresh_memory();
    usable(system.total_memory(), || system.cgroup_limits().map(|limits| limits.total_memory))
}

/// `limit` is asked only beside a known total: `sysinfo` panics without one.
fn usable(total: u64, limit: impl FnOnce() -> Option<u64>) -> Option<u64> {
    (total > 0).then(|| limit().map_or(total, |limit| limit.min(total)))
}

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn memory_is_the_machines_within_the_groups_limit() {
        assert_eq!(usable(8, || None), Some(8));
        assert_eq!(usable(8, || Some(4)), Some(4));
        assert_eq!(usable(8, || Some(16)), Some(8));
        assert_eq!(usable(0, || panic!("asked without a total")), None);
    }
}
