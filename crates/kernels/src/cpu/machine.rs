//! What the machine says about itself.

use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// The processor's brand, or its architecture where it has none to tell.
pub fn name() -> String {
    let system = System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()));
    let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.into())
}

/// Bytes of memory that this process may use: the machine's, or its control group's where that is less.
pub fn memory() -> u64 {
    let mut system = System::new();
    system.refresh_memory();
    let limit = system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory);
    system.total_memory().min(limit)
}
